//! Sentences with gaps, which a table has for each vocabulary.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::formats::{Bytes, LONGEST_TEXT, Many, Percent, Time, clipped};
use crate::vocabulary::{Vocabulary, Words};

const TABLE: &str = include_str!("sentences.txt");

/// Returns the text of a name. `None` if the vocabulary has no words for it.
pub(super) fn text_of(name: &str, vocabulary: Vocabulary) -> Option<&'static str> {
    let own = match vocabulary {
        Vocabulary::Items => "items",
        Vocabulary::Jobs => "jobs",
        Vocabulary::Workers => "workers",
    };
    let row =
        |name: &str| TABLE.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
    row(&format!("{name}.{own}")).or_else(|| row(name)).filter(|text| *text != "-")
}

/// Fills the gaps of a text: those in braces, and each bracket by the first of its parts of which every gap has words.
/// `None` if a gap outside of brackets has none.
pub(super) fn filled(
    text: &'static str,
    words: &impl Fn(&'static str) -> Option<String>,
) -> Option<String> {
    let (mut whole, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['{', '[']) {
        whole.push_str(&rest[..at]);
        let close = if rest[at..].starts_with('{') { '}' } else { ']' };
        let (gap, after) = rest[at + 1..].split_once(close)?;
        match close {
            '}' => whole.push_str(&words(gap)?),
            _ => whole.extend(gap.split('|').find_map(|part| filled(part, words))),
        }
        rest = after;
    }
    Some(whole + rest)
}

/// Returns the numbers and texts of a value, by name.
pub(super) fn fields(of: &impl Serialize) -> Value {
    serde_json::to_value(of).expect("numbers and texts are JSON")
}

/// Returns a field in a form: see the head of the table.
pub(super) fn field(
    fields: &Value,
    name: &str,
    form: &'static str,
    words: &Words,
) -> Option<String> {
    let value = fields.get(name)?;
    Some(match form {
        "" => value.as_str().map_or_else(|| value.to_string(), str::to_owned),
        "quoted" => format!("{:?}", clipped(value.as_str()?, LONGEST_TEXT)),
        "%" => Percent(value.as_f64()?).to_string(),
        "s" => Time(secs(value.as_f64()?)).to_string(),
        "B" => Bytes(value.as_u64()?).to_string(),
        "was" => if value.as_u64()? == 1 { "was" } else { "were" }.to_owned(),
        noun => Many(value.as_u64()?, words.noun(noun).unwrap_or(noun)).to_string(),
    })
    .filter(|_| !value.is_null())
}

/// A time of a report that may have been written by hand.
pub(super) fn secs(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bracket_has_its_first_part_without_a_gap() {
        let say = |fields: Value| {
            filled("it had {n:item}[ in {m:call}| at once]{}", &|gap| match gap.split_once(':') {
                Some((name, form)) => field(&fields, name, form, Vocabulary::Items.words()),
                None => Some(".".to_owned()),
            })
        };
        let both = serde_json::json!({"n": 2, "m": 1});
        assert_eq!(say(both).as_deref(), Some("it had 2 items in 1 call."));
        let one = serde_json::json!({"n": 1, "m": null});
        assert_eq!(say(one).as_deref(), Some("it had 1 item at once."));
        assert_eq!(say(Value::Null), None);
    }
}
