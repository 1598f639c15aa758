//! The thread between two stages of a pipeline.

use std::sync::Arc;

use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::feed::look_and_push;
use crate::engine::reckoning::{ReceiverEnd, Reckoning};
use crate::error::Error;
use crate::observe::event::{Destination, Origin};
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;
use crate::run::handover::feeder::Feeder;
use crate::run::no_output::{Effect, FailedItem, NoOutput, PartMark};
use crate::run::parts::PartStage;
use crate::run::run_state::RunState;
use crate::run::taken::Taken;
use crate::runner::RunControl;
use crate::scheduler::window::Window;

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

/// The progress of a link.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinkProgress {
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

impl LinkProgress {
    /// Publishes how many items the second run has read.
    pub(super) fn publish_read(&self, to: &RunState) {
        to.event_log.read(self.places - self.marks);
    }

    /// Counts a result that was passed on.
    pub(super) fn hand_on(&mut self, from: &RunState) {
        self.reckoning.taken.ok += 1;
        self.reckoning.publish(from);
    }

    /// Counts and reports an item of `from` that failed, in its turn. Returns what the second run gets in its place.
    pub(super) fn fail(
        &mut self,
        from: &RunState,
        seq: u64,
        mut failed: FailedItem,
    ) -> Result<FailedItem, LinkEnd> {
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

    /// Why `from` has no more results. `total` is the number of its items, as far as it is known.
    pub(super) fn end_of(&mut self, from: &RunState, consumed: u64, total: Option<u64>) -> LinkEnd {
        match self.reckoning.end(from, consumed, total, || None) {
            ReceiverEnd::Complete => LinkEnd::Complete,
            ReceiverEnd::Unwanted | ReceiverEnd::Cancelled => LinkEnd::Unwanted,
            ReceiverEnd::Failed(error) => LinkEnd::Failed(Box::new(FailedItem::ending(error))),
        }
    }
}

impl<A, B, D> StageLink<A, B, D> {
    pub(crate) fn new(from: Earlier<A, B>, to: Arc<Run<B, D>>) -> Self {
        StageLink { from, to }
    }

    /// Passes everything on. Then ends the first run, and the input of the second.
    pub(crate) fn run(self) -> Relayed {
        let StageLink { from, to } = self;
        between(&from, &to, |collector, feeder| {
            Hands { from: &from.run, to: &to }.hand_on(collector, feeder)
        })
    }
}

/// Has `hand_on` pass everything from one run to the next. Then ends the first run, and the input of the
/// second.
pub(super) fn between<A, B, C, D>(
    from: &Earlier<A, B>,
    to: &Run<C, D>,
    hand_on: impl FnOnce(&mut Collector<B>, &mut Feeder<C, D>) -> (LinkProgress, LinkEnd),
) -> Relayed {
    let Earlier { run: from, order, window, .. } = from;
    let over = AbortGuard::new(from);
    // Dropped only by a bug of ours. Without it, the second run would wait for the end of its input for
    // ever.
    let bug = AbortGuard::new(to);
    let mut collector = Collector::new(&from.handover, *order, *window, now());
    let mut feeder = Feeder::new(&to.handover);
    from.handover.stats.goes_to(Destination::NextStage);
    to.handover.stats.comes_from(Origin::StageBefore);
    let (progress, ended) = hand_on(&mut collector, &mut feeder);
    // The source of the second run counts as working while this thread waits for results of the first.
    let (working, waited) = (collector.waited(), feeder.waited());
    to.handover.stats.source_left(working + waited, waited);
    let relayed = end_input(to, &mut feeder, progress, ended);
    bug.disarm();
    drop(over);
    collector.leave(&from.handover).into_iter().for_each(drop_quietly);
    relayed
}

/// Waits for a permit of `to`. First returns all permits of `from`, or its producers would wait together with
/// this thread.
pub(super) fn take_permit<A, B, C, D>(
    from: &Run<A, B>,
    to: &Run<C, D>,
    collector: &mut Collector<B>,
    feeder: &mut Feeder<C, D>,
) -> bool {
    if feeder.spend(&to.handover) {
        return true;
    }
    collector.repay(&from.handover);
    wait_for_permit(to, feeder) && feeder.spend(&to.handover)
}

pub(super) fn wait_for_permit<I, T>(to: &Run<I, T>, feeder: &mut Feeder<I, T>) -> bool {
    let before = feeder.waited();
    let has_permit = feeder.wait_for_permit(&to.handover);
    to.report_full_window(feeder.waited() - before);
    has_permit
}

/// Waits until memory has room for the item that was given last. Until then it counts in `from`.
pub(super) fn wait_for_room<A, B, C, D>(
    from: &Run<A, B>,
    to: &Run<C, D>,
    collector: &mut Collector<B>,
    feeder: &mut Feeder<C, D>,
) -> Result<(), LinkEnd> {
    if feeder.holds_item() {
        collector.repay(&from.handover);
    }
    match feeder.wait_for_room(&to.handover) {
        true => Ok(()),
        false => Err(LinkEnd::Unwanted),
    }
}

/// Gives out an item of `to`, for which there is a permit.
pub(super) fn give<I, T>(
    to: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    item: I,
    progress: &mut LinkProgress,
) -> Result<(), LinkEnd> {
    let given = match to.run_settings.measures.is_none() && !to.asks_for_names() {
        true => {
            feeder.push(&to.handover, item);
            Ok(())
        }
        false => look_and_push(to, feeder, progress.places, item),
    };
    if let Err(rejected) = given {
        reject(to, feeder, rejected.into_error(progress.places), progress)?;
    }
    progress.given += 1;
    progress.places += 1;
    progress.publish_read(to);
    Ok(())
}

/// Leaves a gap for an item that failed before it was given out, if the policy of `to` is to skip it.
pub(super) fn reject<I, T>(
    to: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    error: Error,
    progress: &LinkProgress,
) -> Result<(), LinkEnd> {
    let mut error = to.named(error);
    match to.verdict(&mut error) {
        Verdict::Skip => {
            if let Some(parts) = to.parts.get() {
                parts.fail(progress.places);
            }
            feeder.leave_gap(&to.handover, progress.places, Err(to.skipping(error)));
            Ok(())
        }
        Verdict::Retry | Verdict::RetryHere | Verdict::Stop => Err(LinkEnd::Rejected(error)),
    }
}

/// Has items of `to` before `below` not wait for a batch to fill. In a stage that marks must pass, or that has
/// other indices, none of `all` waits. The mark may be ahead of some of them.
pub(super) fn hurry<I, T>(to: &Run<I, T>, below: u64, all: u64) {
    let is_exact = to.parts.get().is_none_or(|parts| parts.keeps_indices() && parts.is_last());
    to.handover.dispatch.hurry(if is_exact { below } else { all });
}

/// Ends the input of `to`. A failure takes the index that its item would have had.
fn end_input<I, T>(
    to: &Run<I, T>,
    feeder: &mut Feeder<I, T>,
    progress: LinkProgress,
    ended: LinkEnd,
) -> Relayed {
    let LinkProgress { reckoning: Reckoning { taken, .. }, parents_failed, given, places, .. } =
        progress;
    let mut given = FeedCounts { items: given, unread: None, passed_on: None };
    let fault = match ended {
        LinkEnd::Complete => {
            given.unread = Some(0);
            None
        }
        LinkEnd::Unwanted => None,
        LinkEnd::Failed(failed) => {
            given.passed_on = Some(places);
            Some(Box::new(NoOutput::Failed(failed.in_next_stage())))
        }
        LinkEnd::Rejected(error) => {
            given.items += 1;
            Some(to.ending(error))
        }
    };
    let all = places + u64::from(fault.is_some());
    if let Some(fault) = fault {
        to.fail(places);
        feeder.deliver(&to.handover, places, Err(fault));
    }
    feeder.clear(&to.handover).into_iter().for_each(drop_quietly);
    to.handover.end(all);
    Relayed { taken, given, kind: LinkKind::Direct, parents_failed }
}

/// The work of a [`StageLink`].
struct Hands<'a, A, B, D> {
    from: &'a Run<A, B>,
    to: &'a Run<B, D>,
}

impl<A, B, D> Hands<'_, A, B, D> {
    /// Passes results on. Returns the progress, and why it ended.
    fn hand_on(
        &self,
        collector: &mut Collector<B>,
        feeder: &mut Feeder<B, D>,
    ) -> (LinkProgress, LinkEnd) {
        let from = self.from;
        let mut total = None;
        let mut progress = LinkProgress::default();
        while take_permit(from, self.to, collector, feeder) {
            let Some((seq, outcome)) = collector.next_result(from, &mut total) else {
                let ended = progress.end_of(from, collector.consumed(), total);
                return (progress, ended);
            };
            let ended = match outcome.map_err(|none| *none) {
                Ok(output) => {
                    self.pass_identity(seq, progress.places);
                    self.give(feeder, seq, output, &mut progress)
                        .and_then(|()| wait_for_room(from, self.to, collector, feeder))
                }
                Err(NoOutput::Failed(failed)) => self.pass_over(feeder, seq, failed, &mut progress),
                Err(NoOutput::Done { counted_by }) => {
                    progress.reckoning.done(from, counted_by);
                    self.leave_gap(feeder, NoOutput::Done { counted_by }, &mut progress);
                    collector.done_without_work(&from.handover);
                    continue;
                }
                Err(NoOutput::Withdrawn) => {
                    self.pass_origin(seq, progress.places);
                    self.leave_gap(feeder, NoOutput::Withdrawn, &mut progress);
                    Ok(())
                }
                Err(NoOutput::Mark(mark)) => {
                    feeder.keep();
                    self.pass_mark(feeder, seq, mark, &mut progress);
                    collector.done_with_mark();
                    continue;
                }
            };
            if let Err(ended) = ended {
                return (progress, ended);
            }
            from.remove_name(seq);
            collector.done(&from.handover);
        }
        (progress, LinkEnd::Unwanted)
    }

    /// Lets the next item of the second run keep the name and journal key of the result.
    fn pass_identity(&self, seq: u64, place: u64) {
        if self.to.recording.inherits_names {
            self.to.enter_name(place, self.from.take_entry(seq));
        }
    }

    /// Gives out a result as an item of the second run.
    fn give(
        &self,
        feeder: &mut Feeder<B, D>,
        seq: u64,
        output: B,
        progress: &mut LinkProgress,
    ) -> Result<(), LinkEnd> {
        self.pass_origin(seq, progress.places);
        // Even if it is rejected: it is no failure of the first run.
        progress.hand_on(self.from);
        give(self.to, feeder, output, progress)
    }

    /// Leaves a gap in the second run for an item that the first has skipped.
    fn pass_over(
        &self,
        feeder: &mut Feeder<B, D>,
        seq: u64,
        failed: FailedItem,
        progress: &mut LinkProgress,
    ) -> Result<(), LinkEnd> {
        let failed = match failed.effect {
            Effect::Ends => return progress.fail(self.from, seq, failed).map(drop),
            Effect::Skipped => {
                self.pass_identity(seq, progress.places);
                progress.fail(self.from, seq, failed)?
            }
        };
        self.pass_origin(seq, progress.places);
        self.push_gap(feeder, NoOutput::Failed(failed), progress);
        Ok(())
    }

    /// Passes on a mark among parts.
    #[cold]
    fn pass_mark(
        &self,
        feeder: &mut Feeder<B, D>,
        seq: u64,
        mark: PartMark,
        progress: &mut LinkProgress,
    ) {
        self.pass_origin(seq, progress.places);
        if let PartMark::Pause { below, all } = mark {
            hurry(self.to, below, all);
        }
        self.push_gap(feeder, NoOutput::Mark(mark), progress);
        progress.marks += 1;
    }

    /// Leaves a gap for an index that has no name.
    fn leave_gap(&self, feeder: &mut Feeder<B, D>, none: NoOutput, progress: &mut LinkProgress) {
        self.push_gap(feeder, *none.in_next_stage(), progress);
    }

    fn push_gap(&self, feeder: &mut Feeder<B, D>, none: NoOutput, progress: &mut LinkProgress) {
        feeder.leave_gap(&self.to.handover, progress.places, Err(Box::new(none)));
        progress.places += 1;
    }

    /// Carries the identity of a part on.
    fn pass_origin(&self, seq: u64, place: u64) {
        if let (Some(from), Some(to)) = (self.from.parts.get(), self.to.parts.get()) {
            to.enter(place, from.origin(seq));
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
