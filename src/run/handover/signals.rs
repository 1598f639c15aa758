//! How producers learn what the scheduler has decided.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use gangline_scheduler::{Expired, LeaseId, ProducerId, RunTime, Scheduler, SchedulerEvent};

use super::retry_watch::RetryWatch;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use crate::concurrency::bell::Bell;
use crate::concurrency::bell::Bells;
use crate::concurrency::event_count::EventCount;
use crate::concurrency::parker::Parker;
use crate::concurrency::{Mutex, lock};
use crate::run::run_clock::RunClock;
use crate::runner::AbandonFlag;

/// Which items are tracked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tracking {
    /// All items, from the moment they are pulled.
    All,
    /// Items that have failed, and items of a producer without a state or under suspicion.
    Failed,
}

/// How producers learn what the scheduler has decided.
///
/// It knows no type of the user, so it is compiled once, and not for each runner.
#[derive(Debug)]
pub(crate) struct Signals {
    pub(super) tracking: Tracking,
    /// One per producer, which parks here until it is woken.
    sleepers: Box<[CachePadded<Arc<Parker>>]>,
    /// The number of producers that sleep here.
    sleeping: AtomicUsize,
    /// Those of the thread that has last entered the run for each producer.
    revocations: Box<[Mutex<Revocations>]>,
    /// Rung when a call is revoked or a producer is abandoned.
    pub(crate) bells: Bells,
    /// Which producers are to give back what they have not begun, or may lease more.
    pub(crate) ahead: AheadRequests,
    /// Whether failed items wait for a producer. Read once per untracked item, without the lock.
    has_waiting: CachePadded<AtomicBool>,
    /// Producers without untracked items sleep here.
    pub(super) idle: CachePadded<EventCount>,
    /// How long producers watched for retries.
    pub(super) retry_watch: RetryWatch,
}

/// What is left to do once the lock of the scheduler is released.
pub(super) struct Pending {
    pub(super) wakes: Vec<ProducerId>,
    /// All other events, for the caller.
    pub(super) events: Vec<SchedulerEvent>,
}

/// Which calls of a producer's thread are revoked: the number of the last, or [`ALL`] once the producer is abandoned.
///
/// Each thread has its own. If another replaces it in a later run, its hook still reads that it was abandoned.
#[derive(Debug, Clone)]
pub(crate) struct Revocations(Arc<AtomicU64>);

/// Revokes every call of a producer.
const ALL: u64 = u64::MAX;
/// The number of a `producer_init` call that belongs to no lease.
const INIT: u64 = u64::MAX - 1;

impl Default for Revocations {
    fn default() -> Self {
        Revocations(Arc::new(AtomicU64::new(INIT - 1)))
    }
}

impl Revocations {
    /// Whether the producer was abandoned in a hook.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ALL
    }

    /// Notes that the producer has returned from the hook that it was abandoned in.
    fn clear(&self) {
        self.0.store(INIT - 1, Ordering::Relaxed);
    }

    /// The flag by which a hook learns that its lease was revoked. Without a lease, the hook is `producer_init`.
    pub(crate) fn flag(&self, lease: Option<LeaseId>) -> AbandonFlag<'_> {
        AbandonFlag::Call { revoked: &self.0, call: lease.map_or(INIT, LeaseId::number) }
    }
}

impl Signals {
    pub(super) fn new(producers: usize, tracking: Tracking) -> Self {
        Signals {
            tracking,
            sleepers: (0..producers).map(|_| CachePadded::default()).collect(),
            sleeping: AtomicUsize::new(0),
            revocations: (0..producers).map(|_| Mutex::default()).collect(),
            bells: Bells::default(),
            ahead: AheadRequests::new(producers),
            has_waiting: CachePadded::new(AtomicBool::new(false)),
            idle: CachePadded::new(EventCount::among(producers)),
            retry_watch: RetryWatch::default(),
        }
    }

    /// Takes the events of the scheduler, under whose lock it is called. Revokes and abandons at once.
    pub(super) fn pass_on(&self, scheduler: &mut Scheduler) -> Pending {
        let mut pending = Pending { wakes: vec![], events: vec![] };
        while let Some(event) = scheduler.poll_event() {
            match event {
                SchedulerEvent::Wake(producer) => pending.wakes.push(producer),
                SchedulerEvent::Recall(producer) => self.ahead.recall(producer),
                SchedulerEvent::Ahead(producer) => self.ahead.offer(producer),
                SchedulerEvent::Revoke { lease, producer } => {
                    let revocations = self.revocations(producer);
                    // An abandoned producer stays abandoned.
                    if !revocations.is_abandoned() {
                        revocations.0.store(lease.number(), Ordering::Relaxed);
                        self.bells.ring();
                    }
                }
                event => {
                    // Under the lock: the producer may return at once, and has to see that it was abandoned.
                    if let SchedulerEvent::Expired(Expired { producer, .. }) = &event {
                        self.abandon(*producer);
                    }
                    pending.events.push(event);
                }
            }
        }
        if self.tracking == Tracking::Failed {
            let has_waiting = scheduler.has_waiting_items();
            if has_waiting != self.has_waiting.load(Ordering::Relaxed) {
                self.has_waiting.store(has_waiting, Ordering::Release);
            }
        }
        pending
    }

    /// Wakes these producers, without the lock of the scheduler.
    pub(super) fn wake_all(&self, producers: &[ProducerId]) {
        if producers.is_empty() {
            return;
        }
        producers.iter().for_each(|&producer| self.sleepers[producer].wake());
        if self.tracking == Tracking::Failed {
            self.idle.notify_all();
        }
    }

    #[inline]
    pub(super) fn has_waiting(&self) -> bool {
        self.has_waiting.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn has_sleeper(&self) -> bool {
        self.sleeping.load(Ordering::Relaxed) > 0
    }

    /// Clears the producer's wake-up, and returns whether there was one.
    pub(crate) fn take_wake_up(&self, producer: ProducerId) -> bool {
        self.sleepers[producer].take_wake_up()
    }

    pub(super) fn is_woken(&self, producer: ProducerId) -> bool {
        self.sleepers[producer].is_woken()
    }

    /// Sleeps until the producer is woken, at most until `until`.
    pub(super) fn sleep(&self, producer: ProducerId, until: Option<RunTime>, clock: &RunClock) {
        self.sleeping.fetch_add(1, Ordering::Relaxed);
        self.sleepers[producer].park(until.map(|until| until.since(clock.now())));
        self.sleeping.fetch_sub(1, Ordering::Relaxed);
    }

    /// Wakes a producer that sleeps here, from outside of the run.
    pub(crate) fn bell(&self, producer: ProducerId) -> Arc<dyn Bell> {
        (*self.sleepers[producer]).clone()
    }

    fn revocations(&self, producer: ProducerId) -> Revocations {
        lock(&self.revocations[producer]).clone()
    }

    /// Notes that a thread enters the run for the producer.
    pub(crate) fn enter(&self, producer: ProducerId, revocations: &Revocations) {
        revocations.clear();
        *lock(&self.revocations[producer]) = revocations.clone();
    }

    /// Whether the producer was abandoned in a hook.
    pub(crate) fn is_abandoned(&self, producer: ProducerId) -> bool {
        self.revocations(producer).is_abandoned()
    }

    /// Tells every hook of the producer that it may give up.
    pub(crate) fn abandon(&self, producer: ProducerId) {
        self.revocations(producer).0.store(ALL, Ordering::Relaxed);
        self.bells.ring();
    }

    /// Withdraws what [`abandon`](Signals::abandon) told the producer, which has returned from its hook.
    pub(crate) fn readmit(&self, producer: ProducerId) {
        self.revocations(producer).clear();
    }
}

/// Which producers are to give back the leases that they have not begun, and which may lease a further batch ahead.
#[derive(Debug)]
pub(crate) struct AheadRequests(Box<[CachePadded<AheadRequest>]>);

#[derive(Debug, Default)]
struct AheadRequest {
    is_recall: AtomicBool,
    is_offer: AtomicBool,
    bells: Bells,
}

#[cfg_attr(
    not(all(feature = "processes", target_os = "linux")),
    expect(dead_code, reason = "only a child process has items ahead")
)]
impl AheadRequests {
    pub(super) fn new(producers: usize) -> Self {
        AheadRequests((0..producers).map(|_| CachePadded::default()).collect())
    }

    /// Asks a producer to give leases back, and rings its bell.
    pub(super) fn recall(&self, producer: ProducerId) {
        self.0[producer].is_recall.store(true, Ordering::Release);
        self.0[producer].bells.ring();
    }

    /// Tells a producer of a batch that it may lease, and rings its bell.
    pub(super) fn offer(&self, producer: ProducerId) {
        self.0[producer].is_offer.store(true, Ordering::Release);
        self.0[producer].bells.ring();
    }

    /// The bells that ring when the producer is asked or told.
    pub(crate) fn bells(&self, producer: ProducerId) -> &Bells {
        &self.0[producer].bells
    }

    /// Returns whether the producer was asked since the last look.
    pub(crate) fn take_recall(&self, producer: ProducerId) -> bool {
        self.0[producer].is_recall.swap(false, Ordering::Acquire)
    }

    /// Returns whether the producer was told since the last look.
    pub(crate) fn take_offer(&self, producer: ProducerId) -> bool {
        self.0[producer].is_offer.swap(false, Ordering::Acquire)
    }
}
