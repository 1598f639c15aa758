//! `--report`: files by their extensions.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{CliError, Context};
use crate::exit;
use crate::output::place::parent;
use gangline::RunReport;
use tempfile::NamedTempFile;

/// The numbers of a lane's jobs, in the order in which the library counts them.
#[derive(Debug, Clone)]
pub(crate) enum Numbers {
    /// All from 1 on.
    FromOne,
    /// Those of a job file that are in this lane.
    Some(Vec<u64>),
}

impl Numbers {
    fn of(&self, item: u64) -> u64 {
        match self {
            Numbers::FromOne => item + 1,
            Numbers::Some(numbers) => {
                let number = usize::try_from(item).ok().and_then(|item| numbers.get(item));
                // A file that grew during the run has jobs without a number.
                number.copied().unwrap_or(item + 1)
            }
        }
    }
}

/// Puts the numbers of jobs, as messages and logs have them, in the place of the library's indices.
pub(crate) fn number_by_jobs(report: &mut RunReport, numbers: &Numbers) {
    for failure in &mut report.failures {
        if let Some(item) = &mut failure.item {
            let number = numbers.of(*item);
            failure.error = of_job(&failure.error, *item, number);
            *item = number;
        }
    }
    if let Some(text) = &report.splits.error {
        let text = of_list(text, numbers).unwrap_or_else(|| text.clone());
        report.splits.error = Some(text);
    }
    let stalls = report.stalls.iter_mut().map(|stall| &mut stall.item);
    let slowest = report.slowest.iter_mut().map(|slow| &mut slow.item);
    let spans = report.spans.iter_mut().map(|span| &mut span.item);
    let retried = report.retries.list.iter_mut().map(|retried| &mut retried.item);
    for incident in &mut report.incidents {
        if let Some(item) = incident.item {
            incident.text = of_job(&incident.text, item, numbers.of(item));
        }
    }
    let incidents = report.incidents.iter_mut().filter_map(|incident| incident.item.as_mut());
    let all = stalls.chain(slowest).chain(spans).chain(retried).chain(incidents);
    all.for_each(|item| *item = numbers.of(*item));
}

/// Turns the library's text about an item into one about a job.
fn of_job(text: &str, item: u64, number: u64) -> String {
    let Some(rest) = rest_of_failure(text) else { return text.to_owned() };
    let rest = rest.replacen(&format!("item {item}"), &format!("job {number}"), 1);
    // The key of the job comes before it, and may be any text.
    match rest.rsplit_once("(producer ") {
        Some((job, slot)) => format!("the command failed for {job}(slot {slot}"),
        None => format!("the command failed for {rest}"),
    }
}

/// Turns the library's text about a batch, with its cause, into one about a list of jobs.
fn of_list(text: &str, numbers: &Numbers) -> Option<String> {
    let (count, rest) = rest_of_failure(text)?.split_once(" items from ")?;
    let (first, rest) = rest.split_once(" to ")?;
    let (last, rest) = rest.split_once(' ')?;
    let (first, last) = (numbers.of(first.parse().ok()?), numbers.of(last.parse().ok()?));
    let rest = rest.replacen("(producer ", "(slot ", 1);
    Some(format!("the command failed for {count} jobs from {first} to {last} {rest}"))
}

/// What the library's text says after the hook that works on jobs.
fn rest_of_failure(text: &str) -> Option<&str> {
    let (hook, rest) = text.split_once(" failed for ")?;
    matches!(hook, "producer_work" | "producer_work_batch").then_some(rest)
}

/// Writes the reports of the runs. Each of several lanes has its own file: `run.html`, `run-2.html`.
pub(crate) fn write_all(paths: &[impl AsRef<Path>], reports: &[RunReport]) -> Result<(), CliError> {
    for path in paths.iter().map(AsRef::as_ref) {
        for (lane, report) in reports.iter().enumerate() {
            match lane {
                0 => write(path, path, report)?,
                lane => write(&numbered(path, lane + 1), path, report)?,
            }
        }
    }
    Ok(())
}

/// Checks that a report can be written: after the run it would be lost.
pub(crate) fn check_place(path: &Path) -> Result<(), CliError> {
    match path.is_dir() {
        true => Err(unwritten(path, io::ErrorKind::IsADirectory.into())),
        // A file without a name: an interrupt at this moment leaves none behind.
        false => match tempfile::tempfile_in(parent(path)) {
            Ok(_) => Ok(()),
            Err(error) => Err(unwritten(path, error)),
        },
    }
}

/// Whether a report can have that name.
pub(crate) fn check(path: &Path) -> Result<(), CliError> {
    match ending(path) {
        "html" | "json" | "trace" | "txt" => Ok(()),
        _ => Err(CliError::new(
            exit::USAGE,
            format!(
                "the report {} needs a name that ends in .html, .json, .trace or .txt",
                path.display()
            ),
        )),
    }
}

fn write(path: &Path, named: &Path, report: &RunReport) -> Result<(), CliError> {
    let text = match ending(named) {
        "html" => report.to_html(),
        "json" => report.to_json(),
        "trace" => report.to_trace(),
        _ => report.to_string(),
    };
    write_text(path, &text)
}

/// Replaces the arguments of the internal process by those that the user gave.
pub(crate) fn as_typed(report: &mut RunReport) {
    let command = &mut report.provenance.command;
    if let Some(hidden) = command.iter().position(|word| word == "--supervisor") {
        command.drain(hidden..(hidden + 2).min(command.len()));
    }
}

/// Writes a file, which appears whole or not at all.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), CliError> {
    let written = unfinished(path)
        .and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file))
        .and_then(|file| file.persist(path).map_err(|error| error.error));
    written.map(drop).map_err(|error| unwritten(path, error))
}

/// A file in the folder of another, which it is to replace.
fn unfinished(path: &Path) -> io::Result<NamedTempFile> {
    // The user's umask decides the permissions, as for other files.
    let mode = Permissions::from_mode(0o666);
    tempfile::Builder::new().permissions(mode).tempfile_in(parent(path))
}

fn unwritten(path: &Path, error: io::Error) -> CliError {
    let what = format!("the report {} cannot be written", path.display());
    CliError::new(exit::OUTPUT, Context::new(what, error))
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn numbered(path: &Path, number: usize) -> std::path::PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{}", ending(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_jobs_and_slots() {
        for hook in ["producer_work", "producer_work_batch"] {
            let text = format!(
                "{hook} failed for item 30 (\"(producer x\") on cpu (producer 0, attempt 1)"
            );
            let said = "the command failed for job 31 (\"(producer x\") on cpu (slot 0, attempt 1)";
            assert_eq!(of_job(&text, 30, 31), said);
        }
        assert_eq!(of_job("./a failed for item 3: no", 3, 4), "./a failed for item 3: no");
    }

    #[test]
    fn texts_name_lists() {
        let text = "producer_work_batch failed for 8 items from 8 to 15 on cpu (producer 1, attempt 1): no (producer x";
        let said =
            "the command failed for 8 jobs from 9 to 16 on cpu (slot 1, attempt 1): no (producer x";
        assert_eq!(of_list(text, &Numbers::FromOne).as_deref(), Some(said));
        let some = Numbers::Some((0..20).map(|item| 10 * item).collect());
        assert!(of_list(text, &some).is_some_and(|text| text.contains("8 jobs from 80 to 150 on")));
        assert_eq!(of_list("no text of the library", &some), None);
    }
}
