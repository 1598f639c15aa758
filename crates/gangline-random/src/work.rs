//! A runner that does as its items say, and keeps records of all calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gangline::error::OutOfMemory;
use gangline::{ConsumerContext, Error, ProducerContext, Result, Runner};

use crate::item::{Fault, Item, Output};
use crate::live::{Count, Live};

/// What a run did, as its hooks saw it.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) items: Arc<Count>,
    pub(crate) states: Arc<Count>,
    pub(crate) inits: AtomicU64,
    pub(crate) ready: AtomicU64,
    pub(crate) ends: AtomicU64,
    /// States that a panic cost.
    pub(crate) lost: AtomicU64,
    pub(crate) pulled: AtomicU64,
    /// Items that have left the run, as the consumer sees it.
    pub(crate) gone: AtomicU64,
    pub(crate) most_in_flight: AtomicU64,
    pub(crate) consumer_ends: AtomicU64,
    seen: Mutex<Vec<Seen>>,
}

/// A call of the consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Consumed { x: u64, right: bool },
    Skipped { x: u64, timeout: bool, error: String },
}

/// How the hooks of producers fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HookFaults {
    /// This call of `producer_init`, from 1, returns an error. 0: none.
    pub(crate) init: u64,
    pub(crate) init_panics: bool,
    /// `producer_end` returns an error.
    pub(crate) end: bool,
    pub(crate) consumer_init: bool,
    pub(crate) consumer_end: bool,
    /// The batch hook takes inputs out before it fails.
    pub(crate) takes_out: bool,
}

pub(crate) struct Work {
    pub(crate) record: Arc<Record>,
    pub(crate) faults: HookFaults,
}

impl Seen {
    pub(crate) fn x(&self) -> u64 {
        match *self {
            Seen::Consumed { x, .. } | Seen::Skipped { x, .. } => x,
        }
    }
}

impl Record {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn see(&self, seen: Seen) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen);
        self.gone.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes that the input is asked for an item.
    pub(crate) fn pull(&self) {
        let gone = self.gone.load(Ordering::Acquire);
        let pulled = self.pulled.fetch_add(1, Ordering::AcqRel) + 1;
        self.most_in_flight.fetch_max(pulled.saturating_sub(gone), Ordering::AcqRel);
    }
}

impl Runner for Work {
    type Input = Item;
    type Output = Output;
    type ProducerState = Live;
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Live> {
        if self.record.inits.fetch_add(1, Ordering::AcqRel) + 1 == self.faults.init {
            match self.faults.init_panics {
                true => panic!("fault of init"),
                false => return Err("fault of init".into()),
            }
        }
        self.record.ready.fetch_add(1, Ordering::AcqRel);
        Ok(self.record.states.live())
    }

    fn producer_work(&self, cx: &ProducerContext<'_>, _: &mut Live, item: Item) -> Result<Output> {
        if matches!(item.fault, Fault::Panic(until) if cx.attempt() <= until) {
            self.record.lost.fetch_add(1, Ordering::AcqRel);
        }
        item.work(cx)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Live,
        inputs: &mut Vec<Item>,
    ) -> Result<Vec<Result<Output>>> {
        let has_no_memory =
            |item: &Item| matches!(item.fault, Fault::Memory(most) if inputs.len() > most);
        if inputs.iter().any(has_no_memory) {
            return Err(OutOfMemory::new("fault of the batch").into());
        }
        let panics = |(i, item): (usize, &Item)| matches!(item.fault, Fault::Panic(until) if cx.at(i).attempt() <= until);
        if let Some(i) = inputs.iter().enumerate().position(panics) {
            self.record.lost.fetch_add(1, Ordering::AcqRel);
            panic!("fault of {}", inputs[i].x);
        }
        let taken;
        let items = match self.faults.takes_out {
            true => {
                taken = std::mem::take(inputs);
                &taken
            }
            false => &*inputs,
        };
        let results = items.iter().enumerate().map(|(i, item)| item.work(&cx.at(i)));
        Ok(results.collect())
    }

    fn producer_end(&self, _: &ProducerContext<'_>, _: Live) -> Result<()> {
        self.record.ends.fetch_add(1, Ordering::AcqRel);
        if self.faults.end { Err("fault of end".into()) } else { Ok(()) }
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
        if self.faults.consumer_init { Err("fault of consumer_init".into()) } else { Ok(vec![]) }
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        all: &mut Vec<u64>,
        output: Output,
    ) -> Result<()> {
        match output.fault {
            Fault::Consumer => return Err(format!("fault of {}", output.x).into()),
            Fault::ConsumerPanic => panic!("fault of {}", output.x),
            Fault::Stop => cx.stop(),
            _ => {}
        }
        let right = output.y == crate::item::answer(output.x);
        self.record.see(Seen::Consumed { x: output.x, right });
        all.push(output.x);
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        _: &mut Vec<u64>,
        error: &Error,
    ) -> Result<()> {
        let x = cx.item().unwrap_or(u64::MAX);
        let (timeout, error) = (error.is_timeout(), format!("{error:#}"));
        self.record.see(Seen::Skipped { x, timeout, error });
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
        self.record.consumer_ends.fetch_add(1, Ordering::AcqRel);
        if self.faults.consumer_end { Err("fault of consumer_end".into()) } else { Ok(all) }
    }
}
