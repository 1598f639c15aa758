//! The clause that names what limited a run, and the setting to change.

use super::advice::SERVICE;
use super::{Bottleneck, CLOSE, LEAST_REBUILDING, LEAST_WAIT, MOST, TimeShares, advice, early};
use crate::observe::event::{Destination, Origin, ProducerTotals, Totals};
use crate::observe::report::formats::{Many, Percent};
use crate::observe::report::head_cost;
use crate::observe::report::live_producers::{self, producers};

impl TimeShares {
    pub(in crate::observe::report) fn clause(
        &self,
        bottleneck: Bottleneck,
        totals: &Totals,
    ) -> String {
        match bottleneck {
            Bottleneck::Source => match self.origin {
                Origin::Iterator => self.source_clause(totals),
                Origin::StageBefore => self.stage_before_clause(totals),
            },
            Bottleneck::Producers => self.producers_clause(totals),
            Bottleneck::Rebuilding => self.rebuilding_clause(totals),
            Bottleneck::Consumer => match self.destination {
                Destination::Consumer => self.consumer_clause(),
                Destination::Outputs | Destination::FedOutputs => self.caller_clause(),
                Destination::NextStage => self.next_stage_clause(),
            },
            Bottleneck::Window => self.window_clause(totals),
            Bottleneck::Backoff => self.backoff_clause(totals),
            Bottleneck::Head => {
                let (cost, advice) = (head_cost::cost(totals), head_cost::advice(totals));
                format!("the order limited the run: {cost}; {advice}")
            }
            Bottleneck::Uneven => self.uneven_clause(totals),
            Bottleneck::TooFew => early::too_few(totals),
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
            Percent(self.starved),
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
            Percent(self.starved),
            self.runner_up(),
            self.words.producers,
        )
    }

    fn producers_clause(&self, totals: &Totals) -> String {
        let producers = self.words.producers;
        let failing = advice::failing(totals).map_or(String::new(), |share| {
            format!("find out why items fail ({} of the attempts failed); ", Percent(share))
        });
        let more = advice::more_devices(totals).map_or(String::new(), |more| {
            format!(" (the source and the consumer keep up with {more})")
        });
        format!(
            "the {producers} limited the run: {} worked {} of the time{}{}; {failing}{}use more \
             {producers}{more} or faster devices{}",
            live_producers::producers(totals),
            Percent(self.producers),
            self.and_rebuilt(),
            self.runner_up(),
            advice::memory(totals).unwrap_or_default(),
            advice::batches(totals),
        )
    }

    fn rebuilding_clause(&self, totals: &Totals) -> String {
        let sum = |of: fn(&ProducerTotals) -> u64| {
            totals.producers.iter().map(of).fold(0, u64::saturating_add)
        };
        let (lost, recycled) = (sum(|it| it.states_lost), sum(|it| it.recycles));
        let (states, why, change) = match lost {
            0 => {
                let items = advice::longer_lives(self.rebuilding, self.producers, totals);
                let why = format!(
                    "{} {} recycled",
                    Many(recycled, "state"),
                    if recycled == 1 { "was" } else { "were" }
                );
                ("recycled", why, format!("recycle them less often (`recycle_after({items})`)"))
            }
            _ => {
                let calls = Many(sum(|producer| producer.rebuilds), "call");
                let why = format!("{calls}, after {} to panics", Many(lost, "lost state"));
                let change =
                    "find out why the hook panics, return an error instead (which keeps the state)";
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

    fn window_clause(&self, totals: &Totals) -> String {
        format!(
            "the {} limited the run: it was full for {} of the time, and kept {} waiting for {} of it; use {}",
            match totals.window_memory {
                Some(_) => "memory of the window",
                None => "window",
            },
            Percent(self.full),
            producers(totals),
            Percent(self.held_up),
            head_cost::larger_window(totals),
        )
    }

    fn backoff_clause(&self, totals: &Totals) -> String {
        let larger = match totals.window {
            // The input had ended, or there is no window.
            _ if self.full < LEAST_WAIT => String::new(),
            SERVICE => String::new(),
            _ => format!(
                ", or use {}, so that they have other items meanwhile",
                head_cost::larger_window(totals)
            ),
        };
        format!(
            "the backoff before retries limited the run: {} had only items that waited for a retry for {} of \
             the time; find out why items fail, or make `backoff` shorter{larger}",
            producers(totals),
            Percent(self.backing_off),
        )
    }

    fn uneven_clause(&self, totals: &Totals) -> String {
        let (share, producer) = self.busiest;
        let smaller = if totals.splits.batches > 0 { "make batches smaller, " } else { "" };
        format!(
            "uneven work limited the run: {} {producer} ({}) worked {} of the time, and {} \
             {} on average; put long items first, {smaller}or let a second producer copy slow items \
             (`speculate()`)",
            self.words.producer,
            totals.producers[producer].place,
            Percent(share),
            producers(totals),
            Percent(self.producers),
        )
    }

    fn mixed_clause(&self, totals: &Totals) -> String {
        if totals.window == SERVICE {
            return format!(
                "no single part limited the run: the {} worked {} of the time{}, and waited for calls or retries in the rest",
                self.words.producers,
                Percent(self.producers),
                self.and_rebuilt(),
            );
        }
        format!(
            "no single part limited the run: {} was at work {} of the time, the {} {}{}, {} {}, \
             and the window was full for {}; if parts are slow in turns, use a larger `window(n)`",
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
