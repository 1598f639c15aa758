//! The width and the colours of text for people.

use std::env;
use std::fmt;
use std::io::{self, IsTerminal};

use anstyle::{AnsiColor, Style};
use terminal_size::Width;

/// How wide a text may be, and whether it has colours.
///
/// ```
/// # mod gangline { pub mod report { pub use gangline_report::*; } }
/// use gangline::report::{Colors, RunReport, TextStyle};
///
/// # let report = RunReport::default();
/// println!("{}", report.styled(TextStyle::of_stdout()));
/// let narrow = report.styled(TextStyle::plain().columns(60)).to_string();
/// assert!(narrow.lines().all(|line| line.chars().count() <= 60));
/// assert!(report.styled(TextStyle::plain().colors(Colors::On)).to_string().contains('\u{1b}'));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TextStyle {
    pub(super) columns: usize,
    pub(super) colors: Colors,
}

/// Whether a text has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Colors {
    /// ANSI escape sequences colour the text.
    On,
    /// The text is plain.
    #[default]
    Off,
}

/// The role of a coloured text.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Strong,
    Faint,
    Good,
    Warning,
    Bad,
}

/// The width of a text that is not for a terminal.
const COLUMNS: usize = 80;

/// Tables and sentences need some room.
const LEAST_COLUMNS: usize = 40;

impl TextStyle {
    /// 80 columns without colours.
    pub const fn plain() -> Self {
        TextStyle { columns: COLUMNS, colors: Colors::Off }
    }

    /// The style for standard output: if it is a terminal, its width, and colours unless the variable
    /// `NO_COLOR` is set or `TERM` is `dumb`. Otherwise as [`plain`](Self::plain).
    pub fn of_stdout() -> Self {
        let is_terminal = io::stdout().is_terminal();
        TextStyle::of(is_terminal.then(|| terminal_size::terminal_size_of(io::stdout())))
    }

    /// The style for standard error, as [`of_stdout`](Self::of_stdout).
    pub fn of_stderr() -> Self {
        let is_terminal = io::stderr().is_terminal();
        TextStyle::of(is_terminal.then(|| terminal_size::terminal_size_of(io::stderr())))
    }

    /// Sets the width, at least 40 columns.
    #[must_use]
    pub const fn columns(mut self, columns: usize) -> Self {
        self.columns = if columns < LEAST_COLUMNS { LEAST_COLUMNS } else { columns };
        self
    }

    /// Sets whether the text has colours.
    #[must_use]
    pub const fn colors(mut self, colors: Colors) -> Self {
        self.colors = colors;
        self
    }

    /// Whether it has colours.
    #[doc(hidden)]
    pub const fn chosen_colors(self) -> Colors {
        self.colors
    }

    /// `None` if it is no terminal, `Some(None)` if its size is unknown.
    fn of(terminal: Option<Option<(Width, terminal_size::Height)>>) -> Self {
        let Some(size) = terminal else { return TextStyle::plain() };
        let columns = size.map_or(COLUMNS, |(Width(columns), _)| usize::from(columns));
        // An empty `NO_COLOR` counts as unset: https://no-color.org.
        let is_refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colors = if is_refused { Colors::Off } else { Colors::On };
        TextStyle::plain().columns(columns).colors(colors)
    }

    /// Wraps a text into lines of this width, with an indent for the first and one for the others.
    pub(super) fn wrapped(self, text: &str, first: &str, others: &str) -> Vec<String> {
        wrapped(text, self.columns, first, others)
    }
}

/// Wraps a text between its words; only a longer word is broken.
pub fn wrapped(text: &str, columns: usize, first: &str, others: &str) -> Vec<String> {
    let options = textwrap::Options::new(columns)
        .initial_indent(first)
        .subsequent_indent(others)
        // Names of files have hyphens.
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    textwrap::wrap(text, options).into_iter().map(|line| line.into_owned()).collect()
}

impl Default for TextStyle {
    fn default() -> Self {
        TextStyle::plain()
    }
}

impl Colors {
    /// Colours a text.
    #[doc(hidden)]
    pub fn paint<T: fmt::Display>(self, ink: Ink, text: T) -> impl fmt::Display {
        let style = match self {
            Colors::On => ink.style(),
            Colors::Off => Style::new(),
        };
        Painted { style, text }
    }
}

impl Ink {
    fn style(self) -> Style {
        match self {
            Ink::Strong => Style::new().bold(),
            Ink::Faint => Style::new().dimmed(),
            Ink::Good => AnsiColor::Green.on_default(),
            Ink::Warning => AnsiColor::Yellow.on_default(),
            Ink::Bad => AnsiColor::Red.on_default(),
        }
    }
}

/// A text with its colour.
struct Painted<T> {
    style: Style,
    text: T,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{:#}", self.style, self.text, self.style)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_written_only_if_they_are_on() {
        assert_eq!(Colors::Off.paint(Ink::Bad, "x").to_string(), "x");
        assert_eq!(Colors::On.paint(Ink::Bad, "x").to_string(), "\u{1b}[31mx\u{1b}[0m");
    }

    #[test]
    fn a_file_has_80_columns_and_no_colours() {
        assert_eq!(TextStyle::of(None), TextStyle::plain());
        assert_eq!(TextStyle::of(Some(None)).columns, 80);
    }
}
