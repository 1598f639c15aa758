//! A comparison as text.

use std::fmt;

use textwrap::core::display_width;

use super::{Comparison, title};
use crate::observe::report::text::{Count, Plain, clipped};
use crate::observe::text_style::{Ink, TextStyle};

/// Longer values are clipped.
const LONGEST: usize = 160;

pub(super) struct Styled<'a> {
    pub(super) comparison: Comparison<'a>,
    pub(super) style: TextStyle,
}

impl fmt::Display for Comparison<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Styled { comparison: *self, style: TextStyle::plain() }.fmt(f)
    }
}

impl fmt::Display for Styled<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comparison = &self.comparison;
        self.text(f, &title(comparison), Some(Ink::Strong))?;
        comparison.summary().iter().try_for_each(|sentence| self.text(f, sentence, None))?;
        writeln!(f)?;
        let heads = ["", "before", "after", "change"].map(str::to_owned);
        let mut rows = vec![(heads, Some(Ink::Faint))];
        rows.extend(
            comparison
                .rows()
                .into_iter()
                .map(|row| ([row.name.to_owned(), row.before, row.after, row.change], row.tone)),
        );
        self.table(f, &rows)?;
        self.differences(f)?;
        for (title, count, items) in comparison.failures() {
            writeln!(f)?;
            self.text(f, &format!("{title}: {}", Count(count)), Some(Ink::Bad))?;
            for item in items {
                self.entry(f, &clipped(&item, LONGEST), None)?;
            }
        }
        Ok(())
    }
}

impl Styled<'_> {
    fn differences(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differences = self.comparison.differences();
        if differences.is_empty() {
            return Ok(());
        }
        writeln!(f)?;
        let widest = |of: &dyn Fn(&(String, String, String)) -> &str| {
            differences
                .iter()
                .map(|it| display_width(&Plain(of(it)).to_string()))
                .max()
                .unwrap_or(0)
        };
        let (name, before) = (widest(&|it| &it.0), widest(&|it| &it.1).max("before".len()));
        let after = widest(&|it| &it.2);
        if name + before + after + 6 > self.style.columns {
            for (name, before, after) in &differences {
                let (before, after) = (clipped(before, LONGEST), clipped(after, LONGEST));
                self.entry(f, &format!("{name} before: {before}"), None)?;
                self.entry(f, &format!("{name} after: {after}"), None)?;
            }
            return Ok(());
        }
        let heads = format!("  {:name$}  {:before$}  after", "", "before");
        self.line(f, &heads, Some(Ink::Faint))?;
        for (what, was, is) in &differences {
            let (what, was, is) = (Plain(what), Plain(was), Plain(is));
            let line = format!("  {:name$}  {:before$}  {is}", what.to_string(), was.to_string());
            self.line(f, &line, None)?;
        }
        Ok(())
    }

    /// Aligns names to the left and the rest to the right.
    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        rows: &[([String; 4], Option<Ink>)],
    ) -> fmt::Result {
        let width = |column: usize| rows.iter().map(|(row, _)| display_width(&row[column])).max();
        let widths: Vec<usize> = (0..4).filter_map(width).collect();
        for (row, ink) in rows {
            let mut line = format!("  {:width$}", row[0], width = widths[0]);
            for column in 1..4 {
                line.push_str(&format!("  {:>width$}", row[column], width = widths[column]));
            }
            self.line(f, line.trim_end(), *ink)?;
        }
        Ok(())
    }

    fn text(&self, f: &mut fmt::Formatter<'_>, text: &str, ink: Option<Ink>) -> fmt::Result {
        let lines = self.style.wrapped(&Plain(text).to_string(), "", "");
        lines.iter().try_for_each(|line| self.line(f, line, ink))
    }

    fn entry(&self, f: &mut fmt::Formatter<'_>, text: &str, ink: Option<Ink>) -> fmt::Result {
        let lines = self.style.wrapped(&Plain(text).to_string(), "  ", "    ");
        lines.iter().try_for_each(|line| self.line(f, line, ink))
    }

    fn line(&self, f: &mut fmt::Formatter<'_>, line: &str, ink: Option<Ink>) -> fmt::Result {
        match ink {
            Some(ink) => writeln!(f, "{}", self.style.colors.paint(ink, line)),
            None => writeln!(f, "{line}"),
        }
    }
}
