//! Items that say their own faults.

use std::hint::spin_loop;
use std::thread;
use std::time::{Duration, Instant};

use gangline::error::OutOfMemory;
use gangline::{ProducerContext, Result};

use crate::live::Live;

/// What goes wrong with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Takes this number of turns of an empty loop.
    Busy(u32),
    /// The hook returns an error up to this attempt.
    Error(u32),
    /// The hook panics up to this attempt.
    Panic(u32),
    /// The hook does not return before it is cancelled.
    Slow,
    /// A batch with this item and more than this number of items has no memory.
    Memory(usize),
    /// The consumer's hook returns an error.
    Consumer,
    /// The consumer's hook panics.
    ConsumerPanic,
    /// The consumer's hook asks the run to stop.
    Stop,
}

#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) x: u64,
    pub(crate) fault: Fault,
    pub(crate) live: Live,
}

#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) x: u64,
    pub(crate) y: u64,
    pub(crate) fault: Fault,
    pub(crate) _live: Live,
}

/// A slow hook ends by itself after this time, which is a broken law.
const PATIENCE: Duration = Duration::from_secs(20);

/// The result for `x` in the plain loop.
pub(crate) fn answer(x: u64) -> u64 {
    x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17)
}

/// A number that depends on both.
pub(crate) fn hash(seed: u64, x: u64) -> u64 {
    answer(answer(seed ^ answer(x)) ^ 0x5851_f42d_4c95_7f2d)
}

impl Item {
    /// Does what the item says, and returns its output.
    pub(crate) fn work(&self, cx: &ProducerContext<'_>) -> Result<Output> {
        match self.fault {
            Fault::Busy(turns) => (0..turns).for_each(|_| spin_loop()),
            Fault::Error(until) if cx.attempt() <= until => {
                return Err(format!("fault of {}", self.x).into());
            }
            Fault::Panic(until) if cx.attempt() <= until => panic!("fault of {}", self.x),
            Fault::Slow => wait_until_cancelled(cx, self.x)?,
            Fault::Memory(0) => return Err(OutOfMemory::new(format!("fault of {}", self.x)).into()),
            _ => {}
        }
        let Item { x, fault, ref live } = *self;
        Ok(Output { x, y: answer(x), fault, _live: live.clone() })
    }
}

fn wait_until_cancelled(cx: &ProducerContext<'_>, x: u64) -> Result<()> {
    let begin = Instant::now();
    while !cx.is_cancelled() {
        if begin.elapsed() > PATIENCE {
            return Err(format!("never cancelled: {x}").into());
        }
        thread::sleep(Duration::from_micros(300));
    }
    Err(format!("fault of {x}").into())
}
