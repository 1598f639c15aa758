//! The jobs of a log that failed, with the commands that it has.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::error::{CliError, Context};
use crate::exit;
use crate::plan::job::{Job, Needs};
use crate::plan::program;
use crate::plan::template::{Template, is_plain};

/// Why a log does not say which commands to run again.
#[derive(Debug, Error)]
#[error("line {line} of the log {} {problem}", path.display())]
struct LogError {
    path: PathBuf,
    /// Counted from 1.
    line: usize,
    problem: LogProblem,
}

#[derive(Debug, Error)]
enum LogProblem {
    /// The first line has the columns of GNU parallel alone, or others.
    #[error(
        "does not have the columns of gangline: only the commands of its own logs can be run again, as \
         those of GNU parallel are for a shell"
    )]
    OtherColumns,
    #[error("is not that of a job")]
    NotAJob,
    /// The command has something outside of quotes that `--joblog` quotes.
    #[error(
        "has no command that can be run again: warm workers have none for one input; use --journal FILE \
         --resume-failed"
    )]
    NotACommand,
    #[error(
        "is of a job on GPU {0}, and its command may name it, while another slot may be free now; use \
         --journal FILE --resume-failed"
    )]
    HadGpus(String),
}

/// The first nine columns are those of GNU parallel. Its commands are lines of a shell.
const COLUMNS: usize = 11;

/// Reads the jobs that failed by their last line in the log, in the order of their numbers.
pub(crate) fn failed_jobs(path: &Path) -> Result<Vec<Job>, CliError> {
    let log = fs::read(path).map_err(|error| {
        let what = format!("the log {} cannot be read", path.display());
        CliError::new(exit::INPUT, Context::new(what, error))
    })?;
    let refused = |line: usize, problem| {
        let path = path.to_owned();
        CliError::new(exit::INPUT, LogError { path, line: line + 1, problem })
    };
    let mut failed = BTreeMap::new();
    // A last line without an end was cut off.
    let whole = log.iter().rposition(|byte| *byte == b'\n').unwrap_or_default();
    let lines = log[..whole].split(|byte| *byte == b'\n');
    for (at, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
        let columns: Vec<&[u8]> = line.split(|byte| *byte == b'\t').collect();
        if at == 0 {
            match columns.len() == COLUMNS && columns.starts_with(&[b"Seq"]) {
                true => continue,
                false => return Err(refused(at, LogProblem::OtherColumns)),
            }
        }
        let Some((number, has_failed)) = outcome(&columns) else {
            return Err(refused(at, LogProblem::NotAJob));
        };
        // A resumed run over other inputs may have given the number to another job.
        let job = (number, columns[COMMAND]);
        if has_failed {
            failed.insert(job, (at, columns));
        } else {
            failed.remove(&job);
        }
    }
    let jobs = failed.into_iter().map(|((number, _), (at, columns))| {
        let command = command(&columns).map_err(|problem| refused(at, problem))?;
        program::check(&command.program()).map_err(|error| CliError::new(exit::USAGE, error))?;
        let fields = Arc::from([OsStr::from_bytes(columns[COMMAND]).to_owned()]);
        Ok(Job {
            number,
            fields,
            name: None,
            command: Arc::new(command),
            needs: Needs::Slot,
            turn: None,
        })
    });
    jobs.collect()
}

const COMMAND: usize = 8;

/// The number of a job, and whether it failed.
fn outcome(columns: &[&[u8]]) -> Option<(u64, bool)> {
    let number = |at: usize| str::from_utf8(columns.get(at)?).ok()?.parse::<i64>().ok();
    let (job, exit, signal) = (number(0)?, number(6)?, number(7)?);
    let job = u64::try_from(job).ok()?;
    (columns.len() == COLUMNS).then_some((job, exit != 0 || signal != 0))
}

fn command(columns: &[&[u8]]) -> Result<Template, LogProblem> {
    match columns[COLUMNS - 1] {
        b"" => {}
        gpus => return Err(LogProblem::HadGpus(String::from_utf8_lossy(gpus).into_owned())),
    }
    let words = words(columns[COMMAND]).ok_or(LogProblem::NotACommand)?;
    Template::without_marks(&words).ok_or(LogProblem::NotACommand)
}

/// The words that were quoted in a command of the log.
pub(crate) fn words(mut text: &[u8]) -> Option<Vec<OsString>> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    while let Some((first, rest)) = text.split_first() {
        text = match (first, rest) {
            (b' ', _) => {
                words.push(OsString::from_vec(std::mem::take(&mut word)));
                rest
            }
            (b'$', [b'\'', rest @ ..]) => unescaped(rest, &mut word)?,
            (b'\'', _) => {
                let end = rest.iter().position(|byte| *byte == b'\'')?;
                word.extend_from_slice(&rest[..end]);
                &rest[end + 1..]
            }
            (b'\\', [b'\'', rest @ ..]) => {
                word.push(b'\'');
                rest
            }
            (byte, _) if is_plain(*byte) => {
                word.push(*byte);
                rest
            }
            _ => return None,
        };
    }
    words.push(OsString::from_vec(word));
    Some(words)
}

/// Reads escapes up to the closing quote, and returns what follows.
fn unescaped<'a>(mut text: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, rest) = match text {
            [b'\'', rest @ ..] => return Some(rest),
            [b'\\', b'n', rest @ ..] => (b'\n', rest),
            [b'\\', b't', rest @ ..] => (b'\t', rest),
            [b'\\', b'r', rest @ ..] => (b'\r', rest),
            [b'\\', b'x', high, low, rest @ ..] => {
                let digits = [*high, *low];
                (u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?, rest)
            }
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => (*byte, rest),
            [] => return None,
        };
        word.push(byte);
        text = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::template::quoted;

    #[test]
    fn quoted_words_are_read_back() {
        let all: Vec<u8> = (1..=255).collect();
        let texts: [&[u8]; 9] =
            [b"", b"a", b"it's", b"a b", b"\\\"\n'", b"$x '\\''", b"\\", b"{}{gpu}", &all];
        let texts: Vec<OsString> =
            texts.iter().map(|text| OsStr::from_bytes(text).to_owned()).collect();
        for length in 1..texts.len() {
            for texts in texts.windows(length) {
                let line = texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" ");
                assert_eq!(words(line.as_bytes()).as_deref(), Some(texts), "{line}");
            }
        }
    }

    #[test]
    fn other_words_are_refused() {
        for text in ["a < b", "a; b", "echo \"a\"", "'a", "$'a", "$'\\xg0'", "$x", "a\\ b"] {
            assert_eq!(words(text.as_bytes()), None, "{text}");
        }
    }
}
