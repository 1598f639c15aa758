//! Models of a pipeline of two stages, with the link between them.

use std::sync::Arc;
use std::task::Poll;

use gangline_scheduler::window::Window;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread::{self, JoinHandle};

use super::{check, feed};
use crate::base::Order;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::feed::Source;
use crate::engine::feeding::Feeding;
use crate::engine::line::Begun;
use crate::engine::link::{Earlier, StageLink};
use crate::engine::outputs_driver::{Caller, OutputsDriver, Yield};
use crate::error::Error;
use crate::observe::event::Destination;
use crate::observe::event_log::{Detail, EventLog};
use crate::run::Run;
use crate::run::failures::withdrawn;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::handover::item_queue::NextItem;
use crate::run::recording::Recording;
use crate::run::run_shape::{CarriedOver, InLine, RunShape};
use crate::runner::RunControl;

/// Starts the producers of one stage. The item `fails_at` fails.
pub(super) fn stage_producers(
    run: &Arc<Run<u64, u64>>,
    count: usize,
    fails_at: Option<u64>,
) -> Vec<JoinHandle<()>> {
    let produce = |lane| {
        let run = run.clone();
        thread::spawn(move || {
            let mut item_queue = ItemQueue::new(&run.handover, lane);
            let mut next = item_queue.next();
            while let Some(NextItem::Untracked(seq, item)) = next {
                let outcome = match fails_at == Some(item) {
                    _ if run.is_withdrawn(seq) => Some(Err(withdrawn())),
                    true => run.fail_untracked(seq, Error::Closed {}, lane, None).map(Err),
                    false => Some(Ok(item)),
                };
                next = match outcome {
                    Some(outcome) => item_queue.deliver_and_next(seq, outcome),
                    None => item_queue.next(),
                };
            }
        })
    };
    (0..count).map(produce).collect()
}

/// How a run through two stages ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    /// An item fails in this stage, at this index.
    Fails(usize, u64),
    StopsAfter(u64),
    Cancel,
    Finish,
}

/// Creates the runs of two stages, of two producers and one.
fn runs(order: Order, windows: [usize; 2]) -> (Arc<Run<u64, u64>>, Arc<Run<u64, u64>>) {
    let stage = |producers, window, upstream| {
        let (batching, kind) = (None, Default::default());
        let shape = RunShape { order, producers, window, batching, kind };
        let event_log = Arc::new(EventLog::new(producers, None, Detail::Run));
        Arc::new({
            let (earlier, recording) = (CarriedOver::nothing(producers), Recording::default());
            let in_line = InLine { upstream, ..InLine::default() };
            Run::<u64, u64>::new(shape, Arc::default(), earlier, in_line, event_log, recording)
        })
    };
    let first = stage(2, windows[0], None);
    let upstream: Arc<dyn RunControl> = first.clone();
    let second = stage(1, windows[1], Some(upstream));
    (first, second)
}

/// Runs the feeder, the first stage, the link, the second stage and its consumer.
fn run_stages(order: Order, windows: [usize; 2], items: u64, end: End) {
    let (first, second) = runs(order, windows);
    let fails = |stage| match end {
        End::Fails(at, item) if at == stage => Some(item),
        _ => None,
    };
    let mut threads = stage_producers(&first, 2, fails(0));
    threads.extend(stage_producers(&second, 1, fails(1)));
    let window = Window::fixed(windows[0]);
    let earlier = Earlier { run: first.clone(), order, window, stage: 0 };
    let relay = StageLink::new(earlier, second.clone());
    let relay = thread::spawn(move || relay.run());
    let given = Arc::new(AtomicU64::new(0));
    let consumer = {
        let (second, given) = (second.clone(), given.clone());
        thread::spawn(move || consume_stages(&second, order, windows, &given, end))
    };
    let ender = {
        let (first, second) = (first.clone(), second.clone());
        thread::spawn(move || match end {
            End::Cancel => {
                second.cancel();
                first.cancel();
            }
            End::Finish => first.drain(),
            _ => {}
        })
    };
    let pulled = feed(&first.handover, items, &given);
    let (mut consumed, is_failed) = consumer.join().unwrap();
    let relayed = relay.join().unwrap();
    ender.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    if order == Order::Completion {
        consumed.sort_unstable();
    }
    let count = consumed.len() as u64;
    assert!(count <= relayed.given.items && relayed.given.items <= pulled);
    assert_eq!(relayed.taken.ok, relayed.given.items);
    assert_eq!(is_failed, matches!(end, End::Fails(..)));
    if order == Order::Input {
        assert_eq!(consumed, (0..count).collect::<Vec<_>>());
    }
    match end {
        End::Complete => assert_eq!(count, items),
        End::Fails(_, item) if order == Order::Input => assert_eq!(count, item),
        End::StopsAfter(most) => assert_eq!(count, most),
        End::Finish => assert_eq!(count, pulled, "what was given out is consumed"),
        End::Fails(..) | End::Cancel => {}
    }
}

/// Returns what was consumed, and whether a failure ended it.
fn consume_stages(
    run: &Run<u64, u64>,
    order: Order,
    windows: [usize; 2],
    given: &AtomicU64,
    end: End,
) -> (Vec<u64>, bool) {
    let window = Window::fixed(windows[1]);
    let mut collector = Collector::new(&run.handover, order, window, now());
    let (mut consumed, mut total, mut is_failed) = (Vec::new(), None, false);
    while let Some((_, outcome)) = collector.next_result(&*run, &mut total) {
        let Ok(item) = outcome else {
            is_failed = true;
            break;
        };
        let out = given.load(Ordering::SeqCst) - consumed.len() as u64;
        assert!(out <= windows.iter().sum::<usize>() as u64, "{out} items are out");
        consumed.push(item);
        if end == End::StopsAfter(consumed.len() as u64) {
            run.stop();
        }
        collector.done(&run.handover);
    }
    run.abort();
    (consumed, is_failed)
}

/// One thread feeds the first stage and takes the results of the second.
fn stream_stages(order: Order, windows: [usize; 2], items: u64, end: End) {
    let (first, second) = runs(order, windows);
    let mut threads = stage_producers(&first, 2, None);
    threads.extend(stage_producers(&second, 1, None));
    let window = Window::fixed(windows[0]);
    let earlier = Earlier { run: first.clone(), order, window, stage: 0 };
    let relay = StageLink::new(earlier, second.clone());
    let relay = thread::spawn(move || relay.run());
    let source = Source::new(0..items, |items| items.next().map(Ok));
    let feeding = Feeding::here(source, &first);
    let begun: Begun<fn(u64) -> u64, fn(u64) -> u64> =
        Begun { first: first.clone(), last: second.clone(), links: vec![] };
    let last = (order, Window::fixed(windows[1]));
    let mut driver = OutputsDriver::new(begun, feeding, Destination::Outputs, last);
    let ender = thread::spawn(move || match end {
        End::Cancel => {
            second.cancel();
            first.cancel();
        }
        End::Finish => first.drain(),
        _ => {}
    });
    let (mut seen, mut is_cancelled) = (Vec::new(), false);
    while end != End::StopsAfter(seen.len() as u64) {
        match driver.step(Caller::Thread, |_| Poll::Ready(())) {
            Poll::Ready(Some(Yield::Output(item))) => seen.push(item),
            Poll::Ready(Some(Yield::Skipped(error))) => panic!("no item fails: {error}"),
            Poll::Ready(Some(Yield::Last(error))) => {
                is_cancelled = error.is_cancelled();
                break;
            }
            Poll::Ready(None) => break,
            Poll::Pending => unreachable!("a thread waits"),
        }
        let out = driver.account().cancelled;
        assert!(out <= windows.iter().sum::<usize>() as u64, "{out} items are out");
    }
    let (given, ..) = driver.leave();
    relay.join().unwrap();
    ender.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());

    if order == Order::Completion {
        seen.sort_unstable();
    }
    let count = seen.len() as u64;
    if order == Order::Input {
        assert_eq!(seen, (0..count).collect::<Vec<_>>());
    }
    match end {
        End::Complete => assert_eq!(count, items),
        End::StopsAfter(most) => assert_eq!(count, most),
        End::Finish => assert_eq!(count, given.items, "what was given out comes out"),
        End::Fails(..) | End::Cancel => assert!(is_cancelled || count == items),
    }
}

#[test]
fn outputs_of_two_stages() {
    check(|| stream_stages(Order::Input, [1, 2], 4, End::Complete));
    check(|| stream_stages(Order::Completion, [2, 1], 4, End::Complete));
}

#[test]
fn outputs_of_two_stages_that_end_early() {
    for end in [End::StopsAfter(1), End::Cancel, End::Finish] {
        check(move || stream_stages(Order::Input, [1, 2], 4, end));
    }
}

#[test]
fn two_stages() {
    check(|| run_stages(Order::Input, [2, 1], 4, End::Complete));
    check(|| run_stages(Order::Completion, [1, 2], 4, End::Complete));
}

#[test]
fn a_failure_in_one_of_two_stages_ends_both() {
    check(|| run_stages(Order::Input, [2, 2], 5, End::Fails(0, 2)));
    check(|| run_stages(Order::Input, [2, 2], 5, End::Fails(1, 2)));
    check(|| run_stages(Order::Completion, [2, 2], 5, End::Fails(1, 0)));
}

#[test]
fn two_stages_that_end_early() {
    for end in [End::StopsAfter(1), End::Cancel, End::Finish] {
        check(move || run_stages(Order::Input, [2, 2], 5, end));
    }
}
