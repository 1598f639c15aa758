//! The producers of a run that were not lost: their names, number and mean times.

use std::borrow::Cow;
use std::time::Duration;

use super::formats::Many;
use super::producer_report::share;
use super::run_report::RunReport;
use super::vocabulary::{ITEMS, WORKERS, Words};
use crate::observe::event::{ProducerTotals, Totals};

/// Returns the words for a run: that of a cluster has workers.
pub(super) fn words(totals: &Totals) -> &'static Words {
    if totals.producers.iter().any(is_of_cluster) { &WORKERS } else { &ITEMS }
}

/// Returns the share of their time that producers spent in this way. Lost producers do not count, unless all were lost.
pub(super) fn mean(totals: &Totals, of: impl Fn(&ProducerTotals) -> Duration) -> f64 {
    let every_one_was_lost = totals.producers.iter().all(is_lost);
    let counted = || totals.producers.iter().filter(|it| every_one_was_lost || !is_lost(it));
    let time = |it| of(it).min(presence(it, totals));
    share(counted().map(time).sum(), counted().map(|it| presence(it, totals)).sum())
}

/// Returns the totals without the seats that no worker has had.
pub(super) fn without_vacant(totals: &Totals) -> Cow<'_, Totals> {
    if !totals.producers.iter().any(ProducerTotals::is_vacant) {
        return Cow::Borrowed(totals);
    }
    let mut totals = totals.clone();
    totals.producers.retain(|producer| !producer.is_vacant());
    Cow::Owned(totals)
}

/// Removes the seats that no worker has had, and renumbers the others.
pub(crate) fn leave_out_vacant(report: &mut RunReport) {
    let is_row: Vec<bool> = report.producers.iter().map(|it| !it.place.is_empty()).collect();
    if is_row.iter().all(|is_row| *is_row) {
        return;
    }
    let before = |seat: usize| is_row.iter().take(seat).filter(|is_row| **is_row).count();
    let rows: Vec<usize> = (0..is_row.len()).map(before).collect();
    // Events name no seat before its worker has joined.
    let row = |seat: usize| rows.get(seat).copied().unwrap_or(seat);
    report.producers.retain(|it| !it.place.is_empty());
    if let Some(timeline) = &mut report.timeline {
        let mut is_row = is_row.iter();
        timeline.busy_ns.retain(|_| is_row.next().is_none_or(|is_row| *is_row));
    }
    report.slowest.iter_mut().for_each(|it| it.producer = row(it.producer));
    report.spans.iter_mut().for_each(|it| it.producer = row(it.producer));
    report.incidents.iter_mut().for_each(|it| it.producer = it.producer.map(row));
    report.failures.iter_mut().for_each(|it| it.producer = it.producer.map(row));
}

/// Says how many producers were lost.
pub(super) fn lost(totals: &Totals) -> String {
    let lost = totals.producers.iter().filter(|producer| is_lost(producer)).count();
    match lost {
        0 => String::new(),
        1 => format!("; 1 of {} was lost during the run", all_producers(totals)),
        _ => format!("; {} of {} were lost during the run", lost, all_producers(totals)),
    }
}

/// Names the producers that averages are taken over.
pub(super) fn producers(totals: &Totals) -> String {
    let all = totals.producers.len();
    let lost = totals.producers.iter().filter(|producer| is_lost(producer)).count();
    let Words { producer: one, producers: many, .. } = words(totals);
    match all - lost {
        // If every producer was lost, averages are over all.
        0 if all > 1 => format!("the {all} {many}"),
        0 => format!("the {one}"),
        1 if lost == 0 => format!("the {one}"),
        1 => format!("the remaining {one}"),
        left if lost == 0 => format!("the {left} {many}"),
        left => format!("the {left} remaining {many}"),
    }
}

pub(super) fn all_producers(totals: &Totals) -> Many {
    Many(totals.producers.len() as u64, words(totals).producer)
}

fn is_of_cluster(producer: &ProducerTotals) -> bool {
    producer.worker.as_ref().is_some_and(|worker| worker.host.is_some())
}

/// Returns the time that a producer took part. A worker of a cluster may join in the middle of a run.
fn presence(producer: &ProducerTotals, totals: &Totals) -> Duration {
    match is_of_cluster(producer) {
        true => producer.working + producer.rebuilding + producer.waiting,
        false => totals.lasted,
    }
}

fn is_lost(producer: &ProducerTotals) -> bool {
    let worker = producer.worker.as_ref();
    let has_lost_worker = worker.is_some_and(|worker| worker.lost.is_some());
    producer.quarantined.is_some() || producer.abandoned || has_lost_worker
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::observe::event::Event;
    use crate::observe::report::RunReport;
    use crate::observe::report::samples::{PlayedRun, failure};
    use crate::observe::report::span::IncidentKind;

    fn joined(seat: usize) -> Event {
        let place: Arc<str> = format!("node/{seat}").into();
        Event::WorkerJoined { producer: seat, host: "node".into(), place }
    }

    /// A cluster of five seats, with workers in the second and the fourth.
    fn played() -> PlayedRun {
        let mut run = PlayedRun::on(vec![String::new(); 5], None);
        for seat in [1, 3] {
            run.tell(100, &joined(seat));
            run.totals.producers[seat].place = format!("node/{seat}");
        }
        run.start(1_000, 3, 0, 1);
        run.start(1_000, 1, 1, 1);
        run.finish(4_000, 3, 0);
        run.finish(6_000, 1, 1);
        run.fail(4_000, failure(0, 3, 1, "no"));
        run.tell(7_000, &Event::WorkerLeft { producer: 3, lost: Some("silent".into()) });
        run
    }

    fn check(report: &RunReport) {
        let places: Vec<_> = report.producers.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["node/1", "node/3"]);
        assert_eq!(report.slowest.iter().map(|it| it.producer).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(report.spans.iter().map(|it| it.producer).collect::<Vec<_>>(), [1, 0]);
        assert_eq!(report.failures[0].producer, Some(1));
        assert!(report.incidents.iter().all(|it| it.producer == Some(1)));
        assert_eq!(report.incidents[1].kind, IncidentKind::WorkerLost);
        let busy = &report.timeline.as_ref().unwrap().busy_ns;
        let sums: Vec<_> = busy.iter().map(|row| Duration::from_nanos(row.iter().sum())).collect();
        assert_eq!(sums, [5, 3].map(Duration::from_millis));
    }

    #[test]
    fn seats_that_no_worker_has_had_have_no_row() {
        let mut run = played();
        check(&run.recorder.report());
        check(&run.end(8_000));
    }

    #[test]
    fn without_a_worker_there_is_no_row() {
        let report = PlayedRun::on(vec![String::new(); 64], None).end(1_000);
        assert!(report.producers.is_empty(), "{report}");
        assert!(report.to_html().contains("finished in"), "{report}");
    }

    #[test]
    fn items_of_one_worker_may_overlap() {
        let mut run = PlayedRun::on(vec![String::new()], None);
        run.tell(0, &joined(0));
        run.totals.producers[0].place = "node/0".to_owned();
        for (at, item) in [(1_000, 0), (3_000, 1), (8_000, 2)] {
            run.start(at, 0, item, 1);
        }
        for (at, item) in [(5_000, 1), (9_000, 0), (12_000, 2)] {
            run.finish(at, 0, item);
        }
        run.start(20_000, 0, 3, 1);
        run.finish(21_000, 0, 3);
        let report = run.end(30_000);
        let took: Vec<_> = report.slowest.iter().map(|it| (it.item, it.took.as_millis())).collect();
        assert_eq!(took, [(0, 8), (2, 4), (1, 2), (3, 1)]);
        let busy: u64 = report.timeline.as_ref().unwrap().busy_ns[0].iter().sum();
        assert_eq!(Duration::from_nanos(busy), Duration::from_millis(12));
    }
}
