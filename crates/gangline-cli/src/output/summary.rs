//! The summary of a job among its results, as JSON.

use std::io;
use std::time::SystemTime;

use serde::Serialize;

use crate::output::outcome::JobOutcome;

/// How a job ended, for `job.json`.
#[derive(Serialize)]
pub(crate) struct Summary<'a> {
    number: u64,
    input: &'a str,
    command: &'a str,
    attempts: u32,
    slot: usize,
    gpus: Vec<String>,
    exit_code: Option<i32>,
    signal: Option<i32>,
    result: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended_with_run: bool,
    /// Seconds since 1970.
    started: f64,
    ended: f64,
    seconds: f64,
}

impl<'a> Summary<'a> {
    pub(crate) fn of(outcome: &'a JobOutcome) -> Summary<'a> {
        let (code, signal) = outcome.result.codes();
        let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Summary {
            number: outcome.number,
            input: &outcome.key,
            command: &outcome.command,
            attempts: outcome.attempts,
            slot: outcome.slot,
            gpus: outcome.gpu_ids(),
            exit_code: (signal == 0 && code >= 0).then_some(code),
            signal: (signal != 0).then_some(signal),
            result: outcome.result.to_string(),
            ended_with_run: outcome.result.is_ended_with_run(),
            started: started.as_secs_f64(),
            ended: (started + outcome.took).as_secs_f64(),
            seconds: outcome.took.as_secs_f64(),
        }
    }

    pub(crate) fn text(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        Ok(text)
    }
}
