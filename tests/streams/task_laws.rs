//! Laws of the ways to drive a run from a task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::task::Poll;
use std::thread;

use futures_lite::{StreamExt, stream};
use gangline::CancelToken;

use crate::drivers::{Line, Setup, Shape, every_driver};
use crate::hooks::Hooks;
use crate::support::{Counter, Gate};

every_driver!(
    tasks:
    nothing_happens_before_the_first_poll,
    a_stream_is_not_polled_behind_its_end,
    a_dropped_task_waits_for_nothing,
    a_dropped_task_tells_its_hooks,
    the_account_of_a_dropped_task_counts_what_was_consumed,
    a_leaked_task_is_ended_by_the_next,
    one_poll_pulls_at_most_128_items,
    a_pending_input_delays_no_result,
    a_cancel_of_any_stage_wakes_the_task,
    a_drain_of_any_stage_ends_a_pending_input,
    a_drain_behind_a_heavy_item_blocks_no_task,
);

fn nothing_happens_before_the_first_poll(shape: Shape) {
    let (begun, pulls) = (Arc::new(Counter::new()), Arc::new(Counter::new()));
    let hooks = |_| {
        let begins = begun.clone();
        Hooks::new().consumer_init(move |_| {
            begins.add(1);
            Ok(())
        })
    };
    let (mut line, pulled) = (shape.line(hooks, |_, it| it, || ()), pulls.clone());
    line.with_task(stream::iter((0..9).inspect(move |_| _ = pulls.add(1)).map(Ok)), |task| {
        drop(task);
    });
    assert_eq!((begun.get(), pulled.get()), (0, 0));
}

fn a_stream_is_not_polled_behind_its_end(shape: Shape) {
    let mut items = Some(0..10);
    let items = stream::poll_fn(move |_| {
        let next = items.as_mut().expect("it has not ended").next();
        if next.is_none() {
            items = None;
        }
        Poll::Ready(next.map(Ok))
    });
    let mut line = shape.line(|_| Hooks::new(), |_, it| it.window(3), || ());
    let ran = line.drive_stream(items);
    assert_eq!((ran.ok.len(), ran.error.is_none()), (10, true));
}

/// Pools with a hook that waits for a gate at item 1 in this stage; the gate; and the number of hooks that have begun
/// there. Item 0 comes first.
fn stuck(shape: Shape, waiting: usize) -> (Line, Arc<Gate>, Arc<Counter>) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let hooks = |stage| {
        let (passed, begins) = (gate.clone(), begun.clone());
        Hooks::new().work(move |_, x| {
            if stage == waiting {
                begins.add(1);
            }
            if stage == waiting && x == 1 {
                passed.pass();
            }
            Ok(x)
        })
    };
    let line = shape.line(hooks, |_, it| it.window(4), || ());
    (line, gate, begun)
}

fn a_dropped_task_waits_for_nothing(shape: Shape) {
    for stage in 0..shape.stages {
        let (mut line, gate, begun) = stuck(shape, stage);
        let account = line.with_task(stream::iter((0..100).map(Ok)), |mut task| {
            while begun.get() < 2 {
                task();
            }
        });
        assert!((1..=4 * shape.stages as u64).contains(&account.cancelled), "{account:?}");
        line.with_task(stream::iter((5..8).map(Ok)), |mut task| {
            assert!(task(), "the hook of the earlier run is running");
        });
        gate.open();
        assert_eq!(line.drive(5..8).ok, [5, 6, 7]);
        assert_eq!(begun.get(), 5, "items of the dropped run that no hook had are dropped");
        for pool in &mut line.pools {
            assert_eq!(pool.run(1..4).unwrap(), [1, 2, 3]);
        }
    }
}

/// The hook returns only once it is cancelled.
fn a_dropped_task_tells_its_hooks(shape: Shape) {
    for waiting in 0..shape.stages {
        let (begun, told) = (Arc::new(Counter::new()), Arc::new(Counter::new()));
        let hooks = |stage| {
            let (begins, tells) = (begun.clone(), told.clone());
            Hooks::new().work(move |cx, x| {
                if stage == waiting && x == 1 {
                    begins.add(1);
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                    tells.add(1);
                }
                Ok(x)
            })
        };
        let mut line = shape.line(hooks, |_, it| it, || ());
        line.with_task(stream::iter((0..100).map(Ok)), |mut task| {
            while begun.get() == 0 {
                task();
            }
        });
        told.reach(1);
    }
}

/// Behind its ten items the stream is pending, and all but the last are consumed at least.
fn the_account_of_a_dropped_task_counts_what_was_consumed(shape: Shape) {
    let taken = Arc::new(Counter::new());
    let takes = taken.clone();
    let mut line = shape.line(|_| Hooks::new(), |_, it| it, move || _ = takes.add(1));
    let items = stream::iter((0..10).map(Ok)).chain(stream::pending());
    let account = line.with_task(items, |mut task| {
        while taken.get() < 10 {
            task();
        }
    });
    assert!((9..=10).contains(&account.ok), "{account:?}");
    assert_eq!(account.ok + account.cancelled, 10);
}

fn a_leaked_task_is_ended_by_the_next(shape: Shape) {
    for stage in 0..shape.stages {
        let (mut line, gate, begun) = stuck(shape, stage);
        line.with_task(stream::iter((0..100).map(Ok)), |mut task| {
            while begun.get() < 2 {
                task();
            }
            std::mem::forget(task);
        });
        gate.open();
        for pool in &mut line.pools {
            assert_eq!(pool.run(2..5).unwrap(), [2, 3, 4]);
        }
        line.drive(2..5);
    }
}

/// Other tasks of the same thread get their turn, however large the window is.
fn one_poll_pulls_at_most_128_items(shape: Shape) {
    for window in [129, 1_000, usize::MAX] {
        let pulls = Arc::new(AtomicU64::new(0));
        let (counts, resets) = (pulls.clone(), pulls);
        let mut line = shape.line(|_| Hooks::new(), |_, it| it.window(window), || ());
        line.poll = Arc::new(move || resets.store(0, SeqCst));
        let ran = line.drive((0..2_000).inspect(move |_| {
            let pulled = counts.fetch_add(1, SeqCst) + 1;
            assert!(pulled <= 128, "{pulled} pulls in one poll");
        }));
        assert_eq!((ran.ok.len(), ran.error.is_none()), (2_000, true), "{:?}", ran.error);
    }
}

/// The next item comes only once the result of the one before is there.
fn a_pending_input_delays_no_result(shape: Shape) {
    let taken = Arc::new(Counter::new());
    let (takes, waker) = (taken.clone(), Arc::new(std::sync::Mutex::new(None::<std::task::Waker>)));
    let wakes = waker.clone();
    let take = move || {
        takes.add(1);
        wakes.lock().unwrap().take().into_iter().for_each(std::task::Waker::wake);
    };
    let mut line = shape.line(|_| Hooks::new(), |_, it| it, take);
    let mut next = 0;
    let items = stream::poll_fn(move |cx| {
        *waker.lock().unwrap() = Some(cx.waker().clone());
        if taken.get() < next {
            return Poll::Pending;
        }
        next += 1;
        Poll::Ready((next <= 10).then_some(Ok(next - 1)))
    });
    assert_eq!(line.drive_stream(items).ok, (0..10).collect::<Vec<_>>());
}

fn a_cancel_of_any_stage_wakes_the_task(shape: Shape) {
    let (mut line, tokens) = shape.with_tokens();
    for token in tokens {
        let ran = line.drive_stream(stream::iter([Ok(7)]).chain(acting(move || token.cancel())));
        assert!(ran.error.unwrap().is_cancelled());
    }
}

fn a_drain_of_any_stage_ends_a_pending_input(shape: Shape) {
    let (mut line, tokens) = shape.with_tokens();
    for token in tokens {
        let ran = line.drive_stream(stream::iter([Ok(7)]).chain(acting(move || token.drain())));
        assert_eq!((ran.ok, ran.error.is_none()), (vec![7], true));
    }
}

/// The third item is larger than expected: it is pulled, and has no room before the hook returns.
fn a_drain_behind_a_heavy_item_blocks_no_task(shape: Shape) {
    let (gate, token) = (Arc::new(Gate::new()), CancelToken::new());
    let (pulled, taken) = (Arc::new(Counter::new()), Arc::new(Counter::new()));
    let hooks = |_| {
        let passes = gate.clone();
        Hooks::new().work(move |_, x| {
            if x > 0 {
                passes.pass();
            }
            Ok(x)
        })
    };
    let bounded = |_, it: Setup| {
        it.window_memory(9_u64, |&x| if x == 2 { 9_u64 } else { 1 }, |_| 1_u64)
            .cancel_token(token.clone())
    };
    let (takes, pulls) = (taken.clone(), pulled.clone());
    let mut line = shape.line(hooks, bounded, move || _ = takes.add(1));
    let items = (0..9).inspect(move |_| _ = pulls.add(1));
    line.with_task(stream::iter(items.map(Ok)), |mut task| {
        // The first result may come after the third item: of outputs, no later poll returns it.
        while pulled.get() < 3 || taken.get() < 1 {
            task();
        }
        token.drain();
        assert!(task(), "it still does");
        token.cancel();
        task();
    });
    gate.open();
    assert_eq!(line.drive(5..8).ok, [5, 6, 7]);
}

/// A stream that yields nothing. While its task waits, another thread calls `act`.
fn acting<T: Send + 'static>(
    act: impl Fn() + Clone + Send + 'static,
) -> impl stream::Stream<Item = T> + Send {
    let mut act = Some(act);
    stream::poll_fn(move |_| {
        act.take().into_iter().for_each(|act| _ = thread::spawn(act));
        Poll::Pending
    })
}
