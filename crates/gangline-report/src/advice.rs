//! What conclusions advise, as data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::formats::Percent;

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
