//! How long jobs waited for the start of their warm worker.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use gangline::RunReport;

/// The waits for warm workers to start. The library counts them as work, since the job was with its slot by then.
#[derive(Debug, Default)]
pub(crate) struct Starts(Mutex<StartWaits>);

#[derive(Debug, Default)]
struct StartWaits {
    /// The wait of each attempt, by the number of its job and its own.
    of_jobs: HashMap<(u64, u32), Duration>,
    /// The sum over all slots. The jobs of a list wait together, so their wait counts once.
    of_slots: Duration,
}

impl Starts {
    /// Notes that attempts waited for a worker to start. Each is the number of a job and of the attempt.
    pub(crate) fn waited(&self, attempts: impl Iterator<Item = (u64, u32)>, wait: Duration) {
        let mut waits = self.waits();
        attempts.for_each(|attempt| *waits.of_jobs.entry(attempt).or_default() += wait);
        waits.of_slots += wait;
    }

    /// Returns how long slots waited in all.
    pub(crate) fn total(&self) -> Duration {
        self.waits().of_slots
    }

    /// Takes the waits out of the times of jobs in a report. Otherwise the first job of each slot would be named as slow.
    pub(crate) fn remove_from(&self, report: &mut RunReport) {
        let waits = self.waits();
        if waits.of_jobs.is_empty() {
            return;
        }
        // The parts of a list have the attempt of the list: one that took less did not wait.
        let wait = |job: u64, attempt: u32, took: Duration| {
            let wait = waits.of_jobs.get(&(job, attempt)).copied();
            wait.filter(|wait| *wait <= took).unwrap_or_default()
        };
        for slow in &mut report.slowest {
            slow.took -= wait(slow.item, slow.attempt, slow.took);
        }
        report.slowest.sort_by_key(|slow| std::cmp::Reverse(slow.took));
        for span in &mut report.spans {
            let wait = wait(span.item, span.attempt, span.took);
            span.start += wait;
            span.took -= wait;
        }
        drop(waits);
        measure_again(report);
    }

    fn waits(&self) -> MutexGuard<'_, StartWaits> {
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
    use gangline::report::{Latencies, ProducerReport, Span};

    const MS: Duration = Duration::from_millis(1);

    fn latencies(count: u64) -> Option<Latencies> {
        let mut latencies = Latencies::default();
        latencies.count = count;
        latencies.max = 99 * MS;
        Some(latencies)
    }

    /// Jobs 1 to 3 of slot 0, of which the first took 95 ms, and 4 to 6 of slot 1.
    fn report() -> RunReport {
        let mut report = RunReport::default();
        for job in 1..=6 {
            let mut span = Span::default();
            (span.item, span.attempt, span.producer) = (job, 1, usize::from(job > 3));
            span.took = if job == 1 { 95 * MS } else { 5 * MS };
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

    #[test]
    fn the_start_of_a_worker_is_no_time_of_a_job() {
        let starts = Starts::default();
        starts.waited([(1, 1)].into_iter(), 90 * MS);
        let mut report = report();
        starts.remove_from(&mut report);
        let longest = |latency: Option<Latencies>| latency.map(|it| it.max);
        assert_eq!(longest(report.latency), Some(5 * MS));
        assert_eq!(longest(report.producers[0].latency), Some(5 * MS));
        assert_eq!(longest(report.producers[1].latency), Some(99 * MS), "a span is left out");
    }

    #[test]
    fn only_the_attempt_that_waited_is_shortened() {
        let starts = Starts::default();
        starts.waited([(1, 2), (2, 1)].into_iter(), 3 * MS);
        starts.waited([(2, 1)].into_iter(), MS);
        let mut report = report();
        starts.remove_from(&mut report);
        assert_eq!(report.spans[0].took, 95 * MS);
        assert_eq!((report.spans[1].start, report.spans[1].took), (4 * MS, MS));
        assert_eq!(starts.total(), 4 * MS, "the two waited together at first");
    }

    #[test]
    fn without_waits_a_report_stays_as_it_is() {
        let mut measured = report();
        Starts::default().remove_from(&mut measured);
        assert_eq!(measured, report());
    }
}
