//! What the lanes of a pool and its coordinator share: the seats, and the items that are at the broker.

mod runs;
mod seat;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::backend::{Bell, CallerSubscriber, Condvar, Mutex, lock};
use gangline_scheduler::{Lease, LeaseId};

use self::runs::BoardRuns;
use self::seat::Seat;
pub(super) use self::seat::{Departed, SeatedWorker, WorkerLoss};
use super::health::Fatal;
use super::hook_times::HookTimes;
use super::publication::{Address, News, Places, Publication, Stored};
use super::wire::JoinReply;

/// The seats of a pool, and its publications, under one lock.
///
/// - **Seats.** Only the coordinator's thread seats and unseats workers.
/// - **Publications.** A lane adds a publication with [`publish`](Self::publish). Only lanes remove it: with the
///   outcome of its lease, when its lease is stale and no worker has begun it, or when the lane leaves the run.
/// - **Wanted.** The tasks that send the input of a publication or read its output stop when the board has it no more.
/// - **Holder.** The lane that leased an item holds its publication until a worker begins it. Then
///   [`begin`](Self::begin) moves it to the lane of that worker. News of a publication go to its holder.
/// - **Wake-ups.** Each change that concerns a lane rings its bell. A woken lane takes its [`mail`](Self::mail).
#[derive(Debug)]
pub(super) struct LaneBoard {
    state: Mutex<BoardState>,
    changed: Condvar,
    /// That of the caller of the last run that a lane has entered; `None` once no lane is in a run.
    pub(super) subscriber: Mutex<Option<CallerSubscriber>>,
}

#[derive(Debug)]
struct BoardState {
    seats: Vec<Seat>,
    /// The lanes of the workers that have seats.
    lanes: HashMap<String, usize>,
    /// By number.
    publications: BTreeMap<u64, Publication>,
    /// The number of the last publication.
    last: u64,
    runs: BoardRuns,
    fatal: Option<Fatal>,
    /// The coordinator has ended.
    is_closed: bool,
    /// Why workers that are there do not serve.
    refusals: BTreeMap<String, String>,
}

/// What a lane finds when it looks.
pub(super) struct Mail {
    pub(super) news: Vec<News>,
    pub(super) departed: Vec<Departed>,
    pub(super) worker: Option<Arc<SeatedWorker>>,
    /// What the worker has said of its hooks.
    pub(super) times: HookTimes,
    pub(super) fatal: Option<Fatal>,
    /// The coordinator has ended, and answers no lane.
    pub(super) is_closed: bool,
}

impl LaneBoard {
    pub(super) fn new(seats: usize) -> Arc<Self> {
        let state = BoardState {
            seats: (0..seats).map(|_| Seat::default()).collect(),
            lanes: HashMap::new(),
            publications: BTreeMap::new(),
            last: 0,
            runs: BoardRuns::default(),
            fatal: None,
            is_closed: false,
            refusals: BTreeMap::new(),
        };
        let (state, subscriber) = (Mutex::new(state), Mutex::default());
        Arc::new(LaneBoard { state, changed: Condvar::new(), subscriber })
    }

    /// Waits until this number of workers is seated. Returns the number that is.
    pub(super) fn wait_for(
        &self,
        least: usize,
        most: Duration,
        is_over: &dyn Fn() -> bool,
    ) -> usize {
        let until = Instant::now().checked_add(most);
        let mut state = lock(&self.state);
        loop {
            let (here, now) = (state.lanes.len(), Instant::now());
            let left = until.map_or(most, |until| until.saturating_duration_since(now));
            let has_ended = state.fatal.is_some() || state.is_closed;
            if here >= least || left.is_zero() || has_ended || is_over() {
                return here;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.expect("nothing panics under a lock of ours").0;
        }
    }

    /// Waits until the coordinator says why no run can go on, or has ended.
    pub(super) fn wait_for_fatal(&self, is_over: &dyn Fn() -> bool) -> Option<Fatal> {
        let mut state = lock(&self.state);
        while state.fatal.is_none() && !state.is_closed && !is_over() {
            state = self.changed.wait(state).expect("nothing panics under a lock of ours");
        }
        state.fatal.clone()
    }

    /// Why workers do not serve, or do so no more: each reason once.
    pub(super) fn refusals(&self) -> Vec<String> {
        let state = lock(&self.state);
        let lost = state.seats.iter().filter_map(|seat| seat.lost.clone());
        let reasons: BTreeSet<_> = state.refusals.values().cloned().chain(lost).collect();
        reasons.into_iter().collect()
    }
}

/// For the lanes.
impl LaneBoard {
    /// The lane enters the run with this id, and is woken for news from now on.
    pub(super) fn enter(&self, lane: usize, id: usize, bell: Arc<dyn Bell>) {
        let earlier = lock(&self.subscriber).replace(CallerSubscriber::current());
        drop(earlier);
        let mut state = lock(&self.state);
        // These errors concern the last run only; the others concern the pool.
        if state.fatal.as_ref().is_some_and(Fatal::is_of_one_run) {
            state.fatal = None;
        }
        let last = state.last;
        let run = state.runs.enter(id, last);
        // The news are kept. Those of this run may have come before, since the worker of this lane may begin items of
        // other lanes. Those of an earlier run concern publications that are gone.
        let seat = &mut state.seats[lane];
        (seat.bell, seat.run) = (Some(bell), Some(run));
        seat.departed.clear();
    }

    /// The lane leaves its run. Returns its publications.
    pub(super) fn leave(&self, lane: usize) -> Vec<Publication> {
        let mut state = lock(&self.state);
        let seat = &mut state.seats[lane];
        (seat.bell, seat.left_run) = (None, seat.run.take());
        let run = seat.left_run.expect("the lane was in a run");
        let own = std::mem::take(&mut seat.held);
        state.runs.leave(run);
        let is_last = state.runs.latest().is_none();
        let own = own.iter().filter_map(|publication| state.publications.remove(publication));
        let own = own.collect();
        drop(state);
        if is_last {
            let of_run = lock(&self.subscriber).take();
            drop(of_run);
        }
        own
    }

    /// Takes the news of a lane.
    pub(super) fn mail(&self, lane: usize) -> Mail {
        let mut state = lock(&self.state);
        let (fatal, is_closed) = (state.fatal.clone(), state.is_closed);
        let seat = &mut state.seats[lane];
        let (news, departed) = (std::mem::take(&mut seat.news), std::mem::take(&mut seat.departed));
        let (worker, times) = (seat.worker.clone(), seat.times);
        Mail { news, departed, worker, times, fatal, is_closed }
    }

    /// The worker of a lane, and what it has said of its hooks.
    pub(super) fn here(&self, lane: usize) -> Option<(Arc<SeatedWorker>, HookTimes)> {
        let state = lock(&self.state);
        let seat = &state.seats[lane];
        Some((seat.worker.clone()?, seat.times))
    }

    /// The number of publications of a lane.
    pub(super) fn held(&self, lane: usize) -> usize {
        lock(&self.state).seats[lane].held.len()
    }

    /// Adds a publication, and returns its number. `stored` gets that number, and returns what removes a large input.
    pub(super) fn publish(
        &self,
        lane: usize,
        lease: Lease,
        address: Address,
        (bytes, stored): (usize, impl FnOnce(u64) -> Option<Stored>),
        now: Instant,
    ) -> u64 {
        let mut state = lock(&self.state);
        state.last += 1;
        let number = state.last;
        let run = state.seats[lane].run.expect("a lane in a run has the lease");
        state.runs.note_publication(run, number);
        let publication = Publication {
            lease,
            lane,
            run,
            address,
            is_begun: false,
            is_answered: false,
            is_cancelled: false,
            sequence: None,
            seen: now,
            published: now,
            bytes,
            input: stored(number),
        };
        state.publications.insert(number, publication);
        state.seats[lane].held.insert(number);
        number
    }

    /// The lease of a publication, and the number of bytes of its input.
    pub(super) fn lease_of(&self, publication: u64) -> Option<(Lease, usize)> {
        let state = lock(&self.state);
        let it = state.publications.get(&publication)?;
        Some((it.lease.clone(), it.bytes))
    }

    pub(super) fn remove(&self, publication: u64) -> Option<Publication> {
        let mut state = lock(&self.state);
        let removed = state.publications.remove(&publication)?;
        state.seats[removed.lane].held.remove(&publication);
        Some(removed)
    }

    /// Applies a change to a publication that is still wanted.
    pub(super) fn update(&self, publication: u64, change: impl FnOnce(&mut Publication)) {
        if let Some(it) = lock(&self.state).publications.get_mut(&publication) {
            change(it);
        }
    }

    /// The publications of a lane that are not cancelled, with their leases, and whether a worker has begun them.
    pub(super) fn held_by(&self, lane: usize) -> Vec<(u64, LeaseId, bool)> {
        let state = lock(&self.state);
        let own = state.held_by(lane).filter(|(_, it)| !it.is_cancelled);
        own.map(|(number, it)| (number, it.lease.id, it.is_begun)).collect()
    }

    /// The last publication of the run in which the lane is.
    pub(super) fn last_of_run(&self, lane: usize) -> u64 {
        let mut state = lock(&self.state);
        let run = state.seats[lane].run.expect("the lane has not left it");
        state.runs.last_publication(run)
    }
}

/// For the coordinator.
impl LaneBoard {
    /// Gives a worker a free seat: the one that it had, else one that no worker has had, so that reports tell workers
    /// apart. A worker that has a seat keeps it.
    pub(super) fn seat(&self, worker: SeatedWorker) -> JoinReply {
        let mut state = lock(&self.state);
        state.refusals.remove(&worker.id);
        if state.lane_of(&worker.id).is_some() {
            return JoinReply::Seated;
        }
        let seats = state.seats.iter_mut().enumerate();
        let free = seats.filter(|(_, it)| it.worker.is_none() && !it.is_banned);
        let Some((lane, seat)) = free.min_by_key(|(_, seat)| seat.rank_for(&worker.id)) else {
            return JoinReply::Full;
        };
        let id = worker.id.clone();
        seat.take(worker);
        state.lanes.insert(id, lane);
        state.seats.iter_mut().for_each(|seat| seat.lost = None);
        self.changed.notify_all();
        JoinReply::Seated
    }

    /// Takes the seat from a worker, which was `lost` or left in order. The items that it had begun and not answered are
    /// lost. Returns the lane, and the places in the stream of the messages that no worker may get.
    pub(super) fn unseat(
        &self,
        worker: &str,
        lost: Option<WorkerLoss>,
    ) -> Option<(usize, Vec<u64>)> {
        let mut state = lock(&self.state);
        let lane = state.lane_of(worker)?;
        let gone = state.seats[lane].worker.clone().expect("it was just found there");
        let (mut sequences, mut news) = (vec![], vec![]);
        for (number, it) in state.held_by(lane).filter(|(_, it)| !it.is_answered) {
            match (it.is_begun, it.address) {
                (true, _) => news.push(News::Lost(number, gone.host.clone())),
                (false, Address::Own) => news.push(News::Vanished(number)),
                (false, Address::Any) => continue,
            }
            sequences.extend(it.sequence);
        }
        state.lanes.remove(worker);
        let seat = &mut state.seats[lane];
        seat.news.extend(news);
        seat.vacate(lost);
        Some((lane, sequences))
    }

    /// Takes a seat, and its worker, out of use.
    pub(super) fn ban(&self, lane: usize) -> Option<Arc<SeatedWorker>> {
        let mut state = lock(&self.state);
        state.seats[lane].is_banned = true;
        state.seats[lane].worker.clone()
    }

    pub(super) fn worker_of(&self, lane: usize) -> Option<Arc<SeatedWorker>> {
        lock(&self.state).seats[lane].worker.clone()
    }

    /// The worker that has begun a publication.
    pub(super) fn worker_with(&self, publication: u64) -> Option<Arc<SeatedWorker>> {
        let state = lock(&self.state);
        let it = state.publications.get(&publication).filter(|it| it.is_begun)?;
        state.seats[it.lane].worker.clone()
    }

    /// The part of a worker that has a seat.
    pub(super) fn part_of(&self, worker: &str) -> Option<u64> {
        let state = lock(&self.state);
        let lane = state.lane_of(worker)?;
        state.seats[lane].worker.as_ref().map(|it| it.part)
    }

    /// The workers that have seats.
    pub(super) fn seated(&self) -> Vec<String> {
        let state = lock(&self.state);
        state.seats.iter().filter_map(|seat| Some(seat.worker.as_ref()?.id.clone())).collect()
    }

    /// The number of items that the seated workers can have.
    pub(super) fn capacity(&self) -> usize {
        let state = lock(&self.state);
        state.seats.iter().filter_map(|seat| Some(seat.worker.as_ref()?.capacity)).sum()
    }

    /// Notes that a worker begins an item. Returns whether it is wanted.
    pub(super) fn begin(&self, publication: u64, worker: &str) -> bool {
        let mut state = lock(&self.state);
        let place = state.publications.get(&publication).map(|it| (it.lane, it.run));
        let Some((from, run)) = place else { return false };
        // A worker that was lost or quarantined gives it up, and another takes it.
        let Some(to) = state.lane_of(worker) else { return false };
        // A lane that has not entered the run yet gets the lease too: else it would be blamed on another worker. A lane
        // that has left the run does not: it would keep the lease for the next run. Nor does one that is still in
        // another.
        let Seat { run: in_run, left_run, .. } = state.seats[to];
        if left_run == Some(run) || in_run.is_some_and(|it| it != run) {
            return false;
        }
        let it = state.publications.get_mut(&publication).expect("it was just found");
        // The worker that is told to give it up may have been another.
        (it.is_begun, it.is_cancelled, it.lane) = (true, false, to);
        state.seats[from].held.remove(&publication);
        state.seats[to].held.insert(publication);
        state.seats[to].news.push(News::Begun(publication));
        // The lane that had it has room for one more.
        [from, to].into_iter().for_each(|lane| state.seats[lane].ring());
        true
    }

    /// Whether a worker has begun an item; `None` if it has its outcome.
    pub(super) fn is_begun(&self, publication: u64) -> Option<bool> {
        lock(&self.state).publications.get(&publication).map(|it| it.is_begun)
    }

    /// Hands news on to the holder of a publication. Returns whether the publication is wanted.
    pub(super) fn tell(&self, publication: u64, news: News) -> bool {
        let mut state = lock(&self.state);
        let Some(it) = state.publications.get(&publication) else { return false };
        let lane = it.lane;
        state.seats[lane].news.push(news);
        state.seats[lane].ring();
        true
    }

    /// Records the times of a worker's hooks. Messages may overtake each other.
    pub(super) fn note_times(&self, worker: &str, times: HookTimes) {
        let mut state = lock(&self.state);
        let Some(lane) = state.lane_of(worker) else { return };
        let seat = &mut state.seats[lane];
        if times.working >= seat.times.working {
            seat.times = times;
        }
    }

    /// Tells the lane of a worker that no hook has an item up to this publication. Returns the lane.
    pub(super) fn drained(&self, worker: &str, upto: u64) -> Option<usize> {
        let mut state = lock(&self.state);
        let lane = state.lane_of(worker)?;
        state.seats[lane].news.push(News::Drained(upto));
        state.seats[lane].ring();
        Some(lane)
    }

    /// The host of a worker that has a seat.
    pub(super) fn host_of(&self, worker: &str) -> Option<Arc<str>> {
        let state = lock(&self.state);
        let lane = state.lane_of(worker)?;
        Some(state.seats[lane].worker.as_ref()?.host.clone())
    }

    /// Notes where a publication is in the stream of items. Returns whether the publication is still wanted.
    pub(super) fn confirm(&self, publication: u64, sequence: u64, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let Some(it) = state.publications.get_mut(&publication) else { return false };
        (it.sequence, it.seen) = (Some(sequence), now);
        true
    }

    pub(super) fn has(&self, publication: u64) -> bool {
        lock(&self.state).publications.contains_key(&publication)
    }

    /// At most `most` publications that were not looked for since `age`, with their places in the stream, and when the first
    /// of them was last seen. They count as looked for now.
    pub(super) fn unseen(&self, age: Duration, most: usize, now: Instant) -> (Places, Instant) {
        let mut state = lock(&self.state);
        let mut since = now;
        let old = state.publications.iter_mut().filter_map(|(&number, it)| {
            let sequence = it.sequence.filter(|_| now.duration_since(it.seen) >= age)?;
            since = since.min(std::mem::replace(&mut it.seen, now));
            Some((number, sequence))
        });
        (old.take(most).collect(), since)
    }

    /// The number of the last run in progress.
    pub(super) fn run(&self) -> Option<u64> {
        lock(&self.state).runs.latest()
    }

    /// The number of the last publication.
    pub(super) fn last(&self) -> u64 {
        lock(&self.state).last
    }

    /// From now on no lane waits for an answer.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.seats.iter().for_each(Seat::ring);
        self.changed.notify_all();
    }

    /// Fails the run in progress, and with some errors each later one.
    pub(super) fn fail(&self, fatal: Fatal) {
        let mut state = lock(&self.state);
        state.fatal.get_or_insert(fatal);
        state.seats.iter().for_each(Seat::ring);
        self.changed.notify_all();
    }

    /// Notes that the broker is back. What was sent before may be lost, so lanes cancel and drain once more.
    pub(super) fn revive(&self) {
        let mut state = lock(&self.state);
        state.publications.values_mut().for_each(|it| it.is_cancelled = false);
        for seat in &mut state.seats {
            seat.news.extend(seat.bell.is_some().then_some(News::Restored));
            seat.ring();
        }
        if state.fatal.as_ref().is_some_and(Fatal::ends_with_connection) {
            state.fatal = None;
        }
    }

    pub(super) fn fatal(&self) -> Option<Fatal> {
        lock(&self.state).fatal.clone()
    }

    /// Notes why a worker does not serve.
    pub(super) fn refuse(&self, worker: &str, reason: String) {
        lock(&self.state).refusals.insert(worker.to_owned(), reason);
    }

    /// Forgets what workers that are gone have said.
    pub(super) fn retain_refusals(&self, is_here: impl Fn(&str) -> bool) {
        lock(&self.state).refusals.retain(|worker, _| is_here(worker));
    }
}

impl BoardState {
    fn lane_of(&self, worker: &str) -> Option<usize> {
        self.lanes.get(worker).copied()
    }

    /// The publications of a lane, with their numbers.
    fn held_by(&self, lane: usize) -> impl Iterator<Item = (u64, &Publication)> {
        self.seats[lane].held.iter().map(|&number| (number, &self.publications[&number]))
    }
}

/// Wakes the thread that waits for workers.
impl Bell for LaneBoard {
    fn ring(&self) {
        drop(lock(&self.state));
        self.changed.notify_all();
    }
}
