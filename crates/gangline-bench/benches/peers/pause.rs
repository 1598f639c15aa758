//! Checks that all items are delivered while the source pauses.

use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use gangline::{BoxError, map};

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, Report, Table, time};
use crate::work::{Amount, Work};

const ITEMS: u64 = 5;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("A source that pauses");
    let pause = Duration::from_millis(options.effort.pick(10, 200, 200));
    let work = options.effort.work(Amount::US_1.time);
    let mut table =
        Table::new(["5 items of 1 µs, from the last one's reading to its result", "least", "most"]);
    for gang in Gang::DEFAULTS {
        let delay = || delay(gang, options.threads, work, pause);
        let mut delays =
            iter::repeat_with(delay).take(options.rounds).collect::<Result<Vec<_>, _>>()?;
        delays.sort();
        let (least, most) = (delays[0], delays[options.rounds - 1]);
        table.row([gang.name().to_owned(), time(least), time(most)]);
        report.promise(verdict(gang, most, pause));
    }
    report.table(&table);
    Ok(())
}

fn verdict(gang: Gang, most: Duration, pause: Duration) -> Promise {
    let promised = format!("within the {}", time(pause));
    let what = format!("5 items, then a pause: {}", gang.name());
    Promise { promised, ..Promise::at_most(what, pause, most) }
}

/// The time from reading the last item before the pause until the consumer has all items.
fn delay(gang: Gang, threads: usize, work: Work, pause: Duration) -> Result<Duration, BoxError> {
    let runner = map(|_| Ok(()), move |_, _, x: u64| Ok(work.on(x))).fold(
        |_| Ok(Vec::new()),
        |_, times, _| {
            times.push(Instant::now());
            Ok(())
        },
    );
    let mut read = Instant::now();
    let before = (0..ITEMS).inspect(|_| read = Instant::now());
    let after = iter::once_with(|| {
        thread::sleep(pause);
        ITEMS
    });
    let times = gang.build(runner, threads)?.run(before.chain(after))?;
    Ok(times[ITEMS as usize - 1] - read)
}
