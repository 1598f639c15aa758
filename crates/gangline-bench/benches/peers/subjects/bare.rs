//! A lower bound: threads that hand over at most 64 items, without any other feature. It shows the least cost
//! of a separate feeder and consumer with so small a window.
//!
//! Items go to producers round robin, without coordination. A thread that has nothing to do sleeps, and is woken
//! for a whole block: an item waits until its block is full. A slow item stops all; there are no errors, no
//! cancellation, and the number of items is fixed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex};
use std::thread;

use crossbeam_utils::CachePadded;

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

const WINDOW: u64 = 64;
/// Consecutive items go to one producer in blocks of this size, and results and permits travel in blocks too. Half
/// and an eighth of the window are slower.
const BLOCK: u64 = WINDOW / 4;

pub struct Bare {
    pub producers: usize,
    pub kind: Kind,
}

impl Subject for Bare {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| Line::new(self.producers, items).sum(work))
    }
}

struct Line {
    items: u64,
    inlets: Vec<Ring>,
    outlets: Vec<Ring>,
    /// The number of consumed items.
    consumed: Count,
}

impl Line {
    fn new(producers: usize, items: u64) -> Self {
        let rings = || (0..producers).map(|_| Ring::new()).collect();
        Self { items, inlets: rings(), outlets: rings(), consumed: Count::default() }
    }

    fn sum(&self, work: Work) -> u64 {
        thread::scope(|scope| {
            for producer in 0..self.inlets.len() {
                scope.spawn(move || self.produce(producer, work));
            }
            let consumer = scope.spawn(|| self.consume());
            self.feed();
            consumer.join().expect("it only adds")
        })
    }

    fn feed(&self) {
        let mut consumed = 0;
        for item in 0..self.items {
            if item == consumed + WINDOW {
                consumed = self.consumed.past(consumed);
            }
            let (producer, nth) = self.place(item);
            self.inlets[producer].put(nth, item, self.announces(item));
        }
    }

    fn produce(&self, producer: usize, work: Work) {
        let (inlet, outlet) = (&self.inlets[producer], &self.outlets[producer]);
        let mut here = 0;
        for nth in (0..).take_while(|&nth| self.item(producer, nth) < self.items) {
            if nth == here {
                here = inlet.put.past(here);
            }
            let result = work.on(inlet.get(nth));
            outlet.put(nth, result, self.announces(self.item(producer, nth)));
        }
    }

    fn consume(&self) -> u64 {
        let mut here = vec![0; self.outlets.len()];
        let mut sum = 0_u64;
        for item in 0..self.items {
            let (producer, nth) = self.place(item);
            let outlet = &self.outlets[producer];
            if nth == here[producer] {
                here[producer] = outlet.put.past(nth);
            }
            sum = sum.wrapping_add(outlet.get(nth));
            if (item + 1) % BLOCK == 0 {
                self.consumed.reach(item + 1);
            }
        }
        sum
    }

    /// Whether an item is the last of its block.
    fn announces(&self, item: u64) -> Announce {
        let is_last = (item + 1).is_multiple_of(BLOCK) || item + 1 == self.items;
        if is_last { Announce::Block } else { Announce::Nothing }
    }

    /// The producer of an item, and the item's position there.
    fn place(&self, item: u64) -> (usize, u64) {
        let producers = self.inlets.len() as u64;
        let (block, place) = (item / BLOCK, item % BLOCK);
        ((block % producers) as usize, block / producers * BLOCK + place)
    }

    fn item(&self, producer: usize, nth: u64) -> u64 {
        let producers = self.inlets.len() as u64;
        (nth / BLOCK * producers + producer as u64) * BLOCK + nth % BLOCK
    }
}

enum Announce {
    Block,
    Nothing,
}

/// It has room for a whole window, so it is never full.
struct Ring {
    values: [AtomicU64; WINDOW as usize],
    put: Count,
}

impl Ring {
    fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; WINDOW as usize], put: Count::default() }
    }

    fn put(&self, nth: u64, value: u64, announce: Announce) {
        self.values[(nth % WINDOW) as usize].store(value, Ordering::Relaxed);
        match announce {
            Announce::Block => self.put.reach(nth + 1),
            Announce::Nothing => {}
        }
    }

    fn get(&self, nth: u64) -> u64 {
        self.values[(nth % WINDOW) as usize].load(Ordering::Relaxed)
    }
}

/// Written by one thread and awaited by another.
#[derive(Default)]
struct Count {
    count: CachePadded<AtomicU64>,
    is_awaited: CachePadded<AtomicBool>,
    sleeper: Mutex<()>,
    woken: Condvar,
}

impl Count {
    fn reach(&self, count: u64) {
        self.count.store(count, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.is_awaited.load(Ordering::Relaxed) {
            drop(self.sleeper.lock().expect("nothing panics under it"));
            self.woken.notify_one();
        }
    }

    /// Waits until the value exceeds this.
    fn past(&self, count: u64) -> u64 {
        let now = self.count.load(Ordering::Acquire);
        if now > count { now } else { self.sleep_until_past(count) }
    }

    fn sleep_until_past(&self, count: u64) -> u64 {
        let mut sleeper = self.sleeper.lock().expect("nothing panics under it");
        self.is_awaited.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        loop {
            let now = self.count.load(Ordering::Acquire);
            if now > count {
                self.is_awaited.store(false, Ordering::Relaxed);
                return now;
            }
            sleeper = self.woken.wait(sleeper).expect("nothing panics under it");
        }
    }
}
