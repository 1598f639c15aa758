//! The worker's side of a cluster: a recipe's runner as a service of encoded items.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use gangline::backend::{
    BatchHook, BatchLimits, CallFailure, CodecFormat, ErrorCodec, InProcesses, Relay,
    RemoteFailure, SeatTime, Terms, is_untried, unsent,
};
use gangline::process::{Processes, Recipe};
use gangline::{AnyOrderRunner, ConsumerContext, Error, ProducerContext, Result, Runner, Service};
use gangline_scheduler::batch::Batch;

use crate::environment::OWN_VARIABLES;
use crate::hook_times::HookTimes;
use crate::hosting::{HookPlace, Host, ItemTask, LoadSettings, LoadedRunner, TaskAnswer, Timeout};

impl<R: Runner + 'static> Host for Recipe<R> {
    fn recipe(&self) -> &'static str {
        self.items().name()
    }

    fn terms(&self) -> Terms {
        self.items().terms()
    }

    fn load(
        &self,
        cfg: &str,
        settings: &LoadSettings,
    ) -> Result<Arc<dyn LoadedRunner>, CallFailure> {
        let (runner, cfg) = self.make(cfg)?;
        // Half of what the window has for each producer is the largest batch that may be chosen.
        let of_rule = |rule: Batch| if rule.is_chosen() { 2 * rule.most() } else { rule.most() };
        let largest = settings.batch.map_or(1, |batch| of_rule(batch.rule));
        let capacity = settings.devices.len().saturating_mul(largest);
        let mut builder = AnyOrderRunner::builder(Hosted { runner, recipe: *self }).cfg(cfg);
        builder = builder.devices(settings.devices.clone()).window(capacity).seed(settings.seed);
        if let Some(limit) = settings.item_timeout {
            builder = builder.item_timeout(limit);
        }
        if let Some(limit) = settings.init_timeout {
            builder = builder.init_timeout(limit);
        }
        if let Some(bytes) = settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        if let Some(BatchLimits { rule, most_cost, most_padded }) = settings.batch {
            builder = builder.batch(rule);
            if let Some(most) = most_cost {
                builder = builder.max_batch_cost(most, |task: &ItemTask| task.size.cost);
            }
            if let Some(most) = most_padded {
                builder = builder.max_padded_size(most, |task: &ItemTask| task.size.padded);
            }
        }
        if let HookPlace::Processes(processes) = &settings.place {
            let (encode_input, decode_output, origin) = (relay_input, relay_output, origin_of);
            let relay = Relay { encode_input, decode_output, origin };
            let own = OWN_VARIABLES.into_iter();
            let processes = own.fold((**processes).clone(), Processes::env_remove);
            builder = builder.backend(InProcesses::new(self.items().relayed(relay), processes));
        }
        let pool = builder
            .build()
            .map_err(|error| CallFailure::Error(RemoteFailure::of(self.items(), error.into())))?;
        let producers = settings.devices.len();
        Ok(Arc::new(HostService {
            service: pool.into_service(),
            recipe: *self,
            producers,
            capacity,
        }))
    }

    fn share(&self) -> Arc<dyn Host + Send> {
        Arc::new(*self)
    }
}

/// A runner that gets encoded inputs, and gives encoded outputs. Its hooks see the indices of the coordinator.
struct Hosted<R: Runner> {
    runner: R,
    recipe: Recipe<R>,
}

impl<R: Runner + 'static> Runner for Hosted<R> {
    type Input = ItemTask;
    type Output = Vec<u8>;
    type ProducerState = R::ProducerState;
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<R::ProducerState> {
        self.runner.producer_init(cx)
    }

    fn batch_hook(&self) -> BatchHook {
        self.runner.batch_hook()
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: R::ProducerState) -> Result<()> {
        self.runner.producer_end(cx, state)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        task: ItemTask,
    ) -> Result<Vec<u8>> {
        begin(std::slice::from_ref(&task));
        let items = [task.item];
        let cx = cx.shown_as(&items, task.attempt);
        let input = self.recipe.items().decode_input(&task.input)?;
        let output = self.runner.producer_work(&cx, state, input)?;
        self.encode(task.item, &output)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        tasks: &mut Vec<ItemTask>,
    ) -> Result<Vec<Result<Vec<u8>>>> {
        begin(tasks);
        let decode = |task: &ItemTask| self.recipe.items().decode_input(&task.input);
        let decoded: Result<Vec<_>> = tasks.iter().map(decode).collect();
        // The tasks stay if the batch fails, so that it can be divided: one alone shows its own error.
        let mut inputs = decoded?;
        let items: Vec<_> = tasks.iter().map(|task| task.item).collect();
        let attempt = tasks.iter().map(|task| task.attempt).max().unwrap_or(1);
        let cx = cx.shown_as(&items, attempt);
        let outputs = self.runner.producer_work_batch(&cx, state, &mut inputs)?;
        keep_untried(tasks, &outputs);
        // The service counts the outputs.
        let numbers = items.iter().copied().chain(std::iter::repeat(u64::MAX));
        let outputs = outputs.into_iter().zip(numbers);
        Ok(outputs.map(|(output, item)| self.encode(item, &output?)).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: Vec<u8>) -> Result<()> {
        unreachable!("a service calls no hook of the consumer")
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

impl<R: Runner> Hosted<R> {
    fn encode(&self, item: u64, output: &R::Output) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        let encoded = self.recipe.items().encode_output(item, output, &mut bytes);
        encoded.map_err(|error| unsent("output", &error))?;
        Ok(bytes)
    }
}

/// Keeps the tasks of items that the hook has not tried, for a smaller batch. They have the encoded inputs, so it does not
/// matter which inputs the hook has left.
fn keep_untried<T>(tasks: &mut Vec<ItemTask>, outputs: &[Result<T>]) {
    let mut untried =
        outputs.iter().map(|it| it.as_ref().is_err_and(|error| is_untried(error.as_ref())));
    tasks.retain(|_| untried.next().unwrap_or(false));
}

/// Tells the coordinator that a hook of this process begins these items, and waits until it can know.
fn begin(tasks: &[ItemTask]) {
    let confirmed: Vec<_> = tasks.iter().map(|task| (task.begin)()).collect();
    // They end without a message.
    confirmed.iter().for_each(|it| _ = it.recv());
}

/// Sends a task to a child process. Its end does not end this process, so nothing waits for the coordinator.
fn relay_input(_: CodecFormat, task: &ItemTask, bytes: &mut Vec<u8>) -> Result<()> {
    drop((task.begin)());
    bytes.extend_from_slice(&task.input);
    Ok(())
}

fn relay_output(_: CodecFormat, bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(bytes.to_vec())
}

fn origin_of(task: &ItemTask) -> (u64, u32) {
    (task.item, task.attempt)
}

/// A service, and how its failures are sent.
struct HostService<R: Runner + 'static> {
    service: Service<Hosted<R>>,
    recipe: Recipe<R>,
    producers: usize,
    capacity: usize,
}

impl<R: Runner + 'static> LoadedRunner for HostService<R> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn producers(&self) -> usize {
        self.producers
    }

    fn init(&self) -> Duration {
        let times = self.service.hook_times();
        times.into_iter().map(|time| time.init).max().unwrap_or_default()
    }

    fn hook_times(&self) -> HookTimes {
        let of_one = |time: SeatTime| HookTimes {
            working: time.working,
            states_lost: time.states_lost,
            rebuilds: time.rebuilds,
            rebuilding: time.rebuilding,
        };
        let times = self.service.hook_times().into_iter().map(of_one);
        times.fold(HookTimes::default(), HookTimes::and)
    }

    fn submit(&self, task: ItemTask) -> Pin<Box<dyn Future<Output = TaskAnswer> + Send>> {
        let (call, recipe) = (self.service.call_async(task), self.recipe);
        Box::pin(async move {
            match call.await {
                Ok(output) => TaskAnswer::Output(output),
                Err(error) => failed(recipe.items(), error),
            }
        })
    }

    fn close(&self) {
        if let Err(error) = self.service.close() {
            tracing::warn!("a producer has not ended well: {error:#}");
        }
    }
}

/// The items of a batch that failed as a whole share its error.
fn of_batch(codec: &dyn ErrorCodec, error: &Error) -> TaskAnswer {
    let device = error.device().map(ToString::to_string);
    match error {
        Error::TimedOut { hook, limit, .. } => {
            TaskAnswer::TimedOut(Timeout { hook: *hook, limit: *limit, device })
        }
        Error::HookCrashed { source, .. } => TaskAnswer::Crashed { crash: source.clone(), device },
        error => TaskAnswer::Failed { failure: CallFailure::of_shared(codec, error), device },
    }
}

fn failed(codec: &dyn ErrorCodec, error: Error) -> TaskAnswer {
    let device = error.device().map(ToString::to_string);
    match error {
        Error::ServiceEnded { .. } | Error::Closed { .. } => {
            TaskAnswer::Ended { reason: format!("{error:#}"), timeout: timeout_in(&error) }
        }
        Error::HookCrashed { source, .. } => TaskAnswer::Crashed { crash: source, device },
        // The error of the batch: each of its items has failed by itself.
        Error::BatchFailed { source: Some(source), .. } => of_batch(codec, &source),
        Error::TimedOut { hook, limit, .. } => {
            TaskAnswer::TimedOut(Timeout { hook, limit, device })
        }
        error => TaskAnswer::Failed { failure: CallFailure::of(codec, error), device },
    }
}

/// What took too long, if that has ended a service.
fn timeout_in(error: &Error) -> Option<Timeout> {
    match error {
        Error::ServiceEnded { source, .. } => timeout_in(source),
        Error::TooFewProducers { source: Some(source), .. } => timeout_in(source),
        Error::TimedOut { hook, limit, .. } => {
            let device = error.device().map(ToString::to_string);
            Some(Timeout { hook: *hook, limit: *limit, device })
        }
        _ => None,
    }
}
