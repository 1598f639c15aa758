//! Runners that hide the types of their states.

use std::rc::Rc;

use gangline::closures::BoxRunner;
use gangline::error::BuildError;
use gangline::sink::{self, Written};
use gangline::{
    Batch, CancelToken, Error, Journal, OnError, OrderedRunner, Result, UnorderedRunner,
    map_batches,
};

use crate::hooks::Hooks;
use crate::support::map;

/// What a user writes down.
struct Held {
    numbers: OrderedRunner<BoxRunner<u64, u64, Vec<u64>>>,
    file: OrderedRunner<BoxRunner<u64, u64, Written>>,
}

#[test]
fn pools_of_closures_fit_in_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let counted = map(|_| Ok(Rc::new(1)), |_, one: &mut Rc<u64>, x: u64| Ok(x + **one));
    let same = map(|_| Ok(()), |_, (), x: u64| Ok(x)).sink(sink::lines(&path));
    let journal = Journal::at(folder.path().join("journal"));
    let mut held = Held {
        numbers: OrderedRunner::new(BoxRunner::new(counted), 2).unwrap(),
        file: OrderedRunner::builder(BoxRunner::new(same))
            .devices(2)
            .journal(journal)
            .build()
            .unwrap(),
    };
    assert_eq!(held.numbers.run(0..3).unwrap(), [1, 2, 3]);
    assert_eq!(held.file.run(0..3).unwrap().outputs, 3);
    assert_eq!(std::fs::read_to_string(path).unwrap(), "0\n1\n2\n");
    std::thread::spawn(move || assert_eq!(held.numbers.run(0..1).unwrap(), [1])).join().unwrap();
}

#[test]
fn every_hook_gets_through() {
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::sync::{Arc, Mutex};

    let log = Arc::new(Mutex::new(Vec::new()));
    let said = |what: &'static str| {
        let log = log.clone();
        move || -> Result<()> {
            log.lock().unwrap().push(what);
            Ok(())
        }
    };
    let [init, end, begin, skipped, flush, finish] =
        ["init", "end", "begin", "skipped", "flush", "finish"].map(said);
    let count = AtomicU64::new(0);
    let hooks = Hooks::new()
        .init(move |_| init())
        .work(move |_, x| {
            count.fetch_add(1, SeqCst);
            if x == 1 { Err("bad".into()) } else { Ok(x) }
        })
        .end(move |_| end())
        .consumer_init(move |_| begin())
        .skipped(move |_| skipped())
        .flush(move |_| flush())
        .consumer_end(move |_| finish());
    let folder = tempfile::tempdir().unwrap();
    let mut pool = UnorderedRunner::builder(BoxRunner::new(hooks))
        .devices(1)
        .on_error(OnError::Skip)
        .journal(Journal::at(folder.path().join("journal")))
        .build()
        .unwrap();
    assert_eq!(pool.run(0..3).unwrap(), [0, 2]);
    pool.close().unwrap();
    assert_eq!(*log.lock().unwrap(), ["init", "begin", "skipped", "flush", "finish", "end"]);
}

#[test]
fn batches_get_through() {
    let sizes = map_batches(
        |_| Ok(()),
        |cx, (), xs: &mut Vec<u64>| Ok(xs.iter().map(|_| Ok(cx.items().len() as u64)).collect()),
    );
    let builder = OrderedRunner::builder(BoxRunner::new(sizes)).devices(1).batch(Batch::of(4));
    assert_eq!(builder.build().unwrap().run(0..6).unwrap(), [4, 4, 4, 4, 2, 2]);
    let single = BoxRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)));
    let error = OrderedRunner::builder(single).devices(1).batch(Batch::of(4)).build().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::SingleItems { .. })), "{error}");
}

#[test]
fn a_state_that_a_panic_spoilt_is_made_anew() {
    let flaky = map(
        |_| Ok(0u64),
        |_, seen: &mut u64, x: u64| {
            *seen += 1;
            assert_ne!(x, 1, "flaky");
            Ok(*seen)
        },
    );
    let builder = OrderedRunner::builder(BoxRunner::new(flaky)).devices(1);
    let mut pool =
        builder.on_error(OnError::Skip).cancel_token(CancelToken::new()).build().unwrap();
    assert_eq!(pool.run(0..4).unwrap(), [1, 1, 2]);
}
