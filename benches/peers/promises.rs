//! The promised times per item, with two producers.

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, Report, Verdict};
use crate::subject::Kind;
use crate::throughput::Throughput;
use crate::work::Amount;

/// A promised ratio of a peer's time to that of gangline.
struct Bound {
    gangs: [Gang; 2],
    amount: Amount,
    peer: Kind,
    promised: f64,
    aim: Option<f64>,
}

const BOUNDS: [Bound; 8] = [
    bound(Gang::DEFAULTS, Amount::NONE, Kind::ParBridge, 3.0, Some(8.0)),
    bound(Gang::DEFAULTS, Amount::NONE, Kind::Pariter, 8.0, Some(30.0)),
    bound(Gang::DEFAULTS, Amount::NS_60, Kind::PlainLoop, 1.2, Some(1.6)),
    bound(Gang::DEFAULTS, Amount::US_1, Kind::PlainLoop, 1.85, None),
    bound(Gang::DEFAULTS, Amount::US_10, Kind::PlainLoop, 1.9, None),
    bound(Gang::DEFAULTS, Amount::US_100, Kind::PlainLoop, 1.9, None),
    bound(Gang::NARROW, Amount::NONE, Kind::ParBridge, 1.3, Some(2.0)),
    bound(Gang::NARROW, Amount::US_1, Kind::PlainLoop, 1.75, None),
];

pub fn check(options: &Options, throughput: &Throughput, report: &mut Report) {
    // They are stated for two cores.
    if options.threads != 2 {
        return;
    }
    for bound in &BOUNDS {
        for gang in bound.gangs {
            if let Some(promise) = bound.verdict(gang, throughput) {
                report.promise(promise);
            }
        }
    }
}

const fn bound(
    gangs: [Gang; 2],
    amount: Amount,
    peer: Kind,
    promised: f64,
    aim: Option<f64>,
) -> Bound {
    Bound { gangs, amount, peer, promised, aim }
}

impl Bound {
    /// `None` if its row was not measured.
    fn verdict(&self, gang: Gang, throughput: &Throughput) -> Option<Promise> {
        let measured = throughput.ratio(Kind::Gangline(gang), self.peer, self.amount)?;
        let (name, peer) = (gang.name(), self.peer.name());
        let what = format!("work {}: {name} against {peer}", self.amount.name);
        let aim = self.aim.map(|aim| format!("{aim} ×"));
        let mut promise = Promise { aim, ..Promise::at_least_times(what, self.promised, measured) };
        if promise.verdict == Verdict::Missed && throughput.is_disturbed(self.amount) {
            promise.verdict = Verdict::NotJudged;
        }
        Some(promise)
    }
}
