//! Beside programs that never wait: does a run get its share of the cores?

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use gangline::BoxError;

use crate::contest::{median, once};
use crate::machine::cores;
use crate::options::Options;
use crate::report::{Report, Table, number};
use crate::subject::{Kind, Subject};
use crate::subjects;
use crate::work::{Amount, Work};

const LOOPS_PER_CORE: usize = 2;
const FEWEST_ITEMS: u64 = 1_000;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Beside busy loops");
    let loops = LOOPS_PER_CORE * cores();
    let amount = Amount::US_1;
    let work = options.effort.work(amount.time);
    let mut subjects = subjects::all(options)?;
    subjects.retain(|subject| takes_part(subject.kind()));
    eprintln!("beside {loops} busy loops: {} subjects", subjects.len());
    let alone = rounds(options, &mut subjects, work);
    let beside = beside_busy_loops(loops, || rounds(options, &mut subjects, work));
    let mut table = Table::new([
        format!("ns per item, {} of work: the median", amount.name),
        "alone".to_owned(),
        format!("beside {loops} loops"),
        "as slow".to_owned(),
    ]);
    for (subject, (alone, beside)) in subjects.iter().zip(alone.into_iter().zip(beside)) {
        let slower = format!("{:.1} ×", beside / alone);
        table.row([subject.kind().name().to_owned(), number(alone), number(beside), slower]);
    }
    report.table(&table);
    report.paragraph(&format!(
        "With {LOOPS_PER_CORE} loops for each core, a thread that is always at work has one part in {} of it.",
        LOOPS_PER_CORE + 1
    ));
    Ok(())
}

/// Bare threads never sleep, so they are busy loops themselves; the rest hand nothing over.
fn takes_part(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::PlainLoop | Kind::ParBridge | Kind::Pariter | Kind::Channels | Kind::Gangline(_)
    )
}

/// Of each subject the median.
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

/// Of so many items that they last for a while: nobody knows beforehand how slow a subject will be.
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

fn beside_busy_loops<T>(loops: usize, run: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for nth in 0..loops {
            let busy = || {
                while !is_over.load(Ordering::Relaxed) {
                    black_box(Work::of_steps(1_000).on(1));
                }
            };
            let builder = thread::Builder::new().name(format!("busy-{nth}"));
            builder.spawn_scoped(scope, busy).expect("the system has room for a few threads");
        }
        // Also where a sum is wrong: the loops would go on for ever, and the panic would wait for them.
        let _guard = Over(&is_over);
        run()
    })
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
