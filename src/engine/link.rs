//! The thread between two stages of a pipeline.

use std::sync::Arc;

use crate::backend::threads::failed_item::{Disposition, FailedItem};
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::backend::threads::taken::Failure;
use crate::backend::threads::taken::Taken;
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::consume::AbortAtEnd;
use crate::engine::feed::look_and_push;
use crate::error::Error;
use crate::observe::event::{Destination, Origin};
use crate::runner::Runner;
use crate::scheduler::policy::{Policy, Verdict};
use crate::scheduler::window::Window;

/// Passes the results of one run on as the items of the next. It is the consumer of the first and the feeder
/// of the second. It calls no hook, but the functions that measure items of the second run.
///
/// It takes a permit of the second run before a result of the first, as a feeder does before it pulls its
/// input. So the item that it holds is within the windows of both.
pub(crate) struct StageLink<A: Runner, B: Runner<Input = A::Output>> {
    from: Arc<Run<A>>,
    order: Order,
    window: Window,
    to: Arc<Run<B>>,
}

/// The counts of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Relayed {
    /// The results taken from the first run.
    pub(crate) taken: Taken,
    /// The items given to the second run.
    pub(crate) given: NextItem,
}

/// The counts of a run's feeder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct NextItem {
    pub(crate) items: u64,
    pub(crate) unread: Option<u64>,
    /// The index at which the failure of an earlier stage was passed on; no item of this stage has it.
    pub(crate) passed_on: Option<u64>,
}

/// Why a link passes nothing more on.
enum Ended {
    /// All results of the first run were passed on.
    Complete,
    /// The second run wants no more items.
    Unwanted,
    Failed(Failure, Box<FailedItem>),
    /// The second run cannot take a result of the first.
    Rejected(Error),
}

/// The progress of a link.
#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    /// The number of results passed on.
    handed: u64,
    /// The number of items that the first run skipped.
    skipped: u64,
    /// The number of items that an earlier run has done.
    already_done: u64,
    /// The number of indices of the second run that are used, by items and gaps.
    places: u64,
}

impl Progress {
    /// The number of items that the first run has finished.
    fn items(&self) -> u64 {
        self.handed + self.skipped
    }

    /// Ends the run because the first run has skipped more items than allowed.
    fn too_many_failures(&self, policy: &Policy, seq: u64, last: Option<Error>) -> Ended {
        let error = policy.too_many(self.skipped, self.items(), last);
        // The items themselves are already counted.
        Ended::Failed(Failure { seq, items: 0 }, FailedItem::ending(error))
    }
}

impl<A: Runner, B: Runner<Input = A::Output>> StageLink<A, B> {
    pub(crate) fn new(from: Arc<Run<A>>, order: Order, window: Window, to: Arc<Run<B>>) -> Self {
        StageLink { from, order, window, to }
    }

    /// Passes everything on. Then ends the first run, and the input of the second.
    pub(crate) fn run(self) -> Relayed {
        let over = AbortAtEnd(&*self.from);
        // Dropped only by a bug of ours. Without it, the second run would wait for the end of its input for
        // ever.
        let bug = AbortAtEnd(&*self.to);
        let mut collector = Collector::new(&self.from.handover, self.order, self.window, now());
        let mut feeder = Feeder::new(&self.to.handover);
        self.from.handover.stats.goes_to(Destination::NextStage);
        self.to.handover.stats.comes_from(Origin::StageBefore);
        let (progress, ended) = self.hand_on(&mut collector, &mut feeder);
        // The source of the second run counts as working while this thread waits for results of the first.
        let (working, waited) = (collector.waited(), feeder.waited());
        self.to.handover.stats.source_left(working + waited, waited);
        let relayed = self.end(&mut feeder, progress, ended);
        std::mem::forget(bug);
        drop(over);
        collector.leave(&self.from.handover).into_iter().for_each(drop_quietly);
        relayed
    }

    /// Passes results on. Returns the progress, and why it ended.
    fn hand_on(
        &self,
        collector: &mut Collector<A::Output>,
        feeder: &mut Feeder<B::Input, B::Output>,
    ) -> (Progress, Ended) {
        let from = &*self.from;
        let mut total = None;
        let mut progress = Progress::default();
        while self.take_permit(collector, feeder) {
            let Some((seq, outcome)) = collector.next_result(from, &mut total) else {
                if let Some(error) = from.take_fatal_error() {
                    let (seq, items) = (collector.consumed(), error.items().len() as u64);
                    if items > 0 {
                        from.report_failure(&error);
                    }
                    let failure = Failure { seq, items };
                    return (progress, Ended::Failed(failure, FailedItem::ending(error)));
                }
                let is_complete = total == Some(collector.consumed());
                let gives_up = from.policy().gives_up_at_end(progress.skipped, progress.items());
                let ended = match is_complete {
                    true if gives_up && !from.is_stopped() => {
                        progress.too_many_failures(from.policy(), collector.consumed(), None)
                    }
                    true => Ended::Complete,
                    false => Ended::Unwanted,
                };
                return (progress, ended);
            };
            let ended = match outcome {
                Ok(output) => {
                    self.pass_identity(seq, progress.places);
                    self.give(feeder, output, &mut progress)
                }
                Err(fault) if fault.disposition.ends_run() => {
                    let failure = Failure { seq, items: fault.items() };
                    if fault.disposition == Disposition::End {
                        from.report_failure(&fault.error);
                    }
                    Err(Ended::Failed(failure, fault))
                }
                Err(fault) if fault.disposition.is_already_done() => {
                    self.pass_done(feeder, *fault, &mut progress);
                    collector.done_without_work(&from.handover);
                    continue;
                }
                Err(fault) => self.pass_over(feeder, seq, *fault, &mut progress),
            };
            if let Err(ended) = ended {
                return (progress, ended);
            }
            from.remove_name(seq);
            collector.done(&from.handover);
        }
        (progress, Ended::Unwanted)
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
        feeder: &mut Feeder<B::Input, B::Output>,
        output: A::Output,
        progress: &mut Progress,
    ) -> Result<(), Ended> {
        let to = &*self.to;
        let given = match to.run_settings.measures.is_none() && !to.asks_for_names() {
            true => {
                feeder.push(&to.handover, output);
                Ok(())
            }
            false => look_and_push(to, feeder, progress.places, output),
        };
        if let Err(rejected) = given {
            let mut error = to.named(rejected.into_error(progress.places));
            match to.verdict(&mut error) {
                Verdict::Skip => {
                    let fault = Err(FailedItem::skipped(error));
                    feeder.leave_gap(&to.handover, progress.places, fault);
                }
                Verdict::Retry | Verdict::Stop => return Err(Ended::Rejected(error)),
            }
        }
        progress.handed += 1;
        self.from.event_log.consumed(progress.handed);
        progress.places += 1;
        Ok(())
    }

    /// Leaves a gap in the second run for an item that an earlier run has done. It has no name.
    fn pass_done(
        &self,
        feeder: &mut Feeder<B::Input, B::Output>,
        fault: FailedItem,
        progress: &mut Progress,
    ) {
        progress.already_done += fault.done_items();
        feeder.leave_gap(&self.to.handover, progress.places, Err(fault.in_next_stage()));
        progress.places += 1;
    }

    /// Leaves a gap in the second run for an item that the first has skipped.
    fn pass_over(
        &self,
        feeder: &mut Feeder<B::Input, B::Output>,
        seq: u64,
        fault: FailedItem,
        progress: &mut Progress,
    ) -> Result<(), Ended> {
        self.pass_identity(seq, progress.places);
        progress.skipped += fault.items();
        if fault.disposition == Disposition::Skip {
            self.from.report_failure(&fault.error);
        }
        if self.from.policy().gives_up_at(progress.skipped, progress.items()) {
            return Err(progress.too_many_failures(self.from.policy(), seq, Some(fault.error)));
        }
        feeder.leave_gap(&self.to.handover, progress.places, Err(fault.in_next_stage()));
        progress.places += 1;
        Ok(())
    }

    /// Waits for a permit of the second run. First returns all permits of the first run, or its producers
    /// would wait together with this thread.
    fn take_permit(
        &self,
        collector: &mut Collector<A::Output>,
        feeder: &mut Feeder<B::Input, B::Output>,
    ) -> bool {
        if feeder.spend(&self.to.handover) {
            return true;
        }
        collector.repay(&self.from.handover);
        let before = feeder.waited();
        let has_permit = feeder.wait_for_permit(&self.to.handover);
        self.to.report_full_window(feeder.waited() - before);
        has_permit && feeder.spend(&self.to.handover)
    }

    /// Ends the input of the second run. A failure takes the index that its item would have had.
    fn end(
        &self,
        feeder: &mut Feeder<B::Input, B::Output>,
        progress: Progress,
        ended: Ended,
    ) -> Relayed {
        let Progress { handed, skipped, already_done, places } = progress;
        let mut taken = Taken { ok: handed, skipped, already_done, failure: None };
        let mut given = NextItem { items: handed, unread: None, passed_on: None };
        let fault = match ended {
            Ended::Complete => {
                given.unread = Some(0);
                None
            }
            Ended::Unwanted => None,
            Ended::Failed(failure, fault) => {
                taken.failure = Some(failure);
                given.passed_on = Some(places);
                Some(fault.in_next_stage())
            }
            Ended::Rejected(error) => {
                taken.ok += 1;
                given.items += 1;
                Some(FailedItem::ending(error))
            }
        };
        let all = places + u64::from(fault.is_some());
        if let Some(fault) = fault {
            self.to.fail(places);
            feeder.deliver(&self.to.handover, places, Err(fault));
        }
        feeder.clear(&self.to.handover).into_iter().for_each(drop_quietly);
        self.to.handover.end(all);
        Relayed { taken, given }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::api::map::map;
    use crate::backend::threads::recording::Recording;
    use crate::backend::threads::run_shape::CarriedOver;
    use crate::backend::threads::run_shape::Shape;
    use crate::observe::event_log::{Detail, EventLog};
    use crate::runner::RunControl;

    fn run_of<R: Runner>(_: &R, upstream: Option<Arc<dyn RunControl>>) -> Arc<Run<R>> {
        let shape = Shape {
            order: Order::Input,
            producers: 1,
            spares: 0,
            window: 4,
            batching: None,
            kind: Default::default(),
        };
        Arc::new(Run::new(
            shape,
            Arc::default(),
            CarriedOver::nothing(1),
            upstream,
            Arc::new(EventLog::new(1, None, Detail::Run)),
            Recording::default(),
        ))
    }

    /// A second feeder of the later run is a bug; it stands for any bug here.
    #[test]
    fn a_bug_of_ours_ends_both_runs_and_is_not_hidden() {
        let runner = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let from = run_of(&runner, None);
        let to = run_of(&runner, Some(from.clone()));
        let _feeder = Feeder::new(&to.handover);
        let relay = StageLink::new(from.clone(), Order::Input, Window::fixed(4), to.clone());
        assert!(catch_unwind(AssertUnwindSafe(|| relay.run())).is_err());
        assert!(from.is_stopped());

        let mut collector = Collector::new(&to.handover, Order::Input, Window::fixed(4), now());
        let next = catch_unwind(AssertUnwindSafe(|| collector.next_result(&*to, &mut None)));
        let message = next.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("another thread died of a bug"), "{message}");
    }
}
