//! Batches, which a worker forms of the items that it has taken.

use std::time::Duration;

use gangline::error::OutputCount;
use gangline::{Batch, CfgNode, Error, OnError};

use crate::broker::Broker;
use crate::chores::{Chore, squared, squares};
use crate::suite::tests;

tests![
    a_worker_forms_whole_batches,
    a_worker_chooses_batches_of_at_most_128,
    the_default_window_fills_the_batches_of_all_workers,
    a_batch_that_no_item_can_fill_is_worked_on,
    a_batch_that_runs_out_of_memory_is_split_without_an_attempt,
    what_a_batch_has_not_tried_comes_again_without_an_attempt,
    an_item_that_fails_its_batch_fails_alone,
    a_wrong_number_of_outputs_is_not_tried_again,
    a_batch_in_child_processes_has_the_items_of_the_coordinator,
    a_rule_that_no_batch_can_keep_is_refused,
    a_batch_keeps_the_limit_of_its_cost,
    a_batch_keeps_the_limit_of_its_padded_size,
    items_that_wait_for_their_batch_in_a_killed_worker_cost_no_attempt,
];

/// Longer than a busy machine takes to fill a batch.
const PATIENCE: Duration = Duration::from_secs(10);

fn a_worker_forms_whole_batches() {
    let broker = Broker::start();
    let _worker = broker.worker(2);
    let rule = Batch::up_to(4).within(PATIENCE);
    let mut pool = broker.builder().batch(rule).build().unwrap();
    for _ in 0..2 {
        assert_eq!(pool.run(vec![Chore::Batch; 16]).unwrap(), vec!["4 1"; 16]);
    }
    let text = pool.report().to_string();
    assert!(!text.contains("batches of"), "workers keep the sizes to themselves: {text}");
}

fn a_worker_chooses_batches_of_at_most_128() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().batch(Batch::auto()).build().unwrap();
    let outputs = pool.run(vec![Chore::Batch; 20_000]).unwrap();
    let sizes = outputs.iter().map(|text| text.split(' ').next().unwrap().parse().unwrap());
    assert_eq!(sizes.max(), Some(128_usize));
}

fn the_default_window_fills_the_batches_of_all_workers() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let rule = Batch::up_to(300).within(PATIENCE);
    let mut pool = broker.builder().batch(rule).build().unwrap();
    assert_eq!(pool.run(vec![Chore::Batch; 300]).unwrap(), vec!["300 1"; 300]);
}

/// A worker does not see the end of the input.
fn a_batch_that_no_item_can_fill_is_worked_on() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let mut pool = broker.builder().batch(Batch::of(4)).build().unwrap();
    assert_eq!(pool.run(squares(0..6)).unwrap(), squared(0..6));
}

fn a_batch_that_runs_out_of_memory_is_split_without_an_attempt() {
    let broker = Broker::start();
    for variable in ["GANGLINE_UNUSED", "GANGLINE_PROCESSES"] {
        let _worker = broker.worker_with(1, &[(variable, "1")]);
        let rule = Batch::up_to(4).within(PATIENCE);
        let mut pool = broker.builder().batch(rule).build().unwrap();
        let outputs = pool.run(vec![Chore::ShortAbove(2); 4]).unwrap();
        assert!(outputs.iter().all(|it| it == "2 1" || it == "1 1"), "{variable}: {outputs:?}");
    }
}

fn what_a_batch_has_not_tried_comes_again_without_an_attempt() {
    let broker = Broker::start();
    for variable in ["GANGLINE_UNUSED", "GANGLINE_PROCESSES"] {
        let _worker = broker.worker_with(1, &[(variable, "1")]);
        let rule = Batch::up_to(4).within(PATIENCE);
        let mut pool = broker.builder().batch(rule).build().unwrap();
        let items = [vec![Chore::Square(3)], vec![Chore::UntriedAbove(2); 3]].concat();
        let outputs = pool.run(items).unwrap();
        assert_eq!(outputs[0], "9");
        assert!(
            outputs[1..].iter().all(|it| it == "2 1" || it == "1 1"),
            "{variable}: {outputs:?}"
        );
    }
}

fn an_item_that_fails_its_batch_fails_alone() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let rule = Batch::up_to(4).within(PATIENCE);
    let mut pool = broker.builder().batch(rule).on_error(OnError::Skip).build().unwrap();
    let mut items = squares(0..8);
    items[5] = Chore::FailBatch;
    let outputs = pool.run(items).unwrap();
    assert_eq!(outputs, [0, 1, 4, 9, 16, 36, 49].map(|x: u32| x.to_string()));
    assert_eq!((pool.account().ok, pool.account().failed), (7, 1));
}

fn a_wrong_number_of_outputs_is_not_tried_again() {
    let broker = Broker::start();
    for processes in ["0", "1"] {
        let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", processes)]);
        for less in [1, 4] {
            let cfg = CfgNode::new().with("outputs_less", less).unwrap();
            let builder = broker.builder().batch(Batch::of(4)).cfg(cfg).retries(2);
            let mut pool = builder.on_error(OnError::Skip).build().unwrap();
            let (outputs, report) = pool.run_with_report(squares(0..8));
            assert!(outputs.unwrap().is_empty());
            assert_eq!((report.account.failed, report.retries.items), (8, 0), "{report}");
            let Error::HookFailed { source, .. } = &pool.failures()[0] else { panic!("{report}") };
            let count = source.downcast_ref::<OutputCount>().unwrap();
            assert_eq!((count.inputs, count.outputs), (4, 4 - less));
        }
    }
}

fn a_batch_in_child_processes_has_the_items_of_the_coordinator() {
    let broker = Broker::start();
    let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", "1")]);
    let rule = Batch::up_to(3).within(PATIENCE);
    let mut pool = broker.builder().batch(rule).build().unwrap();
    for _ in 0..2 {
        let sites = pool.run(vec![Chore::Site; 3]).unwrap();
        assert_eq!(sites, ["Some(0) [0] 1 0 cpu", "Some(1) [1] 1 0 cpu", "Some(2) [2] 1 0 cpu"]);
    }
}

fn a_rule_that_no_batch_can_keep_is_refused() {
    let broker = Broker::start();
    let text = |builder: crate::broker::ChoresBuilder| builder.build().unwrap_err().to_string();
    let window = text(broker.builder().batch(Batch::up_to(4)).window(3));
    assert!(window.starts_with("window must be at least 4 items"), "{window}");
    assert!(text(broker.builder().batch(Batch::of(0))).contains("batch"));
}

/// Without retries, an attempt that was lost would fail the run.
fn items_that_wait_for_their_batch_in_a_killed_worker_cost_no_attempt() {
    let broker = Broker::start();
    let first = broker.worker(1);
    let rule = Batch::up_to(4).within(Duration::from_secs(6));
    let mut pool = broker.builder().batch(rule).build().unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| {
            while broker.unacknowledged("gangline-items") < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            first.signal(rustix::process::Signal::KILL);
            broker.worker(1)
        });
        let outputs = pool.run(vec![Chore::Batch; 2]).unwrap();
        assert!(outputs.iter().all(|it| it == "2 1" || it == "1 1"), "{outputs:?}");
        drop(second.join().unwrap());
    });
    assert_eq!(pool.account().ok, 2);
}

/// The size of an item.
fn size(chore: &Chore) -> u64 {
    match chore {
        Chore::Count(x) => *x,
        _ => 1,
    }
}

fn a_batch_keeps_the_limit_of_its_cost() {
    let broker = Broker::start();
    let _worker = broker.worker(1);
    let rule = Batch::up_to(4).within(PATIENCE);
    let builder = broker.builder().on_error(OnError::Skip).batch(rule);
    let mut pool = builder.max_batch_cost(10, size).build().unwrap();
    // Two of them fill a batch; the large one is alone, and what exceeds the limit comes to no hook.
    let items = [5, 5, 5, 5, 10, 11].map(Chore::Count);
    assert_eq!(pool.run(items).unwrap(), ["2", "2", "2", "2", "1"]);
    assert!(matches!(&pool.failures()[0], Error::TooLarge { amount: 11, most: 10, .. }));
    assert_eq!(pool.report().provenance.settings["max_batch_cost"], "10");
}

fn a_batch_keeps_the_limit_of_its_padded_size() {
    let broker = Broker::start();
    let _worker = broker.worker_with(1, &[("GANGLINE_PROCESSES", "1")]);
    let rule = Batch::up_to(4).within(PATIENCE);
    let mut pool = broker.builder().batch(rule).max_padded_size(40, size).build().unwrap();
    assert_eq!(pool.run([20; 4].map(Chore::Count)).unwrap(), ["2"; 4]);
    assert_eq!(pool.run([10; 4].map(Chore::Count)).unwrap(), ["4"; 4]);
}
