//! `--records`: a line of JSON for each job.

use std::borrow::Cow;
use std::ffi::OsString;
use std::io;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::output::outcome::{JobOutcome, Printed, StdoutForm};
use crate::plan::job::Job;
use crate::plan::value::Shape;

/// What became of a job. `docs/record.schema.json` describes it.
#[derive(Serialize)]
pub(crate) struct Record<'a> {
    item: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    causes: Option<Vec<String>>,
    /// Whether it was ended with the run, which is no failure of its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    ended_with_run: bool,
    /// The fields in which bytes that are not UTF-8 were replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lossy: Vec<&'static str>,
    attempts: u32,
    /// The machine, if it is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<&'a str>,
    slot: usize,
    gpus: Vec<String>,
    seconds: f64,
    /// Seconds since 1970.
    started: f64,
}

impl<'a> Record<'a> {
    /// Makes the record of a job: with its key and its input if there is a shape.
    pub(crate) fn of(
        outcome: &'a JobOutcome,
        printed: &Printed,
        shape: Option<&Shape>,
    ) -> io::Result<Record<'a>> {
        let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let input = shape.map(|shape| input(&outcome.fields, shape)).transpose()?;
        let error = outcome.result.error();
        let causes = error.as_ref().map(|_| outcome.result.causes());
        let output = match error {
            None => Some(text_or_value(printed)?),
            Some(_) => None,
        };
        let replaced = [("input", input.as_ref()), ("output", output.as_ref())].into_iter();
        let replaced = replaced.filter(|(_, value)| value.is_some_and(|it| it.is_lossy));
        let lossy = replaced.map(|(name, _)| name).collect();
        let [input, output] = [input, output].map(|value| value.map(|it| it.value));
        Ok(Record {
            item: outcome.number,
            key: shape.map(|_| &*outcome.key),
            input,
            output,
            error,
            causes,
            ended_with_run: outcome.result.is_ended_with_run(),
            lossy,
            attempts: outcome.attempts,
            host: outcome.host.as_deref(),
            slot: outcome.slot,
            gpus: outcome.gpu_ids(),
            seconds: outcome.took.as_secs_f64(),
            started: started.as_secs_f64(),
        })
    }

    /// Adds it to lines.
    pub(crate) fn write_line(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *lines, self)?;
        lines.push(b'\n');
        Ok(())
    }
}

/// The record of a job that an earlier run has done.
#[derive(Serialize)]
pub(crate) struct DoneRecord {
    item: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lossy: Vec<&'static str>,
    done: bool,
}

impl DoneRecord {
    /// Makes the record of a job: with its key and its input if there is a shape.
    pub(crate) fn of(job: &Job, shape: Option<&Shape>) -> io::Result<DoneRecord> {
        let input = shape.map(|shape| input(&job.fields, shape)).transpose()?;
        let lossy = input.iter().filter(|input| input.is_lossy).map(|_| "input").collect();
        let (key, input) = (shape.map(|_| job.key()), input.map(|input| input.value));
        Ok(DoneRecord { item: job.number, key, input, lossy, done: true })
    }

    /// Adds it to lines.
    pub(crate) fn write_line(&self, lines: &mut Vec<u8>) -> io::Result<()> {
        serde_json::to_writer(&mut *lines, self)?;
        lines.push(b'\n');
        Ok(())
    }
}

/// A value, and whether bytes that are not UTF-8 were replaced in it.
struct LossyValue {
    value: Box<RawValue>,
    is_lossy: bool,
}

/// The inputs of a job as a value.
fn input(fields: &[OsString], shape: &Shape) -> io::Result<LossyValue> {
    if let Some(value) = shape.value(fields) {
        return Ok(LossyValue { value, is_lossy: false });
    }
    Ok(LossyValue { value: shape.lossy_value(fields)?, is_lossy: true })
}

/// The output as a value: what a worker has answered, or the text that a command has printed.
pub(crate) fn output(printed: &Printed) -> io::Result<Box<RawValue>> {
    text_or_value(printed).map(|output| output.value)
}

fn text_or_value(printed: &Printed) -> io::Result<LossyValue> {
    let mut bytes = Vec::new();
    printed.stdout.write_to(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let value = match printed.form {
        StdoutForm::Stream => to_raw_value(&text)?,
        StdoutForm::Text => to_raw_value(line)?,
        StdoutForm::Json if line.is_empty() => to_raw_value(&())?,
        StdoutForm::Json => RawValue::from_string(line.to_owned())?,
    };
    Ok(LossyValue { value, is_lossy: matches!(text, Cow::Owned(_)) })
}
