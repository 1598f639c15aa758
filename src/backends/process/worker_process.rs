//! The child process of a keeper, from its start to its state.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::child::{Child, EventBell};
use super::child_process::{ChildStart, program, shown_program};
use super::fork_link::ForkLink;
use super::frame::{Frame, FrameKind};
use super::message::{self, CallNumber, Failed, Hello, Init, LargeOutputs, Refused};
use super::preparation::{self, NoServer, ServerWait};
use super::processes::{Processes, VisibleGpus};
use super::waiting::{ChildAnswer, Interest, wait_for_answer};
use crate::backends::memory::shared_memory::KEPT;
use crate::backends::remote::item_codec::ItemCodec;
use crate::base::Hook;
use crate::concurrency::bell::{Bell, Bells};
#[cfg(feature = "rayon")]
use crate::device::rayon_variable;
use crate::device::{InWorker, Place, in_worker};
use crate::error::{Error, FrameError, WorkerError};
use crate::run::run_state::RunState;
use crate::run::time_limits::{TimeLimits, grace_of};
use crate::runner::ProducerSetup;

/// How long a process may take to say that it is a worker.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// After this number of processes in a row that ended before they had a state, the producer is lost.
const MOST_STARTS: u32 = 4;

/// The memory that each worker may keep at least, in bytes.
const LEAST_KEPT: u64 = 16 << 20;

/// What all keepers of a pool have in common.
#[derive(Debug)]
pub(crate) struct KeeperSettings {
    pub(crate) processes: Processes,
    pub(crate) limits: TimeLimits,
    pub(crate) names_only: bool,
    pub(crate) stack_size: Option<usize>,
    /// The number of threads of a pool of rayon's in each child on the CPU.
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: Option<usize>,
}

/// A child process with the hooks of one producer, and all that it takes to start it.
pub(super) struct WorkerProcess<I, T> {
    pub(super) codec: ItemCodec<I, T>,
    pub(super) settings: Arc<KeeperSettings>,
    pub(super) setup: ProducerSetup,
    /// `None` before the first start.
    bell: Option<Arc<EventBell>>,
    /// `None` before it is started, and after it has ended.
    pub(super) child: Option<Child>,
    /// The process that forks the children. `None` before the first start, and if they are started by their program.
    server: Option<Arc<ForkLink>>,
    /// The number of the last call.
    calls: u64,
}

/// Why a child has no state.
enum Unready {
    /// Another try may go better: the process has ended.
    Crashed(Error),
    Failed(Error),
}

impl From<WorkerError> for Unready {
    fn from(error: WorkerError) -> Self {
        Unready::Failed(error.into())
    }
}

impl From<FrameError> for Unready {
    fn from(source: FrameError) -> Self {
        WorkerError::Frame { source }.into()
    }
}

impl KeeperSettings {
    /// A run that is out of time ends when its grace is over, so its processes end before that.
    pub(super) fn cancelled(&self, run: &RunState) -> Interest {
        let kill_after = match self.limits.run.filter(|_| run.is_out_of_time()) {
            Some(limit) => Some(grace_of(limit) / 2),
            None => self.processes.kill_after,
        };
        Interest::Cancelled { kill_after }
    }

    fn rayon_variable_of(&self, place: &Place) -> Option<(&'static str, String)> {
        #[cfg(feature = "rayon")]
        return rayon_variable(self.cpu_threads.filter(|_| place.has_cpu()));
        #[cfg(not(feature = "rayon"))]
        {
            _ = place;
            None
        }
    }

    pub(super) fn cpu_threads_of(&self, place: &Place) -> Option<u32> {
        #[cfg(feature = "rayon")]
        return self
            .cpu_threads
            .filter(|_| place.has_cpu())
            .map(|threads| u32::try_from(threads).unwrap_or(u32::MAX));
        #[cfg(not(feature = "rayon"))]
        {
            _ = place;
            None
        }
    }
}

impl<I, T> WorkerProcess<I, T> {
    pub(super) fn new(
        codec: ItemCodec<I, T>,
        settings: Arc<KeeperSettings>,
        setup: ProducerSetup,
    ) -> Self {
        WorkerProcess { codec, settings, setup, bell: None, child: None, server: None, calls: 0 }
    }

    /// Makes the bell, if there is none.
    pub(super) fn hang_bell(&mut self) -> Result<(), Error> {
        if self.bell.is_none() {
            let bell = EventBell::new().map_err(|source| {
                let program = shown_program(&self.settings.processes);
                Error::from(WorkerError::Start { program, source })
            })?;
            self.bell = Some(Arc::new(bell));
        }
        Ok(())
    }

    /// Has changes ring the bell that the waits for answers listen to.
    pub(super) fn listen_to(&self, bells: &Bells) {
        let bell: Arc<dyn Bell> = self.bell().clone();
        bells.add(&bell);
    }

    pub(super) fn bell(&self) -> &Arc<EventBell> {
        self.bell.as_ref().expect("it is made before the child is started")
    }

    /// Whether the process runs, as far as can be seen without waiting.
    pub(super) fn is_alive(&mut self) -> bool {
        self.child.as_mut().is_some_and(Child::is_alive)
    }

    pub(super) fn next_call(&mut self) -> u64 {
        self.calls += 1;
        self.calls
    }

    /// Starts a child if there is none, and has it call `producer_init`.
    pub(super) fn start(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Error> {
        let mut starts = 1;
        loop {
            match self.start_once(interest) {
                Ok(()) => return Ok(()),
                Err(Unready::Crashed(error)) => {
                    self.child = None;
                    if starts == MOST_STARTS || interest() != Interest::Wanted {
                        return Err(error);
                    }
                    starts += 1;
                    let producer = self.setup.producer;
                    tracing::warn!(producer, "a worker ended before it was ready: {error:#}");
                }
                Err(Unready::Failed(error)) => {
                    self.child = None;
                    return Err(error);
                }
            }
        }
    }

    fn start_once(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Unready> {
        if !self.child.as_mut().is_some_and(Child::is_alive) {
            self.child = Some(self.start_child(interest)?);
            self.await_ready(interest)?;
        }
        self.init(interest)
    }

    fn start_child(&mut self, interest: &dyn Fn() -> Interest) -> Result<Child, Unready> {
        if let Some(server) = self.server(interest)? {
            match self.start_by(Some(&server))? {
                Ok(child) => return Ok(child),
                Err(error) => self.lose_server(&error),
            }
        }
        let started = self.start_by(None)?;
        let program = || program(&self.settings.processes).to_owned();
        started.map_err(|source| WorkerError::Start { program: program(), source }.into())
    }

    /// Starts a child by its program, or by a server.
    fn start_by(&self, server: Option<&Arc<ForkLink>>) -> Result<io::Result<Child>, Unready> {
        let options = &self.settings.processes;
        let hello = Hello {
            coordinator: std::process::id(),
            max_frame: options.max_frame,
            spare_memory: spare_memory(self.setup.producers),
            large_outputs: match self.codec.is_relayed() {
                true => LargeOutputs::Inline,
                false => LargeOutputs::Lent,
            },
            recipe: self.codec.name().to_owned(),
            terms: self.codec.terms(),
        };
        let InWorker { cuda_visible, .. } = self.in_worker()?;
        let (cuda_visible, producer) = (cuda_visible.as_deref(), self.setup.producer);
        let threads = self.settings.rayon_variable_of(&self.setup.place);
        let start = ChildStart { options, server, hello: &hello, cuda_visible, threads, producer };
        Ok(Child::start(&start))
    }

    /// Returns the fork server, if there is to be one. Starts it if no other keeper has.
    fn server(
        &mut self,
        interest: &dyn Fn() -> Interest,
    ) -> Result<Option<Arc<ForkLink>>, Unready> {
        let options = &self.settings.processes;
        let Some(fork_server) = &options.fork_server else { return Ok(None) };
        if self.server.is_none() {
            let (producer, bell, limit) =
                (self.setup.producer, self.bell(), self.settings.limits.init);
            let wait = ServerWait { options, producer, bell, limit, interest };
            self.server = match preparation::join(fork_server, &wait) {
                Ok(server) => Some(server),
                Err(NoServer::GivenUp) => None,
                Err(NoServer::Failed(reason)) => {
                    return Err(WorkerError::Unprepared { reason }.into());
                }
                Err(NoServer::Unwanted) => {
                    let (program, source) =
                        (program(options).to_owned(), io::ErrorKind::Interrupted.into());
                    let error = WorkerError::Start { program, source };
                    return Err(Unready::Crashed(error.into()));
                }
            };
        }
        Ok(self.server.clone())
    }

    /// Has this and all other keepers start children by their program.
    fn lose_server(&mut self, error: &io::Error) {
        self.server = None;
        let options = &self.settings.processes;
        if let Some(fork_server) = &options.fork_server {
            preparation::give_up(fork_server, options, self.setup.producer, error);
        }
    }

    /// What the child sees of its place. Names need not be of devices that there are.
    fn in_worker(&self) -> Result<InWorker, Unready> {
        let place = &self.setup.place;
        let as_here = || InWorker { place: place.clone(), cuda_visible: None };
        if self.settings.processes.visible_gpus == VisibleGpus::All {
            return Ok(as_here());
        }
        match in_worker(place) {
            Ok(seen) => Ok(seen),
            Err(_) if self.settings.names_only => Ok(as_here()),
            Err(error) => Err(Unready::Failed(error.into())),
        }
    }

    fn await_ready(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Unready> {
        let program = || shown_program(&self.settings.processes);
        let bell = self.bell().clone();
        let child = self.child.as_mut().expect("it was just started");
        match wait_for_answer(child, &bell, 0, Some(READY_WITHIN), interest) {
            ChildAnswer::Frame(frame) => match frame.kind {
                FrameKind::Ready => Ok(()),
                _ => Err(unexpected(&frame)),
            },
            ChildAnswer::Died(crash) => {
                let error = WorkerError::NoWorker { program: program(), crash };
                Err(Unready::Crashed(error.into()))
            }
            ChildAnswer::TimedOut => {
                Err(WorkerError::Silent { program: program(), limit: READY_WITHIN }.into())
            }
            ChildAnswer::Damaged(error) => Err(error.into()),
        }
    }

    fn init(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Unready> {
        let call = self.next_call();
        let most = self.settings.processes.max_frame as usize;
        let init = message::encode(FrameKind::Init, most, &self.init_message(call)?)?;
        let (limit, bell) = (self.settings.limits.init, self.bell().clone());
        let child = self.child.as_mut().expect("it was just started");
        child.send([init.into()]);
        let answer = wait_for_answer(child, &bell, call, limit, interest);
        let (hook, site) = (Hook::ProducerInit, self.setup.site(&[], None));
        match answer {
            ChildAnswer::Frame(frame) => match frame.kind {
                FrameKind::InitDone => match message::decode::<CallNumber>(&frame)?.call == call {
                    true => Ok(()),
                    false => Err(unexpected(&frame)),
                },
                FrameKind::InitFailed => {
                    let Failed { failure, .. } = message::decode(&frame)?;
                    Err(Unready::Failed(failure.into_error(&self.codec, (hook, site))))
                }
                _ => Err(unexpected(&frame)),
            },
            ChildAnswer::Died(source) => {
                let site = Box::new(site);
                Err(Unready::Crashed(Error::HookCrashed { hook, site, source }))
            }
            ChildAnswer::TimedOut => {
                let limit = limit.expect("only a limit is exceeded");
                Err(Unready::Failed(Error::TimedOut { hook, site: Box::new(site), limit }))
            }
            ChildAnswer::Damaged(error) => Err(error.into()),
        }
    }

    fn init_message(&self, call: u64) -> Result<Init, Unready> {
        let small = |number: usize| u32::try_from(number).expect("there are fewer places");
        let cfg = self.setup.cfg.to_yaml();
        let cfg = cfg.map_err(|error| WorkerError::Cfg { source: error.into() })?;
        Ok(Init {
            call,
            producer: small(self.setup.producer),
            producers: small(self.setup.producers),
            seed: self.setup.seed,
            place: self.in_worker()?.place.to_string(),
            names_only: self.settings.names_only,
            cfg,
            cpu_threads: self.settings.cpu_threads_of(&self.setup.place),
            stack_size: self.settings.stack_size.map(|bytes| bytes as u64),
        })
    }
}

/// How much a worker keeps of what all of them may keep, in bytes.
fn spare_memory(producers: usize) -> u64 {
    (KEPT / (producers as u64).max(1)).max(LEAST_KEPT)
}

/// A message that does not belong here; or a refusal.
fn unexpected(frame: &Frame) -> Unready {
    match refusal(frame) {
        Some(error) => error.into(),
        None => out_of_turn(frame).into(),
    }
}

/// The reason of a worker that refuses to serve.
pub(super) fn refusal(frame: &Frame) -> Option<WorkerError> {
    if frame.kind != FrameKind::Refused {
        return None;
    }
    Some(match message::decode(frame) {
        Ok(Refused { reason }) => WorkerError::Refused { reason },
        Err(source) => WorkerError::Frame { source },
    })
}

/// A message that comes at the wrong time.
pub(super) fn out_of_turn(frame: &Frame) -> FrameError {
    let reason = format!("a message {:?} was not expected", frame.kind);
    FrameError::Damaged { reason }
}
