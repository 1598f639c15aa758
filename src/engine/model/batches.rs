//! Models of batches: items that wait for others to fill their batch.

use std::sync::Arc;

use gangline_scheduler::batch::{Batch, Batching, Size};
use gangline_scheduler::window::Window;
use shuttle::sync::atomic::AtomicU64;
use shuttle::thread;

use super::{batch_producers, check, collect, feed, hub, run_measured, run_with};
use crate::base::Order;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::run::handover::feeder::Feeder;
use crate::run::measures::Measured;

fn run_batches(producers: usize, window: usize, items: u64, batch: Batch) {
    let batching = Batching::new(batch);
    let hub = Arc::new(hub(producers, window, Some(batching)));
    let threads = batch_producers(&hub, producers, batching);
    run_with(&hub, threads, Order::Input, window, items);
}

/// Items of sizes 1, 4, 1, 4, ... in batches of two alike: each waits for one of its size.
fn run_like_sizes(producers: usize, window: usize, items: u64, batch: Batch) {
    let mut batching = Batching::new(batch);
    batching.limit_padded(8);
    let hub = Arc::new(hub(producers, window, Some(batching)));
    let threads = batch_producers(&hub, producers, batching);
    let measured = |seq| {
        let padded = if seq % 2 == 0 { 1 } else { 4 };
        Measured { size: Size { cost: 1, padded }, bytes: 0 }
    };
    run_measured(&hub, threads, window, items, measured);
}

#[test]
fn fixed_batches() {
    check(|| run_batches(2, 6, 7, Batch::of(2)));
}

/// A batch is incomplete only if no permit is left, and the window has no room for a second batch.
#[test]
fn fixed_batches_in_a_window_that_is_no_multiple() {
    check(|| run_batches(2, 3, 7, Batch::of(2)));
}

#[test]
fn batches_of_what_is_there() {
    check(|| run_batches(2, 4, 6, Batch::up_to(3)));
}

#[test]
fn batches_of_like_sizes() {
    check(|| run_like_sizes(2, 5, 7, Batch::of(2)));
}

/// Each item waits for one of its size, and the window has no room for that.
#[test]
fn batches_of_like_sizes_in_a_narrow_window() {
    check(|| run_like_sizes(2, 2, 5, Batch::of(2)));
}

/// The collector is also the feeder, as in a stream.
#[test]
fn batches_of_a_stream() {
    check(|| {
        let batching = Batching::new(Batch::of(2));
        let hub = Arc::new(hub(2, 3, Some(batching)));
        let threads = batch_producers(&hub, 2, batching);
        let mut feeder = Feeder::new(&hub);
        let mut collector = Collector::new(&hub, Order::Input, Window::fixed(3), now());
        let (mut pulled, items) = (0, 5);
        while collector.consumed() < items {
            if collector.pop().is_some() {
                collector.done(&hub);
                continue;
            }
            collector.settle(&hub);
            if pulled == items {
                collector.wait(&hub, Some(items), None);
            } else if feeder.has_permit(&hub) {
                assert!(feeder.spend(&hub));
                feeder.push(&hub, pulled);
                pulled += 1;
                if pulled == items {
                    hub.end(items);
                }
            } else {
                collector.begin_wait(&hub);
                feeder.begin_to_wait_elsewhere(&hub);
                collector.sleep(&hub, None, None, || hub.permits.may_feed_again());
                collector.end_wait(&hub);
                hub.end_to_wait_elsewhere();
            }
        }
        hub.abort();
        assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), items);
    });
}

/// A producer that waits for the rest of its batch learns that the input has ended.
#[test]
fn ending_early_completes_batches() {
    for is_abort in [false, true] {
        check(move || {
            let batching = Batching::new(Batch::of(3));
            let hub = Arc::new(hub(2, 4, Some(batching)));
            let threads = batch_producers(&hub, 2, batching);
            let given = Arc::new(AtomicU64::new(0));
            let consumer = {
                let (hub, given) = (hub.clone(), given.clone());
                let window = Window::fixed(4);
                thread::spawn(move || collect(&hub, Order::Input, window, &given, u64::MAX))
            };
            let ender = {
                let hub = hub.clone();
                thread::spawn(move || if is_abort { hub.abort() } else { hub.halt() })
            };
            let pulled = feed(&hub, 5, &given);
            let consumed = consumer.join().unwrap();
            ender.join().unwrap();
            threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() <= 5));
            assert!(is_abort || consumed.len() as u64 == pulled, "what was given out is consumed");
        });
    }
}
