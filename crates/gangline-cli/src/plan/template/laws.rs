//! Properties that hold for every command and every input.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use super::{CommandWords, GpuMark, Mark, Marks, Part, Template, Values, Word};
use crate::plan::mark::{Edits, InputMarks, Which};
use crate::plan::path::PathForm;

/// Parses lines of any bytes as a command, the first as its input, and checks that the input only replaces
/// marks. For property tests.
///
/// # Panics
///
/// If the check fails.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn fill_any_bytes(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let input: Vec<u8> =
        lines.next().unwrap_or_default().iter().copied().filter(|byte| *byte != 0).collect();
    let words: Vec<OsString> = lines.map(|line| OsString::from_vec(line.to_vec())).collect();
    check(&words, &OsString::from_vec(input));
}

fn check(words: &[OsString], input: &OsStr) {
    let two = [OsString::from("a"), OsString::from("b")];
    let inputs = [
        InputMarks::Words,
        InputMarks::IsCommand,
        InputMarks::Unused,
        InputMarks::Parameters,
        InputMarks::Sent,
    ];
    let gpus = [GpuMark::None, GpuMark::Fitting, GpuMark::Separated(":")];
    let all = inputs.iter().flat_map(|input| gpus.map(|gpus| (*input, gpus)));
    for (kind, gpus) in all {
        for (names, edits) in [(&[][..], Edits::Refused), (&two, Edits::Computed)] {
            let count = names.len().max(1);
            let marks = Marks { input: kind, names, most: Some(count), renamed: &[], edits, gpus };
            if let Ok(template) = Template::new(words, &marks) {
                check_template(&template, input, count);
            }
            if let [script] = words
                && kind == InputMarks::Parameters
                && let Ok(template) = Template::script(script, &marks)
            {
                check_script(&template, input, count);
            }
        }
    }
}

fn check_template(template: &Template, input: &OsStr, count: usize) {
    let (filled, empty) = (fill(template, input, count), fill(template, OsStr::new(""), count));
    assert_eq!(filled.program, empty.program, "an input never changes the program");
    assert_eq!(filled.arguments.len(), empty.arguments.len(), "an input adds no word");
    let variables = template.variables.iter().map(|(_, word)| word);
    let values = filled.variables.iter().map(|(_, value)| value);
    let values = values.zip(empty.variables.iter().map(|(_, value)| value));
    for (word, (filled, empty)) in variables.zip(values) {
        check_word(word, &[input; 2][..count], filled, empty);
    }
    // Without the mark for all inputs, each word is one.
    if !template.words.iter().any(Word::has_all_inputs) {
        let values = filled.arguments.iter().zip(&empty.arguments);
        for (word, (filled, empty)) in template.words[1..].iter().zip(values) {
            check_word(word, &[input; 2][..count], filled, empty);
        }
    }
    check_quoted(&filled);
}

/// The whole input replaces each of its marks, and the rest is unchanged.
fn check_word(word: &Word, inputs: &[&OsStr], filled: &OsStr, empty: &OsStr) {
    let marks: Vec<&Mark> = word.parts.iter().filter_map(Part::mark).collect();
    let forms = marks.iter().filter_map(|mark| match mark {
        Mark::Input(Which::All, form) => Some((inputs.len(), form)),
        Mark::Input(_, form) => Some((1, form)),
        _ => None,
    });
    let forms: Vec<(usize, &PathForm)> = forms.collect();
    let is_whole = forms.iter().all(|(_, form)| **form == PathForm::Whole);
    let whole: usize = forms.iter().map(|(count, _)| count).sum();
    match &*word.parts {
        [Part::Mark(Mark::Input(Which::Nth(_), PathForm::Whole))] => assert_eq!(filled, inputs[0]),
        _ if forms.is_empty() => assert_eq!(filled, empty),
        _ if is_whole => {
            assert_eq!(
                filled.len(),
                empty.len() + whole * inputs[0].len(),
                "nothing but the input"
            );
        }
        _ => {}
    }
    assert!(!filled.as_bytes().contains(&0), "a NUL cannot be passed to a program");
}

/// The script is unchanged, and the input is a word after it.
fn check_script(template: &Template, input: &OsStr, count: usize) {
    let (filled, empty) = (fill(template, input, count), fill(template, OsStr::new(""), count));
    assert_eq!(filled.arguments[..3], empty.arguments[..3]);
    assert_eq!(filled.arguments[3..], vec![input; count], "a word for each input");
}

/// The shown command is one line, and the shell parses it back if it is text.
fn check_quoted(words: &CommandWords) {
    let quoted = words.quoted();
    assert!(!quoted.chars().any(char::is_control), "{quoted:?}");
    if !quoted.contains("$'") {
        let variables = words.variables.iter().map(|(name, value)| {
            OsString::from_vec([name.as_bytes(), b"=", value.as_bytes()].concat())
        });
        let typed = variables.chain([words.program.clone()]).chain(words.arguments.iter().cloned());
        let typed: Option<Vec<String>> = typed.map(|word| word.into_string().ok()).collect();
        assert_eq!(shlex::split(&quoted), typed, "{quoted}");
    }
}

/// Fills a template for a job with the same input several times.
fn fill(template: &Template, input: &OsStr, count: usize) -> CommandWords {
    let fields = vec![input.to_owned(); count];
    let gpus = ["3".to_owned()];
    template.fill(&Values { fields: &fields, number: 1, gpus: &gpus, worker: 0, attempt: 1 })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Any bytes that can be passed to a program.
    fn text() -> impl Strategy<Value = OsString> {
        let bytes = prop_oneof![any::<u8>(), prop::sample::select(&b"{}%(GPU)s#/.$'\" \\"[..])];
        let bytes = bytes.prop_filter("NUL", |byte| *byte != 0);
        prop::collection::vec(bytes, 0..20).prop_map(OsString::from_vec)
    }

    fn word() -> impl Strategy<Value = OsString> {
        let pieces = [
            "{}",
            "{.}",
            "{/}",
            "{//}",
            "{/.}",
            "{#}",
            "{gpu}",
            "%(GPU)s",
            "{worker}",
            "{attempt}",
            "{a}",
            "{a/.}",
            "{1}",
            "{-1..}",
            "{%a}",
            "{:1}",
            "{2}",
            "{%}",
            "{{}}",
            "%%(GPU)s",
            "{{",
            "}}",
            "A=",
            "CUDA_VISIBLE_DEVICES=",
            "text",
            " ",
        ];
        let piece =
            prop_oneof![prop::sample::select(pieces.to_vec()).prop_map(OsString::from), text()];
        prop::collection::vec(piece, 0..4).prop_map(|pieces| {
            pieces.iter().fold(OsString::new(), |mut word, piece| {
                word.push(piece);
                word
            })
        })
    }

    fn line() -> Marks<'static> {
        marks(InputMarks::Words, GpuMark::Fitting)
    }

    fn marks(input: InputMarks, gpus: GpuMark) -> Marks<'static> {
        Marks { input, names: &[], most: Some(1), renamed: &[], edits: Edits::Refused, gpus }
    }

    proptest! {
        #[test]
        fn an_input_is_one_argument_byte_for_byte(input in text(), before in text(), after in text()) {
            let words = ["prog".into(), before.clone(), "{}".into(), after.clone()];
            if let Ok(template) = Template::new(&words, &line()) {
                let filled = fill(&template, &input, 1);
                prop_assert_eq!(filled.arguments.len(), 3);
                prop_assert_eq!(&filled.arguments[1], &input);
            }
            let template = Template::new(&["prog".into()], &line()).unwrap();
            prop_assert_eq!(fill(&template, &input, 1).arguments, [input]);
        }

        #[test]
        fn an_input_in_a_word_leaves_the_rest(input in text()) {
            let template = Template::new(&["prog".into(), "x{}y{#}".into()], &line()).unwrap();
            let expected = [b"x", input.as_bytes(), b"y1"].concat();
            let filled = fill(&template, &input, 1).arguments;
            prop_assert_eq!(filled, [OsString::from_vec(expected)]);
        }

        #[test]
        fn what_holds_for_all_holds_for_any(words in prop::collection::vec(word(), 0..5), input in text()) {
            check(&words, &input);
        }

        #[test]
        fn bytes_are_a_command_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            fill_any_bytes(&bytes);
        }

        #[test]
        fn a_template_without_marks_says_what_was_typed(words in prop::collection::vec(text(), 1..5)) {
            let marks = marks(InputMarks::IsCommand, GpuMark::None);
            if let Ok(template) = Template::without_input(&words, &marks)
                && template.variables.is_empty()
                && !template.has_marks()
                && !words.iter().any(|word| contains_doubled(word))
            {
                let filled = fill(&template, OsStr::new("x"), 1);
                prop_assert_eq!(&filled.program, &words[0]);
                prop_assert_eq!(&filled.arguments, &words[1..]);
            }
        }
    }

    /// Whether the text may contain an escaped mark, which loses one half.
    fn contains_doubled(word: &OsStr) -> bool {
        let has = |part: &[u8]| word.as_bytes().windows(part.len()).any(|window| window == part);
        has(b"{{") || has(b"%%(")
    }
}
