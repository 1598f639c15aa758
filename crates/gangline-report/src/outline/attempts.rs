//! The sections of a report about attempts: their times, the slowest, and those that failed.

use super::producers::LONGEST_STAGE;
use crate::document::{Block, Medium, RowLimits, Section, TableOf};
use crate::formats::{Count, Time, capitalised, item, more, part};
use crate::retries::Retried;
use crate::run_report::RunReport;
use crate::sentences::retries;
use crate::slowest::SlowItem;
use crate::span::AttemptCounts;
use crate::text_style::Ink;

const RETRIED: RowLimits = RowLimits { text: 0, page: 1_000, open: 5 };
const SLOWEST: RowLimits = RowLimits { text: 0, open: 5, ..RowLimits::NONE };

pub(super) fn times(report: &RunReport) -> Option<Section<'_>> {
    let chart = Block::DistributionChart(AttemptCounts::of(&report.spans)?);
    let section = Section::new("Times of attempts").only(Medium::Page, chart);
    Some(match more(report.spans_left_out, "attempt") {
        Some(more) => section.explain(more),
        None => section,
    })
}

pub(super) fn slowest(report: &RunReport, key: usize) -> Option<Section<'_>> {
    if report.slowest.is_empty() {
        return None;
    }
    let words = report.words();
    let title = "The attempts that took the longest";
    let mut table = TableOf::new(title, SLOWEST, report.slowest.iter())
        .text(words.item, 0, usize::MAX, |it| item(words, it.item, it.key.as_deref(), key))
        .number("took", 0, |it| Time(it.took))
        .number(words.producer, 0, |it| it.producer);
    if !report.stages.is_empty() {
        let producer = |it: &&SlowItem| report.producers.get(it.producer);
        table = table.text("stage", 0, LONGEST_STAGE, |it| {
            producer(it).and_then(|it| it.stage.clone()).unwrap_or_default()
        });
    }
    if report.slowest.iter().any(|it| it.attempt > 1) {
        table = table.number("attempt", 0, |it| it.attempt);
    }
    if report.slowest.iter().any(|it| it.together > 1) {
        table = table.number("batch of", 0, |it| Count(it.together));
    }
    let heading = format!("Slowest {}", words.items);
    Some(Section::new(heading).only(Medium::Page, table.end()))
}

pub(super) fn retried(report: &RunReport, key: usize) -> Option<Section<'_>> {
    let summary = retries(report)?;
    let words = report.words();
    let title = format!("{} that were retried", capitalised(words.items));
    let name = |it: &&Retried| part(words, it.item, it.key.as_deref(), key, &it.parts);
    let table = TableOf::new(title, RETRIED, report.retries.list.iter())
        .counting(words.item, report.retries.left_out)
        .text(words.item, 0, usize::MAX, name)
        .number("failed attempts", 0, |it| it.failed_attempts)
        .text("outcome", 0, usize::MAX, |it| it.outcome.text())
        .errors("last error", |it| vec![(&*it.error).into()]);
    let section = Section::new("Retries").with(Block::Paragraph(summary, None));
    Some(section.only(Medium::Page, table.end()))
}

pub(super) fn split_batches(report: &RunReport) -> Option<Section<'_>> {
    let words = report.words();
    let summary = Block::Paragraph(report.splits.summary(words)?, Some(Ink::Warning));
    Some(Section::new(format!("Split {}", words.batches)).with(summary))
}
