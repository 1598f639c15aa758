//! What observers are told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{Event, OrderedRunner};

use crate::hooks::Hooks;
use crate::support::no_hang;

/// A runner with a narrow window, which its first item fills for a while; and how often it was told that it is full.
fn narrow() -> (OrderedRunner<Hooks>, Arc<AtomicU64>) {
    let full = Arc::new(AtomicU64::new(0));
    let told = full.clone();
    let hooks = Hooks::new().work(|_, x| {
        if x == 0 {
            thread::sleep(Duration::from_millis(150));
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
        assert_eq!(runner.stream(0..9).count(), 9);
        assert!(full.load(SeqCst) > 0);
    });
}

#[test]
fn a_window_that_is_full_is_told_of_in_a_later_stage() {
    no_hang(|| {
        let mut first = OrderedRunner::new(Hooks::new(), 2).unwrap();
        let (mut second, full) = narrow();
        assert_eq!(first.then(&mut second).run(0..9).unwrap().len(), 9);
        assert!(full.load(SeqCst) > 0);
    });
}
