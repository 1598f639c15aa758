//! Hooks that lose their device, on threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gangline::error::DeviceLost;
use gangline::{Batch, BoxError, OnError, OrderedRunner, ProducerContext, map, map_batches};

/// The item that loses the device.
const GUILTY: u64 = 4;

fn lost() -> BoxError {
    std::io::Error::other(DeviceLost::new("illegal address")).into()
}

/// Numbers the states.
fn init() -> impl Fn(&ProducerContext<'_>) -> gangline::Result<u64> {
    let made = Arc::new(AtomicU64::new(0));
    move |_| Ok(made.fetch_add(1, Ordering::Relaxed) + 1)
}

#[test]
fn a_lost_device_costs_the_state_and_one_attempt() {
    let works = map(init(), |_, state: &mut u64, x: u64| match x {
        GUILTY => Err(lost()),
        _ => Ok(*state),
    });
    let builder = OrderedRunner::builder(works).devices(1).on_error(OnError::Skip);
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(0..8).unwrap(), [1, 1, 1, 1, 2, 2, 2]);
    let [error] = pool.failures() else { panic!("{:?}", pool.failures()) };
    assert_eq!((error.item(), error.attempt()), (Some(GUILTY), Some(1)));
}

#[test]
fn a_lost_device_fails_one_item_of_its_batch() {
    let works = map_batches(init(), |_, state: &mut u64, xs: &mut Vec<u64>| {
        if xs.contains(&GUILTY) {
            return Err(lost());
        }
        Ok(xs.drain(..).map(|x| Ok((x, *state))).collect())
    });
    let builder = OrderedRunner::builder(works).devices(1).on_error(OnError::Skip);
    let mut pool = builder.batch(Batch::up_to(8)).build().unwrap();
    let outputs = pool.run(0..8).unwrap();
    let items: Vec<_> = outputs.iter().map(|output| output.0).collect();
    assert_eq!(items, [0, 1, 2, 3, 5, 6, 7]);
    // Items before it may have been taken in a batch of their own.
    assert!(outputs.iter().all(|&(x, state)| x < GUILTY || state > 1), "{outputs:?}");
    assert_eq!(pool.account().failed, 1);
}

#[test]
fn a_device_that_one_outcome_of_a_batch_says_is_lost_costs_the_state() {
    let works = map_batches(init(), |_, state: &mut u64, xs: &mut Vec<u64>| {
        let each = xs.drain(..).map(|x| if x == GUILTY { Err(lost()) } else { Ok(*state) });
        Ok(each.collect())
    });
    let builder = OrderedRunner::builder(works).devices(1).on_error(OnError::Skip);
    let mut pool = builder.batch(Batch::up_to(1)).build().unwrap();
    assert_eq!(pool.run(0..8).unwrap(), [1, 1, 1, 1, 2, 2, 2]);
}
