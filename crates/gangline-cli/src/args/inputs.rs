//! Options for where inputs come from, and how jobs are made of them.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};

use crate::args::number::{size, unsigned};

#[derive(Debug, Args)]
#[command(next_help_heading = "Inputs (default: the lines of standard input)")]
pub(crate) struct InputArgs {
    /// Read one input from each line of FILE; several files give all combinations
    #[arg(short = 'a', long, alias = "arg-file", value_name = "FILE")]
    pub(crate) input: Vec<PathBuf>,
    /// Read inputs from the columns of FILE, commas between them; {name} is the column of that name
    #[arg(long, value_name = "FILE", group = "source", conflicts_with = "input")]
    pub(crate) csv: Option<PathBuf>,
    /// Read inputs from the columns of FILE, tabs between them; {name} is the column of that name
    #[arg(long, value_name = "FILE", group = "source", conflicts_with = "input")]
    pub(crate) tsv: Option<PathBuf>,
    /// Read one command from each line of FILE; commands after --no-gpu need no GPU and may overtake
    #[arg(long, value_name = "FILE", group = "source", conflicts_with = "input")]
    pub(crate) job_file: Option<PathBuf>,
    /// Take each input as a JSON value, which a warm worker gets as it is
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = TABLES)]
    #[arg(conflicts_with_all = ["colsep", "header", "trim"])]
    pub(crate) jsonl: bool,
    /// Know each job by this column, or by this value of its JSON object: in the journal, records and messages
    #[arg(long, value_name = "NAME", conflicts_with_all = ["job_file", "max_args"])]
    pub(crate) key: Option<String>,
    /// Separate inputs by NUL instead of line ends
    #[arg(short = '0', long, action = ArgAction::SetTrue, conflicts_with_all = TABLES)]
    pub(crate) null: bool,
    /// Separate inputs by this character, or \n, \t, \0
    #[arg(short = 'd', long, value_name = "CHAR", value_parser = delimiter)]
    #[arg(conflicts_with_all = TABLES, conflicts_with = "null")]
    pub(crate) delimiter: Option<u8>,
    /// Split each input into columns where REGEX matches; {1}, {2} are the columns
    #[arg(short = 'C', long, value_name = "REGEX", value_parser = regex)]
    #[arg(conflicts_with_all = TABLES)]
    pub(crate) colsep: Option<regex::bytes::Regex>,
    /// Take the first input of each source as its name, or as the names of its columns
    #[arg(long, value_name = ":", value_parser = header, conflicts_with = "job_file")]
    pub(crate) header: Option<HeaderPlace>,
    /// Remove blanks at the left (l), at the right (r), at both ends (lr) or nowhere (n)
    #[arg(long, value_name = "ENDS", value_enum, hide_possible_values = true)]
    #[arg(conflicts_with = "job_file")]
    pub(crate) trim: Option<Trim>,
    /// Combine the sources in step, not each with each; shorter ones begin again
    #[arg(long, alias = "xapply", action = ArgAction::SetTrue, conflicts_with = "job_file")]
    pub(crate) link: bool,
    /// Put up to N inputs into a job; 0 puts none, and only counts
    #[arg(short = 'n', short_alias = 'N', long, aliases = ["max-replace-args"], value_name = "N")]
    #[arg(value_parser = unsigned::<usize>, conflicts_with_all = ["job_file", "csv", "tsv", "header"])]
    pub(crate) max_args: Option<usize>,
    /// Put as many inputs into a job as fit, spread over the slots; a word with {} is repeated for each
    #[arg(short = 'X', long, action = ArgAction::SetTrue)]
    #[arg(conflicts_with_all = ["job_file", "csv", "tsv", "header", "warm"])]
    pub(crate) many: bool,
    /// Put as many inputs into a job as fit, spread over the slots; a word with {} is split between them
    #[arg(short = 'm', long, action = ArgAction::SetTrue, conflicts_with = "many")]
    #[arg(conflicts_with_all = ["job_file", "csv", "tsv", "header", "warm"])]
    pub(crate) many_split: bool,
    /// Put as many inputs into a job as fit, as -m does, but do not spread them over the slots
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = ["many", "many_split"])]
    #[arg(conflicts_with_all = ["job_file", "csv", "tsv", "header", "warm"])]
    pub(crate) xargs: bool,
    /// Make no command line longer than SIZE bytes [default: 128k]; as -X
    #[arg(short = 's', long, value_name = "SIZE", value_parser = size)]
    #[arg(conflicts_with_all = ["job_file", "csv", "tsv", "header", "warm"])]
    pub(crate) max_chars: Option<u64>,
    /// Run the jobs in random order; keeps all inputs in memory
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "job_file")]
    pub(crate) shuf: bool,
    /// Let TEXT stand for the inputs, instead of {}
    #[arg(short = 'I', value_name = "TEXT", value_parser = nonempty())]
    #[arg(conflicts_with_all = ["job_file", "shell", "warm"])]
    replace: Option<OsString>,
    /// Read no inputs from one that is TEXT onwards
    #[arg(short = 'E', value_name = "TEXT", conflicts_with_all = TABLES)]
    pub(crate) end: Option<OsString>,
    /// Leave out empty inputs
    #[arg(short = 'r', long, action = ArgAction::SetTrue, conflicts_with_all = TABLES)]
    pub(crate) no_run_if_empty: bool,
    /// Begin inputs after TEXT instead of :::
    #[arg(long, value_name = "TEXT", value_parser = nonempty(), conflicts_with = "job_file")]
    pub(crate) arg_sep: Option<OsString>,
    /// Begin files of inputs after TEXT instead of ::::
    #[arg(long, value_name = "TEXT", value_parser = nonempty(), conflicts_with = "job_file")]
    pub(crate) arg_file_sep: Option<OsString>,
    /// Compute marks such as {%.gz}, {:2} and {/a/b}, as the shell does in ${1%.gz}
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "job_file")]
    pub(crate) plus: bool,
    /// Pass words such as | and > on to the program, which are an error otherwise
    #[arg(short = 'q', long, action = ArgAction::SetTrue, conflicts_with_all = ["shell", "job_file"])]
    pub(crate) quote: bool,
    /// Run COMMAND as a script of sh, with the input as "$1"
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "job_file")]
    pub(crate) shell: bool,
    // The rest renames marks, as in GNU parallel. That is rare, so help leaves it to the page.
    #[arg(long, alias = "er", value_name = "TEXT", value_parser = nonempty(), hide = true)]
    extensionreplace: Option<OsString>,
    #[arg(long, alias = "bnr", value_name = "TEXT", value_parser = nonempty(), hide = true)]
    basenamereplace: Option<OsString>,
    #[arg(long, alias = "dnr", value_name = "TEXT", value_parser = nonempty(), hide = true)]
    dirnamereplace: Option<OsString>,
    #[arg(long, alias = "bner", value_name = "TEXT", value_parser = nonempty(), hide = true)]
    basenameextensionreplace: Option<OsString>,
    #[arg(long, value_name = "TEXT", value_parser = nonempty(), hide = true)]
    seqreplace: Option<OsString>,
    #[arg(long, value_name = "TEXT", value_parser = nonempty(), hide = true)]
    slotreplace: Option<OsString>,
}

const TABLES: [&str; 3] = ["csv", "tsv", "job_file"];

/// Where the names of inputs are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderPlace {
    /// `:`, in the first input.
    First,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Trim {
    #[value(name = "n")]
    None,
    #[value(name = "l")]
    Left,
    #[value(name = "r")]
    Right,
    #[value(name = "lr", alias = "rl")]
    Both,
}

/// How many inputs a job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputGrouping {
    /// The number that one reading of the sources gives.
    One,
    /// None: they are only counted.
    CountOnly,
    /// The number that several readings of the sources give.
    Several(usize),
    /// The number for which a command line has room.
    Fitting { most: usize, bytes: u64, spread: Spread },
}

/// Whether the inputs of the last command line are spread over the slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    OverSlots,
    No,
}

/// What xargs and GNU parallel allow by default. The system allows far more, less the environment.
const LONGEST_LINE: u64 = 128 << 10;

impl InputArgs {
    pub(crate) fn grouping(&self) -> InputGrouping {
        let is_fitting = self.many || self.many_split || self.xargs || self.max_chars.is_some();
        match self.max_args {
            Some(0) => InputGrouping::CountOnly,
            most if is_fitting => InputGrouping::Fitting {
                most: most.unwrap_or(usize::MAX),
                bytes: self.max_chars.unwrap_or(LONGEST_LINE),
                spread: if self.xargs { Spread::No } else { Spread::OverSlots },
            },
            Some(number) => InputGrouping::Several(number),
            None => InputGrouping::One,
        }
    }

    /// The texts that take the place of marks, and the insides of these marks.
    pub(crate) fn renamed(&self) -> Vec<(&OsStr, &'static str)> {
        let InputArgs { extensionreplace, basenamereplace, dirnamereplace, .. } = self;
        let InputArgs { basenameextensionreplace, seqreplace, slotreplace, .. } = self;
        let all = [
            (&self.replace, ""),
            (extensionreplace, "."),
            (basenamereplace, "/"),
            (dirnamereplace, "//"),
            (basenameextensionreplace, "/."),
            (seqreplace, "#"),
            (slotreplace, "%"),
        ];
        let given = all.into_iter().filter_map(|(text, inner)| Some((text.as_deref()?, inner)));
        given.filter(|(text, inner)| **text != *format!("{{{inner}}}")).collect()
    }

    /// Whether a word with `{}` is repeated for each input of a job, not split between them.
    pub(crate) fn repeats_words(&self) -> bool {
        let is_grouped = self.max_args.is_some() || self.many || self.max_chars.is_some();
        is_grouped && !self.many_split && !self.xargs
    }

    /// Whether words that a shell would act upon go to a program by mistake.
    pub(crate) fn passes_words(&self) -> bool {
        !self.shell && !self.quote
    }

    /// What changes the command of a job with the same inputs, for a journal. The inputs of a job are in its
    /// key.
    pub(crate) fn effects_on_commands(&self) -> Vec<(&'static str, String)> {
        let renamed = self.renamed();
        let replace = (!renamed.is_empty()).then(|| ("replace", format!("{renamed:?}")));
        let repeats = self.repeats_words().then(|| ("repeats_words", "yes".to_owned()));
        let is_unused = self.grouping() == InputGrouping::CountOnly;
        let unused = is_unused.then(|| ("max_args", "0".to_owned()));
        // Warm workers get another value.
        let jsonl = self.jsonl.then(|| ("jsonl", "yes".to_owned()));
        // Jobs have other keys.
        let key = self.key.as_ref().map(|key| ("key", key.clone()));
        [replace, repeats, unused, jsonl, key].into_iter().flatten().collect()
    }
}

/// One byte, as itself or as an escape.
fn delimiter(text: &str) -> Result<u8, &'static str> {
    match text {
        r"\n" => Ok(b'\n'),
        r"\t" => Ok(b'\t'),
        r"\r" => Ok(b'\r'),
        r"\0" => Ok(0),
        r"\\" => Ok(b'\\'),
        text => match *text.as_bytes() {
            [byte] => Ok(byte),
            _ => Err(r"write one ASCII character, or \n, \t, \r, \0, \\"),
        },
    }
}

/// A text that can be found in words.
fn nonempty() -> impl TypedValueParser<Value = OsString> {
    OsStringValueParser::new().try_map(|text| match text.is_empty() {
        true => Err("write at least one character"),
        false => Ok(text),
    })
}

fn header(text: &str) -> Result<HeaderPlace, &'static str> {
    match text {
        ":" => Ok(HeaderPlace::First),
        _ => Err("write --header :, for names in the first line; others are not supported"),
    }
}

fn regex(text: &str) -> Result<regex::bytes::Regex, String> {
    let regex = regex::bytes::Regex::new(text).map_err(|error| error.to_string())?;
    match regex.is_match(b"") {
        true => Err(format!(
            "the expression matches nothing at all, so it would split everywhere; for the text itself write {}",
            regex::escape(text)
        )),
        false => Ok(regex),
    }
}
