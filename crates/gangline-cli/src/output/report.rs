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
    let failures = report.failures.iter_mut().chain(&mut report.ended_by);
    for failure in failures.chain(&mut report.splits.first) {
        let batch = failure.batch.iter_mut().flat_map(|it| [&mut it.first, &mut it.last]);
        let all = failure.item.iter_mut().chain(batch);
        all.for_each(|item| *item = numbers.of(*item));
    }
    let mut findings = report.findings().clone();
    let worst = findings.heads().filter_map(|head| head.worst.as_mut());
    worst.for_each(|(item, _)| *item = numbers.of(*item));
    report.conclude(findings);
    let stalls = report.stalls.iter_mut().map(|stall| &mut stall.item);
    let slowest = report.slowest.iter_mut().map(|slow| &mut slow.item);
    let spans = report.spans.iter_mut().map(|span| &mut span.item);
    let retried = report.retries.list.iter_mut().map(|retried| &mut retried.item);
    let incidents = report.incidents.iter_mut().filter_map(|incident| incident.item.as_mut());
    let all = stalls.chain(slowest).chain(spans).chain(retried).chain(incidents);
    all.for_each(|item| *item = numbers.of(*item));
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
    use gangline::report::{BatchRange, Failure, Vocabulary};

    #[test]
    fn texts_name_jobs_lists_and_slots() {
        let mut failure = Failure::default();
        (failure.item, failure.key) = (Some(30), Some("(slot x".to_owned()));
        failure.hook = Some("producer_work".to_owned());
        (failure.device, failure.producer, failure.attempts) = (Some("cpu".to_owned()), Some(0), 1);
        failure.happened = Some("failed".to_owned());
        let mut of_list = failure.clone();
        (of_list.item, of_list.key) = (None, None);
        of_list.causes = vec!["no item 8 (slot x".to_owned()];
        let mut batch = BatchRange::default();
        (batch.items, batch.first, batch.last) = (8, 8, 15);
        of_list.batch = Some(batch);
        let mut report = RunReport::default();
        (report.failures, report.splits.first) = (vec![failure], Some(of_list));
        let said = |numbers: &Numbers| {
            let mut report = report.clone();
            number_by_jobs(&mut report, numbers);
            report.speak(Vocabulary::Jobs);
            (report.failures.remove(0).error, report.splits.error.unwrap_or_default())
        };
        let (job, list) = said(&Numbers::FromOne);
        assert_eq!(job, "the command failed for job 31 (\"(slot x\") on cpu (slot 0, attempt 1)");
        let of_list = "the command failed for 8 jobs from 9 to 16 on cpu (slot 0, attempt 1)";
        assert_eq!(list, format!("{of_list}: no item 8 (slot x"));
        let (_, list) = said(&Numbers::Some((0..20).map(|item| 10 * item).collect()));
        assert!(list.contains("8 jobs from 80 to 150 on"), "{list}");
    }
}
