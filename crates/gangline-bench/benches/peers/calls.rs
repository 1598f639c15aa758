//! Measures calls of a service: the cost of one beside a bare hand-over, the gain of batches, and the time that calls
//! wait for a stream.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use gangline::{Batch, BoxError, OrderedRunner, Runner, Service, map, map_batches};

use crate::contest::Heats;
use crate::options::Options;
use crate::report::{Promise, Report, Table, time};
use crate::work::Work;

/// The time that a call may take more than handing an input to a thread and its answer back.
const MOST_OVERHEAD: Duration = Duration::from_micros(2);
/// How many times as fast calls are in batches, if a batch takes as long as an item.
const LEAST_GAIN: f64 = 4.0;
const BATCH: usize = 32;
/// Callers of the batched service.
const CALLERS: usize = 64;
/// The work on an item, and on a batch.
const MODEL: Duration = Duration::from_micros(200);
/// The time of an item on a device that needs no processor.
const DEVICE: Duration = Duration::from_millis(2);
/// The largest factor by which a stream may slow calls down: each waits for at most one more item.
const MOST_BESIDE: f64 = 2.0;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Calls of a service");
    overhead(options, report, options.threads)?;
    overhead(options, report, 1)?;
    batching(options, report)?;
    beside_a_stream(options, report)
}

/// Some callers, each with one call at a time: nothing but hand-overs.
fn overhead(options: &Options, report: &mut Report, callers: usize) -> Result<(), BoxError> {
    let (threads, calls) = (options.threads, options.effort.part_of(100_000));
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let service = OrderedRunner::new(same, threads)?.into_service();
    let sleepers = Bare::start(Sleepers::default(), threads);
    let channels = Bare::start(Channels::new(), threads);
    let times = Heats::of(options.rounds, || {
        [
            per_call(callers, calls, |x| service.call(x).expect("no item fails")),
            per_call(callers, calls, |x| sleepers.hand_over.call(x)),
            per_call(callers, calls, |x| channels.hand_over.call(x)),
        ]
    });
    service.close()?;
    sleepers.end();
    channels.end();
    let header = format!("{callers} callers, {threads} producers, no work: time per call");
    let mut table = Table::new([header, "least".to_owned(), "median".to_owned()]);
    let names = [
        "`Service::call`",
        "two locks, threads that sleep",
        "two channels, threads that yield first",
    ];
    for (subject, name) in names.into_iter().enumerate() {
        table.row([name.to_owned(), nanos(times.least(subject)), nanos(times.median(subject))]);
    }
    report.table(&table);
    let more = Duration::from_nanos((times.least(0) - times.least(1)).max(0.0) as u64);
    let what = format!(
        "a call of {callers}: more than handing over an input and its answer, by threads that sleep"
    );
    report.promise(Promise::at_most(what, MOST_OVERHEAD, more));
    Ok(())
}

fn batching(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    let work = options.effort.work(MODEL);
    let calls = options.effort.part_of(10_000);
    let single = map(
        |_| Ok(()),
        move |_, (), x: u64| {
            work.on(x);
            Ok(x)
        },
    );
    let single = OrderedRunner::new(single, options.threads)?.into_service();
    let whole =
        map_batches(|_| Ok(()), move |_, (), xs: &mut Vec<u64>| at_the_cost_of_one(work, xs));
    let builder = OrderedRunner::builder(whole).devices(options.threads);
    let whole = builder.batch(Batch::of(BATCH)).build()?.into_service();
    let times = Heats::of(options.rounds, || [of_many(&single, calls), of_many(&whole, calls)]);
    single.close()?;
    whole.close()?;
    let header =
        format!("{CALLERS} callers, {} of work for an item or a batch: time per call", time(MODEL));
    let mut table = Table::new([header, "least".to_owned(), "median".to_owned()]);
    for (name, subject) in [("single items", 0), ("batches of at most 32", 1)] {
        table.row([name.to_owned(), nanos(times.least(subject)), nanos(times.median(subject))]);
    }
    report.table(&table);
    report.promise(Promise::at_least_times(
        "calls in batches against single ones",
        LEAST_GAIN,
        times.ratio(1, 0),
    ));
    Ok(())
}

/// Calls at random on devices that they use for less than half of the time, alone and while a stream takes the rest.
fn beside_a_stream(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    let calls = options.effort.part_of(4_000).div_ceil(options.threads as u64);
    let worked = Arc::new(AtomicU64::new(0));
    let works = worked.clone();
    let device = map(
        |_| Ok(()),
        move |_, (), x: u64| {
            let start = Instant::now();
            thread::sleep(DEVICE);
            works.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            Ok(x)
        },
    );
    let service = OrderedRunner::new(device, options.threads)?.into_service();
    let mut busy = 0.0;
    let times = Heats::of(options.rounds, || {
        let alone = waits(&service, options.threads, calls);
        worked.store(0, Ordering::Relaxed);
        let (is_over, start) = (AtomicBool::new(false), Instant::now());
        let beside = thread::scope(|scope| {
            scope.spawn(|| {
                let items = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
                assert!(service.stream(items).all(|it| it.is_ok()), "no item fails");
            });
            let waits = waits(&service, options.threads, calls);
            is_over.store(true, Ordering::Relaxed);
            waits
        });
        let worked = Duration::from_nanos(worked.load(Ordering::Relaxed));
        busy = worked.as_secs_f64() / start.elapsed().as_secs_f64() / options.threads as f64;
        [alone, beside]
    });
    service.close()?;
    let header = format!("calls at random, {} on a device: 99th percentile", time(DEVICE));
    let mut table = Table::new([header, "least".to_owned(), "median".to_owned()]);
    for (name, subject) in [("alone", 0), ("beside a stream", 1)] {
        table.row([name.to_owned(), nanos(times.least(subject)), nanos(times.median(subject))]);
    }
    report.table(&table);
    report.paragraph(&format!("Beside the stream, devices worked for {:.1} %.", 100.0 * busy));
    report.promise(Promise::at_most_times(
        "the 99th percentile of calls beside a stream, against calls alone",
        MOST_BESIDE,
        times.ratio(0, 1),
    ));
    Ok(())
}

/// The 99th percentile of what calls take, in nanoseconds. Each caller waits at random between two.
fn waits<R>(service: &Service<R>, callers: usize, calls: u64) -> f64
where
    R: Runner<Input = u64, Output = u64> + 'static,
{
    let call = |caller: usize| {
        let mut random = caller as u64 + 1;
        let mut took = Vec::new();
        for x in 0..calls {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (random >> 11) as f64 / (1_u64 << 53) as f64;
            thread::sleep(DEVICE.mul_f64(-2.0 * (1.0 - uniform).ln()));
            let start = Instant::now();
            assert_eq!(service.call(x).expect("no item fails"), x, "the answer to a call");
            took.push(start.elapsed());
        }
        took
    };
    let mut took: Vec<Duration> = thread::scope(|scope| {
        let callers: Vec<_> = (0..callers).map(|i| scope.spawn(move || call(i))).collect();
        callers.into_iter().flat_map(|it| it.join().expect("it only calls")).collect()
    });
    took.sort_unstable();
    took[took.len() * 99 / 100].as_secs_f64() * 1e9
}

fn at_the_cost_of_one(
    work: Work,
    xs: &mut Vec<u64>,
) -> gangline::Result<Vec<gangline::Result<u64>>> {
    work.on(xs.first().copied().unwrap_or_default());
    Ok(xs.drain(..).map(Ok).collect())
}

fn of_many<R>(service: &Service<R>, calls: u64) -> f64
where
    R: Runner<Input = u64, Output = u64> + 'static,
{
    per_call(CALLERS, calls.div_ceil(CALLERS as u64), |x| service.call(x).expect("no item fails"))
}

/// In nanoseconds, with `callers` threads that make `calls` calls each.
fn per_call(callers: usize, calls: u64, call: impl Fn(u64) -> u64 + Sync) -> f64 {
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| (0..calls).for_each(|x| assert_eq!(call(x), x, "the answer to a call")));
        }
    });
    start.elapsed().as_secs_f64() * 1e9 / (callers as u64 * calls) as f64
}

fn nanos(nanos: f64) -> String {
    time(Duration::from_nanos(nanos as u64))
}

/// Threads that answer each input with itself: what a service cannot do with less.
struct Bare<H> {
    hand_over: Arc<H>,
    threads: Vec<JoinHandle<()>>,
}

/// How an input gets to a thread, and its answer back.
trait HandOver: Send + Sync + 'static {
    fn call(&self, x: u64) -> u64;

    /// Answers inputs until the end.
    fn work(&self);

    fn end(&self);
}

impl<H: HandOver> Bare<H> {
    fn start(hand_over: H, threads: usize) -> Self {
        let hand_over = Arc::new(hand_over);
        let start = |_| {
            let hand_over = Arc::clone(&hand_over);
            thread::spawn(move || hand_over.work())
        };
        Bare { threads: (0..threads).map(start).collect(), hand_over }
    }

    fn end(self) {
        self.hand_over.end();
        self.threads.into_iter().for_each(|thread| thread.join().expect("they only answer"));
    }
}

/// A channel of inputs, and one for each answer. Before they sleep, both sides yield their core to each other.
struct Channels {
    inputs: Sender<Option<(u64, Sender<u64>)>>,
    receiver: Receiver<Option<(u64, Sender<u64>)>>,
}

impl Channels {
    fn new() -> Self {
        let (inputs, receiver) = bounded(1_024);
        Channels { inputs, receiver }
    }
}

impl HandOver for Channels {
    fn call(&self, x: u64) -> u64 {
        let (reply, answer) = bounded(1);
        self.inputs.send(Some((x, reply))).expect("the receiver is here");
        answer.recv().expect("each input is answered")
    }

    fn work(&self) {
        while let Ok(Some((x, reply))) = self.receiver.recv() {
            reply.send(x).expect("its caller waits");
        }
        self.end();
    }

    fn end(&self) {
        self.inputs.send(None).expect("the receiver is here");
    }
}

/// An input, and the place for its answer.
type Question = (u64, Arc<Answer>);

/// A queue under a lock, and a lock for each answer. Threads with nothing to do sleep at once.
#[derive(Default)]
struct Sleepers {
    inputs: Mutex<VecDeque<Option<Question>>>,
    offered: Condvar,
}

#[derive(Default)]
struct Answer {
    value: Mutex<Option<u64>>,
    given: Condvar,
}

impl Sleepers {
    fn push(&self, input: Option<Question>) {
        self.inputs.lock().expect("no panic under it").push_back(input);
        self.offered.notify_one();
    }
}

impl HandOver for Sleepers {
    fn call(&self, x: u64) -> u64 {
        let answer = Arc::new(Answer::default());
        self.push(Some((x, Arc::clone(&answer))));
        let value = answer.value.lock().expect("no panic under it");
        let value = answer.given.wait_while(value, |value| value.is_none());
        value.expect("no panic under it").expect("it was waited for")
    }

    fn work(&self) {
        loop {
            let inputs = self.inputs.lock().expect("no panic under it");
            let inputs = self.offered.wait_while(inputs, |inputs| inputs.is_empty());
            let Some((x, answer)) = inputs.expect("no panic under it").pop_front().flatten() else {
                return self.end();
            };
            *answer.value.lock().expect("no panic under it") = Some(x);
            answer.given.notify_one();
        }
    }

    fn end(&self) {
        self.push(None);
    }
}
