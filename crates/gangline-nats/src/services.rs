//! The service of a worker: made for the first run that needs it, shared by runs that are alike.

use std::sync::Arc;
use std::time::Duration;

use gangline::Devices;
use gangline::backend::{BatchLimits, CallFailure, Mutex, lock, spawn};
use gangline_scheduler::batch::Batch;
use tokio::sync::{Notify, OwnedMutexGuard, oneshot};

use super::hosting::{HookPlace, Host, LoadSettings, LoadedRunner};
use super::wire::{BatchRule, BatchSizing, RunKey};

/// The one service that a worker has at a time.
///
/// Runs with an equal recipe and load share the service. Any other run waits until no run uses it; then the service is
/// ended, and another is made.
pub(super) struct Services {
    devices: Devices,
    place: HookPlace,
    /// `None` at first, and while a service is being made.
    current: Mutex<Option<Current>>,
    making: Arc<tokio::sync::Mutex<()>>,
    /// A run uses the service no more.
    freed: Notify,
}

struct Current {
    /// The key of the run for which it was made.
    key: RunKey,
    service: Arc<dyn LoadedRunner>,
    /// The number of runs that use it.
    users: usize,
}

/// The use of a service by a run, until it is dropped.
pub(super) struct ServiceInUse {
    pub(super) loaded: Arc<dyn LoadedRunner>,
    services: Arc<Services>,
}

impl Services {
    pub(super) fn new(devices: Devices, place: HookPlace) -> Self {
        let (current, making, freed) = (Mutex::new(None), Arc::default(), Notify::new());
        Services { devices, place, current, making, freed }
    }

    /// Waits for the service of a run. Fails with the reason if it cannot be made.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        key: &RunKey,
        host: &Arc<dyn Host + Send>,
    ) -> Result<ServiceInUse, String> {
        loop {
            let freed = self.freed.notified();
            // Held while a service is made: a device may not have room for the same state twice.
            let making = self.making.clone().lock_owned().await;
            let old = {
                let mut current = lock(&self.current);
                match &mut *current {
                    Some(it) if it.serves(key) => {
                        it.users += 1;
                        let (loaded, services) = (it.service.clone(), self.clone());
                        return Ok(ServiceInUse { loaded, services });
                    }
                    Some(it) if it.users > 0 => None,
                    _ => Some(current.take()),
                }
            };
            let Some(old) = old else {
                drop(making);
                freed.await;
                continue;
            };
            let made = tokio::spawn(self.clone().make(making, key.clone(), host.clone(), old));
            return made.await.unwrap_or_else(|error| Err(error.to_string()));
        }
    }

    /// Makes the service, also if its run ends meanwhile: the next run may want it.
    async fn make(
        self: Arc<Self>,
        _making: OwnedMutexGuard<()>,
        key: RunKey,
        host: Arc<dyn Host + Send>,
        old: Option<Current>,
    ) -> Result<ServiceInUse, String> {
        let service = self.load(key.clone(), host, old).await?;
        let loaded = service.clone();
        *lock(&self.current) = Some(Current { key, service, users: 1 });
        Ok(ServiceInUse { loaded, services: self })
    }

    /// Ends the old service, if there is one, and makes another. Both may block, so they run on a thread of their own.
    async fn load(
        &self,
        key: RunKey,
        host: Arc<dyn Host + Send>,
        old: Option<Current>,
    ) -> Result<Arc<dyn LoadedRunner>, String> {
        let size = |bytes| usize::try_from(bytes).ok();
        let settings = LoadSettings {
            devices: self.devices.clone(),
            seed: key.load.seed,
            item_timeout: key.load.item_nanos.map(Duration::from_nanos),
            init_timeout: key.load.init_nanos.map(Duration::from_nanos),
            stack_size: key.load.stack_size.and_then(size),
            batch: key.load.batch.map(batch_of),
            place: self.place.clone(),
        };
        off_the_runtime(move || {
            old.iter().for_each(|old| old.service.close());
            drop(old);
            host.load(&key.load.cfg, &settings).map_err(|failure| reason_of(&failure))
        })
        .await
    }

    /// Ends the service.
    pub(super) async fn close(&self) {
        let current = lock(&self.current).take();
        if let Some(current) = current {
            _ = off_the_runtime(move || {
                current.service.close();
                Ok(())
            })
            .await;
        }
    }
}

impl Current {
    fn serves(&self, key: &RunKey) -> bool {
        self.key.recipe == key.recipe && self.key.load == key.load
    }
}

impl Drop for ServiceInUse {
    fn drop(&mut self) {
        if let Some(current) = &mut *lock(&self.services.current) {
            current.users -= 1;
        }
        self.services.freed.notify_waiters();
    }
}

/// Runs work that may block on a thread of its own.
async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = oneshot::channel();
    // The thread is not joined: its last act is to answer.
    let thread = spawn("gangline-h".to_owned(), None, move || _ = sender.send(work()));
    thread.map_err(|error| error.source.to_string())?;
    receiver
        .await
        .unwrap_or_else(|_| Err("the thread that loads the runner has panicked".to_owned()))
}

fn batch_of(rule: BatchRule) -> BatchLimits {
    let BatchRule { most, wait_nanos, most_cost, most_padded, sizing } = rule;
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let rule = match sizing {
        BatchSizing::Given => Batch::up_to(most),
        BatchSizing::Rate => Batch::auto().at_most(most),
        BatchSizing::Latency { nanos } => {
            Batch::auto().at_most(most).latency(Duration::from_nanos(nanos))
        }
    };
    let rule = rule.within(Duration::from_nanos(wait_nanos));
    BatchLimits { rule, most_cost, most_padded }
}

/// A failure as one text.
pub(super) fn reason_of(failure: &CallFailure) -> String {
    match failure {
        CallFailure::Make(error) | CallFailure::Cfg(error) | CallFailure::Error(error) => {
            error.texts.join(": ")
        }
        CallFailure::Panic(text) => format!("a panic: {text}"),
        CallFailure::Outputs { .. } => "a wrong number of outputs".to_owned(),
    }
}
