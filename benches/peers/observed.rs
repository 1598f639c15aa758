//! What it costs that somebody is told of every item.

use std::time::Duration;

use gangline::{BoxError, Event, OrderedRunner};

use crate::contest::median;
use crate::gangs::Sum;
use crate::options::Options;
use crate::processor::process_time;
use crate::report::{Promise, Report, Table, number};
use crate::work::Work;

/// A look at the clock takes a third of it, on the machines that this was first measured on.
const PROMISED: f64 = 60.0;

#[derive(Clone, Copy, PartialEq)]
enum Told {
    Nobody,
    /// The report has its timeline.
    Report,
    /// One that does nothing.
    Observer,
}

impl Told {
    const ALL: [Self; 3] = [Self::Nobody, Self::Report, Self::Observer];

    fn name(self) -> &'static str {
        match self {
            Self::Nobody => "nobody",
            Self::Report => "the report: `timeline()`",
            Self::Observer => "an observer that does nothing",
        }
    }
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Being observed");
    let work = options.effort.work(Duration::from_micros(1));
    let items = options.effort.part_of(300_000);
    let mut used = [const { vec![] }; Told::ALL.len()];
    for _ in 0..options.rounds {
        for (told, used) in Told::ALL.into_iter().zip(&mut used) {
            match used_by_an_item(told, options.threads, work, items)? {
                Some(nanos) => used.push(nanos),
                None => {
                    report.paragraph("Left out: this system does not say.");
                    return Ok(());
                }
            }
        }
    }
    tell(&used, report);
    Ok(())
}

fn tell(used: &[Vec<f64>; Told::ALL.len()], report: &mut Report) {
    let header = ["items of 1 µs; who is told of them", "ns of processor time an item", "more"];
    let mut table = Table::new(header);
    for (told, nanos) in Told::ALL.into_iter().zip(used) {
        let more = median(nanos.iter().zip(&used[0]).map(|(one, other)| one - other).collect());
        let least = nanos.iter().copied().fold(f64::INFINITY, f64::min);
        table.row([told.name().to_owned(), number(least), number(more)]);
        if told != Told::Nobody {
            report.promise(cost(told, more));
        }
    }
    report.table(&table);
}

fn used_by_an_item(
    told: Told,
    threads: usize,
    work: Work,
    items: u64,
) -> Result<Option<f64>, BoxError> {
    let builder = OrderedRunner::builder(Sum(work)).devices(threads);
    let mut runner = match told {
        Told::Nobody => builder.build()?,
        Told::Report => builder.timeline().build()?,
        Told::Observer => builder.observer(|_: Duration, _: &Event| {}).build()?,
    };
    let before = process_time();
    let sum = runner.run(0..items)?;
    let used = process_time().zip(before).map(|(after, before)| after - before);
    assert_eq!(sum, work.sum(items), "the sum of items that {} is told of", told.name());
    Ok(used.map(|used| used.as_secs_f64() * 1e9 / items as f64))
}

fn cost(told: Told, nanos: f64) -> Promise {
    Promise {
        what: format!("processor time of an item more that {} is told of it", told.name()),
        promised: format!("at most {PROMISED} ns"),
        aim: None,
        measured: format!("{nanos:.1} ns"),
        kept: nanos <= PROMISED,
    }
}
