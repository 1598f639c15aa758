//! A report, or two compared, as headings, tables, lists and charts.
//!
//! It is made once, and two renderers show it: [`styled`](super::styled) as text and [`page`](super::page) as HTML.
//! Texts in it are not escaped.

use std::borrow::Cow;

use super::formats::{Percent, more};
use super::run_report::RunReport;
use super::span::AttemptCounts;
use super::timeline::Timeline;
use crate::text_style::Ink;

/// What a report says, in order.
pub(super) struct Document<'a> {
    /// The first line of the text, and the title of the page.
    pub(super) title: String,
    pub(super) ink: Ink,
    /// The kind of the document, above the heading of the page.
    pub(super) kind: &'static str,
    pub(super) heading: String,
    /// A line below the heading of the page, in the ink of the title.
    pub(super) status: Option<String>,
    /// Paragraphs between the title and the first section. An error is bad, the time and the machine are faint.
    pub(super) leads: Vec<(String, Option<Ink>)>,
    pub(super) sections: Vec<Section<'a>>,
}

/// Blocks under one heading.
pub(super) struct Section<'a> {
    /// The heading of the page.
    pub(super) heading: String,
    /// The heading of the text, for failures: the others have none. Text shows these sections last, where they are
    /// seen first.
    pub(super) line: Option<String>,
    pub(super) blocks: Vec<(Medium, Block<'a>)>,
}

/// Where a block is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Medium {
    Both,
    Text,
    Page,
}

pub(super) enum Block<'a> {
    Table(Table<'a>),
    /// Sentences, one a line after this indent. A page shows them as a list.
    List(&'static str, Vec<String>, Option<Ink>),
    Paragraph(String, Option<Ink>),
    /// Names and large figures. Only a page has these and the blocks below.
    Figures(Vec<(String, Cell<'a>)>),
    /// Names and values.
    Facts(Vec<(String, Cell<'a>)>),
    /// When each producer worked.
    BusyChart(&'a RunReport, &'a Timeline),
    /// The load and the memory of GPUs.
    GpuChart(&'a RunReport),
    /// Items done over time.
    ThroughputChart(&'a RunReport),
    /// How many attempts took how long.
    DistributionChart(AttemptCounts),
}

pub(super) struct Table<'a> {
    /// What the table shows, for screen readers.
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<TableRow<'a>>,
    pub(super) layout: Layout,
    pub(super) limits: RowLimits,
    /// How many rows `rows` lacks.
    pub(super) left_out: u64,
    /// The noun under which rows that are not shown are counted. `None`: they are not.
    pub(super) noun: Option<&'static str>,
}

/// How the text shows a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Aligned columns; those of the lowest rank are omitted if the text is too narrow.
    Columns,
    /// The lines of each row.
    Lines,
    /// Columns if all of them fit, otherwise lines.
    ColumnsOrLines,
}

/// How many rows are shown: by the text, by the page, and by the page before it collapses the rest.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLimits {
    pub(super) text: usize,
    pub(super) page: usize,
    pub(super) open: usize,
}

pub(super) struct Column {
    pub(super) head: &'static str,
    /// What a number or name in the first column is of. A page that shows rows as blocks has it for the head.
    pub(super) noun: &'static str,
    pub(super) kind: ColumnKind,
    /// The lower, the earlier a narrow text omits the column.
    pub(super) rank: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ColumnKind {
    Number,
    /// The text of the report clips it to this many characters.
    Text(usize),
    /// A text of several sentences.
    LongText,
}

#[derive(Default)]
pub(super) struct TableRow<'a> {
    pub(super) cells: Vec<Cell<'a>>,
    pub(super) ink: Option<Ink>,
    /// The row without columns: see [`Layout`].
    pub(super) lines: Vec<String>,
    /// Sentences below the table, in the text as warnings.
    pub(super) notes: Vec<String>,
}

pub(super) enum Cell<'a> {
    Text(String),
    /// A text that a page marks with a tag.
    Tagged(String, &'static str),
    /// A share from 0 to 1, which a page draws too.
    Share(f64),
    Inked(String, Option<Ink>),
    /// A command.
    Code(String),
    /// An error, and the errors around it.
    Errors(Vec<Cow<'a, str>>),
    /// The names of items, and the number of others.
    Names(Vec<String>, u64),
}

/// A table to which columns are added, and the things that its rows are about.
pub(super) struct TableOf<'a, T> {
    table: Table<'a>,
    things: Vec<T>,
}

impl RowLimits {
    pub(super) const NONE: RowLimits =
        RowLimits { text: usize::MAX, page: usize::MAX, open: usize::MAX };
}

/// A table of this many columns has room in half of a wide page.
const NARROW_COLUMNS: usize = 5;

impl<'a> Section<'a> {
    /// Whether the section needs no more than half of a wide page.
    pub(super) fn is_narrow(&self) -> bool {
        self.blocks.iter().all(|(_, block)| match block {
            Block::ThroughputChart(_) | Block::DistributionChart(_) | Block::List(..) => true,
            Block::Paragraph(..) => true,
            Block::Table(table) => table.columns.len() <= NARROW_COLUMNS,
            _ => false,
        })
    }

    pub(super) fn new(heading: impl Into<String>) -> Self {
        Section { heading: heading.into(), line: None, blocks: Vec::new() }
    }

    pub(super) fn with(self, block: Block<'a>) -> Self {
        self.only(Medium::Both, block)
    }

    pub(super) fn only(mut self, medium: Medium, block: Block<'a>) -> Self {
        self.blocks.push((medium, block));
        self
    }

    /// Adds a remark on what a section lacks, if there is one.
    pub(super) fn remark(mut self, remark: Option<String>) -> Self {
        let remark = remark.map(|it| (Medium::Both, Block::Paragraph(it, Some(Ink::Faint))));
        self.blocks.extend(remark);
        self
    }

    /// Adds an explanation to the page. A terminal has no room for it.
    pub(super) fn explain(self, text: impl Into<String>) -> Self {
        self.only(Medium::Page, Block::Paragraph(text.into(), Some(Ink::Faint)))
    }
}

impl Table<'_> {
    /// Omits the columns of the lowest rank, until there are at most this many.
    pub(super) fn omit_columns(&mut self, most: usize) {
        while self.columns.len() > most {
            let ranks = self.columns.iter().map(|column| column.rank).enumerate();
            let Some((lowest, _)) = ranks.min_by_key(|(_, rank)| *rank) else { return };
            self.columns.remove(lowest);
            self.rows.iter_mut().for_each(|row| _ = row.cells.remove(lowest));
        }
    }

    /// Counts the rows that are not shown if the first `shown` are.
    pub(super) fn more(&self, shown: usize) -> Option<String> {
        let hidden = self.rows.len().saturating_sub(shown) as u64;
        more(self.left_out.saturating_add(hidden), self.noun?)
    }
}

impl<'a, T> TableOf<'a, T> {
    /// A table with a row for each of these things. Rows that no renderer shows are counted and not made.
    pub(super) fn new(
        title: impl Into<String>,
        limits: RowLimits,
        things: impl ExactSizeIterator<Item = T>,
    ) -> Self {
        let left_out = things.len().saturating_sub(limits.page) as u64;
        let things: Vec<T> = things.take(limits.page).collect();
        let table = Table {
            title: title.into(),
            columns: Vec::new(),
            rows: things.iter().map(|_| TableRow::default()).collect(),
            layout: Layout::Columns,
            limits,
            left_out,
            noun: None,
        };
        TableOf { table, things }
    }

    /// Counts the rows that are not shown, and `left_out` more.
    pub(super) fn counting(mut self, noun: &'static str, left_out: u64) -> Self {
        self.table.noun = Some(noun);
        self.table.left_out = self.table.left_out.saturating_add(left_out);
        self
    }

    /// Adds the first column: the number of a producer, in this word.
    pub(super) fn numbers(self, noun: &'static str, number: impl Fn(&T) -> usize) -> Self {
        let column = Column { head: "#", noun, kind: ColumnKind::Number, rank: u32::MAX };
        self.column(column, |it| number(it).into())
    }

    /// Adds the first column: the name of a thing of this kind.
    pub(super) fn names<C: Into<Cell<'a>>>(
        self,
        noun: &'static str,
        most: usize,
        name: impl Fn(&T) -> C,
    ) -> Self {
        let column = Column { head: noun, noun, kind: ColumnKind::Text(most), rank: u32::MAX };
        self.column(column, |it| name(it).into())
    }

    pub(super) fn number<C: Into<Cell<'a>>>(
        self,
        head: &'static str,
        rank: u32,
        cell: impl Fn(&T) -> C,
    ) -> Self {
        let column = Column { head, noun: "", kind: ColumnKind::Number, rank };
        self.column(column, |it| cell(it).into())
    }

    /// Adds a column of texts; the text of the report clips each to `most` characters.
    pub(super) fn text<C: Into<Cell<'a>>>(
        self,
        head: &'static str,
        rank: u32,
        most: usize,
        cell: impl Fn(&T) -> C,
    ) -> Self {
        let column = Column { head, noun: "", kind: ColumnKind::Text(most), rank };
        self.column(column, |it| cell(it).into())
    }

    /// Adds a column of errors, each with the errors around it.
    pub(super) fn errors(
        self,
        head: &'static str,
        errors: impl Fn(&T) -> Vec<Cow<'a, str>>,
    ) -> Self {
        let column = Column { head, noun: "", kind: ColumnKind::LongText, rank: 0 };
        self.column(column, |it| Cell::Errors(errors(it)))
    }

    fn column(mut self, column: Column, cell: impl Fn(&T) -> Cell<'a>) -> Self {
        self.table.columns.push(column);
        self.rows(|row, thing| row.cells.push(cell(thing)))
    }

    /// Changes each row.
    pub(super) fn rows(mut self, change: impl Fn(&mut TableRow<'a>, &T)) -> Self {
        self.table.rows.iter_mut().zip(&self.things).for_each(|(row, thing)| change(row, thing));
        self
    }

    /// Adds the lines that the text shows in place of columns.
    pub(super) fn lines(mut self, layout: Layout, lines: impl Fn(&T) -> Vec<String>) -> Self {
        self.table.layout = layout;
        self.rows(|row, thing| row.lines = lines(thing))
    }

    /// Omits the columns of the lowest rank, so that at most this many are left.
    pub(super) fn at_most(mut self, columns: usize) -> Self {
        self.table.omit_columns(columns);
        self
    }

    pub(super) fn end(self) -> Block<'a> {
        Block::Table(self.table)
    }
}

impl Cell<'_> {
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Text(text) | Cell::Tagged(text, _) | Cell::Inked(text, _) | Cell::Code(text) => {
                text.into()
            }
            Cell::Share(share) => Percent(*share).to_string().into(),
            Cell::Errors(errors) => errors.first().map_or("", |it| it).into(),
            Cell::Names(names, _) => names.join(", ").into(),
        }
    }
}

impl<T: ToString> From<T> for Cell<'_> {
    fn from(text: T) -> Self {
        Cell::Text(text.to_string())
    }
}
