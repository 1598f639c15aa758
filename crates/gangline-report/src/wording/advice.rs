//! The words of advice, and how settings are written.

use serde_json::Value;

use super::Wording;
use super::template::{field, fields, filled, text_of};
use crate::advice::{Advice, AdvisedSetting, PlaceKind};
use crate::conclusion::Conclusion;
use crate::vocabulary::Vocabulary;

/// Returns the settings that a conclusion advises, as JSON has them.
pub(crate) fn settings(conclusion: &Conclusion, vocabulary: Vocabulary) -> Vec<AdvisedSetting> {
    let to = Wording::new(conclusion, vocabulary);
    let settings = conclusion.all_advice().filter_map(|advice| to.named_setting(advice));
    let settings = settings.map(|(setting, value)| AdvisedSetting {
        setting: setting.to_owned(),
        value: Some(value).filter(|value| !value.is_null()),
    });
    settings.collect()
}

/// Writes a setting as in code or on the command line, without backquotes.
pub(crate) fn write(vocabulary: Vocabulary, setting: &str, value: &str) -> String {
    match vocabulary {
        Vocabulary::Items => format!("{setting}({value})"),
        Vocabulary::Jobs => format!("{setting} {value}"),
        Vocabulary::Workers => format!("{setting}={value}"),
    }
}

/// The name of a setting in a vocabulary, for its name in the library.
pub(crate) fn named(vocabulary: Vocabulary, name: &'static str) -> &'static str {
    text_of(&format!("name.{name}"), vocabulary).unwrap_or(name)
}

impl Wording<'_> {
    /// Returns the advice as a clause: `; a, b, or c`. What a vocabulary has no words for is omitted.
    pub(super) fn listed(&self, advice: &[Advice]) -> String {
        let mut clauses: Vec<String> = advice.iter().filter_map(|it| self.advice(it)).collect();
        match (clauses.pop(), clauses.is_empty()) {
            (None, _) => String::new(),
            (Some(only), true) => format!("; {only}"),
            (Some(last), false) => format!("; {}, or {last}", clauses.join(", ")),
        }
    }

    pub(super) fn setting_of_window(&self, items: u64) -> String {
        self.setting(&Advice::Window { items }).unwrap_or_default()
    }

    /// The kind of an advice, and its numbers.
    fn advised(&self, advice: &Advice) -> (String, Value) {
        let mut fields = fields(advice);
        if let Advice::Window { items } = advice {
            fields["items"] = items.saturating_sub(self.conclusion.running).into();
        }
        (fields["change"].as_str().unwrap_or_default().to_owned(), fields)
    }

    /// The name and the value of a setting, if the vocabulary has it.
    fn named_setting(&self, advice: &Advice) -> Option<(&'static str, Value)> {
        let (kind, fields) = self.advised(advice);
        let kind = match advice {
            Advice::MoreProducers { places: PlaceKind::Devices, .. } => "more_on_devices",
            _ => &*kind,
        };
        let row = text_of(&format!("setting.{kind}"), self.vocabulary)?;
        let (name, value) = row.split_once(' ').unwrap_or((row, ""));
        Some(match value.strip_prefix('"') {
            Some(text) => (name, text.trim_end_matches('"').into()),
            None if value.is_empty() => (name, Value::Null),
            None => (name, fields.get(value).filter(|it| !it.is_null())?.clone()),
        })
    }

    /// A setting as it is written, in backquotes.
    fn setting(&self, advice: &Advice) -> Option<String> {
        let (name, value) = self.named_setting(advice)?;
        let (kind, fields) = self.advised(advice);
        let code = match self.vocabulary {
            Vocabulary::Items => text_of(&format!("code.{kind}"), self.vocabulary),
            Vocabulary::Jobs | Vocabulary::Workers => None,
        };
        let number = |gap: &'static str| {
            let (name, form) = gap.split_once(':')?;
            field(&fields, name, form, &self.words)
        };
        let written = match (code, self.vocabulary, value) {
            (Some(code), ..) => filled(code, &number)?,
            (None, _, Value::Null) => name.to_owned(),
            (None, Vocabulary::Jobs, Value::String(value)) => format!("{name} {value}"),
            (None, vocabulary, value) => write(vocabulary, name, &value.to_string()),
        };
        Some(format!("`{written}`"))
    }

    /// One imperative. `None` if the vocabulary has no words for it.
    fn advice(&self, advice: &Advice) -> Option<String> {
        let (kind, mut fields) = self.advised(advice);
        let setting = self.setting(advice);
        fields["enough"] = match (advice, &setting) {
            (Advice::MoreProducers { to: Some(_), places: PlaceKind::Cpus }, Some(setting)) => {
                setting.as_str().into()
            }
            (Advice::MoreProducers { to: Some(most), .. }, _) => format!("{most} of them").into(),
            _ => Value::Null,
        };
        fields["setting"] = setting.into();
        self.say(&format!("advice.{kind}"), &fields)
    }
}
