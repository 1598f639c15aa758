//! Warnings in the log. A binary of its own: producers have threads, so the logger must be global.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use gangline::{Devices, OrderedRunner, map};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects warnings.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _: &Field, value: &dyn Debug) {
        write!(self.0, "{value:?}").unwrap();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }
    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_device_that_is_fallen_back_to_is_told_once_for_each_runner_that_is_built() {
    let log = Log::default();
    let said = || log.0.lock().unwrap().clone();
    tracing::subscriber::with_default(log.clone(), || {
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
