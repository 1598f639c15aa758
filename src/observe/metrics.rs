//! Counters, gauges and histograms of runs, for the facade `metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use gangline_report::{
    Account, Ending, Failure, ItemsInHand, LaneWork, ProducerReport, RunReport, TimeKind,
};

use super::event::{Event, Observer};
use super::run_stats::nanos;

/// Publishes what happens in runs through the facade [`metrics`](https://docs.rs/metrics), from where an
/// exporter of your choice takes it: an [observer](crate::Builder::observer).
///
/// The [guide](crate::guide::metrics) lists the metrics with their types, units and labels, and has a dashboard.
///
/// The gauges are 0 between runs, and the counters of items are exact when a run has ended. While it lasts they
/// lag by about 50 ms, gauges by 100 ms; gauges and histograms miss events that were [lost](Event::EventsLost).
///
/// Metrics with the label `device` are registered when the first run starts, with the global recorder: the devices are
/// not known before. All others are registered by [`new`](Metrics::new).
///
/// ```
/// use gangline::metrics::Metrics;
/// use gangline::{OrderedRunner, map};
/// use metrics_exporter_prometheus::PrometheusBuilder;
///
/// # fn main() -> gangline::Result<()> {
/// let exporter = PrometheusBuilder::new().install_recorder()?; // before `Metrics` is made
/// let mut pool = OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x * x)))
///     .devices(2)
///     .observer(Metrics::new("squares"))
///     .build()?;
/// pool.run(0..100)?;
/// let text = exporter.render();
/// assert!(text.contains(r#"gangline_items_total{runner="squares",outcome="ok"} 100"#), "{text}");
/// # Ok(())
/// # }
/// ```
pub struct Metrics {
    outcomes: OutcomeMetrics,
    delivered: Counter,
    flow: FlowMetrics,
    hooks: HookMetrics,
    retries: Counter,
    producers: ProducerMetrics,
    /// By place.
    devices: BTreeMap<String, DeviceMetrics>,
    runs: RunMetrics,
    run: RunSoFar,
    /// The times of `producer_init` that were recorded: each run tells them again.
    inits: BTreeMap<usize, Duration>,
    /// The label of the runner.
    runner: Label,
}

/// Counters of items by outcome.
struct OutcomeMetrics {
    ok: Counter,
    failed: Counter,
    already_done: Counter,
    cancelled: Counter,
}

/// Where the items are.
struct FlowMetrics {
    in_flight: Gauge,
    working: Gauge,
    queued: Gauge,
}

struct HookMetrics {
    init: Histogram,
    work: Histogram,
    consumer: Histogram,
    batch_items: Histogram,
}

struct ProducerMetrics {
    live: Gauge,
    busy: Gauge,
    workers: Gauge,
    reinits: Counter,
    quarantined: Counter,
    abandoned: Counter,
    worker_lost: Counter,
    replaced: Counter,
    times: Vec<(TimeKind, Histogram)>,
}

/// The producers of one place.
#[derive(Clone)]
struct DeviceMetrics {
    live: Gauge,
    busy: Histogram,
    failures: Counter,
}

struct RunMetrics {
    ok: Counter,
    failed: Counter,
    cancelled: Counter,
    seconds: Histogram,
}

/// What the run in progress has told so far.
#[derive(Default)]
struct RunSoFar {
    ok: u64,
    failed: u64,
    already_done: u64,
    delivered: u64,
    read: u64,
    /// What each producer works on.
    in_hand: BTreeMap<usize, ItemsInHand>,
    /// The seats of a cluster with a worker.
    workers: BTreeSet<usize>,
    ready: BTreeSet<usize>,
    /// The places of the producers that take items, and of those that are lost.
    live: BTreeMap<usize, DeviceMetrics>,
    lost: BTreeMap<usize, DeviceMetrics>,
}

impl Metrics {
    /// Makes the metrics of one runner, with `runner` as the value of their label `runner`.
    ///
    /// They go to the recorder that is installed now. Without one they go nowhere.
    pub fn new(runner: impl Into<String>) -> Self {
        describe();
        let label = Label::new("runner", runner.into());
        let runner = [label.clone()];
        let with = |name, value| {
            let mut labels = runner.to_vec();
            labels.push(Label::new(name, value));
            labels
        };
        let items = |outcome| counter!("gangline_items_total", with("outcome", outcome));
        let hook = |hook| histogram!("gangline_hook_duration_seconds", with("hook", hook));
        let lost = |reason| counter!("gangline_producers_lost_total", with("reason", reason));
        let runs = |outcome| counter!("gangline_runs_total", with("outcome", outcome));
        let time = |kind: TimeKind| {
            (kind, histogram!("gangline_producer_time_seconds", with("kind", kind.name())))
        };
        let runner = runner.to_vec();
        Metrics {
            outcomes: OutcomeMetrics {
                ok: items("ok"),
                failed: items("failed"),
                already_done: items("already_done"),
                cancelled: items("cancelled"),
            },
            delivered: counter!("gangline_items_delivered_total", runner.clone()),
            flow: FlowMetrics {
                in_flight: gauge!("gangline_items_in_flight", runner.clone()),
                working: gauge!("gangline_items_working", runner.clone()),
                queued: gauge!("gangline_items_queued", runner.clone()),
            },
            hooks: HookMetrics {
                init: hook("producer_init"),
                work: hook("producer_work"),
                consumer: histogram!("gangline_consumer_busy_seconds", runner.clone()),
                batch_items: histogram!("gangline_batch_items", runner.clone()),
            },
            retries: counter!("gangline_retries_total", runner.clone()),
            producers: ProducerMetrics {
                live: gauge!("gangline_producers", runner.clone()),
                busy: gauge!("gangline_producers_busy", runner.clone()),
                workers: gauge!("gangline_workers", runner.clone()),
                reinits: counter!("gangline_reinits_total", runner.clone()),
                quarantined: lost("quarantined"),
                abandoned: lost("abandoned"),
                worker_lost: lost("worker_lost"),
                replaced: counter!("gangline_producers_replaced_total", runner.clone()),
                times: TimeKind::ALL.map(time).to_vec(),
            },
            devices: BTreeMap::new(),
            runs: RunMetrics {
                ok: runs("ok"),
                failed: runs("failed"),
                cancelled: runs("cancelled"),
                seconds: histogram!("gangline_run_duration_seconds", runner),
            },
            run: RunSoFar::default(),
            inits: BTreeMap::new(),
            runner: label,
        }
    }

    fn run_started(&mut self, producers: &[String]) {
        self.run = RunSoFar::default();
        // A seat of a cluster has no place before a worker takes it.
        let places = producers.iter().enumerate().filter(|(_, place)| !place.is_empty());
        places.for_each(|(producer, place)| self.takes_items(producer, place));
        self.show_producers();
    }

    fn takes_items(&mut self, producer: usize, place: &str) {
        let of_device = self.devices.entry(place.to_owned());
        let device =
            of_device.or_insert_with(|| DeviceMetrics::new(&self.runner, place.to_owned()));
        self.run.lost.remove(&producer);
        device.live.increment(1);
        if let Some(before) = self.run.live.insert(producer, device.clone()) {
            before.live.decrement(1);
        }
    }

    fn producer_ready(&mut self, producer: usize, took: Duration, is_rebuilt: bool) {
        if self.inits.insert(producer, took) != Some(took) {
            self.hooks.init.record(took);
        }
        if !self.run.ready.insert(producer) && is_rebuilt {
            self.producers.reinits.increment(1);
        }
    }

    fn item_started(&mut self, at: Duration, item: u64, producer: usize) {
        let work = LaneWork { item, start: nanos(at), ..LaneWork::default() };
        self.run.in_hand.entry(producer).or_default().begin(work);
    }

    fn item_finished(&mut self, at: Duration, producer: usize, item: u64) {
        let in_hand = self.run.in_hand.get_mut(&producer);
        let Some(work) = in_hand.and_then(|it| it.end(item)).filter(|it| it.is_first) else {
            return;
        };
        let took = Duration::from_nanos(work.took(nanos(at)));
        self.hooks.work.record(took);
        self.hooks.batch_items.record(work.together as f64);
        self.run.device(producer).into_iter().for_each(|device| device.busy.record(took));
    }

    /// The call of a producer's hook did not work for this long.
    fn hook_paused(&mut self, at: Duration, producer: usize, took: Duration) {
        let in_hand = self.run.in_hand.get_mut(&producer);
        in_hand.into_iter().for_each(|it| it.set_aside(nanos(at), nanos(took)));
    }

    fn attempt_failed(&self, failure: &Failure) {
        let device = failure.producer.and_then(|producer| self.run.device(producer));
        device.into_iter().for_each(|device| device.failures.increment(1));
    }

    fn worker_joined(&mut self, producer: usize, place: &str) {
        self.takes_items(producer, place);
        self.run.workers.insert(producer);
        self.run.in_hand.insert(producer, ItemsInHand::of_worker());
        self.show_producers();
    }

    fn worker_left(&mut self, producer: usize, is_lost: bool) {
        if is_lost {
            self.producers.worker_lost.increment(1);
        }
        self.run.workers.remove(&producer);
        self.producer_lost(producer);
    }

    /// Does nothing if it was lost before: the worker of a producer that was quarantined leaves after that.
    fn producer_lost(&mut self, producer: usize) {
        self.run.in_hand.get_mut(&producer).into_iter().for_each(ItemsInHand::clear);
        if let Some(device) = self.run.live.remove(&producer) {
            device.live.decrement(1);
            self.run.lost.insert(producer, device);
        }
        self.show_producers();
    }

    fn producer_replaced(&mut self, producer: usize) {
        self.producers.replaced.increment(1);
        if let Some(device) = self.run.lost.remove(&producer) {
            device.live.increment(1);
            self.run.live.insert(producer, device);
            self.show_producers();
        }
    }

    fn show_producers(&self) {
        self.producers.live.set(self.run.live.len() as f64);
        self.producers.workers.set(self.run.workers.len() as f64);
    }

    fn show_flow(&self) {
        let RunSoFar { delivered, read, in_hand, .. } = &self.run;
        let counts = || in_hand.values().map(ItemsInHand::count);
        let working = counts().sum::<usize>() as u64;
        let in_flight = read.saturating_sub(*delivered).max(working);
        self.flow.in_flight.set(in_flight as f64);
        self.flow.working.set(working as f64);
        self.flow.queued.set((in_flight - working) as f64);
        self.producers.busy.set(counts().filter(|count| *count > 0).count() as f64);
    }

    /// Counts what the events of the run have not told, since some may be lost.
    fn run_ended(&mut self, totals: &RunReport) {
        let told = std::mem::take(&mut self.run);
        told.live.values().for_each(|device| device.live.decrement(1));
        let Account { ok, failed, already_done, cancelled, .. } = totals.account;
        let delivered = ok + failed + already_done;
        self.delivered.increment(delivered.saturating_sub(told.delivered));
        self.outcomes.already_done.increment(already_done.saturating_sub(told.already_done));
        // An item that the consumer fails at was counted as `ok`.
        let untold = (ok + failed).saturating_sub(told.ok + told.failed);
        let untold_failed = failed.saturating_sub(told.failed).min(untold);
        self.outcomes.failed.increment(untold_failed);
        self.outcomes.ok.increment(untold - untold_failed);
        self.outcomes.cancelled.increment(cancelled);
        match totals.ending {
            Ending::Failed => self.runs.failed.increment(1),
            Ending::Cancelled => self.runs.cancelled.increment(1),
            _ => self.runs.ok.increment(1),
        }
        self.hooks.consumer.record(totals.consumer_working);
        for ProducerReport { times, .. } in &totals.producers {
            self.producers.times.iter().for_each(|(kind, it)| it.record(times.of_kind(*kind)));
        }
        self.runs.seconds.record(totals.lasted);
        self.show_producers();
        self.show_flow();
    }
}

impl DeviceMetrics {
    fn new(runner: &Label, place: String) -> Self {
        let labels = vec![runner.clone(), Label::new("device", place)];
        DeviceMetrics {
            live: gauge!("gangline_device_producers", labels.clone()),
            busy: histogram!("gangline_device_busy_seconds", labels.clone()),
            failures: counter!("gangline_device_failures_total", labels),
        }
    }
}

impl RunSoFar {
    /// The metrics of a producer's place, also if the producer is lost: its hook may still return.
    fn device(&self, producer: usize) -> Option<&DeviceMetrics> {
        self.live.get(&producer).or_else(|| self.lost.get(&producer))
    }
}

impl Observer for Metrics {
    fn observe(&mut self, at: Duration, event: &Event) {
        match event {
            Event::RunStarted { producers, .. } => self.run_started(producers),
            Event::ProducerReady { producer, took, is_rebuilt } => {
                self.producer_ready(*producer, *took, *is_rebuilt);
            }
            Event::ItemStarted { item, producer, .. } => self.item_started(at, *item, *producer),
            Event::ItemFinished { item, producer } => self.item_finished(at, *producer, *item),
            Event::HookPaused { producer, took, .. } => self.hook_paused(at, *producer, *took),
            Event::ItemsRead { items } => self.run.read += items,
            Event::ItemsDone { items } => {
                self.run.ok += items;
                self.outcomes.ok.increment(*items);
            }
            Event::ItemsDelivered { items } => {
                self.run.delivered += items;
                self.delivered.increment(*items);
            }
            Event::ItemRetried { failure } => {
                self.retries.increment(1);
                self.attempt_failed(failure);
            }
            Event::ItemFailed { failure } if failure.is_of_attempt() => {
                self.attempt_failed(failure);
                self.run.failed += 1;
                self.outcomes.failed.increment(1);
            }
            Event::ItemAlreadyDone { .. } => {
                self.run.already_done += 1;
                self.outcomes.already_done.increment(1);
            }
            Event::ProducerQuarantined { producer, .. } => {
                self.producers.quarantined.increment(1);
                self.producer_lost(*producer);
            }
            Event::ProducerAbandoned { producer, .. } => {
                self.producers.abandoned.increment(1);
                self.producer_lost(*producer);
            }
            Event::WorkerJoined { producer, place, .. } => self.worker_joined(*producer, place),
            Event::WorkerLeft { producer, lost, .. } => self.worker_left(*producer, lost.is_some()),
            Event::ProducerReplaced { producer } => self.producer_replaced(*producer),
            Event::RunEnded { totals, .. } => self.run_ended(totals),
            _ => {}
        }
    }

    /// Gauges are sampled, since nothing reads them more often.
    fn tick(&mut self, _: Duration) {
        self.show_flow();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn describe() {
    let count = Unit::Count;
    describe_counter!("gangline_items_total", count, "Items by outcome");
    describe_counter!("gangline_items_delivered_total", count, "Items met by the consumer");
    describe_gauge!("gangline_items_in_flight", count, "Items read and not delivered");
    describe_gauge!("gangline_items_working", count, "Items in a hook of a producer");
    describe_gauge!("gangline_items_queued", count, "Items in flight that wait");
    describe_histogram!("gangline_batch_items", count, "Items in a call of a hook");
    describe_histogram!("gangline_hook_duration_seconds", Unit::Seconds, "Time of calls of hooks");
    describe_histogram!("gangline_device_busy_seconds", Unit::Seconds, "Time of work on a device");
    describe_gauge!("gangline_device_producers", count, "Producers of a device that take items");
    describe_counter!("gangline_device_failures_total", count, "Failed attempts on a device");
    describe_histogram!("gangline_consumer_busy_seconds", Unit::Seconds, "Busy time of consumers");
    describe_counter!("gangline_retries_total", count, "Attempts followed by another");
    describe_counter!("gangline_reinits_total", count, "States rebuilt after a panic");
    describe_gauge!("gangline_producers", count, "Producers that take items");
    describe_gauge!("gangline_producers_busy", count, "Producers in a call of a hook");
    let seconds = Unit::Seconds;
    describe_histogram!("gangline_producer_time_seconds", seconds, "Time of producers by kind");
    describe_gauge!("gangline_workers", count, "Workers of a cluster that take part");
    describe_counter!("gangline_producers_lost_total", count, "Producers lost in runs");
    describe_counter!("gangline_producers_replaced_total", count, "Producers replaced");
    describe_counter!("gangline_runs_total", count, "Runs by outcome");
    describe_histogram!("gangline_run_duration_seconds", Unit::Seconds, "Time of runs");
}
