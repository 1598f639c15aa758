//! Settings that a run might have had, and what they would have made of it.

mod leases;
pub(super) mod recorded;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use gangline_scheduler::Order;
use gangline_scheduler::batch::Batch;

use crate::run_report::RunReport;
use crate::vocabulary::Vocabulary;
use crate::wording::{named, prediction, write};

/// Settings that a run might have had: see [`RunReport::what_if`]. Settings that are not given stay as they were.
///
/// ```
/// # mod gangline { pub mod report { pub use gangline_report::*; } }
/// use gangline::report::Settings;
///
/// let twice_as_many = Settings::new().producers(4);
/// assert_ne!(twice_as_many, Settings::new());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    pub(super) producers: Option<usize>,
    pub(super) window: Option<usize>,
    pub(super) batch: Option<Batch>,
    pub(super) retries: Option<u32>,
    pub(super) order: Option<Order>,
}

/// How long a run would have taken with other [settings](Settings), and which of them cannot be predicted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Prediction {
    /// The settings that this is about: those that were asked for, without the refused ones.
    pub settings: Settings,
    /// How long the run took.
    pub recorded: Duration,
    /// How long it would have taken. The same as `recorded` if all settings were refused.
    pub lasted: Duration,
    /// The settings that were left as they were.
    pub refused: Vec<RefusedSetting>,
    vocabulary: Vocabulary,
}

/// A setting that was refused, since the report does not show its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RefusedSetting {
    /// The setting as text, such as `batch(64)`.
    pub setting: String,
    /// Why its effect is unknown.
    pub why: String,
}

impl Settings {
    /// Keeps all settings as they were.
    pub fn new() -> Self {
        Settings::default()
    }

    /// Sets the number of producers. Further ones are like those of the run, in turn, each on a device of its own.
    #[must_use]
    pub fn producers(self, producers: usize) -> Self {
        Settings { producers: Some(producers), ..self }
    }

    /// Sets the [window](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window), in items.
    #[must_use]
    pub fn window(self, items: usize) -> Self {
        Settings { window: Some(items), ..self }
    }

    /// Sets the [rule](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.batch) for batches.
    #[must_use]
    pub fn batch(self, batch: Batch) -> Self {
        Settings { batch: Some(batch), ..self }
    }

    /// Sets the number of [retries](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.retries).
    #[must_use]
    pub fn retries(self, retries: u32) -> Self {
        Settings { retries: Some(retries), ..self }
    }

    /// Sets the order of results.
    #[must_use]
    pub fn order(self, order: Order) -> Self {
        Settings { order: Some(order), ..self }
    }

    /// The settings as a vocabulary writes them.
    pub(super) fn list(&self, vocabulary: Vocabulary) -> Vec<String> {
        let written = |name, value: String| write(vocabulary, named(vocabulary, name), &value);
        let order = self.order.map(|order| match (vocabulary, order) {
            (Vocabulary::Jobs, Order::Input) => "--keep-order".to_owned(),
            (Vocabulary::Jobs, Order::Completion) => "--no-keep-order".to_owned(),
            (_, Order::Input) => written("order", "input".to_owned()),
            (_, Order::Completion) => written("order", "completion".to_owned()),
        });
        let batch = self.batch.map(|batch| match vocabulary {
            Vocabulary::Items => batch.to_string(),
            Vocabulary::Jobs | Vocabulary::Workers => batch.most().to_string(),
        });
        [
            self.producers.map(|producers| written("devices", producers.to_string())),
            self.window.map(|items| written("window", items.to_string())),
            batch.map(|batch| written("batch", batch)),
            self.retries.map(|retries| written("retries", retries.to_string())),
            order,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Prediction {
    /// Refuses all settings.
    fn none(report: &RunReport, settings: &Settings, why: &str) -> Self {
        let refuse = |setting| RefusedSetting { setting, why: why.to_owned() };
        Prediction {
            settings: Settings::default(),
            recorded: report.lasted,
            lasted: report.lasted,
            refused: settings.list(report.vocabulary).into_iter().map(refuse).collect(),
            vocabulary: report.vocabulary,
        }
    }
}

/// ``with `window(512)` this run would have taken 41.0 s, not 63.0 s``, and a line for each refused setting.
impl fmt::Display for Prediction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = self.settings.list(self.vocabulary);
        let settings: Vec<_> = settings.iter().map(|it| format!("`{it}`")).collect();
        if !settings.is_empty() {
            let with = format!("with {}", settings.join(" and "));
            f.write_str(&prediction(&with, self.lasted, self.recorded))?;
        }
        for (at, RefusedSetting { setting, why }) in self.refused.iter().enumerate() {
            let line_break = if at > 0 || !settings.is_empty() { "\n" } else { "" };
            write!(f, "{line_break}what `{setting}` would have changed is not known: {why}")?;
        }
        Ok(())
    }
}
