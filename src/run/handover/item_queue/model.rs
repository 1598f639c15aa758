use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::*;
use crate::base::Order;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::CarriedOver;
use crate::run::run_shape::RunShape;

/// All `items` start in the first producer's lane. `slow` of them last until all others are done.
/// `is_slow` decides by the producer, the number of items it has done before, and the item.
fn theft(producers: usize, items: u64, slow: u64, is_slow: fn(usize, u64, u64) -> bool) {
    let shape = RunShape {
        order: Order::Input,
        producers,
        window: 16,
        batching: None,
        kind: Default::default(),
    };
    let config = RunSettings::<u64, u64>::default().scheduling(&shape);
    let earlier = CarriedOver::nothing(producers);
    let hub = Arc::new(Handover::<u64, u64>::new(config, earlier));
    let mut first = lock(&hub.lanes[0].working);
    let (inbox, _) = first.as_mut().expect("no producer has taken it");
    (0..items).for_each(|seq| inbox.push((seq, seq)));
    hub.stocked.set(0);
    drop(first);
    let done = Arc::new((Mutex::new(0), Condvar::new()));
    let work = |lane| {
        let (hub, done) = (hub.clone(), done.clone());
        thread::spawn(move || {
            let mut item_queue = ItemQueue::new(&hub, lane);
            let mut next = item_queue.next();
            let mut nth = 0;
            while let Some(NextItem::Untracked(seq, item)) = next {
                let mut count = done.0.lock().unwrap();
                if is_slow(lane, nth, item) {
                    count = done.1.wait_while(count, |done| *done < items - slow).unwrap();
                }
                *count += 1;
                done.1.notify_all();
                drop(count);
                nth += 1;
                next = item_queue.deliver_and_next(seq, Ok(item));
            }
        })
    };
    let threads: Vec<_> = (0..producers).map(work).collect();
    let count = done.0.lock().unwrap();
    drop(done.1.wait_while(count, |done| *done < items).unwrap());
    hub.abort();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// The thief's first item is slow, and its neighbours looked for work while it moved the others. It has
/// to notify them, or they sleep while items wait.
#[test]
fn a_thief_that_turns_out_slow_is_relieved_of_its_loot() {
    let model = || theft(3, 4, 1, |lane, nth, _| lane == 1 && nth == 0);
    shuttle::check_random(model, 10_000);
    shuttle::check_pct(model, 5_000, 4);
}

/// Two items are slow, and one thief steals from another. A producer that leaves items behind has to wake
/// a sleeper, and so does one that takes several.
#[test]
fn what_thieves_leave_behind_finds_a_taker() {
    let model = || theft(4, 6, 2, |_, _, item| item < 2);
    shuttle::check_random(model, 3_000);
    shuttle::check_pct(model, 10_000, 3);
}
