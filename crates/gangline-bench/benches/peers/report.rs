//! Prints results as Markdown.

use std::path::Path;
use std::time::Duration;

use gangline::BoxError;

#[derive(Default)]
pub struct Report {
    markdown: String,
    promises: Vec<Promise>,
}

impl Report {
    pub fn heading(&mut self, text: &str) {
        self.print(&format!("### {text}\n"));
    }

    pub fn paragraph(&mut self, text: &str) {
        self.print(&format!("{text}\n"));
    }

    pub fn table(&mut self, table: &Table) {
        self.print(&table.markdown());
    }

    pub fn promise(&mut self, promise: Promise) {
        self.promises.push(promise);
    }

    /// Prints whether promises were kept.
    pub fn conclude(&mut self) {
        if self.promises.is_empty() {
            return;
        }
        let mut table = Table::new(["promise", "promised", "aim", "measured", ""]);
        for promise in &self.promises {
            table.row(promise.cells());
        }
        self.heading("Promises");
        self.table(&table);
    }

    pub fn save(&self, path: &Path) -> Result<(), BoxError> {
        Ok(std::fs::write(path, &self.markdown)?)
    }

    fn print(&mut self, text: &str) {
        println!("{text}");
        self.markdown.push_str(text);
        self.markdown.push('\n');
    }
}

pub struct Promise {
    pub what: String,
    pub promised: String,
    pub aim: Option<String>,
    pub measured: String,
    pub verdict: PromiseVerdict,
}

#[derive(Clone, Copy, PartialEq)]
pub enum PromiseVerdict {
    Kept,
    Missed,
    /// Missed, although the threads had no cores of their own.
    NotJudged,
}

impl PromiseVerdict {
    pub fn of(kept: bool) -> Self {
        if kept { Self::Kept } else { Self::Missed }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Kept => "ok",
            Self::Missed => "**MISSED**",
            Self::NotJudged => "not judged",
        }
    }
}

impl Promise {
    pub fn at_most(what: impl Into<String>, promised: Duration, measured: Duration) -> Self {
        Self {
            what: what.into(),
            promised: format!("at most {}", time(promised)),
            aim: None,
            measured: time(measured),
            verdict: PromiseVerdict::of(measured <= promised),
        }
    }

    pub fn at_least_times(what: impl Into<String>, promised: f64, measured: f64) -> Self {
        Self {
            what: what.into(),
            promised: format!("{promised} ×"),
            aim: None,
            measured: format!("{measured:.2} ×"),
            verdict: PromiseVerdict::of(measured >= promised),
        }
    }

    pub fn at_most_times(what: impl Into<String>, promised: f64, measured: f64) -> Self {
        Self {
            what: what.into(),
            promised: format!("at most {promised} ×"),
            aim: None,
            measured: format!("{measured:.2} ×"),
            verdict: PromiseVerdict::of(measured <= promised),
        }
    }

    fn cells(&self) -> Vec<String> {
        let aim = self.aim.clone().unwrap_or_default();
        vec![
            self.what.clone(),
            self.promised.clone(),
            aim,
            self.measured.clone(),
            self.verdict.name().to_owned(),
        ]
    }
}

/// The first column is text, the others are figures.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<T: Into<String>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { rows: vec![header.into_iter().map(Into::into).collect()] }
    }

    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    fn markdown(&self) -> String {
        let widths = self.widths();
        let mut lines: Vec<String> = self.rows.iter().map(|row| line(row, &widths)).collect();
        lines.insert(1, rule(&widths));
        lines.concat()
    }

    fn widths(&self) -> Vec<usize> {
        let columns = 0..self.rows[0].len();
        let widest = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        columns.map(|column| widest(column).expect("there is a header").max(3)).collect()
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut padded = cells.iter().zip(widths).enumerate().map(|(column, (cell, &width))| {
        if column == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    });
    let cells = padded.by_ref().collect::<Vec<_>>().join(" | ");
    format!("| {cells} |\n")
}

fn rule(widths: &[usize]) -> String {
    let dashes = widths.iter().enumerate().map(|(column, &width)| {
        if column == 0 { "-".repeat(width) } else { format!("{}:", "-".repeat(width - 1)) }
    });
    format!("| {} |\n", dashes.collect::<Vec<_>>().join(" | "))
}

pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match time.as_nanos() {
        0..1_000 => format!("{:.0} ns", seconds * 1e9),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

/// Two digits for small numbers, separators for large ones.
pub fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { grouped(value.round() as u64) }
}

pub fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let (head, tail) = digits.split_at(first);
    let groups = tail.as_bytes().chunks(3).map(String::from_utf8_lossy);
    groups.fold(head.to_owned(), |text, group| format!("{text},{group}"))
}
