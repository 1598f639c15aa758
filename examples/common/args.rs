//! Command line of the examples: `--name value` pairs, `--name` for a switch, `--help`, and exit codes.

use std::fmt::Display;
use std::process::ExitCode;
use std::str::FromStr;

use gangline::BoxError;

/// An option of an example; its help says what it means and its default.
pub(crate) struct Flag {
    pub(crate) name: &'static str,
    /// What stands for the value in the help; empty for a switch, which has none.
    pub(crate) value: &'static str,
    pub(crate) help: &'static str,
}

/// What the user typed.
pub(crate) struct Args {
    pairs: Vec<(&'static str, String)>,
}

/// The command line is at fault, not the run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

impl Args {
    /// The value of an option, `None` where it was not given. A switch that was given is an empty text.
    pub(crate) fn get<T: FromStr<Err: Display>>(&self, name: &str) -> Result<Option<T>, BoxError> {
        let Some((name, text)) = self.pairs.iter().find(|(given, _)| *given == name) else {
            return Ok(None);
        };
        let value = text.parse().map_err(|e| Usage(format!("{name} {text}: {e}")))?;
        Ok(Some(value))
    }

    fn parse(flags: &[Flag], words: impl IntoIterator<Item = String>) -> Result<Self, Usage> {
        let mut words = words.into_iter();
        let mut pairs = Vec::<(&str, String)>::new();
        while let Some(word) = words.next() {
            let flag = flags.iter().find(|flag| flag.name == word);
            let flag = flag.ok_or_else(|| Usage(format!("{word} is no option")))?;
            let name = flag.name;
            if pairs.iter().any(|(given, _)| *given == name) {
                return Err(Usage(format!("{name} is given twice")));
            }
            let value = if flag.value.is_empty() { Some(String::new()) } else { words.next() };
            let value = value.ok_or_else(|| Usage(format!("{name} needs a value")))?;
            pairs.push((name, value));
        }
        Ok(Args { pairs })
    }
}

/// Runs an example: 0 when it succeeded, 1 when it failed, 2 when the command line is wrong.
pub(crate) fn main(
    about: &str,
    flags: &[Flag],
    example: impl FnOnce(&Args) -> Result<(), BoxError>,
) -> ExitCode {
    let words = std::env::args().skip(1).collect();
    run(about, flags, words, |args| example(args).map(|()| ExitCode::SUCCESS))
}

/// Runs an example, or a command of one, that chooses how it exits where it did not fail.
pub(crate) fn run(
    about: &str,
    flags: &[Flag],
    words: Vec<String>,
    example: impl FnOnce(&Args) -> Result<ExitCode, BoxError>,
) -> ExitCode {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{about}\n\n{}", allowed(flags));
        return ExitCode::SUCCESS;
    }
    let result = Args::parse(flags, words).map_err(BoxError::from).and_then(|args| example(&args));
    result.unwrap_or_else(|error| failed(&error, flags))
}

fn failed(error: &BoxError, flags: &[Flag]) -> ExitCode {
    let mut text = format!("error: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text += &format!("\n  because: {error}");
        cause = error.source();
    }
    if !error.is::<Usage>() {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    eprintln!("{text}\n\n{}", allowed(flags));
    ExitCode::from(2)
}

fn allowed(flags: &[Flag]) -> String {
    let lines =
        flags.iter().map(|f| format!("\n  {:<20} {}", format!("{} {}", f.name, f.value), f.help));
    format!("Options:{}\n  {:<20} this text", lines.collect::<String>(), "--help")
}
