//! The words after the options: a command, and inputs after `:::` and its relatives.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// The words of a command, and the sources of inputs that follow it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Typed<'a> {
    pub(crate) command: &'a [OsString],
    pub(crate) sources: Vec<TypedSource<'a>>,
}

/// The words after one separator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TypedSource<'a> {
    pub(crate) kind: Kind,
    pub(crate) pairing: Pairing,
    pub(crate) words: &'a [OsString],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each word is an input.
    Inputs,
    /// Each word is a file of inputs.
    Files,
}

/// The words that begin a source. With a plus behind, the source is in step with the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Separators<'a> {
    pub(crate) inputs: &'a OsStr,
    pub(crate) files: &'a OsStr,
}

/// How the inputs of a source go with those of the source before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Each with each.
    Product,
    /// The first with the first, the second with the second.
    InStep,
}

impl<'a> Typed<'a> {
    pub(crate) fn of(words: &'a [OsString], separators: Separators<'_>) -> Typed<'a> {
        let (command, mut rest) = words.split_at(separators.begin_of_sources(words));
        let mut sources = Vec::new();
        while let Some((first, after)) = rest.split_first() {
            let (kind, pairing) =
                separators.meaning(first).expect("the rest begins with a separator");
            let (words, next) = after.split_at(separators.begin_of_sources(after));
            sources.push(TypedSource { kind, pairing, words });
            rest = next;
        }
        Typed { command, sources }
    }
}

impl<'a> Separators<'a> {
    /// `:::` and `::::`, unless others are given.
    pub(crate) fn new(inputs: Option<&'a OsStr>, files: Option<&'a OsStr>) -> Separators<'a> {
        let inputs = inputs.unwrap_or(OsStr::new(":::"));
        Separators { inputs, files: files.unwrap_or(OsStr::new("::::")) }
    }

    /// The index of the first separator, or the number of words.
    pub(crate) fn begin_of_sources(self, words: &[OsString]) -> usize {
        words.iter().position(|word| self.meaning(word).is_some()).unwrap_or(words.len())
    }

    fn meaning(self, word: &OsStr) -> Option<(Kind, Pairing)> {
        let word = word.as_bytes();
        for (separator, kind) in [(self.inputs, Kind::Inputs), (self.files, Kind::Files)] {
            match word.strip_prefix(separator.as_bytes()) {
                Some(b"") => return Some((kind, Pairing::Product)),
                Some(b"+") => return Some((kind, Pairing::InStep)),
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_command_and_its_inputs() {
        let words: Vec<OsString> =
            "echo {} ::: a b ::::+ f ::: :::+ c".split(' ').map(Into::into).collect();
        let typed = Typed::of(&words, Separators::new(None, None));
        assert_eq!(typed.command, &words[..2]);
        let kinds: Vec<_> =
            typed.sources.iter().map(|s| (s.kind, s.pairing, s.words.len())).collect();
        let expected = [
            (Kind::Inputs, Pairing::Product, 2),
            (Kind::Files, Pairing::InStep, 1),
            (Kind::Inputs, Pairing::Product, 0),
            (Kind::Inputs, Pairing::InStep, 1),
        ];
        assert_eq!(kinds, expected);
    }
}
