//! What is promised of the time per item, with two producers.

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, PromiseVerdict, Report, number};
use crate::subject::Kind;
use crate::throughput::Throughput;
use crate::work::Amount;

/// The promise that gangs are at least `promised` times as fast as the fastest of the peers.
struct Bound {
    gangs: &'static [Gang],
    amount: Amount,
    peers: &'static [Kind],
    promised: f64,
}

/// Nanoseconds for an item without work.
const MOST_OVERHEAD: f64 = 60.0;

/// Peers that promise less: no order, or no bound on memory.
const RAYON: &[Kind] = &[Kind::ParBridge, Kind::ParCollect];

const BOUNDS: [Bound; 6] = [
    bound(&Gang::DEFAULTS, Amount::NONE, &[Kind::Pariter], 3.0),
    bound(&Gang::DEFAULTS, Amount::NS_60, &[Kind::PlainLoop], 1.2),
    bound(&Gang::DEFAULTS, Amount::US_1, RAYON, 0.93),
    bound(&Gang::DEFAULTS, Amount::US_10, RAYON, 0.93),
    bound(&Gang::NARROW, Amount::US_1, &[Kind::PlainLoop], 1.4),
    bound(&[Gang::TIMED], Amount::US_1, &[Kind::PlainLoop], 1.58),
];

pub fn check(options: &Options, throughput: &Throughput, report: &mut Report) {
    // They are about two cores.
    if options.threads != 2 {
        return;
    }
    let overheads = Gang::DEFAULTS.into_iter().map(|gang| overhead(gang, throughput));
    let ratios = BOUNDS.iter().flat_map(|bound| bound.verdicts(throughput));
    overheads.chain(ratios).flatten().for_each(|promise| report.promise(promise));
}

const fn bound(
    gangs: &'static [Gang],
    amount: Amount,
    peers: &'static [Kind],
    promised: f64,
) -> Bound {
    Bound { gangs, amount, peers, promised }
}

/// `None` where items without work were not measured.
fn overhead(gang: Gang, throughput: &Throughput) -> Option<Promise> {
    let measured = throughput.of(Kind::Gangline(gang), Amount::NONE)?;
    Some(Promise {
        what: format!("work {}: {}", Amount::NONE.name, gang.name()),
        promised: format!("at most {} ns", number(MOST_OVERHEAD)),
        aim: None,
        measured: format!("{} ns", number(measured)),
        verdict: PromiseVerdict::of(measured <= MOST_OVERHEAD),
    })
}

impl Bound {
    fn verdicts(&self, throughput: &Throughput) -> impl Iterator<Item = Option<Promise>> {
        self.gangs.iter().map(|&gang| self.verdict(gang, throughput))
    }

    /// `None` where its row was not measured. The least of the rounds of both sides, since other programs only
    /// ever make a round longer.
    fn verdict(&self, gang: Gang, throughput: &Throughput) -> Option<Promise> {
        let own = throughput.of(Kind::Gangline(gang), self.amount)?;
        let peers = self.peers.iter().filter_map(|&peer| throughput.of(peer, self.amount));
        let measured = peers.reduce(f64::min)? / own;
        let what = format!("work {}: {} against {}", self.amount.name, gang.name(), self.names());
        let mut promise = Promise::at_least_times(what, self.promised, measured);
        if promise.verdict == PromiseVerdict::Missed && throughput.is_disturbed(self.amount) {
            promise.verdict = PromiseVerdict::NotJudged;
        }
        Some(promise)
    }

    fn names(&self) -> String {
        let names: Vec<_> = self.peers.iter().map(|peer| peer.name()).collect();
        names.join(" and ")
    }
}
