//! `--config FILE`: options from a file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches};
use serde_json::Value;

use crate::args;
use crate::args::foreign;
use crate::args::typed::Separators;
use crate::error::{CliError, Context};
use crate::exit;
use gangline::CfgNode;
use gangline::config::Source;

/// Puts the options of the file that `--config` names before the arguments. The command line comes later and
/// overrides them.
///
/// A key is an option without its dashes, with `_` or `-`; a switch is true or false. `command` is a list of
/// words, used unless the command line has a command.
pub(crate) fn with_file(arguments: Vec<OsString>) -> Result<Vec<OsString>, CliError> {
    // An invalid argument is reported after the options are merged.
    let Ok(matches) = args::command().ignore_errors(true).try_get_matches_from(&arguments) else {
        return Ok(arguments);
    };
    let Some(run) = matches.subcommand_matches("run") else { return Ok(arguments) };
    let Some(path) = value::<PathBuf>(run, "config") else { return Ok(arguments) };
    let failed = |error| {
        let what = format!("options cannot be read from {}", path.display());
        CliError::new(exit::USAGE, Context::new(what, error))
    };
    let options = Options::read(path, run).map_err(failed)?;
    Ok(options.before(&arguments, run))
}

/// The content of a file of options.
struct Options {
    words: Vec<OsString>,
    command: Vec<OsString>,
}

impl Options {
    fn read(path: &Path, typed: &ArgMatches) -> gangline::Result<Options> {
        let cfg = CfgNode::load(path)?;
        let origins = cfg.collect()?;
        let mut options = Options { words: Vec::new(), command: Vec::new() };
        for key in cfg.keys() {
            let value: Value = cfg.get(key)?;
            check_sign(key, &value, origins.get(key).and_then(|value| value.origin()))?;
            match key {
                "command" => options.command = texts(key, &value)?,
                key => options.words.extend(option(key, &value, typed)?),
            }
        }
        Ok(options)
    }

    fn before(self, arguments: &[OsString], run: &ArgMatches) -> Vec<OsString> {
        let of = |id| value::<OsString>(run, id).map(OsString::as_os_str);
        let separators = Separators::new(of("arg_sep"), of("arg_file_sep"));
        let command: Vec<OsString> = run.get_many("command").unwrap_or_default().cloned().collect();
        let (command, inputs) = command.split_at(separators.begin_of_sources(&command));
        // Everything after the options is the command.
        let end = arguments.len() - command.len() - inputs.len();
        let options = &arguments[..end];
        let options = options.strip_suffix(&[OsString::from("--")]).unwrap_or(options);
        let begin = options.iter().position(|word| word == "run").map_or(0, |run| run + 1);
        let mut words = options[..begin].to_vec();
        words.extend(self.words);
        words.extend_from_slice(&options[begin..]);
        words.push("--".into());
        match command {
            [] => words.extend(self.command),
            command => words.extend_from_slice(command),
        }
        words.extend_from_slice(inputs);
        words
    }
}

/// The most options that are shown because their names are like that of one that is not there.
const MOST_ALIKE: usize = 3;

/// The words that an entry of the file expands to.
fn option(key: &str, value: &Value, typed: &ArgMatches) -> gangline::Result<Vec<OsString>> {
    let mut command = args::command();
    command.build();
    let run = command.find_subcommand("run").expect("the subcommand is declared above");
    let long = key.replace('_', "-");
    let named = |arg: &&Arg| arg.get_long() == Some(&long) && !matches!(&*long, "config" | "help");
    let Some(arg) = run.get_arguments().find(named) else {
        let known = run.get_arguments().filter_map(Arg::get_long);
        let known = known.filter(|long| !matches!(*long, "config" | "help"));
        let mut known: Vec<String> = known.map(|long| long.replace('-', "_")).collect();
        known.push("command".into());
        known.sort_unstable();
        let name = key.replace('-', "_");
        let alike = foreign::alike(&name, known.iter().map(String::as_str));
        let alike = match &alike[..] {
            [] => "`gangline run --help` lists the options".to_owned(),
            [one] => format!("{one} is similar"),
            alike => format!("{} are similar", alike[..alike.len().min(MOST_ALIKE)].join(", ")),
        };
        return Err(format!("there is no option {key:?}; {alike}").into());
    };
    // An option on the command line replaces that of the file, and removes options that conflict with it.
    let is_typed = |arg: &Arg| {
        let source = typed.try_contains_id(arg.get_id().as_str());
        source.is_ok()
            && typed.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine)
    };
    let against = |other: &Arg| {
        run.get_arg_conflicts_with(other).iter().any(|arg| arg.get_long() == Some(&long))
    };
    let conflicts = is_typed(arg)
        || run.get_arg_conflicts_with(arg).into_iter().any(is_typed)
        || run.get_arguments().any(|other| is_typed(other) && against(other));
    if conflicts {
        return Ok(Vec::new());
    }
    match (arg.get_action(), value) {
        (ArgAction::SetTrue, Value::Bool(true)) => Ok(vec![format!("--{long}").into()]),
        (ArgAction::SetTrue, Value::Bool(false)) => Ok(Vec::new()),
        (ArgAction::SetTrue, _) => Err(format!("{key} must be true or false, got {value}").into()),
        (ArgAction::Append, value) => {
            Ok(texts(key, value)?.into_iter().map(|text| joined(&long, &text)).collect())
        }
        (_, value) => {
            let texts = texts(key, value)?;
            Ok(vec![joined(&long, &texts.join(&OsString::from(" ")))])
        }
    }
}

/// Refuses a number with a plus, which a file of YAML or TOML loses: for `workers`, `+1` and 1 differ.
fn check_sign(key: &str, value: &Value, origin: Option<&str>) -> gangline::Result<()> {
    let Some(text) = origin.filter(|_| value.is_number()).map(fs::read_to_string) else {
        return Ok(());
    };
    // An origin that is no file has no sign to lose.
    let Ok(text) = text else { return Ok(()) };
    let has_plus = |line: &str| {
        let Some((name, value)) = line.split_once([':', '=']) else { return false };
        name.trim().trim_matches(['"', '\'']) == key && value.trim_start().starts_with('+')
    };
    match text.lines().find(|line| has_plus(line)) {
        Some(line) => {
            Err(format!("{:?} is read as {value}: put the value in quotes", line.trim()).into())
        }
        None => Ok(()),
    }
}

fn joined(long: &str, text: &std::ffi::OsStr) -> OsString {
    let mut word = OsString::from(format!("--{long}="));
    word.push(text);
    word
}

/// A text, a number or a boolean, or a list of them.
fn texts(key: &str, value: &Value) -> gangline::Result<Vec<OsString>> {
    match value {
        Value::Array(values) => {
            let texts: gangline::Result<Vec<Vec<OsString>>> =
                values.iter().map(|value| texts(key, value)).collect();
            Ok(texts?.concat())
        }
        Value::String(text) => Ok(vec![text.into()]),
        Value::Number(_) | Value::Bool(_) => Ok(vec![value.to_string().into()]),
        Value::Null | Value::Object(_) => {
            Err(format!("{key} must be a text, a number or a list of them, got {value}").into())
        }
    }
}

fn value<'a, T: Clone + Send + Sync + 'static>(matches: &'a ArgMatches, id: &str) -> Option<&'a T> {
    matches.try_get_one(id).ok().flatten()
}
