//! The failures of a run, by their cause.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use super::formats::{LONGEST_TEXT, Many, before_traceback, more, shortened};
use super::run_report::RunReport;
use super::sentences::{errors, failed, site};
use super::vocabulary::Vocabulary;
use crate::failure::Failure;

/// Failures of one hook whose errors differ in nothing but the item and in numbers.
pub(super) struct Cause<'a> {
    /// From the outermost. If several items failed, [`NAME`] stands for each, and for numbers that differ.
    errors: Vec<Cow<'a, str>>,
    /// At least one, in the order of the report.
    failures: Vec<&'a Failure>,
}

/// What stands for the key or the index of an item, and for a number.
pub(super) const NAME: &str = "{}";

/// A shorter name of a file may be a usual word of an error.
const SHORTEST_FILE: usize = 4;

/// A shorter word of hexadecimal digits without the usual prefix may be a usual word.
const SHORTEST_HASH: usize = 6;

/// A number behind one of these words says what happened: `exited with 2`, `signal 9`, `os error 28`.
const BEFORE_CODES: [&str; 8] =
    ["with", "code", "code:", "status", "status:", "signal", "signal:", "error"];

/// The items that a cause names at once.
const MOST_NAMES: usize = 3;

/// Groups failures by their cause, the most frequent first, then the first in the list.
pub(super) fn by_cause(failures: &[Failure]) -> Vec<Cause<'_>> {
    let mut causes: Vec<Cause<'_>> = Vec::new();
    let mut known = HashMap::new();
    for failure in failures {
        let errors = errors(failure).into_iter().map(|it| nameless(it, failure));
        let errors: Vec<_> = errors.map(|it| numberless(&it)).collect();
        let place = (&failure.stage, &failure.hook, failure.item.is_some());
        let at = *known.entry((place, errors)).or_insert(causes.len());
        match causes.get_mut(at) {
            Some(cause) => cause.failures.push(failure),
            None => causes.push(Cause { errors: vec![], failures: vec![failure] }),
        }
    }
    for ((_, numberless), at) in known {
        let cause = &mut causes[at];
        cause.errors = match cause.failures[..] {
            [failure] => errors(failure).into_iter().map(Cow::Borrowed).collect(),
            _ => common(&cause.failures).unwrap_or_else(|| owned(numberless)),
        };
    }
    causes.sort_by_key(|cause| Reverse(cause.failures.len()));
    causes
}

/// The errors without names, if the numbers in them are the same in all failures.
fn common<'a>(failures: &[&'a Failure]) -> Option<Vec<Cow<'a, str>>> {
    let nameless = |failure: &'a Failure| {
        let errors = errors(failure).into_iter().map(|it| nameless(it, failure));
        errors.collect::<Vec<_>>()
    };
    let first = nameless(failures[0]);
    failures.iter().all(|failure| nameless(failure) == first).then_some(first)
}

fn owned<'a>(texts: Vec<String>) -> Vec<Cow<'a, str>> {
    texts.into_iter().map(Cow::Owned).collect()
}

impl<'a> Cause<'a> {
    /// The errors from the innermost, which is the most specific.
    pub(super) fn errors(&self) -> Vec<Cow<'a, str>> {
        self.errors.iter().rev().cloned().collect()
    }

    /// The number of items that failed.
    pub(super) fn count(&self, report: &RunReport) -> String {
        match self.failures[0].item {
            Some(_) => Many(self.failures.len() as u64, report.words().item).to_string(),
            None => "the run".to_owned(),
        }
    }

    /// Names the hook or the input, and what the failures have in common of stage, device and attempts.
    pub(super) fn site(&self, report: &RunReport) -> String {
        let devices: BTreeSet<_> = self.failures.iter().map(|it| it.device.as_deref()).collect();
        let attempts: BTreeSet<_> = self.failures.iter().map(|it| it.attempts).collect();
        let mut common =
            Failure { error: String::new(), causes: vec![], ..self.failures[0].clone() };
        if devices.len() > 1 {
            common.device = Some(Many(devices.len() as u64, "device").to_string());
        }
        if attempts.len() > 1 {
            common.attempts = 1;
        }
        site(report, &common)
    }

    /// Names the items, at most `most`.
    pub(super) fn names(&self, report: &RunReport, key: usize, most: usize) -> Vec<String> {
        let failures = self.failures.iter().filter(|it| it.item.is_some()).take(most);
        failures.map(|it| failed(report, it, key)).collect()
    }

    /// How many items `names` does not have.
    pub(super) fn others(&self, most: usize) -> u64 {
        self.failures.len().saturating_sub(most) as u64
    }

    /// The lines of the text, with keys of at most `key` characters.
    pub(super) fn lines(&self, report: &RunReport, key: usize) -> Vec<String> {
        // An error of a command begins with the command and ends with what it said.
        let errors: Vec<_> =
            self.errors.iter().map(|it| shortened(before_traceback(it), LONGEST_TEXT)).collect();
        let (site, errors) = (self.site(report), errors.join(": "));
        let line = |what: &str| match (report.vocabulary, site.is_empty()) {
            (_, true) => format!("{what}: {errors}"),
            // For a program in Python, the exception says more than the place.
            (Vocabulary::Workers, false) => format!("{what}: {errors} ({site})"),
            (Vocabulary::Items | Vocabulary::Jobs, false) => format!("{what} {site}: {errors}"),
        };
        if let [failure] = self.failures[..] {
            return vec![line(&failed(report, failure, key))];
        }
        let mut lines = vec![line(&self.count(report))];
        let names = self.names(report, key, MOST_NAMES);
        lines.extend(names.into_iter().map(|name| format!("  {name}")));
        let others = more(self.others(MOST_NAMES), report.words().item);
        lines.extend(others.map(|more| format!("  {more}")));
        lines
    }
}

/// An error with [`NAME`] in place of the key of the item, or of its file name; without a key, of its index.
fn nameless<'a>(error: &'a str, failure: &Failure) -> Cow<'a, str> {
    let mut names = Vec::new();
    if let Some(key) = failure.key.as_deref() {
        let file = key.rsplit('/').next().unwrap_or(key);
        let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
        names.extend([file, stem].into_iter().filter(|it| it.chars().count() >= SHORTEST_FILE));
        names.insert(0, key);
    }
    let index = failure.item.map(|item| item.to_string());
    // The text of the failure itself has both.
    if failure.key.is_none() || failure.causes.is_empty() {
        names.extend(index.as_deref());
    }
    let mut text = Cow::Borrowed(error);
    for name in names.into_iter().filter(|name| !name.is_empty()) {
        if text.contains(name) {
            text = Cow::Owned(without(&text, name));
        }
    }
    // An error that is the name of its item has no other cause.
    if text == NAME { Cow::Borrowed(error) } else { text }
}

/// An error with [`NAME`] in place of numbers, so that those which differ in no more are one cause.
fn numberless(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_word = rest.starts_with(char::is_alphanumeric);
        let length = rest.find(|it: char| it.is_alphanumeric() != is_word).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let before = out.trim_end().rsplit(char::is_whitespace).next().unwrap_or_default();
        let is_code = BEFORE_CODES.contains(&before.to_ascii_lowercase().as_str());
        out.push_str(if is_number(word) && !is_code { NAME } else { word });
        rest = after;
    }
    out
}

/// Whether a word is a number, or one in hexadecimal digits such as an address or a hash.
fn is_number(word: &str) -> bool {
    let is_hex = |text: &str| text.chars().all(|it| it.is_ascii_hexdigit());
    let has_digit = word.contains(|it: char| it.is_ascii_digit());
    let is_hash = word.len() >= SHORTEST_HASH && has_digit && is_hex(word);
    let is_address = word.strip_prefix("0x").is_some_and(|it| !it.is_empty() && is_hex(it));
    let is_plain = !word.is_empty() && word.chars().all(|it| it.is_ascii_digit());
    is_plain || is_address || is_hash
}

/// Replaces a name where it is not part of a longer word.
fn without(text: &str, name: &str) -> String {
    let (mut out, mut rest, mut before) = (String::new(), text, None);
    while let Some(at) = rest.find(name) {
        let (start, end) = (&rest[..at], &rest[at + name.len()..]);
        let previous = start.chars().next_back().or(before);
        let is_of_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let starts = is_of_word(name.chars().next()) && is_of_word(previous);
        let ends = is_of_word(name.chars().next_back()) && is_of_word(end.chars().next());
        out.push_str(start);
        out.push_str(if starts || ends { name } else { NAME });
        before = name.chars().next_back();
        rest = end;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::failure;

    fn failed_on(item: u64, key: &str, error: &str) -> Failure {
        Failure { key: Some(key.to_owned()), ..failure(item, item as usize % 3, 1, error) }
    }

    #[test]
    fn errors_that_differ_in_the_item_only_have_one_cause() {
        let mut failures: Vec<_> = (0..5)
            .map(|n| {
                failed_on(
                    n,
                    &format!("/d/a{n}.tif"),
                    &format!("cannot read a{n}.tif of '/d/a{n}.tif'"),
                )
            })
            .collect();
        failures.insert(2, failed_on(9, "/d/b.tif", "`b.tif` is empty"));
        let causes = by_cause(&failures);
        let report = RunReport::default();
        let lines: Vec<_> = causes.iter().map(|it| it.lines(&report, 20)).collect();
        let many = [
            "5 items in producer_work on 3 devices: cannot read {} of '{}'",
            "  item 0 (/d/a0.tif)",
            "  item 1 (/d/a1.tif)",
            "  item 2 (/d/a2.tif)",
            "  and 2 more items",
        ];
        let one = ["item 9 (/d/b.tif) in producer_work on cuda:0: `b.tif` is empty"];
        assert_eq!(lines, [&many[..], &one[..]]);
    }

    #[test]
    fn a_report_of_python_says_the_exception_first() {
        let failures =
            [failed_on(0, "a.tif", "ValueError: bad\n\nTraceback (most recent call last):")];
        let report = RunReport { vocabulary: Vocabulary::Workers, ..RunReport::default() };
        let lines = by_cause(&failures)[0].lines(&report, 20);
        assert_eq!(lines, ["item 0 (a.tif): ValueError: bad (in work on cuda:0)"]);
    }

    #[test]
    fn errors_that_differ_otherwise_have_a_cause_each() {
        let failures = [
            failed_on(1, "a", "exited with 1"),
            failed_on(2, "b", "exited with 2"),
            Failure {
                hook: Some("consumer_work".to_owned()),
                ..failed_on(3, "c", "exited with 1")
            },
            Failure { item: None, key: None, ..failed_on(4, "d", "exited with 1") },
        ];
        assert_eq!(by_cause(&failures).len(), 4);
    }

    #[test]
    fn errors_that_differ_in_numbers_have_one_cause() {
        let of = |errors: &[&str]| {
            let failed = errors.iter().enumerate().map(|(at, it)| failed_on(at as u64, "a", it));
            let failures: Vec<_> = failed.collect();
            let causes = by_cause(&failures);
            causes.iter().map(|cause| cause.errors().concat()).collect::<Vec<_>>()
        };
        let lengths = ["the len is 3 but the index is 4", "the len is 3 but the index is 15"];
        assert_eq!(of(&lengths), ["the len is {} but the index is {}"]);
        assert_eq!(of(&["at 0x7f01: bad", "at 0x8e: bad"]), ["at {}: bad"]);
        assert_eq!(of(&["7d9a41 is gone", "00ffee is gone"]), ["{} is gone"]);
        assert_eq!(of(&["5 of 7", "5 of 7"]), ["5 of 7"], "no number differs");
        let codes =
            ["exited with 1", "exited with 2", "os error 28", "exit status: 3", "mp4", "mp3"];
        assert_eq!(of(&codes), codes, "a code says what happened");
    }

    #[test]
    fn a_name_within_a_word_is_no_name() {
        assert_eq!(without("7 of 77, a7 7", "7"), "{} of 77, a7 {}");
        assert_eq!(without("x7x", "7"), "x7x");
        assert_eq!(without("/a/b: /a/b/c", "/a/b"), "{}: {}/c");
    }

    #[test]
    fn an_index_stands_for_an_item_without_a_key() {
        let failure = |item: u64| Failure {
            item: Some(item),
            error: format!("the hook failed for item {item}"),
            ..Failure::default()
        };
        let failures = [failure(3), failure(14)];
        let causes = by_cause(&failures);
        assert_eq!(causes[0].errors(), ["the hook failed for item {}"]);
        assert_eq!(causes.len(), 1);
    }

    #[test]
    fn parts_that_fail_alike_are_one_cause() {
        let failure = |item: u64| Failure {
            item: Some(item),
            parts: vec![5],
            hook: Some("producer_work".to_owned()),
            error: format!("part 5 of item {item} failed"),
            causes: vec![format!("producer_work failed for item {}", 7 * item), "six".to_owned()],
            ..Failure::default()
        };
        let failures = [failure(6), failure(13)];
        let causes = by_cause(&failures);
        assert_eq!((causes.len(), causes[0].errors()), (1, vec![Cow::Borrowed("six")]));
    }
}
