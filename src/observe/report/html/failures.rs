//! The failures of a run on its page.

use super::markup::{more, push, section as begin};
use super::table::Table;
use crate::observe::failure::Failure;
use crate::observe::report::failure_text::site;
use crate::observe::report::run_report::RunReport;
use crate::observe::report::text::{Html, clipped, left_out, part};

const MOST: usize = 1_000;

/// Further failures are collapsed, so that the rest of the page is not far.
const SHOWN: usize = 10;

const UNDELIVERED: &str = "Failed, counted as cancelled";

/// Longer texts are collapsed.
const LONGEST: usize = 200;

pub(super) fn section(report: &RunReport) -> String {
    list(report, "Failures", &report.failures, report.failures_left_out)
        + &list(report, UNDELIVERED, &report.failures_undelivered, 0)
}

fn list(report: &RunReport, heading: &str, failures: &[Failure], others: u64) -> String {
    if failures.is_empty() && others == 0 {
        return String::new();
    }
    let item_head = format!("<{}", report.words().item);
    let mut table = Table::new("Final failures", &[&*item_head, "<where", "<<error"]);
    for failure in failures.iter().take(MOST) {
        table.row(row(report, failure));
    }
    let mut section = begin(heading, &table.end_after(SHOWN));
    more(&mut section, left_out(MOST, failures.len(), others), "failures");
    section + "</section>\n"
}

/// Escapes a text of the user's; a long one is collapsed.
pub(super) fn text(text: &str) -> String {
    let short = clipped(text, LONGEST);
    if short.len() == text.len() {
        return Html(text).to_string();
    }
    let lines: Vec<_> = text.lines().map(|line| Html(line).to_string()).collect();
    format!("<details><summary>{}</summary><pre>{}</pre></details>", Html(&short), lines.join("\n"))
}

fn row(report: &RunReport, failure: &Failure) -> Vec<String> {
    let of = match failure.item {
        Some(index) => part(report.words(), index, failure.key.as_deref(), &failure.parts),
        None => "the run".to_owned(),
    };
    // The innermost cause is the most specific text. Around it are those that name item and place.
    let mut texts = failure.causes.iter().rev().chain([&failure.error]);
    let mut error = texts.next().map_or(String::new(), |reason| text(reason));
    for outer in texts {
        push(&mut error, format_args!("<div class=\"note\">{}</div>", text(outer)));
    }
    vec![Html(&of).to_string(), Html(&site(report, failure)).to_string(), error]
}
