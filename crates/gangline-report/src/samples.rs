//! Runs as events, for the tests of reports.

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::Order;
use gangline_scheduler::batch::{BatchTime, ChosenSize, SizeBound};

use super::account::Ending;
use super::producer_report::{ProducerReport, WorkerReport, share};
use super::run_report::Stall;
use super::{Recorder, RunReport};
use crate::batch_choice::BatchChoice;
use crate::failure::Failure;
use crate::provenance::Provenance;

/// A run played to a recorder. Times are in microseconds.
pub(super) struct PlayedRun {
    pub(super) recorder: Recorder,
    pub(super) totals: RunReport,
}

impl PlayedRun {
    #[cfg(test)]
    pub(super) fn new(producers: usize) -> Self {
        Self::on(places(producers), None)
    }

    pub(super) fn on(places: Vec<String>, description: Option<&str>) -> Self {
        let mut recorder = Recorder::new(description.map(str::to_owned));
        let producer =
            |place: &String| ProducerReport { place: place.clone(), ..ProducerReport::default() };
        let totals = RunReport {
            producers: places.iter().map(producer).collect(),
            ending: Ending::Finished,
            ..RunReport::default()
        };
        recorder.set_provenance(Provenance {
            started: Some("2026-11-24T07:16:58Z".to_owned()),
            host: Some(HOSTILE.to_owned()),
            command: vec!["denoise".to_owned(), HOSTILE.to_owned()],
            ..Provenance::default()
        });
        recorder.begin(None, Order::Input, &places, &[]);
        PlayedRun { recorder, totals }
    }

    pub(super) fn start(&mut self, at: u64, producer: usize, item: u64, attempt: u32) {
        let key = Some(Arc::from(format!("key {item}")));
        self.recorder.item_started(micros(at), producer, item, key, attempt);
    }

    pub(super) fn finish(&mut self, at: u64, producer: usize, item: u64) {
        self.totals.producers[producer].items += 1;
        self.recorder.item_finished(micros(at), producer, item);
    }

    pub(super) fn consume(&mut self, at: u64, items: u64) {
        self.totals.account.ok += items;
        self.recorder.items_done(micros(at), items);
        self.recorder.items_consumed(micros(at), items);
    }

    pub(super) fn retry(&mut self, at: u64, failure: Failure) {
        self.recorder.retried(micros(at), &failure);
    }

    pub(super) fn fail(&mut self, at: u64, failure: Failure) {
        self.totals.account.failed += 1;
        self.recorder.failed_at_consumer(micros(at), &Arc::new(failure));
    }

    /// Ends the run with the current totals.
    pub(super) fn end(&mut self, at: u64) -> RunReport {
        self.totals.lasted = micros(at);
        for row in &mut self.totals.producers {
            row.busy = share(row.working, self.totals.lasted);
        }
        self.recorder.end(micros(at), &Arc::new(self.totals.clone()));
        self.recorder.report()
    }
}

pub(super) fn micros(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

fn places(producers: usize) -> Vec<String> {
    (0..producers).map(|producer| format!("cuda:{producer}")).collect()
}

pub(super) fn failure(item: u64, producer: usize, attempts: u32, error: &str) -> Failure {
    Failure {
        stage: None,
        item: Some(item),
        parts: vec![],
        key: Some(format!("key {item}")),
        producer: Some(producer),
        device: Some(format!("cuda:{producer}")),
        hook: Some("producer_work".to_owned()),
        attempts,
        is_panic: false,
        error: format!("producer_work failed for item {item} on cuda:{producer}"),
        causes: vec![error.to_owned()],
        ..Failure::default()
    }
}

/// Text that attacks pages and terminals.
pub(super) const HOSTILE: &str =
    "</td><script>alert('x')</script>\"><img src=x onerror=alert(1)>\u{1b}[31m\u{0}\u{202e}&amp;";

/// A short run with something in most fields of its report.
pub(super) fn short_run() -> RunReport {
    let mut run = PlayedRun::on(places(2), Some("short"));
    for item in 0..6 {
        let (at, producer) = (item * 40_000, item as usize % 2);
        run.start(at, producer, item, 1);
        run.finish(at + 30_000, producer, item);
    }
    run.retry(70_000, failure(1, 1, 1, "out of memory"));
    run.fail(110_000, failure(2, 0, 1, "out of focus"));
    run.consume(200_000, 5);
    lose_producers(&mut run);
    measure(&mut run.totals);
    run.end(12_000_000)
}

/// A run with every kind of entry: two lost producers, a slow item, failures with hostile texts, and retries.
#[cfg(test)]
pub(super) fn eventful(producers: usize) -> RunReport {
    let mut run = PlayedRun::on(places(producers), Some("Denoising <micrographs>"));
    let long = "long ".repeat(1_600);
    let mut item = 0;
    for round in 0..300 {
        for producer in 0..producers {
            let start = round * 40_000 + producer as u64 * 100;
            let took = took(round, producer);
            (item..item + 4).for_each(|item| run.start(start, producer, item, 1));
            (item..item + 4).for_each(|item| run.finish(start + took, producer, item));
            if round.is_multiple_of(29) && producer < 3 {
                run.retry(start + took, failure(item, producer, 1, "out of memory"));
            }
            if round.is_multiple_of(17) && producer.is_multiple_of(2) {
                let error = [HOSTILE, "the file is empty", &long][round as usize % 3];
                run.fail(
                    start + took,
                    Failure { key: Some(HOSTILE.to_owned()), ..failure(item, producer, 1, error) },
                );
            }
            item += 4;
        }
        run.consume(round * 40_000 + 39_500, 4 * producers as u64);
    }
    lose_producers(&mut run);
    measure(&mut run.totals);
    run.end(12_000_000)
}

/// Busy at the beginning, alternating in the middle, and almost idle at the end.
#[cfg(test)]
fn took(round: u64, producer: usize) -> u64 {
    match round {
        0..100 => 39_000,
        100..200 if (round / 10 + producer as u64).is_multiple_of(2) => 30_000,
        100..200 => 4_000,
        _ => 12_000 + 25_000 * u64::from(producer == 0),
    }
}

fn measure(totals: &mut RunReport) {
    let ms = Duration::from_millis;
    for (index, producer) in totals.producers.iter_mut().enumerate() {
        producer.working = ms(7_000 + 40 * index as u64 % 3_000);
        producer.waiting = ms(12_000) - producer.working;
        producer.times.work = producer.working;
        producer.times.order = ms(6_000).min(producer.waiting);
        producer.times.input = producer.waiting - producer.times.order;
        producer.init = ms(1_234);
        producer.worker = Some(WorkerReport {
            host: (index % 2 == 1).then(|| HOSTILE.to_owned()),
            pid: Some(4_194_304 - index as u32),
            producers: 1,
            restarts: 1_200,
            losses: u64::from(index == 1),
            lost: (index == 1).then(|| HOSTILE.to_owned()),
            returned: 64,
            wire_wait: ms(1_234),
            bytes_down: 123_456_789,
            bytes_up: 999,
        });
    }
    totals.source_working = ms(2_345);
    totals.source_waiting = ms(6_100);
    totals.consumer_working = ms(900);
    totals.consumer_waiting = ms(5_000);
    totals.head_stalled = ms(5_400);
    totals.stalls = vec![Stall::new(17, ms(3_100)), Stall::new(400, ms(900))];
    totals.window = 64;
}

fn lose_producers(run: &mut PlayedRun) {
    let last = run.totals.producers.len() - 1;
    let reason: Arc<str> = "CUDA_ERROR_ECC_UNCORRECTABLE <b>".into();
    run.recorder.quarantined(micros(9_000_000), last, &reason);
    run.recorder.abandoned(micros(11_000_000), last);
    run.totals.producers[last].quarantined = Some(reason.to_string());
    run.totals.producers[last].abandoned = true;
    run.totals.producers[0].batch_ceiling = Some(12);
    let time =
        Some(BatchTime { fixed: Duration::from_millis(3), each: Duration::from_micros(110) });
    let (memory, rate) = (SizeBound::Memory, SizeBound::Rate);
    let choice = |size, bound| Some(BatchChoice::new(ChosenSize { size, time, bound }));
    run.totals.producers[0].batch_size = choice(12, memory);
    run.totals.producers[last].batch_size = choice(640, rate);
}
