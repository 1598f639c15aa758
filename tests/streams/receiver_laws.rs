//! Laws of the ways to drive a run that a consumer ends, and of those that give outputs to their caller.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_lite::{StreamExt, stream};
use gangline::{Error, Hook, Journal};

use crate::drivers::{Line, Setup, Shape, every_driver};
use crate::hooks::Hooks;
use crate::support::{Counter, Gate};

every_driver!(
    consumers:
    a_consumer_that_cannot_begin_is_the_error,
    a_consumer_that_stops_ends_the_run,
    nothing_is_pulled_before_the_consumer_is_ready,
    what_is_read_comes_through_while_the_source_pauses,
    a_run_timeout_abandons_the_consumer,
    a_journal_resumes_a_run,
);

every_driver!(
    outputs:
    no_consumer_is_asked,
    a_journal_is_refused,
);

/// The hooks do not begin, so nothing is pulled.
fn a_consumer_that_cannot_begin_is_the_error(shape: Shape) {
    let pulls = Arc::new(Counter::new());
    let pulled = pulls.clone();
    let hooks = |_| Hooks::new().consumer_init(|_| Err("no".into()));
    let ran = shape.line(hooks, |_, it| it, || ()).drive((0..9).inspect(move |_| _ = pulls.add(1)));
    assert_eq!(ran.error.unwrap().hook(), Some(Hook::ConsumerInit));
    assert_eq!((pulled.get(), ran.account.unread), (0, Some(9)));
}

/// Of a task, the input is pending when the consumer stops.
fn a_consumer_that_stops_ends_the_run(shape: Shape) {
    let stops = |_| {
        Hooks::new().consume(|cx, _| {
            cx.stop();
            Ok(())
        })
    };
    let mut line = shape.line(stops, |_, it| it, || ());
    let ran = match shape.driver.is_task() {
        true => line.drive_stream(stream::iter([Ok(7)]).chain(stream::pending())),
        false => line.drive(7..),
    };
    assert_eq!((ran.ok, ran.error.is_none()), (vec![7], true));
}

fn nothing_is_pulled_before_the_consumer_is_ready(shape: Shape) {
    let ready = Arc::new(Counter::new());
    let hooks = |_| {
        let ready = ready.clone();
        Hooks::new().consumer_init(move |_| {
            (0..100).for_each(|_| thread::yield_now());
            ready.add(1);
            Ok(())
        })
    };
    let seen = ready.clone();
    let items = (0..10).inspect(move |_| assert_eq!(seen.get(), 1, "it was pulled too early"));
    assert_eq!(shape.line(hooks, |_, it| it, || ()).drive(items).ok.len(), 10);
}

/// Each item is read only when those before it were consumed.
fn what_is_read_comes_through_while_the_source_pauses(shape: Shape) {
    let consumed = Arc::new(Counter::new());
    let counts = consumed.clone();
    let mut line = shape.line(|_| Hooks::new(), |_, it| it.devices(2), move || _ = counts.add(1));
    let ran = line.drive((0..100).inspect(move |&x| consumed.reach(x)));
    assert_eq!(ran.ok.len(), 100);
}

fn a_run_timeout_abandons_the_consumer(shape: Shape) {
    let gate = Arc::new(Gate::new());
    let passed = gate.clone();
    let limited = |stage, it: Setup| match stage + 1 == shape.stages {
        true => it.run_timeout(Duration::from_millis(50)),
        false => it,
    };
    let mut line = shape.line(|_| Hooks::new(), limited, move || passed.pass());
    let error = line.drive(0..9).error.unwrap();
    assert!(matches!(error, Error::RunTimedOut { .. }), "{error:?}");
    gate.open();
}

/// A line of which the first stage has a journal at this path.
fn with_journal(shape: Shape, path: &Path) -> Line {
    let recorded = |stage, it: Setup| match stage {
        0 => it.journal(Journal::at(path).resume()),
        _ => it,
    };
    shape.line(|_| Hooks::new(), recorded, || ())
}

fn a_journal_resumes_a_run(shape: Shape) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    for (items, new, already_done) in [(5, vec![0, 1, 2, 3, 4], 0), (7, vec![5, 6], 5)] {
        let ran = with_journal(shape, &path).drive(0..items);
        assert_eq!((ran.ok, ran.account.already_done), (new, already_done));
    }
}

/// Outputs are not consumed once the caller has them: it may drop them unused.
fn a_journal_is_refused(shape: Shape) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal");
    let ran = with_journal(shape, &path).drive(0..5);
    let error = ran.error.unwrap();
    assert!(matches!(error, Error::JournalUnsupported { .. }), "{error}");
    assert_eq!((ran.ok.len(), ran.failed.len(), ran.account.unread), (0, 1, Some(5)));
    assert!(!path.exists());
}

fn no_consumer_is_asked(shape: Shape) {
    let silent = |_| {
        Hooks::new()
            .consumer_init(|_| panic!("no consumer"))
            .consume(|_, _| panic!("no consumer"))
            .consumer_end(|_| panic!("no consumer"))
    };
    assert_eq!(shape.line(silent, |_, it| it, || ()).drive(0..50).ok.len(), 50);
}
