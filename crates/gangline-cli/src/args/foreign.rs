//! Options of GNU parallel and xargs that are not there, and the way to get the same.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, Error};

use crate::args;

/// Replaces what clap suggests for an unknown option: the way to get the same, if another program has the
/// option, or the nearest option.
pub(crate) fn advised(mut error: Error, arguments: &[OsString]) -> Error {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return match (lacks(&error, "--journal"), switch_with_number(arguments)) {
            (true, _) if !arguments.iter().any(|word| word == "--no-journal-lock") => {
                with_advice(error, RESUMED_BY_JOURNAL.to_owned())
            }
            (_, Some((switch, number))) if lacks(&error, "--gpu-list") => {
                let advice = format!(
                    "{switch} takes no number, and divides the GPUs of a list: -j {number} runs {number} jobs at once"
                );
                with_advice(error, advice)
            }
            _ => error,
        };
    }
    if error.kind() == ErrorKind::InvalidSubcommand {
        let name = text(&error, ContextKind::InvalidSubcommand);
        let command = args::command();
        let names = command.get_subcommands().filter(|it| !it.is_hide_set()).map(Command::get_name);
        let alike = nearest(&name, names).map(str::to_owned);
        // What clap finds by itself misses short names.
        if let Some(alike) = alike {
            error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(alike));
        }
        return error;
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let option = text(&error, ContextKind::InvalidArg);
    let option = option.split(['=', ' ']).next().unwrap_or_default();
    if option.strip_prefix('-').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return with_advice(error, "only -j takes a number with a sign".to_owned());
    }
    if let Some(way) = way(option) {
        let advice = format!("GNU parallel or xargs has {option}: {way}");
        return with_advice(error, advice);
    }
    error.remove(ContextKind::SuggestedArg);
    let command = args::command();
    let command =
        arguments.iter().find_map(|word| command.find_subcommand(word)).unwrap_or(&command);
    let longs =
        || command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(Arg::get_long);
    let name = option.strip_prefix("--");
    if let Some(alike) =
        name.and_then(|name| equivalent(name, longs()).or_else(|| nearest(name, longs())))
    {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{alike}")));
    }
    error
}

/// Returns the option that `name` means elsewhere, if the command has it.
fn equivalent<'a>(name: &str, mut all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (_, meant) = MEANT.iter().find(|(names, _)| names.contains(&name))?;
    all.find(|other| other == meant)
}

/// Returns the name that is the fewest typing errors away, if they are at most three.
fn nearest<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    alike(name, all).into_iter().next()
}

/// Returns the names that are at most three typing errors away, the nearest first.
pub(super) fn alike<'a>(name: &str, all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let common = |other: &str| name.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let most = |other: &str| match name.len() {
        0..=4 => 1,
        // The beginning is right, as in `retry` for `retries`.
        _ if common(other) >= 4 => 3,
        _ => 2,
    };
    let measured = all.map(|other| (strsim::damerau_levenshtein(name, other), other));
    let mut alike: Vec<_> = measured.filter(|(slips, other)| *slips <= most(other)).collect();
    alike.sort_by_key(|(slips, _)| *slips);
    alike.into_iter().map(|(_, other)| other).collect()
}

/// Returns a switch and the number after it. Without the error, that number would be the command.
fn switch_with_number(arguments: &[OsString]) -> Option<(&str, &str)> {
    arguments.windows(2).find_map(|words| {
        let (switch, number) = (words[0].to_str()?, words[1].to_str()?);
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        (matches!(switch, "--slots" | "--share") && is_number).then_some((switch, number))
    })
}

/// The way to resume a run, for users of GNU parallel: they do it by the log.
const RESUMED_BY_JOURNAL: &str = "a run is resumed by its journal, not by its log: give --journal FILE to the first run too; \
     --joblog FILE --retry-failed runs the failed jobs of a log again";

fn lacks(error: &Error, option: &str) -> bool {
    let Some(ContextValue::Strings(missing)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    missing.iter().any(|argument| argument.starts_with(option))
}

/// Replaces what clap suggests.
fn with_advice(mut error: Error, advice: String) -> Error {
    error.remove(ContextKind::SuggestedArg);
    let advice = vec![StyledStr::from(advice)];
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(advice));
    error
}

fn text(error: &Error, kind: ContextKind) -> String {
    match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        _ => String::new(),
    }
}

fn way(option: &str) -> Option<&'static str> {
    ways().find(|(options, _)| options.split(' ').any(|it| it == option)).map(|(_, way)| way)
}

fn ways() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut lines = WAYS.lines().map(str::trim_start);
    std::iter::from_fn(move || lines.next().zip(lines.next()))
}

/// Names of options in other programs and in Python's pool, each with the option that they mean here.
const MEANT: &[(&[&str], &str)] = &[
    (&["gpu", "gpus", "cuda"], "gpu-list"),
    (&["log", "logfile"], "joblog"),
    (&["output", "output-dir", "outdir"], "results"),
    (&["memory", "mem"], "memfree"),
    (&["processes", "procs"], "workers"),
];

/// Lines of options, each with a line that says what to do instead.
const WAYS: &str = include_str!("help/foreign.txt");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_needs_no_advice() {
        let command = args::command();
        let run = command.find_subcommand("run").unwrap();
        for option in ways().flat_map(|(options, _)| options.split(' ')) {
            let is_there = run.get_arguments().any(|arg| {
                let long = option.strip_prefix("--");
                let short = option.strip_prefix('-').and_then(|name| name.chars().next());
                let longs =
                    arg.get_long().into_iter().chain(arg.get_all_aliases().unwrap_or_default());
                let mut shorts =
                    arg.get_short_and_visible_aliases().unwrap_or_default().into_iter();
                long.is_some_and(|long| longs.into_iter().any(|other| other == long))
                    || (long.is_none() && shorts.any(|other| Some(other) == short))
            });
            assert!(!is_there, "{option} is there");
        }
    }

    #[test]
    fn a_name_from_elsewhere_means_an_option_that_is_there() {
        let command = args::command();
        for (line, option) in [
            (["gangline", "run", "--gpus"], "--gpu-list"),
            (["gangline", "run", "--log=a"], "--joblog"),
            (["gangline", "check", "--gpu"], "--gpu-list"),
            (["gangline", "run", "--retry"], "--retries"),
        ] {
            let error = command.clone().try_get_matches_from(line).unwrap_err();
            let error = advised(error, &line.map(OsString::from));
            assert_eq!(text(&error, ContextKind::SuggestedArg), option);
        }
        let run = command.find_subcommand("run").unwrap();
        for (_, meant) in MEANT {
            assert!(run.get_arguments().any(|arg| arg.get_long() == Some(meant)), "{meant}");
        }
    }

    #[test]
    fn an_option_has_one_advice() {
        let mut options: Vec<_> = ways().flat_map(|(options, _)| options.split(' ')).collect();
        let count = options.len();
        options.sort();
        options.dedup();
        assert_eq!(options.len(), count);
    }
}
