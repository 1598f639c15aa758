//! Measures the cost of observing every item.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gangline::event::Event;
use gangline::{BoxError, ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};

use crate::contest::median;
use crate::gangs::Sum;
use crate::options::Options;
use crate::processor::{process_time, thread_time};
use crate::report::{Promise, PromiseVerdict, Report, Table, number};
use crate::work::Work;

/// The allowed extra time of a producer per item, in nanoseconds. Reading the clock took a third of it on the
/// first machines measured.
const PROMISED: f64 = 60.0;

#[derive(Clone, Copy, PartialEq)]
enum Told {
    Nobody,
    /// The report has a timeline.
    Report,
    /// An observer that does nothing.
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

/// The cost of one item, in nanoseconds of processor time.
#[derive(Clone, Copy)]
struct Cost {
    producer: f64,
    /// Of all threads.
    all: f64,
}

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Being observed");
    let work = options.effort.work(Duration::from_micros(1));
    let items = options.effort.part_of(300_000);
    let mut costs = [const { vec![] }; Told::ALL.len()];
    for _ in 0..options.rounds {
        for (told, costs) in Told::ALL.into_iter().zip(&mut costs) {
            match cost_of_an_item(told, options.threads, work, items)? {
                Some(cost) => costs.push(cost),
                None => {
                    report.paragraph("Skipped: this system does not report processor time.");
                    return Ok(());
                }
            }
        }
    }
    tell(&costs, report);
    Ok(())
}

fn tell(costs: &[Vec<Cost>; Told::ALL.len()], report: &mut Report) {
    let mut table = Table::new([
        "processor time of an item of 1 µs in ns; by observer",
        "its producer",
        "more",
        "all threads",
        "more",
    ]);
    for (told, told_costs) in Told::ALL.into_iter().zip(costs) {
        let least = |of: fn(&Cost) -> f64| told_costs.iter().map(of).fold(f64::INFINITY, f64::min);
        // Ratios are taken within a round, since other load on the machine affects all subjects alike.
        let more = |of: fn(&Cost) -> f64| {
            let rounds = told_costs.iter().zip(&costs[0]);
            median(rounds.map(|(cost, unobserved)| of(cost) - of(unobserved)).collect())
        };
        let producer = more(|cost| cost.producer);
        table.row([
            told.name().to_owned(),
            number(least(|cost| cost.producer)),
            number(producer),
            number(least(|cost| cost.all)),
            number(more(|cost| cost.all)),
        ]);
        if told != Told::Nobody {
            report.promise(promise(told, producer));
        }
    }
    report.table(&table);
}

fn cost_of_an_item(
    told: Told,
    threads: usize,
    work: Work,
    items: u64,
) -> Result<Option<Cost>, BoxError> {
    let producers = Arc::new(AtomicU64::new(0));
    let runner = Clocked { sum: Sum(work), producers: Arc::clone(&producers) };
    let builder = OrderedRunner::builder(runner).devices(threads);
    let mut runner = match told {
        Told::Nobody => builder.build()?,
        Told::Report => builder.timeline().build()?,
        Told::Observer => builder.observer(|_: Duration, _: &Event| {}).build()?,
    };
    let before = process_time();
    let sum = runner.run(0..items)?;
    let used = process_time().zip(before).map(|(after, before)| after - before);
    assert_eq!(sum, work.sum(items), "the sum of items observed by {}", told.name());
    runner.close()?;
    let each = |nanos: u64| nanos as f64 / items as f64;
    let producer = each(producers.load(Ordering::Relaxed));
    Ok(used.map(|used| Cost { producer, all: each(used.as_nanos() as u64) }))
}

fn promise(told: Told, nanos: f64) -> Promise {
    Promise {
        what: format!("extra cost of an item to its producer, with {}", told.name()),
        promised: format!("at most {PROMISED} ns"),
        aim: None,
        measured: format!("{nanos:.1} ns"),
        verdict: PromiseVerdict::of(nanos <= PROMISED),
    }
}

/// Adds up the processor time of the producers' threads.
struct Clocked {
    sum: Sum,
    producers: Arc<AtomicU64>,
}

impl Runner for Clocked {
    type Input = u64;
    type Output = u64;
    type ProducerState = Option<Duration>;
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Option<Duration>> {
        Ok(thread_time())
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Option<Duration>,
        x: u64,
    ) -> Result<u64> {
        self.sum.producer_work(cx, &mut (), x)
    }

    fn producer_end(&self, _: &ProducerContext<'_>, began: Option<Duration>) -> Result<()> {
        if let Some((now, began)) = thread_time().zip(began) {
            self.producers.fetch_add((now - began).as_nanos() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<u64> {
        self.sum.consumer_init(cx)
    }

    fn consumer_work(&self, cx: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
        self.sum.consumer_work(cx, sum, y)
    }

    fn consumer_end(&self, cx: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        self.sum.consumer_end(cx, sum)
    }
}
