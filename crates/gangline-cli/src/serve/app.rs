//! What all requests share, and the figures of the server.

use std::sync::{Arc, OnceLock};

use axum::http::StatusCode;
use serde_json::json;

use crate::args::list_size::ListSize;
use crate::args::serve::ServeArgs;
use crate::serve::access::AccessRule;
use crate::serve::answering::AnswerService;
use crate::serve::figures::ServerFigures;
use crate::serve::memory::{NoRoom, RequestMemory};
use crate::serve::open_count::OpenCount;
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
    pub(crate) service: OnceLock<AnswerService>,
    pub(crate) memory: RequestMemory,
    /// The requests that are admitted, and whose values have no place in the queue yet.
    pub(crate) uploads: OpenCount,
}

impl App {
    pub(crate) fn errors(&self) -> ErrorTexts {
        if self.args.http.show_errors { ErrorTexts::Shown } else { ErrorTexts::Hidden }
    }

    /// Returns the service, if requests are accepted.
    pub(crate) fn service(&self) -> Result<&AnswerService, Refusal> {
        match (self.phases.now(), self.service.get()) {
            (ServerPhase::Ready, Some(service)) => Ok(service),
            (ServerPhase::Loading | ServerPhase::Ready, _) => {
                let text = "the workers are loading";
                Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, text).retry_after(1))
            }
            (ServerPhase::Draining | ServerPhase::Closing, _) => Err(ending()),
        }
    }

    /// The refusal of a request that may be accepted later.
    pub(crate) fn busy(&self, text: &str) -> Refusal {
        Refusal::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(self.figures.retry_after())
    }

    /// The refusal of a request, or of a value, for whose answer there is no memory.
    pub(crate) fn no_room(&self, room: NoRoom) -> Refusal {
        match room {
            NoRoom::Now => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, UNREAD)
                .retry_after(self.figures.retry_after()),
            NoRoom::Ever => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, TOO_LARGE),
        }
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
            "uploads": self.uploads.count(),
            "values": { "ok": account.ok, "failed": account.failed, "cancelled": account.cancelled },
            "batches": { "lists": lists, "values": values, "largest": largest, "most": self.args.working.batch.map(ListSize::most) },
            "latency": self.figures.latencies(),
        })
    }
}

/// The refusal of a request that comes after the signal, or whose body does not end in time.
pub(crate) fn ending() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending")
}

const UNREAD: &str = "answers that are not read yet fill the memory";
const TOO_LARGE: &str =
    "the answer is larger than the memory for answers: ask for fewer values at once";
