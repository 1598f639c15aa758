//! Hooks after which a device works no more in their process.

use gangline::error::DeviceLost;
use gangline::process::Processes;
use gangline::{Batch, OnError, OrderedRunner};

use crate::chores::{CHORES, Chore, Chores, builder, squared, squares};
use crate::suite::tests;

tests![
    the_item_that_loses_the_device_fails_alone,
    an_item_in_a_batch_that_loses_the_device_fails_alone,
    an_item_is_tried_again_in_another_process,
    an_item_may_lose_more_devices_than_it_may_end_processes,
    a_device_that_is_lost_by_an_item_with_its_own_outcome_costs_the_process,
];

/// The root of the causes that are marked.
fn marked(error: &gangline::Error) -> Option<String> {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut causes = std::iter::successors(Some(first), |error| error.source());
    let mark = causes.find(|error| error.is::<DeviceLost>())?;
    Some(mark.source()?.to_string())
}

fn lose_one_of(count: u64, batch: Option<Batch>) {
    let builder = builder(1).retries(0).on_error(OnError::Skip);
    let builder = match batch {
        Some(batch) => builder.batch(batch),
        None => builder,
    };
    let mut pool = builder.build().unwrap();
    let lost = count / 3;
    let mut items = squares(0..count);
    items[lost as usize] = Chore::LoseDevice;
    let mut expected = squared(0..count);
    expected.remove(lost as usize);
    for _ in 0..3 {
        assert_eq!(pool.run(items.clone()).unwrap(), expected);
        let [error] = pool.failures() else { panic!("{:?}", pool.failures()) };
        assert_eq!((error.item(), error.attempt()), (Some(lost), Some(1)), "{error:#}");
        assert_eq!(marked(error).unwrap(), "illegal address", "{error:#}");
        assert_eq!(format!("{error:#}").matches("device lost").count(), 1, "{error:#}");
        assert_eq!(pool.account().failed, 1);
    }
    pool.close().unwrap();
}

/// Those behind it were sent ahead.
fn the_item_that_loses_the_device_fails_alone() {
    lose_one_of(300, None);
}

fn an_item_in_a_batch_that_loses_the_device_fails_alone() {
    for size in [1, 2, 7, 60] {
        lose_one_of(60, Some(Batch::up_to(size)));
    }
}

fn an_item_is_tried_again_in_another_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut pool = builder(1).retries(1).build().unwrap();
    let before = pool.run([Chore::Pid]).unwrap();
    let once = Chore::LoseDeviceOnce(folder.path().join("once"));
    let after = pool.run([once, Chore::Pid]).unwrap();
    assert_eq!(after[0], after[1]);
    assert_ne!(before[0], after[0]);
    assert_eq!(pool.report().producers[0].worker.as_ref().unwrap().restarts, 1);
}

/// It is not counted as a crash.
fn an_item_may_lose_more_devices_than_it_may_end_processes() {
    let mut pool = builder(1).retries(4).build().unwrap();
    let error = pool.run([Chore::LoseDevice]).unwrap_err();
    assert_eq!(error.attempt(), Some(5), "{error:#}");
}

fn a_device_that_is_lost_by_an_item_with_its_own_outcome_costs_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let builder = OrderedRunner::builder(Chores::new()).devices(1).batch(Batch::up_to(1));
    let processes = Processes::new().retries(1);
    let mut pool = builder.processes(&CHORES, processes).build().unwrap();
    let before = pool.run([Chore::Pid]).unwrap();
    let once = Chore::LoseDeviceOnce(folder.path().join("once"));
    assert_ne!(pool.run([once]).unwrap(), before);
}
