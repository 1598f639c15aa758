//! What the time of a producer went to.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::seconds;

/// What a moment of a producer's time goes to. Each moment has one kind.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TimeKind {
    /// The hook works on items, or the producer looks for them.
    #[default]
    Work,
    /// A state is built: `producer_init` in the run, also after a loss; or what a hook counts as loading.
    Loading,
    /// There is work, and a setting or a limit holds it back, such as the backoff before a retry.
    HeldBack,
    /// No item has been read that the producer could work on.
    Input,
    /// The window is full of items in front: see [`window`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.window).
    Order,
    /// A journal, or a record of results, is written to a disk.
    Journal,
    /// A worker was lost, and that is not known before its lease ends.
    Dead,
}

/// The time of a producer, by kind. The sum is the time that it took part in the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TimeAccount {
    /// Of the kind [`Work`](TimeKind::Work).
    #[serde(with = "seconds")]
    pub work: Duration,
    /// Of the kind [`Loading`](TimeKind::Loading).
    #[serde(with = "seconds")]
    pub loading: Duration,
    /// Of the kind [`HeldBack`](TimeKind::HeldBack).
    #[serde(with = "seconds")]
    pub held_back: Duration,
    /// Of the kind [`Input`](TimeKind::Input).
    #[serde(with = "seconds")]
    pub input: Duration,
    /// Of the kind [`Order`](TimeKind::Order).
    #[serde(with = "seconds")]
    pub order: Duration,
    /// Of the kind [`Journal`](TimeKind::Journal).
    #[serde(with = "seconds")]
    pub journal: Duration,
    /// Of the kind [`Dead`](TimeKind::Dead).
    #[serde(with = "seconds")]
    pub dead: Duration,
}

/// A time of a producer that is not work.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct TimeSpan {
    /// The producer's number.
    pub producer: usize,
    /// What the time went to.
    pub kind: TimeKind,
    /// When it began, from the start of the run.
    #[serde(with = "seconds")]
    pub start: Duration,
    /// How long it lasted.
    #[serde(with = "seconds")]
    pub took: Duration,
}

/// A time that a producer has just spent on something other than an item.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentTime {
    pub kind: TimeKind,
    pub took: Duration,
    pub place: SpentIn,
}

/// Where a producer spent a time.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpentIn {
    /// In a call of its hook.
    Hook,
    /// Between two calls.
    Wait,
}

/// The time for which each setting held work back, such as `--load`.
pub type HeldBackBy = BTreeMap<String, Duration>;

impl TimeKind {
    /// All kinds.
    pub const ALL: [TimeKind; 7] = [
        TimeKind::Work,
        TimeKind::Loading,
        TimeKind::HeldBack,
        TimeKind::Input,
        TimeKind::Order,
        TimeKind::Journal,
        TimeKind::Dead,
    ];

    /// The kinds of which a timeline has rows beside those of work. A wait for input is what is left.
    pub(crate) const DRAWN: [TimeKind; 5] =
        [TimeKind::Loading, TimeKind::HeldBack, TimeKind::Order, TimeKind::Journal, TimeKind::Dead];

    /// The names of all kinds, and their words.
    const NAMES: [(&str, &str); 7] = [
        ("work", "work"),
        ("loading", "loading"),
        ("held_back", "held back"),
        ("input", "waiting for input"),
        ("order", "waiting for order"),
        ("journal", "journal"),
        ("dead", "dead"),
    ];

    /// The kind in a table, a legend and a trace.
    pub(crate) fn text(self) -> &'static str {
        Self::NAMES[self as usize].1
    }

    /// The kind in JSON, in metrics, and as a class on a page.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}

impl TimeAccount {
    /// The time of a kind.
    pub fn of_kind(&self, kind: TimeKind) -> Duration {
        match kind {
            TimeKind::Work => self.work,
            TimeKind::Loading => self.loading,
            TimeKind::HeldBack => self.held_back,
            TimeKind::Input => self.input,
            TimeKind::Order => self.order,
            TimeKind::Journal => self.journal,
            TimeKind::Dead => self.dead,
        }
    }

    /// Adds a time of a kind.
    #[doc(hidden)]
    pub fn add(&mut self, kind: TimeKind, took: Duration) {
        *match kind {
            TimeKind::Work => &mut self.work,
            TimeKind::Loading => &mut self.loading,
            TimeKind::HeldBack => &mut self.held_back,
            TimeKind::Input => &mut self.input,
            TimeKind::Order => &mut self.order,
            TimeKind::Journal => &mut self.journal,
            TimeKind::Dead => &mut self.dead,
        } += took;
    }

    /// The time in which the producer took part in the run.
    pub fn sum(&self) -> Duration {
        TimeKind::ALL.iter().map(|kind| self.of_kind(*kind)).sum()
    }
}
