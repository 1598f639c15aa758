//! A row of figures for each stage of a pipeline.

use super::producer::share;
use super::run_report::{RunReport, StageReport};
use super::text::{Count, Percent};

/// The heads of the figures, after the name of the stage.
pub(super) const HEADS: [&str; 8] =
    ["ok", "failed", "cancelled", "producers", "busy", "waiting", "window", "full"];

/// The figures of a stage, one for each of [`HEADS`].
pub(super) fn figures(stage: &StageReport) -> [String; 8] {
    let report = &stage.report;
    let mean = |of: fn(&RunReport, usize) -> f64| {
        let producers = report.producers.len();
        (0..producers).map(|producer| of(report, producer)).sum::<f64>() / producers.max(1) as f64
    };
    let waiting = |report: &RunReport, producer: usize| {
        share(report.producers[producer].waiting, report.lasted)
    };
    [
        Count(report.account.ok).to_string(),
        Count(report.account.failed).to_string(),
        Count(report.account.cancelled).to_string(),
        Count(report.producers.len() as u64).to_string(),
        Percent(mean(|report, producer| report.producers[producer].busy)).to_string(),
        Percent(mean(waiting)).to_string(),
        Count(report.window).to_string(),
        Percent(share(report.source_waiting, report.lasted)).to_string(),
    ]
}

/// Whether this stage, counted from 0, limited the run.
pub(super) fn is_limiting(report: &RunReport, stage: usize) -> bool {
    report.bottleneck_stage == Some(stage + 1)
}
