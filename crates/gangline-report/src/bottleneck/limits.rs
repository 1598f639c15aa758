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
    /// The limit with its numbers.
    pub(super) fn limit_with_numbers(&self, bottleneck: Bottleneck, run: &RunReport) -> Limit {
        let [busy, rebuilding] = [self.producers, self.rebuilding].map(Percent);
        let [source, consumer] = [self.source, self.consumer].map(Percent);
        let [full, starved, held_up] =
            [self.full, self.starved.all, self.starved.held_up].map(Percent);
        match bottleneck {
            Bottleneck::Source => match self.origin {
                Origin::Iterator => Limit::Source { busy: source, starved },
                Origin::StageBefore => Limit::StageBefore { idle: source, starved },
            },
            Bottleneck::Producers => Limit::Producers { busy, rebuilding },
            Bottleneck::Rebuilding => {
                let sum = |of: fn(&ProducerReport) -> u64| run.producers.iter().map(of).sum();
                match (sum(|it| it.states_lost), sum(|it| it.rebuilds)) {
                    (0, _) => Limit::Recycling { busy, rebuilding, states: sum(|it| it.recycles) },
                    (states, calls) => Limit::Rebuilding { busy, rebuilding, states, calls },
                }
            }
            Bottleneck::Consumer => match self.taking_part() {
                PartKind::Caller(form) => Limit::Caller { form, busy: consumer },
                PartKind::NextStage => Limit::NextStage { idle: consumer },
                _ => Limit::Consumer { busy: consumer, full },
            },
            Bottleneck::Window if run.window_memory.is_some() => {
                Limit::WindowMemory { full, held_up }
            }
            Bottleneck::Window => Limit::Window { full, held_up },
            Bottleneck::Backoff => Limit::Backoff { waiting: Percent(self.starved.backing_off) },
            Bottleneck::HeldBack | Bottleneck::Journal | Bottleneck::LostWorker => {
                self.limit_aside(bottleneck, run)
            }
            Bottleneck::Head => Limit::Head(head_cost::cost(run)),
            Bottleneck::Uneven => {
                let (most, producer) = self.busiest;
                let place = run.producers[producer].place.clone();
                Limit::Uneven { producer, place, busy: Percent(most), mean: busy }
            }
            Bottleneck::TooFew => Limit::TooFew {
                items: advice::worked(run),
                calls: advice::calls(run),
                busy: Percent(mean(run, |producer| producer.working)),
            },
            _ if run.window == NO_WINDOW => Limit::MixedCalls { busy, rebuilding },
            _ => {
                let parts = [
                    (self.feeding_part(), source),
                    (PartKind::Producers, busy),
                    (self.taking_part(), consumer),
                ];
                let parts = parts.map(|(part, share)| BusyPart { part, share, stage: None });
                Limit::Mixed { parts: parts.into(), rebuilding, full }
            }
        }
    }

    /// The limit of a run in which producers did something other than work or wait for items.
    fn limit_aside(&self, bottleneck: Bottleneck, run: &RunReport) -> Limit {
        match bottleneck {
            Bottleneck::HeldBack => {
                let (by, held) = super::held_most(run).unwrap_or_default();
                let (by, busy) = (by.to_owned(), Percent(self.producers));
                Limit::HeldBack { by, held: held.as_secs_f64(), busy }
            }
            Bottleneck::Journal => {
                let [consumer, producers] = [self.aside.written, self.aside.journal].map(Percent);
                Limit::Journal { consumer, producers }
            }
            _ => {
                let dead = run.producers.iter().map(|it| it.times.dead).sum::<Duration>();
                Limit::LostWorker { dead: dead.as_secs_f64(), share: Percent(self.aside.dead) }
            }
        }
    }

    /// What to change, the best first. No setting is among it that is set already, or that the machine has no room for.
    pub(super) fn advised(&self, bottleneck: Bottleneck, run: &RunReport) -> Vec<Advice> {
        let smaller = || advice::smaller_batches(run).map(|items| Advice::SmallerBatch { items });
        // The order of calls cannot be chosen.
        let order = (run.window != NO_WINDOW).then_some(Advice::LongItemsFirst);
        let advice = match bottleneck {
            Bottleneck::Source => {
                let advice = match self.origin {
                    Origin::StageBefore => Advice::StageBefore,
                    _ if advice::producers_have_time(run) => Advice::LessInSourceMoreInWork,
                    _ => Advice::LessInSource,
                };
                [Some(advice), None, None]
            }
            Bottleneck::Consumer => {
                let advice = match self.taking_part() {
                    PartKind::Caller(_) => Advice::LessBetweenResults,
                    PartKind::NextStage => Advice::NextStage,
                    _ => Advice::LessInConsumer,
                };
                [Some(advice), None, None]
            }
            Bottleneck::Producers => return for_producers(run),
            Bottleneck::Rebuilding => {
                let longer = advice::longer_lives(self.rebuilding, self.producers, run);
                [longer.or(Some(Advice::WhyStatesAreLost)), Some(Advice::FasterInit), None]
            }
            Bottleneck::Window => [Some(head_cost::larger_window(run)), None, None],
            Bottleneck::Backoff => {
                // If the two times need not overlap, the input may have ended before.
                let overlap = self.full + self.starved.backing_off > 1.0;
                let larger =
                    (overlap && run.window != NO_WINDOW).then(|| head_cost::larger_window(run));
                [Some(Advice::WhyItemsFail { share: None }), Some(Advice::ShorterBackoff), larger]
            }
            Bottleneck::HeldBack => [Some(Advice::LimitAsNeeded), None, None],
            Bottleneck::Journal => [Some(Advice::FasterDisk), None, None],
            Bottleneck::LostWorker => [Some(Advice::WhyWorkersAreLost), None, None],
            Bottleneck::Uneven => [order, smaller(), head_cost::copies(run)],
            Bottleneck::TooFew => return for_few(run, smaller()),
            // A window that was not full held nothing up.
            Bottleneck::Mixed if self.full >= LEAST_WAIT && run.window != NO_WINDOW => {
                let larger = match run.window_memory {
                    Some(_) => Advice::LargerWindowMemory,
                    None => Advice::LargerWindow,
                };
                [Some(larger), None, None]
            }
            _ => [None; 3],
        };
        advice.into_iter().flatten().collect()
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
