use std::thread;

use super::*;
use crate::run::handover::feeder::Feeder;
use crate::run::handover::item_queue::{ItemQueue, NextItem};

/// Without the wake-up, the window stays as it is until the slow item is done.
#[test]
fn a_feeder_without_a_thread_wakes_a_collector_that_awaits_a_full_window() {
    let window = Window::new(None, 2, None);
    let run = Run::<u64, u64>::alone(2, window.size(), None);
    let hub = &run.handover;
    let mut feeder = Feeder::new(hub);
    assert!(feeder.wait_for_permit(hub));
    (0..window.size() as u64).for_each(|item| {
        assert!(feeder.spend(hub));
        feeder.push(hub, item);
    });
    let (mut slow, mut quick) = (ItemQueue::new(hub, 0), ItemQueue::new(hub, 1));
    assert!(matches!(slow.next(), Some(NextItem::Untracked(0, _))));
    for _ in 1..window.size() {
        let Some(NextItem::Untracked(seq, item)) = quick.next() else { panic!("there are more") };
        quick.deliver(seq, Ok(item));
    }
    thread::scope(|scope| {
        let collecting = scope.spawn(|| {
            let mut collector = Collector::new(hub, Order::Input, window, now());
            assert!(collector.pop().is_none(), "the first item is at work");
            collector.settle(hub);
            collector.wait(hub, None, None);
            collector.settle(hub);
            collector.window.size()
        });
        while !hub.is_collector_asleep() {
            thread::yield_now();
        }
        hub.starve_for_permits();
        assert!(collecting.join().unwrap() > window.size());
    });
}

/// Returns the pace after each step of `(results, microseconds)`.
fn judge(steps: &[(u64, u64)]) -> Vec<bool> {
    let mut now = Instant::now();
    let mut pace = Pace::new(now);
    let mut arrived = 0;
    let mut step = |&(results, micros): &(u64, u64)| {
        arrived += results;
        now += Duration::from_micros(micros);
        pace.is_high(arrived, now)
    };
    steps.iter().map(&mut step).collect()
}

#[test]
fn many_at_once_are_waited_for_at_once() {
    assert_eq!(judge(&[(32, 100), (31, 1), (1_000, 10)]), [true, true, true]);
}

#[test]
fn few_at_a_time_add_up() {
    let judged = judge(&[(2, 5); 16]);
    assert_eq!(judged, [vec![false; 7], vec![true; 9]].concat());
}

#[test]
fn a_trickle_is_waited_for_one_by_one() {
    assert_eq!(judge(&[(2, 1_000); 100]), [false; 100]);
}

#[test]
fn items_that_turn_slow_are_waited_for_one_by_one_after_eight_waits() {
    let slow = judge(&[&[(32, 100)][..], &[(1, 500); 9]].concat());
    assert_eq!(slow, [vec![true; 8], vec![false; 2]].concat());
}
