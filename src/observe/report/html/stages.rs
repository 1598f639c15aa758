//! The stages of a pipeline on its page.

use super::markup::{push, section as begin, with_code};
use super::table::Table;
use crate::observe::report::run_report::RunReport;
use crate::observe::report::stage_rows::{HEADS, figures, is_limiting};
use crate::observe::report::text::Html;

pub(super) fn section(report: &RunReport) -> String {
    if report.stages.is_empty() {
        return String::new();
    }
    let mut heads = vec!["<stage"];
    heads.extend(HEADS);
    let mut table = Table::new("Items and times of each stage", &heads);
    for (number, stage) in report.stages.iter().enumerate() {
        let tag = match is_limiting(report, number) {
            true => " <span class=\"tag\">limited the run</span>",
            false => "",
        };
        let mut row = vec![format!("{}{tag}", Html(&stage.name))];
        row.extend(figures(stage).map(|figure| Html(&figure).to_string()));
        table.row(row);
    }
    let mut section = begin("Stages", &table.end());
    section.push_str("<ul>\n");
    for stage in report.stages.iter().filter(|stage| !stage.report.conclusion.is_empty()) {
        let conclusion = with_code(&Html(&stage.report.conclusion).to_string());
        push(&mut section, format_args!("<li>{}: {conclusion}</li>\n", Html(&stage.name)));
    }
    section.push_str(
        "</ul>\n<p class=\"note\">Busy, waiting: the average of the producers. Full: the time with a full \
         window.</p>\n</section>\n",
    );
    section
}
