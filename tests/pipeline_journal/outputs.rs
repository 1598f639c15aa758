//! The outputs of a pipeline with a journal: flushed first, and each once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::journal::KeyKind;
use gangline::{Hook, Order, OrderedRunner, Pipeline, map, sink};

use crate::hooks::Hooks;
use crate::journal_file::Place;
use crate::rows::{Row, first, later, plain, shapes};
use crate::support::Counter;

/// A commit is due by number only.
const LONG: Duration = Duration::from_secs(600);

#[test]
fn the_last_consumer_is_flushed_before_each_commit_and_keeps_its_note() {
    let place = Place::new();
    let steps = Arc::new(Mutex::new(vec![]));
    let (works, flushes) = (steps.clone(), steps.clone());
    let last = Hooks::new()
        .consumer_init(|cx| {
            assert_eq!(cx.last_note(), None);
            Ok(())
        })
        .consume(move |cx, y| {
            works.lock().unwrap().push(format!("{y}"));
            cx.note(y.to_string())
        })
        .flush(move |_| {
            flushes.lock().unwrap().push("flush".to_owned());
            Ok(())
        });
    let silent =
        Hooks::new().consume(|_, _| panic!("not the last")).flush(|_| panic!("not the last"));
    let journal = place.resume().commit_items(2).commit_every(LONG);
    let mut a = first(silent, Order::Input, KeyKind::Position).journal(journal).build().unwrap();
    let mut b = later(last, Order::Input).build().unwrap();
    Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap();
    let steps = std::mem::take(&mut *steps.lock().unwrap());
    assert_eq!(steps, ["0", "1", "flush", "2", "3", "flush", "4", "flush"]);
    drop((a, b));
    let a = first(Hooks::new(), Order::Input, KeyKind::Position)
        .journal(place.resume())
        .build()
        .unwrap();
    let last = Hooks::new().consumer_init(|cx| {
        assert_eq!(cx.last_note(), Some(&b"4"[..]));
        Ok(())
    });
    let mut b = later(last, Order::Input).build().unwrap();
    a.then(&mut b).run(0..5).unwrap();
}

#[test]
fn nothing_is_committed_after_a_failed_flush() {
    for orders in shapes() {
        let (place, flushes) = (Place::new(), Arc::new(Counter::new()));
        let failing = |stage: usize| {
            let flushes = flushes.clone();
            let is_last = stage + 1 == orders.len();
            Hooks::new().flush(move |_| match is_last && flushes.add(1) == 3 {
                true => Err("no space".into()),
                false => Ok(()),
            })
        };
        let journal = place.resume().commit_items(10).commit_every(LONG);
        let row = Row { orders: &orders, kind: KeyKind::Name, hooks: &failing };
        let (result, _) = row.try_run(journal, 0..100);
        assert_eq!(result.unwrap_err().hook(), Some(Hook::ConsumerFlush));
        assert_eq!((place.counts(), flushes.get()), ((20, 0), 3), "{orders:?}");
        let row = Row { orders: &orders, kind: KeyKind::Name, hooks: &plain };
        assert_eq!(row.run(place.resume(), 0..100).1, [80, 0, 20]);
    }
}

/// Runs in parts, the second of which fails, write the file of one whole run.
#[test]
fn a_sink_on_the_last_stage_has_each_output_once() {
    let place = Place::new();
    let folder = place.path().parent().unwrap().to_owned();
    let run = |file: &str, journal: Option<gangline::Journal>, items: u64, fails: Option<u64>| {
        let double = map(
            |_| Ok(()),
            move |_, (), x: u64| if Some(x) == fails { Err("it broke".into()) } else { Ok(2 * x) },
        );
        let show = map(|_| Ok(()), |_, (), x: u64| Ok(format!("<{x}>")));
        let mut a = OrderedRunner::builder(double).devices(2);
        if let Some(journal) = journal {
            a = a.journal(journal);
        }
        let a = a.build().unwrap();
        let show = show.sink(sink::lines(folder.join(file)));
        let mut b = OrderedRunner::builder(show).devices(2).build().unwrap();
        a.then(&mut b).run(0..items)
    };
    run("out", Some(place.resume()), 100, None).unwrap();
    run("out", Some(place.resume()), 300, Some(201)).unwrap_err();
    run("out", Some(place.resume()), 300, None).unwrap();
    run("whole", None, 300, None).unwrap();
    let text = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    assert_eq!(text("out"), text("whole"));
}
