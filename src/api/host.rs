//! The worker's side of a cluster: a recipe's runner as a service of encoded items.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::api::pool::AnyOrderRunner;
use crate::api::service::Service;
use crate::backend::cluster::hosting::{Answer, Host, LoadSettings, Loaded, Task};
use crate::backend::process::message::{CallFailure, Terms};
use crate::backend::process::recipe::Recipe;
use crate::backend::process::remote;
use crate::base::panic::catch;
use crate::base::{BoxError, Result};
use crate::cfg::CfgNode;
use crate::error::Error;
use crate::runner::{ConsumerContext, ProducerContext, Runner};

impl<R: Runner + 'static> Host for Recipe<R> {
    fn recipe(&self) -> &'static str {
        self.name()
    }

    fn terms(&self) -> Terms {
        Recipe::terms(self)
    }

    fn load(&self, cfg: &str, settings: &LoadSettings) -> Result<Arc<dyn Loaded>, CallFailure> {
        let unread = |error: BoxError| CallFailure::Cfg(remote::describe(self, error));
        let mut cfg = CfgNode::from_yaml_str(cfg).map_err(|error| unread(error.into()))?;
        cfg.freeze();
        let made = catch(|| self.make(&cfg)).unwrap_or_else(|message| Err(message.into()));
        let runner = made.map_err(|error| CallFailure::Make(remote::describe(self, error)))?;
        let capacity = settings.devices.len();
        let mut builder = AnyOrderRunner::builder(Hosted { runner, recipe: *self }).cfg(cfg);
        builder = builder.devices(settings.devices.clone()).window(capacity);
        if let Some(limit) = settings.item_timeout {
            builder = builder.item_timeout(limit);
        }
        if let Some(limit) = settings.init_timeout {
            builder = builder.init_timeout(limit);
        }
        if let Some(bytes) = settings.stack_size {
            builder = builder.stack_size(bytes);
        }
        let pool = builder
            .build()
            .map_err(|error| CallFailure::Error(remote::describe(self, error.into())))?;
        Ok(Arc::new(HostService { service: pool.into_service(), recipe: *self, capacity }))
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
    type Input = Task;
    type Output = Vec<u8>;
    type ProducerState = R::ProducerState;
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<R::ProducerState> {
        self.runner.producer_init(cx)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        task: Task,
    ) -> Result<Vec<u8>> {
        let Task { item, attempt, input, over: _over } = task;
        let items = [item];
        let cx = cx.shown_as(&items).with_attempt(attempt);
        let input = self.recipe.decode_input(&input);
        let input = input.map_err(|error| format!("the input does not decode: {error}"))?;
        let output = self.runner.producer_work(&cx, state, input)?;
        if cfg!(debug_assertions) && item == 0 {
            self.recipe.check_output(&output)?;
        }
        let mut bytes = vec![];
        let encoded = self.recipe.encode_output(&output, &mut bytes);
        encoded.map_err(|error| format!("the output cannot be sent: {error}"))?;
        Ok(bytes)
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: R::ProducerState) -> Result<()> {
        self.runner.producer_end(cx, state)
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

/// A service, and how its failures are sent.
struct HostService<R: Runner + 'static> {
    service: Service<Hosted<R>>,
    recipe: Recipe<R>,
    capacity: usize,
}

impl<R: Runner + 'static> Loaded for HostService<R> {
    fn capacity(&self) -> usize {
        self.capacity
    }

    fn submit(&self, task: Task) -> Pin<Box<dyn Future<Output = Answer> + Send>> {
        let (call, recipe) = (self.service.call_async(task), self.recipe);
        Box::pin(async move {
            match call.await {
                Ok(output) => Answer::Output(output),
                Err(error) => failed(&recipe, error),
            }
        })
    }

    fn close(&self) {
        if let Err(error) = self.service.close() {
            tracing::warn!("a producer has not ended well: {error:#}");
        }
    }
}

fn failed<R: Runner>(recipe: &Recipe<R>, error: Error) -> Answer {
    let device = error.device().map(ToString::to_string);
    match error {
        Error::ServiceEnded { .. } | Error::Closed { .. } => Answer::Ended(format!("{error:#}")),
        Error::TimedOut { hook, limit, .. } => Answer::TimedOut { hook, limit, device },
        error => Answer::Failed { failure: remote::failure(recipe, error), device },
    }
}
