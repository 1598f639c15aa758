//! Reports the outcomes of a lane's items to the scheduler. The outcome of a publication that the board does not have any
//! more is stale, so each is removed first.

use std::sync::Arc;
use std::time::Duration;

use super::LaneRun;
use crate::backends::cluster::publication::Reply;
use crate::backends::cluster::wire::WorkerOutcome;
use crate::base::Hook;
use crate::base::panic::drop_quietly;
use crate::error::{ClusterError, Crash, Error, Site};
use crate::run::settle;
use crate::runner::Runner;

impl<R: Runner> LaneRun<'_, R> {
    /// A worker has answered.
    pub(super) fn settle(&mut self, publication: u64, reply: Reply) {
        let Some(publication) = self.remove(publication) else { return };
        let (lease, published) = (publication.lease, publication.published);
        let Reply { outcome, output, host, busy, redeliveries } = reply;
        let hook = self.hook;
        self.figures.returned(redeliveries);
        let worked = match outcome {
            WorkerOutcome::Output => {
                self.figures.answered(published, busy, output.len());
                self.recipe.decode_output(&output).map_err(|source| Error::HookFailed {
                    hook,
                    site: Box::new(self.site(&lease, host)),
                    source,
                })
            }
            WorkerOutcome::Failed { failure, device } => {
                let site = on(device, self.site(&lease, host));
                Err(failure.into_error(self.recipe, (hook, site)))
            }
            WorkerOutcome::TimedOut { is_init, nanos, device, ends_worker } => {
                if ends_worker {
                    self.note_crash(lease.items[0]);
                }
                let hook = if is_init { Hook::ProducerInit } else { hook };
                let site = Box::new(on(device, self.site(&lease, host)));
                Err(Error::TimedOut { hook, site, limit: Duration::from_nanos(nanos) })
            }
            WorkerOutcome::Crashed { signal, status, stderr, device } => {
                self.note_crash(lease.items[0]);
                let site = Box::new(on(device, self.site(&lease, host)));
                let source = Crash::new(signal, status, stderr);
                Err(Error::HookCrashed { hook, site, source })
            }
            WorkerOutcome::Dropped => {
                self.figures.returned(1);
                return self.run.handover.dispatch.release(lease.id);
            }
        };
        if lease.attempt > 1 && worked.is_ok() {
            self.run.crashes.forget(lease.items[0]);
        }
        settle::one(self.run, self.lane, &lease, worked, &mut self.desk);
    }

    /// The attempt has failed because its worker is gone.
    pub(super) fn fail_lost(&mut self, publication: u64, host: Arc<str>) {
        let Some(publication) = self.remove(publication) else { return };
        let lease = publication.lease;
        let run = self.run;
        self.note_crash(lease.items[0]);
        let source = ClusterError::WorkerLost { host: host.clone() }.into();
        let site = Box::new(self.site(&lease, Some(host)));
        let error = Error::HookFailed { hook: self.hook, site, source };
        settle::one(run, self.lane, &lease, Err(error), &mut self.desk);
    }

    /// Counts a process that an item has ended. After too many, the item is not tried again: its kept input is dropped.
    fn note_crash(&self, item: u64) {
        let run = self.run;
        if run.crashes.is_poison(item) {
            let (spare, _) = run.handover.dispatch.schedule(|state, _| state.inputs.remove(item));
            spare.into_iter().for_each(drop_quietly);
        }
    }

    /// The attempt has failed because the object store does not take the input.
    pub(super) fn fail_unsent(&mut self, publication: u64, source: Box<ClusterError>) {
        let Some(publication) = self.remove(publication) else { return };
        let lease = publication.lease;
        let site = Box::new(self.site(&lease, None));
        let error = Error::HookFailed { hook: self.hook, site, source };
        settle::one(self.run, self.lane, &lease, Err(error), &mut self.desk);
    }
}

/// The site, on a device of the worker.
fn on(device: Option<String>, site: Site) -> Site {
    let device = device.and_then(|device| device.parse().ok());
    Site { device: device.or(site.device), ..site }
}
