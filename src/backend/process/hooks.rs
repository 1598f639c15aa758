//! The worker's side of a recipe: calls the producer's hooks and answers.

use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::connection::{CoordinatorConnection, FrameHandler, refuse};
use super::frame::{Frame, FrameKind, frame};
use super::message::{
    self, Bye, CallNumber, Done, Failed, HandedBack, Init, ItemOutcome, ItemsHeader, WorkHook,
};
use super::outlet::Outlet;
use super::worker_entry::Serve;
use crate::backend::remote::failure::{CallFailure, RemoteFailure};
use crate::backend::remote::item_codec::unsent;
use crate::backend::remote::recipe::Recipe;
use crate::base::panic::drop_quietly;
use crate::base::{BoxError, Hook, Result};
use crate::cfg::CfgNode;
use crate::concurrency::now;
use crate::concurrency::recallable::Recallable;
use crate::concurrency::spawn::spawn;
use crate::device::{self, Place};
use crate::error::{Error, FrameError, Site};
use crate::producers::cpu_pool::CpuPool;
use crate::run::call::call;
use crate::runner::{AbandonFlag, ProducerContext, ProducerSetup, Runner, Wanted};

impl<R: Runner + 'static> Serve for Recipe<R> {
    fn name(&self) -> &'static str {
        self.items.name()
    }

    fn difference(&self, connection: &CoordinatorConnection) -> Option<String> {
        self.items.terms().difference(connection.terms())
    }

    fn serve(&self, connection: CoordinatorConnection) -> ! {
        serve(*self, connection)
    }
}

/// Serves a coordinator until the process ends. The hooks run on a thread of their own; this one reads.
fn serve<R: Runner + 'static>(recipe: Recipe<R>, connection: CoordinatorConnection) -> ! {
    let revoked = Arc::new(AtomicU64::new(0));
    let most = connection.max_frame();
    let socket = connection.socket.try_clone();
    let socket = socket.unwrap_or_else(|error| refuse(&connection.socket, error.to_string()));
    let outlet = Arc::new(Outlet::new(socket));
    let side = Side { recipe, most, outlet: outlet.clone(), revoked: revoked.clone() };
    let mut reader = CommandReader { side: Some(side), calls: Arc::default(), outlet, revoked };
    connection.read(&mut reader)
}

/// Frames for the thread of the hooks, with the numbers of their calls; `None` if they are not recalled.
type QueuedCalls = Recallable<(Option<u64>, Frame)>;

/// Hands frames on to the thread of the hooks.
struct CommandReader<R: Runner> {
    /// `None` once the thread has started, with the first `Init`.
    side: Option<Side<R>>,
    calls: Arc<QueuedCalls>,
    outlet: Arc<Outlet>,
    revoked: Arc<AtomicU64>,
}

impl<R: Runner + 'static> FrameHandler for CommandReader<R> {
    fn take(&mut self, frame: Frame) -> Result<(), FrameError> {
        match frame.kind {
            FrameKind::GiveUp => {
                let CallNumber { call } = message::decode(&frame)?;
                self.revoked.store(call, Ordering::Relaxed);
                Ok(())
            }
            FrameKind::Recall => {
                let CallNumber { call: last } = message::decode(&frame)?;
                let back = self.calls.take_back(|(call, _)| call.is_some_and(|call| call > last));
                let calls = back.into_iter().filter_map(|(call, _)| call).collect();
                let frame =
                    message::encode(FrameKind::HandedBack, usize::MAX, &HandedBack { calls })?;
                self.outlet.send_aside(&frame);
                Ok(())
            }
            FrameKind::Init | FrameKind::Items | FrameKind::End => {
                if let Some(side) = self.side.take() {
                    start(side, self.calls.clone(), &frame)?;
                }
                let call = match frame.kind {
                    FrameKind::Items => Some(message::call_of(&frame)?),
                    _ => None,
                };
                self.calls.push((call, frame));
                Ok(())
            }
            other => {
                let reason = format!("a worker was sent a message {other:?}");
                Err(FrameError::Damaged { reason })
            }
        }
    }
}

/// Starts the thread of the hooks, named and sized like that of a producer.
fn start<R: Runner + 'static>(
    side: Side<R>,
    calls: Arc<QueuedCalls>,
    first: &Frame,
) -> Result<(), FrameError> {
    let init: Init = message::decode(first)?;
    let name = format!("gangline-p{}", init.producer);
    let stack_size = init.stack_size.and_then(|bytes| usize::try_from(bytes).ok());
    let setup = setup(&init, Arc::default()).map_err(|error| damaged(&error))?;
    let pool = CpuPool::of(&setup, &name, stack_size);
    let work = move |pooled: Result<(), Error>| match pooled {
        Ok(()) => ChildHooks { side, made: None, in_hook: Duration::ZERO }.work(&calls),
        Err(error) => side.outlet.refuse(format!("{error:#}")),
    };
    // The thread is not joined: it ends the process.
    let started = spawn(name, stack_size, move || pool.run(work));
    started.map(drop).map_err(|error| damaged(&BoxError::from(error.source)))
}

fn damaged(error: &BoxError) -> FrameError {
    FrameError::Damaged { reason: error.to_string() }
}

/// This process's side of the connection.
struct Side<R: Runner> {
    recipe: Recipe<R>,
    /// The largest frame, in bytes.
    most: usize,
    outlet: Arc<Outlet>,
    /// The number of the last call that the coordinator gave up.
    revoked: Arc<AtomicU64>,
}

/// The producer in this process.
struct ChildHooks<R: Runner> {
    side: Side<R>,
    made: Option<Made<R>>,
    /// How long the last call of a hook for items took.
    in_hook: Duration,
}

/// The runner, once it is made.
struct Made<R: Runner> {
    runner: R,
    setup: ProducerSetup,
    /// `None` after a panic, until the coordinator asks for another.
    state: Option<R::ProducerState>,
}

impl<R: Runner> ChildHooks<R> {
    fn work(mut self, calls: &QueuedCalls) {
        loop {
            let (_, frame) = calls.receive();
            let failed = match frame.kind {
                FrameKind::Init => self.init(&frame).err(),
                FrameKind::Items => self.work_on(&frame).err(),
                _ => self.end(),
            };
            if let Some(error) = failed {
                self.side.outlet.refuse(error.to_string());
            }
        }
    }

    fn init(&mut self, frame: &Frame) -> Result<(), FrameError> {
        let init: Init = message::decode(frame)?;
        let call = init.call;
        let answer = match self.make_and_init(&init) {
            Ok(()) => message::encode(FrameKind::InitDone, self.side.most, &CallNumber { call })?,
            Err(failure) => {
                message::encode(FrameKind::InitFailed, self.side.most, &Failed { call, failure })?
            }
        };
        self.side.outlet.send(&answer);
        Ok(())
    }

    fn make_and_init(&mut self, init: &Init) -> Result<(), CallFailure> {
        let made = match &mut self.made {
            Some(made) => made,
            none => none.insert(Made::new(&self.side.recipe, init)?),
        };
        if let Some(state) = made.state.take() {
            drop_quietly(state);
        }
        let wanted = Wanted::all();
        let flag = AbandonFlag::Call { revoked: &self.side.revoked, call: init.call };
        let cx = ProducerContext::new(&made.setup, &wanted, &[]).with_abandon_flag(Some(flag));
        let state = call(Hook::ProducerInit, Site::default, || made.runner.producer_init(&cx));
        made.state = Some(state.map_err(|error| CallFailure::of(&self.side.recipe, *error))?);
        Ok(())
    }

    fn work_on(&mut self, frame: &Frame) -> Result<(), FrameError> {
        let (header, mut parts): (ItemsHeader, _) = message::split(frame)?;
        let each = header.items.iter().map(|_| message::take_part(&mut parts));
        let parts = each.collect::<Result<Vec<_>, _>>()?;
        if self.made.as_ref().is_none_or(|made| made.state.is_none()) {
            // The coordinator sent the call before it knew of the panic that has cost the state.
            let calls = vec![header.call];
            let back =
                message::encode(FrameKind::HandedBack, self.side.most, &HandedBack { calls })?;
            self.side.outlet.send(&back);
            return Ok(());
        }
        let since = now();
        let answer = match self.inputs(&parts).and_then(|inputs| self.call(&header, inputs)) {
            Ok(outputs) => self.done(&header, outputs, since),
            Err(failure) => self.failed(header.call, failure),
        };
        self.side.outlet.send(&answer?);
        Ok(())
    }

    fn inputs(&self, parts: &[&[u8]]) -> Result<Vec<R::Input>, CallFailure> {
        let recipe = &self.side.recipe;
        let inputs =
            parts.iter().map(|part| recipe.items.decode_input(part)).collect::<Result<_>>();
        inputs.map_err(|error| CallFailure::Error(RemoteFailure::of(recipe, error)))
    }

    fn call(
        &mut self,
        header: &ItemsHeader,
        mut inputs: Vec<R::Input>,
    ) -> Result<Vec<Result<R::Output>>, CallFailure> {
        let Some(Made { runner, setup, state: Some(state) }) = &mut self.made else {
            let failure = RemoteFailure::text("the worker has no state".to_owned());
            return Err(CallFailure::Error(failure));
        };
        let count = inputs.len() as u64;
        let wanted = Wanted::all();
        let flag = AbandonFlag::Call { revoked: &self.side.revoked, call: header.call };
        let cx = ProducerContext::new(setup, &wanted, &header.items)
            .with_attempt(header.attempt)
            .with_abandon_flag(Some(flag));
        let since = now();
        let outcome = match header.hook {
            WorkHook::Batch => call(Hook::ProducerWorkBatch, Site::default, || {
                runner.producer_work_batch(&cx, state, &mut inputs)
            }),
            WorkHook::Single => {
                let input = inputs.pop().expect("a call for one item has its input");
                let output = call(Hook::ProducerWork, Site::default, || {
                    runner.producer_work(&cx, state, input)
                });
                output.map(|output| vec![Ok(output)])
            }
        };
        self.in_hook = now() - since;
        drop_quietly(inputs);
        match outcome {
            Ok(outputs) if outputs.len() as u64 == count => Ok(outputs),
            Ok(outputs) => {
                let failure = CallFailure::Outputs { inputs: count, outputs: outputs.len() as u64 };
                drop_quietly(outputs);
                Err(failure)
            }
            Err(error) => {
                if error.is_panic()
                    && let Some(state) = self.made.as_mut().and_then(|made| made.state.take())
                {
                    drop_quietly(state);
                }
                Err(CallFailure::of(&self.side.recipe, *error))
            }
        }
    }

    fn done(
        &self,
        items: &ItemsHeader,
        outputs: Vec<Result<R::Output>>,
        since: Instant,
    ) -> Result<Vec<u8>, FrameError> {
        let outcome = |output: &Result<R::Output>| match output {
            Ok(_) => ItemOutcome::Output,
            Err(_) => ItemOutcome::Failure,
        };
        let call = items.call;
        let took = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let in_hook = u64::try_from(self.in_hook.as_nanos()).unwrap_or(u64::MAX);
        let outcomes = outputs.iter().map(outcome).collect();
        let header = Done { call, took, in_hook, outcomes };
        let written = frame(FrameKind::Done, self.side.most, |bytes| -> Result<()> {
            message::put(bytes, &header)?;
            for (item, output) in items.items.iter().zip(outputs) {
                message::put_part(bytes, |bytes| self.put_outcome(*item, output, bytes))?;
            }
            Ok(())
        });
        written.or_else(|error| {
            let failure = RemoteFailure::of(&self.side.recipe, unsent("output", &error));
            self.failed(call, CallFailure::Error(failure))
        })
    }

    fn put_outcome(&self, item: u64, output: Result<R::Output>, bytes: &mut Vec<u8>) -> Result<()> {
        match output {
            Ok(output) => {
                let written = self.side.recipe.items.encode_output(item, &output, bytes);
                drop_quietly(output);
                written
            }
            Err(error) => Ok(message::put(bytes, &RemoteFailure::of(&self.side.recipe, error))?),
        }
    }

    fn failed(&self, call: u64, failure: CallFailure) -> Result<Vec<u8>, FrameError> {
        message::encode(FrameKind::Failed, self.side.most, &Failed { call, failure })
    }

    /// Calls `producer_end`, answers, and ends the process. Returns if the answer cannot be written.
    fn end(&mut self) -> Option<FrameError> {
        let mut failure = None;
        if let Some(Made { runner, setup, state: Some(state) }) = self.made.take() {
            let wanted = Wanted::all();
            let cx = ProducerContext::new(&setup, &wanted, &[]);
            let ended = call(Hook::ProducerEnd, Site::default, || runner.producer_end(&cx, state));
            failure = ended.err().map(|error| CallFailure::of(&self.side.recipe, *error));
        }
        match message::encode(FrameKind::Bye, self.side.most, &Bye { failure }) {
            Ok(bye) => {
                self.side.outlet.send(&bye);
                process::exit(0)
            }
            Err(error) => Some(error),
        }
    }
}

impl<R: Runner> Made<R> {
    fn new(recipe: &Recipe<R>, init: &Init) -> Result<Self, CallFailure> {
        let (runner, cfg) = recipe.make(&init.cfg)?;
        let setup = setup(init, Arc::new(cfg));
        let setup = setup.map_err(|error| CallFailure::Cfg(RemoteFailure::of(recipe, error)))?;
        Ok(Made { runner, setup, state: None })
    }
}

fn setup(init: &Init, cfg: Arc<CfgNode>) -> Result<ProducerSetup> {
    let place: Place = device::place_from_text(&init.place)?;
    Ok(ProducerSetup {
        producer: init.producer as usize,
        cfg,
        producers: init.producers as usize,
        seed: init.seed,
        #[cfg(feature = "candle")]
        candle: crate::device::CandleDevices::new(
            &place,
            match init.names_only {
                true => crate::device::Meaning::Labels,
                false => crate::device::Meaning::Real,
            },
        ),
        #[cfg(feature = "rayon")]
        cpu_threads: init.cpu_threads.map(|threads| threads as usize),
        place,
        gpus: None,
    })
}
