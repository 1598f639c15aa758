//! Whether two answers are equal, and where they differ.

use serde_json::{Map, Number, Value};

use crate::plain::{Plain, beginning};

/// A step on the way from an answer to a value inside it.
enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

/// The length at which a value in a message is cut off.
const MOST_SHOWN: usize = 60;

/// Describes the first place at which two answers differ. Returns `None` if they are equal within the tolerance.
///
/// Whole numbers of up to 64 bits are equal if they are the same. Other numbers are equal if they differ by at most `tolerance`, or by
/// that share of the larger one.
pub(super) fn difference(first: &Value, then: &Value, tolerance: f64) -> Option<String> {
    let mut path = Vec::new();
    let what = differing(first, then, tolerance, &mut path)?;
    Some(format!("{}: {what}", shown_path(&path)))
}

fn differing<'a>(
    first: &'a Value,
    then: &'a Value,
    tolerance: f64,
    path: &mut Vec<Step<'a>>,
) -> Option<String> {
    match (first, then) {
        (Value::Number(a), Value::Number(b)) if are_near(a, b, tolerance) => None,
        (Value::Array(a), Value::Array(b)) => {
            if a.len() != b.len() {
                return Some(format!("{} elements, then {}", a.len(), b.len()));
            }
            a.iter().zip(b).enumerate().find_map(|(at, (a, b))| {
                path.push(Step::Index(at));
                let found = differing(a, b, tolerance, path);
                if found.is_none() {
                    path.pop();
                }
                found
            })
        }
        (Value::Object(a), Value::Object(b)) => differing_objects(a, b, tolerance, path),
        (a, b) if a == b => None,
        (a, b) => Some(format!("{}, then {}", shown(a), shown(b))),
    }
}

fn differing_objects<'a>(
    a: &'a Map<String, Value>,
    b: &'a Map<String, Value>,
    tolerance: f64,
    path: &mut Vec<Step<'a>>,
) -> Option<String> {
    for (key, value) in a {
        path.push(Step::Key(key));
        let found = match b.get(key) {
            Some(other) => differing(value, other, tolerance, path),
            None => Some(format!("{}, then nothing", shown(value))),
        };
        if found.is_some() {
            return found;
        }
        path.pop();
    }
    let (key, value) = b.iter().find(|(key, _)| !a.contains_key(*key))?;
    path.push(Step::Key(key));
    Some(format!("nothing, then {}", shown(value)))
}

fn are_near(a: &Number, b: &Number, tolerance: f64) -> bool {
    let is_whole = |number: &Number| number.is_i64() || number.is_u64();
    if is_whole(a) && is_whole(b) {
        return a == b;
    }
    let (Some(a), Some(b)) = (a.as_f64(), b.as_f64()) else { return a == b };
    (a - b).abs() <= tolerance * a.abs().max(b.abs()).max(1.0)
}

/// Writes a path, as in `$.scores[2]`. A key that is no plain name is in quotes: `$["a b"]`.
fn shown_path(path: &[Step<'_>]) -> String {
    let mut text = "$".to_owned();
    for step in path {
        text += &match step {
            Step::Index(at) => format!("[{at}]"),
            Step::Key(key) if is_plain(key) => format!(".{key}"),
            Step::Key(key) => format!("[{}]", Plain(&Value::from(*key).to_string())),
        };
    }
    text
}

fn is_plain(key: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !key.is_empty() && key.chars().all(is_word) && !key.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the beginning of a value, as JSON.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    let begin = beginning(&text, MOST_SHOWN);
    let dots = if begin.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", Plain(begin))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(first: Value, then: Value, expected: Option<&str>) {
        assert_eq!(difference(&first, &then, 0.001).as_deref(), expected);
    }

    #[test]
    fn numbers_are_equal_within_the_tolerance() {
        check(json!(0.5), json!(0.5009), None);
        check(json!(0.5), json!(0.502), Some("$: 0.5, then 0.502"));
        check(json!(1e6), json!(1.0005e6), None);
        check(json!(1e6), json!(1.002e6), Some("$: 1000000.0, then 1002000.0"));
        check(json!(3), json!(3.0001), None);
        check(json!(1_000_000), json!(1_000_001), Some("$: 1000000, then 1000001"));
        check(json!(u64::MAX), json!(u64::MAX), None);
    }

    #[test]
    fn the_place_of_a_difference_is_named() {
        check(
            json!({"a": [1, {"b c": "x"}]}),
            json!({"a": [1, {"b c": "y"}]}),
            Some(r#"$.a[1]["b c"]: "x", then "y""#),
        );
        check(json!([1, 2]), json!([1]), Some("$: 2 elements, then 1"));
        check(json!({"a": 1, "b": 2}), json!({"b": 2}), Some("$.a: 1, then nothing"));
        check(json!({"b": 2}), json!({"b": 2, "a": null}), Some("$.a: nothing, then null"));
        check(json!(null), json!(0), Some("$: null, then 0"));
        check(json!({"a": 1, "b": 2}), json!({"b": 2, "a": 1}), None);
        let long = "x".repeat(100);
        check(json!(long), json!(1), Some(&format!("$: \"{}..., then 1", "x".repeat(59))));
    }
}
