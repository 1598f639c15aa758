//! The routes of the server.

use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use tokio::sync::Semaphore;

use crate::args::serve::ServeArgs;
use crate::serve::access::AccessRule;
use crate::serve::answering::Answering;
use crate::serve::body;
use crate::serve::figures::ServerFigures;
use crate::serve::phase::{Phases, ServerPhase};
use crate::serve::predict;
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

const PAGE: &str = include_str!("page.html");
/// The page loads nothing, and connects to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'self'; base-uri 'none'";

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

    /// The number of values that are accepted and not answered.
    fn open(&self) -> u64 {
        let account = self.service.get().map(Service::account).unwrap_or_default();
        let background = self.service.get().map(Service::stream_account).unwrap_or_default();
        let ended = |of: Account| of.ok + of.failed + of.cancelled;
        let answered = ended(account).saturating_sub(ended(background));
        self.figures.accepted().saturating_sub(answered)
    }

    /// The figures of the page.
    fn stats(&self) -> serde_json::Value {
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
            "batches": { "lists": lists, "values": values, "largest": largest, "most": self.args.working.batch },
            "latency": self.figures.latencies(),
        })
    }
}

pub(crate) fn routes(app: Arc<App>) -> Router {
    Router::new()
        .route("/predict", post(predict::predict))
        .route("/health/live", get(async || StatusCode::OK))
        .route("/health/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/stats", get(stats))
        .route("/", get(page))
        .method_not_allowed_fallback(async |request: Request| {
            let text = format!("{} takes no {}", request.uri().path(), request.method());
            refuse(request, Refusal::new(StatusCode::METHOD_NOT_ALLOWED, text)).await
        })
        .fallback(async |request: Request| {
            let text = format!("there is no {}", request.uri().path());
            refuse(request, Refusal::new(StatusCode::NOT_FOUND, text)).await
        })
        .with_state(app)
}

async fn refuse(request: Request, refusal: Refusal) -> Refusal {
    let (parts, body) = request.into_parts();
    body::refuse(&parts.headers, body, refusal).await
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    match app.service() {
        Ok(_) => StatusCode::OK.into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

async fn metrics(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Refusal> {
    app.access.check(&headers)?;
    let form = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((form, app.figures.text(app.open())).into_response())
}

async fn stats(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Refusal> {
    app.access.check(&headers)?;
    let form = [(CONTENT_TYPE, "application/json"), (CACHE_CONTROL, "no-store")];
    Ok((form, app.stats().to_string()).into_response())
}

/// Returns the page. It contains no figure, so a request for it needs no token. Its script asks the user for the token.
async fn page() -> Response {
    let form = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, POLICY)];
    (form, PAGE).into_response()
}
