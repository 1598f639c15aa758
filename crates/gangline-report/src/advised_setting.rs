//! The settings that conclusions advise, and what they depend on beside the totals of a run.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::provenance::Provenance;
use crate::totals::Totals;

/// A setting with the value that a conclusion advises. The text of the conclusion and its list in JSON show the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "setting", content = "value", rename_all = "snake_case")]
pub(crate) enum AdvisedSetting {
    /// The number of producers.
    Devices(u64),
    Window(u64),
    WindowMemory(u64),
    /// The largest size of batches.
    Batch(u64),
    AutoBatch,
    RecycleAfter(u64),
    CompletionOrder,
    Speculate,
}

impl AdvisedSetting {
    /// Whether it changes the size of batches.
    pub(super) fn is_batch(&self) -> bool {
        matches!(self, AdvisedSetting::Batch(_) | AdvisedSetting::AutoBatch)
    }
}

/// Writes the setting as in code, without backquotes.
impl fmt::Display for AdvisedSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdvisedSetting::Devices(producers) => write!(f, "devices({producers})"),
            AdvisedSetting::Window(items) => write!(f, "window({items})"),
            AdvisedSetting::WindowMemory(bytes) => write!(f, "window_memory({bytes})"),
            AdvisedSetting::Batch(items) => write!(f, "batch(Batch::up_to({items}))"),
            AdvisedSetting::AutoBatch => f.write_str("batch(Batch::auto())"),
            AdvisedSetting::RecycleAfter(items) => write!(f, "recycle_after({items})"),
            AdvisedSetting::CompletionOrder => f.write_str("UnorderedRunner"),
            AdvisedSetting::Speculate => f.write_str("speculate()"),
        }
    }
}

/// What bounds advice beside the totals: the settings that a run has already, and the machine.
#[derive(Debug, Clone, Copy)]
pub(super) struct Circumstances<'a> {
    pub(super) settings: &'a BTreeMap<String, String>,
    pub(super) cores: Option<u64>,
}

impl<'a> Circumstances<'a> {
    pub(super) fn of(provenance: &'a Provenance) -> Self {
        Circumstances { settings: &provenance.settings, cores: provenance.cores }
    }

    /// Whether second copies of slow items are of use, and not made already.
    pub(super) fn may_speculate(&self, totals: &Totals) -> bool {
        totals.producers.len() > 1 && !self.settings.contains_key("speculate")
    }

    /// Whether the run chooses the size of its batches.
    pub(super) fn chooses_batches(&self) -> bool {
        self.settings.get("batch").is_some_and(|rule| rule.starts_with("auto"))
    }

    /// The largest size of batches that was set.
    pub(super) fn largest_batch(&self) -> Option<u64> {
        let rule = self.settings.get("batch")?;
        rule.split([' ', ',']).find_map(|word| word.parse().ok())
    }
}
