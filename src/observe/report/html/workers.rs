//! The workers of producers on a page.

use super::markup::{MOST_PRODUCERS, more, section as begin};
use super::table::Table;
use crate::observe::report::run_report::RunReport;
use crate::observe::report::text::{Html, left_out};
use crate::observe::report::worker_rows::{HEADS, figures, workers};

pub(super) fn section(report: &RunReport) -> String {
    let workers = workers(report);
    if workers.is_empty() {
        return String::new();
    }
    let mut heads = vec!["producer", "<host"];
    heads.extend(&HEADS[1..]);
    let mut table = Table::new("The worker of each producer", &heads);
    for (number, worker) in workers.iter().take(MOST_PRODUCERS) {
        let mut row = vec![number.to_string()];
        row.extend(figures(worker).map(|figure| Html(&figure).to_string()));
        table.row(row);
    }
    let mut section = begin("Workers", &table.end());
    more(&mut section, left_out(MOST_PRODUCERS, workers.len(), 0), "workers");
    section.push_str(
        "<p class=\"note\">Returned: items that came back before a hook began them. Wire wait: the time in which a worker had \
         items while no hook ran. Down, up: bytes to the worker, and from it.</p>\n</section>\n",
    );
    section
}
