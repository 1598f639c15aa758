//! What reports and progress say of the workers.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use gangline::event::{Event, Observer};
use gangline::metrics::Metrics;
use gangline::report::{IncidentKind, ProducerReport, RunReport, WorkerReport};
use gangline::{Batch, CfgNode, OnError, OrderedRunner, map};
use gangline_nats::ClusterBuilder;
use metrics_exporter_prometheus::PrometheusBuilder;
use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, Chores, squares, text_in};
use crate::suite::tests;

tests![
    a_report_has_the_figures_of_each_worker,
    a_report_counts_workers_that_took_a_seat_and_items_that_came_back,
    observers_hear_of_workers_that_come_and_go,
    only_seats_with_a_worker_have_a_row,
    a_row_has_the_times_of_the_hooks,
    a_worker_that_comes_late_waits_since_then,
    a_lost_worker_is_a_row_that_says_so,
    each_run_has_its_own_times,
    a_timeline_has_a_line_for_each_worker,
    a_worker_with_batches_has_the_time_of_its_hooks_once,
    services_and_pipelines_have_rows_for_workers_too,
    metrics_count_workers_and_not_seats,
    progress_has_a_line_for_each_worker,
    a_panic_shows_in_the_row_of_its_worker,
];

/// More than is sent in a message.
const LARGE: usize = 1 << 20;

fn workers_in(pool: &OrderedRunner<Chores>) -> Vec<WorkerReport> {
    pool.report().producers.into_iter().filter_map(|producer| producer.worker).collect()
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

fn a_report_has_the_figures_of_each_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let processes = [broker.worker(1), broker.worker(1)];
    let mut pool = broker.builder().cluster(&CHORES, broker.nats().min_workers(2)).build().unwrap();
    for _ in 0..2 {
        _ = std::fs::remove_file(file("a"));
        _ = std::fs::remove_file(file("b"));
        // Both of the workers are needed.
        let items = [
            Chore::Await(file("a"), file("b")),
            Chore::Await(file("b"), file("a")),
            Chore::Text("x".repeat(LARGE)),
            Chore::Large(LARGE),
            Chore::Sleep(300),
        ];
        pool.run(items).unwrap();
        let workers = workers_in(&pool);
        let mut pids: Vec<_> = workers.iter().filter_map(|it| it.pid).collect();
        let mut expected: Vec<_> = processes.iter().map(|it| it.pid()).collect();
        pids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(pids, expected);
        assert!(workers.iter().all(|it| it.host == Some(host())), "{workers:?}");
        assert!(workers.iter().all(|it| (it.restarts, it.returned) == (0, 0)), "{workers:?}");
        let sum = |of: fn(&WorkerReport) -> u64| workers.iter().map(of).sum::<u64>();
        let large = LARGE as u64;
        let down = large..large + 10_000;
        assert!(down.contains(&sum(|it| it.bytes_down)), "{workers:?}");
        let up = 2 * large..2 * large + 10_000;
        assert!(up.contains(&sum(|it| it.bytes_up)), "{workers:?}");
        let waits: Vec<_> = workers.iter().map(|it| it.wire_wait).collect();
        assert!(waits.iter().all(|it| !it.is_zero()), "{waits:?}");
    }
    let text = pool.report().to_string();
    assert!(text.contains("wire wait") && text.contains(&host()), "{text}");
}

fn a_report_counts_workers_that_took_a_seat_and_items_that_came_back() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let first = broker.worker(1);
    let nats = broker.nats().max_workers(1);
    let builder = OrderedRunner::builder(Chores::new()).cluster(&CHORES, nats).retries(1);
    let mut pool = builder.build().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            text_in(&file("begun"));
            let second = broker.worker(1);
            first.signal(Signal::KILL);
            second
        });
        pool.run([Chore::AwaitOnce(file("begun"), file("never")), Chore::Square(2)]).unwrap();
        let workers = workers_in(&pool);
        assert_eq!(workers.len(), 1);
        assert_eq!(workers[0].restarts, 1);
        assert_eq!(workers[0].pid, Some(second.join().unwrap().pid()));
    });
}

/// Passes on how many workers there are.
struct Count(usize, mpsc::Sender<usize>);

impl Observer for Count {
    fn observe(&mut self, _: Duration, event: &Event) {
        match event {
            Event::WorkerJoined { .. } => self.0 += 1,
            Event::WorkerLeft { .. } => self.0 -= 1,
            Event::RunStarted { .. } => self.0 = 0,
            _ => return,
        }
        _ = self.1.send(self.0);
    }
}

fn observers_hear_of_workers_that_come_and_go() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let file = |name| folder.path().join(name);
    let _first = broker.worker(1);
    let (sender, counts) = mpsc::channel();
    let mut pool = broker.builder().observer(Count(0, sender)).build().unwrap();
    let wait_for = move |count| while counts.recv().unwrap() != count {};
    let (broker, file) = (&broker, &file);
    pool.run(squares(0..3)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            text_in(&file("begun"));
            wait_for(1);
            let mut second = broker.worker(1);
            wait_for(2);
            second.signal(Signal::TERM);
            second.wait();
            wait_for(1);
            std::fs::write(file("go"), "").unwrap();
        });
        pool.run([Chore::Await(file("begun"), file("go"))]).unwrap();
    });
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The texts of a report: for the terminal, as a page, as JSON and as a trace.
fn texts_of(report: &RunReport) -> [String; 4] {
    [report.to_string(), report.to_html(), report.to_json(), report.to_trace()]
}

fn only_seats_with_a_worker_have_a_row() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(2), broker.worker(1)];
    for max_workers in [3, 4, 64, 1000] {
        let nats = broker.nats().min_workers(3).max_workers(max_workers);
        let mut pool = broker.builder().cluster(&CHORES, nats).build().unwrap();
        let (_, report) = pool.run_with_report((0..12).map(|_| Chore::Sleep(20)));
        let places: Vec<_> = report.producers.iter().map(|it| it.place.clone()).collect();
        let expected: Vec<_> = (0..3).map(|seat| format!("{}/{seat}", host())).collect();
        assert_eq!(places, expected, "of {max_workers}");
        assert_eq!(report.producers.iter().map(|it| it.items).sum::<u64>(), 12);
        for text in texts_of(&report) {
            assert!(text.contains(&expected[2]), "{text}");
            assert!(!text.contains(&format!("{}/3", host())), "{text}");
        }
    }
}

fn a_row_has_the_times_of_the_hooks() {
    let broker = Broker::start();
    let places = [("1", "0"), ("4", "0"), ("1", "1")];
    for (producers, processes) in places {
        let worker =
            broker.worker_with(producers.parse().unwrap(), &[("GANGLINE_PROCESSES", processes)]);
        let cfg = CfgNode::new().with("init_millis", 60).unwrap();
        let mut pool = broker.builder().cfg(cfg).build().unwrap();
        let (_, report) = pool.run_with_report((0..8).map(|_| Chore::Sleep(100)));
        let row = &report.producers[0];
        let each = 800 / producers.parse::<u64>().unwrap();
        assert!(row.working >= ms(each), "{producers} {processes} {report}");
        assert!(row.init >= ms(60), "{report}");
        assert!(row.working + row.waiting <= report.lasted, "{report}");
        assert_eq!(row.worker.as_ref().unwrap().producers.to_string(), producers);
        drop(pool);
        drop(worker);
    }
}

fn a_worker_that_comes_late_waits_since_then() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let _first = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let begun = Instant::now();
    let (second, before, report) = std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            text_in(&path("begun"));
            std::thread::sleep(ms(300));
            (begun.elapsed(), broker.worker(1))
        });
        let (_, report) = pool.run_with_report([
            Chore::Await(path("begun"), path("joined")),
            Chore::Touch(path("joined")),
        ]);
        let (before, second) = second.join().unwrap();
        (second, before, report)
    });
    let [first, late] = &report.producers[..] else { panic!("{report}") };
    assert_eq!(late.worker.as_ref().unwrap().pid, Some(second.pid()));
    assert!(
        late.working + late.waiting <= report.lasted.saturating_sub(before - ms(100)),
        "{report}"
    );
    assert!(first.working >= ms(300), "{report}");
}

fn a_lost_worker_is_a_row_that_says_so() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let first = broker.worker(1);
    let (sender, counts) = mpsc::channel();
    let builder = broker.builder().retries(1).observer(Count(0, sender));
    let mut pool = builder.build().unwrap();
    let (second, report) = std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            text_in(&path("begun"));
            first.signal(Signal::KILL);
            broker.worker(1)
        });
        let (_, report) = pool
            .run_with_report([Chore::AwaitOnce(path("begun"), path("never")), Chore::Square(2)]);
        (second.join().unwrap(), report)
    });
    drop(counts);
    let [lost, other] = &report.producers[..] else { panic!("{report}") };
    let workers = [lost, other].map(|it| it.worker.clone().unwrap());
    assert_eq!(workers.each_ref().map(|it| it.pid), [Some(first.pid()), Some(second.pid())]);
    assert_eq!(workers.each_ref().map(|it| it.losses), [1, 0]);
    assert_eq!(workers[1].lost, None);
    let why = "it gave no sign of life for 1.5 s";
    assert_eq!(workers[0].lost.as_deref(), Some(why));
    assert!(report.incidents.iter().any(|it| it.kind == IncidentKind::WorkerLost), "{report}");
    for text in texts_of(&report) {
        assert!(text.contains(why), "{text}");
    }
}

fn each_run_has_its_own_times() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().build().unwrap();
    let mut other = broker.builder().build().unwrap();
    pool.run([Chore::Sleep(400)]).unwrap();
    // The worker's service works for another pool; that time does not count here.
    other.run([Chore::Sleep(400)]).unwrap();
    let (_, report) = pool.run_with_report([Chore::Square(2)]);
    let row = &report.producers[0];
    assert!(row.working + row.waiting <= report.lasted, "{report}");
}

fn a_timeline_has_a_line_for_each_worker() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let _workers = [broker.worker(1), broker.worker(3)];
    let nats = broker.nats().min_workers(2);
    let builder = broker.builder().cluster(&CHORES, nats).timeline().key(|_| "a key");
    let mut pool = builder.build().unwrap();
    // All four producers are needed for the first four.
    let names = ["1", "2", "3", "4"];
    let mut items: Vec<_> = names.map(|name| Chore::Await(path(name), path("go"))).into();
    items.resize(20, Chore::Sleep(1));
    let report = std::thread::scope(|scope| {
        scope.spawn(|| {
            names.iter().for_each(|name| _ = text_in(&path(name)));
            std::thread::sleep(ms(50));
            std::fs::write(path("go"), "").unwrap();
        });
        pool.run_with_report(items).1
    });
    let timeline = report.timeline.as_ref().unwrap();
    assert_eq!(timeline.busy_ns.len(), 2);
    for (row, busy) in report.producers.iter().zip(&timeline.busy_ns) {
        let busy = Duration::from_nanos(busy.iter().sum());
        assert!(busy >= ms(50) && busy <= report.lasted, "{busy:?} {report}");
        assert_eq!(row.latency.unwrap().count, row.items);
    }
    assert_eq!(report.latency.unwrap().count, 20);
    assert_eq!(report.spans.len(), 20);
    assert!(report.spans.iter().all(|it| it.producer < 2 && !it.is_open));
    assert_eq!(report.slowest[0].key.as_deref(), Some("a key"));
    assert!(!report.to_html().contains("No item events"), "{report}");
}

fn a_worker_with_batches_has_the_time_of_its_hooks_once() {
    let broker = Broker::start();
    for processes in ["0", "1"] {
        let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", processes)]);
        let builder = broker.builder().batch(Batch::up_to(4).within(ms(50))).timeline();
        let mut pool = builder.build().unwrap();
        let (_, report) = pool.run_with_report((0..8).map(|_| Chore::Sleep(100)));
        let row = &report.producers[0];
        // The items of a batch sleep one after the other.
        assert!(row.working >= ms(800), "{report}");
        assert!(row.working + row.waiting <= report.lasted, "{report}");
        assert_eq!(row.items, 8);
    }
}

fn services_and_pipelines_have_rows_for_workers_too() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(1)];
    let pool = || {
        let nats = broker.nats().min_workers(2);
        broker.builder().cluster(&CHORES, nats).build().unwrap()
    };
    let rows = |report: &RunReport| {
        let items = |it: &ProducerReport| (it.place.contains('/'), it.items);
        report.producers.iter().map(items).filter(|it| it.0).map(|it| it.1).collect::<Vec<_>>()
    };
    let service = pool().into_service();
    for _ in 0..3 {
        service.call(Chore::Sleep(50)).unwrap();
    }
    let report = service.report();
    assert_eq!((rows(&report).len(), rows(&report).iter().sum::<u64>()), (2, 3), "{report}");
    let working: Duration = report.producers.iter().map(|it| it.working).sum();
    assert!(working >= ms(150) && working <= report.lasted * 2, "{report}");
    service.close().unwrap();
    let (first, mut last) = (
        OrderedRunner::builder(map(|_| Ok(()), |_, (), n: u64| Ok(Chore::Sleep(n))))
            .devices(3)
            .build()
            .unwrap(),
        pool(),
    );
    let mut pipeline = first.then(&mut last);
    pipeline.run([20; 8]).unwrap();
    let report = pipeline.report();
    assert_eq!(report.producers.len(), 5, "{report}");
    assert_eq!(rows(&report).iter().sum::<u64>(), 8, "{report}");
    assert!(report.stages[1].report.producers.iter().all(|it| !it.waiting.is_zero()), "{report}");
}

fn metrics_count_workers_and_not_seats() {
    let broker = Broker::start();
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name);
    let first = broker.worker(2);
    let recorder = PrometheusBuilder::new().build_recorder();
    let exporter = recorder.handle();
    let metrics = metrics::with_local_recorder(&recorder, || Metrics::new("r"));
    let builder = broker.builder().retries(1).observer(metrics);
    let (sender, counts) = mpsc::channel();
    let mut pool = builder.observer(Count(0, sender)).build().unwrap();
    let text = std::thread::scope(|scope| {
        let (broker, path, first, exporter) = (&broker, &path, &first, &exporter);
        let second = scope.spawn(move || {
            text_in(&path("begun"));
            while counts.recv().unwrap() != 1 {}
            let text = exporter.render();
            first.signal(Signal::KILL);
            (text, broker.worker(1))
        });
        pool.run([Chore::AwaitOnce(path("begun"), path("never")), Chore::Square(2)]).unwrap();
        second.join().unwrap().0
    });
    assert!(text.contains("gangline_producers{runner=\"r\"} 1\n"), "{text}");
    let text = exporter.render();
    let lost = "gangline_producers_lost_total{runner=\"r\",reason=\"worker_lost\"} 1\n";
    assert!(text.contains(lost), "{text}");
    assert!(text.contains("gangline_items_working{runner=\"r\"} 0\n"), "{text}");
}

fn progress_has_a_line_for_each_worker() {
    let broker = Broker::start();
    let _workers = [broker.worker(1), broker.worker(1)];
    let seen = std::sync::Arc::new(std::sync::Mutex::new(vec![]));
    let sink = seen.clone();
    let observer = move |_: Duration, event: &Event| {
        let text = match event {
            Event::RunStarted { producers, .. } => format!("{producers:?}"),
            Event::WorkerJoined { producer, place, .. } => format!("{producer} is {place}"),
            Event::ProducerReady { producer, .. } => format!("{producer} is ready"),
            _ => return,
        };
        sink.lock().unwrap().push(text);
    };
    let nats = broker.nats().min_workers(2).max_workers(3);
    let builder = broker.builder().cluster(&CHORES, nats).observer(observer);
    let mut pool = builder.build().unwrap();
    pool.run(squares(0..9)).unwrap();
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    let expected = [
        r#"["", "", ""]"#.to_owned(),
        format!("0 is {}/0", host()),
        "0 is ready".to_owned(),
        format!("1 is {}/1", host()),
        "1 is ready".to_owned(),
    ];
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(seen, expected);
}

fn a_panic_shows_in_the_row_of_its_worker() {
    let broker = Broker::start();
    for processes in ["0", "1"] {
        let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", processes)]);
        let cfg = CfgNode::new().with("init_millis", 40).unwrap();
        let mut pool = broker.builder().cfg(cfg).on_error(OnError::Skip).build().unwrap();
        let items = [Chore::Panic("a".to_owned()), Chore::Square(1), Chore::Panic("b".to_owned())];
        let (_, report) = pool.run_with_report(items.into_iter().chain([Chore::Square(2)]));
        let row = &report.producers[0];
        assert_eq!((row.states_lost, row.rebuilds, row.failed), (2, 2, 2), "{report}");
        assert!(row.rebuilding >= ms(80), "{report}");
        assert!(row.working + row.rebuilding <= report.lasted, "{report}");
    }
}
