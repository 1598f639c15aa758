//! The implementations that the benchmark compares.

use std::time::{Duration, Instant};

use crate::gangs::Gang;
use crate::work::Work;

/// Works on the items 0, 1, 2, ... and sums the results.
pub trait Subject {
    fn kind(&self) -> Kind;

    /// The largest number of these items that takes a reasonable time.
    fn capacity(&self, items: u64) -> u64 {
        items
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome;
}

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    PlainLoop,
    SplitLoop,
    ParBridge,
    ParCollect,
    Orx,
    Pariter,
    Channels,
    ChannelsOf64,
    Bare,
    BareOne,
    Easycore,
    Gangline(Gang),
}

pub struct Outcome {
    pub sum: u64,
    pub elapsed: Duration,
}

impl Outcome {
    pub fn of(run: impl FnOnce() -> u64) -> Self {
        let start = Instant::now();
        let sum = run();
        Self { sum, elapsed: start.elapsed() }
    }
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::PlainLoop => "plain loop",
            Self::SplitLoop => "a plain loop on each thread",
            Self::ParBridge => "rayon par_bridge",
            Self::ParCollect => "rayon collect",
            Self::Orx => "orx-parallel collect",
            Self::Pariter => "pariter parallel_map",
            Self::Channels => "channels + BTreeMap",
            Self::ChannelsOf64 => "channels of 64 + BTreeMap",
            Self::Bare => "bare threads, 64 slots",
            Self::BareOne => "bare threads, one producer",
            Self::Easycore => "easycore (Python)",
            Self::Gangline(gang) => gang.name(),
        }
    }

    /// The guarantees on order and memory.
    pub fn manner(self) -> &'static str {
        match self {
            Self::PlainLoop => "one thread",
            Self::SplitLoop => "nothing handed over",
            Self::ParBridge => "any order",
            Self::ParCollect | Self::Orx => "in order, all in memory",
            Self::Channels | Self::ChannelsOf64 => "in order, no window",
            Self::Pariter | Self::Easycore | Self::Bare | Self::BareOne => "in order",
            Self::Gangline(gang) => gang.manner(),
        }
    }
}
