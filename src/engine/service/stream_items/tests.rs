use proptest::prelude::*;

use super::*;

const AT_WORK: usize = 2;

fn stream(order: Order, window: usize, memory: Option<MemoryLimit>) -> StreamItems<u64> {
    StreamItems::new(StreamLimits { order, window, at_work: AT_WORK, memory })
}

/// Sends items that take nothing, as far as there is room.
fn send(stream: &mut StreamItems<u64>, items: usize) -> Range<u64> {
    stream.admit(std::iter::repeat_n(0, items))
}

fn answer(stream: &mut StreamItems<u64>, index: u64) {
    assert!(stream.answer(index, Ok(10 * index), None).is_none());
}

/// Takes the results that are ready. Returns their indices.
fn taken(stream: &mut StreamItems<u64>) -> Vec<u64> {
    std::iter::from_fn(|| match stream.take() {
        NextResult::Result(index, result) => {
            assert_eq!(result.unwrap(), 10 * index);
            Some(index)
        }
        _ => None,
    })
    .collect()
}

#[test]
fn results_are_taken_in_the_order_of_the_stream() {
    for (order, first) in [(Order::Input, vec![]), (Order::Completion, vec![2, 1])] {
        let mut stream = stream(order, 3, None);
        assert_eq!(send(&mut stream, 9), 0..3, "the window bounds what is open");
        [2, 1].iter().for_each(|&index| answer(&mut stream, index));
        assert_eq!(taken(&mut stream), first);
        answer(&mut stream, 0);
        let rest = match order {
            Order::Input => vec![0, 1, 2],
            Order::Completion => vec![0],
        };
        assert_eq!(taken(&mut stream), rest);
        assert_eq!((stream.open(), send(&mut stream, 9)), (0, 3..6));
    }
}

#[test]
fn a_sender_is_woken_for_half_of_the_window() {
    let mut stream = stream(Order::Input, 8, None);
    send(&mut stream, 8);
    let mut woken = vec![];
    (0..8).for_each(|index| answer(&mut stream, index));
    for taken in 1..=8 {
        stream.take();
        if stream.wakes_sender(Room::Next) {
            woken.push(taken);
        }
    }
    assert_eq!(woken, [4, 5, 6, 7, 8], "eight results were ready");
}

#[test]
fn a_sender_is_woken_before_the_producers_run_dry() {
    for window in 1..12 {
        let mut stream = stream(Order::Completion, window, None);
        send(&mut stream, window);
        for index in 0..window as u64 {
            answer(&mut stream, index);
            stream.take();
            let (room, unanswered) = (index as usize + 1, window - index as usize - 1);
            let expected = room >= unanswered || unanswered <= AT_WORK;
            assert_eq!(stream.wakes_sender(Room::Next), expected, "{window}, {room} free");
        }
    }
}

#[test]
fn an_item_larger_than_the_room_waits() {
    let memory = Some(MemoryLimit { bytes: 100, least: 2 });
    let mut stream = stream(Order::Input, 50, memory);
    assert_eq!(stream.room(Room::Next), 2, "an even part of the bound each");
    assert_eq!(stream.admit([10, 10, 10]), 0..2);
    assert!(stream.answer(0, Ok(0), Some(20)).is_none());
    assert_eq!(stream.room(Room::Next), 1, "20 + 50 + 20");
    assert_eq!((stream.room(Room::For(30)), stream.room(Room::For(31))), (1, 0));
    assert!(stream.answer(1, Ok(10), Some(20)).is_none());
    assert_eq!(stream.room(Room::Next), 3);
    assert_eq!(taken(&mut stream), [0, 1]);
    assert_eq!(stream.admit([99, 99, 99, 1]), 2..4, "two go whatever they take");
}

#[test]
fn the_end_of_the_input_ends_the_stream_behind_its_results() {
    for fails in [false, true] {
        let mut stream = stream(Order::Input, 4, None);
        send(&mut stream, 2);
        let error = fails.then_some(Error::Closed {});
        assert!(stream.end_input(error).is_none());
        assert!(stream.end_input(Some(Error::Cancelled {})).is_some(), "the first end counts");
        assert_eq!((stream.room(Room::Next), send(&mut stream, 1)), (0, 2..2));
        answer(&mut stream, 1);
        assert!(!stream.has_next());
        answer(&mut stream, 0);
        assert_eq!(taken(&mut stream), [0, 1]);
        assert!(stream.has_next() || fails, "it is over");
    }
}

#[test]
fn lost_items_end_the_stream_behind_the_results_that_are_ready_or_under_way() {
    let mut stream = stream(Order::Input, 9, None);
    send(&mut stream, 5);
    answer(&mut stream, 0);
    answer(&mut stream, 4);
    // The items 2 and 3 are lost. A producer has the result of item 1, and has not added it yet.
    assert!(stream.fail(Error::Closed {}, 2).is_none());
    assert!(stream.wakes_sender(Room::Next));
    assert!(matches!(stream.take(), NextResult::Result(0, Ok(0))));
    assert!(matches!(stream.take(), NextResult::Missing));
    answer(&mut stream, 1);
    assert!(matches!(stream.take(), NextResult::Result(1, Ok(10))));
    assert!(matches!(stream.take(), NextResult::Last(Error::Closed {})));
    assert!(matches!(stream.take(), NextResult::Over));
    assert_eq!(stream.abandon().results.len(), 1);
}

#[test]
fn a_stream_that_has_sent_and_lost_nothing_ends_without_an_error() {
    let mut stream = stream(Order::Completion, 9, None);
    send(&mut stream, 1);
    stream.end_input(None);
    assert!(stream.fail(Error::Closed {}, 0).is_some(), "the error is not needed");
    answer(&mut stream, 0);
    assert_eq!(taken(&mut stream), [0]);
    assert!(matches!(stream.take(), NextResult::Over));
}

#[test]
fn an_abandoned_stream_takes_no_more_results() {
    let mut stream = stream(Order::Input, 9, None);
    send(&mut stream, 3);
    answer(&mut stream, 0);
    answer(&mut stream, 2);
    assert_eq!(stream.abandon().results.len(), 2);
    assert!(stream.answer(1, Ok(10), None).is_some());
    assert!(stream.has_next() && stream.wakes_sender(Room::Next));
    assert!(matches!(stream.take(), NextResult::Over));
}

#[derive(Debug, Clone, Copy)]
enum Action {
    /// The sender looks for room, and sends items of this size.
    Send(usize, u64),
    /// A producer answers one of the items, with an output of this size.
    Answer(usize, u64),
    Take(usize),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => (1..9_usize, 0..9_u64).prop_map(|(items, bytes)| Action::Send(items, bytes)),
        3 => (any::<usize>(), 0..9_u64).prop_map(|(item, bytes)| Action::Answer(item, bytes)),
        2 => (1..4_usize).prop_map(Action::Take),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Input), Just(Order::Completion)]
}

proptest! {
    /// Whatever happens in whichever order: the window holds, each result is taken once and in order, and as long as no
    /// result is to come and none may be taken, a sender has room and is woken.
    #[test]
    fn a_stream_keeps_its_bounds_and_never_stands_still(
        order in order(),
        window in 1..12_usize,
        memory in prop::option::of((1..60_u64, 1..4_usize)),
        actions in prop::collection::vec(action(), 0..120),
    ) {
        let limit = memory.map(|(bytes, least)| MemoryLimit { bytes, least });
        let mut stream = stream(order, window, limit);
        let (mut unanswered, mut answered, mut results) = (vec![], vec![], vec![]);
        for action in actions {
            match action {
                Action::Send(items, bytes) => {
                    let room = stream.room(Room::For(bytes));
                    let sent = stream.admit(std::iter::repeat_n(bytes, items));
                    prop_assert!(room > 0 || sent.is_empty());
                    prop_assert!(room == 0 || !sent.is_empty(), "there was room");
                    unanswered.extend(sent);
                }
                Action::Answer(item, bytes) if !unanswered.is_empty() => {
                    let index = unanswered.swap_remove(item % unanswered.len());
                    prop_assert!(stream.answer(index, Ok(index), Some(bytes)).is_none());
                    answered.push(index);
                }
                Action::Answer(..) => {}
                Action::Take(most) => {
                    for _ in 0..most {
                        let NextResult::Result(index, result) = stream.take() else { break };
                        prop_assert_eq!(result.unwrap(), index);
                        results.push(index);
                    }
                }
            }
            let open = unanswered.len() + answered.len() - results.len();
            prop_assert_eq!(stream.open(), open);
            prop_assert!(open <= window);
            if unanswered.is_empty() && !stream.has_next() {
                prop_assert!(open == 0 && stream.room(Room::Next) > 0);
            }
            if unanswered.len() < AT_WORK && !stream.has_next() && stream.room(Room::Next) > 0 {
                prop_assert!(stream.wakes_sender(Room::Next), "producers run dry");
            }
        }
        match order {
            Order::Input => prop_assert!(results.iter().copied().eq(0..results.len() as u64)),
            Order::Completion => prop_assert_eq!(&results[..], &answered[..results.len()]),
        }
    }
}
