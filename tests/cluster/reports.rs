//! What reports and progress say of the workers.

use std::sync::mpsc;
use std::time::Duration;

use gangline::OrderedRunner;
use gangline::event::{Event, Observer};
use gangline::report::WorkerReport;
use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{CHORES, Chore, Chores, squares, tests, text_in};

tests![
    a_report_has_the_figures_of_each_worker,
    a_report_counts_workers_that_took_a_seat_and_items_that_came_back,
    observers_hear_of_workers_that_come_and_go,
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
