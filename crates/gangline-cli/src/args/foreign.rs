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
    WAYS.iter().find(|(options, _)| options.contains(&option)).map(|(_, way)| *way)
}

/// Names of options in other programs and in Python's pool, each with the option that they mean here.
const MEANT: &[(&[&str], &str)] = &[
    (&["gpu", "gpus", "cuda"], "gpu-list"),
    (&["log", "logfile"], "joblog"),
    (&["output", "output-dir", "outdir"], "results"),
    (&["memory", "mem"], "memfree"),
    (&["processes", "procs"], "workers"),
];

/// Options, and what to do instead.
const WAYS: &[(&[&str], &str)] = &[
    (
        &[
            "--pipe",
            "--spreadstdin",
            "--pipe-part",
            "--pipepart",
            "--block",
            "--block-size",
            "--block-timeout",
            "--bt",
            "--recstart",
            "--recend",
            "--regexp",
            "--remove-rec-sep",
            "--removerecsep",
            "--rrs",
            "--round-robin",
            "--round",
            "--roundrobin",
            "--cat",
            "--fifo",
            "--group-by",
            "--groupby",
            "--bin",
            "--shard",
            "--tee",
        ],
        "a stream is not divided among jobs; split it into files, as in `split -n l/8 FILE part.`, and run a job \
         for each",
    ),
    (
        &[
            "--sshlogin",
            "-S",
            "--sshloginfile",
            "--slf",
            "--ssh",
            "--ssh-delay",
            "--sshdelay",
            "--transfer",
            "--transferfile",
            "--tf",
            "--return",
            "--cleanup",
            "--trc",
            "--basefile",
            "--bf",
            "--onall",
            "--nonall",
            "--controlmaster",
            "-M",
            "--hostgroups",
            "--hgrp",
            "--filter-hosts",
            "--rsync-opts",
        ],
        "jobs run on this machine; start gangline on each machine, or use a queueing system",
    ),
    (
        &[
            "--semaphore",
            "--semaphore-name",
            "--id",
            "--semaphore-timeout",
            "--st",
            "--fg",
            "--bg",
            "--wait",
        ],
        "gangline is no semaphore; flock(1) is one",
    ),
    (
        &[
            "--sql",
            "--sql-master",
            "--sqlmaster",
            "--sql-and-worker",
            "--sqlandworker",
            "--sql-worker",
            "--sqlworker",
        ],
        "jobs are recorded in files: --joblog, --journal, --results",
    ),
    (&["--rpl", "--parens"], "compute it in a script, with --shell, where the input is \"$1\""),
    (&["-i", "--replace"], "write -I TEXT, or {} without an option"),
    (&["-e", "--eof"], "write -E TEXT"),
    (
        &["-L", "-l", "--max-lines"],
        "an input is a line: write -n N for N lines in a job, and --colsep ' +' to split \
        a line into words",
    ),
    (&["--filter"], "filter the inputs before, as in `grep -v x list | gangline run -- ..`"),
    (&["--skip-first-line"], "leave it out before, as in `tail -n +2 list | gangline run -- ..`"),
    (
        &["--tmux", "--tmuxpane", "--tty", "--open-tty", "-o", "--interactive", "-p"],
        "jobs have no terminal; --dry-run shows the commands, --bar what each slot does",
    ),
    (
        &["--compress", "--compress-program", "--decompress-program"],
        "outputs that wait are kept as they are, in TMPDIR",
    ),
    (&["--tmpdir"], "set the variable TMPDIR"),
    (&["--shell-quote", "--shellquote"], "--dry-run quotes the words of each command for a shell"),
    (
        &["--number-of-cpus", "--number-of-cores", "--number-of-sockets", "--number-of-threads"],
        "`gangline devices` lists the cores and GPUs",
    ),
    (
        &[
            "--use-cpus-instead-of-cores",
            "--use-cores-instead-of-threads",
            "--use-sockets-instead-of-threads",
        ],
        "write a share of the cores, as in -j 50%",
    ),
    (&["--show-limits", "--max-line-length-allowed"], "-s sets the limit; 128k is the default"),
    (&["--halt-on-error"], "write --halt now,fail=1"),
    (
        &[
            "--bibtex",
            "--citation",
            "--will-cite",
            "--gnu",
            "--plain",
            "--no-notice",
            "--silent",
            "--group",
        ],
        "leave it out",
    ),
    (&["--latest-line", "--ll"], "--bar shows what each slot does"),
    (
        &["--process-slot-var"],
        "the slot is {worker}, from 0, and {%}, from 1; set a variable with NAME={worker} \
        before the program",
    ),
    (&["--total-jobs", "--total"], "jobs are counted where they can be; {##} counts all"),
    (&["--template", "--tmpl"], "write the file in a script, with --shell"),
    (
        &["--env", "--record-env", "--session", "--embed"],
        "jobs have the environment of gangline; a function of bash \
        runs with `export -f NAME` and bash -c 'NAME \"$@\"' bash {}",
    ),
    (&["--profile", "-J"], "write the options into a file, for --config"),
    (&["-x", "--exit"], "an input that is longer than -s gets a job of its own"),
    (&["--shebang", "--hashbang", "--shebang-wrap"], "start gangline in the script"),
    (&["--shell-completion"], "`gangline completions SHELL` prints it"),
    (&["-v"], "write -t"),
    (&["-V", "--minversion"], "`gangline --version` prints the version"),
    (
        &["--ctag", "--ctagstring", "--color", "--color-failed", "--cf"],
        "outputs of jobs are not coloured",
    ),
    (
        &["--memsuspend", "--noswap", "--limit"],
        "no job is suspended; --load and --memfree hold jobs back before they start",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_needs_no_advice() {
        let command = args::command();
        let run = command.find_subcommand("run").unwrap();
        for option in WAYS.iter().flat_map(|(options, _)| *options) {
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
        let mut options: Vec<_> = WAYS.iter().flat_map(|(options, _)| *options).collect();
        let count = options.len();
        options.sort();
        options.dedup();
        assert_eq!(options.len(), count);
    }
}
