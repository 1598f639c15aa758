//! Batches in processes.

use gangline::error::OutputCount;
use gangline::{Batch, CfgNode, Error, OnError};

use crate::chores::{Chore, builder, squared, squares};
use crate::suite::tests;

tests![
    a_batch_is_one_call,
    a_crash_in_a_batch_fails_the_guilty_item_only,
    what_a_batch_has_not_tried_comes_again_in_a_smaller_one,
    an_error_in_a_batch_is_of_its_item,
    a_wrong_number_of_outputs_fails_at_once,
];

fn a_batch_is_one_call() {
    let mut pool = builder(2).batch(Batch::up_to(8)).build().unwrap();
    assert_eq!(pool.run(squares(0..100)).unwrap(), squared(0..100));
}

fn a_crash_in_a_batch_fails_the_guilty_item_only() {
    let directory = tempfile::tempdir().unwrap();
    let cfg = CfgNode::new().with("init", directory.path().join("starts")).unwrap();
    let pool = builder(2).batch(Batch::up_to(8)).on_error(OnError::Skip).cfg(cfg);
    let mut pool = pool.build().unwrap();
    let mut items = squares(0..32);
    items[13] = Chore::Segv;
    let mut expected = squared(0..32);
    expected.remove(13);
    assert_eq!(pool.run(items).unwrap(), expected);
    assert_eq!(pool.failures().len(), 1);
    assert_eq!(pool.failures()[0].item(), Some(13));
}

fn what_a_batch_has_not_tried_comes_again_in_a_smaller_one() {
    let mut pool = builder(1).batch(Batch::of(4)).build().unwrap();
    let items =
        [Chore::Pid, Chore::UntriedAbove(2), Chore::UntriedAbove(2), Chore::Fail("".into())];
    let error = pool.run(items.clone()).unwrap_err();
    assert_eq!((error.item(), pool.account().ok), (Some(3), 3), "{error:#}");
    let outputs = pool.run(items[..3].iter().cloned()).unwrap();
    assert_eq!(outputs[1..], ["2 1", "1 1"], "memory for four was missing");
    assert_eq!(pool.learned_batch_limits(), [Some(2)]);
}

fn an_error_in_a_batch_is_of_its_item() {
    let mut pool = builder(1).batch(Batch::up_to(4)).on_error(OnError::Skip).build().unwrap();
    let items = [Chore::Square(1), Chore::Fail("bad".into()), Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap(), ["1", "9"]);
    assert_eq!(pool.failures()[0].item(), Some(1));
}

fn a_wrong_number_of_outputs_fails_at_once() {
    for less in [1, 4, 8] {
        let cfg = CfgNode::new().with("outputs_less", less).unwrap();
        let pool = builder(1).batch(Batch::of(8)).on_error(OnError::Skip).cfg(cfg);
        let mut pool = pool.build().unwrap();
        let (outputs, report) = pool.run_with_report(squares(0..32));
        assert!(outputs.unwrap().is_empty());
        assert_eq!((report.account.failed, report.failures.len()), (32, 32));
        assert_eq!((report.splits.batches, report.splits.split, report.splits.calls), (4, 0, 4));
        let Error::HookFailed { source, .. } = &pool.failures()[0] else { panic!("{report}") };
        let count = source.downcast_ref::<OutputCount>().unwrap();
        assert_eq!((count.inputs, count.outputs), (8, 8 - less));
    }
}
