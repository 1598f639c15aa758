//! `POST /predict`: the answer to a value, or to each value of an array.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::value::RawValue;

use crate::serve::answering::{AnswerService, AnswerTicket};
use crate::serve::app::App;
use crate::serve::body::{self, ReadBody};
use crate::serve::form::{BodyForm, form};
use crate::serve::memory::{HeldMemory, ServedAnswer, answer_bytes};
use crate::serve::refusal::{Refusal, json};
use crate::serve::unread_body::refuse;
use crate::serve::values::AskedValues;

pub(crate) async fn predict(State(app): State<Arc<App>>, request: Request) -> Response {
    // If the caller goes away, hyper drops this future. That gives up the values that it waits for.
    let visit = app.figures.begin();
    let response = answer(&app, request).await.unwrap_or_else(Refusal::into_response);
    visit.end(response.status());
    response
}

async fn answer(app: &App, request: Request) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    // Before the phase is asked for: the end of the server waits for uploads that were admitted.
    let upload = app.uploads.begin();
    let (service, form) = match admit(app, &parts.headers) {
        Ok(admitted) => admitted,
        Err(refusal) => {
            drop(upload);
            return Err(refuse(&parts.headers, body, refusal).await);
        }
    };
    let ReadBody { bytes, memory } = body::read(app, &parts.headers, body).await?;
    let values = AskedValues::read(&bytes, &form, service.queue())?;
    drop(bytes);
    let values = Submitted::new(app, service, values, memory)?;
    drop(upload);
    values.answer(app).await
}

fn admit<'a>(app: &'a App, headers: &HeaderMap) -> Result<(&'a AnswerService, BodyForm), Refusal> {
    app.access.check(headers)?;
    let service = app.service()?;
    let form = form(headers)?;
    Ok((service, form))
}

/// Values that have their places in the queue. They take the memory of the body until the request is answered.
enum Submitted {
    One(AnswerTicket, HeldMemory),
    Several(Vec<AnswerTicket>, HeldMemory),
}

impl Submitted {
    fn new(
        app: &App,
        service: &AnswerService,
        values: AskedValues,
        memory: HeldMemory,
    ) -> Result<Submitted, Refusal> {
        let budget = Some(&app.memory);
        match values {
            AskedValues::One(value) => {
                let submitted = service.try_submit(app.workers.value(&value, budget));
                let ticket = submitted.map_err(|_| app.busy(FULL))?;
                app.figures.accept(1);
                Ok(Submitted::One(ticket, memory))
            }
            AskedValues::Several(values) => {
                let list = values.iter().map(|value| app.workers.value(value, budget)).collect();
                let tickets = service.try_submit_all(list).map_err(|_| app.busy(FULL))?;
                app.figures.accept(tickets.len());
                Ok(Submitted::Several(tickets, memory))
            }
        }
    }

    async fn answer(self, app: &App) -> Result<Response, Refusal> {
        match self {
            Submitted::One(ticket, _body) => {
                let (text, memory) = answer_of(app, ticket).await?;
                Ok(json(StatusCode::OK, answer_bytes(text, memory)))
            }
            Submitted::Several(tickets, _body) => several(app, tickets).await,
        }
    }
}

/// Waits for the answer to a value.
async fn answer_of(
    app: &App,
    ticket: AnswerTicket,
) -> Result<(Box<RawValue>, HeldMemory), Refusal> {
    match ticket.await {
        Ok(ServedAnswer::Kept { text, memory }) => Ok((text, memory)),
        Ok(ServedAnswer::Dropped(room)) => Err(app.no_room(room)),
        Err(error) => Err(Refusal::of_failure(&error, app.errors())),
    }
}

/// Answers each value of an array, in their order. In the place of a value that has failed stands the object of its
/// failure. If all have failed, the response has the status of the first failure.
async fn several(app: &App, tickets: Vec<AnswerTicket>) -> Result<Response, Refusal> {
    let count = tickets.len();
    let (mut text, mut held) = (String::from("["), HeldMemory::default());
    let (mut failed, mut status) = (0_usize, None);
    for (at, ticket) in tickets.into_iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        match answer_of(app, ticket).await {
            Ok((answer, memory)) => {
                text.push_str(answer.get());
                held.add(memory);
            }
            Err(refusal) => {
                text.push_str(&serde_json::to_string(&refusal).expect("texts are JSON"));
                failed += 1;
                status.get_or_insert(refusal.status);
            }
        }
    }
    text.push(']');
    let status = status.filter(|_| failed == count).unwrap_or(StatusCode::OK);
    let mut response = json(status, answer_bytes(text, held));
    if failed > 0 {
        response.headers_mut().insert("gangline-failed", failed.into());
    }
    Ok(response)
}

const FULL: &str = "the queue is full";
