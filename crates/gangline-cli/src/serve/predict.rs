//! `POST /predict`: the answer to a value, or to each value of an array.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;
use tokio::sync::SemaphorePermit;

use crate::serve::answering::Answering;
use crate::serve::app::App;
use crate::serve::body::{self, BodyForm, BodyLimits};
use crate::serve::refusal::{Refusal, json};
use crate::serve::values::AskedValues;
use gangline::Service;

/// A request whose body is to be read.
struct AdmittedRequest<'a> {
    service: &'a Service<Answering>,
    form: BodyForm,
    /// That of the body, until the request is answered.
    memory: SemaphorePermit<'a>,
}

pub(crate) async fn predict(State(app): State<Arc<App>>, request: Request) -> Response {
    // If the caller goes away, hyper drops this future. That gives up the values that it waits for.
    let visit = app.figures.begin();
    let response = answer(&app, request).await.unwrap_or_else(Refusal::into_response);
    visit.end(response.status());
    response
}

async fn answer(app: &App, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let admitted = match admit(app, &parts.headers) {
        Ok(admitted) => admitted,
        Err(refusal) => return Err(body::refuse(&parts.headers, body, refusal).await),
    };
    let AdmittedRequest { service, form, memory: _memory } = admitted;
    let limits = BodyLimits { bytes: app.args.http.max_body, time: app.args.http.idle_timeout };
    let body = body::read(&parts.headers, body, limits).await?;
    let values = match form {
        BodyForm::Json => AskedValues::of_json(&body, service.queue())?,
        BodyForm::Bytes => AskedValues::of_bytes(&body),
    };
    drop(body);
    match values {
        AskedValues::One(value) => one(app, service, value).await,
        AskedValues::Several(values) => several(app, service, values).await,
    }
}

fn admit<'a>(app: &'a App, headers: &HeaderMap) -> Result<AdmittedRequest<'a>, Refusal> {
    app.access.check(headers)?;
    let service = app.service()?;
    let form = body::form(headers)?;
    let memory = memory(app, headers.get(CONTENT_LENGTH))?;
    Ok(AdmittedRequest { service, form, memory })
}

/// Takes the memory for a body. A body of unknown length takes that of the largest.
fn memory<'a>(
    app: &'a App,
    length: Option<&axum::http::HeaderValue>,
) -> Result<SemaphorePermit<'a>, Refusal> {
    let most = app.args.http.max_body;
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(most);
    let needed = length.min(most).div_ceil(1 << 10).max(1);
    let permits = app.memory.try_acquire_many(u32::try_from(needed).unwrap_or(u32::MAX));
    permits.map_err(|_| busy(app, "the bodies of other requests fill the memory for them"))
}

async fn one(
    app: &App,
    service: &Service<Answering>,
    value: Box<RawValue>,
) -> Result<Response, Refusal> {
    let submitted = service.try_submit(app.workers.value(&value));
    drop(value);
    let ticket = submitted.map_err(|_| busy(app, FULL))?;
    app.figures.accept(1);
    let answer = ticket.await.map_err(|error| Refusal::of_failure(&error, app.errors()))?;
    Ok(json(StatusCode::OK, answer.get().to_owned()))
}

/// Answers each value of an array, in their order. In the place of a value that has failed stands the object of its
/// failure. If all have failed, the response has the status of the first failure.
async fn several(
    app: &App,
    service: &Service<Answering>,
    values: Vec<Box<RawValue>>,
) -> Result<Response, Refusal> {
    let list = values.iter().map(|value| app.workers.value(value)).collect();
    drop(values);
    let tickets = service.try_submit_all(list).map_err(|_| busy(app, FULL))?;
    let count = tickets.len();
    app.figures.accept(count);
    let mut text = String::from("[");
    let (mut failed, mut status) = (0_usize, None);
    for (at, ticket) in tickets.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match ticket.await {
            Ok(answer) => text.push_str(answer.get()),
            Err(error) => {
                let refusal = Refusal::of_failure(&error, app.errors());
                text.push_str(&serde_json::to_string(&refusal).expect("texts are JSON"));
                failed += 1;
                status.get_or_insert(refusal.status);
            }
        }
    }
    text.push(']');
    let status = status.filter(|_| failed == count).unwrap_or(StatusCode::OK);
    let mut response = json(status, text);
    if failed > 0 {
        response.headers_mut().insert("gangline-failed", failed.into());
    }
    Ok(response)
}

const FULL: &str = "the queue is full";

fn busy(app: &App, text: &str) -> Refusal {
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(app.figures.retry_after())
}
