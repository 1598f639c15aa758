//! What conclusions advise, as data, and what it depends on beside the totals of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::formats::Percent;
use crate::provenance::Provenance;
use crate::totals::Totals;

/// A change that would make the next run faster.
///
/// `WhyItemsFail` has the share of the attempts if many failed. `FitMemory` has the largest batch that fits into the
/// memory of a device, and `FasterHook` the cores that all computed. `MoreProducers` has the number that the other parts
/// keep up with, and `RecycleAfter` the items between two states. `WindowMemory` has the memory of the machine if that
/// bounds the window. `Batches` are a device's, `WarmWorkers` and `JobLists` the program's.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Advice {
    LessInSource,
    LessInSourceMoreInWork,
    StageBefore,
    LessInConsumer,
    LessBetweenResults,
    NextStage,
    WhyItemsFail { share: Option<Percent> },
    FitMemory { batch: u64 },
    FasterHook { cores: u64 },
    MoreProducers { to: Option<u64>, places: PlaceKind },
    AutoBatch,
    LargerBatch { items: u64 },
    SmallerBatch { items: u64 },
    Batches,
    RecycleAfter { items: u64 },
    WhyStatesAreLost,
    FasterInit,
    Window { items: u64 },
    WindowMemory { bytes: u64, memory: Option<u64> },
    LargerWindow,
    LargerWindowMemory,
    SmallerItems { memory: Option<u64> },
    ShorterBackoff,
    CompletionOrder,
    Speculate,
    LongItemsFirst,
    SplitItem,
    SplitItems,
    MoreItems,
    OnePool,
    WorkersBefore,
    ConsumerInitBefore,
    BetterBatches,
    WarmWorkers,
    JobLists,
    WhyWorkersEnd,
    LimitAsNeeded,
    FasterDisk,
    WhyWorkersAreLost,
}

#[doc(hidden)]
/// The kind of places that producers have. A number as devices makes producers on CPUs, so it is no setting for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlaceKind {
    Cpus,
    Devices,
}

/// A setting with the value that a conclusion advises, in the words of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AdvisedSetting {
    pub(super) setting: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) value: Option<Value>,
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

    /// Second copies of slow items, if they are of use, and not made already.
    pub(super) fn copies(&self, totals: &Totals) -> Option<Advice> {
        let may_speculate = totals.producers.len() > 1 && !self.settings.contains_key("speculate");
        may_speculate.then_some(Advice::Speculate)
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
