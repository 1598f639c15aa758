//! The load and the memory of GPUs over a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::formats::{Bytes, Percent};
use crate::seconds;

/// The load and the memory of a GPU over a run, as its driver reports them.
///
/// They are those of the whole GPU, so other programs count too.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuLoad {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Its memory in bytes.
    pub memory_total: u64,
    /// Its load and its memory in use, in the order of time.
    pub samples: Vec<GpuSample>,
}

/// The load and the memory of a GPU at one time of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuSample {
    /// The time from the start of the run.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// The share of the last moments in which the GPU computed, from 0 to 1.
    pub busy: f64,
    /// The memory in use, in bytes.
    pub memory_used: u64,
}

impl GpuLoad {
    pub(super) fn sentence(&self) -> String {
        let GpuLoad { device, memory_total, samples } = self;
        let busy: f64 = samples.iter().map(|sample| sample.busy).sum();
        let memory = samples.iter().map(|sample| sample.memory_used).max().unwrap_or(0);
        format!(
            "{device} computed for {} of the time, and at most {} of its {} of memory were in use.",
            Percent(busy / samples.len().max(1) as f64),
            Bytes(memory),
            Bytes(*memory_total)
        )
    }

    /// The share of the memory that was in use, from 0 to 1.
    pub(super) fn memory_share(&self, sample: &GpuSample) -> f64 {
        sample.memory_used as f64 / self.memory_total.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunReport;
    use crate::samples::{HOSTILE, eventful};

    fn report() -> RunReport {
        let sample = |at, busy, memory_used: u64| GpuSample {
            at: Duration::from_secs(at),
            busy,
            memory_used: memory_used * 1_000_000_000,
        };
        let samples = vec![sample(3, 0.0, 1), sample(6, 1.0, 79), sample(12, 1.0, 40)];
        let memory_total = 80_000_000_000;
        let first = GpuLoad { device: "cuda:0".to_owned(), memory_total, samples };
        let lost = GpuLoad { device: HOSTILE.to_owned(), ..GpuLoad::default() };
        RunReport { gpus: vec![first, lost], ..eventful(2) }
    }

    #[test]
    fn the_text_has_the_mean_load_and_the_most_memory() {
        let text = report().to_string();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let sentence = "cuda:0 computed for 67 % of the time, and at most 79.0 GB of its 80.0 GB of memory \
                        were in use.";
        assert!(words.contains(sentence), "{text}");
        assert!(!eventful(2).to_string().contains("of memory"), "no GPU was measured");
    }

    #[test]
    fn the_page_has_a_row_for_the_load_and_one_for_the_memory() {
        let page = report().to_html();
        let section =
            page.split("<h2>GPUs</h2>").nth(1).unwrap().split("</section>").next().unwrap();
        let rows: Vec<&str> = section.split("<svg ").skip(1).collect();
        assert_eq!(rows.len(), 4, "{section}");
        // A quarter idle, then full; an eighth for a little memory, the whole, and the half.
        assert!(rows[0].contains("fill-opacity=\"1\" d=\"M250.00 0h750.00"), "{}", rows[0]);
        let memory =
            [(0.125, "M0.00 0h250.00"), (1.0, "M250.00 0h250.00"), (0.5, "M500.00 0h500.00")];
        for (opacity, path) in memory {
            let path = format!("fill-opacity=\"{opacity}\" d=\"{path}");
            assert!(rows[1].contains(&path), "{path}: {}", rows[1]);
        }
        assert!(!page.contains(HOSTILE));
        assert!(!eventful(2).to_html().contains("<h2>GPUs</h2>"));
    }

    #[test]
    fn json_keeps_the_samples() {
        let report = report();
        assert_eq!(RunReport::from_json(&report.to_json()).unwrap(), report);
    }
}
