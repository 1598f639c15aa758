//! `gangline report`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use gangline::RunReport;
use gangline::report::{Settings, TextStyle};
use serde::Deserialize;

use crate::args::report::{ReportArgs, WhatIf};
use crate::error::{CliError, Context};
use crate::exit;
use crate::output::report;

/// Shows a report that was written as JSON, or what changed between two.
pub(crate) fn show(args: &ReportArgs) -> Result<Vec<u8>, CliError> {
    if let Some(file) = args.file.as_ref().filter(|_| !args.what_if.is_empty()) {
        return predict(file, &args.what_if);
    }
    let style = TextStyle::of_stdout();
    let (text, page) = match (&args.file, args.compare.as_slice()) {
        (Some(file), _) => {
            let report = read(file)?;
            (report.styled(style).to_string(), args.html.is_some().then(|| report.to_html()))
        }
        (None, [before, after]) => {
            let (before, after) = (read(before)?, read(after)?);
            let comparison = before.compare(&after);
            (
                comparison.styled(style).to_string(),
                args.html.is_some().then(|| comparison.to_html()),
            )
        }
        _ => unreachable!("one file or two are required"),
    };
    match (&args.html, page) {
        (Some(path), Some(page)) => report::write_text(path, &page).map(|()| Vec::new()),
        _ => Ok(text.into_bytes()),
    }
}

/// How long the run would have taken with these settings, all together.
fn predict(file: &Path, asked: &[WhatIf]) -> Result<Vec<u8>, CliError> {
    let settings = asked.iter().fold(Settings::new(), |settings, it| it.added_to(settings));
    let prediction = read(file)?.what_if(&settings);
    match prediction.settings == Settings::new() {
        true => Err(CliError::new(exit::INPUT, prediction.to_string())),
        false => Ok(format!("{prediction}\n").into_bytes()),
    }
}

fn read(path: &Path) -> Result<RunReport, CliError> {
    let path_text = path.display();
    let unread = |error| {
        let what = format!("the report {path_text} cannot be read");
        CliError::new(exit::INPUT, Context::new(what, error))
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unread)?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > LARGEST {
        let text = format!("{path_text} is no report: it has more than {} MiB", LARGEST >> 20);
        return Err(CliError::new(exit::INPUT, text));
    }
    let is_report = serde_json::from_str(&text).is_ok_and(|it: ReportVersion| it.version.is_some());
    // The library's text names its methods.
    RunReport::from_json(&text).ok().filter(|_| is_report).ok_or_else(|| {
        let text = format!("{path_text} is no report that `gangline run --report FILE.json` wrote");
        CliError::new(exit::INPUT, text)
    })
}

/// What every report has. The library reads any object as a report, with its defaults.
#[derive(Deserialize)]
struct ReportVersion {
    version: Option<u64>,
}

/// The largest report that is read, in bytes. One of a run with a million jobs is far smaller.
const LARGEST: u64 = 256 << 20;
