//! The clause that names what limited a run, and the setting to change.

use super::{Bottleneck, CLOSE, LEAST_REBUILDING, LEAST_WAIT, MOST, TimeShares, advice, early};
use crate::advised_setting::{AdvisedSetting, Circumstances};
use crate::formats::{Many, Percent};
use crate::head_cost;
use crate::live_producers::{self, producers};
use crate::totals::{Destination, NO_WINDOW, Origin, ProducerTotals, Totals};

impl TimeShares {
    /// The settings to change, in the order in which the conclusion names them. None of them is set already, and the machine
    /// has room for each.
    pub(super) fn advised(
        &self,
        bottleneck: Bottleneck,
        totals: &Totals,
        at: &Circumstances<'_>,
    ) -> Vec<AdvisedSetting> {
        let smaller = || advice::smaller_batches(totals).map(AdvisedSetting::Batch);
        let (first, second, third) = match bottleneck {
            Bottleneck::Head => return head_cost::advised(totals, at),
            Bottleneck::Producers => {
                let memory = advice::most_in_memory(totals).map(AdvisedSetting::Batch);
                let devices = advice::more_producers(totals, at).map(AdvisedSetting::Devices);
                let batches = advice::larger_batches(totals, at).filter(|_| memory.is_none());
                (memory, devices, batches)
            }
            Bottleneck::Rebuilding => {
                (advice::longer_lives(self.rebuilding, self.producers, totals), None, None)
            }
            Bottleneck::Window => (head_cost::larger_window(totals), None, None),
            // If the two times need not overlap, the input may have ended before.
            Bottleneck::Backoff
                if self.full + self.starved.backing_off > 1.0 && totals.window != NO_WINDOW =>
            {
                (head_cost::larger_window(totals), None, None)
            }
            Bottleneck::Uneven => {
                let copies = at.may_speculate(totals).then_some(AdvisedSetting::Speculate);
                (smaller(), copies, None)
            }
            Bottleneck::TooFew => (smaller(), None, None),
            _ => return vec![],
        };
        [first, second, third].into_iter().flatten().collect()
    }

    pub(crate) fn clause(
        &self,
        bottleneck: Bottleneck,
        totals: &Totals,
        at: &Circumstances<'_>,
        advice: &[AdvisedSetting],
    ) -> String {
        match bottleneck {
            Bottleneck::Source => match self.origin {
                Origin::Iterator => self.source_clause(totals),
                Origin::StageBefore => self.stage_before_clause(totals),
            },
            Bottleneck::Producers => self.producers_clause(totals, at, advice),
            Bottleneck::Rebuilding => self.rebuilding_clause(totals, advice),
            Bottleneck::Consumer => match self.destination {
                Destination::Consumer => self.consumer_clause(),
                Destination::Outputs | Destination::FedOutputs => self.caller_clause(),
                Destination::NextStage => self.next_stage_clause(),
            },
            Bottleneck::Window => self.window_clause(totals, advice),
            Bottleneck::Backoff => self.backoff_clause(totals, advice),
            Bottleneck::Head => {
                let (cost, advice) = (head_cost::cost(totals), head_cost::advice(totals, advice));
                format!("the order limited the run: {cost}; {advice}")
            }
            Bottleneck::Uneven => self.uneven_clause(totals, advice),
            Bottleneck::TooFew => early::too_few(totals, advice),
            Bottleneck::Mixed | Bottleneck::Unknown | Bottleneck::Splits | Bottleneck::StartUp => {
                self.mixed_clause(totals)
            }
        }
    }

    fn source_clause(&self, totals: &Totals) -> String {
        format!(
            "the source limited the run: it was at work {} of the time, while {} found nothing \
             for {} of it{}; do less in the iterator{}, since more {} would only wait",
            Percent(self.source),
            producers(totals),
            Percent(self.starved.all),
            self.runner_up(),
            match advice::producers_have_time(totals) {
                true => " (move work that needs no order to `producer_work`)",
                false => "",
            },
            self.words.producers,
        )
    }

    fn stage_before_clause(&self, totals: &Totals) -> String {
        format!(
            "the stage before limited the run: it delivered nothing for {} of the time, while {} \
             found nothing for {} of it{}; see what limits that stage, since more {} here \
             would only wait",
            Percent(self.source),
            producers(totals),
            Percent(self.starved.all),
            self.runner_up(),
            self.words.producers,
        )
    }

    fn producers_clause(
        &self,
        totals: &Totals,
        at: &Circumstances<'_>,
        advice: &[AdvisedSetting],
    ) -> String {
        let producers = self.words.producers;
        let failing = advice::failing(totals).map_or(String::new(), |share| {
            format!("find out why items fail ({} of the attempts failed); ", Percent(share))
        });
        let memory = advice::most_in_memory(totals);
        let room = memory.map_or(String::new(), |most| {
            let batch = AdvisedSetting::Batch(most);
            format!(
                "their memory has room for batches of at most {most}, so use `{batch}` or make items smaller; "
            )
        });
        let more = match advice::busy_cores(totals, at) {
            Some(cores) => format!(
                "make the hook faster or use more or faster machines, since this one computed on all of its {}",
                Many(cores, "core")
            ),
            None => format!("use more {producers}{} or faster devices", how_many(totals, advice)),
        };
        let batches = match advice.iter().find(|it| it.is_batch()) {
            _ if memory.is_some() => String::new(),
            Some(auto @ AdvisedSetting::AutoBatch) => {
                format!("; let the run choose the size of batches (`{auto}`)")
            }
            Some(larger) => format!("; try larger batches (`{larger}`)"),
            None if advice::has_batches(totals, at) => String::new(),
            None => "; if a device is faster with many items at once, use larger batches (`batch`, with a runner that \
                     implements `producer_work_batch`)"
                .to_owned(),
        };
        format!(
            "the {producers} limited the run: {} worked {} of the time{}{}; {failing}{room}{more}{batches}",
            live_producers::producers(totals),
            Percent(self.producers),
            self.and_rebuilt(),
            self.runner_up(),
        )
    }

    fn rebuilding_clause(&self, totals: &Totals, advice: &[AdvisedSetting]) -> String {
        let sum = |of: fn(&ProducerTotals) -> u64| {
            totals.producers.iter().map(of).fold(0, u64::saturating_add)
        };
        let (lost, recycled) = (sum(|it| it.states_lost), sum(|it| it.recycles));
        let (states, why, change) = match lost {
            0 => {
                let longer = advice.first().map_or(String::new(), |it| format!(" (`{it}`)"));
                let why = format!(
                    "{} {} recycled",
                    Many(recycled, "state"),
                    if recycled == 1 { "was" } else { "were" }
                );
                ("recycled", why, format!("recycle them less often{longer}"))
            }
            _ => {
                let calls = Many(sum(|producer| producer.rebuilds), "call");
                // An end of a process may be a crash or a timeout.
                let (causes, change) = match totals.producers.iter().any(|it| it.worker.is_some()) {
                    true => (
                        "panics, crashes or timeouts",
                        "find out why hooks panic, crash or take too long (an error keeps the state)",
                    ),
                    false => (
                        "panics",
                        "find out why the hook panics, return an error instead (which keeps the state)",
                    ),
                };
                let why = format!("{calls}, since {causes} lost {}", Many(lost, "state"));
                ("lost", why, change.to_owned())
            }
        };
        format!(
            "rebuilding {states} states limited the run: {} worked {} of the time and ran `producer_init` \
             again for {} ({why}); {change}, or make `producer_init` faster",
            producers(totals),
            Percent(self.producers),
            Percent(self.rebuilding),
        )
    }

    fn consumer_clause(&self) -> String {
        format!(
            "the consumer limited the run: it was at work {} of the time, and the window was full \
             for {}{}; do less in `consumer_work` (move work that needs no order to \
             `producer_work`), since more {} would only wait",
            Percent(self.consumer),
            Percent(self.full),
            self.runner_up(),
            self.words.producers,
        )
    }

    fn caller_clause(&self) -> String {
        format!(
            "{} limited the run: it was at work on something else {} of the time{}; do less between \
             one result and the next (move work that needs no order to `producer_work`), since more \
             {} would only wait",
            self.consumer_name(),
            Percent(self.consumer),
            self.runner_up(),
            self.words.producers,
        )
    }

    fn next_stage_clause(&self) -> String {
        format!(
            "the next stage limited the run: it took no results for {} of the time{}; see what \
             limits that stage, since more {} here would only wait",
            Percent(self.consumer),
            self.runner_up(),
            self.words.producers,
        )
    }

    fn window_clause(&self, totals: &Totals, advice: &[AdvisedSetting]) -> String {
        let memory = head_cost::memory_bound(totals);
        let change = match (advice.first(), memory) {
            (Some(larger), None) => format!("use `{larger}`"),
            (Some(larger), Some(all)) => {
                format!("use `{larger}`, half of the {all} of this machine, but not more")
            }
            (None, all) => format!(
                "make items or results smaller, or use a machine with more memory{}",
                all.map_or(String::new(), |all| format!(", since this one has {all}"))
            ),
        };
        format!(
            "the {} limited the run: it was full for {} of the time, and kept {} waiting for {} of it; {change}",
            match totals.window_memory {
                Some(_) => "memory of the window",
                None => "window",
            },
            Percent(self.full),
            producers(totals),
            Percent(self.starved.held_up),
        )
    }

    fn backoff_clause(&self, totals: &Totals, advice: &[AdvisedSetting]) -> String {
        let larger = advice.first().map_or(String::new(), |larger| {
            format!(", or use `{larger}`, so that they have other items meanwhile")
        });
        format!(
            "the backoff before retries limited the run: {} had only items that waited for a retry for {} of \
             the time; find out why items fail, or make `backoff` shorter{larger}",
            producers(totals),
            Percent(self.starved.backing_off),
        )
    }

    fn uneven_clause(&self, totals: &Totals, advice: &[AdvisedSetting]) -> String {
        let (share, producer) = self.busiest;
        let changes = advice.iter().filter_map(|setting| match setting {
            AdvisedSetting::Batch(_) => Some(format!(", use smaller batches (`{setting}`)")),
            AdvisedSetting::Speculate => {
                Some(format!(", or let a second producer copy slow items (`{setting}`)"))
            }
            _ => None,
        });
        // The order of calls cannot be chosen.
        let order = if totals.window == NO_WINDOW { "" } else { "; put long items first" };
        format!(
            "uneven work limited the run: {} {producer} ({}) worked {} of the time, and {} \
             {} on average{order}{}",
            self.words.producer,
            totals.producers[producer].place,
            Percent(share),
            producers(totals),
            Percent(self.producers),
            changes.collect::<String>(),
        )
    }

    fn mixed_clause(&self, totals: &Totals) -> String {
        if totals.window == NO_WINDOW {
            return format!(
                "no single part limited the run: the {} worked {} of the time{}, and waited for calls or retries in the rest",
                self.words.producers,
                Percent(self.producers),
                self.and_rebuilt(),
            );
        }
        // A window that was not full held nothing up.
        let larger = match totals.window_memory {
            _ if self.full < LEAST_WAIT => "",
            Some(_) => "; if parts are slow in turns, use a larger `window_memory`",
            None => "; if parts are slow in turns, use a larger `window(n)`",
        };
        format!(
            "no single part limited the run: {} was at work {} of the time, the {} {}{}, {} {}, \
             and the window was full for {}{larger}",
            self.source_name(),
            Percent(self.source),
            self.words.producers,
            Percent(self.producers),
            self.and_rebuilt(),
            self.consumer_name(),
            Percent(self.consumer),
            Percent(self.full),
        )
    }

    fn source_name(&self) -> &'static str {
        match self.origin {
            Origin::Iterator => "the source",
            Origin::StageBefore => "the stage before",
        }
    }

    fn consumer_name(&self) -> &'static str {
        match self.destination {
            Destination::Consumer => "the consumer",
            Destination::Outputs => "the caller of `outputs`",
            Destination::FedOutputs => "the caller of the outputs",
            Destination::NextStage => "the next stage",
        }
    }

    /// Mentions the time for rebuilding states, if it matters.
    fn and_rebuilt(&self) -> String {
        match self.rebuilding >= LEAST_REBUILDING {
            true => format!(" (and rebuilt states for {})", Percent(self.rebuilding)),
            false => String::new(),
        }
    }

    /// Names the second busiest part if it is about as busy.
    fn runner_up(&self) -> String {
        let [(_, first), (second, share), _] = self.parts();
        let name = match second {
            Bottleneck::Source => self.source_name().to_owned(),
            Bottleneck::Consumer => self.consumer_name().to_owned(),
            _ => format!("the {}", self.words.producers),
        };
        if share >= MOST && first - share <= CLOSE {
            format!(", closely followed by {name} ({})", Percent(share))
        } else {
            String::new()
        }
    }
}

/// The number of producers that the other parts keep up with. A number as devices makes producers on CPUs, so it is no
/// setting for others.
fn how_many(totals: &Totals, advice: &[AdvisedSetting]) -> String {
    let are_cpus = totals.producers.iter().all(|producer| producer.place == "cpu");
    match advice.iter().find(|it| matches!(it, AdvisedSetting::Devices(_))) {
        Some(AdvisedSetting::Devices(more)) if !are_cpus => {
            format!(" (the source and the consumer keep up with {more} of them)")
        }
        Some(setting) => format!(" (the source and the consumer keep up with `{setting}`)"),
        None => String::new(),
    }
}
