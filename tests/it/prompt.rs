//! Nothing waits for a later item to be read, nor for a slow neighbour except for order.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gangline::Order;

use crate::hooks::{Hooks, both_orders};
use crate::support::{Counter, no_hang};

both_orders!(
    what_was_read_is_delivered_while_the_source_pauses,
    a_hundred_thousand_pauses,
    pauses_with_more_producers_than_items,
    a_stream_pulls_nothing_before_it_is_asked,
    idle_producers_share_what_is_there,
);

/// Yields `burst` items at a time, and goes on only when all that it yielded have been consumed.
fn pausing(consumed: Arc<Counter>, count: u64, burst: u64) -> impl Iterator<Item = u64> {
    (0..count).inspect(move |&x| {
        if x % burst == 0 {
            consumed.reach(x);
        }
    })
}

#[track_caller]
fn check_pauses(order: Order, producers: usize, count: u64, burst: u64) {
    let consumed = Arc::new(Counter::new());
    let counted = consumed.clone();
    let hooks = Hooks::new().consume(move |_, _| {
        counted.add(1);
        Ok(())
    });
    let mut pool = hooks.pool(order, producers);
    let seen = pool.run(pausing(consumed, count, burst)).unwrap();
    assert_eq!(seen.len() as u64, count);
}

fn what_was_read_is_delivered_while_the_source_pauses(order: Order) {
    for (producers, burst) in [(1, 1), (1, 3), (2, 2), (2, 5), (3, 1), (3, 9), (8, 7)] {
        check_pauses(order, producers, 600 * burst, burst);
    }
}

/// Where a wake-up can be lost, it is lost here.
fn a_hundred_thousand_pauses(order: Order) {
    check_pauses(order, 2, 100_000, 1);
}

fn pauses_with_more_producers_than_items(order: Order) {
    check_pauses(order, 16, 4_000, 3);
}

fn a_stream_pulls_nothing_before_it_is_asked(order: Order) {
    let pulled = AtomicU64::new(0);
    let mut pool = Hooks::new().pool(order, 2);
    let mut stream = pool.outputs((0..).inspect(|_| {
        pulled.fetch_add(1, SeqCst);
    }));
    assert_eq!(pulled.load(SeqCst), 0);
    assert!(stream.next().unwrap().is_ok());
    drop(stream);
    assert!((1..=6).contains(&pulled.load(SeqCst)), "{pulled:?}");
}

/// As many items as producers, each waiting for all others: every producer must get one.
fn idle_producers_share_what_is_there(order: Order) {
    for producers in [2, 3, 8] {
        let started = Arc::new(Counter::new());
        let hooks = Hooks::new().work(move |_, x| {
            started.add(1);
            started.reach((x / producers + 1) * producers);
            Ok(x)
        });
        let mut pool = hooks.windowed(order, producers as usize, producers as usize);
        assert_eq!(pool.run(0..20 * producers).unwrap().len() as u64, 20 * producers);
    }
}

/// What the consumer has seen.
#[derive(Default)]
struct Seen {
    items: Mutex<HashSet<u64>>,
    others: Counter,
}

/// A runner of which item `slow` waits until `others` is true of the others that were consumed.
fn one_slow(slow: u64, seen: &Arc<Seen>, wait: fn(&Seen, u64)) -> Hooks {
    let (waits, seen) = (seen.clone(), seen.clone());
    Hooks::new()
        .work(move |_, x| {
            if x == slow {
                wait(&waits, slow);
            }
            Ok(x)
        })
        .consume(move |cx, y| {
            seen.items.lock().unwrap().insert(y);
            if y == slow {
                cx.stop();
            } else {
                seen.others.add(1);
            }
            Ok(())
        })
}

/// The numbers of items before and after a slow one.
const NEIGHBOURS: u64 = 300;

/// Waits for a thousand others, and for all neighbours.
fn for_neighbours(seen: &Seen, slow: u64) {
    let mut neighbours = slow.saturating_sub(NEIGHBOURS)..slow + NEIGHBOURS + 1;
    let mut consumed = 1_000;
    while !neighbours.all(|x| x == slow || seen.items.lock().unwrap().contains(&x)) {
        // `all` has taken the one that is missing.
        neighbours.start -= 1;
        consumed = seen.others.get().max(consumed);
        seen.others.reach(consumed + 1);
    }
    seen.others.reach(consumed);
}

const SLOW: [u64; 5] = [0, 1, 7, 777, 5_000];

#[test]
fn a_slow_item_among_quick_ones_keeps_none_back_in_an_endless_input() {
    for producers in [2, 3, 8] {
        for slow in SLOW {
            no_hang(move || {
                let seen = Arc::default();
                let hooks = one_slow(slow, &seen, for_neighbours);
                let mut pool = hooks.pool(Order::Completion, producers);
                assert_eq!(pool.run(0..).unwrap().last(), Some(&slow));
            });
        }
    }
}

#[test]
fn a_slow_item_among_quick_ones_keeps_none_back_in_a_finite_input() {
    for producers in [2, 3, 8] {
        for slow in SLOW.into_iter().chain([9_999]) {
            no_hang(move || {
                let seen = Arc::default();
                let hooks = one_slow(slow, &seen, |seen, _| seen.others.reach(9_999));
                let mut pool = hooks.pool(Order::Completion, producers);
                assert_eq!(pool.run(0..10_000).unwrap().len(), 10_000);
            });
        }
    }
}

/// Items of the next test are given out before the first is worked on.
const FULL: u64 = 4_096;

/// Producers find so much to take that each takes many at once, and the slow item among them.
#[track_caller]
fn check_full_queue(producers: u64, slow: u64, count: u64, wait: fn(&Seen, u64)) {
    no_hang(move || {
        let seen = Arc::new(Seen::default());
        let (pulled, waits, sees) = (Arc::new(Counter::new()), seen.clone(), seen);
        let full = pulled.clone();
        let hooks = Hooks::new()
            .work(move |_, x| {
                if x < producers {
                    full.reach(FULL);
                } else if x == slow {
                    wait(&waits, slow);
                } else {
                    // Longer than it takes to give an item out: there is always something to take.
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_micros(20) {}
                }
                Ok(x)
            })
            .consume(move |cx, y| {
                sees.items.lock().unwrap().insert(y);
                if y == slow {
                    cx.stop();
                } else {
                    sees.others.add(1);
                }
                Ok(())
            });
        let mut pool = hooks.windowed(Order::Completion, producers as usize, FULL as usize);
        let items = (0..count).inspect(|&x| {
            if x < FULL {
                pulled.add(1);
            }
        });
        assert_eq!(pool.run(items).unwrap().last(), Some(&slow));
    });
}

#[test]
fn what_was_taken_with_a_slow_item_is_taken_from_there_while_there_is_more() {
    for producers in [2, 3, 8] {
        for slow in [1_000, 1_777, 2_500, 3_333] {
            check_full_queue(producers, slow, u64::MAX, for_neighbours);
        }
    }
}

#[test]
fn what_was_taken_with_a_slow_item_is_taken_from_there_at_the_end() {
    for producers in [2, 3, 8] {
        for slow in [1_000, 2_500, 3_333, FULL - 20] {
            check_full_queue(producers, slow, FULL, |seen, _| seen.others.reach(FULL - 1));
        }
    }
}

#[test]
fn a_slow_item_of_a_stream_keeps_none_back() {
    for producers in [2, 3, 8] {
        for slow in SLOW {
            no_hang(move || {
                let others = Arc::new(Counter::new());
                let all = others.clone();
                let hooks = Hooks::new().work(move |_, x| {
                    if x == slow {
                        all.reach(9_999);
                    }
                    Ok(x)
                });
                let mut pool = hooks.pool(Order::Completion, producers);
                let mut last = None;
                for output in pool.outputs(0..10_000) {
                    last = output.ok();
                    others.add(1);
                }
                assert_eq!(last, Some(slow));
            });
        }
    }
}

/// In input order nothing passes a slow item, but whatever the window allows is worked on.
#[test]
fn a_slow_item_in_order_lets_the_others_be_worked_on() {
    const WINDOW: u64 = 512;
    for producers in [2, 3, 8] {
        for slow in SLOW {
            no_hang(move || {
                let worked = Counter::new();
                let hooks = Hooks::new().work(move |_, x| {
                    if x == slow {
                        worked.reach(slow + WINDOW - 1);
                    } else {
                        worked.add(1);
                    }
                    Ok(x)
                });
                let mut pool = hooks.windowed(Order::Input, producers, WINDOW as usize);
                assert_eq!(pool.run(0..10_000).unwrap().len(), 10_000);
            });
        }
    }
}
