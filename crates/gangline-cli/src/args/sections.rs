//! What help and manual pages explain after the options.
//!
//! The texts are in `help`, as a terminal shows them. A line without blanks before it is a title, with a colon, or a paragraph.
//! An example has two lines: what it does, and its command. Other lines are a term and its meaning.

/// The commands with a page of their own.
pub(crate) const PAGES: [&str; 11] = [
    "run",
    "check",
    "dockerfile",
    "serve",
    "worker",
    "workers",
    "devices",
    "config",
    "report",
    "completions",
    "man",
];

/// Joins texts of `help`, with an empty line between them.
macro_rules! help {
    ($first:literal $(, $other:literal)*) => {
        concat!(include_str!($first) $(, "\n", include_str!($other))*).trim_ascii_end()
    };
}

pub(crate) const RUN: &str = help!("help/examples.txt", "help/run.txt", "help/statuses.txt");
pub(crate) const MAIN: &str = help!("help/examples.txt", "help/statuses.txt");
pub(crate) const CHECK: &str = help!("help/check.txt");
pub(crate) const DOCKERFILE: &str = help!("help/dockerfile.txt");
pub(crate) const SERVE: &str = help!("help/serve.txt");
pub(crate) const WORKER: &str = help!("help/worker.txt");
pub(crate) const WORKERS: &str = help!("help/workers.txt");

/// What `-h` says after the options.
pub(crate) const SHORT: &str = "\
Example: ls *.raw | gangline run -j 4 -- convert {} {.}.png

These are the options that are used most. `gangline run --help` explains all, with marks such as {.}, more \
examples, and the exit statuses.";

/// A line of a text, or the two of an example.
pub(crate) enum HelpBlock {
    Title(&'static str),
    Text(&'static str),
    Term(&'static str, &'static str),
    Example(&'static str, &'static str),
}

/// The blocks of a text.
pub(crate) fn blocks(text: &'static str) -> impl Iterator<Item = HelpBlock> {
    let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
    std::iter::from_fn(move || {
        let line = lines.next()?;
        let Some(term) = line.strip_prefix("  ") else {
            return Some(match line.strip_suffix(':') {
                Some(title) => HelpBlock::Title(title),
                None => HelpBlock::Text(line),
            });
        };
        let command = lines.next_if(|next| next.starts_with("      "));
        let (term, meaning) = term.rsplit_once("  ").unwrap_or((term, ""));
        Some(match command {
            Some(command) => HelpBlock::Example(line.trim_start(), command.trim_start()),
            None => HelpBlock::Term(term.trim_end(), meaning),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_is_wrapped_in_a_terminal_of_usual_width() {
        let is_paragraph = |line: &&str| !line.starts_with(' ');
        let all = [RUN, CHECK, DOCKERFILE, SERVE, WORKER, WORKERS].join("\n");
        for line in all.lines().filter(|line| !is_paragraph(line)) {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
