//! A table of an HTML page.

use super::markup::push;

/// Each row has one cell per head; the first cell names the row.
pub(super) struct Table {
    html: String,
    classes: Vec<&'static str>,
}

impl Table {
    /// Columns hold numbers, unless their heads begin with `<` (text) or `<<` (long text).
    pub(super) fn new(title: &str, heads: &[&str]) -> Self {
        let classes: Vec<_> = heads.iter().map(|head| class(head)).collect();
        let mut html =
            format!("<div class=\"scroll\">\n<table aria-label=\"{title}\">\n<thead><tr>");
        for (head, class) in heads.iter().zip(&classes) {
            let head = head.trim_start_matches('<');
            push(&mut html, format_args!("<th scope=\"col\"{class}>{head}</th>"));
        }
        html.push_str("</tr></thead>\n<tbody>\n");
        Table { html, classes }
    }

    /// Adds a row of cells, each of them HTML.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.classes.len());
        self.html.push_str("<tr>");
        for (index, (cell, class)) in cells.iter().zip(&self.classes).enumerate() {
            match index {
                0 => push(&mut self.html, format_args!("<th scope=\"row\"{class}>{cell}</th>")),
                _ => push(&mut self.html, format_args!("<td{class}>{cell}</td>")),
            }
        }
        self.html.push_str("</tr>\n");
    }

    pub(super) fn end(mut self) -> String {
        self.html.push_str("</tbody>\n</table>\n</div>\n");
        self.html
    }
}

fn class(head: &str) -> &'static str {
    match head.len() - head.trim_start_matches('<').len() {
        0 => "",
        1 => " class=\"text\"",
        _ => " class=\"text long\"",
    }
}
