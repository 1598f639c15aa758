//! Describes the machine that is measured.

use std::fs;
use std::process::Command;
use std::thread;

use crate::effort::Effort;
use crate::options::Options;
use crate::report::{Report, Table};

pub fn describe(options: &Options, report: &mut Report) {
    report.heading("The machine");
    let mut table = Table::new(["", ""]);
    let unknown = || "unknown".to_owned();
    table.row(["processor".to_owned(), processor().unwrap_or_else(unknown)]);
    table.row(["cores".to_owned(), cores().to_string()]);
    table.row(["system".to_owned(), answer("uname", &["-sr"]).unwrap_or_else(unknown)]);
    table.row(["compiler".to_owned(), answer("rustc", &["-V"]).unwrap_or_else(unknown)]);
    table.row(["gangline".to_owned(), version()]);
    table.row(["date".to_owned(), answer("date", &["-u", "+%F"]).unwrap_or_else(unknown)]);
    report.table(&table);
    report.paragraph(&settings(options));
}

/// The CPUs that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn settings(options: &Options) -> String {
    let effort = match options.effort {
        Effort::Smoke => "A smoke run: the figures are not significant. ",
        Effort::Quick => "A quick run. ",
        Effort::Full => "",
    };
    format!(
        "{effort}Producers, and threads of the peers: {}. Rounds: {}.",
        options.threads, options.rounds
    )
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match answer("git", &["describe", "--always", "--dirty"]) {
        Some(commit) => format!("{version}, {commit}"),
        None => version.to_owned(),
    }
}

fn answer(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program).args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.is_empty()).then(|| text.trim().to_owned())
}
