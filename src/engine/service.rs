//! A service: a run whose items are calls, each answered to its own caller.
//!
//! A caller takes a place in the queue, offers its item to the scheduler, and waits at a slot. The producer
//! that has the result counts it and puts it there. So neither a feeder nor a consumer takes part. One thread of
//! the service answers what no producer does: calls at their deadlines, and the rest at the end.

pub(crate) mod background;
pub(crate) mod board;
pub(crate) mod calls;
#[cfg(all(test, shuttle))]
mod model;
pub(crate) mod places;
pub(crate) mod service_state;
pub(crate) mod stream_channel;
pub(crate) mod stream_items;
pub(crate) mod streams;

use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use gangline_report::{Account, RunReport};
use gangline_scheduler::batch::Size;
use gangline_scheduler::{Meta, Priority, Share};

use self::board::{Board, Duty, ExpiredCall, ServiceEnd};
use self::places::Slot;
use self::service_state::Deadline;
use super::feed::measure;
use super::pool::Engine;
use super::session::{LinePlace, Lineup};
use super::stage::StageEngine;
use super::totals::report_of;
use crate::base::panic::drop_quietly;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock};
use crate::device::Devices;
use crate::error::{Error, Site};
use crate::observe::event::Event;
use crate::observe::event_log::{Detail, EventLog};
use crate::observe::run_stats::ProducerTime;
use crate::producers::Producers;
use crate::producers::pool_settings::PoolSettings;
use crate::producers::producer_threads::ThreadIds;
use crate::producers::shared::PoolShared;
use crate::run::Run;
use crate::run::item_names::ItemEntry;
use crate::run::measures::Rejected;
use crate::run::run_shape::{Rebuilt, RunKind};

const NAME: &str = "gangline-s";
/// The least default for the number of open calls. Large batches raise it.
const LEAST_PLACES: usize = 1_024;
/// The least default for the number of open items of a stream.
const LEAST_IN_STREAM: usize = 64;

/// A service, and the pool that it was made of.
pub(crate) struct ServiceHost<I, T> {
    calls: Calls<I, T>,
    /// The largest number of open items of a stream.
    stream_window: usize,
    /// The events of the service, for reports after its end.
    event_log: Arc<EventLog>,
    devices: Devices,
    producers: Arc<PoolShared>,
    /// `None` once a thread closes the service.
    serving: Mutex<Option<Serving<I, T>>>,
    closing: ServiceClosing,
}

/// The close of a service, for threads that wait for it.
struct ServiceClosing {
    /// The thread that closes.
    thread: OnceLock<ThreadId>,
    /// The service's own thread.
    own: Option<ThreadId>,
    /// Disconnected once the service is closed.
    closed: Receiver<()>,
}

/// What has to be ended when a service is closed.
struct Serving<I, T> {
    engine: Engine<I, T>,
    /// The service's own. `None` if the service could not begin.
    thread: Option<JoinHandle<()>>,
    /// Dropped once the service is closed.
    closing: Sender<()>,
}

/// The part of a service that a call needs. Each open call keeps it alive.
pub(crate) struct Calls<I, T> {
    pub(crate) board: Arc<Board<T>>,
    /// `None` if the service could not begin.
    run: Option<Arc<Run<I, T>>>,
    /// The threads of the producers, which must not wait for themselves.
    producers: ThreadIds,
}

impl<I, T> Clone for Calls<I, T> {
    fn clone(&self) -> Self {
        let Calls { board, run, producers } = self;
        Calls { board: board.clone(), run: run.clone(), producers: producers.clone() }
    }
}

impl<I: Send + 'static, T: Send + 'static> ServiceHost<I, T> {
    /// Begins a service on the producers of `engine`. If that fails, every call is answered with the error.
    pub(crate) fn begin(mut engine: Engine<I, T>) -> Self {
        let shared = engine.shared();
        let producers = engine.producers.as_ref().map(Producers::thread_ids).unwrap_or_default();
        let stream_window = window(&engine, LEAST_IN_STREAM);
        let (board, run, thread) = match Self::start(&mut engine) {
            Ok((board, run, thread)) => (board, Some(run), Some(thread)),
            Err(error) => {
                let event_log = Arc::new(EventLog::new(0, None, Detail::Run));
                let board = Arc::new(Board::new(0, event_log));
                board.end(match error {
                    Error::Closed {} => ServiceEnd::Closed,
                    error => ServiceEnd::Failed(error),
                });
                (board, None, None)
            }
        };
        let (event_log, devices) = (engine.event_log.clone(), engine.settings.devices.clone());
        let own = thread.as_ref().map(|thread| thread.thread().id());
        let (closing, closed) = bounded(0);
        let serving = Mutex::new(Some(Serving { engine, thread, closing }));
        let closing = ServiceClosing { thread: OnceLock::new(), own, closed };
        let calls = Calls { board, run, producers };
        ServiceHost {
            calls,
            stream_window,
            event_log,
            devices,
            producers: shared.unwrap_or_default(),
            serving,
            closing,
        }
    }

    fn start(engine: &mut Engine<I, T>) -> Result<Started<I, T>, Error> {
        let places = engine.settings.window.unwrap_or_else(|| window(engine, LEAST_PLACES));
        engine.reset(None);
        let run = enlist(engine).inspect_err(|error| engine.refuse(error))?;
        let board = Arc::new(Board::new(places, run.event_log.clone()));
        run.handover.answer_with(board.clone());
        let joined = match run.handover.is_halted() {
            true => Err(Error::Cancelled {}),
            false => engine.join(Rebuilt::Before),
        };
        let began = joined.and_then(|()| {
            let (run, board, devices) =
                (run.clone(), board.clone(), engine.settings.devices.clone());
            Ok(spawn(NAME.to_owned(), None, move || serve(&run, &board, &devices))?)
        });
        match began {
            Ok(thread) => Ok((board, run, thread)),
            Err(error) => {
                engine.end_run();
                engine.settle(Account::default(), None, Some(&error));
                Err(error)
            }
        }
    }

    /// Refuses new calls, and waits until the others are answered. Cancels those that are open after `timeout`.
    /// Returns whether all were answered before that.
    pub(crate) fn drain(&self, timeout: Duration) -> bool {
        if self.calls.board.check_home().is_err() {
            return false;
        }
        let Some(run) = &self.calls.run else { return true };
        Interrupt::drain(&**run);
        let are_answered = self.calls.board.wait_until_answered(timeout);
        if !are_answered {
            Interrupt::cancel(&**run);
        }
        are_answered
    }

    /// Cancels the open calls, has child processes be killed, and closes the service, or waits until another thread
    /// has closed it.
    pub(crate) fn terminate(&self) -> Result<(), Error> {
        if self.calls.board.check_home().is_err() {
            return Ok(());
        }
        // First: that a process is killed is then no answer to a call.
        if let Some(run) = &self.calls.run {
            Interrupt::cancel(&**run);
        }
        self.producers.terminate();
        let closed = self.close();
        self.closing.wait(self.calls.is_own_thread());
        closed
    }

    /// Answers the open calls, and ends the producers.
    pub(crate) fn close(&self) -> Result<(), Error> {
        let Some((mut engine, closing)) = self.end() else { return Ok(()) };
        let closed = engine.close();
        drop::<Sender<()>>(closing);
        closed
    }

    /// Answers the open calls, and returns the pool's engine, with what is to be dropped once that is closed. `None` if
    /// the service is closed already.
    pub(crate) fn end(&self) -> Option<(Engine<I, T>, Sender<()>)> {
        let Serving { mut engine, thread, closing } = lock(&self.serving).take()?;
        _ = self.closing.thread.set(thread::current().id());
        if engine.is_in_fork() {
            engine.leave_run_to_parent();
            std::mem::forget(thread);
        } else if let (Some(run), Some(thread)) = (&self.calls.run, thread) {
            run.abort();
            // The last handle may be dropped by a waker, on that thread.
            if thread.thread().id() != thread::current().id()
                && let Err(payload) = thread.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(payload);
            }
            let (account, reason) = (self.calls.board.account(), self.calls.board.reason());
            engine.end_run();
            engine.settle(account, None, reason.as_deref());
        }
        Some((engine, closing))
    }

    pub(crate) fn calls(&self) -> &Calls<I, T> {
        &self.calls
    }

    pub(crate) fn stream_window(&self) -> usize {
        self.stream_window
    }

    /// Sets the share of streams, in percent of the items.
    pub(crate) fn set_stream_share(&self, percent: u8) {
        if let Some(run) = &self.calls.run {
            let share = Share::percent(percent);
            run.handover.dispatch.schedule(|state, _| state.scheduler.set_share(share));
        }
    }

    /// The number of items that producers with seats can have now.
    pub(crate) fn capacity(&self) -> Option<usize> {
        lock(&self.serving).as_ref().and_then(|serving| serving.engine.factory().capacity())
    }

    /// Returns the times of the service's producers so far, each with the duration of its last `producer_init`.
    pub(crate) fn producer_times(&self) -> Vec<(ProducerTime, Duration)> {
        match (lock(&self.serving).as_ref(), &self.calls.run) {
            (Some(Serving { engine, .. }), Some(run)) => engine.times_up_to_now(run),
            _ => vec![],
        }
    }

    /// The report of the service since its start, up to its end.
    pub(crate) fn report(&self) -> RunReport {
        let serving = lock(&self.serving);
        let account = self.calls.board.account();
        match (serving.as_ref(), &self.calls.run) {
            (Some(Serving { engine, .. }), Some(run)) => {
                let reason = self.calls.board.reason();
                engine.report_up_to_now(run, account, reason.as_deref())
            }
            _ => {
                let mut report = report_of(&self.event_log, &self.devices);
                report.account = account;
                report
            }
        }
    }
}

impl ServiceClosing {
    /// Waits until the service is closed, unless its close waits for this thread.
    fn wait(&self, is_producer: bool) {
        let this = Some(thread::current().id());
        if !is_producer && this != self.own && this != self.thread.get().copied() {
            // Nothing is sent.
            _ = self.closed.recv();
        }
    }
}

/// Returns the default window: `least`, or four of the largest batches for each producer if that is more. A smaller
/// window of the user goes before it.
fn window<I, T>(engine: &Engine<I, T>, least: usize) -> usize {
    let PoolSettings { window, batching, devices, .. } = &engine.settings;
    let most = batching.map_or(1, |batching| batching.rule.assumed());
    let default = least.max(devices.len().saturating_mul(4 * most));
    window.map_or(default, |window| window.min(default))
}

/// The calls, the run, and the service's own thread.
type Started<I, T> = (Arc<Board<T>>, Arc<Run<I, T>>, JoinHandle<()>);

/// The work of the service's own thread.
fn serve<I, T>(run: &Run<I, T>, board: &Board<T>, devices: &Devices) {
    let _in_run = run.spans.enter();
    loop {
        match board.next_duty() {
            Duty::Expire(calls) => calls.into_iter().for_each(|call| {
                let error = expire(run, &call, devices);
                call.answer(error);
            }),
            Duty::End => {
                let fatal_error = run.take_fatal_error();
                return board.end(match (run.is_cancelled(), fatal_error) {
                    (true, _) => ServiceEnd::Cancelled,
                    (false, Some(error)) => ServiceEnd::Failed(error),
                    (false, None) => ServiceEnd::Closed,
                });
            }
        }
    }
}

/// Gives up the item of a call that has missed its deadline, and reports its failure. If a hook has the item, that
/// attempt has failed.
fn expire<I, T>(run: &Run<I, T>, call: &ExpiredCall<T>, devices: &Devices) -> Error {
    let key = run.name_of(call.index);
    let attempt = withdraw(run, &[call.index]);
    let site = attempt.map_or_else(Site::default, |(producer, attempt)| {
        run.handover.stats.producer_failed(producer, 1);
        Site { attempt: Some(attempt), ..run.site_of(producer, devices) }
    });
    let site = Box::new(Site { items: vec![call.index], key, ..site });
    let error = Error::DeadlineExceeded { limit: call.limit, site };
    run.event_log.tell(Event::ItemFailed { failure: EventLog::failure(&error) });
    error
}

/// Gives up items that have been answered, or whose results are not wanted. Returns the producer whose hook has the first
/// of them, and the number of the attempt.
fn withdraw<I, T>(run: &Run<I, T>, indices: &[u64]) -> Option<(usize, u32)> {
    let &first = indices.first()?;
    let ((attempt, inputs), events) = run.handover.dispatch.schedule(|state, now| {
        let attempt = state.scheduler.leases().attempt_at(first);
        state.scheduler.withdraw(indices, now);
        let mut inputs = vec![];
        indices.iter().for_each(|&index| inputs.extend(state.inputs.remove(index)));
        (attempt, inputs)
    });
    run.heed(events);
    indices.iter().for_each(|&index| run.remove_name(index));
    inputs.into_iter().for_each(drop_quietly);
    attempt
}

impl<I, T> Calls<I, T> {
    /// Whether the calling thread is a producer's. It could not answer while it waits.
    pub(crate) fn is_own_thread(&self) -> bool {
        self.producers.is_own_thread()
    }

    /// Offers an item, for which the caller has a place.
    fn submit(
        &self,
        input: I,
        slot: &Arc<Slot<T>>,
        deadline: Option<Deadline>,
    ) -> Result<u64, Error> {
        let run = self.run.as_ref().expect("places are given only while there is a run");
        let (entry, size) = match look(run, &input) {
            Ok(looked) => looked,
            Err(rejected) => {
                drop_quietly(input);
                let index = self.board.open(slot, deadline)?;
                self.board.refuse(index, rejected.into_error(index));
                return Ok(index);
            }
        };
        let mut caller = run.spans.caller();
        let (opened, events) = run.handover.dispatch.schedule(|state, now| {
            let index = match self.board.open(slot, deadline) {
                Ok(index) => index,
                Err(error) => return Err((error, input)),
            };
            run.enter_name(index, entry);
            run.spans.note_caller(index, caller.take());
            state.inputs.insert(index, input, 1);
            let meta = Meta { size, since: now, priority: Priority::Normal };
            state.scheduler.offer(index, meta, now);
            Ok(index)
        });
        run.heed(events);
        opened.map_err(|(error, input)| {
            drop_quietly(input);
            error
        })
    }

    fn give_up(&self, index: u64) {
        if self.board.give_up(index)
            && let Some(run) = &self.run
        {
            withdraw(run, &[index]);
        }
    }
}

/// Names and measures an item: user code.
fn look<I, T>(run: &Run<I, T>, input: &I) -> Result<(Option<ItemEntry>, Size), Rejected> {
    let entry = run.entry_of(input)?;
    let measures = run.run_settings.measures.as_ref();
    let measured = measures.map_or(Ok(None), |measures| measure(measures, input))?;
    Ok((entry, measured.map_or(Size::ONE, |measured| measured.size)))
}

/// Creates the run of a service.
fn enlist<I: Send + 'static, T: Send + 'static>(
    engine: &mut Engine<I, T>,
) -> Result<Arc<Run<I, T>>, Error> {
    engine.check_no_journal()?;
    let mut lineup = Lineup::default();
    let run = engine.enlist(&mut lineup, None, LinePlace::Last(RunKind::Service))?;
    engine.watch(&lineup.all())?;
    Ok(run)
}
