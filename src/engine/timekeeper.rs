//! The thread that keeps the limits on time of one run.

use std::mem;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};

use super::attendance::Attendance;
use super::batch_work::{drop_inputs, hand_on};
use super::call::drop_quietly;
use super::crew::spawn;
use super::losses::{Abandoned, Loss};
use super::post::Call;
use super::run::{Run, text_of};
use crate::device::Devices;
use crate::error::{Error, Hook, Site};
use crate::limits::{CallTime, grace_of, ticks_in};
use crate::runner::Runner;

/// The name of the thread.
const NAME: &str = "gangline-t";

/// Keeps the limits of a run until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Timekeeper {
    /// Closed to stop it.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// What it knows.
pub(super) struct Watch<R: Runner> {
    run: Arc<Run<R>>,
    attendance: Arc<Attendance>,
    devices: Devices,
    tick: Duration,
    /// How many ticks there were.
    ticks: u64,
    times: Vec<CallTime>,
}

impl Timekeeper {
    /// Starts the thread. Time is counted in its ticks and not read from a clock: while the process is
    /// stopped there are none.
    pub(crate) fn start<R: Runner + 'static>(
        run: Arc<Run<R>>,
        attendance: Arc<Attendance>,
        devices: Devices,
        tick: Duration,
    ) -> Result<Self, Error> {
        let (stop, stopped) = bounded(0);
        let mut watch = Watch::new(run, attendance, devices, tick);
        let keep_time = move || {
            while stopped.recv_timeout(watch.tick) == Err(RecvTimeoutError::Timeout) {
                watch.tick();
            }
        };
        let thread = spawn(NAME.to_owned(), None, keep_time)?;
        Ok(Timekeeper { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Timekeeper {
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

impl<R: Runner> Watch<R> {
    pub(super) fn new(
        run: Arc<Run<R>>,
        attendance: Arc<Attendance>,
        devices: Devices,
        tick: Duration,
    ) -> Self {
        let times = vec![CallTime::default(); devices.len()];
        Watch { run, attendance, devices, tick, ticks: 0, times }
    }

    pub(super) fn tick(&mut self) {
        self.ticks += 1;
        for producer in 0..self.times.len() {
            let Some(post) = self.run.post(producer) else { break };
            let (call, ticks) = post.current();
            if self.times[producer].tick(call) > ticks
                && let Some(call) = post.write_off(call)
            {
                self.write_off(producer, call);
            }
        }
        if let Some(limit) = self.run.terms.limits.run {
            self.keep_to(limit);
        }
    }

    /// The producer is in a hook for too long.
    fn write_off(&self, producer: usize, mut call: Call<R::Input>) {
        let error = self.run.named(self.timed_out(producer, &call));
        let reason = text_of(&error);
        // First: of an item that another producer was done with, or is at, this error is not.
        let error = self.leave_race(producer, &mut call, error);
        let left = self.run.abandon(Loss { producer, reason, abandoned: Abandoned::Yes });
        match left {
            Ok(()) => self.pass_on(producer, &mut call, error),
            // Nobody is there who could work on what comes before.
            Err(too_few) => {
                if error.is_some() && call.hook != Hook::ProducerInit {
                    let items = call.items.len() as u64;
                    self.run.exchange.timesheet.producer_failed(producer, items);
                }
                self.run.end_as(too_few(error));
            }
        }
        call.rest.into_iter().for_each(|part| drop_inputs(part.gathered));
        call.copies.into_iter().flatten().for_each(drop_quietly);
        self.attendance.excuse(producer);
    }

    /// The error, unless other producers are at all the same items. It is that of the others, which are left.
    fn leave_race(
        &self,
        producer: usize,
        call: &mut Call<R::Input>,
        error: Error,
    ) -> Option<Error> {
        if call.items.is_empty() {
            return Some(error);
        }
        let counts = match call.hook {
            // The items themselves are handed on.
            Hook::ProducerInit => !call.items.iter().any(|&item| self.run.exchange.is_raced(item)),
            _ => {
                let (items, copies) = (mem::take(&mut call.items), mem::take(&mut call.copies));
                (call.items, call.copies) = self.run.leave_races(items, producer, copies);
                !call.items.is_empty()
            }
        };
        match counts {
            true => Some(self.run.named(error.of_items(&call.items))),
            false => {
                drop_quietly(error);
                None
            }
        }
    }

    /// What no hook has seen yet goes to the other producers; the rest has failed. Nothing has where the call is
    /// one of an earlier run.
    fn pass_on(&self, producer: usize, call: &mut Call<R::Input>, error: Option<Error>) {
        let Call { hook, items, copies, trial, rest, .. } = call;
        rest.drain(..).for_each(|part| hand_on(&self.run, part.gathered));
        if let Hook::ProducerInit = hook {
            for (&item, input) in items.iter().zip(copies.drain(..).flatten()) {
                self.run.hand_on(item, input, trial.clone());
            }
            drop_quietly(error);
            return;
        }
        match error {
            Some(error) if items.is_empty() => drop_quietly(error),
            Some(error) => self.run.fail_from_aside(items, error, producer, trial.take(), copies),
            None => {}
        }
    }

    fn timed_out(&self, producer: usize, call: &Call<R::Input>) -> Error {
        let limits = self.run.terms.limits;
        let limit = match call.hook {
            Hook::ProducerInit => limits.init,
            _ => limits.item.map(|limit| limit * call.items.len().max(1) as u32),
        };
        let attempt = call.trial.as_ref().map_or(1, |trial| trial.attempt);
        let site = Box::new(self.site(producer, &call.items, attempt));
        Error::TimedOut { hook: call.hook, site, limit: limit.unwrap_or_default() }
    }

    fn site(&self, producer: usize, items: &[u64], attempt: u32) -> Site {
        Site {
            items: items.to_vec(),
            device: self.devices.place(producer).and_then(|place| place.devices().first().copied()),
            producer: Some(producer),
            attempt: (!items.is_empty()).then_some(attempt),
            key: None,
        }
    }

    fn keep_to(&self, limit: Duration) {
        let over = ticks_in(limit, self.tick);
        if self.ticks == over {
            self.run.end_as(Error::RunTimedOut { limit });
        }
        // At each tick from then on: also who enters late is left, in a `producer_init` say.
        if self.ticks >= over.saturating_add(ticks_in(grace_of(limit), self.tick)) {
            for producer in self.attendance.present() {
                let reason = text_of(&Error::RunTimedOut { limit });
                let loss = Loss { producer, reason, abandoned: Abandoned::Yes };
                // Too few are left for this run, which is over, in any case.
                drop(self.run.abandon(loss));
                self.attendance.excuse(producer);
            }
            self.run.leave_consumer();
        }
    }
}
