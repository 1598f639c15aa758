//! Parts of the page that several sections use.

use std::fmt::{self, Write as _};

use crate::observe::report::text::{Count, Html};

/// Producers beyond these are only counted.
pub(super) const MOST_PRODUCERS: usize = 256;

/// Returns a list of texts.
pub(crate) fn list<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let items: String = texts.map(|text| format!("<li>{}</li>\n", Html(text))).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// Returns the start of a section.
pub(crate) fn section(title: &str, content: &str) -> String {
    format!("<section>\n<h2>{title}</h2>\n{content}")
}

/// Adds a note on the entries that a section omits, if there are any.
pub(super) fn more(section: &mut String, more: u64, nouns: &str) {
    if more > 0 {
        push(section, format_args!("<p class=\"note\">and {} more {nouns}</p>\n", Count(more)));
    }
}

/// Marks text in backquotes as code.
pub(super) fn with_code(html: &str) -> String {
    let mut text = String::new();
    for (index, part) in html.split('`').enumerate() {
        match index % 2 {
            0 => text.push_str(part),
            _ => push(&mut text, format_args!("<code>{part}</code>")),
        }
    }
    text
}

/// Appends formatted text.
pub(crate) fn push(text: &mut String, what: fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a text does not fail");
}
