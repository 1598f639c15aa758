//! Laws that hold for every way to drive a run.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use futures_lite::StreamExt;
use gangline::{Batch, CancelToken, Error, Hook, OnError, Order};

use crate::drivers::{Setup, Shape, every_driver};
use crate::hooks::{Gauge, Hooks, sorted};
use crate::runtimes::pausing;
use crate::support::{Counter, Gate};

every_driver!(
    all_items_come_through,
    whole_batches_come_however_narrow_the_stages_are,
    items_in_flight_never_exceed_the_windows,
    producers_have_work_while_a_result_is_consumed,
    nothing_is_pulled_behind_a_failure,
    a_slow_item_in_any_stage_makes_its_window_grow,
    batches_form_in_a_narrow_window,
    items_in_flight_never_exceed_their_memory,
    an_output_that_cannot_be_measured_fails_its_item,
    a_failure_in_any_stage_is_the_error,
    a_skipped_item_leaves_its_place_to_an_error,
    a_failed_input_is_the_error,
    a_source_that_panics_is_the_error,
    a_cancel_of_any_stage_is_the_error,
    a_request_made_before_ends_a_run_at_its_start,
    a_drain_of_any_stage_completes_what_was_pulled,
    a_drain_gives_out_an_item_that_waits_for_room,
    a_closed_stage_is_the_only_error,
    a_state_that_was_lost_is_rebuilt,
);

fn all_items_come_through(shape: Shape) {
    let each = |x, stage| 3 * x + stage as u64;
    let hooks = |stage| Hooks::new().work(move |_, x| Ok(each(x, stage)));
    let mut line = shape.line(hooks, |_, it| it.devices(3), || ());
    for items in [0, 1, 1_000] {
        let ran = line.drive(0..items);
        let expected = (0..items).map(|x| (0..shape.stages).fold(x, each));
        assert!(shape.order == Order::Completion || ran.ok.is_sorted());
        assert_eq!(sorted(ran.ok), expected.collect::<Vec<_>>());
        assert!(ran.error.is_none(), "{:?}", ran.error);
        let account = ran.account;
        assert_eq!((account.ok, account.cancelled, account.unread), (items, 0, Some(0)));
        assert!(line.pools.iter().all(|pool| pool.account() == account));
    }
}

fn whole_batches_come_however_narrow_the_stages_are(shape: Shape) {
    for (batched, window) in (0..shape.stages).flat_map(|stage| [(stage, 4), (stage, 9)]) {
        let most = Arc::new(AtomicU64::new(0));
        let hooks = |_| {
            let notes = most.clone();
            Hooks::new().by_batch(move |_, inputs| {
                notes.fetch_max(inputs.len() as u64, SeqCst);
                Ok(inputs.drain(..).map(Ok).collect())
            })
        };
        let build = |stage, it: Setup| match stage == batched {
            true => it.devices(2).batch(Batch::of(4)).window(window),
            false => it.devices(2).window(1),
        };
        let mut line = shape.line(hooks, build, || ());
        assert_eq!(sorted(line.drive(0..101).ok), (0..101).collect::<Vec<_>>());
        assert_eq!(most.load(SeqCst), 4);
        assert_eq!(line.drive(0..3).ok.len(), 3, "less than a batch");
    }
}

/// An item is in flight from being read until it is consumed. An output is consumed when the caller asks for the next.
fn items_in_flight_never_exceed_the_windows(shape: Shape) {
    for windows in [[1, 1, 1], [3, 4, 2], [5, 1, 9], [16, 16, 16]] {
        let gauge = Gauge::default();
        let (reading, consumed) = (gauge.clone(), gauge.clone());
        let hooks = |stage| {
            let fails = move |x| stage == 0 && x % 7 == 3;
            Hooks::new().work(move |_, x| if fails(x) { Err("no".into()) } else { Ok(x) })
        };
        let build =
            |stage: usize, it: Setup| it.devices(2).window(windows[stage]).on_error(OnError::Skip);
        let mut line = shape.line(hooks, build, move || consumed.down());
        let ran = line.drive((0..500).inspect(move |_| reading.up()));
        assert_eq!((ran.ok.len(), ran.failed.len(), gauge.now()), (429, 71, 0));
        let all = windows[..shape.stages].iter().sum::<usize>() as u64;
        assert!(gauge.most() <= all, "{} in {windows:?}", gauge.most());
    }
}

/// Hooks that let items pass the last stage once all windows are full. `begin` is called for each item in that stage.
fn after(
    shape: Shape,
    full: &Arc<Gate>,
    begin: impl Fn() + Clone + Send + Sync + 'static,
) -> impl Fn(usize) -> Hooks {
    let full = full.clone();
    move |stage| {
        let (full, begin, is_last) = (full.clone(), begin.clone(), stage + 1 == shape.stages);
        Hooks::new().work(move |_, x| {
            if is_last {
                begin();
                full.pass();
            }
            if is_last && x == u64::MAX { Err("no".into()) } else { Ok(x) }
        })
    }
}

/// Opens `full` at the item that fills all windows.
fn filling<I: Iterator<Item = u64> + Send + 'static>(
    items: I,
    all: usize,
    full: &Arc<Gate>,
    pulled: &Arc<AtomicU64>,
) -> impl Iterator<Item = u64> + Send + use<I> {
    let (full, pulled) = (full.clone(), pulled.clone());
    items.inspect(move |_| {
        if pulled.fetch_add(1, SeqCst) + 1 == all as u64 {
            full.open();
        }
    })
}

/// Each result is held until producers have begun a window of items behind it in the last stage, less a quarter: the
/// permits of a quarter come back together. No more items are begun, since the result is in flight.
fn producers_have_work_while_a_result_is_consumed(shape: Shape) {
    const ITEMS: u64 = 200;
    for windows in [[2, 2, 2], [5, 3, 4], [3, 8, 2]] {
        let (full, gauge, taken) = (Arc::default(), Gauge::default(), Counter::new());
        let (begun, begins, consumed) = (Arc::new(Counter::new()), gauge.clone(), gauge.clone());
        let counts = begun.clone();
        let hooks = after(shape, &full, move || {
            begins.up();
            counts.add(1);
        });
        let last = windows[shape.stages - 1] as u64;
        let take = move || {
            begun.reach((taken.add(1) - 1 + last - last / 4).min(ITEMS));
            consumed.down();
        };
        let mut line = shape.line(hooks, |stage, it| it.window(windows[stage]), take);
        let all = windows[..shape.stages].iter().sum();
        let ran = line.drive(filling(0..ITEMS, all, &full, &Arc::default()));
        assert_eq!(ran.ok, (0..ITEMS).collect::<Vec<_>>());
        assert!(gauge.most() <= last, "{} in the last stage of {windows:?}", gauge.most());
    }
}

/// Keeps the first item at work until the window of its stage must have grown to 16 items per producer. Which thread is
/// last to find a window full is a race.
fn a_slow_item_in_any_stage_makes_its_window_grow(shape: Shape) {
    const PRODUCERS: usize = 2;
    for round in 0..20 {
        let done = Arc::new(Counter::new());
        let hooks = |stage| {
            let (done, is_slow) = (done.clone(), stage == round % shape.stages);
            Hooks::new().work(move |_, x| {
                match x {
                    _ if !is_slow => {}
                    0 => done.reach(16 * PRODUCERS as u64 - 1),
                    _ => _ = done.add(1),
                }
                Ok(x)
            })
        };
        let mut line = shape.line(hooks, |_, it| it.devices(PRODUCERS), || ());
        assert_eq!(sorted(line.drive(0..100).ok), (0..100).collect::<Vec<_>>());
    }
}

fn nothing_is_pulled_behind_a_failure(shape: Shape) {
    for windows in [[1, 1, 1], [2, 2, 2], [5, 3, 4]] {
        let (full, pulled) = (Arc::default(), Arc::default());
        let hooks = after(shape, &full, || ());
        let mut line = shape.line(hooks, |stage, it| it.window(windows[stage]), || ());
        let all: usize = windows[..shape.stages].iter().sum();
        let ran = line.drive(filling([u64::MAX].into_iter().chain(0..), all, &full, &pulled));
        assert_eq!((ran.ok.len(), ran.failed.len()), (0, 1));
        assert_eq!(pulled.load(SeqCst), all as u64);
        assert!(shape.may_count(ran.pulled(), all as u64), "{:?}", ran.account);
    }
}

fn batches_form_in_a_narrow_window(shape: Shape) {
    let batched = |_, it: Setup| it.devices(2).batch(Batch::of(8)).window(8);
    let mut line = shape.line(|_| Hooks::new(), batched, || ());
    assert_eq!(sorted(line.drive(0..50).ok), (0..50).collect::<Vec<_>>());
    if shape.driver.is_task() {
        let ran = line.drive_stream(pausing(50).map(Ok));
        assert_eq!(sorted(ran.ok), (0..50).collect::<Vec<_>>());
    }
}

/// Items of 10 bytes under a bound that has room for the given number of them, for one in each stage at least.
fn items_in_flight_never_exceed_their_memory(shape: Shape) {
    for items in [shape.stages as u64, 4, 9] {
        let gauge = Gauge::default();
        let (reading, consumed) = (gauge.clone(), gauge.clone());
        let bounded = |_, it: Setup| it.devices(3).window_memory(10 * items, |_| 10, |_| 10);
        let mut line = shape.line(|_| Hooks::new(), bounded, move || consumed.down());
        let ran = line.drive((0..300).inspect(move |_| reading.up()));
        assert_eq!(sorted(ran.ok), (0..300).collect::<Vec<_>>());
        assert!(gauge.most() <= items, "{} of {items} in flight", gauge.most());
    }
    // Of any sizes, also larger than the bound, and in batches.
    for (most, batch) in [(1_u64, 1), (9, 3), (25, 1)] {
        let bounded = |_, it: Setup| {
            let it = it.devices(2).window_memory(most, |&x| x % 10 + 1, |&x| x % 7);
            if batch > 1 { it.batch(Batch::up_to(batch)) } else { it }
        };
        let mut line = shape.line(|_| Hooks::new(), bounded, || ());
        assert_eq!(sorted(line.drive(0..300).ok), (0..300).collect::<Vec<_>>());
        if shape.driver.is_task() {
            let ran = line.drive_stream(pausing(200).map(Ok));
            assert_eq!(sorted(ran.ok), (0..200).collect::<Vec<_>>());
        }
    }
}

fn an_output_that_cannot_be_measured_fails_its_item(shape: Shape) {
    let measure = |&x: &u64| if x == 4 { panic!("no scales") } else { 1_u64 };
    for failing in 0..shape.stages {
        for on_error in [OnError::Stop, OnError::Skip] {
            let bounded = |stage, it: Setup| {
                let it = it.devices(2).on_error(on_error).retries(2);
                if stage == failing { it.window_memory(100, |_| 1, measure) } else { it }
            };
            let mut line = shape.line(|_| Hooks::new(), bounded, || ());
            let ran = line.drive(0..9);
            assert_eq!((ran.failed.len(), ran.account.failed), (1, 1));
            assert!(shape.order == Order::Completion || ran.failed == [Some(4)]);
            match on_error {
                OnError::Skip => assert_eq!(sorted(ran.ok), [0, 1, 2, 3, 5, 6, 7, 8]),
                _ => {
                    let error = ran.error.unwrap();
                    assert!(format!("{error:#}").ends_with("no scales"), "{error:#}");
                    assert!(error.is_panic());
                }
            }
            assert_eq!(sorted(line.drive(0..4).ok), [0, 1, 2, 3], "the next run is sound");
        }
    }
}

fn a_failure_in_any_stage_is_the_error(shape: Shape) {
    for failing in 0..shape.stages {
        let mut line = shape.failing(failing, OnError::Stop);
        let ran = line.drive(0..);
        let error = ran.error.unwrap();
        assert!(format!("{error:#}").contains("four"), "{error:#}");
        assert_eq!(error.hook(), Some(Hook::ProducerWork));
        if shape.order == Order::Input {
            assert_eq!((ran.ok, ran.failed), (vec![0, 1, 2, 3], vec![Some(4)]));
        }
        for (stage, pool) in line.pools.iter().enumerate() {
            assert_eq!(pool.account().failed, u64::from(stage == failing));
        }
        assert_eq!(ran.account.failed, 1);
        let ran = line.drive(0..100);
        assert_eq!((ran.account.failed, ran.pulled() + ran.account.unread.unwrap()), (1, 100));
        assert_eq!(sorted(line.drive(0..4).ok), [0, 1, 2, 3], "the next run is sound");
    }
}

fn a_skipped_item_leaves_its_place_to_an_error(shape: Shape) {
    for failing in 0..shape.stages {
        let ran = shape.failing(failing, OnError::Skip).drive(0..10);
        if shape.order == Order::Input {
            assert!(ran.ok.is_sorted());
            assert_eq!(ran.failed, [Some(4)]);
            assert!(ran.ok_before.iter().all(|&before| before == 4), "{:?}", ran.ok_before);
        }
        assert_eq!(sorted(ran.ok), [0, 1, 2, 3, 5, 6, 7, 8, 9]);
        assert_eq!((ran.account.ok, ran.account.failed, ran.account.cancelled), (9, 1, 0));
    }
}

fn a_failed_input_is_the_error(shape: Shape) {
    if shape.driver.needs_sound_items() {
        return;
    }
    for on_error in [OnError::Stop, OnError::Skip] {
        let set_up = |_, it: Setup| it.on_error(on_error);
        let mut line = shape.line(|_| Hooks::new(), set_up, || ());
        let items = ["1", "x", "3"].into_iter().map(|item| Ok(item.parse()?));
        let ran = line.try_drive(items);
        assert_eq!((ran.failed.len(), ran.account.failed), (1, 1));
        match on_error {
            OnError::Skip => assert_eq!(ran.ok, [1, 3]),
            _ => {
                let error = ran.error.unwrap();
                assert!(error.is_input() && !error.is_panic());
                assert_eq!(error.item(), Some(1));
                assert_eq!(error.source().unwrap().to_string(), "invalid digit found in string");
            }
        }
    }
}

fn a_source_that_panics_is_the_error(shape: Shape) {
    let mut line = shape.line(|_| Hooks::new(), |_, it| it, || ());
    let items = (0..9_u64).inspect(|&x| assert!(x < 3, "the source breaks"));
    let ran = line.drive(items);
    let error = ran.error.unwrap();
    assert!(matches!(error, Error::InputPanicked { item: 3, .. }), "{error:?}");
    assert!(format!("{error:#}").ends_with("the source breaks"), "{error:#}");
    if shape.order == Order::Input {
        assert_eq!(ran.ok, [0, 1, 2], "it fails after the results before it");
    }
    assert_eq!(line.drive(0..3).ok, [0, 1, 2]);
}

/// The request is made by the source, which then yields an item.
fn a_cancel_of_any_stage_is_the_error(shape: Shape) {
    let (mut line, tokens) = shape.with_tokens();
    for token in tokens {
        let ran = line.drive((0..100).inspect(move |&x| {
            if x == 20 {
                token.cancel();
            }
        }));
        assert!(ran.error.as_ref().unwrap().is_cancelled());
        assert!(shape.order == Order::Completion || ran.ok.is_sorted());
        assert!(shape.may_count(ran.pulled(), 21), "{:?}", ran.account);
        assert_eq!(ran.account.ok, ran.ok.len() as u64);
        assert_eq!(sorted(line.drive(0..9).ok), (0..9).collect::<Vec<_>>());
    }
}

fn a_request_made_before_ends_a_run_at_its_start(shape: Shape) {
    let (mut line, tokens) = shape.with_tokens();
    let items = || (0..5).inspect(|_| panic!("nothing is to be pulled"));
    for token in tokens {
        token.cancel();
        let ran = line.drive(items());
        assert!(ran.error.unwrap().is_cancelled());
        assert_eq!((ran.ok.len(), ran.failed.len(), ran.account.unread), (0, 1, Some(5)));
        token.drain();
        let ran = line.drive(items());
        assert!(ran.error.is_none(), "{:?}", ran.error);
        assert_eq!((ran.ok.len(), ran.account.unread), (0, Some(5)));
        assert_eq!(sorted(line.drive(0..9).ok), (0..9).collect::<Vec<_>>());
    }
}

fn a_drain_of_any_stage_completes_what_was_pulled(shape: Shape) {
    let (mut line, tokens) = shape.with_tokens();
    for token in tokens {
        let ran = line.drive((0..).inspect(move |&x| {
            if x == 20 {
                token.drain();
            }
        }));
        assert!(ran.error.is_none(), "{:?}", ran.error);
        assert_eq!(sorted(ran.ok), (0..=20).collect::<Vec<_>>());
        assert_eq!((ran.account.ok, ran.account.cancelled), (21, 0));
        assert!(line.pools.iter().all(|pool| pool.account().ok == 21));
    }
}

fn a_drain_gives_out_an_item_that_waits_for_room(shape: Shape) {
    let token = CancelToken::new();
    // The second item is larger than what the first led to expect, so it is pulled and has no room.
    let bounded = |_, it: Setup| {
        it.window_memory(4_u64, |&x| if x == 1 { 4_u64 } else { 1 }, |_| 1_u64)
            .cancel_token(token.clone())
    };
    let mut line = shape.line(|_| Hooks::new(), bounded, || ());
    for at in [0, 1, 20] {
        let drains = token.clone();
        let ran = line.drive((0..).inspect(move |&x| {
            if x == at {
                drains.drain();
            }
        }));
        assert!(ran.error.is_none(), "{:?}", ran.error);
        assert_eq!(ran.ok, (0..=at).collect::<Vec<_>>());
    }
}

fn a_closed_stage_is_the_only_error(shape: Shape) {
    for closed in 0..shape.stages {
        let mut line = shape.line(|_| Hooks::new(), |_, it| it, || ());
        line.pools[closed].close().unwrap();
        let ran = line.drive(0..9);
        assert!(ran.error.unwrap().is_closed());
        assert_eq!((ran.ok.len(), ran.failed.len(), ran.account.unread), (0, 1, Some(9)));
        // A pipeline keeps the pools that it owns.
        if let Some(pool) = line.pools.get_mut(closed) {
            pool.activate().unwrap();
            assert_eq!(line.drive(0..9).ok.len(), 9);
        }
    }
}

fn a_state_that_was_lost_is_rebuilt(shape: Shape) {
    for lost in 0..shape.stages {
        let inits = Arc::new(Counter::new());
        let hooks = |stage| {
            let (panics, inits) = (move |x| stage == lost && x == 9, inits.clone());
            let hooks = Hooks::new().init(move |_| {
                inits.add(1);
                Ok(())
            });
            hooks.work(move |_, x| if panics(x) { panic!("nine") } else { Ok(x) })
        };
        let mut line = shape.line(hooks, |_, it| it, || ());
        for round in 1..4 {
            assert!(line.drive([9]).error.unwrap().is_panic());
            assert_eq!(line.drive([1, 2]).ok, [1, 2]);
            assert_eq!(inits.get(), shape.stages as u64 + round);
        }
    }
}
