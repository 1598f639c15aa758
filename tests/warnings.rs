//! Warnings in the log. A binary of its own: producers have threads, so the logger must be global.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, LazyLock, Mutex};

use gangline::{Devices, OnError, OrderedRunner, map};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// Collects warnings.
#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        write!(self.0, "{value:?} ").unwrap();
    }
}

impl<S: Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() <= Level::INFO {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().unwrap().push(text.0);
        }
    }
}

/// The log of all tests of this process.
fn global() -> Log {
    static LOG: LazyLock<Log> = LazyLock::new(|| {
        let log = Log::default();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        tracing::subscriber::set_global_default(subscriber).unwrap();
        log
    });
    LOG.clone()
}

impl Log {
    fn with(&self, words: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.contains(words)).cloned().collect()
    }
}

#[test]
fn failed_and_retried_items_are_told_with_their_keys_and_errors() {
    let log = global();
    let work = map(
        |_| Ok(()),
        |_, (), x: u64| {
            assert_ne!(x, 4, "tile 4 is torn");
            if x == 7 { Err("tile 7 is empty".into()) } else { Ok(x) }
        },
    );
    let mut runner = OrderedRunner::builder(work)
        .devices(1)
        .retries(1)
        .on_error(OnError::Skip)
        .key(|x| format!("tile-{x}.tif"))
        .build()
        .unwrap();
    runner.run(0..10).unwrap();
    for tile in [4, 7] {
        let lines = log.with(&format!("tile-{tile}.tif"));
        let count = |words: &str| lines.iter().filter(|line| line.contains(words)).count();
        assert_eq!((count("an item is retried"), count("an item failed")), (1, 1), "{lines:?}");
        assert_eq!(count(&format!("tile {tile} is ")), 2, "{lines:?}");
    }
    assert_eq!(log.with("rebuilt its state").len(), 2, "{log:?}");
}

#[test]
fn a_device_that_is_fallen_back_to_is_told_once_for_each_runner_that_is_built() {
    let log = Log::default();
    let said = || log.0.lock().unwrap().clone();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(log.clone()), || {
        let devices: Devices = "cuda:60000|cpu,cuda:60000|cpu".parse().unwrap();
        assert!(said().is_empty(), "nobody uses it yet");
        let runner = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let mut runner = OrderedRunner::builder(runner).devices(devices).build().unwrap();
        runner.run(0..10).unwrap();
        runner.run(0..10).unwrap();
    });
    let [line] = &said()[..] else { panic!("{:?}", said()) };
    assert!(line.contains("\"cuda:60000|cpu\" came to cpu, since cuda:60000 "), "{line}");
}
