//! What a hook is told about its call.

use std::sync::Arc;

use crate::cfg::CfgNode;
use crate::device::{Device, HeldGpus, Place};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// By which a hook learns that nothing waits for its call any more.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AbandonFlag<'a> {
    /// Of one call within a run: it is set to the number of the call, or to the greatest for all.
    Call { revoked: &'a AtomicU64, call: u64 },
    /// Of the building of a producer.
    Building { is_left: &'a AtomicBool },
}

impl AbandonFlag<'_> {
    fn is_set(&self) -> bool {
        match self {
            AbandonFlag::Call { revoked, call } => {
                let revoked = revoked.load(Ordering::Relaxed);
                revoked == *call || revoked == u64::MAX
            }
            AbandonFlag::Building { is_left } => is_left.load(Ordering::Relaxed),
        }
    }
}

/// What a producer's hook is told about its call: the device, the configuration, the items.
#[derive(Debug, Clone, Copy)]
pub struct ProducerContext<'a> {
    station: &'a Station,
    items: &'a [u64],
    attempt: u32,
    wanted: &'a Wanted,
    /// Whether anything waits for this call. `None` where that is certain.
    flag: Option<AbandonFlag<'a>>,
}

impl<'a> ProducerContext<'a> {
    pub(crate) fn new(station: &'a Station, wanted: &'a Wanted, items: &'a [u64]) -> Self {
        ProducerContext { station, items, attempt: 1, wanted, flag: None }
    }

    /// The same, for another attempt.
    pub(crate) fn with_attempt(self, attempt: u32) -> Self {
        ProducerContext { attempt, ..self }
    }

    /// The same, for a producer that may be abandoned.
    pub(crate) fn with_abandon_flag(self, flag: Option<AbandonFlag<'a>>) -> Self {
        ProducerContext { flag, ..self }
    }

    /// The producer's device; the first, if its place has several.
    pub fn device(&self) -> &'a Device {
        &self.devices()[0]
    }

    /// All devices of the producer's place, as the device list gives them: at least one.
    pub fn devices(&self) -> &'a [Device] {
        self.station.place.devices()
    }

    /// The producer's number, from 0, which is also its position in the device list.
    pub fn producer(&self) -> usize {
        self.station.producer
    }

    /// The runner's configuration, as it was when the runner was built or last activated.
    pub fn cfg(&self) -> &'a CfgNode {
        &self.station.cfg
    }

    /// The indices in the run of this call's inputs, ascending; empty in
    /// [`producer_init`](crate::Runner::producer_init) and
    /// [`producer_end`](crate::Runner::producer_end).
    pub fn items(&self) -> &'a [u64] {
        self.items
    }

    /// The index in the run of this call's input, when there is exactly one.
    pub fn item(&self) -> Option<u64> {
        match self.items {
            [item] => Some(*item),
            _ => None,
        }
    }

    /// The same context, narrowed to the `i`-th of this call's inputs.
    ///
    /// # Panics
    ///
    /// When there is no `i`-th input.
    pub fn at(&self, i: usize) -> ProducerContext<'a> {
        ProducerContext { items: &self.items[i..=i], ..*self }
    }

    /// Which attempt at the items this is: 1 at first, more where the builder allows
    /// [retries](crate::Builder::retries). The search for the guilty item of a batch is no attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether the result of this call is no longer wanted, because the run was cancelled or
    /// stopped, has failed elsewhere, or its stream was dropped, because the call took longer than it
    /// [may](crate::Builder::item_timeout), or because [another producer](crate::Builder::speculate) was done with the item first. Whatever the call returns then is
    /// dropped, so a long computation may look here now and then and give up.
    pub fn is_cancelled(&self) -> bool {
        self.wanted.gave_up_on(self.items.first().copied())
            || self.flag.is_some_and(|flag| flag.is_set())
    }

    /// The hook for batches is the default. That may be meant, or it may be that a runner that wraps
    /// another forgot to forward it, which would be slow and otherwise look the same.
    pub(crate) fn note_one_by_one(&self) {
        if self.items.len() > 1 && !self.station.said_one_by_one.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "items of a batch are worked on one by one: `producer_work_batch` is the default; \
                 a runner that wraps another has to forward it"
            );
        }
    }

    /// The producer's device as candle knows it: made once per producer, on its thread, and for
    /// CUDA with a stream of its own, so that producers on one GPU overlap. Tensors of different
    /// producers do not mix, even on the same GPU: load weights onto this device, and give results
    /// out as plain data or as tensors on the CPU.
    ///
    /// # Errors
    ///
    /// When the device cannot be opened, or when the devices are only
    /// [labels](crate::Devices::names_only).
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    pub fn candle_device(&self) -> crate::Result<candle_core::Device> {
        Ok(self.station.candle.get()?[0].clone())
    }

    /// All devices of the producer's place as candle knows them, in the order of
    /// [`devices`](ProducerContext::devices). See [`candle_device`](ProducerContext::candle_device).
    ///
    /// # Errors
    ///
    /// As [`candle_device`](ProducerContext::candle_device).
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    pub fn candle_devices(&self) -> crate::Result<Vec<candle_core::Device>> {
        Ok(self.station.candle.get()?.to_vec())
    }
}

/// What a consumer's hook is told about its call.
#[derive(Clone, Copy)]
pub struct ConsumerContext<'a> {
    cfg: &'a CfgNode,
    item: Option<u64>,
    run: &'a dyn RunControl,
}

impl<'a> ConsumerContext<'a> {
    pub(crate) fn new(cfg: &'a CfgNode, run: &'a dyn RunControl, item: Option<u64>) -> Self {
        ConsumerContext { cfg, item, run }
    }

    /// The runner's configuration, as it was when the runner was built or last activated.
    pub fn cfg(&self) -> &'a CfgNode {
        self.cfg
    }

    /// The index in the run of the item whose output this is; `None` in
    /// [`consumer_init`](crate::Runner::consumer_init) and
    /// [`consumer_end`](crate::Runner::consumer_end).
    pub fn item(&self) -> Option<u64> {
        self.item
    }

    /// The key of that item, if [keys](crate::Builder::key) were asked for.
    pub fn key(&self) -> Option<String> {
        self.run.name_of(self.item?).map(|name| name.to_string())
    }

    /// Whether the run was cancelled, or failed at an item that comes before this one.
    pub fn is_cancelled(&self) -> bool {
        self.run.gave_up_on(self.item)
    }

    /// Ends the run without failing it.
    ///
    /// No further input is taken. Once the current hook returns `Ok`, `consumer_work` is not called
    /// again in this run: what was given out is dropped and counted as cancelled, and its failures
    /// no longer fail the run. `consumer_end` is called, and the run returns its summary. When the
    /// current hook returns `Err`, the run fails with it.
    pub fn stop(&self) {
        self.run.stop();
    }

    /// Has `note` stored in the [journal](crate::Builder::journal) with the next commit, if the hook that calls
    /// this returns `Ok`: say, how long the file is that the consumer writes. The last one counts. That of
    /// [`consumer_end`](crate::Runner::consumer_end) is stored by itself, at once. Without a journal it does nothing.
    ///
    /// # Errors
    ///
    /// When the note is longer than 64 KiB.
    pub fn note(&self, note: impl Into<Vec<u8>>) -> crate::Result<()> {
        self.run.note(note.into())
    }

    /// The last note that an earlier run has committed in the same journal; `None` where there is none.
    pub fn last_note(&self) -> Option<&'a [u8]> {
        self.run.last_note()
    }
}

impl std::fmt::Debug for ConsumerContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerContext").field("item", &self.item).finish_non_exhaustive()
    }
}

/// What the consumer may ask of its run.
pub(crate) trait RunControl: Send + Sync {
    fn stop(&self);
    fn gave_up_on(&self, item: Option<u64>) -> bool;
    /// What an item is called that is out.
    fn name_of(&self, item: u64) -> Option<Arc<str>>;
    /// See [`ConsumerContext::note`].
    fn note(&self, note: Vec<u8>) -> crate::Result<()>;
    /// See [`ConsumerContext::last_note`].
    fn last_note(&self) -> Option<&[u8]>;
}

/// One producer's place in the device list, with what it works with.
#[derive(Debug)]
pub(crate) struct Station {
    /// The position in the list.
    pub(crate) producer: usize,
    pub(crate) place: Place,
    pub(crate) cfg: Arc<CfgNode>,
    /// Whether a producer of this crew was told that batches are worked on one by one.
    pub(crate) said_one_by_one: Arc<AtomicBool>,
    #[cfg(feature = "candle")]
    pub(crate) candle: crate::device::CandleDevices,
    /// How many threads its own pool has; `None` where it has none.
    #[cfg(feature = "rayon")]
    pub(crate) cpu_threads: Option<usize>,
    /// Given back with the last station: no other run gets a GPU that a producer still works on, nor,
    /// since it is the last field, one that candle still has open.
    #[expect(dead_code, reason = "it is held, not read")]
    pub(crate) gpus: Option<Arc<HeldGpus>>,
}

/// Which items' results are still wanted.
#[derive(Debug)]
pub(crate) struct Wanted {
    /// The items from here on are not. It only ever falls. `Relaxed` is enough: it saves work and
    /// answers `is_cancelled`, while whoever sleeps is told through the lock that it sleeps under.
    end: AtomicU64,
}

impl Wanted {
    pub(crate) fn all() -> Self {
        Wanted { end: AtomicU64::new(u64::MAX) }
    }

    /// Gives up on all items from `item` on.
    pub(crate) fn give_up_from(&self, item: u64) {
        self.end.fetch_min(item, Ordering::Relaxed);
    }

    /// Whether the result for `item` is no longer wanted; without an item, whether nothing is.
    #[inline]
    pub(crate) fn gave_up_on(&self, item: Option<u64>) -> bool {
        item.unwrap_or(0) >= self.end.load(Ordering::Relaxed)
    }
}
