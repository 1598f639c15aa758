//! Reports the outcomes of a lane's items to the scheduler. The outcome of a publication that the board does not have any
//! more is stale, so each is removed first.

use std::sync::Arc;
use std::time::Duration;

use gangline::error::{Crash, Site};
use gangline::{Error, Hook, Runner};

use super::LaneRun;
use crate::ClusterError;
use crate::publication::Reply;
use crate::wire::WorkerOutcome;

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
                let decoded = self.recipe.items().decode_output(&output);
                decoded.map_err(|source| Error::hook_failed(hook, self.site(&lease, host), source))
            }
            WorkerOutcome::Failed { failure, device } => {
                let site = on(device, self.site(&lease, host));
                Err(failure.into_error(self.recipe.items(), (hook, site)))
            }
            WorkerOutcome::TimedOut { is_init, nanos, device, ends_worker } => {
                if ends_worker {
                    self.desk.note_crash(lease.items[0]);
                }
                let hook = if is_init { Hook::ProducerInit } else { hook };
                let site = on(device, self.site(&lease, host));
                Err(Error::hook_timed_out(hook, site, Duration::from_nanos(nanos)))
            }
            WorkerOutcome::Crashed { signal, status, stderr, device } => {
                self.desk.note_crash(lease.items[0]);
                let site = on(device, self.site(&lease, host));
                Err(Error::hook_crashed(hook, site, Crash::new(signal, status, stderr)))
            }
            WorkerOutcome::Dropped => {
                self.figures.returned(1);
                return self.desk.release(lease.id);
            }
        };
        self.desk.settle(&lease, worked);
    }

    /// The attempt has failed because its worker is gone.
    pub(super) fn fail_lost(&mut self, publication: u64, host: Arc<str>) {
        let Some(publication) = self.remove(publication) else { return };
        let lease = publication.lease;
        self.desk.note_crash(lease.items[0]);
        let source = ClusterError::WorkerLost { host: host.clone() }.into();
        let error = Error::hook_failed(self.hook, self.site(&lease, Some(host)), source);
        self.desk.settle(&lease, Err(error));
    }

    /// The attempt has failed because the object store does not take the input.
    pub(super) fn fail_unsent(&mut self, publication: u64, source: Box<ClusterError>) {
        let Some(publication) = self.remove(publication) else { return };
        let lease = publication.lease;
        let error = Error::hook_failed(self.hook, self.site(&lease, None), source);
        self.desk.settle(&lease, Err(error));
    }
}

/// The site, on a device of the worker.
fn on(device: Option<String>, mut site: Site) -> Site {
    site.device = device.and_then(|device| device.parse().ok()).or(site.device);
    site
}
