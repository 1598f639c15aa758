//! Measures the share of processor time that a run gets beside busy programs.

use std::hint::black_box;
use std::io;
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use gangline::BoxError;

use crate::contest::{median, once};
use crate::gangs::Gang;
use crate::machine::cores;
use crate::options::Options;
use crate::report::{Promise, Report, Table, number};
use crate::subject::{Kind, Subject};
use crate::subjects::{self, Channels};
use crate::work::{Amount, Work};

const LOOPS_PER_CORE: usize = 2;
/// What the loops may cost a run, as times what they cost channels.
const MOST_SLOWER: f64 = 1.5;
const FEWEST_ITEMS: u64 = 1_000;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Beside busy loops");
    let loops = LOOPS_PER_CORE * cores();
    let amount = Amount::US_1;
    let work = options.effort.work(amount.time);
    let mut subjects = subjects::all(options)?;
    subjects.retain(|subject| takes_part(subject.kind()));
    subjects.push(Box::new(Channels::of_64(options.threads)));
    eprintln!("beside {loops} busy loops: {} subjects", subjects.len());
    let alone = rounds(options, &mut subjects, work);
    let running = (0..loops).map(|_| BusyLoop::start()).collect::<Result<Vec<_>, _>>()?;
    let beside = rounds(options, &mut subjects, work);
    drop(running);
    let mut table = Table::new([
        format!("ns per item, {} of work: the median", amount.name),
        "alone".to_owned(),
        format!("beside {loops} loops"),
        "times as slow".to_owned(),
    ]);
    let mut slowdowns = Vec::new();
    for (subject, (alone, beside)) in subjects.iter().zip(alone.into_iter().zip(beside)) {
        let slower = format!("{:.1} ×", beside / alone);
        table.row([subject.kind().name().to_owned(), number(alone), number(beside), slower]);
        slowdowns.push((subject.kind(), beside / alone));
    }
    check(options, &slowdowns, report);
    report.table(&table);
    report.paragraph(&format!(
        "With {LOOPS_PER_CORE} loops for each core, a thread that always works gets one part in {} of the time.",
        LOOPS_PER_CORE + 1
    ));
    Ok(())
}

/// Each window beside channels that hold about as many items.
fn check(options: &Options, slowdowns: &[(Kind, f64)], report: &mut Report) {
    // It is about two cores.
    if options.threads != 2 {
        return;
    }
    let of = |wanted| slowdowns.iter().find(|(kind, _)| *kind == wanted).map(|(_, slower)| slower);
    for (gangs, peer) in [(Gang::DEFAULTS, Kind::Channels), (Gang::NARROW, Kind::ChannelsOf64)] {
        for gang in gangs {
            if let (Some(own), Some(other)) = (of(Kind::Gangline(gang)), of(peer)) {
                let what = format!(
                    "beside busy loops, times as slow as alone: {} against {}",
                    gang.name(),
                    peer.name()
                );
                report.promise(Promise::at_most_times(what, MOST_SLOWER, own / other));
            }
        }
    }
}

/// The plain loop, for what a share is, and libraries that take any iterator.
fn takes_part(kind: Kind) -> bool {
    match kind {
        Kind::PlainLoop | Kind::ParBridge | Kind::Pariter | Kind::Channels => true,
        Kind::Gangline(gang) => gang != Gang::TIMED,
        _ => false,
    }
}

/// The median of each subject.
fn rounds(options: &Options, subjects: &mut [Box<dyn Subject>], work: Work) -> Vec<f64> {
    let span = Duration::from_millis(options.effort.pick(0, 100, 250));
    let rounds = options.rounds.min(options.effort.pick(1, 3, 5));
    let mut times = vec![Vec::new(); subjects.len()];
    for _ in 0..rounds {
        for (subject, times) in subjects.iter_mut().zip(&mut times) {
            times.push(time_per_item(subject.as_mut(), work, span));
        }
    }
    times.into_iter().map(median).collect()
}

/// Uses enough items for a measurable time, since the speed of a subject is unknown beforehand.
fn time_per_item(subject: &mut dyn Subject, work: Work, span: Duration) -> f64 {
    let mut items = FEWEST_ITEMS;
    loop {
        let time = once(subject, items, work);
        if time * items as f64 >= span.as_nanos() as f64 || subject.capacity(items) < items {
            return time;
        }
        items *= 4;
    }
}

/// A program that computes until its input ends, so that it ends with the process that started it.
pub fn compute_until_input_ends() -> ! {
    thread::spawn(|| {
        // A read error means that the parent is gone too.
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        process::exit(0);
    });
    loop {
        black_box(Work::of_steps(1_000).on(1));
    }
}

/// A busy program; dropping this ends it.
struct BusyLoop(Child);

impl BusyLoop {
    fn start() -> Result<Self, BoxError> {
        let mut program = Command::new(std::env::current_exe()?);
        Ok(Self(program.arg("--busy-loop").stdin(Stdio::piped()).spawn()?))
    }
}

impl Drop for BusyLoop {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
