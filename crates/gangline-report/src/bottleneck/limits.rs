//! The limit of a run with its numbers, and the changes to advise.

use std::time::Duration;

use super::{Bottleneck, CLOSE, LEAST_WAIT, MOST, TimeShares, advice};
use crate::account::{Destination, Origin};
use crate::advice::{Advice, PlaceKind};
use crate::conclusion::{BusyPart, CallerForm, Limit, PartKind, Percent};
use crate::head_cost;
use crate::live_producers::mean;
use crate::producer_report::ProducerReport;
use crate::run_report::NO_WINDOW;
use crate::run_report::RunReport;

impl TimeShares {
    /// The limit with its numbers, and what to change, the best first. No setting is advised that is set already, or that
    /// the machine has no room for.
    pub(super) fn concluded(
        &self,
        bottleneck: Bottleneck,
        run: &RunReport,
    ) -> (Limit, Vec<Advice>) {
        let [busy, rebuilding] = [self.producers, self.rebuilding].map(Percent);
        let [full, held_up] = [self.full, self.starved.held_up].map(Percent);
        match bottleneck {
            Bottleneck::Source => self.source_limit(run),
            Bottleneck::Consumer => self.consumer_limit(),
            Bottleneck::Producers => (Limit::Producers { busy, rebuilding }, for_producers(run)),
            Bottleneck::Rebuilding => {
                let sum = |of: fn(&ProducerReport) -> u64| run.producers.iter().map(of).sum();
                let limit = match (sum(|it| it.states_lost), sum(|it| it.rebuilds)) {
                    (0, _) => Limit::Recycling { busy, rebuilding, states: sum(|it| it.recycles) },
                    (states, calls) => Limit::Rebuilding { busy, rebuilding, states, calls },
                };
                let longer = advice::longer_lives(self.rebuilding, self.producers, run);
                (limit, vec![longer.unwrap_or(Advice::WhyStatesAreLost), Advice::FasterInit])
            }
            Bottleneck::Window => {
                let limit = match run.window_memory {
                    Some(_) => Limit::WindowMemory { full, held_up },
                    None => Limit::Window { full, held_up },
                };
                (limit, vec![head_cost::larger_window(run)])
            }
            Bottleneck::Backoff => self.backoff_limit(run),
            Bottleneck::HeldBack | Bottleneck::Journal | Bottleneck::LostWorker => {
                self.limit_aside(bottleneck, run)
            }
            Bottleneck::Head => (Limit::Head(head_cost::cost(run)), vec![]),
            Bottleneck::Uneven => {
                let (most, producer) = self.busiest;
                let place = run.producers[producer].place.clone();
                // The order of calls cannot be chosen.
                let order = (run.window != NO_WINDOW).then_some(Advice::LongItemsFirst);
                let advice = [order, advice::smaller_batches(run), head_cost::copies(run)];
                let limit = Limit::Uneven { producer, place, busy: Percent(most), mean: busy };
                (limit, advice.into_iter().flatten().collect())
            }
            Bottleneck::TooFew => {
                let (items, calls) = (advice::worked(run), advice::calls(run));
                let busy = Percent(mean(run, |producer| producer.working));
                (Limit::TooFew { items, calls, busy }, for_few(run, advice::smaller_batches(run)))
            }
            _ if run.window == NO_WINDOW => (Limit::MixedCalls { busy, rebuilding }, vec![]),
            _ => self.mixed_limit(run),
        }
    }

    fn source_limit(&self, run: &RunReport) -> (Limit, Vec<Advice>) {
        let [source, starved] = [self.source, self.starved.all].map(Percent);
        match self.origin {
            Origin::StageBefore => {
                (Limit::StageBefore { idle: source, starved }, vec![Advice::StageBefore])
            }
            Origin::Iterator => {
                let advice = match advice::producers_have_time(run) {
                    true => Advice::LessInSourceMoreInWork,
                    false => Advice::LessInSource,
                };
                (Limit::Source { busy: source, starved }, vec![advice])
            }
        }
    }

    fn consumer_limit(&self) -> (Limit, Vec<Advice>) {
        let [busy, full] = [self.consumer, self.full].map(Percent);
        let (limit, advice) = match self.taking_part() {
            PartKind::Caller(form) => (Limit::Caller { form, busy }, Advice::LessBetweenResults),
            PartKind::NextStage => (Limit::NextStage { idle: busy }, Advice::NextStage),
            _ => (Limit::Consumer { busy, full }, Advice::LessInConsumer),
        };
        (limit, vec![advice])
    }

    fn backoff_limit(&self, run: &RunReport) -> (Limit, Vec<Advice>) {
        let waiting = self.starved.backing_off;
        // If the two times need not overlap, the input may have ended before.
        let overlap = self.full + waiting > 1.0;
        let mut advice = vec![Advice::WhyItemsFail { share: None }, Advice::ShorterBackoff];
        if overlap && run.window != NO_WINDOW {
            advice.push(head_cost::larger_window(run));
        }
        (Limit::Backoff { waiting: Percent(waiting) }, advice)
    }

    fn mixed_limit(&self, run: &RunReport) -> (Limit, Vec<Advice>) {
        let parts = [
            (self.feeding_part(), self.source),
            (PartKind::Producers, self.producers),
            (self.taking_part(), self.consumer),
        ];
        let part = |(part, share)| BusyPart { part, share: Percent(share), stage: None };
        let [rebuilding, full] = [self.rebuilding, self.full].map(Percent);
        let limit = Limit::Mixed { parts: parts.map(part).into(), rebuilding, full };
        let larger = match run.window_memory {
            // A window that was not full held nothing up.
            _ if self.full < LEAST_WAIT => None,
            Some(_) => Some(Advice::LargerWindowMemory),
            None => Some(Advice::LargerWindow),
        };
        (limit, larger.into_iter().collect())
    }

    /// The limit of a run in which producers did something other than work or wait for items.
    fn limit_aside(&self, bottleneck: Bottleneck, run: &RunReport) -> (Limit, Vec<Advice>) {
        match bottleneck {
            Bottleneck::HeldBack => {
                let (by, held) = super::held_most(run).unwrap_or_default();
                let (by, busy) = (by.to_owned(), Percent(self.producers));
                let limit = Limit::HeldBack { by, held: held.as_secs_f64(), busy };
                (limit, vec![Advice::LimitAsNeeded])
            }
            Bottleneck::Journal => {
                let [consumer, producers] = [self.aside.written, self.aside.journal].map(Percent);
                (Limit::Journal { consumer, producers }, vec![Advice::FasterDisk])
            }
            _ => {
                let dead = run.producers.iter().map(|it| it.times.dead).sum::<Duration>();
                let (dead, share) = (dead.as_secs_f64(), Percent(self.aside.dead));
                (Limit::LostWorker { dead, share }, vec![Advice::WhyWorkersAreLost])
            }
        }
    }

    fn feeding_part(&self) -> PartKind {
        match self.origin {
            Origin::Iterator => PartKind::Source,
            Origin::StageBefore => PartKind::StageBefore,
        }
    }

    fn taking_part(&self) -> PartKind {
        match self.destination {
            Destination::Consumer => PartKind::Consumer,
            Destination::Outputs => PartKind::Caller(CallerForm::Outputs),
            Destination::FedOutputs => PartKind::Caller(CallerForm::Fed),
            Destination::NextStage => PartKind::NextStage,
        }
    }

    /// The second busiest part beside these limits, if it is about as busy.
    pub(super) fn second(&self, bottleneck: Bottleneck) -> Option<BusyPart> {
        let is_of_part =
            matches!(bottleneck, Bottleneck::Source | Bottleneck::Producers | Bottleneck::Consumer);
        let [(_, first), (second, share), _] = self.parts();
        let part = match second {
            Bottleneck::Source => self.feeding_part(),
            Bottleneck::Consumer => self.taking_part(),
            _ => PartKind::Producers,
        };
        let is_close = share >= MOST && first - share <= CLOSE;
        (is_of_part && is_close).then_some(BusyPart { part, share: Percent(share), stage: None })
    }
}

fn for_producers(run: &RunReport) -> Vec<Advice> {
    let are_cpus = run.producers.iter().all(|producer| producer.place == "cpu");
    let places = if are_cpus { PlaceKind::Cpus } else { PlaceKind::Devices };
    let memory = advice::most_in_memory(run).map(|batch| Advice::FitMemory { batch });
    let more = match advice::busy_cores(run) {
        Some(cores) => Advice::FasterHook { cores },
        None => Advice::MoreProducers { to: advice::more_producers(run), places },
    };
    // The hooks of a device may gain by batches, if nothing shows what they do with the time.
    let may_gain = !are_cpus && run.producers.iter().all(|producer| producer.worker.is_none());
    let batches = match advice::larger_batches(run) {
        _ if memory.is_some() => None,
        None if may_gain && !advice::has_batches(run) => Some(Advice::Batches),
        larger => larger,
    };
    let failing =
        advice::failing(run).map(|share| Advice::WhyItemsFail { share: Some(Percent(share)) });
    let batches = batches.filter(|_| !super::has_ended_early(run));
    [failing, memory, Some(more), batches].into_iter().flatten().collect()
}

fn for_few(run: &RunReport, smaller: Option<Advice>) -> Vec<Advice> {
    let (items, calls) = (advice::worked(run), advice::calls(run));
    let (first, second) = match smaller {
        Some(smaller) => (Some(smaller), None),
        None if items == 1 => (Some(Advice::SplitItem), None),
        // All of them begin at once.
        None if calls <= run.producers.len() as u64 => (Some(Advice::SplitItems), None),
        None => (Some(Advice::LongItemsFirst), Some(Advice::SplitItems)),
    };
    [first, second, Some(Advice::MoreItems)].into_iter().flatten().collect()
}
