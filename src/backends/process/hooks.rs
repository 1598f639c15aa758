//! The worker's side of a recipe: calls the producer's hooks and answers.

use std::mem::take;
use std::panic::resume_unwind;
use std::process;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::answers::{CallAnswers, DeviceState, decode_batch, help};
use super::connection::{CoordinatorConnection, die, refuse};
use super::frame::{Frame, FrameKind};
use super::memory_writer::MemoryWriter;
use super::message::{
    self, Bye, CallNumber, Failed, HandedBack, Init, ItemsHeader, Returned, WorkHook,
};
use super::outlet::Outlet;
use super::queued_calls::{CallTimes, CommandReader, HookOutputs, Inputs, QueuedCalls, call_parts};
use super::worker_entry::Serve;
use crate::backends::memory::shared_bytes::{SharedBytes, reading};
use crate::backends::remote::failure::{CallFailure, RemoteFailure};
use crate::backends::remote::recipe::Recipe;
use crate::base::panic::drop_quietly;
use crate::base::{BoxError, Hook, Result};
use crate::cfg::CfgNode;
use crate::concurrency::now;
use crate::concurrency::spawn::spawn;
use crate::device::{self, Place};
use crate::error::{FrameError, Site};
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

/// Serves a coordinator until the process ends. The hooks run on the current thread; another one reads.
fn serve<R: Runner + 'static>(recipe: Recipe<R>, connection: CoordinatorConnection) -> ! {
    let revoked = Arc::new(AtomicU64::new(0));
    let (most, large) = (connection.max_frame(), connection.large_outputs());
    let socket = connection.socket.try_clone();
    let socket = socket.unwrap_or_else(|error| refuse(&connection.socket, error.to_string()));
    let (memory, spares) = (connection.own_memory(), connection.spares());
    memory.set_of_worker();
    let writer = MemoryWriter::new(memory, spares.clone());
    let outlet = Arc::new(Outlet::new(socket, writer, connection.returns()));
    let calls = Arc::<QueuedCalls<R::Input, R::Output>>::default();
    let mut reader =
        CommandReader { calls: calls.clone(), outlet: outlet.clone(), revoked: revoked.clone() };
    let runner = Arc::<OnceLock<Weak<R>>>::default();
    let answers = CallAnswers { recipe, most, large, spares, outlet: outlet.clone(), runner };
    let (queue, of_helper) = (calls.clone(), answers.clone());
    // Not joined: each ends the process, and both end with it.
    let started = spawn(READER.to_owned(), None, move || {
        let _end = EndOfThread;
        connection.read(&mut reader)
    });
    let started = started.and_then(|_| {
        spawn(HELPER.to_owned(), None, move || {
            let _end = EndOfThread;
            help(&of_helper, &queue)
        })
    });
    if let Err(error) = started {
        outlet.refuse(format!("{}: {}", error.name, error.source));
    }
    let (first, _) = calls.receive();
    match work_from(Side { answers, revoked }, calls, first) {
        Ok(()) => unreachable!("the last call ends the process"),
        Err(error) => outlet.refuse(error.to_string()),
    }
}

/// The name of the thread that reads.
const READER: &str = "gangline-r";

/// The name of the thread that prepares calls and answers them.
const HELPER: &str = "gangline-h";

/// Ends the process when its reader or its helper ends: without them, the hooks would wait for ever.
struct EndOfThread;

impl Drop for EndOfThread {
    fn drop(&mut self) {
        die();
    }
}

/// Calls the hooks, inside the pool of the producer if it has one. Returns only if it cannot begin.
///
/// The stack of the current thread has the size that it has. So if the coordinator asks for another, the hooks run on a
/// thread with the name of a producer's.
fn work_from<R: Runner + 'static>(
    side: Side<R>,
    calls: Arc<QueuedCalls<R::Input, R::Output>>,
    first: Frame,
) -> Result<(), FrameError> {
    let init: Init = message::decode(&first)?;
    let name = format!("gangline-p{}", init.producer);
    let stack_size = init.stack_size.and_then(|bytes| usize::try_from(bytes).ok());
    let setup = setup(&init, Arc::default()).map_err(|error| damaged(&error))?;
    let pool = CpuPool::of(&setup, &name, stack_size);
    let work = move || {
        pool.run(move |pooled| match pooled {
            Ok(()) => {
                ChildHooks { side, made: None, in_hook: Duration::ZERO, device: DeviceState::Works }
                    .work(first, &calls)
            }
            Err(error) => side.answers.outlet.refuse(format!("{error:#}")),
        })
    };
    if stack_size.is_none() {
        work();
        return Ok(());
    }
    let thread = spawn(name, stack_size, work);
    let thread = thread.map_err(|error| damaged(&BoxError::from(error.source)))?;
    thread.join().unwrap_or_else(|payload| resume_unwind(payload));
    Ok(())
}

fn damaged(error: &BoxError) -> FrameError {
    FrameError::Damaged { reason: error.to_string() }
}

/// This process's side of the connection.
struct Side<R: Runner> {
    answers: CallAnswers<R>,
    /// The number of the last call that the coordinator gave up.
    revoked: Arc<AtomicU64>,
}

/// The producer in this process.
struct ChildHooks<R: Runner> {
    side: Side<R>,
    made: Option<Made<R>>,
    /// How long the last call of a hook for items took.
    in_hook: Duration,
    device: DeviceState,
}

/// The runner, once it is made.
struct Made<R: Runner> {
    runner: Arc<R>,
    setup: ProducerSetup,
    /// `None` after a panic, until the coordinator asks for another.
    state: Option<R::ProducerState>,
}

impl<R: Runner> ChildHooks<R> {
    fn work(mut self, first: Frame, calls: &QueuedCalls<R::Input, R::Output>) -> ! {
        let (mut frame, mut prepared) = (first, None);
        loop {
            let failed = match frame.kind {
                FrameKind::Init => self.init(&frame, calls).err(),
                FrameKind::Items => self.work_on(&mut frame, prepared.flatten(), calls).err(),
                _ => self.end(calls),
            };
            if let Some(error) = failed {
                self.side.answers.outlet.refuse(error.to_string());
            }
            // With a lost device, the calls that were sent ahead would fail. They go back when this process has ended.
            if self.device == DeviceState::Lost {
                loop {
                    drop(calls.receive());
                }
            }
            self.side.answers.spares.give(frame.body);
            (frame, prepared) = calls.receive();
        }
    }

    fn init(
        &mut self,
        frame: &Frame,
        calls: &QueuedCalls<R::Input, R::Output>,
    ) -> Result<(), FrameError> {
        let init: Init = message::decode(frame)?;
        let (call, most) = (init.call, self.side.answers.most);
        let answer = match self.make_and_init(&init) {
            Ok(()) => message::encode(FrameKind::InitDone, most, &CallNumber { call })?,
            Err(failure) => {
                message::encode(FrameKind::InitFailed, most, &Failed { call, failure })?
            }
        };
        calls.await_finished();
        self.side.answers.outlet.send(answer.into());
        Ok(())
    }

    fn make_and_init(&mut self, init: &Init) -> Result<(), CallFailure> {
        let made = match &mut self.made {
            Some(made) => made,
            none => none.insert(Made::new(&self.side.answers.recipe, init)?),
        };
        // It is made once.
        _ = self.side.answers.runner.set(Arc::downgrade(&made.runner));
        if let Some(state) = made.state.take() {
            drop_quietly(state);
        }
        let wanted = Wanted::all();
        let flag = AbandonFlag::Call { revoked: &self.side.revoked, call: init.call };
        let cx = ProducerContext::new(&made.setup, &wanted, &[]).with_abandon_flag(Some(flag));
        let state = call(Hook::ProducerInit, Site::default, || made.runner.producer_init(&cx));
        made.state =
            Some(state.map_err(|error| CallFailure::of(&self.side.answers.recipe.items, *error))?);
        Ok(())
    }

    fn work_on(
        &mut self,
        frame: &mut Frame,
        prepared: Option<Inputs<R::Input>>,
        calls: &QueuedCalls<R::Input, R::Output>,
    ) -> Result<(), FrameError> {
        let attachments = take(&mut frame.attachments);
        let (header, parts) = call_parts(frame)?;
        let Side { answers, .. } = &self.side;
        if self.made.as_ref().is_none_or(|made| made.state.is_none()) {
            // The coordinator sent the call before it knew of the panic that has cost the state.
            let back = HandedBack { calls: vec![header.call] };
            let back = message::encode(FrameKind::HandedBack, answers.most, &back)?;
            answers.outlet.send(back.into());
            return Ok(());
        }
        let since = now();
        let inputs = prepared.unwrap_or_else(|| self.inputs(header.hook, &parts, &attachments));
        // The inputs hold what they need. The rest is let go with this answer, and not with the next.
        drop(attachments);
        let outputs = inputs.and_then(|inputs| self.call(&header, inputs));
        let times = CallTimes { took: now() - since, in_hook: self.in_hook };
        let outputs = outputs.map(|outputs| HookOutputs { header: header.clone(), outputs, times });
        self.device = self.answer(header.call, outputs, calls)?;
        Ok(())
    }

    /// CallAnswers a call, or has the helper do it while the next hook works.
    fn answer(
        &self,
        call: u64,
        outputs: Result<HookOutputs<R::Output>, CallFailure>,
        calls: &QueuedCalls<R::Input, R::Output>,
    ) -> Result<DeviceState, FrameError> {
        let Side { answers, .. } = &self.side;
        match outputs {
            // After a failure, what is sent behind it may not be worked on.
            Ok(outputs)
                if outputs.header.hook == WorkHook::Batch
                    && outputs.are_all_well()
                    && calls.is_followed() =>
            {
                let (took, in_hook) = outputs.times.numbers();
                let returned = Returned { call, took, in_hook };
                let returned = message::encode(FrameKind::Returned, answers.most, &returned)?;
                answers.outlet.send(returned.into());
                calls.hand_over(outputs);
                Ok(DeviceState::Works)
            }
            Ok(outputs) => {
                calls.await_finished();
                answers.answer(outputs)
            }
            Err(failure) => {
                calls.await_finished();
                answers.fail(call, failure)
            }
        }
    }

    fn inputs(
        &self,
        hook: WorkHook,
        parts: &[&[u8]],
        attachments: &[SharedBytes],
    ) -> Inputs<R::Input> {
        let recipe = &self.side.answers.recipe;
        if hook == WorkHook::Batch
            && let Some(made) = &self.made
        {
            return decode_batch(recipe, &made.runner, parts, attachments);
        }
        let inputs = reading(attachments, || {
            parts.iter().map(|part| recipe.items.decode_input(part)).collect::<Result<_>>()
        });
        inputs.map_err(|error| CallFailure::Error(RemoteFailure::of(&recipe.items, error)))
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
                Err(CallFailure::of(&self.side.answers.recipe.items, *error))
            }
        }
    }

    /// Calls `producer_end`, answers, and ends the process. Returns if the answer cannot be written.
    fn end(&mut self, calls: &QueuedCalls<R::Input, R::Output>) -> Option<FrameError> {
        calls.await_finished();
        let (answers, mut failure) = (self.side.answers.clone(), None);
        if let Some(Made { runner, setup, state: Some(state) }) = self.made.take() {
            let wanted = Wanted::all();
            let cx = ProducerContext::new(&setup, &wanted, &[]);
            let ended = call(Hook::ProducerEnd, Site::default, || runner.producer_end(&cx, state));
            failure = ended.err().map(|error| CallFailure::of(&answers.recipe.items, *error));
        }
        match message::encode(FrameKind::Bye, answers.most, &Bye { failure }) {
            Ok(bye) => {
                answers.outlet.send(bye.into());
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
        let setup =
            setup.map_err(|error| CallFailure::Cfg(RemoteFailure::of(&recipe.items, error)))?;
        Ok(Made { runner: Arc::new(runner), setup, state: None })
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
