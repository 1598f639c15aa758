use super::*;
use proptest::prelude::*;

#[test]
fn a_missing_head_holds_back_what_follows() {
    let mut reorder = Reorder::default();
    reorder.insert(1, 'b');
    reorder.insert(2, 'c');
    assert_eq!((reorder.pop(), reorder.held()), (None, 2));
    reorder.insert(0, 'a');
    let released: Vec<_> = std::iter::from_fn(|| reorder.pop()).collect();
    assert_eq!(released, [(0, 'a'), (1, 'b'), (2, 'c')]);
    assert_eq!((reorder.pop(), reorder.held()), (None, 0));
}

#[test]
#[should_panic(expected = "index 3 came twice")]
fn a_value_that_comes_twice_is_our_bug() {
    let mut reorder = Reorder::default();
    reorder.insert(3, ());
    reorder.insert(3, ());
}

#[test]
#[should_panic(expected = "a released index does not come again")]
fn a_value_that_was_released_does_not_come_again() {
    let mut reorder = Reorder::default();
    reorder.insert(0, ());
    reorder.pop();
    reorder.insert(0, ());
}

#[test]
fn draining_gives_what_is_held() {
    let mut reorder = Reorder::default();
    reorder.insert(4, 'e');
    reorder.insert(1, 'b');
    assert_eq!(reorder.drain().collect::<String>(), "be");
    assert_eq!(reorder.held(), 0);
}

#[test]
fn values_that_go_past_leave_the_others_in_their_turn() {
    let mut reorder = Reorder::default();
    reorder.insert(2, 'c');
    reorder.pass(2);
    assert_eq!((reorder.next(), reorder.pop()), (2, Some((2, 'c'))));
    reorder.pass(1);
    assert_eq!(reorder.next(), 4);
}

/// Generates arrival orders in which no value is further ahead than the window allows.
fn arrivals() -> impl Strategy<Value = (Vec<u64>, usize)> {
    (1usize..40, 0u64..200).prop_flat_map(|(window, count)| {
        proptest::collection::vec(0usize..window, count as usize).prop_map(move |picks| {
            let mut waiting: Vec<u64> = Vec::new();
            let mut input = 0..count;
            let mut order = Vec::new();
            let mut consumed = 0;
            for pick in picks {
                while input.start < count && input.start < consumed + window as u64 {
                    waiting.extend(input.next());
                }
                order.push(waiting.remove(pick % waiting.len()));
                while order.contains(&consumed) {
                    consumed += 1;
                }
            }
            (order, window)
        })
    })
}

proptest! {
    #[test]
    fn every_order_of_arrival_comes_out_in_order((order, window) in arrivals()) {
        let mut reorder = Reorder::default();
        let mut released = Vec::new();
        for &seq in &order {
            reorder.insert(seq, seq * 10);
            while let Some(value) = reorder.pop() {
                released.push(value);
            }
            prop_assert!(reorder.slots.len() <= window.next_power_of_two(), "the buffer outgrew the window");
            prop_assert_eq!(reorder.held(), reorder.slots.iter().flatten().count());
        }
        let expected: Vec<_> = (0..order.len() as u64).map(|seq| (seq, seq * 10)).collect();
        prop_assert_eq!(released, expected);
    }
}
