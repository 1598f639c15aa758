//! The sizes of items, as the user measures them.

use std::cell::Cell;
use std::fmt;

use gangline_scheduler::batch::Size;

use crate::base::Measure;
use crate::error::{Error, PanicMessage};
use crate::journal::JournalError;

/// A number that items are measured by: `u32`, `u64` or `usize`.
#[diagnostic::on_unimplemented(
    message = "items are measured in `u32`, `u64` or `usize`, not in `{Self}`",
    note = "a literal without a suffix is an `i32`: write `1u64`"
)]
pub trait Amount: Copy + sealed::Sealed {
    #[doc(hidden)]
    fn get(self) -> u64;
}

mod sealed {
    #[expect(unnameable_types, reason = "no other crate implements it")]
    pub trait Sealed {}
}

macro_rules! amounts {
    ($($number:ty),+) => {$(
        impl sealed::Sealed for $number {}
        impl Amount for $number {
            fn get(self) -> u64 {
                self as u64
            }
        }
    )+};
}

amounts!(u32, u64, usize);

/// Measures a value.
type MeasureFn<I> = dyn Fn(&I) -> u64 + Send + Sync;

/// Measures items, up to a limit.
struct Meter<I> {
    most: u64,
    measure: Box<MeasureFn<I>>,
}

/// The measures of each item. Those of inputs are taken on the feeding thread, those of outputs on the producer's.
pub(crate) struct Measures<I, T> {
    cost: Option<Meter<I>>,
    padded: Option<Meter<I>>,
    memory: Option<Meter<I>>,
    output: Option<Box<MeasureFn<T>>>,
    /// The number of items that may be in flight whatever they take in memory.
    least: usize,
}

/// An item that exceeds the limit of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooLarge {
    pub(crate) measure: Measure,
    pub(crate) amount: u64,
    pub(crate) most: u64,
}

/// The measured sizes of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Measured {
    pub(crate) size: Size,
    /// What it takes in memory.
    pub(crate) bytes: u64,
}

impl<I, T> Default for Measures<I, T> {
    fn default() -> Self {
        Measures { cost: None, padded: None, memory: None, output: None, least: 1 }
    }
}

impl<I, T> Measures<I, T> {
    pub(crate) fn set<N: Amount>(
        &mut self,
        measure: Measure,
        most: N,
        by: impl Fn(&I) -> N + Send + Sync + 'static,
    ) {
        let meter = Meter { most: most.get(), measure: Box::new(move |item| by(item).get()) };
        *match measure {
            Measure::Cost => &mut self.cost,
            Measure::Padded => &mut self.padded,
            Measure::Memory => &mut self.memory,
        } = Some(meter);
    }

    /// Measures what outputs take in memory, beside inputs.
    pub(crate) fn set_output<N: Amount>(&mut self, by: impl Fn(&T) -> N + Send + Sync + 'static) {
        self.output = Some(Box::new(move |output| by(output).get()));
    }

    /// Sets the number of items that may be in flight whatever they take in memory.
    pub(crate) fn set_least(&mut self, items: usize) {
        self.least = items;
    }

    /// The number of items that may be in flight whatever they take in memory.
    pub(crate) fn least(&self) -> usize {
        self.least
    }

    /// Returns whether anything is measured.
    pub(crate) fn is_some(&self) -> bool {
        self.cost.is_some() || self.padded.is_some() || self.memory.is_some()
    }

    /// Returns the limit of a measure.
    pub(crate) fn most(&self, measure: Measure) -> Option<u64> {
        self.meter(measure).as_ref().map(|meter| meter.most)
    }

    fn meter(&self, measure: Measure) -> &Option<Meter<I>> {
        match measure {
            Measure::Cost => &self.cost,
            Measure::Padded => &self.padded,
            Measure::Memory => &self.memory,
        }
    }

    /// Measures an item. `measuring` holds the current measure while the user's code runs, which may panic.
    ///
    /// # Errors
    ///
    /// If the item alone exceeds the limit of a batch. An item that exceeds the bound of memory is no error: it goes alone.
    pub(crate) fn measure(
        &self,
        item: &I,
        measuring: &Cell<Option<Measure>>,
    ) -> Result<Measured, TooLarge> {
        let measure = |measure: Measure| {
            let meter = self.meter(measure).as_ref()?;
            measuring.set(Some(measure));
            let amount = (meter.measure)(item);
            measuring.set(None);
            Some((amount, TooLarge { measure, amount, most: meter.most }))
        };
        let limited = |of: Measure| match measure(of) {
            Some((amount, too_large)) if amount > too_large.most => Err(too_large),
            Some((amount, _)) => Ok(amount),
            None => Ok(1),
        };
        let size = Size { cost: limited(Measure::Cost)?, padded: limited(Measure::Padded)? };
        let bytes = measure(Measure::Memory).map_or(0, |(bytes, _)| bytes);
        Ok(Measured { size, bytes })
    }

    /// What an output takes in memory; `None` if it is not measured.
    pub(crate) fn measure_output(&self, output: &T) -> Option<u64> {
        self.output.as_ref().map(|measure| measure(output))
    }
}

impl<I, T> fmt::Debug for Measures<I, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Measures");
        for measure in [Measure::Cost, Measure::Padded, Measure::Memory] {
            f.field(&measure.to_string(), &self.most(measure));
        }
        f.finish()
    }
}

pub(crate) enum Rejected {
    /// It exceeds the limit of a batch.
    TooLarge(TooLarge),
    /// The function that measures it panicked.
    MeasurePanicked(Measure, PanicMessage),
    /// The function that names or hashes it panicked.
    KeyPanicked(PanicMessage),
    /// It differs from the item of an earlier run, or the journal failed.
    Journal(JournalError),
    /// It did not fail: an earlier run has done it.
    AlreadyDone,
}

impl Rejected {
    /// The error for `item`.
    pub(crate) fn into_error(self, item: u64) -> Error {
        match self {
            Rejected::TooLarge(TooLarge { measure, amount, most }) => {
                Error::TooLarge { item, measure, amount, most, key: None }
            }
            Rejected::MeasurePanicked(measure, source) => {
                Error::MeasurePanicked { item, measure, key: None, source }
            }
            Rejected::KeyPanicked(source) => Error::KeyPanicked { item, source },
            Rejected::Journal(source) => Error::Journal { source },
            Rejected::AlreadyDone => {
                unreachable!("an item that is already done never needs an error")
            }
        }
    }
}
