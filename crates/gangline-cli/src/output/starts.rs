//! How long jobs waited for the start of their warm worker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gangline::RunReport;
use gangline::report::Span;

/// The waits for warm workers to start. The library counts them as work, since the jobs were with a slot by then.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<Vec<StartWait>>);

#[derive(Debug)]
struct StartWait {
    /// The jobs of one list wait together.
    jobs: Vec<u64>,
    since: Instant,
    lasted: Duration,
}

impl Starts {
    /// Notes that jobs have waited for a worker since then, and that it is ready now.
    pub(crate) fn waited(&self, jobs: impl Iterator<Item = u64>, since: Instant) {
        let wait = StartWait { jobs: jobs.collect(), since, lasted: since.elapsed() };
        self.waits().push(wait);
    }

    /// Returns how long slots waited in all.
    pub(crate) fn total(&self) -> Duration {
        self.waits().iter().map(|wait| wait.lasted).sum()
    }

    /// Takes the waits out of the times of jobs in the report of a run that began then. Otherwise the first job of each slot
    /// would be named as slow.
    pub(crate) fn remove_from(&self, report: &mut RunReport, began: Instant) {
        let mut of_jobs: HashMap<u64, Vec<(Duration, Duration)>> = HashMap::new();
        for StartWait { jobs, since, lasted } in &*self.waits() {
            // The run began a little later, so its times are a little less.
            let middle = since.saturating_duration_since(began) + *lasted / 2;
            jobs.iter().for_each(|job| of_jobs.entry(*job).or_default().push((middle, *lasted)));
        }
        if of_jobs.is_empty() {
            return;
        }
        // A job may have waited in one attempt, and not in the next.
        let wait = |span: &Span| -> Duration {
            let within = span.start..span.start + span.took;
            let waits = of_jobs.get(&span.item).into_iter().flatten();
            waits.filter(|wait| within.contains(&wait.0)).map(|wait| wait.1).sum()
        };
        for slow in &mut report.slowest {
            let same = |span: &&Span| {
                (span.item, span.attempt, span.took) == (slow.item, slow.attempt, slow.took)
            };
            let span = report.spans.iter().find(same);
            slow.took = slow.took.saturating_sub(span.map(wait).unwrap_or_default());
        }
        report.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        for span in &mut report.spans {
            let wait = wait(span).min(span.took);
            span.start += wait;
            span.took -= wait;
        }
        measure_again(report);
    }

    fn waits(&self) -> MutexGuard<'_, Vec<StartWait>> {
        self.0.lock().expect("nothing panics with the lock held")
    }
}

/// Replaces the percentiles of a report and its slots by those of the spans, as far as they have all attempts.
fn measure_again(report: &mut RunReport) {
    let ended = |slot: Option<usize>| {
        let spans = report.spans.iter().filter(|span| !span.is_open);
        let spans = spans.filter(|span| slot.is_none_or(|slot| span.producer == slot));
        let mut times: Vec<Duration> = spans.map(|span| span.took).collect();
        times.sort();
        times
    };
    let of_slots: Vec<_> = (0..report.producers.len()).map(|slot| ended(Some(slot))).collect();
    let of_all = ended(None);
    let slots = report.producers.iter_mut().map(|slot| &mut slot.latency);
    for (latency, times) in slots.zip(&of_slots).chain([(&mut report.latency, &of_all)]) {
        let Some(latency) = latency.as_mut().filter(|it| it.count == times.len() as u64) else {
            continue;
        };
        let at = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.saturating_sub(1)).copied().unwrap_or_default()
        };
        (latency.p50, latency.p90) = (at(0.5), at(0.9));
        (latency.p99, latency.max) = (at(0.99), at(1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline::report::{Latencies, ProducerReport, SlowItem};

    const MS: Duration = Duration::from_millis(1);

    fn latencies(count: u64) -> Option<Latencies> {
        let mut latencies = Latencies::default();
        latencies.count = count;
        latencies.max = 99 * MS;
        Some(latencies)
    }

    /// Jobs 1 to 3 of slot 0, of which the first took 95 ms, and 4 to 6 of slot 1, one after the other.
    fn report() -> RunReport {
        let mut report = RunReport::default();
        for job in 1..=6 {
            let mut span = Span::default();
            (span.item, span.attempt, span.producer) = (job, 1, usize::from(job > 3));
            span.took = if job == 1 { 95 * MS } else { 5 * MS };
            span.start = if (job - 1) % 3 == 0 { Duration::ZERO } else { 95 * MS };
            report.spans.push(span);
        }
        report.latency = latencies(6);
        for count in [3, 4] {
            let mut slot = ProducerReport::default();
            slot.latency = latencies(count);
            report.producers.push(slot);
        }
        report
    }

    /// The waits of jobs, each with its begin and its end in milliseconds.
    fn starts<const N: usize>(began: Instant, waits: [(&[u64], u32, u32); N]) -> Starts {
        let wait = |(jobs, from, until): (&[u64], u32, u32)| StartWait {
            jobs: jobs.to_vec(),
            since: began + from * MS,
            lasted: (until - from) * MS,
        };
        Starts(Mutex::new(waits.map(wait).into()))
    }

    #[test]
    fn the_start_of_a_worker_is_no_time_of_a_job() {
        let began = Instant::now();
        let mut report = report();
        let mut slow = SlowItem::default();
        (slow.item, slow.attempt, slow.took) = (1, 1, 95 * MS);
        report.slowest.push(slow);
        starts(began, [(&[1], 0, 90)]).remove_from(&mut report, began);
        let longest = |latency: Option<Latencies>| latency.map(|it| it.max);
        assert_eq!(longest(report.latency), Some(5 * MS));
        assert_eq!(longest(report.producers[0].latency), Some(5 * MS));
        assert_eq!(longest(report.producers[1].latency), Some(99 * MS), "a span is left out");
        assert_eq!((report.spans[0].start, report.spans[0].took), (90 * MS, 5 * MS));
        assert_eq!(report.slowest[0].took, 5 * MS);
    }

    #[test]
    fn an_attempt_is_shortened_by_the_waits_within_it() {
        let began = Instant::now();
        let mut report = report();
        // The next attempt at the first job, for whose worker no one waited.
        let mut again = report.spans[0].clone();
        (again.start, again.took) = (200 * MS, 92 * MS);
        report.spans.push(again);
        // A start that failed, and another; then one for a list.
        let starts = starts(began, [(&[1], 0, 20), (&[1], 20, 60), (&[2, 5], 95, 98)]);
        assert_eq!(starts.total(), 63 * MS, "the jobs of a list wait together");
        starts.remove_from(&mut report, began);
        let took: Vec<_> = report.spans.iter().map(|span| span.took / 1_000_000).collect();
        let expected = [35, 2, 5, 5, 2, 5, 92].map(Duration::from_nanos);
        assert_eq!(took, expected, "{:?}", report.spans);
    }

    #[test]
    fn without_waits_a_report_stays_as_it_is() {
        let mut measured = report();
        Starts::default().remove_from(&mut measured, Instant::now());
        assert_eq!(measured, report());
    }
}
