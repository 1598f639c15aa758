//! Measures the speed-up by the number of producers.

use gangline::BoxError;

use crate::contest::Heats;
use crate::effort::Effort;
use crate::gangs::Gang;
use crate::machine::cores;
use crate::options::Options;
use crate::plot;
use crate::report::{Report, Table};
use crate::subject::{Kind, Subject};
use crate::subjects::{Gangline, ParBridge, PlainLoop};
use crate::work::Amount;

pub const AMOUNTS: [Amount; 2] = [Amount::US_1, Amount::US_10];
pub const KINDS: [Kind; 2] = [Kind::Gangline(Gang::ORDERED), Kind::ParBridge];

/// The times of one subject at one amount of work, with 1, 2, 3, ... threads.
pub struct Curve {
    pub kind: Kind,
    pub amount: Amount,
    pub speedups: Vec<f64>,
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Speed-up over the plain loop");
    let most = if options.effort == Effort::Smoke { 2 } else { 2 * cores() };
    let mut curves = Vec::new();
    for amount in AMOUNTS {
        curves.extend(race(amount, most, options)?);
    }
    report.table(&table(&curves, most));
    match &options.out {
        Some(folder) => plot::speedup(&curves, cores(), folder),
        None => Ok(()),
    }
}

fn race(amount: Amount, most: usize, options: &Options) -> Result<[Curve; 2], BoxError> {
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(PlainLoop)];
    for threads in 1..=most {
        subjects.push(Box::new(Gangline::new(Gang::ORDERED, threads)));
        subjects.push(Box::new(ParBridge::new(threads)?));
    }
    let (items, work) = (options.effort.items(amount.time), options.effort.work(amount.time));
    let heats = Heats::of_items(&mut subjects, items, work, options.rounds);
    let of = |nth| (1 + nth..subjects.len()).step_by(KINDS.len()).map(|one| heats.ratio(one, 0));
    Ok([0, 1].map(|nth| Curve { kind: KINDS[nth], amount, speedups: of(nth).collect() }))
}

fn table(curves: &[Curve], most: usize) -> Table {
    let threads = (1..=most).map(|threads| threads.to_string());
    let mut table = Table::new(["producers, or threads".to_owned()].into_iter().chain(threads));
    for curve in curves {
        let figures = curve.speedups.iter().map(|speedup| format!("{speedup:.2} ×"));
        let name = format!("{}, {}", curve.kind.name(), curve.amount.name);
        table.row([name].into_iter().chain(figures));
    }
    table
}
