//! Measures many producers with hooks that sleep: the cost of an item must not grow with the number of producers.

use std::thread;
use std::time::{Duration, Instant};

use gangline::{BoxError, map};

use crate::contest::Heats;
use crate::gangs::Gang;
use crate::options::Options;
use crate::plot;
use crate::report::{Promise, Report, Table, time};
use crate::subjects::channels;

/// The time that a hook sleeps, as if it waited for a remote service.
const SLEEP: Duration = Duration::from_millis(1);
const PRODUCERS: [usize; 10] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512];
/// The items of each producer.
const EACH: u64 = 100;
/// The largest time of a run, as a multiple of that of channels.
const MOST: f64 = 1.0;

/// Speed-ups over one producer with hooks that sleep and no overhead.
pub struct Sleepers {
    pub producers: usize,
    pub gangline: f64,
    pub channels: f64,
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Many producers whose hooks sleep");
    let columns = ["producers", "ideal", "gangline ordered", "channels + `BTreeMap`", "times"];
    let mut table = Table::new(columns);
    let mut points = Vec::new();
    for producers in PRODUCERS.into_iter().take(options.effort.pick(1, 10, 10)) {
        let items = producers as u64 * options.effort.pick(2, EACH / 2, EACH);
        let sum = map(|_| Ok(()), |_, (), x: u64| Ok(sleep(x)));
        let sum = sum.fold(
            |_| Ok(0_u64),
            |_, sum, y| {
                *sum += y;
                Ok(())
            },
        );
        let mut pool = Gang::ORDERED.build(sum, producers)?;
        let times = Heats::of(options.rounds, || {
            [
                per_item(items, || pool.run(0..items).expect("the hooks never fail")),
                per_item(items, || channels::sum(producers, 256, items, sleep)),
            ]
        });
        let cells =
            |subject| format!("{}, {}", nanos(times.least(subject)), nanos(times.median(subject)));
        let against = 1.0 / times.ratio(0, 1);
        let ideal = time(SLEEP / producers as u32);
        table.row([producers.to_string(), ideal, cells(0), cells(1), format!("{against:.2}")]);
        let speedup = |subject| SLEEP.as_nanos() as f64 / times.median(subject);
        points.push(Sleepers { producers, gangline: speedup(0), channels: speedup(1) });
        if producers == 512 {
            let what = "512 producers that sleep 1 ms: time, against channels";
            report.promise(Promise::at_most_times(what, MOST, against));
        }
    }
    report.table(&table);
    match &options.out {
        Some(folder) => plot::sleepers(&points, folder),
        None => Ok(()),
    }
}

fn sleep(x: u64) -> u64 {
    thread::sleep(SLEEP);
    x
}

/// In nanoseconds.
fn per_item(items: u64, run: impl FnOnce() -> u64) -> f64 {
    let start = Instant::now();
    assert_eq!(run(), items * (items - 1) / 2, "the sum of the items");
    start.elapsed().as_secs_f64() * 1e9 / items as f64
}

fn nanos(nanos: f64) -> String {
    time(Duration::from_nanos(nanos as u64))
}
