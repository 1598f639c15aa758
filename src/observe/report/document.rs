//! A report, or two compared, as headings, tables, lists and charts.
//!
//! It is made once, and two renderers show it: [`styled`](super::styled) as text and [`page`](super::page) as HTML.
//! Texts in it are not escaped.

use std::borrow::Cow;

use super::formats::Percent;
use super::run_report::RunReport;
use super::sentences::more;
use super::timeline::Timeline;
use crate::observe::text_style::Ink;

/// What a report says, in order.
pub(super) struct Document<'a> {
    /// The first line of the text, and the title of the page.
    pub(super) title: String,
    pub(super) ink: Ink,
    /// The kind of the document, above the heading of the page.
    pub(super) kind: &'static str,
    pub(super) heading: String,
    /// A line below the heading of the page, in the ink of the title.
    pub(super) status: Option<&'static str>,
    pub(super) leads: Vec<Lead<'a>>,
    pub(super) sections: Vec<Section<'a>>,
}

/// A paragraph between the title and the first section.
pub(super) enum Lead<'a> {
    /// The time and the machine.
    Provenance(String),
    Error(&'a str),
    Conclusion(&'a str),
    Fallback(&'a str),
    /// Sentences of a comparison.
    Summary(Vec<String>),
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
    /// Large figures: name, value and ink. Only a page has them.
    Figures(Vec<(&'static str, String, Option<Ink>)>),
    /// Names and values. Only a page has them.
    Facts(Vec<(String, Cell<'a>)>),
    Table(Table<'a>),
    List(List),
    Paragraph(String, Option<Ink>),
    /// When each producer worked. Only a page has it.
    BusyChart(&'a RunReport, &'a Timeline),
    /// Items done over time. Only a page has it.
    ThroughputChart(&'a RunReport),
}

/// Sentences, one a line. A page shows them as a list.
pub(super) struct List {
    pub(super) indent: &'static str,
    pub(super) sentences: Vec<String>,
    pub(super) ink: Option<Ink>,
}

pub(super) struct Table<'a> {
    /// What the table shows, for screen readers.
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row<'a>>,
    pub(super) layout: Layout,
    pub(super) limits: Limits,
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
pub(super) struct Limits {
    pub(super) text: usize,
    pub(super) page: usize,
    pub(super) open: usize,
}

pub(super) struct Column {
    pub(super) head: &'static str,
    /// The noun before the cell of a first column, if the page shows rows as blocks.
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

pub(super) struct Row<'a> {
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
    /// A text in the ink of its row.
    Inked(String),
    /// A command.
    Code(String),
    /// An error, and the errors around it.
    Errors(Vec<&'a str>),
}

impl<'a> Section<'a> {
    pub(super) fn new(heading: impl Into<String>) -> Self {
        Section { heading: heading.into(), line: None, blocks: Vec::new() }
    }

    pub(super) fn with(mut self, block: Block<'a>) -> Self {
        self.blocks.push((Medium::Both, block));
        self
    }

    pub(super) fn only(mut self, medium: Medium, block: Block<'a>) -> Self {
        self.blocks.push((medium, block));
        self
    }

    /// Adds a remark on what a section lacks, if there is one.
    pub(super) fn remark(self, remark: Option<String>) -> Self {
        match remark {
            Some(remark) => self.with(Block::Paragraph(remark, Some(Ink::Faint))),
            None => self,
        }
    }

    /// Adds an explanation to the page. A terminal has no room for it.
    pub(super) fn explain(self, text: impl Into<String>) -> Self {
        self.only(Medium::Page, Block::Paragraph(text.into(), Some(Ink::Faint)))
    }
}

impl<'a> Table<'a> {
    /// A table in columns that shows all rows.
    pub(super) fn new(title: impl Into<String>, columns: Vec<Column>) -> Self {
        let limits = Limits { text: usize::MAX, page: usize::MAX, open: usize::MAX };
        let (rows, layout) = (Vec::new(), Layout::Columns);
        Table { title: title.into(), columns, rows, layout, limits, left_out: 0, noun: None }
    }

    pub(super) fn layout(self, layout: Layout) -> Self {
        Table { layout, ..self }
    }

    pub(super) fn limits(self, limits: Limits) -> Self {
        Table { limits, ..self }
    }

    /// Counts the rows that are not shown; `left_out` more than the table will be given are missing.
    pub(super) fn counting(self, noun: &'static str, left_out: u64) -> Self {
        Table { noun: Some(noun), left_out, ..self }
    }

    /// Sets the rows. Those that no renderer shows are counted and not made.
    pub(super) fn rows(mut self, rows: impl ExactSizeIterator<Item = Row<'a>>) -> Self {
        let unused = rows.len().saturating_sub(self.limits.page) as u64;
        self.left_out = self.left_out.saturating_add(unused);
        self.rows = rows.take(self.limits.page).collect();
        self
    }

    /// Says how many rows are missing if `shown` are shown.
    pub(super) fn more(&self, shown: usize) -> Option<String> {
        let hidden = self.rows.len().saturating_sub(shown) as u64;
        more(self.left_out.saturating_add(hidden), self.noun?)
    }
}

impl Column {
    pub(super) const fn number(head: &'static str, rank: u32) -> Self {
        Column { head, noun: "", kind: ColumnKind::Number, rank }
    }

    /// A column of texts, of which a text shows `most` characters.
    pub(super) const fn text(head: &'static str, rank: u32, most: usize) -> Self {
        Column { head, noun: "", kind: ColumnKind::Text(most), rank }
    }

    pub(super) const fn long_text(head: &'static str) -> Self {
        Column { head, noun: "", kind: ColumnKind::LongText, rank: 0 }
    }

    /// The first column: the number of a producer.
    pub(super) const fn numbering(noun: &'static str) -> Self {
        Column { head: "#", noun, kind: ColumnKind::Number, rank: u32::MAX }
    }
}

impl<'a> Row<'a> {
    pub(super) fn new(cells: Vec<Cell<'a>>) -> Self {
        Row { cells, ink: None, lines: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn ink(self, ink: Option<Ink>) -> Self {
        Row { ink, ..self }
    }

    pub(super) fn lines(self, lines: Vec<String>) -> Self {
        Row { lines, ..self }
    }

    pub(super) fn notes(self, notes: Vec<String>) -> Self {
        Row { notes, ..self }
    }
}

impl Cell<'_> {
    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Cell::Text(text) | Cell::Tagged(text, _) | Cell::Inked(text) | Cell::Code(text) => {
                text.into()
            }
            Cell::Share(share) => Percent(*share).to_string().into(),
            Cell::Errors(errors) => errors.first().copied().unwrap_or_default().into(),
        }
    }
}

impl<T: ToString> From<T> for Cell<'_> {
    fn from(text: T) -> Self {
        Cell::Text(text.to_string())
    }
}
