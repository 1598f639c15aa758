//! A lane in one run: leases items for the worker in its seat, and heeds the news of them.

mod figures;
mod settling;

use std::sync::Arc;

use gangline::backend::{LeaseDesk, ProducerSetup, Run, drop_quietly, now, unsent};
use gangline::error::Site;
use gangline::process::Recipe;
use gangline::{Error, Hook, Runner};
use gangline_scheduler::{Begin, Lease, Next, Readiness, RunTime, hand_over};

use self::figures::{Figures, LaneAttempts};
use super::board::{Mail, SeatedWorker};
use super::event::{CoordinatorEvent, ToPublish};
use super::hook_times::HookTimes;
use super::publication::{Address, News, Publication};
use super::session::ClusterSession;

/// A lane in one run.
pub(super) struct LaneRun<'a, R: Runner> {
    /// The address of the run. No other is there while a lane is in the run.
    id: usize,
    session: &'a ClusterSession,
    hook: Hook,
    recipe: &'a Recipe<R>,
    setup: &'a ProducerSetup,
    lane: usize,
    desk: LeaseDesk<'a, R::Input, R::Output>,
    /// The worker that the scheduler knows of; `None` if the lane is detached.
    worker: Option<Arc<SeatedWorker>>,
    /// The worker has said that no hook of it has a publication up to this one.
    drained: u64,
    /// The worker that was last told to drain or to leave.
    told_to_stop: Option<String>,
    figures: Figures<'a>,
    attempts: LaneAttempts<'a>,
}

/// What a lane does next.
pub(super) enum LaneStep {
    Sleep(Option<RunTime>),
    Leave,
}

/// Why a lane leaves its run.
#[derive(Debug, Clone, Copy)]
pub(super) enum LaneExit {
    /// Its worker gives up all publications up to this one.
    RunOver { upto: u64 },
    /// The run goes on, and the producer was quarantined.
    Quarantined,
}

impl<'a, R: Runner> LaneRun<'a, R> {
    /// The lane of the producer with this setup.
    pub(super) fn new(
        run: &'a Run<R::Input, R::Output>,
        session: &'a ClusterSession,
        (recipe, hook): (&'a Recipe<R>, Hook),
        setup: &'a ProducerSetup,
    ) -> Self {
        let lane = setup.producer;
        // No hook has an item before its worker says so.
        let desk = LeaseDesk::new(run, lane, Readiness::NeedsInit);
        let record = desk.record();
        LaneRun {
            id: std::ptr::from_ref(run).addr(),
            session,
            hook,
            recipe,
            setup,
            lane,
            desk,
            worker: None,
            drained: 0,
            told_to_stop: None,
            figures: Figures::new(record),
            attempts: LaneAttempts::new(record),
        }
    }

    pub(super) fn work(mut self) {
        self.enter();
        while let LaneStep::Sleep(until) = self.step() {
            self.sleep(until);
        }
        let ending = self.begin_to_drain();
        while !self.is_drained(ending) {
            self.desk.sleep(None);
        }
        self.leave();
    }

    pub(super) fn enter(&mut self) {
        self.session.board.enter(self.lane, self.id, self.desk.bell());
        // A lane with a worker takes part from the start: retries wait for it.
        match self.session.board.here(self.lane) {
            Some((worker, times)) => {
                self.figures.came(&worker, times);
                self.worker = Some(worker);
            }
            None => self.detach(),
        }
    }

    /// Handles the mail of the lane, and leases what the worker has room for.
    pub(super) fn step(&mut self) -> LaneStep {
        self.take_mail();
        self.lease()
    }

    pub(super) fn leave(mut self) {
        for publication in self.session.board.leave(self.lane) {
            self.desk.release(publication.lease.id);
        }
        self.attempts.end_all();
        self.figures.end();
        self.session.send(CoordinatorEvent::Left);
        self.desk.leave();
    }

    /// Takes the mail: handles the news, notes the worker in the seat, and cancels what is stale.
    fn take_mail(&mut self) {
        let Mail { news, departed, worker, times, fatal, is_closed } =
            self.session.board.mail(self.lane);
        let has_news = !news.is_empty();
        let is_same = |before: &SeatedWorker, now: &SeatedWorker| {
            (&before.id, before.part) == (&now.id, now.part)
        };
        let both = self.worker.as_ref().zip(worker.as_ref());
        if both.is_some_and(|(before, now)| is_same(before, now)) {
            // Before the news: the caller of a service that has its answer finds its time in the report.
            self.figures.note_times(times);
        }
        news.into_iter().for_each(|news| self.heed(news));
        departed.into_iter().for_each(|it| self.figures.left(it));
        match (&self.worker, worker) {
            (Some(_), None) => self.detach(),
            // The news may have ended a lease, and then the scheduler takes the producer for one that is back.
            (None, None) if has_news => self.detach(),
            (None, Some(worker)) => {
                self.figures.came(&worker, HookTimes::default());
                self.worker = Some(worker);
                self.desk.schedule(|scheduler, _| scheduler.producer_joined(self.lane));
            }
            (Some(before), Some(worker)) => {
                if !is_same(before, &worker) {
                    self.figures.came(&worker, HookTimes::default());
                }
                self.worker = Some(worker);
            }
            (None, None) => {}
        }
        self.figures.note_times(times);
        if let Some(fatal) = fatal
            && !self.desk.is_over()
        {
            self.desk.abort_with(self.session.error(fatal));
        } else if is_closed {
            // The coordinator's thread closes during a run only if it panics.
            self.desk.abort();
        }
        self.cancel_stale();
    }

    /// Tells the scheduler that no worker is in the seat, so that nothing waits for this producer.
    fn detach(&mut self) {
        self.worker = None;
        self.desk.schedule(|scheduler, _| hand_over::worker_left(scheduler, self.lane));
    }

    /// Leases items as long as the worker has room: as many again as it has producers, so that a producer that
    /// becomes idle finds one at the broker.
    fn lease(&mut self) -> LaneStep {
        let capacity = self.worker.as_ref().map_or(0, |worker| worker.capacity);
        // A copy of a slow item is for a worker that is idle.
        let room = if self.desk.speculates() { capacity } else { 2 * capacity };
        let mut held = self.session.board.held(self.lane);
        while held < room {
            match self.desk.try_lease() {
                Next::Work(lease) => held += self.publish(lease),
                Next::Leave => return LaneStep::Leave,
                Next::Wait => return LaneStep::Sleep(None),
                Next::WaitUntil(time) => return LaneStep::Sleep(Some(time)),
            }
        }
        // Another lane takes what this one was woken for.
        self.desk.stop_waiting();
        match self.desk.schedule(|scheduler, _| hand_over::must_leave(scheduler, self.lane)) {
            true => LaneStep::Leave,
            false => LaneStep::Sleep(None),
        }
    }

    fn sleep(&mut self, until: Option<RunTime>) {
        match self.worker {
            Some(_) => self.desk.sleep_for_lease(until),
            // Without a worker, the lane waits for none of the items, so the sleep does not count as running dry.
            None => self.desk.sleep(until),
        }
    }

    /// Sends the item of a lease. Returns the number of publications.
    fn publish(&mut self, lease: Lease) -> usize {
        let item = lease.items[0];
        let input = self.desk.take_inputs(&lease).and_then(|mut inputs| inputs.pop());
        let Some(input) = input else { return 0 };
        let mut encoded = vec![];
        let input = match self.recipe.items().encode_input(item, &input, &mut encoded) {
            Ok(()) => {
                self.desk.keep_inputs(vec![(item, input)]);
                encoded
            }
            Err(error) => {
                let source = unsent("input", &error);
                drop_quietly(input);
                let error = Error::hook_failed(self.hook, self.site(&lease, None), source);
                self.desk.settle(&lease, Err(error));
                return 0;
            }
        };
        let (is_plain, size) = self.desk.schedule(|scheduler, _| {
            (hand_over::is_plain(scheduler, item), hand_over::size_of(scheduler, lease.id))
        });
        let address = if is_plain { Address::Any } else { Address::Own };
        let (lane, attempt) = (self.lane, lease.attempt);
        let bytes = input.len();
        let stored = |publication| self.session.stored_input(bytes, publication);
        let publication = self.session.board.publish(lane, lease, address, (bytes, stored), now());
        let item = ToPublish { lane, publication, item, attempt, size, address, input };
        self.session.send(CoordinatorEvent::Publish(item));
        1
    }

    fn heed(&mut self, news: News) {
        match news {
            News::Begun(publication) => self.begin(publication),
            News::Answer(publication, reply) => self.settle(publication, *reply),
            News::Lost(publication, host) => self.fail_lost(publication, host),
            News::Vanished(publication) => {
                if let Some(publication) = self.remove(publication) {
                    self.figures.returned(1);
                    self.desk.release(publication.lease.id);
                }
            }
            News::Refused(publication, error) => self.fail_unsent(publication, error),
            News::Drained(upto) => self.drained = self.drained.max(upto),
            News::Restored => self.told_to_stop = None,
        }
    }

    /// A worker begins an item: its lease is now on this lane.
    fn begin(&mut self, publication: u64) {
        let Some((lease, bytes)) = self.session.board.lease_of(publication) else { return };
        self.figures.begun(bytes);
        let key = self.desk.key_of(lease.items[0]);
        self.attempts.begin(publication, &lease, key);
        let begin = self
            .desk
            .schedule(|scheduler, now| hand_over::hand_over(scheduler, lease.id, self.lane, now));
        if begin == Begin::Stale {
            // A lane that drains looks for no other stale leases.
            self.session.board.update(publication, |it| it.is_cancelled = true);
            self.session.send(CoordinatorEvent::Cancel(publication));
        }
    }

    /// Removes a publication: no hook has its item any more.
    fn remove(&mut self, publication: u64) -> Option<Publication> {
        self.attempts.end(publication);
        self.session.board.remove(publication)
    }

    /// Gives up publications with stale leases.
    fn cancel_stale(&self) {
        let board = &self.session.board;
        let held = board.held_by(self.lane);
        if held.is_empty() {
            return;
        }
        let stale = self.desk.schedule(|scheduler, _| {
            let stale = held.into_iter().filter(|it| hand_over::is_stale(scheduler, it.1));
            stale.collect::<Vec<_>>()
        });
        for (publication, _, is_begun) in stale {
            board.update(publication, |it| it.is_cancelled = true);
            self.session.send(CoordinatorEvent::Cancel(publication));
            // If a hook has the item, the worker answers when the hook has returned.
            if !is_begun && let Some(publication) = board.remove(publication) {
                self.session.send(CoordinatorEvent::Delete(publication.sequence));
                self.desk.release(publication.lease.id);
            }
        }
    }

    pub(super) fn begin_to_drain(&mut self) -> LaneExit {
        let is_over = self.desk.schedule(|scheduler, _| hand_over::is_over(scheduler));
        self.told_to_stop = None;
        match is_over {
            true => LaneExit::RunOver { upto: self.session.board.last_of_run(self.lane) },
            false => LaneExit::Quarantined,
        }
    }

    /// Whether no hook of the worker has an item of this run. Else the worker was told to give its items up, or to leave for
    /// good.
    pub(super) fn is_drained(&mut self, ending: LaneExit) -> bool {
        let lane = self.lane;
        let Mail { news, departed, worker, times, fatal, is_closed } =
            self.session.board.mail(lane);
        news.into_iter().for_each(|news| self.heed(news));
        departed.into_iter().for_each(|it| self.figures.left(it));
        if worker.is_some() {
            self.figures.note_times(times);
        }
        let Some(worker) = worker.filter(|_| fatal.is_none() && !is_closed) else { return true };
        let (is_done, event) = match ending {
            LaneExit::RunOver { upto } => {
                (self.drained >= upto, CoordinatorEvent::Drain { lane, upto })
            }
            LaneExit::Quarantined => (false, CoordinatorEvent::Ban { lane }),
        };
        if is_done || self.desk.is_abandoned() {
            return true;
        }
        if self.told_to_stop.as_ref() != Some(&worker.id) {
            self.told_to_stop = Some(worker.id.clone());
            self.session.send(event);
        }
        false
    }

    /// The device is the worker's, which names it.
    fn site(&self, lease: &Lease, host: Option<Arc<str>>) -> Site {
        let mut site = self.setup.site(&lease.items, Some(lease.attempt));
        (site.host, site.device) = (host, None);
        site
    }
}
