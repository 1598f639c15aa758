//! `--report`: files by their extensions.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::error::{CliError, Context};
use crate::exit;
use gangline::RunReport;

/// Writes the reports of the runs. Each of several lanes has its own file: `run.html`, `run-2.html`.
pub(crate) fn write_all(
    paths: &[impl AsRef<Path>],
    reports: &mut [RunReport],
) -> Result<(), CliError> {
    reports.iter_mut().for_each(as_typed);
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

/// Whether a report can be written to a file with that name.
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
        _ => format!("{report}\n"),
    };
    write_text(path, &text)
}

/// Replaces the arguments of the internal process by those that the user gave.
fn as_typed(report: &mut RunReport) {
    let command = &mut report.provenance.command;
    if let Some(hidden) = command.iter().position(|word| word == "--supervisor") {
        command.drain(hidden..(hidden + 2).min(command.len()));
    }
}

/// Writes a file, which appears whole or not at all.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<(), CliError> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    // The user's umask decides the permissions, as for other files.
    let mode = Permissions::from_mode(0o666);
    let written = tempfile::Builder::new()
        .permissions(mode)
        .tempfile_in(directory.unwrap_or(Path::new(".")))
        .and_then(|mut file| file.write_all(text.as_bytes()).map(|()| file))
        .and_then(|file| file.persist(path).map_err(|error| error.error));
    written.map(drop).map_err(|error| {
        let what = format!("the report {} cannot be written", path.display());
        CliError::new(exit::OUTPUT, Context::new(what, error))
    })
}

fn ending(path: &Path) -> &str {
    path.extension().and_then(|ending| ending.to_str()).unwrap_or_default()
}

fn numbered(path: &Path, number: usize) -> std::path::PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{number}.{}", ending(path)))
}
