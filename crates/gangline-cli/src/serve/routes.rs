//! The routes of the server.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::serve::app::App;
use crate::serve::refusal::Refusal;
use crate::serve::{host, predict, unread_body};
use gangline::Service;

const PAGE: &str = include_str!("page.html");
/// The page loads nothing, and connects to this server only.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; img-src data:; form-action 'none'; frame-ancestors 'self'; base-uri 'none'";

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
        .layer(from_fn(host::check_request))
        .with_state(app)
}

async fn refuse(request: Request, refusal: Refusal) -> Refusal {
    let (parts, body) = request.into_parts();
    unread_body::refuse(&parts.headers, body, refusal).await
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
    let most = app.service.get().map(Service::queue);
    Ok((form, app.figures.text(app.open(), most)).into_response())
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
