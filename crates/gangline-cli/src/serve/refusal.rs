//! Answers without a result: a status and the reason, as JSON.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::execute::process::ProcessEnd;
use crate::output::outcome::{JobFailed, JobResult};
use gangline::Error;

/// Why a request, or one of its values, has no result.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Refusal {
    #[serde(rename = "error")]
    pub(crate) text: String,
    #[serde(serialize_with = "number")]
    pub(crate) status: StatusCode,
    /// The place of a syntax error in the body.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    place: Option<JsonPlace>,
    /// The seconds after which the caller may try again.
    #[serde(skip)]
    retry_after: Option<u64>,
}

/// A line, and a byte in that line, both from 1.
#[derive(Debug, Clone, Copy, Serialize)]
struct JsonPlace {
    line: usize,
    column: usize,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Refusal {
        Refusal { text: text.into(), status, place: None, retry_after: None }
    }

    /// Refuses a body that is not JSON.
    pub(crate) fn of_json(error: &serde_json::Error) -> Refusal {
        let place = JsonPlace { line: error.line(), column: error.column() };
        let text = format!("the body is not JSON: {error}");
        Refusal { place: Some(place), ..Refusal::new(StatusCode::BAD_REQUEST, text) }
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Refusal {
        Refusal { retry_after: Some(seconds), ..self }
    }

    /// Answers for a value that has failed. The text of a failure may name files of this machine, so callers get it
    /// only with `--show-errors`.
    pub(crate) fn of_failure(error: &Error, errors: ErrorTexts) -> Refusal {
        let timed_out = || Refusal::new(StatusCode::GATEWAY_TIMEOUT, TOO_LATE);
        let ending = || Refusal::new(StatusCode::SERVICE_UNAVAILABLE, ENDING).retry_after(1);
        if matches!(error, Error::DeadlineExceeded { .. }) {
            return timed_out();
        }
        if is_of_end(error) {
            return ending();
        }
        let text = match job_result(error) {
            Some(JobResult::Ended(ProcessEnd::TimedOut(_))) => return timed_out(),
            // The worker has written it for the caller.
            Some(JobResult::BadInput(why)) => return Refusal::new(StatusCode::BAD_REQUEST, why),
            Some(result) => result.error().unwrap_or_default(),
            None => format!("{error:#}"),
        };
        match errors {
            ErrorTexts::Shown => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, text),
            ErrorTexts::Hidden => Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, HIDDEN),
        }
    }
}

/// Whether callers see why a value has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorTexts {
    Shown,
    Hidden,
}

const TOO_LATE: &str = "there was no answer in time";
const ENDING: &str = "the server is ending";
const HIDDEN: &str = "the model failed for this value";

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = serde_json::to_vec(&self).expect("texts and numbers are JSON");
        let mut response = json(self.status, text);
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(axum::http::header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}

/// Gives an answer that hyper writes by itself a body. `None` if these bytes are no such answer.
pub(crate) fn with_body(head: &[u8]) -> Option<Vec<u8>> {
    let head = std::str::from_utf8(head).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let status = StatusCode::from_u16(status).ok().filter(StatusCode::is_client_error)?;
    let (before, after) = head.split_once("content-length: 0\r\n")?;
    let text = match status {
        StatusCode::URI_TOO_LONG => "the path is too long",
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            "the head of the request has more than 64 KiB, or more than 100 headers"
        }
        _ => "the head of the request is not that of HTTP/1.1",
    };
    let body = serde_json::to_string(&Refusal::new(status, text)).expect("texts are JSON");
    let length = body.len();
    let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    after.ends_with("\r\n").then(|| [before, &fields, after, &body].concat().into_bytes())
}

/// The answer to a connection on which another version of HTTP is spoken, such as the preface of HTTP/2.
pub(crate) fn of_version() -> Vec<u8> {
    let status = StatusCode::HTTP_VERSION_NOT_SUPPORTED;
    let text = "the server speaks HTTP/1.1 only: HTTP/2 needs a proxy in front of it";
    let body = serde_json::to_string(&Refusal::new(status, text)).expect("texts are JSON");
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n\
         {body}",
        body.len()
    )
    .into_bytes()
}

/// Whether the server has ended before the value had an answer.
pub(crate) fn is_of_end(error: &Error) -> bool {
    error.is_closed()
        || error.is_cancelled()
        || matches!(error, Error::ServiceEnded { .. })
        || matches!(job_result(error), Some(JobResult::Ended(ProcessEnd::Halted)))
}

fn job_result(error: &Error) -> Option<&JobResult> {
    let failed = std::error::Error::source(error)?.downcast_ref::<JobFailed>()?;
    Some(&failed.outcome.result)
}

/// Makes a response of a text that is JSON.
pub(crate) fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}
