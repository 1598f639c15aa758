//! How many items may be in flight; no threads or clocks here.

use std::time::{Duration, Instant};

use crate::scheduler::batch::{Batching, Grouping};

/// The default window never grows beyond this many items: 8,192 items of 8 MiB would be 64 GiB.
const MOST: usize = 8_192;
/// The work per producer that the default window grows to, in time. It hides the latency of a wake-up.
const AHEAD: Duration = Duration::from_millis(2);
/// The window shrinks to this many times the size that it would grow to. Otherwise alternating fast and slow
/// items would make it shrink and grow in turns.
const SLACK: usize = 4;
/// How long a window must be full before its size is judged.
const LOOKS_EVERY: Duration = Duration::from_millis(50);
/// The factor of growth. With 2, a run of 10,000 fast items took a fifth longer.
const GROWTH: usize = 4;
/// The default number of batches per producer: one being worked on, one next, and one whose results are in
/// transit.
const PER_PRODUCER: usize = 3;
/// The same if items of like sizes go together: with more items to choose from, less is padded. Simulated on
/// two devices with batches of 32: 16 took a fifth less time than 3.
const PER_PRODUCER_FOR_CHOICE: usize = 16;

/// The size of a run's window, and whether it may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window {
    size: usize,
    /// The initial size, and the limit of growth. Both equal `size` for a window that the user gave.
    least: usize,
    most: usize,
    /// The number of consumed items, and the time, when the window was last judged or not full.
    looked: Option<(u64, Instant)>,
    /// The number of permits to keep as they come back, since the window is too large.
    surplus: usize,
}

impl Window {
    /// The window of a run: of `size` items, or one that grows by itself.
    pub(crate) fn new(size: Option<usize>, producers: usize, batching: Option<Batching>) -> Self {
        match (size, batching) {
            (Some(size), _) => Window::fixed(size),
            (None, None) => Window::growing(producers, 1),
            (None, Some(Batching { rule, grouping: Grouping::None, .. })) => {
                Window::growing(producers, rule.most())
            }
            (None, Some(Batching { rule, grouping: Grouping::Like, .. })) => {
                Window::growing_for_choice(producers, rule.most())
            }
        }
    }

    /// Exactly `size` items.
    pub(crate) fn fixed(size: usize) -> Self {
        Window { size, least: size, most: size, looked: None, surplus: 0 }
    }

    /// A window for `producers` that take up to `batch` items at once. It grows while items are fast.
    pub(crate) fn growing(producers: usize, batch: usize) -> Self {
        let size = batch.saturating_mul(PER_PRODUCER * producers);
        Window { most: size.max(MOST), ..Window::fixed(size) }
    }

    /// Like [`growing`](Window::growing), with more batches to choose items of like sizes from.
    pub(crate) fn growing_for_choice(producers: usize, batch: usize) -> Self {
        let size = batch.saturating_mul(PER_PRODUCER_FOR_CHOICE * producers).min(MOST);
        let least = Self::growing(producers, batch);
        let size = size.max(least.size);
        Window { size, least: size, ..least }
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// The number of consumed items after which their permits are returned, at the latest.
    pub(crate) fn quarter(&self) -> usize {
        (self.size / 4).max(1)
    }

    /// The number of results for which a waiting consumer is woken, while they come quickly.
    pub(crate) fn half(&self) -> usize {
        self.size / 2
    }

    pub(crate) fn may_grow(&self) -> bool {
        self.size < self.most
    }

    /// Grows the window, and returns by how many items. Called when producers ran out of permits while the
    /// consumer waited.
    ///
    /// It grows fourfold, up to the items that the run finishes in [`AHEAD`], at the pace of `items` in
    /// `elapsed`. Producers that ran out of items make this pace an underestimate, which later growth
    /// corrects.
    pub(crate) fn grow(&mut self, items: u64, elapsed: Duration) -> usize {
        let most = ahead(items, elapsed).min(self.most);
        let target = self.size.saturating_mul(GROWTH).min(most).max(self.size);
        let more = target - self.size;
        (self.size, self.looked, self.surplus) = (target, None, 0);
        more
    }

    /// Checks whether the window, after growing for fast items, is larger than slow items need. `is_full`:
    /// only the producers hold up the run.
    pub(crate) fn look(&mut self, consumed: u64, is_full: bool, now: Instant) {
        let (before, since) = *self.looked.get_or_insert((consumed, now));
        if !is_full {
            self.looked = Some((consumed, now));
        } else if now - since >= LOOKS_EVERY {
            self.looked = Some((consumed, now));
            let enough = ahead(consumed - before, now - since).saturating_mul(SLACK);
            self.surplus = self.size.saturating_sub(enough.max(self.least));
        }
    }

    /// Returns how many of the returned permits to keep; the window shrinks by them.
    pub(crate) fn keep(&mut self, permits: usize) -> usize {
        let kept = self.surplus.min(permits);
        (self.size, self.surplus) = (self.size - kept, self.surplus - kept);
        kept
    }
}

/// The number of items that the run finishes in [`AHEAD`].
fn ahead(items: u64, elapsed: Duration) -> usize {
    let pace = items as f64 / elapsed.as_secs_f64().max(1e-9);
    (pace * AHEAD.as_secs_f64()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_window_that_the_user_gave_never_grows() {
        for size in [1, 64, usize::MAX] {
            let mut window = Window::fixed(size);
            assert!(!window.may_grow());
            assert_eq!(window.grow(1_000_000, Duration::from_micros(1)), 0);
            assert_eq!(window.size(), size);
        }
    }

    #[test]
    fn fast_items_let_it_grow_up_to_the_most() {
        let mut window = Window::growing(2, 1);
        let sizes: Vec<_> = std::iter::repeat_with(|| {
            window.grow(100_000, Duration::from_millis(1));
            window.size()
        })
        .take(7)
        .collect();
        assert_eq!(sizes, [24, 96, 384, 1536, 6144, 8192, 8192]);
    }

    #[test]
    fn slow_items_leave_it_as_it_is() {
        let mut window = Window::growing(2, 1);
        assert_eq!(window.grow(200, Duration::from_secs(1)), 0);
        assert_eq!(window.size(), 6);
    }

    #[test]
    fn it_stops_at_two_milliseconds_of_work() {
        // Items of 100 us on two producers: 20,000 a second, 40 in 2 ms.
        let mut window = Window::growing(2, 1);
        for _ in 0..10 {
            window.grow(20_000, Duration::from_secs(1));
        }
        assert_eq!(window.size(), 40);
    }

    #[test]
    fn slow_items_after_quick_ones_let_it_shrink_to_four_times_what_they_need() {
        let mut window = Window::growing(2, 1);
        for _ in 0..10 {
            window.grow(100_000, Duration::from_millis(10));
        }
        assert_eq!(window.size(), 8_192);
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        window.look(0, true, start);
        window.look(1_000_000, true, ms(100));
        assert_eq!(window.keep(10), 0, "items are quick");
        // Items of 1 ms on two producers: four in 2 ms.
        window.look(1_000_200, true, ms(200));
        assert_eq!((window.keep(10_000), window.size()), (8_192 - 16, 16));
        window.look(1_000_200, false, ms(300));
        window.look(1_000_200, true, ms(349));
        assert_eq!(window.keep(10), 0, "it was not full for long");
        window.look(1_000_200, true, ms(350));
        assert_eq!((window.keep(10), window.size(), window.may_grow()), (10, 6, true));
    }

    #[test]
    fn a_window_that_the_user_gave_never_shrinks() {
        let (mut window, start) = (Window::fixed(100), Instant::now());
        window.look(0, true, start);
        window.look(0, true, start + Duration::from_secs(1));
        assert_eq!((window.keep(100), window.size()), (0, 100));
    }

    #[test]
    fn more_producers_than_the_most_still_have_their_share() {
        assert_eq!(Window::growing(10_000, 1).size(), 30_000);
        assert!(!Window::growing(10_000, 1).may_grow());
    }

    proptest! {
        #[test]
        fn it_never_shrinks_and_never_exceeds_the_most(
            producers in 1usize..100,
            steps in proptest::collection::vec((0u64..1_000_000, 0u64..10_000_000_000), 0..40),
        ) {
            let mut window = Window::growing(producers, 1);
            for (items, nanos) in steps {
                let before = window.size();
                let more = window.grow(items, Duration::from_nanos(nanos));
                prop_assert_eq!(window.size(), before + more);
                prop_assert!(window.size() <= MOST.max(3 * producers));
                prop_assert!((1..=window.size()).contains(&window.quarter()));
            }
        }
    }
}
