//! What was measured, as text and as JSON.

use std::time::Duration;

use serde_json::{Value, json};

use crate::load::Load;

/// What did the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    PlainLoop,
    Gangline,
    PyTorch,
}

/// One arrangement of the same work.
pub(crate) struct Row {
    pub(crate) program: Program,
    pub(crate) name: String,
    /// The most items that are computed together.
    pub(crate) batch: usize,
    pub(crate) items: usize,
    pub(crate) took: Duration,
    pub(crate) load: Load,
}

impl Program {
    fn name(self) -> &'static str {
        match self {
            Program::PlainLoop => "plain loop",
            Program::Gangline => "gangline",
            Program::PyTorch => "pytorch",
        }
    }
}

impl Row {
    /// Items a second.
    pub(crate) fn rate(&self) -> f64 {
        self.items as f64 / self.took.as_secs_f64()
    }

    /// The mean time from one full batch to the next.
    pub(crate) fn time_of_batch(&self) -> Duration {
        self.took.mul_f64(self.batch as f64 / self.items as f64)
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "program": self.program.name(),
            "name": self.name,
            "batch": self.batch,
            "items": self.items,
            "seconds": self.took.as_secs_f64(),
            "items_per_second": self.rate(),
            "gpu_busy": self.load.busy,
            "gpu_memory_bytes": self.load.memory,
        })
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
