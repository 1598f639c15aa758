//! The events that observers receive.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gangline::OrderedRunner;
use gangline::event::Event;

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, map, no_hang};

/// A runner with a narrow window, which its first item fills for a while; and how often it was told that it is full.
fn narrow() -> (OrderedRunner<Hooks>, Arc<AtomicU64>) {
    let full = Arc::new(AtomicU64::new(0));
    let told = full.clone();
    let next = Gate::new();
    let hooks = Hooks::new().work(move |_, x| {
        match x {
            0 => {
                next.pass();
                // Waits of 100 ms and more are told. This one begins as soon as the second item is out.
                thread::sleep(Duration::from_millis(500));
            }
            _ => next.open(),
        }
        Ok(x)
    });
    let builder = OrderedRunner::builder(hooks).devices(2).window(2);
    let builder = builder.observer(move |_: Duration, event: &Event| {
        if let Event::WindowFull { .. } = event {
            told.fetch_add(1, SeqCst);
        }
    });
    (builder.build().unwrap(), full)
}

#[test]
fn a_window_that_is_full_is_told_of_in_a_run() {
    no_hang(|| {
        let (mut runner, full) = narrow();
        assert_eq!(runner.run(0..9).unwrap().len(), 9);
        assert!(full.load(SeqCst) > 0);
    });
}

#[test]
fn a_window_that_is_full_is_told_of_in_a_stream() {
    no_hang(|| {
        let (mut runner, full) = narrow();
        assert_eq!(runner.outputs(0..9).count(), 9);
        assert!(full.load(SeqCst) > 0);
    });
}

#[test]
fn a_window_that_is_full_is_told_of_in_a_later_stage() {
    no_hang(|| {
        let first = OrderedRunner::new(Hooks::new(), 2).unwrap();
        let (mut second, full) = narrow();
        assert_eq!(first.then(&mut second).run(0..9).unwrap().len(), 9);
        assert!(full.load(SeqCst) > 0);
    });
}

#[test]
fn an_item_begins_after_it_was_read_and_not_when_the_one_before_ended() {
    no_hang(|| {
        let began = Arc::new(Mutex::new(vec![]));
        let (told, worked) = (began.clone(), Arc::new(Counter::new()));
        let count = worked.clone();
        let hooks = Hooks::new().work(move |_, x| {
            count.add(1);
            Ok(x)
        });
        let mut runner = OrderedRunner::builder(hooks)
            .devices(1)
            .observer(move |at: Duration, event: &Event| {
                if let Event::ItemStarted { .. } = event {
                    told.lock().unwrap().push(at);
                }
            })
            .build()
            .unwrap();
        let read = RefCell::new(vec![]);
        let inputs = (0..5).inspect(|&x| {
            worked.reach(x);
            thread::sleep(Duration::from_millis(10 * x.min(1)));
            read.borrow_mut().push(Instant::now());
        });
        runner.run(inputs).unwrap();
        let (began, read) = (began.lock().unwrap(), read.borrow());
        assert_eq!(began.len(), 5);
        for (at, read_at) in began.iter().zip(&*read) {
            // The run had begun when the first was read.
            assert!(*at >= *read_at - read[0], "{began:?}");
        }
    });
}

#[test]
fn an_endless_input_has_no_number_of_items() {
    struct Hinted(usize, Option<usize>);
    impl Iterator for Hinted {
        type Item = u64;
        fn next(&mut self) -> Option<u64> {
            Some(1)
        }
        fn size_hint(&self) -> (usize, Option<usize>) {
            (self.0, self.1)
        }
    }
    let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1).unwrap();
    for (items, known) in [
        (Box::new(0..u64::MAX) as Box<dyn Iterator<Item = u64>>, None),
        (Box::new((0..u64::MAX).skip(1_000)), None),
        (Box::new(Hinted(0, Some(usize::MAX))), None),
        (Box::new(Hinted(usize::MAX, Some(usize::MAX))), None),
        (Box::new(Hinted(usize::MAX, None)), None),
        (Box::new(Hinted(2, Some(9))), None),
        (Box::new(0..100), Some(100)),
    ] {
        assert_eq!(pool.outputs(items).take(10).count(), 10);
        assert_eq!(pool.report().items, known);
    }
}
