//! Measures the processor time of a run that waits for its source.

use std::iter;
use std::thread;
use std::time::Duration;

use gangline::BoxError;

use crate::gangs::{Gang, Sum};
use crate::options::Options;
use crate::processor::process_time;
use crate::report::{Promise, Report, Table, time};
use crate::work::Work;

/// The resolution of the system's processor clock.
const UNMEASURABLE: Duration = Duration::from_millis(1);
const ITEMS: u64 = 5;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("An idle run");
    let pause = Duration::from_millis(options.effort.pick(10, 1_000, 5_000));
    let mut table =
        Table::new([format!("processor time in a pause of {}", time(pause)), String::new()]);
    for gang in Gang::DEFAULTS {
        let Some(used) = used_in_a_pause(gang, options.threads, pause)? else {
            report.paragraph("Skipped: this system does not report processor time.");
            return Ok(());
        };
        table.row([gang.name().to_owned(), time(used)]);
        let what = format!("idle for {}: {}", time(pause), gang.name());
        report.promise(Promise::at_most(what, UNMEASURABLE, used));
    }
    report.table(&table);
    Ok(())
}

fn used_in_a_pause(
    gang: Gang,
    threads: usize,
    pause: Duration,
) -> Result<Option<Duration>, BoxError> {
    let mut used = None;
    let pausing = iter::once_with(|| {
        let before = process_time();
        thread::sleep(pause);
        used = process_time().zip(before).map(|(after, before)| after - before);
        ITEMS
    });
    let work = Work::of_steps(1);
    let sum = gang.build(Sum(work), threads)?.run((0..ITEMS).chain(pausing))?;
    assert_eq!(sum, work.sum(ITEMS + 1), "the sum of {}", gang.name());
    Ok(used)
}
