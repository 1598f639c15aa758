//! Lines of a worker of any bytes: for the fuzzer, and for tests that make bytes up.

use serde_json::value::RawValue;

use super::{Violation, WorkerAnswer, WorkerReply, read_log, read_ready, read_reply};
use crate::output::json_text::{checked, compact};

/// The items that the worker has in hand.
const IN_HAND: [u64; 2] = [7, 8];

/// Reads any bytes as a line of a worker, and checks that what is made of them holds together.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    if let Err(violation) = read_ready(bytes) {
        check_violation(&violation);
    }
    if let Some(text) = read_log(bytes) {
        assert_eq!(text.last(), Some(&b'\n'), "a message is whole lines");
    }
    let place = |item| match IN_HAND.iter().position(|it| *it == item) {
        Some(at) => Ok(at),
        None => Err(Violation::OtherItem { found: item, expected: IN_HAND.to_vec() }),
    };
    match read_reply(bytes, &place) {
        Ok(WorkerReply::Answer(at, WorkerAnswer::Output(output))) => {
            check_output(IN_HAND[at], &output);
        }
        Ok(WorkerReply::Answer(at, _)) => assert!(at < IN_HAND.len(), "it answers an item"),
        Ok(WorkerReply::Whole(..) | WorkerReply::Log(_)) => {}
        Err(violation) => check_violation(&violation),
    }
}

/// An output is one line of JSON that every reader accepts, and is the same once it is answered again.
fn check_output(item: u64, output: &RawValue) {
    let text = output.get();
    assert!(checked(text.as_bytes()).is_ok() && !text.contains('\n'), "{text}");
    let again = compact(output).expect("it has been read");
    assert_eq!(again.get(), text, "it is as short as it can be");
    let line = format!("{{\"item\":{item},\"output\":{text}}}");
    match read_reply(line.as_bytes(), &|_| Ok(0)) {
        Ok(WorkerReply::Answer(0, WorkerAnswer::Output(again))) => assert_eq!(again.get(), text),
        other => panic!("{line}: {other:?}"),
    }
}

fn check_violation(violation: &Violation) {
    let text = violation.to_string();
    assert!(text.len() < 2_000, "the line is shortened");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_a_violation(bytes in vec(any::<u8>(), 0..60)) {
            read_any_bytes(&bytes);
        }

        /// Made of what messages are made of.
        #[test]
        fn messages_that_were_made_up_hold_together(
            parts in vec(prop::sample::select(vec![
                "{", "}", "[", "]", ":", ",", "\"item\":7", "\"item\":8", "\"output\":", "\"error\":", "\"kind\":\"input\"",
                "\"log\":", "\"of\":\"list\"", "\"oom\":true", "\"gangline\":2", "1", "1e999", "NaN", "-0.0", "null",
                "\"a\"", "\"\\u00e9\"", "\"\\ud800\"", " ", "\n", "\u{feff}", "\u{1b}", "\"$serde_json::private::RawValue\":",
            ]), 0..12),
        ) {
            let middle = parts.concat();
            read_any_bytes(middle.as_bytes());
            read_any_bytes(format!("{{\"item\":7,\"output\":{middle}}}").as_bytes());
            read_any_bytes(format!("{{\"item\":7,{middle}}}").as_bytes());
        }
    }
}
