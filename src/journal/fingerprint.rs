//! The identity of the work that a journal belongs to.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Journal;
use crate::cfg::segment::{join, segments};

/// The way in which a journal identifies items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum KeyKind {
    /// By their positions in the input.
    #[serde(rename = "position")]
    Position,
    /// By their positions in the input, with a hash of each item.
    #[serde(rename = "position and hash")]
    HashedPosition,
    /// By their keys.
    #[serde(rename = "name")]
    Name,
}

/// One difference between the work of a journal and the current run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// The name of the runner; `None` if none was given.
    #[non_exhaustive]
    RunnerName {
        /// In the journal.
        was: Option<String>,
        /// Now.
        is: Option<String>,
    },
    /// The version of the runner; `None` if none was given.
    #[non_exhaustive]
    RunnerVersion {
        /// In the journal.
        was: Option<String>,
        /// Now.
        is: Option<String>,
    },
    /// The way of identifying items.
    #[non_exhaustive]
    Keys {
        /// In the journal.
        was: KeyKind,
        /// Now.
        is: KeyKind,
    },
    /// The number of stages: 1 for a run of a single pool.
    #[non_exhaustive]
    Stages {
        /// In the journal.
        was: usize,
        /// Now.
        is: usize,
    },
    /// A value of the configuration.
    #[non_exhaustive]
    Cfg {
        /// Its dotted path; empty for the whole configuration. In a later stage of a pipeline it begins with
        /// the stage: `stage 2.model.lr`.
        path: String,
        /// The value in the journal, as JSON, shortened; `None` if there was none.
        was: Option<String>,
        /// The value now.
        is: Option<String>,
    },
}

/// What must not change between the runs of one journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fingerprint {
    /// Its name and version.
    runner: Option<(String, String)>,
    keys: KeyKind,
    cfg: Value,
    /// The configurations of the later stages of a pipeline.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    later_stages: Vec<Value>,
}

/// The maximum number of characters of a value in a message.
const LONGEST_VALUE: usize = 60;

impl Fingerprint {
    /// Makes the fingerprint of a run with this configuration, without what the journal ignores.
    #[cfg(test)]
    pub(crate) fn new(journal: &Journal, cfg: Value, keys: KeyKind) -> Self {
        Fingerprint::of_pipeline(journal, cfg, vec![], keys)
    }

    /// Makes the fingerprint of a run of a pipeline: `cfg` is the configuration of its first stage.
    pub(crate) fn of_pipeline(
        journal: &Journal,
        cfg: Value,
        later_stages: Vec<Value>,
        keys: KeyKind,
    ) -> Self {
        let runner = journal.runner.clone();
        let mut fingerprint = Fingerprint { runner, keys, cfg, later_stages };
        fingerprint.ignore(&journal.ignored);
        fingerprint
    }

    pub(crate) fn keys(&self) -> KeyKind {
        self.keys
    }

    /// Removes the values at these paths from the configuration of each stage.
    pub(super) fn ignore(&mut self, paths: &[String]) {
        for path in paths {
            let cfgs = std::iter::once(&mut self.cfg).chain(&mut self.later_stages);
            let steps = segments(path);
            cfgs.for_each(|cfg| remove(cfg, &steps));
        }
    }

    /// Returns the differences from this older fingerprint to the current one.
    pub(super) fn differences(&self, is: &Fingerprint) -> Vec<Difference> {
        let parts = |of: &Fingerprint| of.runner.clone().unzip();
        let ((was_name, was_version), (name, version)) = (parts(self), parts(is));
        let mut differences = Vec::new();
        if was_name != name {
            differences.push(Difference::RunnerName { was: was_name, is: name });
        }
        if was_version != version {
            differences.push(Difference::RunnerVersion { was: was_version, is: version });
        }
        if self.keys != is.keys {
            differences.push(Difference::Keys { was: self.keys, is: is.keys });
        }
        let stages = |of: &Fingerprint| 1 + of.later_stages.len();
        if stages(self) != stages(is) {
            differences.push(Difference::Stages { was: stages(self), is: stages(is) });
        }
        compare("", Some(&self.cfg), Some(&is.cfg), &mut differences);
        for ((was, is), stage) in self.later_stages.iter().zip(&is.later_stages).zip(2..) {
            compare(&format!("stage {stage}"), Some(was), Some(is), &mut differences);
        }
        differences
    }
}

fn remove(value: &mut Value, path: &[Cow<'_, str>]) {
    let Some((step, rest)) = path.split_first() else { return };
    match (value, rest) {
        (Value::Object(map), []) => drop(map.shift_remove(&**step)),
        (value, [_, ..]) => {
            if let Some(inner) = child_mut(value, step) {
                remove(inner, rest);
            }
        }
        _ => {}
    }
}

fn child_mut<'v>(value: &'v mut Value, step: &str) -> Option<&'v mut Value> {
    match value {
        Value::Object(map) => map.get_mut(step),
        Value::Array(list) => list.get_mut(step.parse::<usize>().ok()?),
        _ => None,
    }
}

fn compare(path: &str, was: Option<&Value>, is: Option<&Value>, found: &mut Vec<Difference>) {
    match (was, is) {
        (was, is) if was == is => {}
        (Some(Value::Object(was)), Some(Value::Object(is))) => {
            let added = is.keys().filter(|key| !was.contains_key(*key));
            for key in was.keys().chain(added) {
                compare(&join(path, key), was.get(key), is.get(key), found);
            }
        }
        (Some(Value::Array(was)), Some(Value::Array(is))) if was.len() == is.len() => {
            for (i, (was, is)) in was.iter().zip(is).enumerate() {
                compare(&join(path, &i.to_string()), Some(was), Some(is), found);
            }
        }
        (was, is) => {
            let (was, is) = (was.map(shown), is.map(shown));
            found.push(Difference::Cfg { path: path.to_owned(), was, is });
        }
    }
}

fn shown(value: &Value) -> String {
    let mut text = value.to_string();
    if let Some((end, _)) = text.char_indices().nth(LONGEST_VALUE) {
        text.truncate(end);
        text.push_str("...");
    }
    text
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KeyKind::Position => "position",
            KeyKind::HashedPosition => "position and hash",
            KeyKind::Name => "name",
        })
    }
}

/// Reads as part of a sentence: `model.lr was 0.1 and is 0.2`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::RunnerName { was, is } => {
                write!(f, "the runner's name was {} and is {}", Text(was), Text(is))
            }
            Difference::RunnerVersion { was, is } => {
                write!(f, "the runner's version was {} and is {}", Text(was), Text(is))
            }
            Difference::Keys { was, is } => {
                write!(f, "items were known by {was} and are by {is}")
            }
            Difference::Stages { was, is } => write!(f, "the stages were {was} and are {is}"),
            Difference::Cfg { path, was, is } => {
                let path = if path.is_empty() { "the configuration" } else { path };
                let [was, is] = [was, is].map(|value| value.as_deref().unwrap_or("absent"));
                write!(f, "{path} was {was} and is {is}")
            }
        }
    }
}

struct Text<'a>(&'a Option<String>);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(text) => write!(f, "{text:?}"),
            None => f.write_str("not given"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(journal: Journal, cfg: Value) -> Fingerprint {
        Fingerprint::new(&journal, cfg, KeyKind::Position)
    }

    fn told(was: &Fingerprint, is: &Fingerprint) -> Vec<String> {
        was.differences(is).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_changed_is_told_by_its_path() {
        let cfg = |lr, layers: Value| json!({"model": {"lr": lr, "layers": layers}, "seed": 1});
        let was = of(Journal::at("j"), cfg(0.1, json!([64, 128])));
        assert_eq!(told(&was, &of(Journal::at("j"), cfg(0.1, json!([64, 128])))), [""; 0]);
        let is = of(Journal::at("j"), cfg(0.2, json!([64, 256])));
        let expected = ["model.lr was 0.1 and is 0.2", "model.layers.1 was 128 and is 256"];
        assert_eq!(told(&was, &is), expected);
        let is = of(Journal::at("j"), json!({"model": {"lr": 0.1, "layers": [64]}, "new": "x"}));
        let expected = [
            "model.layers was [64,128] and is [64]",
            "seed was 1 and is absent",
            "new was absent and is \"x\"",
        ];
        assert_eq!(told(&was, &is), expected);
    }

    #[test]
    fn the_order_of_keys_is_no_difference_but_the_type_of_a_number_is() {
        let was = of(Journal::at("j"), json!({"a": 1, "b": {"c": 2, "d": 3}}));
        let is = of(Journal::at("j"), json!({"b": {"d": 3, "c": 2}, "a": 1.0}));
        assert_eq!(told(&was, &is), ["a was 1 and is 1.0"]);
    }

    #[test]
    fn the_parts_of_the_runner_and_the_kind_of_key_are_told_apart() {
        let named =
            |name: &str, version: &str| of(Journal::at("j").runner(name, version), json!({}));
        let was = named("digits", "1.1");
        assert_eq!(
            told(&was, &named("digits", "1.2")),
            [r#"the runner's version was "1.1" and is "1.2""#]
        );
        assert_eq!(
            told(&was, &of(Journal::at("j"), json!({})))[0],
            r#"the runner's name was "digits" and is not given"#
        );
        let by_name = Fingerprint { keys: KeyKind::Name, ..was.clone() };
        assert_eq!(told(&was, &by_name), ["items were known by position and are by name"]);
    }

    #[test]
    fn what_is_ignored_is_not_there() {
        let journal =
            || Journal::at("j").ignore_cfg("log").ignore_cfg("hosts.0.token").ignore_cfg("no.such");
        let cfg =
            |token| json!({"log": {"level": token}, "hosts": [{"name": "a", "token": token}]});
        let is = of(journal(), cfg("secret"));
        assert_eq!(is, of(journal(), cfg("other")));
        assert_eq!(is.cfg, json!({"hosts": [{"name": "a"}]}));
    }

    #[test]
    fn each_stage_of_a_pipeline_has_its_configuration() {
        let of = |later_stages: Vec<Value>| {
            let journal = Journal::at("j").ignore_cfg("log");
            Fingerprint::of_pipeline(&journal, json!({"x": 1}), later_stages, KeyKind::Position)
        };
        let was = of(vec![json!({"x": 1, "log": 1}), json!({})]);
        assert_eq!(told(&was, &of(vec![json!({"x": 1, "log": 2}), json!({})])), [""; 0]);
        let is = of(vec![json!({"x": 2}), json!({"y": 3})]);
        let expected = ["stage 2.x was 1 and is 2", "stage 3.y was absent and is 3"];
        assert_eq!(told(&was, &is), expected);
        assert_eq!(told(&was, &of(vec![])), ["the stages were 3 and are 1"]);
    }

    #[test]
    fn a_long_value_is_shortened() {
        let was = of(Journal::at("j"), json!({"text": "ä".repeat(200)}));
        let told = told(&was, &of(Journal::at("j"), json!({})));
        assert_eq!(told, [format!("text was \"{}... and is absent", "ä".repeat(59))]);
    }
}
