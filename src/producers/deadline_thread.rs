//! The thread that enforces the timeouts of one run.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use gangline_scheduler::{Expired, Phase, RunTime, SchedulerEvent};

use crate::base::panic::drop_quietly;
use crate::concurrency::spawn::spawn;
use crate::device::Devices;
use crate::error::{Error, Hook, Site, text_of};
use crate::producers::participants::Participants;
use crate::run::Run;
use crate::run::lost_producer::Abandoned;
use crate::run::time_limits::grace_of;

const NAME: &str = "gangline-t";

/// Enforces the timeouts of a run until it is dropped.
#[derive(Debug)]
pub(crate) struct DeadlineThread {
    /// Closed to stop it.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The state of the thread.
pub(crate) struct DeadlineWatch<I, T> {
    run: Arc<Run<I, T>>,
    participants: Arc<Participants>,
    devices: Devices,
    step: Duration,
    woken: RunTime,
    /// Set once the run has timed out: when hooks that still run are abandoned.
    grace: Option<RunTime>,
}

impl DeadlineThread {
    /// Starts the thread, which wakes every `step`. If it oversleeps by more than one `step`, the process was
    /// stopped, and that time does not count.
    pub(crate) fn start<I: Send + 'static, T: Send + 'static>(
        run: Arc<Run<I, T>>,
        participants: Arc<Participants>,
        devices: Devices,
        step: Duration,
    ) -> Result<Self, Error> {
        let (stop, stopped) = bounded(0);
        let mut watch = DeadlineWatch::new(run, participants, devices, step);
        let keep_time = move || {
            let _in_run = watch.run.spans.enter();
            while stopped.recv_timeout(watch.step) == Err(RecvTimeoutError::Timeout) {
                watch.wake();
            }
        };
        let thread = spawn(NAME.to_owned(), None, keep_time)?;
        Ok(DeadlineThread { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for DeadlineThread {
    fn drop(&mut self) {
        self.stop = None;
        let Some(thread) = self.thread.take() else { return };
        if let Err(payload) = thread.join()
            && !std::thread::panicking()
        {
            std::panic::resume_unwind(payload);
        }
    }
}

impl<I, T> DeadlineWatch<I, T> {
    pub(crate) fn new(
        run: Arc<Run<I, T>>,
        participants: Arc<Participants>,
        devices: Devices,
        step: Duration,
    ) -> Self {
        let woken = run.handover.dispatch.clock.now();
        DeadlineWatch { run, participants, devices, step, woken, grace: None }
    }

    pub(crate) fn wake(&mut self) {
        let handover = &self.run.handover;
        self.woken = handover.dispatch.clock.wake(self.woken, self.step);
        let ((), events) = handover.dispatch.schedule_at(self.woken, |state, now| {
            state.scheduler.handle_timeout(now);
        });
        let live = events.iter().rev().find_map(|event| match event {
            SchedulerEvent::TooFewProducers { live } => Some(*live),
            _ => None,
        });
        let mut last = Vec::new();
        for event in events {
            match event {
                SchedulerEvent::Expired(expired) if live.is_some() => {
                    last.extend(self.expire_last(expired));
                }
                SchedulerEvent::Expired(expired) => self.expire(expired),
                SchedulerEvent::Abandon(producer) => self.abandon(producer, self.run_timed_out()),
                SchedulerEvent::RunTimedOut => self.end_run(),
                SchedulerEvent::TooFewProducers { .. } => {}
                other => unreachable!("no time shows {other:?}"),
            }
        }
        if let Some(live) = live {
            self.run.abort_with(self.run.too_few_after(live, last));
        }
        // Repeated at each step, since producers may enter late, for example from a `producer_init`.
        if self.grace.is_some_and(|grace| grace <= self.woken) {
            for producer in self.participants.present() {
                self.abandon(producer, self.run_timed_out());
            }
            self.run.leave_consumer();
            self.participants.excuse_consumer();
        }
    }

    fn run_timed_out(&self) -> Error {
        let limit = self.run.run_settings.limits.run.expect("the time of the run is limited");
        Error::RunTimedOut { limit }
    }

    fn end_run(&mut self) {
        let limit = self.run.run_settings.limits.run.expect("the time of the run is limited");
        self.grace = Some(self.woken.after(grace_of(limit)));
        self.run.abort_with(Error::RunTimedOut { limit });
    }

    fn abandon(&self, producer: usize, error: Error) {
        self.run.handover.dispatch.signals.abandon(producer);
        if self.run.losses().iter().all(|loss| loss.producer != producer) {
            self.run.note_loss(producer, text_of(&error), Abandoned::Yes);
        }
        self.participants.excuse(producer, || true);
    }

    /// Abandons a producer after its hook timed out.
    fn expire(&self, expired: Expired) {
        let error = self.note_timeout(&expired);
        let Expired { producer, items, .. } = expired;
        self.excuse(producer);
        match items.is_empty() {
            true => drop_quietly(error),
            false => self.run.fail_from_aside(&items, error, producer),
        }
    }

    /// Abandons a producer after its hook timed out, if too few producers are left then. Returns the error, unless the
    /// items have other live copies.
    fn expire_last(&self, expired: Expired) -> Option<Error> {
        let error = self.note_timeout(&expired);
        let Expired { producer, phase, items, lease, .. } = expired;
        if !items.is_empty() {
            self.run.handover.stats.producer_failed(producer, items.len() as u64);
        }
        self.excuse(producer);
        let is_shared = phase == Phase::Working && lease.is_some() && items.is_empty();
        (!is_shared).then_some(error)
    }

    fn note_timeout(&self, expired: &Expired) -> Error {
        let error = self.run.named(self.timed_out(expired));
        self.run.note_loss(expired.producer, text_of(&error), Abandoned::Yes);
        error
    }

    fn excuse(&self, producer: usize) {
        let dispatch = &self.run.handover.dispatch;
        self.participants.excuse(producer, || dispatch.signals.is_abandoned(producer));
    }

    fn timed_out(&self, expired: &Expired) -> Error {
        let limits = self.run.run_settings.limits;
        let (hook, limit) = match (expired.phase, self.run.handover.batching()) {
            (Phase::Preparing, _) => (Hook::ProducerInit, limits.init),
            (Phase::Ending, _) => (Hook::ProducerEnd, limits.end),
            (Phase::Ahead | Phase::Working, None) => (Hook::ProducerWork, limits.item),
            (Phase::Ahead | Phase::Working, Some(_)) => (Hook::ProducerWorkBatch, limits.item),
        };
        let calls = match expired.phase {
            Phase::Ahead | Phase::Preparing | Phase::Ending => 1,
            Phase::Working => expired.leased.max(1) as u32,
        };
        let site = Box::new(self.site(expired));
        Error::TimedOut { hook, site, limit: limit.unwrap_or_default() * calls }
    }

    fn site(&self, Expired { producer, items, attempt, .. }: &Expired) -> Site {
        Site {
            items: items.clone(),
            attempt: (!items.is_empty()).then_some(*attempt),
            ..self.run.site_of(*producer, &self.devices)
        }
    }
}
