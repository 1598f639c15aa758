//! What a report says of the processes.

use gangline::{OnError, OrderedRunner};

use crate::chores::{Chore, Chores, builder, squares};
use crate::log::Log;
use crate::suite::tests;

tests![
    what_a_child_prints_goes_to_the_subscriber_of_the_run,
    a_report_has_the_figures_of_each_process,
    the_figures_are_those_of_one_run,
    a_report_of_a_service_has_the_bytes_of_items_that_failed,
    a_report_of_threads_has_no_workers,
];

/// More than one message fits into a socket at once.
const LARGE: usize = 1 << 20;

fn a_report_has_the_figures_of_each_process() {
    let mut pool = builder(1).on_error(OnError::Skip).build().unwrap();
    let text = "x".repeat(LARGE);
    let items = [Chore::Abort, Chore::Text(text), Chore::Exit(1), Chore::Large(LARGE), Chore::Pid];
    let outputs = pool.run(items).unwrap();
    let report = pool.report();
    let worker = report.producers[0].worker.clone().expect("it is in a process");
    assert_eq!(worker.pid.map(|pid| pid.to_string()).as_ref(), outputs.last(), "the last process");
    assert_eq!((worker.restarts, worker.host), (2, None));
    // Both outputs are large, one input is.
    let (large, small) = (LARGE as u64, 100_000);
    assert!((large..large + small).contains(&worker.bytes_down), "{}", worker.bytes_down);
    assert!((2 * large..2 * large + small).contains(&worker.bytes_up), "{}", worker.bytes_up);
    assert!(!worker.wire_wait.is_zero() && worker.wire_wait <= report.lasted, "{report}");
    let text = report.to_string();
    let row = text.lines().skip_while(|line| !line.contains("wire wait")).nth(1).unwrap();
    assert!(
        row.contains(&outputs[2]) && row.contains(" 1.0 MB") && row.contains(" 2.1 MB"),
        "{row}"
    );
}

fn the_figures_are_those_of_one_run() {
    let mut pool = builder(2).on_error(OnError::Skip).build().unwrap();
    pool.run([Chore::Abort, Chore::Text("x".repeat(LARGE)), Chore::Abort]).unwrap();
    pool.run(squares(0..4)).unwrap();
    for producer in pool.report().producers {
        let worker = producer.worker.unwrap();
        assert_eq!(worker.restarts, 0, "{worker:?}");
        assert!(worker.bytes_down + worker.bytes_up < 10_000, "{worker:?}");
    }
}

fn a_report_of_a_service_has_the_bytes_of_items_that_failed() {
    let service = builder(1).build().unwrap().into_service();
    service.call(Chore::Fail("x".repeat(LARGE))).unwrap_err();
    let worker = service.report().producers[0].worker.clone().unwrap();
    assert!(worker.bytes_down.min(worker.bytes_up) >= LARGE as u64, "{worker:?}");
}

fn a_report_of_threads_has_no_workers() {
    let mut pool = OrderedRunner::builder(Chores::new()).devices(2).build().unwrap();
    pool.run(squares(0..4)).unwrap();
    assert!(pool.report().producers.iter().all(|producer| producer.worker.is_none()));
}

fn what_a_child_prints_goes_to_the_subscriber_of_the_run() {
    let [build, first, second] = [(); 3].map(|()| Log::new());
    let mut pool = build.scope(|| builder(1).retries(0).on_error(OnError::Skip).build()).unwrap();
    for (run, words) in [(&first, "one"), (&second, "two")] {
        let in_span = || {
            tracing::info_span!("caller").in_scope(|| pool.run([Chore::LastWords(words.into())]))
        };
        assert_eq!(run.scope(in_span).unwrap(), [""; 0]);
        assert_eq!(run.count(&format!("caller>run: {words}")), 1, "{:#?}", run.others(&[]));
        assert_eq!(run.count("caller>run: an item failed"), 1, "{:#?}", run.others(&[]));
    }
    drop(pool);
    assert_eq!(build.others(&[]), [""; 0]);
    assert_eq!(first.count("caller>run: two"), 0);
}
