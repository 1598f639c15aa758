//! Checks that payloads that own memory are moved, and counts allocations per item.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::{BoxError, map};

use crate::ALLOCATOR;
use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, PromiseVerdict, Report, Table, number};
use crate::subject::{Kind, Outcome, Subject};
use crate::subjects;
use crate::work::Work;

const SIZES: [(&str, usize); 5] = [
    ("1 KiB", 1 << 10),
    ("32 KiB", 32 << 10),
    ("256 KiB", 256 << 10),
    ("1 MiB", 1 << 20),
    ("8 MiB", 8 << 20),
];
/// The window of `Gang::NARROW`. As many payloads suffice, since a permit is taken before a payload.
const WINDOW: usize = 64;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Payloads that own memory");
    move_payloads(options, report);
    count_allocations(options, report)
}

fn move_payloads(options: &Options, report: &mut Report) {
    let items = options.effort.part_of(500_000);
    let mut times = [[f64::INFINITY; SIZES.len()]; 2];
    for _ in 0..options.rounds {
        for (gang, times) in Gang::NARROW.into_iter().zip(&mut times) {
            for ((_, size), time) in SIZES.into_iter().zip(times) {
                let elapsed = pass_payloads(gang, options.threads, size, items);
                *time = time.min(elapsed.as_secs_f64() * 1e9 / items as f64);
            }
        }
    }
    let header = ["nanoseconds per `Vec<u8>` of"].into_iter().chain(SIZES.map(|(name, _)| name));
    let mut table = Table::new(header);
    for (gang, times) in Gang::NARROW.into_iter().zip(times) {
        table.row([gang.name().to_owned()].into_iter().chain(times.map(number)));
        report.promise(independence(gang, &times));
    }
    report.table(&table);
}

/// A copy of the largest takes over a millisecond and of the smallest some 20 ns; other differences are
/// noise.
fn independence(gang: Gang, times: &[f64]) -> Promise {
    let spread = times[times.len() - 1] / times[0];
    Promise {
        what: format!("8 MiB against 1 KiB, {}", gang.name()),
        promised: "at most 1.25 ×".to_owned(),
        aim: None,
        measured: format!("{spread:.2} ×"),
        verdict: PromiseVerdict::of(spread <= 1.25),
    }
}

/// Payloads are allocated before the clock starts and reused: the source takes one that the consumer has
/// returned. No hook reads them, so a cost that depends on their size is the framework's.
fn pass_payloads(gang: Gang, threads: usize, size: usize, items: u64) -> Duration {
    let spare: Vec<Vec<u8>> = (0..WINDOW).map(|_| vec![0; size]).collect();
    let outcome = pass_around(gang, threads, spare, items);
    assert_eq!(outcome.sum, items * size as u64, "the bytes of {}", gang.name());
    outcome.elapsed
}

fn pass_around(gang: Gang, threads: usize, spare: Vec<Vec<u8>>, items: u64) -> Outcome {
    let spare = Arc::new(Mutex::new(spare));
    let given_back = Arc::clone(&spare);
    let runner = map(|_| Ok(()), |_, _, payload: Vec<u8>| Ok(payload)).fold(
        |_| Ok(0),
        move |_, bytes, payload| {
            *bytes += payload.len() as u64;
            given_back.lock().expect("no code panics with the lock held").push(payload);
            Ok(())
        },
    );
    let take = |_| spare.lock().expect("no code panics with the lock held").pop();
    let source = (0..items).map(take).map(|payload| payload.expect("one for each permit"));
    let mut pool = gang.build(runner, threads).expect("no hook of it fails");
    Outcome::of(|| pool.run(source).expect("no hook of it fails"))
}

fn count_allocations(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    let items = options.effort.part_of(100_000);
    let mut table = Table::new(["allocations per item, once the run is under way", ""]);
    for mut subject in subjects::all(options)? {
        // Allocations of another process are not counted.
        if subject.kind() != Kind::Easycore {
            let per_item = per_item(items, |items| pass_numbers(subject.as_mut(), items));
            let what = format!("`u64`, {}", subject.kind().name());
            table.row([what.clone(), format!("{per_item:.5}")]);
            // Items with a timeout are tracked, which allocates.
            if matches!(subject.kind(), Kind::Gangline(gang) if gang != Gang::TIMED) {
                report.promise(frugality(&what, per_item));
            }
        }
    }
    for gang in Gang::NARROW {
        let pass = |items| _ = pass_payloads(gang, options.threads, 1 << 10, items);
        let per_item = per_item(items, pass);
        let what = format!("`Vec<u8>`, {}", gang.name());
        table.row([what.clone(), format!("{per_item:.5}")]);
        report.promise(frugality(&what, per_item));
    }
    report.table(&table);
    Ok(())
}

fn pass_numbers(subject: &mut dyn Subject, items: u64) {
    let work = Work::of_steps(0);
    let outcome = subject.run(items, work);
    assert_eq!(outcome.sum, work.sum(items), "the sum of {}", subject.kind().name());
}

/// The allocations of a long run less those of a short one.
fn per_item(items: u64, mut pass: impl FnMut(u64)) -> f64 {
    let mut counted = |items| {
        let before = ALLOCATOR.stats();
        pass(items);
        let during = ALLOCATOR.stats() - before;
        during.allocations + during.reallocations
    };
    let few = counted(items);
    let many = counted(items * 11);
    many.saturating_sub(few) as f64 / (items * 10) as f64
}

/// Buffers may grow once more in a long run than in a short one.
fn frugality(what: &str, per_item: f64) -> Promise {
    Promise {
        what: format!("allocations per item: {what}"),
        promised: "none".to_owned(),
        aim: None,
        measured: format!("{per_item:.5}"),
        verdict: PromiseVerdict::of(per_item < 1e-3),
    }
}
