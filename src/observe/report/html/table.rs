//! A table of an HTML page.

use super::markup::push;
use crate::observe::report::text::Count;

/// With more columns a table does not fit a tablet, and its rows become blocks there.
const MOST_NARROW: usize = 6;

/// Each row has one cell per head; the first cell names the row.
pub(crate) struct Table<'a> {
    title: &'a str,
    heads: Vec<&'a str>,
    classes: Vec<&'static str>,
    rows: Vec<String>,
}

impl<'a> Table<'a> {
    /// Columns hold numbers, unless their heads begin with `<` (text) or `<<` (long text).
    pub(crate) fn new(title: &'a str, heads: &[&'a str]) -> Self {
        Table {
            title,
            heads: heads.iter().map(|head| head.trim_start_matches('<')).collect(),
            classes: heads.iter().map(|head| class(head)).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of cells, each of them HTML. On a narrow screen each cell has its head beside it.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.heads.len());
        let mut row = "<tr>".to_owned();
        for (index, cell) in cells.iter().enumerate() {
            let (head, class) = (self.heads[index], self.classes[index]);
            match index {
                0 => push(&mut row, format_args!("<th scope=\"row\"{class}>{cell}</th>")),
                _ => push(&mut row, format_args!("<td{class} data-head=\"{head}\">{cell}</td>")),
            }
        }
        row.push_str("</tr>\n");
        self.rows.push(row);
    }

    pub(crate) fn end(self) -> String {
        self.of(&self.rows)
    }

    /// Ends the table. Rows beyond the first `shown` are collapsed.
    pub(crate) fn end_after(self, shown: usize) -> String {
        if self.rows.len() <= shown {
            return self.end();
        }
        let (first, rest) = self.rows.split_at(shown);
        let more = Count(rest.len() as u64);
        format!(
            "{}<details class=\"rest\"><summary>{more} more</summary>\n{}</details>\n",
            self.of(first),
            self.of(rest)
        )
    }

    fn of(&self, rows: &[String]) -> String {
        let wide = if self.heads.len() > MOST_NARROW { " class=\"wide\"" } else { "" };
        let mut html = format!("<table{wide} aria-label=\"{}\">\n<thead><tr>", self.title);
        for (head, class) in self.heads.iter().zip(&self.classes) {
            push(&mut html, format_args!("<th scope=\"col\"{class}>{head}</th>"));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        html.extend(rows.iter().map(String::as_str));
        html + "</tbody>\n</table>\n"
    }
}

fn class(head: &str) -> &'static str {
    match head.len() - head.trim_start_matches('<').len() {
        0 => "",
        1 => " class=\"text\"",
        _ => " class=\"text long\"",
    }
}
