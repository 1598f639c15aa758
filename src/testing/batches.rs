//! Checks that a runner gives in lists the answers that it gives alone.
//!
//! A list can change answers in ways that no error shows: results come back in another order, a bad input shifts those
//! behind it, or padding leaks from one input into the next. [`check_batches`] asks each sample alone and in lists, and
//! compares.

mod hooks;
mod judging;
mod report;

use std::fmt::Debug;

use self::hooks::Hooks;
pub use self::judging::{AnsweredList, ListEnd};
use self::judging::{Differs, Judging, Query};
pub use self::report::{
    BatchFault, BatchFaultKind, BatchLaw, BatchReport, BatchSize, BrokenBatches, LawState,
};
use crate::device::Device;
use crate::error::Result;
use crate::runner::Runner;

/// Checks that lists have the answers of single samples, with options.
///
/// ```
/// use gangline::testing::BatchCheck;
/// use gangline::map_batches;
///
/// # fn main() -> gangline::Result<()> {
/// let halves = map_batches(
///     |_| Ok(()),
///     |_, (), xs: &mut Vec<f32>| Ok(xs.iter().map(|x| Ok(x / 2.0)).collect()),
/// );
/// let near = |alone: &f32, listed: &f32| {
///     let is_near = (alone - listed).abs() <= 1e-4;
///     (!is_near).then(|| format!("{alone}, then {listed}"))
/// };
/// let report = BatchCheck::differing(near).up_to(8).run(&halves, [1.0, 2.0, 3.0])?;
/// assert_eq!(report.sizes.iter().map(|size| size.size).collect::<Vec<_>>(), [1, 2, 4, 8]);
/// # Ok(())
/// # }
/// ```
pub struct BatchCheck<T> {
    most: usize,
    device: Device,
    differs: Box<Differs<T>>,
}

/// Checks that a runner gives in lists the answers that it gives alone.
///
/// Lists have up to 32 samples. A sample may fail: it must then fail in lists too, and the other samples of its list
/// must not. Give at least one sample that fails. The hooks are called on this thread, with the CPU as device.
/// [`BatchCheck`] has options.
///
/// # Errors
///
/// If a law is broken. The report in the error has each difference.
///
/// ```
/// use gangline::map_batches;
/// use gangline::testing::{BatchFaultKind, BatchLaw, LawState, check_batches};
///
/// # fn main() -> gangline::Result<()> {
/// let root = |x: &f64| if *x < 0.0 { Err("it is negative".into()) } else { Ok(x.sqrt()) };
/// let good = map_batches(|_| Ok(()), move |_, (), xs: &mut Vec<f64>| Ok(xs.iter().map(root).collect()));
/// let report = check_batches(&good, [1.0, 4.0, -1.0])?;
/// assert_eq!(report.law(BatchLaw::Contained), LawState::Held, "-1 fails alone");
///
/// let sorting = map_batches(|_| Ok(()), move |_, (), xs: &mut Vec<f64>| {
///     xs.sort_by(f64::total_cmp);
///     Ok(xs.iter().map(root).collect())
/// });
/// let broken = check_batches(&sorting, [4.0, 1.0]).unwrap_err();
/// let fault = &broken.report.faults[0];
/// assert_eq!((fault.sample, fault.size), (0, 2));
/// assert_eq!(fault.kind, BatchFaultKind::Swapped { other: 1 });
/// # Ok(())
/// # }
/// ```
pub fn check_batches<R>(
    runner: &R,
    samples: impl IntoIterator<Item = R::Input>,
) -> Result<BatchReport, BrokenBatches>
where
    R: Runner<Input: Clone, Output: PartialEq + Debug>,
{
    BatchCheck::new().run(runner, samples)
}

/// The default size of the largest list.
const MOST: usize = 32;

impl<T: PartialEq + Debug> BatchCheck<T> {
    /// Compares answers by `==`, in lists of up to 32 samples.
    pub fn new() -> Self {
        BatchCheck::differing(|alone: &T, listed: &T| {
            (alone != listed).then(|| format!("{alone:?}, then {listed:?}"))
        })
    }
}

impl<T: PartialEq + Debug> Default for BatchCheck<T> {
    fn default() -> Self {
        BatchCheck::new()
    }
}

impl<T> BatchCheck<T> {
    /// Compares answers by `differs`, which describes a difference or returns `None`.
    ///
    /// Its first argument is the answer to a sample alone, its second another answer.
    pub fn differing(differs: impl Fn(&T, &T) -> Option<String> + Send + Sync + 'static) -> Self {
        BatchCheck { most: MOST, device: Device::Cpu, differs: Box::new(differs) }
    }

    /// Sets the size of the largest list. The sizes are 1, 2, 4 and so on, and this one.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn up_to(self, most: usize) -> Self {
        assert!(most > 0, "a list has at least one sample");
        BatchCheck { most, ..self }
    }

    /// Sets the device in the context of the hooks of [`run`](BatchCheck::run). The default is the CPU.
    pub fn on(self, device: Device) -> Self {
        BatchCheck { device, ..self }
    }

    /// Checks a runner: `producer_work` for each sample alone, `producer_work_batch` for lists.
    ///
    /// The hooks are called on this thread. A list that fails as a whole is split, as in a pool.
    ///
    /// # Errors
    ///
    /// If a law is broken. The report in the error has each difference.
    pub fn run<R>(
        &self,
        runner: &R,
        samples: impl IntoIterator<Item = R::Input>,
    ) -> Result<BatchReport, BrokenBatches>
    where
        R: Runner<Output = T, Input: Clone>,
    {
        let samples: Vec<R::Input> = samples.into_iter().collect();
        let mut hooks = Hooks::new(runner, self.device, &samples);
        let mut report = BatchReport::of(samples.len());
        let mut ask = |asked: Query<'_>| hooks.ask(asked);
        let judged = Judging::new(&*self.differs, &mut ask, &mut report).judge(self.most);
        let ended = judged.and_then(|()| hooks.end());
        if let Err(error) = ended {
            report.not_ready(&*error);
        }
        report.into_result()
    }

    /// Checks answers that come from elsewhere, such as a server or another program.
    ///
    /// `samples` is their number. `ask` gets the positions of the samples to answer, as a list. A sample may be in it
    /// twice.
    ///
    /// # Errors
    ///
    /// The first error of `ask`, which ends the check. It is also an error if `ask` does not return one answer for each
    /// position.
    ///
    /// ```
    /// use std::time::Instant;
    ///
    /// use gangline::testing::{AnsweredList, BatchCheck, ListEnd};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let samples = ["a", "bb", "ccc"];
    /// let report = BatchCheck::new().up_to(4).ask(samples.len(), |list| {
    ///     let begin = Instant::now();
    ///     let answers = list.iter().map(|&sample| Ok(samples[sample].len())).collect();
    ///     Ok(AnsweredList { answers, end: ListEnd::Whole(begin.elapsed()) })
    /// })?;
    /// assert!(report.has_held());
    /// # Ok(())
    /// # }
    /// ```
    pub fn ask(
        &self,
        samples: usize,
        mut ask: impl FnMut(&[usize]) -> Result<AnsweredList<T>>,
    ) -> Result<BatchReport> {
        let mut report = BatchReport::of(samples);
        let mut ask = |asked: Query<'_>| match asked {
            Query::Alone(sample) => ask(&[sample]),
            Query::List(list) => ask(list),
        };
        Judging::new(&*self.differs, &mut ask, &mut report).judge(self.most)?;
        Ok(report)
    }
}

impl<T> std::fmt::Debug for BatchCheck<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BatchCheck { most, device, .. } = self;
        f.debug_struct("BatchCheck")
            .field("most", most)
            .field("device", device)
            .finish_non_exhaustive()
    }
}
