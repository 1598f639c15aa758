//! Producers that are made in the first run.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use gangline::event::Event;
use gangline::{Error, OrderedRunner, map};

/// Much longer than any wait that ends, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_producer_works_as_soon_as_it_is_ready() {
    let (worked, has_worked) = channel();
    let has_worked = Mutex::new(has_worked);
    let runner = map(
        move |cx| {
            if cx.producer() == 1 {
                has_worked.lock().unwrap().recv_timeout(PATIENCE)?;
            }
            Ok(cx.producer())
        },
        move |_, producer, x: u64| {
            worked.send(())?;
            Ok((*producer, x))
        },
    );
    let mut pool = OrderedRunner::builder(runner).devices(2).init_in_run().build().unwrap();
    let outputs = pool.run(0..50).unwrap();
    assert_eq!(outputs[0], (0, 0), "the other waits for it");
    assert!(outputs.iter().map(|(_, x)| *x).eq(0..50));
    assert_eq!(pool.run([7]).unwrap()[0].1, 7);
}

#[test]
fn a_service_answers_while_a_producer_is_made() {
    let (answered, has_answered) = channel();
    let has_answered = Mutex::new(has_answered);
    let runner = map(
        move |cx| match cx.producer() {
            0 => Ok(()),
            _ => Ok(has_answered.lock().unwrap().recv_timeout(PATIENCE)?),
        },
        |_, (), x: u64| Ok(x + 1),
    );
    let pool = OrderedRunner::builder(runner).devices(2).init_in_run().build().unwrap();
    let service = pool.into_service();
    assert_eq!(service.call(1).unwrap(), 2);
    answered.send(()).unwrap();
    service.close().unwrap();
}

#[test]
fn a_producer_that_cannot_be_made_is_lost() {
    let runner = map(
        |cx| if cx.producer() == 0 { Err("no such GPU".into()) } else { Ok(()) },
        |_, (), x: u64| Ok(x),
    );
    let (lost, is_lost) = channel();
    let observer = move |_: Duration, event: &Event| {
        if matches!(event, Event::ProducerQuarantined { .. }) {
            // At the start of a later run, nothing waits for it.
            _ = lost.send(());
        }
    };
    let builder = OrderedRunner::builder(runner).devices(3).init_in_run().observer(observer);
    // Otherwise the run may end before the first producer has tried.
    let mut items = 0..5;
    let input = std::iter::from_fn(|| {
        let next = items.next();
        if next.is_none() {
            is_lost.recv_timeout(PATIENCE).unwrap();
        }
        next
    });
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(input).unwrap(), [0, 1, 2, 3, 4]);
    let lost = pool.report().producers[0].quarantined.clone().unwrap();
    assert!(lost.contains("no such GPU"), "{lost}");
}

#[test]
fn a_run_ends_if_too_few_can_be_made() {
    let runner = || {
        let init = |cx: &gangline::ProducerContext<'_>| match cx.producer() {
            0 => Err("no such GPU".into()),
            _ => Ok(()),
        };
        map(init, |_, (), x: u64| Ok(x))
    };
    let alone = OrderedRunner::builder(runner()).devices(1).init_in_run().build();
    let error = alone.unwrap().run(0..5).unwrap_err();
    assert_eq!(error.hook(), Some(gangline::Hook::ProducerInit));
    let both = OrderedRunner::builder(runner()).devices(2).min_producers(2).init_in_run().build();
    let error = both.unwrap().run(0..).unwrap_err();
    assert!(matches!(error, Error::TooFewProducers { here: 1, least: 2, .. }), "{error:?}");
}
