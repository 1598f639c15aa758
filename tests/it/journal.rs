//! Runs with a journal: what a later one leaves out, and which journals it refuses.

use std::sync::Arc;

use gangline::journal::{Difference, JournalError, KeyKind};
use gangline::order::RuntimeOrder;
use gangline::{
    AnyOrderRunner, Builder, CfgNode, Error, Journal, OnError, Order, OrderedRunner, Pipeline,
};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::journal_file::Place;
use crate::support::{Counter, Gate, no_hang};

both_orders! {
    what_is_done_is_left_out,
    what_failed_is_run_again,
    names_are_known_in_any_order_of_the_input,
    the_items_of_earlier_runs_keep_their_places,
    batches_are_made_of_what_is_not_left_out,
    the_next_run_of_a_handle_goes_on,
    a_journal_in_use_is_refused_until_that_run_is_over,
    an_input_that_fails_where_an_item_is_done_does_no_harm,
    items_that_fail_before_they_are_known_do_no_harm,
}

const KINDS: [KeyKind; 3] = [KeyKind::Position, KeyKind::HashedPosition, KeyKind::Name];

/// With the runner `hooks`, which skips errors, and items that are known like that.
pub fn builder(hooks: Hooks, order: Order, kind: KeyKind) -> Builder<Hooks, RuntimeOrder> {
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(OnError::Skip);
    match kind {
        KeyKind::HashedPosition => builder.hashed_by(|x| x.wrapping_mul(7919)),
        KeyKind::Name => builder.key(|x| format!("item {x}")),
        _ => builder,
    }
}

/// What a run with that journal consumes, in ascending order, and the account's ok, failed and skipped.
fn outputs(
    hooks: Hooks,
    order: Order,
    kind: KeyKind,
    journal: Journal,
    items: impl IntoIterator<Item = u64>,
) -> (Vec<u64>, [u64; 3]) {
    let mut pool = builder(hooks, order, kind).journal(journal).build().unwrap();
    let outputs = pool.run(items).unwrap();
    assert!(order == Order::Completion || kind == KeyKind::Name || outputs.is_sorted());
    let account = pool.account();
    assert_eq!((account.cancelled, account.unread), (0, Some(0)));
    (sorted(outputs), [account.ok, account.failed, account.already_done])
}

/// Fails at multiples of seven.
fn fails_at_sevens() -> Hooks {
    Hooks::new().work(|_, x| if x % 7 == 0 { Err("bad".into()) } else { Ok(x) })
}

#[track_caller]
fn refusal(builder: Builder<Hooks, RuntimeOrder>, items: std::ops::Range<u64>) -> JournalError {
    let pulled = Arc::new(Counter::new());
    let count = pulled.clone();
    let error = builder.build().unwrap().run(items.inspect(move |_| _ = count.add(1))).unwrap_err();
    assert_eq!(error.hook(), None);
    let Error::Journal { source, .. } = error else { panic!("{error:#}") };
    let is_late =
        matches!(source, JournalError::ItemChanged { .. } | JournalError::InputShorter { .. });
    assert!(is_late || pulled.get() == 0, "refused before anything is read");
    source
}

fn what_is_done_is_left_out(order: Order) {
    for kind in KINDS {
        let place = Place::new();
        let run = |items| outputs(Hooks::new(), order, kind, place.resume(), items);
        assert_eq!(run(0..20), ((0..20).collect(), [20, 0, 0]), "{kind:?}: there is none yet");
        assert_eq!(run(0..50), ((20..50).collect(), [30, 0, 20]), "the input has grown");
        let before = std::fs::read(place.path()).unwrap();
        assert_eq!(run(0..50), (vec![], [0, 0, 50]), "both hooks of the consumer run");
        assert_eq!(std::fs::read(place.path()).unwrap(), before);
        assert_eq!(place.counts(), (50, 0));
    }
}

fn what_failed_is_run_again(order: Order) {
    let sevens = || (0..50).step_by(7).collect::<Vec<u64>>();
    for kind in KINDS {
        let place = Place::new();
        let (first, account) = outputs(fails_at_sevens(), order, kind, place.resume(), 0..50);
        assert_eq!((first.len(), account), (42, [42, 8, 0]));
        assert_eq!(place.counts(), (42, 8));
        // Again, and what the journal does not know is left alone.
        let rerun = || Journal::at(place.path()).rerun_failed();
        let (again, account) = outputs(fails_at_sevens(), order, kind, rerun(), 0..60);
        assert_eq!((again, account), (vec![], [0, 8, 52]));
        let (again, account) = outputs(Hooks::new(), order, kind, rerun(), 0..60);
        assert_eq!((again, account), (sevens(), [8, 0, 52]));
        assert_eq!(place.counts(), (50, 0));
        let (rest, account) = outputs(Hooks::new(), order, kind, place.resume(), 0..60);
        assert_eq!((rest, account), ((50..60).collect(), [10, 0, 50]));
    }
    let place = Place::new();
    outputs(fails_at_sevens(), order, KeyKind::Position, place.resume(), 0..50);
    let (again, _) = outputs(Hooks::new(), order, KeyKind::Position, place.resume(), 0..50);
    assert_eq!(again, sevens(), "also without being asked for nothing else");
}

fn names_are_known_in_any_order_of_the_input(order: Order) {
    let place = Place::new();
    let run = |items: &[u64]| {
        outputs(Hooks::new(), order, KeyKind::Name, place.resume(), items.iter().copied())
    };
    assert_eq!(run(&[1, 2, 2, 3]), (vec![1, 2, 2, 3], [4, 0, 0]));
    assert_eq!(run(&[2, 9, 3, 2, 2, 1, 4]), (vec![2, 4, 9], [3, 0, 4]), "the third 2 is new");
    assert_eq!(run(&[3]), (vec![], [0, 0, 1]), "it may lose items");
    assert_eq!(place.counts(), (7, 0));
}

fn the_items_of_earlier_runs_keep_their_places(order: Order) {
    for kind in KINDS {
        let place = Place::new();
        let first = Hooks::new().work(|_, x| if x % 3 > 0 { Err("later".into()) } else { Ok(x) });
        outputs(first, order, kind, place.resume(), 0..30);
        let checked = Hooks::new()
            .work(|cx, x| {
                assert_eq!(cx.item(), Some(x));
                Ok(x)
            })
            .consume(|cx, x| {
                assert_eq!(cx.item(), Some(x));
                Ok(())
            });
        let (rest, account) = outputs(checked, order, kind, place.resume(), 0..40);
        assert!(rest.iter().all(|x| x % 3 > 0 || *x >= 30));
        assert_eq!(account, [30, 0, 10]);
    }
}

fn batches_are_made_of_what_is_not_left_out(order: Order) {
    use gangline::Batch;
    use std::time::Duration;

    for kind in KINDS {
        for batch in [Batch::of(4), Batch::up_to(4), Batch::of(4).within(Duration::from_millis(1))]
        {
            for sized in [false, true] {
                let place = Place::new();
                let first =
                    Hooks::new().work(|_, x| if x % 3 > 0 { Err("later".into()) } else { Ok(x) });
                outputs(first, order, kind, place.resume(), 0..90);
                let mut builder = builder(Hooks::new(), order, kind).journal(place.resume());
                builder = builder.batch(batch).window(8).retries(1).quarantine_after(2);
                if sized {
                    builder = builder.max_padded_size(100u64, |&x| 1 + x % 5).window_memory(
                        20u64,
                        |_| 3,
                        |_| 3,
                    );
                }
                let outputs = builder.build().unwrap().run(0..90).unwrap();
                let rest: Vec<u64> = (0..90).filter(|x| x % 3 > 0).collect();
                assert_eq!(sorted(outputs), rest);
            }
        }
    }
}

fn the_next_run_of_a_handle_goes_on(order: Order) {
    let place = Place::new();
    let hooks = Hooks::new().work(|_, x| if x == 30 { panic!("bad") } else { Ok(x) });
    // With a window of one nothing is read beyond the item that fails.
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).window(1);
    let mut pool = builder.journal(place.resume()).build().unwrap();
    assert_eq!(pool.run(0..10).unwrap().len(), 10);
    assert_eq!(pool.run(0..30).unwrap().len(), 20);
    assert!(pool.run(0..40).unwrap_err().is_panic());
    assert_eq!(pool.account().already_done, 30);
    pool.cancel_token().cancel();
    assert!(pool.run(0..40).unwrap_err().is_cancelled());
    pool.close().unwrap();
    assert!(pool.run(0..40).unwrap_err().is_closed());
    pool.activate().unwrap();
    assert_eq!(pool.run((0..30).chain(40..49)).unwrap().len(), 9, "by their places");
    // And so does that of another.
    let (rest, _) = outputs(Hooks::new(), order, KeyKind::Position, place.resume(), 0..45);
    assert_eq!(rest, (39..45).collect::<Vec<_>>());
}

fn a_journal_in_use_is_refused_until_that_run_is_over(order: Order) {
    let place = Place::new();
    let (begun, gate) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (begins, waits) = (begun.clone(), gate.clone());
    let slow = Hooks::new().consume(move |_, _| {
        begins.open();
        waits.pass();
        Ok(())
    });
    let mut first =
        builder(slow, order, KeyKind::Position).journal(place.resume()).build().unwrap();
    let other = || builder(Hooks::new(), order, KeyKind::Position).journal(place.resume());
    let mut second = other().build().unwrap();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| first.run(0..5).unwrap().len());
        begun.pass();
        let error = second.run(0..9).unwrap_err();
        assert!(error.to_string().contains("in use by another run"), "{error}");
        assert_eq!(second.account().unread, Some(9));
        gate.open();
        assert_eq!(first.join().unwrap(), 5);
    });
    assert_eq!(second.run(0..9).unwrap().len(), 4, "both handles are still there");
    assert_eq!(first.run(0..12).unwrap().len(), 3);
}

/// A commit about an item that is done already would be damage.
fn an_input_that_fails_where_an_item_is_done_does_no_harm(order: Order) {
    for kind in KINDS {
        let place = Place::new();
        outputs(Hooks::new(), order, kind, place.resume(), 0..10);
        let input = || (0..12).map(|x| if x % 4 == 3 { Err("unreadable") } else { Ok(x) });
        for journal in [place.resume(), Journal::at(place.path()).rerun_failed()] {
            let mut pool = builder(Hooks::new(), order, kind).journal(journal).build().unwrap();
            pool.try_run(input()).unwrap();
            assert_eq!(pool.account().failed, 3, "told all the same");
            assert!(pool.failures().iter().all(Error::is_input));
        }
        assert_eq!(place.counts().0, 11);
        let (rest, _) = outputs(Hooks::new(), order, kind, place.resume(), 0..12);
        assert_eq!(rest, [11], "{kind:?}");
    }
}

fn items_that_fail_before_they_are_known_do_no_harm(order: Order) {
    use gangline::Batch;

    for kind in [KeyKind::HashedPosition, KeyKind::Name] {
        let place = Place::new();
        let odd = || {
            let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
            let builder = builder.on_error(OnError::Skip).journal(place.resume());
            let builder = builder.batch(Batch::up_to(3)).max_batch_cost(100u64, |&x| x);
            match kind {
                KeyKind::Name => builder.key(|x| {
                    assert!(x % 5 != 2, "no name");
                    x % 5
                }),
                _ => builder.hashed_by(|x| {
                    assert!(x % 5 != 2, "no hash");
                    *x
                }),
            }
        };
        let input = || (0..20).map(|x| if x % 5 == 1 { Err("no input") } else { Ok(x) });
        let with_large = || input().map(|x| x.map(|x| if x == 8 { 108 } else { x }));
        let mut pool = odd().build().unwrap();
        assert_eq!(pool.try_run(with_large()).unwrap().len(), 11);
        assert_eq!((pool.account().ok, pool.account().failed), (11, 9));
        assert_eq!(place.counts(), (11, 1), "{kind:?}: what is too large is known");
        let mut pool = odd().build().unwrap();
        let rest = pool.try_run(with_large()).unwrap();
        assert_eq!((rest.len(), pool.account().failed, pool.account().already_done), (0, 9, 11));
    }
}

#[test]
fn a_new_journal_is_not_begun_over_another() {
    no_hang(|| {
        let place = Place::new();
        let new = || {
            let journal = Journal::at(place.path());
            builder(Hooks::new(), Order::Input, KeyKind::Position).journal(journal)
        };
        assert_eq!(new().build().unwrap().run(0..5).unwrap().len(), 5);
        let error = refusal(new(), 0..9);
        assert!(matches!(error, JournalError::Exists { .. }), "{error}");
        assert!(error.to_string().contains("resume"), "{error}");
        assert_eq!(place.counts(), (5, 0));
    });
}

#[test]
fn a_journal_of_other_work_is_refused_in_words() {
    no_hang(|| {
        let place = Place::new();
        let with = |journal: Journal, rate: f64, kind| {
            let cfg = CfgNode::new().with("model.lr", rate).unwrap();
            builder(Hooks::new(), Order::Input, kind).cfg(cfg).journal(journal)
        };
        let one = || place.resume().runner("captions", "1.2.0");
        with(one(), 0.1, KeyKind::Position).build().unwrap().run(0..5).unwrap();
        let said = |journal, rate, kind| {
            let error = refusal(with(journal, rate, kind), 0..9);
            let JournalError::Differs { differences, .. } = &error else { panic!("{error}") };
            assert_eq!(differences.len(), 1, "{error}");
            (differences[0].clone(), error.to_string())
        };
        let (difference, text) = said(one(), 0.2, KeyKind::Position);
        assert!(matches!(difference, Difference::Cfg { path, .. } if path == "model.lr"));
        assert!(text.contains("is of another run: model.lr was 0.1 and is 0.2"), "{text}");
        let newer = place.resume().runner("captions", "1.3.0");
        let (difference, text) = said(newer, 0.1, KeyKind::Position);
        assert!(matches!(difference, Difference::RunnerVersion { .. }));
        assert!(text.contains("1.2.0") && text.contains("1.3.0"), "{text}");
        for kind in [KeyKind::Name, KeyKind::HashedPosition] {
            let (difference, text) = said(one(), 0.1, kind);
            assert!(matches!(difference, Difference::Keys { is, .. } if is == kind));
            assert!(text.contains("position"), "{text}");
        }
        let ignoring = one().ignore_cfg("model.lr");
        let mut pool = with(ignoring, 0.3, KeyKind::Position).build().unwrap();
        assert_eq!(pool.run(0..9).unwrap().len(), 4);
    });
}

#[test]
fn an_item_that_changed_is_refused() {
    no_hang(|| {
        for order in [Order::Input, Order::Completion] {
            let place = Place::new();
            let hashed =
                |journal| builder(Hooks::new(), order, KeyKind::HashedPosition).journal(journal);
            let one_by_one = place.resume().commit_items(1);
            hashed(one_by_one).build().unwrap().run(0..10).unwrap();
            let mut pool = hashed(place.resume()).build().unwrap();
            let changed = (0..20).map(|x| if x == 4 { 1_000 } else { x });
            let error = pool.run(changed).unwrap_err();
            assert!(error.to_string().starts_with("item 4 is not what it was"), "{error}");
            let account = pool.account();
            assert_eq!((account.ok, account.failed), (0, 1));
            assert_eq!(pool.run(0..10).unwrap().len(), 0, "nothing came of it");
        }
    });
}

/// Only a hash or a name tells items apart.
#[test]
fn with_positions_another_order_goes_unnoticed() {
    no_hang(|| {
        let place = Place::new();
        let run = |items: Vec<u64>| {
            outputs(Hooks::new(), Order::Input, KeyKind::Position, place.resume(), items)
        };
        assert_eq!(run((0..10).collect()).1, [10, 0, 0]);
        let turned = (2..12).rev().chain([0, 1]).collect();
        assert_eq!(run(turned), (vec![0, 1], [2, 0, 10]), "10 and 11 are taken for done");
    });
}

#[test]
fn an_input_that_became_shorter_is_refused() {
    no_hang(|| {
        for kind in [KeyKind::Position, KeyKind::HashedPosition] {
            let place = Place::new();
            let resumed = || builder(Hooks::new(), Order::Input, kind).journal(place.resume());
            resumed().build().unwrap().run(0..10).unwrap();
            let error = refusal(resumed(), 0..9);
            assert!(
                matches!(error, JournalError::InputShorter { items: 9, recorded: 9, .. }),
                "{error}"
            );
            assert!(error.to_string().contains("the input has 9 items"), "{error}");
            assert_eq!(resumed().build().unwrap().run(0..10).unwrap().len(), 0);
        }
    });
}

#[test]
fn streams_and_later_stages_have_no_journal() {
    no_hang(|| {
        let place = Place::new();
        let with =
            || builder(Hooks::new(), Order::Input, KeyKind::Position).journal(place.resume());
        let plain = || OrderedRunner::new(Hooks::new(), 1).unwrap();
        let is_refused = |error: Error| {
            assert!(matches!(error, Error::JournalUnsupported { .. }), "{error}");
            assert!(error.to_string().contains("not with `outputs`; in a pipeline, give it to"));
        };
        let mut one = with().build().unwrap();
        is_refused(one.outputs(0..5).next().unwrap().unwrap_err());
        assert_eq!(one.outputs(0..5).count(), 1, "that is its last item");
        let (mut a, mut b) = (plain(), plain());
        is_refused(Pipeline::new(&mut a).then(&mut one).run(0..5).unwrap_err());
        is_refused(Pipeline::new(&mut a).then(&mut one).then(&mut b).run(0..5).unwrap_err());
        assert!(!place.path().exists());
        assert_eq!(one.run(0..5).unwrap().len(), 5, "it is as good as before");
        assert_eq!(a.then(&mut b).run(0..5).unwrap().len(), 5);
    });
}
