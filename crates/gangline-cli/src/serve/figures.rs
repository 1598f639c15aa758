//! The figures of the server, for the page and for Prometheus.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use hdrhistogram::Histogram;
use metrics::{
    Counter, Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};

use crate::locking::lock;

/// The figures of one server.
pub(crate) struct ServerFigures {
    pub(crate) started: Instant,
    exporter: PrometheusHandle,
    name: String,
    accepted: AtomicU64,
    gone: Counter,
    recent: Mutex<RecentLatencies>,
}

/// The latencies of answers, of the current minute and of the one before.
struct RecentLatencies {
    since: Instant,
    now: Histogram<u64>,
    before: Histogram<u64>,
}

/// A request in progress. If it is dropped before its answer is known, the caller has gone away.
pub(crate) struct Visit<'a> {
    figures: &'a ServerFigures,
    begun: Instant,
    is_answered: bool,
}

const MINUTE: Duration = Duration::from_secs(60);
/// The largest latency that is told apart, in microseconds.
const LONGEST: u64 = 24 * 3_600 * 1_000_000;

/// The bounds of the buckets, for times in seconds and for items in a batch.
const SECONDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];
const ITEMS: [f64; 11] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0];

impl ServerFigures {
    /// Installs the recorder of this process, which the observer of the library uses too.
    pub(crate) fn install(name: &str) -> Result<ServerFigures, BuildError> {
        let exporter = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
            .set_buckets_for_metric(Matcher::Full("gangline_batch_items".into()), &ITEMS)?
            .install_recorder()?;
        describe_gauge!(OPEN, Unit::Count, "Values that are accepted and not answered");
        describe_gauge!(MOST_OPEN, Unit::Count, "The largest number of values that are accepted");
        describe_counter!(
            REQUESTS,
            Unit::Count,
            "Requests for answers by status; gone: the caller left"
        );
        describe_histogram!(
            LATENCIES,
            Unit::Seconds,
            "Time from a request to its answer, of those with 200"
        );
        let name = name.to_owned();
        let gone = counter!(REQUESTS, "runner" => name.clone(), "code" => "gone");
        let now = Instant::now();
        Ok(ServerFigures {
            started: now,
            exporter,
            name,
            accepted: AtomicU64::new(0),
            gone,
            recent: Mutex::new(RecentLatencies {
                since: now,
                now: histogram(),
                before: histogram(),
            }),
        })
    }

    pub(crate) fn begin(&self) -> Visit<'_> {
        Visit { figures: self, begun: Instant::now(), is_answered: false }
    }

    pub(crate) fn accept(&self, values: usize) {
        self.accepted.fetch_add(values as u64, Ordering::Relaxed);
    }

    /// The number of values that were accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the text for Prometheus. `open` is the number of values that are accepted and not answered: the observer
    /// of the library counts those of the background too, and lags. `most` is the largest, once workers are ready.
    pub(crate) fn text(&self, open: u64, most: Option<usize>) -> String {
        gauge!(OPEN, "runner" => self.name.clone()).set(open as f64);
        if let Some(most) = most {
            gauge!(MOST_OPEN, "runner" => self.name.clone()).set(most as f64);
        }
        self.exporter.render()
    }

    /// Sorts the recorded samples into buckets. Until then each sample stays in memory.
    pub(crate) fn sort(&self) {
        self.exporter.run_upkeep();
    }

    /// The quantiles of the latencies of this minute and the one before, in seconds. `null` without an answer.
    pub(crate) fn latencies(&self) -> Value {
        let mut recent = lock(&self.recent);
        recent.turn();
        let mut all = recent.now.clone();
        // Both have the same bounds.
        let _ = all.add(&recent.before);
        drop(recent);
        let seconds = |micros: u64| micros as f64 / 1e6;
        let at = |quantile| seconds(all.value_at_quantile(quantile));
        match all.len() {
            0 => Value::Null,
            count => json!({
                "count": count,
                "p50": at(0.5),
                "p90": at(0.9),
                "p99": at(0.99),
                "max": seconds(all.max()),
            }),
        }
    }

    /// The time after which a full queue should have places again, in whole seconds: the median latency of this minute.
    pub(crate) fn retry_after(&self) -> u64 {
        let mut recent = lock(&self.recent);
        recent.turn();
        recent.now.value_at_quantile(0.5).div_ceil(1_000_000).clamp(1, 60)
    }
}

const OPEN: &str = "gangline_http_values_in_flight";
const MOST_OPEN: &str = "gangline_http_values_limit";
const REQUESTS: &str = "gangline_http_requests_total";
const LATENCIES: &str = "gangline_http_request_duration_seconds";

impl RecentLatencies {
    fn turn(&mut self) {
        let passed = self.since.elapsed();
        if passed >= MINUTE {
            std::mem::swap(&mut self.now, &mut self.before);
            self.now.reset();
            if passed >= 2 * MINUTE {
                self.before.reset();
            }
            self.since = Instant::now();
        }
    }
}

/// Makes a histogram of microseconds, with two significant digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 2).expect("the bounds are valid")
}

impl Visit<'_> {
    pub(crate) fn end(mut self, status: StatusCode) {
        self.is_answered = true;
        let ServerFigures { name, .. } = self.figures;
        let code = status.as_str().to_owned();
        counter!(REQUESTS, "runner" => name.clone(), "code" => code).increment(1);
        if status == StatusCode::OK {
            let took = self.begun.elapsed();
            histogram!(LATENCIES, "runner" => name.clone()).record(took);
            let mut recent = lock(&self.figures.recent);
            recent.turn();
            let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
            recent.now.saturating_record(micros.max(1));
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.figures.gone.increment(1);
        }
    }
}
