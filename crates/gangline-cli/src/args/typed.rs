//! The words after the options: a command, and inputs after `:::` and its relatives.

use std::ffi::OsString;

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

/// How the inputs of a source go with those of the source before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pairing {
    /// Each with each.
    Product,
    /// The first with the first, the second with the second.
    InStep,
}

impl<'a> Typed<'a> {
    pub(crate) fn of(words: &'a [OsString]) -> Typed<'a> {
        let (command, mut rest) = words.split_at(begin_of_sources(words));
        let mut sources = Vec::new();
        while let Some((first, after)) = rest.split_first() {
            let (kind, pairing) = separator(first).expect("the rest begins with a separator");
            let (words, next) = after.split_at(begin_of_sources(after));
            sources.push(TypedSource { kind, pairing, words });
            rest = next;
        }
        Typed { command, sources }
    }
}

/// The index of the first separator, or the number of words.
pub(crate) fn begin_of_sources(words: &[OsString]) -> usize {
    words.iter().position(|word| separator(word).is_some()).unwrap_or(words.len())
}

fn separator(word: &OsString) -> Option<(Kind, Pairing)> {
    Some(match word.to_str()? {
        ":::" => (Kind::Inputs, Pairing::Product),
        ":::+" => (Kind::Inputs, Pairing::InStep),
        "::::" => (Kind::Files, Pairing::Product),
        "::::+" => (Kind::Files, Pairing::InStep),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_command_and_its_inputs() {
        let words: Vec<OsString> =
            "echo {} ::: a b ::::+ f ::: :::+ c".split(' ').map(Into::into).collect();
        let typed = Typed::of(&words);
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
