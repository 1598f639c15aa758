//! The report of a run, a value that can be kept, shown and compared.
//!
//! A [`RunReport`] says where the time of a run went, how its items ended, and what to change. It can be
//! written as text for a terminal (`Display`), as [JSON](RunReport::to_json), as a
//! [page](RunReport::to_html), and as a [trace](RunReport::to_trace) for Perfetto. Only JSON can be read
//! back.

// rustdoc puts the documentation of the item itself behind what stands here, which has the links into this crate.
/// The size that [`Batch::auto`](crate::Batch::auto) came to on one producer.
///
/// ```
/// use gangline::{Batch, OrderedRunner, map_batches};
///
/// # fn main() -> gangline::Result<()> {
/// let same = map_batches(|_| Ok(()), |_, (), xs: &mut Vec<u64>| Ok(xs.drain(..).map(Ok).collect()));
/// let mut pool = OrderedRunner::builder(same).devices(1).batch(Batch::auto()).build()?;
/// let (_, report) = pool.run_with_report(0..1_000);
/// let choice = report.producers[0].batch_size.as_ref().expect("sizes are chosen");
/// println!("{} items, since each batch takes {:?}", choice.size, choice.fixed);
/// # Ok(())
/// # }
/// ```
///
#[doc(inline)]
pub use gangline_report::BatchChoice;
/// What kept a run from being faster.
///
/// ```
/// use std::time::Duration;
/// use gangline::report::Bottleneck;
/// use gangline::{OrderedRunner, each};
///
/// let slow = each(|x: u64| {
///     std::thread::sleep(Duration::from_millis(2));
///     Ok(x)
/// });
/// let (_, report) = OrderedRunner::new(slow, 1)?.run_with_report(0..50);
/// assert_eq!(report.bottleneck, Bottleneck::Producers);
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
#[doc(inline)]
pub use gangline_report::Bottleneck;
/// Two reports side by side.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let run = |devices: usize| -> gangline::Result<_> {
///     let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), devices)?;
///     Ok(pool.run_with_report(0..1_000).1)
/// };
/// let (before, after) = (run(1)?, run(2)?);
/// let comparison = before.compare(&after);
/// println!("{comparison}");
/// assert!(comparison.to_html().starts_with("<!DOCTYPE html>"));
/// # Ok(())
/// # }
/// ```
///
#[doc(inline)]
pub use gangline_report::Comparison;
/// What [`RunReport::what_if`] says.
///
/// ```
/// use std::thread::sleep;
/// use std::time::Duration;
///
/// use gangline::report::Settings;
/// use gangline::{OrderedRunner, each};
///
/// # fn main() -> gangline::Result<()> {
/// let work = each(|ms: u64| Ok(sleep(Duration::from_millis(ms))));
/// let mut pool = OrderedRunner::builder(work).devices(1).timeline().build()?;
/// let (_, report) = pool.run_with_report([5; 20]);
/// let prediction = report.what_if(&Settings::new().producers(2));
/// println!("{prediction}"); // with `devices(2)` this run would have taken 50.6 ms, not 101 ms
/// # Ok(())
/// # }
/// ```
///
#[doc(inline)]
pub use gangline_report::Prediction;
/// What [`Pool::run_with_report`](crate::Pool::run_with_report) and [`Pool::report`](crate::Pool::report) return.
///
/// ```
/// use gangline::report::Bottleneck;
/// use gangline::{OrderedRunner, each};
///
/// let mut pool = OrderedRunner::builder(each(|x: u64| Ok(x * x))).devices(2).describe("squares").build()?;
/// let (squares, report) = pool.run_with_report(0..100);
/// assert_eq!(squares?.len() as u64, report.account.ok);
/// assert_eq!(report.producers.len(), 2);
/// if report.bottleneck == Bottleneck::Source {
///     println!("the input is too slow: {report}");
/// }
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
#[doc(inline)]
pub use gangline_report::RunReport;
/// What [`RunReport::what_if`] is asked.
///
/// ```
/// use gangline::report::Settings;
/// use gangline::{OrderedRunner, each};
///
/// # fn main() -> gangline::Result<()> {
/// let mut pool = OrderedRunner::builder(each(|x: u64| Ok(x))).devices(2).timeline().build()?;
/// let (_, report) = pool.run_with_report(0..100);
/// let prediction = report.what_if(&Settings::new().producers(4).window(64).retries(2));
/// for refused in &prediction.refused {
///     println!("{}: {}", refused.setting, refused.why);
/// }
/// # Ok(())
/// # }
/// ```
///
#[doc(inline)]
pub use gangline_report::Settings;
/// How often [`Runner::producer_work_batch`](crate::Runner::producer_work_batch) failed for a whole batch.
///
/// ```
/// use gangline::{Batch, OrderedRunner, Result, map_batches};
///
/// let single = map_batches(|_| Ok(()), |_, (), xs: &mut Vec<u64>| match xs.len() {
///     1 => Ok(xs.drain(..).map(Ok).collect()),
///     _ => Err("one at a time, please".into()),
/// });
/// let mut pool = OrderedRunner::builder(single).devices(1).batch(Batch::of(4)).build()?;
/// let (result, report) = pool.run_with_report(0..8);
/// assert_eq!(result?.len(), 8);
/// assert_eq!((report.splits.batches, report.splits.split, report.splits.calls), (2, 2, 14));
/// assert!(report.splits.error.is_some_and(|error| error.ends_with("one at a time, please")));
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
#[doc(inline)]
pub use gangline_report::SplitReport;
/// One trace of several runs.
///
/// ```
/// use gangline::report::trace_of_stages;
/// use gangline::{OrderedRunner, Pipeline, map};
///
/// # fn main() -> gangline::Result<()> {
/// let double = || map(|_| Ok(()), |_, _, x: u64| Ok(2 * x));
/// let mut first = OrderedRunner::builder(double()).devices(2).timeline().build()?;
/// let mut second = OrderedRunner::builder(double()).devices(1).timeline().build()?;
/// Pipeline::new(&mut first).then(&mut second).run(0..10)?;
/// let trace = trace_of_stages([&first.report(), &second.report()]);
/// assert!(trace.contains("gangline: stage 2"));
/// # Ok(())
/// # }
/// ```
///
#[doc(hidden)]
pub use gangline_report::conclusion;
#[doc(inline)]
pub use gangline_report::trace_of_stages;
#[doc(inline)]
pub use gangline_report::{
    BatchRange, Colors, Ending, Failure, GpuLoad, GpuSample, HumanDuration, Incident, IncidentKind,
    Latencies, ProducerReport, Provenance, RefusedSetting, ReportError, Retried, RetryOutcome,
    RetryReport, SizeBound, SlowItem, Span, StageReport, Stall, TextStyle, Throughput, Timeline,
    Vocabulary, WorkerReport,
};
