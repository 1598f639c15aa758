//! A comparison as text in a style, and as an HTML page.

use std::fmt;

use super::text::Styled;
use super::{Comparison, title};
use crate::observe::report::html::{Table, document, list, push, section};
use crate::observe::report::text::{Count, Html, capitalised};
use crate::observe::text_style::{Ink, TextStyle};

impl Comparison<'_> {
    /// Returns the comparison as text in a style, such as that of the terminal.
    pub fn styled(&self, style: TextStyle) -> impl fmt::Display {
        Styled { comparison: *self, style }
    }

    /// Returns the comparison as one self-contained HTML page: no script, no other file.
    pub fn to_html(&self) -> String {
        let title = title(self);
        let mut body = format!(
            "<header>\n<p class=\"name\">gangline: two reports</p>\n<h1>{}</h1>\n",
            Html(&title)
        );
        let summary = self.summary().join(" ");
        push(
            &mut body,
            format_args!("<p class=\"conclusion\">{}</p>\n</header>\n", Html(&summary)),
        );
        for (title, count, items) in self.failures() {
            let heading = format!("{}: {}", capitalised(title), Count(count));
            body.push_str(&section(&heading, &list(items.iter().map(String::as_str))));
            body.push_str("</section>\n");
        }
        body.push_str(&section("Measures", &self.measures()));
        body.push_str("</section>\n");
        let differences = self.differences();
        if !differences.is_empty() {
            let heads = ["<what", "<before", "<after"];
            let mut table = Table::new("How the runs differed", &heads);
            for (what, before, after) in differences {
                table.row([what, before, after].map(|text| Html(&text).to_string()).into());
            }
            body.push_str(&section("How the runs differed", &table.end()));
            body.push_str("</section>\n");
        }
        document(&title, &body)
    }

    fn measures(&self) -> String {
        let mut table =
            Table::new("Measures of both runs", &["<measure", "before", "after", "change"]);
        for row in self.rows() {
            let class = match row.tone {
                Some(Ink::Good) => " class=\"good\"",
                Some(_) => " class=\"bad\"",
                None => "",
            };
            let change = format!("<span{class}>{}</span>", Html(&row.change));
            let [before, after] = [row.before, row.after].map(|text| Html(&text).to_string());
            table.row(vec![row.name.to_owned(), before, after, change]);
        }
        table.end()
    }
}
