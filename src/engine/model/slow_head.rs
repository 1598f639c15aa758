//! The default window behind a slow item.

use std::sync::Arc;

use gangline_scheduler::window::Window;
use shuttle::sync::atomic::AtomicU64;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use super::{check, collect, feed, hub};
use crate::base::Order;
use crate::run::handover::item_queue::{ItemQueue, NextItem};

const PRODUCERS: usize = 2;

/// The number of finished items, without the first.
#[derive(Default)]
struct Done(Mutex<u64>, Condvar);

impl Done {
    fn add(&self) {
        *self.0.lock().unwrap() += 1;
        self.1.notify_all();
    }

    fn reach(&self, count: u64) {
        let mut done = self.0.lock().unwrap();
        while *done < count {
            done = self.1.wait(done).unwrap();
        }
    }
}

/// Keeps the first item at work until more others are done than fit into the first window. If the collector misses that
/// the window is full, or that results are behind a full ring, all threads wait for ever.
#[test]
fn a_slow_head_makes_the_window_grow() {
    check(|| {
        let window = Window::new(None, PRODUCERS, None);
        let (least, items) = (window.size() as u64, window.size() as u64 + 3);
        let hub = Arc::new(hub(PRODUCERS, window.size(), None));
        let done = Arc::new(Done::default());
        let produce = |lane| {
            let (hub, done) = (hub.clone(), done.clone());
            thread::spawn(move || {
                let mut item_queue = ItemQueue::new(&hub, lane);
                let mut next = item_queue.next();
                while let Some(NextItem::Untracked(seq, item)) = next {
                    match seq {
                        0 => done.reach(least + 1),
                        _ => done.add(),
                    }
                    next = item_queue.deliver_and_next(seq, Ok(item * 10));
                }
            })
        };
        let threads: Vec<_> = (0..PRODUCERS).map(produce).collect();
        let given = Arc::new(AtomicU64::new(0));
        let consumer = {
            let (hub, given) = (hub.clone(), given.clone());
            thread::spawn(move || collect(&hub, Order::Input, window, &given, u64::MAX))
        };
        assert_eq!(feed(&hub, items, &given), items);
        assert_eq!(consumer.join().unwrap(), (0..items).collect::<Vec<_>>());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}
