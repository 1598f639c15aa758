//! Runs whose times are known by hand.

use super::*;
use crate::batch::Batch;
use crate::tests::{MS, batches, config};

/// Items that take these times, from a source and for a consumer that take none.
struct Times(Vec<Duration>);

impl RunModel for Times {
    fn pull(&mut self, _: u64) -> Duration {
        Duration::ZERO
    }

    fn work(&mut self, _: ProducerId, items: &[u64], _: u32) -> (Duration, Outcome) {
        (items.iter().map(|&index| self.0[index as usize]).sum(), Outcome::Succeeded)
    }

    fn consume(&mut self, _: u64) -> Duration {
        Duration::ZERO
    }
}

fn lasted(config: Config, window: Window, times: Vec<Duration>) -> Duration {
    let items = times.len() as u64;
    let done = replay(config, window, items, &mut Times(times));
    assert_eq!(done.items, items);
    done.lasted
}

#[test]
fn equal_items_are_divided_among_producers() {
    let times = || vec![10 * MS; 100];
    for producers in [1, 2, 4, 5] {
        let window = Window::new(None, producers, None);
        let expected = 10 * MS * (100 / producers as u32);
        assert_eq!(lasted(config(producers), window, times()), expected);
    }
}

#[test]
fn a_slow_head_holds_a_small_window_up_and_a_large_one_not() {
    // The first takes as long as 39 others on the other producer.
    let times: Vec<_> = (0..40).map(|index| if index == 0 { 39 * MS } else { MS }).collect();
    let run = |window| lasted(config(2), Window::fixed(window), times.clone());
    assert_eq!(run(40), 39 * MS);
    // Three more are done behind the head; the other 36 take two producers 18 ms.
    assert_eq!(run(4), 57 * MS);
    let completion = Config { order: Order::Completion, ..config(2) };
    assert_eq!(lasted(completion, Window::fixed(4), times.clone()), 39 * MS);
    // The default window grows behind the head.
    assert_eq!(lasted(config(2), Window::new(None, 2, None), times), 39 * MS);
}

/// A source and a consumer that take their time, and attempts that fail.
struct Slow {
    pull: Duration,
    consume: Duration,
    fails: u32,
}

impl RunModel for Slow {
    fn pull(&mut self, _: u64) -> Duration {
        self.pull
    }

    fn work(&mut self, _: ProducerId, _: &[u64], attempt: u32) -> (Duration, Outcome) {
        let outcome = if attempt <= self.fails { Outcome::Failed } else { Outcome::Succeeded };
        (MS, outcome)
    }

    fn consume(&mut self, _: u64) -> Duration {
        self.consume
    }
}

#[test]
fn the_slowest_part_sets_the_pace() {
    let mut slow = Slow { pull: 3 * MS, consume: MS, fails: 0 };
    let done = replay(config(4), Window::fixed(8), 10, &mut slow);
    assert_eq!(done.lasted, 32 * MS, "ten pulls, a hook and a consumption");
    let mut slow = Slow { pull: MS, consume: 5 * MS, fails: 0 };
    let done = replay(config(4), Window::fixed(8), 10, &mut slow);
    assert_eq!(done.lasted, 52 * MS, "a pull, a hook and ten consumptions");
}

#[test]
fn a_failed_attempt_is_followed_by_another_after_the_backoff() {
    let mut slow = Slow { pull: Duration::ZERO, consume: Duration::ZERO, fails: 1 };
    let config = Config { retries: 1, ..config(1) };
    let done = replay(config, Window::fixed(8), 1, &mut slow);
    assert_eq!((done.lasted, done.leases, done.items), (12 * MS, 2, 1));
}

#[test]
fn a_failed_batch_is_split_and_its_items_are_skipped_alone() {
    let mut slow = Slow { pull: Duration::ZERO, consume: Duration::ZERO, fails: 9 };
    let config = Config { batching: batches(Batch::of(4)), ..config(1) };
    let done = replay(config, Window::fixed(8), 8, &mut slow);
    assert_eq!((done.items, done.leases), (8, 2 * (1 + 2 + 4)));
}

#[test]
fn a_run_of_nothing_ends_at_once() {
    assert_eq!(lasted(config(2), Window::fixed(4), vec![]), Duration::ZERO);
}
