//! Models of producers that fail and producers that are abandoned. The threads are those of a run, with hooks
//! that do no work.

mod written_off;

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::batch::{Batch, Batching};
use gangline_scheduler::window::Window;
use gangline_scheduler::{Backoff, Gpus, OnError};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread::{self, JoinHandle};

use super::{explore, feed};
use crate::backends::threads::producer::Producer;
use crate::base::Order;
use crate::cfg::CfgNode;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::CallerSubscriber;
use crate::concurrency::{Condvar, Mutex, lock, now, wait};
use crate::device::{Device, Devices};
use crate::engine::collector::Collector;
use crate::error::Result;
use crate::observe::event_log::{Detail, EventLog};
use crate::policy::{Policy, Stragglers};
use crate::producers::backend::Backend;
use crate::producers::deadline_thread::DeadlineWatch;
use crate::producers::participants::Participants;
use crate::producers::producer_loop::{Join, ProducerLoop};
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunShape};
use crate::run::time_limits::TimeLimits;
use crate::runner::{ConsumerContext, ProducerContext, ProducerSetup, Runner, Wanted};

const SCHEDULES: usize = 1_000;

pub(super) fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    explore(SCHEDULES, model);
}

/// Decides whether a producer fails an item.
pub(super) type Fails = fn(producer: usize, item: u64) -> bool;

/// An item with a slow first call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slow {
    pub(super) item: u64,
    pub(super) until: Until,
    /// Decides by the number of the call, from 1, whether it fails.
    pub(super) fails: fn(call: u64) -> bool,
}

/// How long the slow call lasts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Until {
    /// Until its lease is revoked.
    Left,
    /// Until another call with the same item has begun.
    Another,
    /// Until every producer that the end of the run waits for has left.
    Over,
}

/// The calls with the slow item.
#[derive(Default)]
struct Calls {
    seen: Mutex<Seen>,
    changed: Condvar,
}

#[derive(Default)]
struct Seen {
    begun: u64,
    is_over: bool,
}

impl Calls {
    /// Counts a new call, and returns its number.
    fn begin(&self) -> u64 {
        self.change(|seen| seen.begun += 1)
    }

    fn change(&self, change: impl FnOnce(&mut Seen)) -> u64 {
        let mut seen = lock(&self.seen);
        change(&mut seen);
        self.changed.notify_all();
        seen.begun
    }

    fn wait_until(&self, is_so: impl Fn(&Seen) -> bool) {
        let mut seen = lock(&self.seen);
        while !is_so(&seen) {
            seen = wait(&self.changed, seen);
        }
    }
}

/// Returns each item that it does not fail. A batch fails as a whole, with its inputs in place.
#[derive(Clone)]
pub(super) struct Script {
    fails: Fails,
    slow: Option<Slow>,
    loses: fn(call: u64) -> bool,
    calls: Arc<Calls>,
    /// The producers that have lost their states for good, as bits.
    lost: Arc<AtomicU64>,
}

impl Script {
    /// Makes a call with the slow item. Returns whether it fails.
    fn be_slow(&self, slow: Slow, cx: &ProducerContext<'_>) -> bool {
        let number = self.calls.begin();
        match slow.until {
            _ if number > 1 => {}
            Until::Left => {
                while !cx.is_cancelled() {
                    thread::yield_now();
                }
            }
            Until::Another => self.calls.wait_until(|seen| seen.begun > 1),
            Until::Over => self.calls.wait_until(|seen| seen.is_over),
        }
        if (self.loses)(number) {
            self.lost.fetch_or(1 << cx.producer(), Ordering::SeqCst);
            // Not `panic!`: shuttle's panic hook would write the schedule to a file.
            std::panic::resume_unwind(Box::new("it loses its state"));
        }
        (slow.fails)(number)
    }
}

impl Runner for Script {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<()> {
        match self.lost.load(Ordering::SeqCst) & (1 << cx.producer()) {
            0 => Ok(()),
            _ => Err("it is lost".into()),
        }
    }
    fn producer_work(&self, cx: &ProducerContext<'_>, (): &mut (), item: u64) -> Result<u64> {
        thread::yield_now();
        let slow = self.slow.filter(|slow| slow.item == item);
        let fails = slow.is_some_and(|slow| self.be_slow(slow, cx));
        if fails || (self.fails)(cx.producer(), item) { Err("fails".into()) } else { Ok(item) }
    }
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> Result<Vec<Result<u64>>> {
        inputs.iter().map(|&item| Ok(Ok(self.producer_work(cx, &mut (), item)?))).collect()
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        unreachable!("the model has a consumer of its own")
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: u64) -> Result<()> {
        unreachable!("the model has a consumer of its own")
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        unreachable!("the model has a consumer of its own")
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) producers: usize,
    pub(super) window: usize,
    pub(super) items: u64,
    pub(super) batch: Option<Batch>,
    pub(super) quarantine_after: Option<usize>,
    /// The GPU of each producer, if they have any.
    pub(super) gpus: Option<&'static [usize]>,
    pub(super) retries: u32,
    pub(super) fails: Fails,
    pub(super) stragglers: Stragglers,
    pub(super) slow: Option<Slow>,
    /// Decides whether a producer loses its state for good in a call with the slow item.
    pub(super) loses: fn(call: u64) -> bool,
    /// Whether the run is cancelled once two calls with the slow item have begun.
    pub(super) is_cancelled: bool,
    /// The number of times that the deadline thread wakes. From the third on, any producer in a hook may have
    /// timed out.
    pub(super) looks: usize,
}

pub(super) const PASSES: Scene = Scene {
    producers: 2,
    window: 3,
    items: 4,
    batch: None,
    quarantine_after: None,
    gpus: None,
    retries: 0,
    fails: |_, _| false,
    stragglers: Stragglers::Wait,
    slow: None,
    loses: |_| false,
    is_cancelled: false,
    looks: 0,
};

fn places(gpus: &[usize]) -> Option<Arc<[Gpus]>> {
    let devices = Devices::from_places(gpus.iter().map(|&gpu| vec![Device::Cuda(gpu)]));
    devices.expect("each has one GPU").places_with_gpus()
}

/// The result of a scene.
pub(super) struct Played {
    pub(super) run: Arc<Run<u64, u64>>,
    /// Each item that was consumed or skipped, and whether it was consumed.
    pub(super) seen: Vec<(u64, bool)>,
    /// The number of calls with the slow item.
    pub(super) calls: u64,
}

impl Scene {
    fn run(&self) -> Arc<Run<u64, u64>> {
        let is_copied = self.stragglers == Stragglers::Copy;
        let copies = self.retries > 0 || self.quarantine_after.is_some() || is_copied;
        let policy = Policy {
            on_error: OnError::Skip,
            retries: self.retries,
            backoff: Backoff { first: Duration::ZERO, most: Duration::ZERO },
            quarantine_after: self.quarantine_after,
            stragglers: self.stragglers,
            ..Policy::default()
        };
        let item = (self.looks > 0).then(|| Duration::from_millis(1));
        let run_settings = RunSettings {
            policy,
            places: self.gpus.and_then(places),
            copy: copies.then_some(u64::clone as fn(&u64) -> u64),
            limits: TimeLimits { item, ..TimeLimits::default() },
            ..RunSettings::default()
        };
        let shape = RunShape {
            order: Order::Input,
            producers: self.producers,
            window: self.window,
            batching: self.batch.map(Batching::new),
            kind: Default::default(),
        };
        let event_log = Arc::new(EventLog::new(self.producers, None, Detail::Run));
        Arc::new(Run::new(
            shape,
            Arc::new(run_settings),
            CarriedOver::nothing(self.producers),
            InLine::default(),
            event_log,
            Recording::default(),
        ))
    }

    pub(super) fn play(self) -> Played {
        let run = self.run();
        let participants = Participants::new(run.handover.lanes(), Arc::default());
        let devices: Devices = format!("cpu*{}", self.producers).parse().expect("it is one");
        let calls = Arc::new(Calls::default());
        let script = Script {
            fails: self.fails,
            slow: self.slow,
            loses: self.loses,
            calls: calls.clone(),
            lost: Arc::default(),
        };
        let mut threads = vec![];
        for producer in 0..self.producers {
            let (run, participants) = (run.clone(), participants.clone());
            threads.push(start(
                &devices,
                script.clone(),
                Join { run, producer, ready: None, participants },
            ));
        }
        let keeper = {
            let tick = Duration::from_millis(1);
            let mut watch = DeadlineWatch::new(run.clone(), participants.clone(), devices, tick);
            thread::spawn(move || {
                for _ in 0..self.looks {
                    watch.wake();
                    thread::yield_now();
                }
            })
        };
        let consumer = {
            let run = run.clone();
            thread::spawn(move || consume(&run, self.window))
        };
        let canceller = self.is_cancelled.then(|| {
            let (run, calls) = (run.clone(), calls.clone());
            thread::spawn(move || {
                calls.wait_until(|seen| seen.begun > 1);
                run.cancel();
            })
        });
        feed(&run.handover, self.items, &AtomicU64::new(0));
        let seen = consumer.join().unwrap();
        participants.end(|producer| run.handover.dispatch.is_detached(producer));
        assert!(participants.present().is_empty());
        let calls = calls.change(|seen| seen.is_over = true);
        keeper.join().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        canceller.into_iter().for_each(|thread| thread.join().unwrap());
        Played { run, seen, calls }
    }
}

fn setup(devices: &Devices, producer: usize) -> ProducerSetup {
    ProducerSetup {
        producer,
        cfg: Arc::new(CfgNode::default()),
        producers: devices.len(),
        seed: 0,
        place: devices.place(producer).expect("there are so many").clone(),
        gpus: None,
    }
}

/// Starts the thread of a producer, which has its state before it takes part.
fn start(devices: &Devices, script: Script, join: Join<u64, u64>) -> JoinHandle<()> {
    let producer = join.producer;
    let setup = setup(devices, producer);
    thread::spawn(move || {
        let shared = Shared::new(&Arc::default());
        let mut backend = Producer::new(Arc::new(script), setup, shared.clone());
        backend.start(&Wanted::all()).unwrap();
        // A channel unknown to the model, so no thread may block on it.
        let (sender, runs) = crossbeam_channel::bounded(1);
        sender.send(join).unwrap();
        drop(sender);
        let producer = ProducerLoop::new(Box::new(backend), producer, shared);
        producer.serve(&runs, || CallerSubscriber::current().enter()).unwrap();
    })
}

fn consume(run: &Run<u64, u64>, window: usize) -> Vec<(u64, bool)> {
    let window = Window::fixed(window);
    let mut collector = Collector::new(&run.handover, Order::Input, window, now());
    let (mut seen, mut total) = (vec![], None);
    while let Some((seq, outcome)) = collector.next_result(&*run, &mut total) {
        assert!(outcome.as_ref().is_ok_and(|&item| item == seq) || outcome.is_err());
        seen.push((seq, outcome.is_ok()));
        collector.done(&run.handover);
    }
    run.abort();
    drop(collector.leave(&run.handover));
    seen
}

pub(super) fn all_ok_but(items: u64, failed: &[u64]) -> Vec<(u64, bool)> {
    (0..items).map(|item| (item, !failed.contains(&item))).collect()
}

#[test]
fn a_producer_that_fails_everything() {
    let scene = Scene { quarantine_after: Some(2), fails: |producer, _| producer == 0, ..PASSES };
    check(move || {
        let Played { run, seen, .. } = scene.play();
        assert_eq!(seen, all_ok_but(4, &[]));
        assert!(run.losses().iter().all(|loss| loss.producer == 0));
    });
}

#[test]
fn a_producer_that_fails_everything_in_a_window_smaller_than_their_number() {
    let fails: Fails = |producer, _| producer == 1;
    let scene = Scene { producers: 3, window: 2, quarantine_after: Some(1), fails, ..PASSES };
    check(move || assert_eq!(scene.play().seen, all_ok_but(4, &[])));
}

/// Both producers of the GPU fail, so an item can only go to the third.
#[test]
fn a_gpu_that_fails_everything() {
    let fails: Fails = |producer, _| producer != 1;
    let gpus = Some(&[0, 1, 0][..]);
    let scene = Scene { producers: 3, gpus, quarantine_after: Some(1), fails, ..PASSES };
    check(move || assert_eq!(scene.play().seen, all_ok_but(4, &[])));
    let scene = Scene { window: 2, quarantine_after: Some(2), ..scene };
    check(move || assert_eq!(scene.play().seen, all_ok_but(4, &[])));
}

/// Every producer has to try the items that those of the other GPU failed, even while it is suspended.
#[test]
fn bad_items_on_two_gpus() {
    let fails: Fails = |_, item| item != 2;
    let gpus = Some(&[0, 0, 1][..]);
    let scene = Scene { producers: 3, gpus, window: 2, quarantine_after: Some(2), fails, ..PASSES };
    check(move || {
        let Played { run, seen, .. } = scene.play();
        assert_eq!(seen, all_ok_but(4, &[0, 1, 3]));
        assert!(run.losses().is_empty());
    });
}

/// Each producer is suspended in turn, and has to try the items that the others failed.
#[test]
fn bad_items_on_good_producers() {
    let fails: Fails = |_, item| item != 2;
    let scene = Scene { window: 2, quarantine_after: Some(2), fails, ..PASSES };
    check(move || {
        let Played { run, seen, .. } = scene.play();
        assert_eq!(seen, all_ok_but(4, &[0, 1, 3]));
        assert!(run.losses().is_empty());
    });
}

#[test]
fn a_bad_producer_and_a_bad_item() {
    let fails: Fails = |producer, item| producer == 0 || item == 1;
    let scene = Scene { producers: 3, quarantine_after: Some(2), retries: 3, fails, ..PASSES };
    check(move || assert_eq!(scene.play().seen, all_ok_but(4, &[1])));
}

#[test]
fn a_producer_that_fails_batches() {
    let fails: Fails = |producer, _| producer == 0;
    let batch = Some(Batch::of(2));
    let scene = Scene { batch, quarantine_after: Some(2), fails, ..PASSES };
    check(move || assert_eq!(scene.play().seen, all_ok_but(4, &[])));
}

#[test]
fn the_end_of_a_run_waits_for_nobody_who_is_excused() {
    check(|| {
        let participants = Participants::new(2, Arc::default());
        let stays = participants.enter(0, &Arc::default(), || ());
        let leaves = {
            let participants = participants.clone();
            thread::spawn(move || drop(participants.enter(1, &Arc::default(), || ())))
        };
        let excuses = {
            let participants = participants.clone();
            thread::spawn(move || participants.excuse(0, || true))
        };
        participants.end(|_| false);
        assert!(participants.present().is_empty());
        assert!(participants.enter(1, &Arc::default(), || ()).is_none(), "it is over");
        leaves.join().unwrap();
        excuses.join().unwrap();
        drop(stays);
    });
}
