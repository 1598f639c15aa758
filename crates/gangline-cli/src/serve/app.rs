//! What all requests share, and the figures of the server.

use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::args::list_size::ListSize;
use crate::args::serve::ServeArgs;
use crate::serve::access::AccessRule;
use crate::serve::answering::Answering;
use crate::serve::figures::ServerFigures;
use crate::serve::phase::{Phases, ServerPhase};
use crate::serve::refusal::{ErrorTexts, Refusal};
use crate::serve::workers::ServingWorkers;
use gangline::{Account, Service};

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) name: String,
    pub(crate) args: ServeArgs,
    pub(crate) access: AccessRule,
    pub(crate) phases: Arc<Phases>,
    pub(crate) workers: ServingWorkers,
    pub(crate) figures: ServerFigures,
    /// Set once the workers are ready. This handle has the time limit of `--timeout`.
    pub(crate) service: OnceLock<Service<Answering>>,
    /// The memory for bodies: one permit for each KiB.
    pub(crate) memory: Semaphore,
}

impl App {
    /// Makes the permits for bodies: enough for 16 of the largest, and for at least 256 MiB.
    pub(crate) fn memory_for(max_body: u64) -> Semaphore {
        let most = max_body.div_ceil(1 << 10).saturating_mul(16).max(256 << 10);
        Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS))
    }

    pub(crate) fn errors(&self) -> ErrorTexts {
        match self.args.http.show_errors {
            true => ErrorTexts::Shown,
            false => ErrorTexts::Hidden,
        }
    }

    /// Returns the service, if requests are accepted.
    pub(crate) fn service(&self) -> Result<&Service<Answering>, Refusal> {
        let refused = |text| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text);
        match (self.phases.now(), self.service.get()) {
            (ServerPhase::Ready, Some(service)) => Ok(service),
            (ServerPhase::Loading | ServerPhase::Ready, _) => {
                Err(refused("the workers are loading").retry_after(1))
            }
            (ServerPhase::Draining | ServerPhase::Closing, _) => {
                Err(refused("the server is ending"))
            }
        }
    }

    /// The refusal of a request that may be accepted later.
    pub(crate) fn busy(&self, text: &str) -> Refusal {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(self.figures.retry_after())
    }

    /// The number of values that are accepted and not answered.
    pub(crate) fn open(&self) -> u64 {
        let account = self.service.get().map(Service::account).unwrap_or_default();
        let background = self.service.get().map(Service::stream_account).unwrap_or_default();
        let ended = |of: Account| of.ok + of.failed + of.cancelled;
        let answered = ended(account).saturating_sub(ended(background));
        self.figures.accepted().saturating_sub(answered)
    }

    /// The figures of the page.
    pub(crate) fn stats(&self) -> serde_json::Value {
        let account = self.service.get().map(Service::account).unwrap_or_default();
        let (lists, values, largest) = self.workers.lane().lists.so_far();
        let state = match self.phases.now() {
            ServerPhase::Loading => "loading",
            ServerPhase::Ready => "ready",
            ServerPhase::Draining | ServerPhase::Closing => "draining",
        };
        json!({
            "name": self.name,
            "state": state,
            "uptime": self.figures.started.elapsed().as_secs_f64(),
            "workers": { "left": self.workers.left(), "all": self.workers.len() },
            "queue": {
                "open": self.open(),
                "most": self.service.get().map(Service::queue),
            },
            "values": { "ok": account.ok, "failed": account.failed, "cancelled": account.cancelled },
            "batches": { "lists": lists, "values": values, "largest": largest, "most": self.args.working.batch.map(ListSize::most) },
            "latency": self.figures.latencies(),
        })
    }
}
