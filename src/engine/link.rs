//! The thread between two stages of a pipeline.

use std::sync::Arc;

use gangline_scheduler::window::Window;

use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::feed::{look_and_push, wait_for_permit};
use crate::engine::reckoning::{ReceiverEnd, Reckoning};
use crate::error::Error;
use crate::observe::event::{Destination, Origin};
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;
use crate::run::handover::feeder::Feeder;
use crate::run::no_output::{Effect, FailedItem, NoOutput, PartMark};
use crate::run::outbox::Outcome;
use crate::run::parts::PartStage;
use crate::run::run_state::RunState;
use crate::run::taken::Taken;
use crate::runner::RunControl;

/// Passes the results of one run on as the items of the next. It is the consumer of the first and the feeder
/// of the second. It calls no hook, but the functions that measure items of the second run.
///
/// It takes a permit of the second run before a result of the first, as a feeder does before it pulls its
/// input. So the item that it holds is within the windows of both.
pub(crate) struct StageLink<A, B, D> {
    from: Earlier<A, B>,
    to: Arc<Run<B, D>>,
}

/// A kind of link, from a stage that makes `B` of `A` to one that makes `D` of `C`.
pub(crate) trait Joint<A, B, C, D>: Send + Sync {
    fn kind(&self) -> LinkKind;

    /// Prepares the link behind this run.
    fn prepare(&self, from: Earlier<A, B>, producers: usize) -> Prepared<C, D>;
}

/// A link that lacks the later run.
pub(crate) struct Prepared<I, T> {
    /// Stops what is before the later run.
    pub(crate) upstream: Arc<dyn RunControl>,
    pub(crate) join: JoinLater<I, T>,
}

/// Gets the later run.
type JoinLater<I, T> = Box<dyn FnOnce(Arc<Run<I, T>>) -> Work>;

/// The work of a link's thread.
pub(crate) type Work = Box<dyn FnOnce() -> Relayed + Send>;

/// Passes each result on as one item.
#[derive(Debug)]
pub(crate) struct Direct;

/// The run that a link takes results from, and how.
pub(crate) struct Earlier<I, T> {
    pub(crate) run: Arc<Run<I, T>>,
    pub(crate) order: Order,
    pub(crate) window: Window,
    /// The number of its stage, from 0.
    pub(crate) stage: usize,
}

/// The counts of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Relayed {
    /// The results taken from the first run.
    pub(crate) taken: Taken,
    /// The items given to the second run.
    pub(crate) given: FeedCounts,
    pub(crate) kind: LinkKind,
    /// The number of parents that failed with a part.
    pub(crate) parents_failed: u64,
}

/// What a link makes of the results that it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum LinkKind {
    /// One item of each.
    #[default]
    Direct,
    /// Many items of each.
    Expands,
    /// One item of many.
    Gathers,
}

/// The counts of a run's feeder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FeedCounts {
    pub(crate) items: u64,
    pub(crate) unread: Option<u64>,
    /// The index at which the failure of an earlier stage was passed on; no item of this stage has it.
    pub(crate) passed_on: Option<u64>,
}

/// Why a link passes nothing more on.
pub(super) enum LinkEnd {
    /// All results of the first run were passed on.
    Complete,
    /// The second run wants no more items.
    Unwanted,
    Failed(Box<FailedItem>),
    /// The second run cannot take a result of the first.
    Rejected(Error),
}

/// A link at work: takes the results of one run, and gives out the items of the next.
pub(super) struct LinkHands<'a, A, B, C, D> {
    pub(super) from: &'a Run<A, B>,
    pub(super) to: &'a Run<C, D>,
    pub(super) collector: Collector<B>,
    pub(super) feeder: Feeder<C, D>,
    /// The number of items of the first run, once it is known.
    total: Option<u64>,
    /// The results of the first run.
    pub(super) reckoning: Reckoning,
    /// The number of parents that failed with a part.
    pub(super) parents_failed: u64,
    /// The number of items given to the second run.
    pub(super) given: u64,
    /// The number of indices of the second run that are used, by items, gaps and marks.
    pub(super) places: u64,
    /// The number of indices that are used by marks.
    pub(super) marks: u64,
}

impl<A, B, D> StageLink<A, B, D> {
    pub(crate) fn new(from: Earlier<A, B>, to: Arc<Run<B, D>>) -> Self {
        StageLink { from, to }
    }

    /// Passes everything on. Then ends the first run, and the input of the second.
    pub(crate) fn run(self) -> Relayed {
        between(&self.from, &self.to, |hands| hands.pass_all())
    }
}

/// Has `hand_on` pass everything from one run to the next. Then ends the first run, and the input of the
/// second.
pub(super) fn between<A, B, C, D>(
    from: &Earlier<A, B>,
    to: &Run<C, D>,
    hand_on: impl FnOnce(&mut LinkHands<'_, A, B, C, D>) -> LinkEnd,
) -> Relayed {
    let Earlier { run: from, order, window, .. } = from;
    let over = AbortGuard::new(from);
    // Dropped only by a bug of ours. Without it, the second run would wait for the end of its input for
    // ever.
    let bug = AbortGuard::new(to);
    let _in_run = to.spans.enter();
    let mut hands = LinkHands::new(from, to, *order, *window);
    from.handover.stats.goes_to(Destination::NextStage);
    to.handover.stats.comes_from(Origin::StageBefore);
    let ended = hand_on(&mut hands);
    // The source of the second run counts as working while this thread waits for results of the first.
    let (working, waited) = (hands.collector.waited(), hands.feeder.waited());
    to.handover.stats.source_left(working + waited, waited);
    let relayed = hands.end_input(ended);
    bug.disarm();
    drop(over);
    hands.collector.leave(&from.handover).into_iter().for_each(drop_quietly);
    relayed
}

impl<'a, A, B, C, D> LinkHands<'a, A, B, C, D> {
    fn new(from: &'a Run<A, B>, to: &'a Run<C, D>, order: Order, window: Window) -> Self {
        LinkHands {
            from,
            to,
            collector: Collector::new(&from.handover, order, window, now()),
            feeder: Feeder::new(&to.handover),
            total: None,
            reckoning: Reckoning::default(),
            parents_failed: 0,
            given: 0,
            places: 0,
            marks: 0,
        }
    }

    /// Waits for the next result that is wanted. `None` if there are no more: [`end`](Self::end) says why.
    #[inline]
    pub(super) fn next_result(&mut self) -> Option<(u64, Outcome<B>)> {
        self.collector.next_result(self.from, &mut self.total)
    }

    /// Why there are no more results.
    pub(super) fn end(&mut self) -> LinkEnd {
        let consumed = self.collector.consumed();
        match self.reckoning.end(self.from, consumed, self.total, || None) {
            ReceiverEnd::Complete => LinkEnd::Complete,
            ReceiverEnd::Unwanted | ReceiverEnd::Cancelled => LinkEnd::Unwanted,
            ReceiverEnd::Failed(error) => LinkEnd::Failed(Box::new(FailedItem::ending(error))),
        }
    }

    /// Counts a result that was passed on.
    pub(super) fn count_ok(&mut self) {
        self.reckoning.taken.ok += 1;
        self.reckoning.publish(self.from);
    }

    /// Counts and reports a result that is a failure, in its turn. Returns what the second run gets in its place.
    pub(super) fn fail(&mut self, seq: u64, mut failed: FailedItem) -> Result<FailedItem, LinkEnd> {
        let from = self.from;
        if failed.is_own() {
            failed.error = from.named_part(seq, failed.error);
        }
        self.reckoning.fail(from, seq, &failed);
        match failed.effect {
            Effect::Ends => Err(LinkEnd::Failed(Box::new(failed))),
            Effect::Skipped if self.reckoning.gives_up(from) => {
                let error = self.reckoning.too_many(from, seq, Some(failed.error));
                Err(LinkEnd::Failed(Box::new(FailedItem::ending(error))))
            }
            Effect::Skipped => Ok(failed.in_next_stage()),
        }
    }

    /// Waits for a permit of the second run. First returns all permits of the first, or its producers would wait
    /// together with this thread.
    pub(super) fn take_permit(&mut self) -> bool {
        if self.feeder.spend(&self.to.handover) {
            return true;
        }
        self.collector.repay(&self.from.handover);
        self.wait_for_permit() && self.feeder.spend(&self.to.handover)
    }

    pub(super) fn wait_for_permit(&mut self) -> bool {
        wait_for_permit(self.to, &mut self.feeder)
    }

    /// Waits until memory has room for the item that was given last. Until then it counts in the first run.
    pub(super) fn wait_for_room(&mut self) -> Result<(), LinkEnd> {
        if self.feeder.holds_item() {
            self.collector.repay(&self.from.handover);
        }
        if self.feeder.wait_for_room(&self.to.handover) { Ok(()) } else { Err(LinkEnd::Unwanted) }
    }

    /// Gives out an item, for which there is a permit.
    pub(super) fn give(&mut self, item: C) -> Result<(), LinkEnd> {
        let (to, place) = (self.to, self.places);
        let is_plain = to.run_settings.measures.is_none() && !to.asks_for_names();
        let given = match is_plain {
            true => {
                self.feeder.push(&to.handover, item);
                Ok(())
            }
            false => look_and_push(to, &mut self.feeder, place, item),
        };
        match given {
            Ok(()) => self.count_given(),
            Err(rejected) => self.reject(rejected.into_error(place))?,
        }
        to.event_log.read(self.places - self.marks);
        Ok(())
    }

    fn count_given(&mut self) {
        self.given += 1;
        self.places += 1;
    }

    /// Leaves a gap for an item that failed before it was given out, if the policy of the second run is to skip it.
    pub(super) fn reject(&mut self, error: Error) -> Result<(), LinkEnd> {
        let (to, place) = (self.to, self.places);
        let mut error = to.named(error);
        match to.verdict(&mut error) {
            Verdict::Skip => {
                if let Some(parts) = to.parts.get() {
                    parts.fail(place);
                }
                self.feeder.leave_gap(&to.handover, place, Err(to.skipping(error)));
                self.count_given();
                Ok(())
            }
            Verdict::Retry | Verdict::RetryHere | Verdict::Stop => Err(LinkEnd::Rejected(error)),
        }
    }

    /// Leaves a gap, or a mark among parts. At a pause, items before it do not wait for a batch to fill.
    pub(super) fn leave_gap(&mut self, none: Box<NoOutput>) {
        if let NoOutput::Mark(mark) = &*none {
            self.marks += 1;
            if let PartMark::Pause { below, all } = mark {
                self.hurry(*below, *all);
            }
        }
        self.feeder.leave_gap(&self.to.handover, self.places, Err(none));
        self.places += 1;
    }

    /// Has items before `below` not wait for a batch to fill. In a stage that marks must pass, or that has other
    /// indices, none of `all` waits. The mark may be ahead of some of them.
    fn hurry(&self, below: u64, all: u64) {
        let parts = self.to.parts.get();
        let is_exact = parts.is_none_or(|parts| parts.keeps_indices() && parts.is_last());
        self.to.handover.dispatch.hurry(if is_exact { below } else { all });
    }

    /// Ends the input of the second run. A failure takes the index that its item would have had.
    fn end_input(&mut self, ended: LinkEnd) -> Relayed {
        let LinkHands { to, feeder, reckoning: Reckoning { taken, .. }, places, .. } = self;
        let mut given = FeedCounts { items: self.given, unread: None, passed_on: None };
        let fault = match ended {
            LinkEnd::Complete => {
                given.unread = Some(0);
                None
            }
            LinkEnd::Unwanted => None,
            LinkEnd::Failed(failed) => {
                given.passed_on = Some(*places);
                Some(Box::new(NoOutput::Failed(failed.in_next_stage())))
            }
            LinkEnd::Rejected(error) => {
                given.items += 1;
                Some(to.ending(error))
            }
        };
        let all = *places + u64::from(fault.is_some());
        if let Some(fault) = fault {
            to.fail(*places);
            feeder.deliver(&to.handover, *places, Err(fault));
        }
        feeder.clear(&to.handover).into_iter().for_each(drop_quietly);
        to.handover.end(all);
        let (taken, parents_failed) = (*taken, self.parents_failed);
        Relayed { taken, given, kind: LinkKind::Direct, parents_failed }
    }
}

/// The work of a [`StageLink`].
impl<A, B, D> LinkHands<'_, A, B, B, D> {
    /// Passes results on, and returns why it ended.
    fn pass_all(&mut self) -> LinkEnd {
        let from = self.from;
        while self.take_permit() {
            let Some((seq, outcome)) = self.next_result() else { return self.end() };
            let ended = match outcome.map_err(|none| *none) {
                Ok(output) => self.pass(seq, output).and_then(|()| self.wait_for_room()),
                Err(NoOutput::Failed(failed)) => self.pass_over(seq, failed),
                Err(NoOutput::Done { counted_by }) => {
                    self.reckoning.done(from, counted_by);
                    self.leave_gap(NoOutput::Done { counted_by }.in_next_stage());
                    self.collector.done_without_work(&from.handover);
                    continue;
                }
                Err(NoOutput::Withdrawn) => {
                    self.pass_origin(seq);
                    self.leave_gap(NoOutput::Withdrawn.in_next_stage());
                    Ok(())
                }
                Err(NoOutput::Mark(mark)) => {
                    self.feeder.keep();
                    self.pass_origin(seq);
                    self.leave_gap(Box::new(NoOutput::Mark(mark)));
                    self.collector.done_with_mark();
                    continue;
                }
            };
            if let Err(ended) = ended {
                return ended;
            }
            from.remove_name(seq);
            self.collector.done(&from.handover);
        }
        LinkEnd::Unwanted
    }

    /// Gives out a result as an item of the second run.
    fn pass(&mut self, seq: u64, output: B) -> Result<(), LinkEnd> {
        self.pass_identity(seq);
        self.pass_origin(seq);
        // Even if it is rejected: it is no failure of the first run.
        self.count_ok();
        self.give(output)
    }

    /// Leaves a gap in the second run for an item that the first has skipped.
    fn pass_over(&mut self, seq: u64, failed: FailedItem) -> Result<(), LinkEnd> {
        if failed.effect == Effect::Skipped {
            self.pass_identity(seq);
        }
        let failed = self.fail(seq, failed)?;
        self.pass_origin(seq);
        self.leave_gap(Box::new(NoOutput::Failed(failed)));
        Ok(())
    }

    /// Lets the next item of the second run keep the name and journal key of the result.
    fn pass_identity(&self, seq: u64) {
        if self.to.recording.inherits_names {
            self.to.enter_name(self.places, self.from.take_entry(seq));
        }
    }

    /// Carries the identity of a part on.
    fn pass_origin(&self, seq: u64) {
        if let (Some(from), Some(to)) = (self.from.parts.get(), self.to.parts.get()) {
            to.enter(self.places, from.origin(seq));
            from.forget(seq);
        }
    }
}

impl<A, B, D> Joint<A, B, B, D> for Direct
where
    A: Send + 'static,
    B: Send + 'static,
    D: Send + 'static,
{
    fn kind(&self) -> LinkKind {
        LinkKind::Direct
    }

    fn prepare(&self, from: Earlier<A, B>, _: usize) -> Prepared<B, D> {
        let upstream = from.run.clone();
        let join = move |to: Arc<Run<B, D>>| -> Work {
            if let Some(parts) = from.run.parts.get() {
                be_parts(&to, parts.next(from.order));
            }
            let link = StageLink::new(from, to);
            Box::new(move || link.run())
        };
        Prepared { upstream, join: Box::new(join) }
    }
}

/// Makes the items of a run parts of this stage.
pub(super) fn be_parts(run: &RunState, stage: PartStage) {
    assert!(run.parts.set(Arc::new(stage)).is_ok(), "a run is linked to one before it");
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    /// A second feeder of the later run is a bug; it stands for any bug here.
    #[test]
    fn a_bug_of_ours_ends_both_runs_and_is_not_hidden() {
        let from = Run::<u64, u64>::alone(1, 4, None);
        let to = Run::<u64, u64>::alone(1, 4, Some(from.clone()));
        let _feeder = Feeder::new(&to.handover);
        let (order, window) = (Order::Input, Window::fixed(4));
        let earlier = Earlier { run: from.clone(), order, window, stage: 0 };
        let relay = StageLink::new(earlier, to.clone());
        assert!(catch_unwind(AssertUnwindSafe(|| relay.run())).is_err());
        assert!(from.is_stopped());

        let mut collector = Collector::new(&to.handover, Order::Input, Window::fixed(4), now());
        let next = catch_unwind(AssertUnwindSafe(|| collector.next_result(&*to, &mut None)));
        let message = next.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("another thread died of a bug"), "{message}");
    }
}
