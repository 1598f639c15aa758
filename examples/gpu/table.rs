//! What was measured, as text.

use std::time::Duration;

use crate::load::Load;

/// One arrangement of the same work.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) items: usize,
    pub(crate) took: Duration,
    pub(crate) load: Load,
}

impl Row {
    pub(crate) fn rate(&self) -> f64 {
        self.items as f64 / self.took.as_secs_f64()
    }
}

pub(crate) const HEAD: &str =
    "arrangement                                      items/s  × one at a time  GPU busy  memory\n";

/// A line of the table. `one` is the rate of one item at a time, to which the others are compared.
pub(crate) fn line(row: &Row, one: f64) -> String {
    let (name, rate) = (&row.name, row.rate());
    let busy = row.load.busy.map_or_else(|| "-".into(), |share| format!("{:.0} %", 100.0 * share));
    let memory = row.load.memory.map_or_else(|| "-".into(), |b| format!("{} MiB", b >> 20));
    format!("{name:<46}{rate:>10.1}{:>17.2}{busy:>10}{memory:>10}\n", rate / one)
}
