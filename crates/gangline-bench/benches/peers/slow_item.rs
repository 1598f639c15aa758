//! Measures whether one slow item delays the quick ones.

use std::thread;
use std::time::{Duration, Instant};

use gangline::{BoxError, map};

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, Report, Table, grouped, time};
use crate::work::{Amount, Work};

/// The index of the slow item: late enough for the window to have grown.
const SLOW: u64 = 1_000;
const SLOW_TIME: Duration = Duration::from_millis(200);

struct Trial {
    items: u64,
    threads: usize,
    quick: Work,
    slow: Duration,
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("One slow item");
    if options.threads < 2 {
        report.paragraph("Skipped: with one producer, every item waits for it.");
        return Ok(());
    }
    let slow = options.effort.pick(Duration::from_millis(2), SLOW_TIME, SLOW_TIME);
    let quick = options.effort.work(Amount::US_1.time);
    let items = options.effort.pick(2_000, 100_000, 100_000);
    let trial = Trial { items, threads: options.threads, quick, slow };
    let fewer = Trial { threads: options.threads - 1, slow: Duration::ZERO, ..trial };
    let (others, slow) = (grouped(items - 1), time(slow));
    let (mut reference, mut measured) = (Duration::MAX, Duration::MAX);
    for _ in 0..options.rounds {
        reference = reference.min(fewer.time_of_others());
        measured = measured.min(trial.time_of_others());
    }
    report.table(&table(&others, reference, measured));
    report.promise(Promise::at_most(
        format!("{others} items of 1 µs beside one of {slow}, unordered: one producer fewer, and a tenth"),
        reference.mul_f64(1.1),
        measured,
    ));
    Ok(())
}

impl Trial {
    /// The time until the consumer has all items but the slow one.
    fn time_of_others(&self) -> Duration {
        let Self { items, threads, quick, slow } = *self;
        let work = move |x| {
            if x == SLOW {
                thread::sleep(slow);
            }
            quick.on(x);
            x
        };
        let runner = map(|_| Ok(()), move |_, _, x: u64| Ok(work(x))).fold(
            |_| Ok((0, None)),
            move |_, (others, end), x| {
                *others += u64::from(x != SLOW);
                if *others == items - 1 && end.is_none() {
                    *end = Some(Instant::now());
                }
                Ok(())
            },
        );
        let mut pool = Gang::UNORDERED.build(runner, threads).expect("the hooks never fail");
        let start = Instant::now();
        let (_, end) = pool.run(0..items).expect("the hooks never fail");
        end.expect("all items came") - start
    }
}

fn table(others: &str, reference: Duration, measured: Duration) -> Table {
    let mut table =
        Table::new([format!("until the consumer has the other {others}"), String::new()]);
    table.row(["on one producer fewer, nothing slow".to_owned(), time(reference)]);
    table.row(["beside the slow item".to_owned(), time(measured)]);
    table
}
