//! Models of a stream in two halves: its sender, its receiver, the producers, the service's own thread and its end.

use super::*;
use crate::engine::service::streams::{ItemSender, StreamResults, StreamSettings, open};

const ITEMS: u64 = 4;

/// Opens a stream of the model.
fn open_stream(
    model: &Model,
    order: Order,
    window: usize,
) -> (ItemSender<u64, u64>, StreamResults<u64, u64>) {
    open(&model.calls, StreamSettings { order, window, memory: None })
}

/// Sends these items, all that there is room for at once. Returns the number of items that were sent.
fn feeder(sender: ItemSender<u64, u64>, items: Range<u64>) -> JoinHandle<u64> {
    thread::spawn(move || {
        let mut items = items.peekable();
        let mut sent = 0;
        while items.peek().is_some() {
            let chunk: Vec<_> = items.by_ref().take(sender.room()).collect();
            let count = chunk.len() as u64;
            if count == 0 || sender.send(chunk).is_err() {
                return sent;
            }
            sent += count;
        }
        sent
    })
}

/// Takes the results of items from `first` on, at most `most`. Returns the indices of those that were ok, and the error
/// that ended the stream. Each second look takes what is ready.
fn receiver(
    mut results: StreamResults<u64, u64>,
    first: u64,
    most: usize,
) -> JoinHandle<(Vec<u64>, Option<Answer>)> {
    thread::spawn(move || {
        let mut taken = vec![];
        while taken.len() < most {
            let Some(next) = results.next() else { return (taken, None) };
            let ready = if taken.len() % 2 == 0 { most - taken.len() - 1 } else { 0 };
            for (index, result) in [next].into_iter().chain(results.take_ready(ready)) {
                match Answer::of(first + index, result) {
                    Answer::Ok => taken.push(index),
                    end => {
                        assert!(results.next().is_none(), "it has ended");
                        return (taken, Some(end));
                    }
                }
            }
        }
        (taken, None)
    })
}

/// Every result is taken once, in the order of the stream, beside calls and other streams.
#[test]
fn each_result_is_taken_once() {
    for (order, window) in [(Order::Input, 1), (Order::Completion, 2), (Order::Input, 3)] {
        explore(TASK_SCHEDULES, move || {
            let model = start(1, None);
            let (sender, results) = open_stream(&model, order, window);
            let fed = feeder(sender, 10..10 + ITEMS);
            let taken = receiver(results, 10, usize::MAX);
            let caller = model.caller(0, None);
            assert_eq!(fed.join().unwrap(), ITEMS);
            let (mut indices, end) = taken.join().unwrap();
            if order == Order::Completion {
                indices.sort_unstable();
            }
            assert_eq!((indices, end), ((0..ITEMS).collect(), None));
            assert_eq!(caller.join().unwrap(), Answer::Ok);
            assert_eq!(counted(&model.calls.board.stream_account()), (ITEMS, 0, 0));
            model.end();
        });
    }
}

/// A receiver that is dropped wakes its sender, and each item that was sent is counted once.
#[test]
fn a_dropped_receiver_ends_its_sender() {
    for order in [Order::Input, Order::Completion] {
        explore(TASK_SCHEDULES, move || {
            let model = start(1, Some(Batch::up_to(2)));
            let (sender, results) = open_stream(&model, order, 2);
            let fed = feeder(sender, 10..99);
            let (taken, end) = receiver(results, 10, 2).join().unwrap();
            assert_eq!((taken.len(), end), (2, None));
            let sent = fed.join().unwrap();
            let board = model.calls.board.clone();
            let streamed = board.stream_account();
            // A producer may be about to count the last one.
            assert!(streamed.ok + streamed.cancelled <= sent && streamed.ok >= 2, "{streamed:?}");
            model.end();
            let streamed = board.stream_account();
            assert_eq!(streamed.ok + streamed.cancelled, sent, "{streamed:?}");
        });
    }
}

/// The end of a service ends both halves. After a drain the results of all items that were sent come first.
#[test]
fn the_end_of_a_service_ends_both_halves() {
    for is_drained in [false, true] {
        explore(TASK_SCHEDULES, move || {
            let model = start(1, None);
            let (sender, results) = open_stream(&model, Order::Input, 2);
            let fed = feeder(sender, 10..99);
            let taken = receiver(results, 10, usize::MAX);
            match is_drained {
                false => model.run.abort(),
                true => {
                    Interrupt::drain(&*model.run);
                    assert!(model.calls.board.wait_until_answered(Duration::MAX));
                }
            }
            let board = model.calls.board.clone();
            model.end();
            let (taken, end) = taken.join().unwrap();
            let (sent, streamed) = (fed.join().unwrap(), board.stream_account());
            assert!(taken.iter().copied().eq(0..taken.len() as u64), "{taken:?}");
            assert!(end == Some(Answer::Closed) || sent == 89, "{end:?}");
            assert_eq!(streamed.ok + streamed.cancelled, sent);
            assert!(!is_drained || taken.len() as u64 == sent, "{taken:?} of {sent}");
        });
    }
}

/// A sender that is dropped wakes the receiver that waits for its next item.
#[test]
fn the_end_of_the_input_ends_the_receiver() {
    check(|| {
        let model = start(1, None);
        let (sender, results) = open_stream(&model, Order::Completion, 4);
        let taken = receiver(results, 10, usize::MAX);
        let fed = feeder(sender, 10..11);
        assert_eq!(taken.join().unwrap(), (vec![0], None));
        assert_eq!(fed.join().unwrap(), 1);
        model.end();
    });
}
