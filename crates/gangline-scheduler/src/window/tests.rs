use super::*;
use crate::batch::Batch;
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

#[test]
fn like_sizes_are_chosen_from_more_batches() {
    let choice = |producers, batch| Window::growing_for_choice(producers, batch);
    assert_eq!(choice(2, 32).size(), 1_024, "16 batches for each producer");
    assert_eq!(choice(2, 1_000).size(), 8_192, "no more than the most");
    assert_eq!(choice(2, 2_000).size(), 12_000, "three batches for each producer at least");
    let (mut window, start) = (choice(2, 32), Instant::now());
    window.look(0, true, start);
    window.look(0, true, start + LOOKS_EVERY);
    assert_eq!((window.keep(2_000), window.size()), (0, 1_024), "it does not shrink below that");
}

#[test]
fn permits_come_back_by_quarters_and_results_wake_by_halves() {
    let parts = [1, 2, 7, 8, 100].map(Window::fixed).map(|it| (it.quarter(), it.half()));
    assert_eq!(parts, [(1, 0), (1, 1), (1, 3), (2, 4), (25, 50)]);
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

#[test]
fn behind_a_slow_head_it_grows_to_sixteen_per_producer_and_with_memory_to_sixty_four() {
    let mut window = Window::growing(2, 1);
    assert_eq!(window.grow_behind_head(3, || panic!("it is not asked")), 0, "three are to do");
    let mut grow = |has_memory: bool| {
        let held_back = window.size() - 2;
        window.grow_behind_head(held_back, || has_memory);
        window.size()
    };
    assert_eq!([grow(false), grow(false), grow(false)], [24, 32, 32]);
    assert_eq!([grow(true), grow(true)], [128, 128]);
}

#[test]
fn a_window_that_the_user_gave_does_not_grow_behind_a_slow_head() {
    let mut window = Window::fixed(8);
    assert_eq!(window.grow_behind_head(8, || true), 0);
}

#[test]
fn it_follows_sizes_that_are_chosen() {
    let mut window = Window::new(None, 2, Some(Batching::new(Batch::auto())));
    assert_eq!(window.size(), 6, "sizes begin with 1");
    assert_eq!(window.follow(16, 2, || unreachable!("it is small")), 96 - 6);
    assert_eq!(window.follow(16, 2, || true), 0);
    assert_eq!(
        window.follow(32, 2, || false),
        0,
        "memory is asked from 16 times its first size on"
    );
    assert_eq!(window.follow(64, 2, || true), 3 * 2 * 64 - 96);
    assert_eq!(window.follow(8, 2, || true), 0);
    assert_eq!(window.size(), 384, "what it has it keeps");
    let mut fixed = Window::new(Some(64), 2, Some(Batching::new(Batch::auto())));
    assert_eq!(fixed.follow(64, 2, || true), 0);
}
