//! Checks the program of a command, and finds words that only a shell would act upon.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use thiserror::Error;

use crate::plan::template::quoted;

/// A program that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum NoProgram {
    #[error(
        "there is no program {}: write its arguments as words of their own, without quotes around \
         the command, or run a command of the shell with --shell",
        quoted(.0)
    )]
    HasBlanks(OsString),
    #[error("{} is a word of the shell and no program: use --shell, as in {AS_IN}", quoted(.0))]
    IsKeyword(OsString),
    #[error(
        "{} is a function of bash and no program: run it with bash -c '{} \"$@\"' bash {{}}",
        quoted(.0),
        .0.display()
    )]
    IsFunction(OsString),
}

/// Refuses a program that does not exist but would mean something to a shell.
pub(crate) fn check(program: &OsStr) -> Result<(), NoProgram> {
    let why = if program.as_bytes().iter().any(u8::is_ascii_whitespace) {
        NoProgram::HasBlanks
    } else if KEYWORDS.iter().any(|keyword| program == *keyword) {
        NoProgram::IsKeyword
    } else if env::var_os(function(program)).is_some() {
        NoProgram::IsFunction
    } else {
        return Ok(());
    };
    if exists(program) { Ok(()) } else { Err(why(program.to_owned())) }
}

/// What only a shell knows.
const KEYWORDS: [&str; 33] = [
    "!", ".", ":", "[[", "alias", "bg", "case", "cd", "declare", "do", "eval", "exec", "exit",
    "export", "fg", "for", "function", "if", "jobs", "local", "readonly", "return", "select",
    "set", "shift", "source", "time", "trap", "ulimit", "unset", "until", "while", "{",
];

/// The variable in which bash exports a function.
fn function(name: &OsStr) -> OsString {
    let mut variable = OsString::from("BASH_FUNC_");
    variable.push(name);
    variable.push("%%");
    variable
}

fn exists(program: &OsStr) -> bool {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Whether a program cannot be one, since it is a file of inputs by its permissions or, if there is none, by its name.
pub(crate) fn is_file_of_inputs(program: &OsStr) -> bool {
    let path = Path::new(program);
    if !program.as_bytes().contains(&b'/') && exists(program) {
        return false;
    }
    match fs::metadata(path) {
        Ok(file) => !file.is_dir() && file.permissions().mode() & 0o111 == 0,
        Err(_) => {
            let names = ["json", "jsonl", "ndjson"];
            program == "-"
                || path.extension().is_some_and(|it| names.iter().any(|name| it == *name))
        }
    }
}

/// The first word of a command that a shell would not pass on: an operator, or a word in quotes that the
/// user's shell has left.
pub(crate) fn word_of_shell(words: &[OsString]) -> Option<&OsStr> {
    // Its own operators are `;` and `+`.
    let is_find = words.first().is_some_and(|program| program == "find");
    let words = words.iter().enumerate().map(|(at, word)| (at + 1 == words.len(), word));
    let found = words.filter(|(_, word)| !(is_find && *word == ";")).find(|(is_last, word)| {
        let word = word.as_bytes();
        is_bare_operator(word)
            || is_quoted(word)
            || (!is_last && ends_command(word) && !word.iter().any(u8::is_ascii_whitespace))
    });
    found.map(|(_, word)| word.as_os_str())
}

/// The first word of a command that only a shell would replace: a variable, the output of a command, or a text
/// in quotes.
pub(crate) fn unexpanded(words: &[OsString]) -> Option<&OsStr> {
    let is_unexpanded = |word: &&OsString| {
        let word = word.as_bytes();
        let name = word.strip_prefix(b"$").unwrap_or_default();
        let name = name.split(|byte| *byte == b'/').next().unwrap_or_default();
        let is_variable = name.first().is_some_and(|first| first.is_ascii_alphabetic())
            && name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        let is_command = word.starts_with(b"$(") && word.ends_with(b")");
        is_variable || is_command || is_in(b'`', word) || is_in(b'"', word)
    };
    words.iter().find(is_unexpanded).map(OsString::as_os_str)
}

fn ends_command(word: &[u8]) -> bool {
    word.len() > 1 && word.ends_with(b";")
}

/// Whether the word is in single quotes, or has a variable or a command in double quotes.
fn is_quoted(word: &[u8]) -> bool {
    let begins_name = |byte: u8| byte.is_ascii_alphabetic() || b"_({".contains(&byte);
    let expands = |two: &[u8]| two[0] == b'$' && begins_name(two[1]);
    let is_replaced = word.windows(2).any(expands) || word.contains(&b'`');
    is_in(b'\'', word) || (is_in(b'"', word) && is_replaced)
}

fn is_in(quote: u8, word: &[u8]) -> bool {
    word.len() > 1 && word.starts_with(&[quote]) && word.ends_with(&[quote])
}

/// Whether the word is an operator and nothing else, or redirects to a file with a mark or a device. `>x` and
/// `<x` may be texts.
fn is_bare_operator(word: &[u8]) -> bool {
    let Some(redirected) = after_redirection(word) else { return is_separator(word) };
    let is_file = redirected.starts_with(b"/") || redirected.contains(&b'{');
    redirected.is_empty()
        || redirected.iter().all(u8::is_ascii_digit)
        || (is_file && !redirected.ends_with(b">"))
}

fn is_separator(word: &[u8]) -> bool {
    matches!(word, b"|" | b"||" | b"|&" | b"&" | b"&&" | b";" | b";;")
}

/// What follows `>`, `2>`, `>&`, `&>` or the like.
fn after_redirection(word: &[u8]) -> Option<&[u8]> {
    let digits = word.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let operators: [&[u8]; 9] = [b"&>>", b"&>", b">>", b">&", b">|", b">", b"<<<", b"<<", b"<"];
    operators.iter().find_map(|operator| word[digits..].strip_prefix(*operator))
}

/// The first operator of the shell in a line, outside of quotes.
pub(crate) fn unquoted_operator(line: &[u8]) -> Option<Vec<u8>> {
    let words = unquoted_words(line);
    let is_operator = |word: &[u8]| is_separator(word) || after_redirection(word).is_some();
    let found = words.iter().find(|word| is_operator(word) || ends_command(word))?;
    Some(if ends_command(found) && !is_operator(found) { b";".to_vec() } else { found.clone() })
}

/// The words of a line, each up to its first quote or backslash. A word that begins with one is empty.
fn unquoted_words(line: &[u8]) -> Vec<Vec<u8>> {
    let mut words = vec![Vec::new()];
    let mut quote = None;
    let mut is_quoted = false;
    let mut bytes = line.iter();
    while let Some(&byte) = bytes.next() {
        match (quote, byte) {
            (None, b'\'' | b'"') => (quote, is_quoted) = (Some(byte), true),
            (Some(b'"') | None, b'\\') => {
                is_quoted = true;
                bytes.next();
            }
            (Some(open), _) if byte == open => quote = None,
            (Some(_), _) => {}
            (None, b'#') if !is_quoted && words.last().is_some_and(Vec::is_empty) => break,
            (None, byte) if byte.is_ascii_whitespace() => {
                words.push(Vec::new());
                is_quoted = false;
            }
            (None, byte) => {
                if !is_quoted {
                    words.last_mut().expect("there is one from the start").push(byte);
                }
            }
        }
    }
    words
}

const AS_IN: &str = "--shell 'cd \"$1\" && make'";

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_line(line: &str, operator: Option<&str>) {
        let found = unquoted_operator(line.as_bytes());
        assert_eq!(found.as_deref(), operator.map(str::as_bytes), "{line}");
    }

    #[test]
    fn operators_of_the_shell_are_found() {
        check_line("echo a && echo b", Some("&&"));
        check_line("echo a | wc", Some("|"));
        check_line("echo a; echo b", Some(";"));
        check_line("echo a > out", Some(">"));
        check_line("echo a >out", Some(">out"));
        check_line("echo a 2>&1", Some("2>&1"));
        check_line("sort <in", Some("<in"));
        check_line("sleep 1 &", Some("&"));
        check_line("make 'x' || true", Some("||"));
    }

    #[test]
    fn quoted_operators_are_text() {
        for line in [
            "echo 'a && b' \"|\" \\; \\> '>x'",
            "find . -exec ls {} \\;",
            "curl http://x/?a=1&b=2",
            "awk '{print > \"x\"}' a|b",
            "echo a # | b",
            "echo 2 10",
            "",
        ] {
            check_line(line, None);
        }
    }

    #[track_caller]
    fn check_words(words: &str, expected: Option<&str>) {
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        assert_eq!(word_of_shell(&words), expected.map(OsStr::new), "{words:?}");
    }

    #[test]
    fn words_of_a_shell_are_found() {
        check_words("echo {} | wc", Some("|"));
        check_words("echo {}; exit {}", Some("{};"));
        check_words("echo {} >{}.out", Some(">{}.out"));
        check_words("echo {} > out", Some(">"));
        check_words("echo {} 2>/dev/null", Some("2>/dev/null"));
        check_words("echo {} 2>&1", Some("2>&1"));
        check_words("sort <{}", Some("<{}"));
        check_words("perl -e 'print'", Some("'print'"));
        check_words("echo \"$HOME\"", Some("\"$HOME\""));
        check_words("wget \"https://$url\"", Some("\"https://$url\""));
        check_words("echo \"`date`\"", Some("\"`date`\""));
    }

    #[test]
    fn other_words_are_arguments() {
        for words in [
            "grep <div {}",
            "grep <{}> x",
            "find . -exec ls {} ;",
            "sed s/a/b/;",
            "grep >x {}",
            "echo \"a\" a|b a&b x=1;y",
            "echo it's '",
        ] {
            check_words(words, None);
        }
    }

    #[test]
    fn what_a_shell_knows_is_no_program() {
        assert!(check(OsStr::new("ls")).is_ok());
        assert!(check(OsStr::new("no-such-program")).is_ok(), "that is for the job to find");
        for (program, part) in
            [("sleep 1", "without quotes"), ("for", "--shell"), ("source", "--shell")]
        {
            let error = check(OsStr::new(program)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
