//! `POST /predict`: the answer to a value, or to each value of an array.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;

use crate::serve::answering::Answering;
use crate::serve::app::App;
use crate::serve::body::{self, ReadBody};
use crate::serve::form::{BodyForm, form};
use crate::serve::refusal::{Refusal, json};
use crate::serve::values::AskedValues;
use gangline::Service;

pub(crate) async fn predict(State(app): State<Arc<App>>, request: Request) -> Response {
    // If the caller goes away, hyper drops this future. That gives up the values that it waits for.
    let visit = app.figures.begin();
    let response = answer(&app, request).await.unwrap_or_else(Refusal::into_response);
    visit.end(response.status());
    response
}

async fn answer(app: &App, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let (service, form) = match admit(app, &parts.headers) {
        Ok(admitted) => admitted,
        Err(refusal) => return Err(body::refuse(&parts.headers, body, refusal).await),
    };
    // The values take the memory of the body until the request is answered.
    let ReadBody { bytes, memory: _memory } = body::read(app, &parts.headers, body).await?;
    let values = AskedValues::read(&bytes, &form, service.queue())?;
    drop(bytes);
    match values {
        AskedValues::One(value) => one(app, service, value).await,
        AskedValues::Several(values) => several(app, service, values).await,
    }
}

fn admit<'a>(
    app: &'a App,
    headers: &HeaderMap,
) -> Result<(&'a Service<Answering>, BodyForm), Refusal> {
    app.access.check(headers)?;
    let service = app.service()?;
    let form = form(headers)?;
    Ok((service, form))
}

async fn one(
    app: &App,
    service: &Service<Answering>,
    value: Box<RawValue>,
) -> Result<Response, Refusal> {
    let submitted = service.try_submit(app.workers.value(&value));
    drop(value);
    let ticket = submitted.map_err(|_| app.busy(FULL))?;
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
    let tickets = service.try_submit_all(list).map_err(|_| app.busy(FULL))?;
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
