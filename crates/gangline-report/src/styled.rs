//! A document as text for a terminal or a log.

use std::fmt;

use textwrap::core::display_width;

use super::document::{
    Block, Column, ColumnKind, Document, Layout, Medium, Section, Table, TableRow,
};
use super::formats::{Plain, before_traceback, clipped, shortened};
use crate::text_style::{Ink, TextStyle};

/// The error that ended a run is shortened to this many characters.
const LONGEST_ERROR: usize = 230;

/// A document as text in a style.
pub(super) struct Styled<'a> {
    pub(super) document: Document<'a>,
    pub(super) style: TextStyle,
}

impl fmt::Display for Styled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Styled { document, style } = self;
        let out = &mut TextLines { f, style: *style };
        out.text(&document.title, Some(document.ink))?;
        for (text, ink) in &document.leads {
            match ink {
                Some(Ink::Bad) => {
                    out.text(&shortened(before_traceback(text), LONGEST_ERROR), *ink)?;
                }
                Some(_) => out.text(text, *ink)?,
                // Sentences of ours, one a line.
                None => text.lines().try_for_each(|line| out.text(line, None))?,
            }
        }
        let is_last = |section: &&Section<'_>| section.line.is_some();
        let (last, first): (Vec<_>, Vec<_>) = document.sections.iter().partition(is_last);
        // Sections of sentences follow each other without a blank line.
        let mut is_sentences = false;
        for section in first.into_iter().chain(last) {
            let blocks: Vec<&Block<'_>> = blocks(section).collect();
            if blocks.is_empty() {
                continue;
            }
            let was_sentences = is_sentences;
            is_sentences = section.line.is_none() && !blocks.iter().any(|it| is_columns(it));
            if !(was_sentences && is_sentences) {
                out.line("", None)?;
            }
            if let Some(line) = &section.line {
                out.text(line, Some(Ink::Bad))?;
            }
            blocks.into_iter().try_for_each(|block| out.block(block))?;
        }
        Ok(())
    }
}

/// The blocks of a section that a text has.
fn blocks<'a>(section: &'a Section<'a>) -> impl Iterator<Item = &'a Block<'a>> {
    let blocks = section.blocks.iter().filter(|(medium, _)| *medium != Medium::Page);
    blocks.map(|(_, block)| block).filter(|block| match block {
        Block::Table(_) | Block::Paragraph(..) => true,
        Block::List(_, sentences, _) => !sentences.is_empty(),
        Block::Figures(_)
        | Block::Facts(_)
        | Block::BusyChart(..)
        | Block::GpuChart(_)
        | Block::ThroughputChart(_)
        | Block::DistributionChart(_) => false,
    })
}

fn is_columns(block: &Block<'_>) -> bool {
    matches!(block, Block::Table(table) if table.layout != Layout::Lines)
}

/// Writes lines of a style.
struct TextLines<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    style: TextStyle,
}

impl TextLines<'_, '_> {
    fn block(&mut self, block: &Block<'_>) -> fmt::Result {
        match block {
            Block::Table(table) => self.table(table),
            Block::List(indent, sentences, ink) => {
                sentences.iter().try_for_each(|it| self.entry(indent, it, *ink))
            }
            Block::Paragraph(text, ink) => self.text(text, *ink),
            _ => Ok(()),
        }
    }

    fn table(&mut self, table: &Table<'_>) -> fmt::Result {
        let rows = &table.rows[..table.rows.len().min(table.limits.text)];
        let columns = TextColumn::all(table);
        let is_narrow = self.style.columns < TextColumn::needed(&columns);
        match table.layout {
            Layout::Columns => self.columns(table, columns)?,
            Layout::ColumnsOrLines if !is_narrow => self.columns(table, columns)?,
            Layout::Lines | Layout::ColumnsOrLines => {
                for row in rows {
                    row.lines.iter().try_for_each(|line| self.entry("  ", line, row.ink))?;
                }
            }
        }
        if let Some(more) = table.more(rows.len()) {
            self.line(&format!("  {more}"), Some(Ink::Faint))?;
        }
        let mut notes = rows.iter().flat_map(|row| &row.notes);
        notes.try_for_each(|note| self.entry("  ", note, Some(Ink::Warning)))
    }

    fn columns(&mut self, table: &Table<'_>, mut columns: Vec<TextColumn<'_>>) -> fmt::Result {
        while TextColumn::needed(&columns) > self.style.columns {
            let ranks = columns.iter().map(|it| it.column.rank);
            let Some((least, _)) = ranks.enumerate().min_by_key(|(_, rank)| *rank) else { break };
            columns.remove(least);
        }
        self.line(&row(&columns, |it| it.column.head), Some(Ink::Faint))?;
        let rows = table.rows.iter().take(table.limits.text).enumerate();
        rows.into_iter().try_for_each(|(index, it)| {
            self.line(&row(&columns, |column| &column.cells[index]), it.ink)
        })
    }

    /// Writes an untrusted text, wrapped.
    fn text(&mut self, text: &str, ink: Option<Ink>) -> fmt::Result {
        self.entry("", text, ink)
    }

    /// Writes an untrusted text of a list, wrapped and indented.
    fn entry(&mut self, indent: &str, text: &str, ink: Option<Ink>) -> fmt::Result {
        let others = if indent.is_empty() { "" } else { "    " };
        let lines = self.style.wrapped(&Plain(text).to_string(), indent, others);
        lines.iter().try_for_each(|line| self.line(line, ink))
    }

    fn line(&mut self, line: &str, ink: Option<Ink>) -> fmt::Result {
        match ink {
            Some(ink) => writeln!(self.f, "{}", self.style.colors.paint(ink, line)),
            None => writeln!(self.f, "{line}"),
        }
    }
}

/// A column with the cells that a text shows.
struct TextColumn<'a> {
    column: &'a Column,
    cells: Vec<String>,
    width: usize,
}

impl<'a> TextColumn<'a> {
    fn all(table: &'a Table<'_>) -> Vec<Self> {
        let cell = |row: &TableRow<'_>, index: usize| {
            let text = row.cells[index].text();
            match table.columns[index].kind {
                ColumnKind::Text(most) => Plain(&clipped(&text, most)).to_string(),
                ColumnKind::Number | ColumnKind::LongText => Plain(&text).to_string(),
            }
        };
        let columns = table.columns.iter().enumerate().map(|(index, column)| {
            let rows = table.rows.iter().take(table.limits.text);
            let cells: Vec<String> = rows.map(|row| cell(row, index)).collect();
            let widths = cells.iter().map(|cell| display_width(cell));
            let width = widths.chain([column.head.len()]).max().unwrap_or(0);
            TextColumn { column, cells, width }
        });
        columns.collect()
    }

    /// The width of these columns.
    fn needed(columns: &[Self]) -> usize {
        columns.iter().map(|column| 2 + column.width).sum()
    }
}

/// Aligns numbers to the right and texts to the left.
fn row<'a>(columns: &'a [TextColumn<'_>], cell: impl Fn(&'a TextColumn<'_>) -> &'a str) -> String {
    let mut line = String::new();
    for column in columns {
        let text = cell(column);
        let space = " ".repeat(column.width.saturating_sub(display_width(text)));
        line.push_str("  ");
        match column.column.kind {
            ColumnKind::Number => line.extend([&space, text]),
            ColumnKind::Text(_) | ColumnKind::LongText => line.extend([text, &space]),
        }
    }
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::producer_report::WorkerReport;
    use crate::samples::{PlayedRun, eventful};
    use crate::text_style::Colors;

    #[test]
    fn a_report_is_lines_without_control_characters() {
        let text = eventful(64).to_string();
        assert!(text.lines().count() < 124, "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
        assert!(
            text.starts_with(
                "Denoising <micrographs>: finished in 12.0 s: 76,800 ok, 576 failed\n"
            )
        );
        assert!(text.contains("\nThe order limited the run: "));
        assert!(text.contains("\n  and 60 more workers\n"), "{text}");
        assert!(text.contains("\n  192 items in producer_work on 32 devices: the file is empty\n"));
        assert!(text.contains("\n    and 189 more items\n"));
    }

    #[test]
    fn columns_are_aligned() {
        let text = eventful(2).to_string();
        let lines: Vec<_> = text.lines().skip_while(|line| !line.starts_with("  #")).collect();
        assert!(
            lines[0].starts_with("  #  place   items  failed  busy  working  waiting"),
            "{text}"
        );
        let widths: Vec<_> = lines[..3].iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths, [widths[0]; 3]);
    }

    #[test]
    fn lost_producers_and_missing_measurements_are_stated() {
        let text = eventful(2).to_string();
        let lost = "worker 1 (cuda:1) was abandoned with its thread:";
        assert!(text.contains(lost), "{text}");
        assert!(!text.contains("No item events"));
        let mut told = PlayedRun::new(1);
        told.consume(500, 10);
        let quiet = told.end(1_000).to_string();
        assert!(quiet.contains("No item events: call `.timeline()`"), "{quiet}");
        assert!(!quiet.contains("p99") && !quiet.contains("failures:"), "{quiet}");
    }

    #[test]
    fn a_report_fits_whatever_the_width_of_characters() {
        for columns in [40, 80, 120] {
            let mut report = eventful(64);
            report.producers[3].place = "日本語".repeat(20);
            report.failures[2].key = Some("日本語".repeat(20));
            let text = report.styled(TextStyle::plain().columns(columns)).to_string();
            let longest = text.lines().map(display_width).max();
            assert!(longest <= Some(columns), "{longest:?} of {columns} columns: {text}");
        }
    }

    #[test]
    fn columns_are_left_out_from_the_least_important_on() {
        let head = |columns| {
            let text = eventful(2).styled(TextStyle::plain().columns(columns)).to_string();
            let head = text.lines().find(|line| line.starts_with("  #")).unwrap_or_default();
            head.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let wide = "# place items failed busy working waiting init p50 p90 p99 max";
        assert_eq!(head(120).join(" "), wide);
        assert_eq!(head(80).join(" "), "# place items failed busy working waiting p50 p99 max");
        assert_eq!(head(40).join(" "), "# place items failed busy");
    }

    #[test]
    fn workers_have_a_row_each() {
        let mut report = PlayedRun::new(2).end(1_000);
        assert!(!report.to_string().contains("wire wait"));
        let worker = |pid| WorkerReport {
            pid: Some(pid),
            restarts: 2,
            returned: 3,
            wire_wait: Duration::from_millis(4),
            bytes_down: 5_000_000,
            bytes_up: 6,
            ..WorkerReport::default()
        };
        report.producers[1].worker = Some(worker(123_456));
        let rows = |columns| {
            let text = report.styled(TextStyle::plain().columns(columns)).to_string();
            let rows = text.lines().skip_while(|line| !line.contains("pid")).take(2);
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        let head = "  #  host             pid  restarts  returned  wire wait    down   up";
        let row = "  1  this machine  123456         2         3    4.00 ms  5.0 MB  6 B";
        assert_eq!(rows(80), [head, row]);
        let narrow = rows(40)[0].split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(narrow.join(" "), "# host pid restarts");
        assert!(report.to_html().contains("<h2>Workers</h2>"), "{}", report.to_html());
    }

    #[test]
    fn only_colours_differ_between_styles() {
        let report = eventful(2);
        let colored = report.styled(TextStyle::plain().colors(Colors::On)).to_string();
        assert!(colored.starts_with("\u{1b}[33mDenoising"), "{colored}");
        assert_eq!(textwrap::core::display_width(&colored), display_width(&report.to_string()));
        let escapes = ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[2m", "\u{1b}[31m", "\u{1b}[33m"];
        let plain = escapes.iter().fold(colored, |text, escape| text.replace(escape, ""));
        assert_eq!(plain, report.to_string());
    }
}
