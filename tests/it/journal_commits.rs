//! When a run commits to its journal, what it notes there, and how runs end that have one.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::error::MaxFailures;
use gangline::journal::{JournalError, KeyKind};
use gangline::{
    AnyOrderRunner, CancelToken, ConsumerContext, Error, Hook, Journal, OnError, Order, Result,
    Verdict,
};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::journal::builder;
use crate::journal_file::Place;
use crate::support::{Gate, no_hang};

both_orders! {
    it_is_flushed_before_each_commit_and_at_the_end,
    it_commits_while_the_source_is_blocked,
    nothing_is_committed_after_a_panic_of_the_consumer,
    a_flush_that_fails_fails_the_run,
    what_was_consumed_is_committed_however_a_run_ends,
    a_run_that_took_too_long_has_committed,
    an_input_that_fails_costs_nothing_that_was_consumed,
    failures_are_committed_where_there_are_too_many,
    a_run_that_is_told_to_end_misses_no_item,
    a_failure_is_not_hidden_by_an_input_that_ends_with_it,
    notes_count_if_their_hook_succeeds,
    a_note_of_a_hook_that_failed_is_dropped,
    a_run_without_items_keeps_its_notes,
    a_run_that_left_its_consumer_behind_is_accounted,
}

/// Commits at the end and not before.
fn at_the_end(place: &Place) -> Journal {
    place.resume().commit_every(Duration::MAX).commit_items(usize::MAX)
}

fn pool(hooks: Hooks, order: Order, journal: Journal) -> AnyOrderRunner<Hooks> {
    AnyOrderRunner::builder(hooks).order(order).devices(2).journal(journal).build().unwrap()
}

/// What is left to do of the first `count` items.
fn rest(place: &Place, count: u64) -> Vec<u64> {
    sorted(pool(Hooks::new(), Order::Input, place.resume()).run(0..count).unwrap())
}

/// What a hook calls, counted.
fn counting(
    count: &Arc<AtomicU64>,
) -> impl Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static {
    let count = count.clone();
    move |_| {
        count.fetch_add(1, SeqCst);
        Ok(())
    }
}

fn it_is_flushed_before_each_commit_and_at_the_end(order: Order) {
    let place = Place::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let logs = |what: &'static str| {
        let log = log.clone();
        move || log.lock().unwrap().push(what)
    };
    let (consumed, flushed, ended) = (logs("item"), logs("flush"), logs("end"));
    let hooks = Hooks::new()
        .consume(move |_, _| {
            consumed();
            Ok(())
        })
        .flush(move |cx| {
            assert_eq!(cx.item(), None);
            flushed();
            Ok(())
        })
        .consumer_end(move |_| {
            ended();
            Ok(())
        });
    let journal = place.resume().commit_items(3).commit_every(Duration::MAX);
    pool(hooks, order, journal).run(0..8).unwrap();
    let log = log.lock().unwrap();
    let group = ["item", "item", "item", "flush"];
    let expected = [&group[..], &group[..], &group[1..], &["end"][..]].concat();
    assert_eq!(*log, expected);
    assert_eq!(place.commits().len(), 3);
}

/// The source waits for the second flush, which finds the first commit in the file.
fn it_commits_while_the_source_is_blocked(order: Order) {
    let place = Place::new();
    let gates = Arc::new([Gate::new(), Gate::new()]);
    let path = place.path().to_owned();
    let opened = gates.clone();
    let flushes = AtomicU64::new(0);
    let hooks = Hooks::new().flush(move |_| {
        let committed = std::fs::read_to_string(&path)?.lines().count() as u64 - 1;
        let flush = flushes.fetch_add(1, SeqCst);
        assert_eq!(committed, flush, "each flush is followed by a commit");
        opened.get(flush as usize).into_iter().for_each(Gate::open);
        Ok(())
    });
    let journal = place.resume().commit_every(Duration::from_millis(1));
    let mut source = 0..3u64;
    let input = std::iter::from_fn(|| {
        let next = source.next();
        if let Some(gate) = next.and_then(|x| x.checked_sub(1)) {
            gates[gate as usize].pass();
        }
        next
    });
    // With a window of one, all that was read is consumed while the source is blocked.
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).window(1).journal(journal);
    builder.build().unwrap().run(input).unwrap();
    assert_eq!(place.commits().len(), 3);
}

fn nothing_is_committed_after_a_panic_of_the_consumer(order: Order) {
    for hook in [Hook::ConsumerWork, Hook::ConsumerSkipped] {
        for cancels in [false, true] {
            let (place, flushes) = (Place::new(), Arc::new(AtomicU64::new(0)));
            let token = CancelToken::new();
            let cancel = token.clone();
            let panics = Arc::new(move || {
                if cancels {
                    cancel.cancel();
                }
                panic!("its state is not to be trusted");
            });
            let also = panics.clone();
            let hooks = Hooks::new()
                .work(|_, x| if x == 7 { Err("bad".into()) } else { Ok(x) })
                .consume(
                    move |_, x| {
                        if x == 5 && hook == Hook::ConsumerWork { panics() } else { Ok(()) }
                    },
                )
                .skipped(move |_| if hook == Hook::ConsumerSkipped { also() } else { Ok(()) })
                .flush(counting(&flushes));
            let builder = builder(hooks, order, KeyKind::Position).cancel_token(token);
            let mut pool = builder.journal(at_the_end(&place)).build().unwrap();
            let error = pool.run(0..20).unwrap_err();
            assert_eq!((error.is_cancelled(), error.is_panic()), (cancels, !cancels), "{error:#}");
            assert_eq!((flushes.load(SeqCst), place.commits().len()), (0, 0));
        }
    }
}

fn a_flush_that_fails_fails_the_run(order: Order) {
    for (cancels, panics) in [(false, false), (false, true), (true, false)] {
        let (place, flushes) = (Place::new(), Arc::new(AtomicU64::new(0)));
        let token = CancelToken::new();
        let (count, cancel) = (flushes.clone(), token.clone());
        // Should it be called once more it succeeds, as a second `sync` may after one that failed.
        let hooks = Hooks::new().flush(move |_| match count.fetch_add(1, SeqCst) {
            0 if panics => panic!("no room"),
            0 => {
                if cancels {
                    cancel.cancel();
                }
                Err("no room".into())
            }
            _ => Ok(()),
        });
        let journal = place.resume().commit_items(4).commit_every(Duration::MAX);
        let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).journal(journal);
        let mut pool = builder.cancel_token(token).build().unwrap();
        let error = pool.run(0..20).unwrap_err();
        if !cancels {
            assert_eq!(
                (error.hook(), error.item()),
                (Some(Hook::ConsumerFlush), None),
                "{error:#}"
            );
            assert_eq!(pool.account().ok, 4);
        }
        assert_eq!((flushes.load(SeqCst), place.commits().len()), (1, 0));
        assert_eq!(pool.run(0..20).unwrap().len(), 20, "all of them again");
    }
}

/// How the consumer ends a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Error,
    Cancel,
    CancelAndError,
    Stop,
    Finish,
}

impl End {
    const ALL: [End; 5] = [End::Error, End::Cancel, End::CancelAndError, End::Stop, End::Finish];

    fn strike(self, cx: &ConsumerContext<'_>, token: &CancelToken) -> Result<()> {
        match self {
            End::Error => return Err("bad".into()),
            End::CancelAndError => {
                token.cancel();
                return Err("it has seen it".into());
            }
            End::Cancel => token.cancel(),
            End::Stop => cx.stop(),
            End::Finish => token.drain(),
        }
        Ok(())
    }

    fn is_success(self) -> bool {
        matches!(self, End::Stop | End::Finish)
    }
}

fn what_was_consumed_is_committed_however_a_run_ends(order: Order) {
    for end in End::ALL {
        let (place, flushes) = (Place::new(), Arc::new(AtomicU64::new(0)));
        let (token, consumed) = (CancelToken::new(), AtomicU64::new(0));
        let ends = token.clone();
        let hooks = Hooks::new()
            .consume(move |cx, _| match consumed.fetch_add(1, SeqCst) {
                9 => end.strike(cx, &ends),
                _ => Ok(()),
            })
            .flush(counting(&flushes));
        let builder = AnyOrderRunner::builder(hooks).order(order).devices(2).cancel_token(token);
        let mut pool = builder.journal(at_the_end(&place)).build().unwrap();
        assert_eq!(pool.run(0..1_000_000).is_ok(), end.is_success(), "{end:?}");
        assert_eq!((flushes.load(SeqCst), place.commits().len()), (1, 1), "{end:?}");
        let ok = pool.account().ok;
        assert_eq!(place.counts(), (ok, 0), "{end:?}");
        match end {
            End::Error | End::CancelAndError => assert_eq!(ok, 9),
            End::Cancel | End::Stop => assert_eq!(ok, 10),
            End::Finish => assert!(ok >= 10),
        }
    }
}

fn a_run_that_took_too_long_has_committed(order: Order) {
    let place = Place::new();
    let gate = Arc::new(Gate::new());
    let stuck = gate.clone();
    let hooks = Hooks::new().work(move |_, x| {
        if x == 10 {
            stuck.pass();
        }
        Ok(x)
    });
    let limited =
        AnyOrderRunner::builder(hooks).order(order).devices(1).journal(at_the_end(&place));
    let mut pool = limited.run_timeout(Duration::from_millis(500)).build().unwrap();
    let error = pool.run(0..20).unwrap_err();
    assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
    gate.open();
    assert_eq!(place.counts(), (10, 0));
}

fn an_input_that_fails_costs_nothing_that_was_consumed(order: Order) {
    let place = Place::new();
    let input = (0..20).map(|x| if x == 10 { Err("no more") } else { Ok(x) });
    let mut pool = pool_of_one(order, &place);
    assert!(pool.try_run(input).unwrap_err().is_input());
    assert_eq!(place.counts(), (pool.account().ok, 0));
    if order == Order::Input {
        assert_eq!(rest(&place, 20), (10..20).collect::<Vec<_>>());
    }
}

/// Also the one too many: the consumer was called for it.
fn failures_are_committed_where_there_are_too_many(order: Order) {
    let place = Place::new();
    let hooks = Hooks::new().work(|_, x| if x >= 10 { Err("bad".into()) } else { Ok(x) });
    let limited = builder(hooks, order, KeyKind::Position).max_failures(MaxFailures::from(2));
    let mut pool = limited.journal(at_the_end(&place)).build().unwrap();
    let error = pool.run(0..20).unwrap_err();
    assert!(matches!(error, Error::TooManyFailures { .. }), "{error:#}");
    let account = pool.account();
    assert_eq!(place.counts(), (account.ok, account.failed));
}

fn pool_of_one(order: Order, place: &Place) -> AnyOrderRunner<Hooks> {
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(1);
    builder.journal(at_the_end(place)).build().unwrap()
}

/// It ends before items that the journal knows, which is no reason to refuse it.
fn a_run_that_is_told_to_end_misses_no_item(order: Order) {
    for finishes in [false, true] {
        let place = Place::new();
        // The last is done, and the first is not.
        let late = Hooks::new().work(|_, x| if x < 5 { Err("later".into()) } else { Ok(x) });
        builder(late, order, KeyKind::Position)
            .journal(place.resume())
            .build()
            .unwrap()
            .run(0..50)
            .unwrap();
        let token = CancelToken::new();
        let ends = token.clone();
        let hooks = Hooks::new().consume(move |cx, _| {
            if finishes {
                ends.drain();
            } else {
                cx.stop();
            }
            Ok(())
        });
        let builder =
            AnyOrderRunner::builder(hooks).order(order).devices(1).journal(place.resume());
        let mut pool = builder.cancel_token(token.clone()).build().unwrap();
        let (sender, receiver) = crossbeam_channel::unbounded();
        sender.send(0).unwrap();
        // More never comes, and the sender stays: only the guard ends the input.
        assert_eq!(pool.run(token.guard(receiver)).unwrap(), [0]);
        drop(sender);
        assert_eq!(rest(&place, 50), [1, 2, 3, 4]);
    }
}

fn a_failure_is_not_hidden_by_an_input_that_ends_with_it(order: Order) {
    let place = Place::new();
    let late = Hooks::new().work(|_, x| if x < 5 { Err("later".into()) } else { Ok(x) });
    builder(late, order, KeyKind::Position)
        .journal(place.resume())
        .build()
        .unwrap()
        .run(0..50)
        .unwrap();
    let bad = Hooks::new().work(|_, _| Err("bad".into()));
    let mut pool = pool(bad, order, place.resume());
    let (sender, receiver) = crossbeam_channel::unbounded();
    sender.send(0).unwrap();
    let error = pool.run(pool.cancel_token().guard(receiver)).unwrap_err();
    assert_eq!((error.hook(), error.item()), (Some(Hook::ProducerWork), Some(0)), "{error:#}");
}

/// What a run reads as the last note.
fn last_note(place: &Place) -> Option<String> {
    let note = Arc::new(Mutex::new(None));
    let found = note.clone();
    let hooks = Hooks::new().consumer_init(move |cx| {
        let text = cx.last_note().map(|note| String::from_utf8(note.to_vec()).unwrap());
        *found.lock().unwrap() = text;
        cx.stop();
        Ok(())
    });
    pool(hooks, Order::Input, place.resume()).run(0..1).unwrap();
    note.lock().unwrap().take()
}

fn notes_count_if_their_hook_succeeds(order: Order) {
    let place = Place::new();
    let noting = |what: &'static str| move |cx: &ConsumerContext<'_>| cx.note(what);
    let named =
        || Hooks::new().consumer_init(|cx| cx.note("init")).consume(|cx, x| cx.note(x.to_string()));
    pool(named(), order, place.resume()).run([7]).unwrap();
    assert_eq!(last_note(&place).as_deref(), Some("7"));
    let with_flush = named().flush(noting("flush"));
    pool(with_flush, order, place.resume()).run([7, 8]).unwrap();
    assert_eq!(last_note(&place).as_deref(), Some("flush"));
    let with_end = named().flush(noting("flush")).consumer_end(noting("end"));
    pool(with_end, order, place.resume()).run([7, 8, 9]).unwrap();
    assert_eq!(last_note(&place).as_deref(), Some("end"));
    let with_skipped = Hooks::new().work(|_, _| Err("bad".into())).skipped(noting("skipped"));
    builder(with_skipped, order, KeyKind::Position)
        .journal(place.resume())
        .build()
        .unwrap()
        .run([7, 8, 9, 10])
        .unwrap();
    assert_eq!(last_note(&place).as_deref(), Some("skipped"));

    let long = Hooks::new().consume(|cx, _| cx.note(vec![b'x'; 70_000]));
    let error = pool(long, order, place.resume()).run(0..20).unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ConsumerWork), "{error:#}");
    assert!(format!("{error:#}").contains("70000 bytes is too large"), "{error:#}");

    let plain = Hooks::new().consume(|cx, _| {
        assert_eq!(cx.last_note(), None);
        cx.note("nowhere")
    });
    assert_eq!(AnyOrderRunner::new(plain, 1).unwrap().run([1]).unwrap(), [1], "without a journal");
}

fn a_note_of_a_hook_that_failed_is_dropped(order: Order) {
    // An item that is skipped.
    let place = Place::new();
    let hooks = Hooks::new().consume(|cx, x| {
        cx.note(x.to_string())?;
        if x == 1 { Err("not written".into()) } else { Ok(()) }
    });
    let builder =
        AnyOrderRunner::builder(hooks).order(order).devices(1).classify(|_| Verdict::Skip);
    let mut pool = builder.journal(place.resume()).build().unwrap();
    assert_eq!(pool.run([0, 1]).unwrap(), [0]);
    assert_eq!(last_note(&place).as_deref(), Some("0"));

    // One that ends the run.
    let place = Place::new();
    let hooks = Hooks::new().consume(|cx, x| {
        cx.note(x.to_string())?;
        if x == 1 { Err("not written".into()) } else { Ok(()) }
    });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).journal(place.resume());
    builder.build().unwrap().run([0, 1]).unwrap_err();
    assert_eq!(last_note(&place).as_deref(), Some("0"));

    // The end itself.
    let place = Place::new();
    let hooks = Hooks::new().consumer_init(|cx| cx.note("init")).consumer_end(|cx| {
        cx.note("end")?;
        Err("not ended".into())
    });
    let builder = AnyOrderRunner::builder(hooks).order(order).devices(1).journal(place.resume());
    builder.build().unwrap().run([0, 1]).unwrap_err();
    assert_eq!(last_note(&place).as_deref(), Some("init"));
    assert_eq!(place.counts(), (2, 0), "the items are done");
}

fn a_run_without_items_keeps_its_notes(order: Order) {
    let place = Place::new();
    let hooks = Hooks::new().consumer_init(|cx| cx.note("begun"));
    assert!(pool(hooks, order, place.resume()).run([]).unwrap().is_empty());
    assert_eq!(last_note(&place).as_deref(), Some("begun"));
    let hooks = Hooks::new().consumer_init(|cx| cx.note("again")).consume(|_, _| Err("bad".into()));
    pool(hooks, order, place.resume()).run([5]).unwrap_err();
    assert_eq!(last_note(&place).as_deref(), Some("again"), "the consumer had begun");
}

/// And writes nothing once the next run has the file.
fn a_run_that_left_its_consumer_behind_is_accounted(order: Order) {
    let place = Place::new();
    assert_eq!(rest(&place, 5).len(), 5);
    let (gate, returned) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (stuck, late) = (gate.clone(), returned.clone());
    let hooks = Hooks::new().consume(move |cx, x| {
        if x == 7 {
            stuck.pass();
            cx.note("too late")?;
            late.open();
        }
        Ok(())
    });
    let ends = Arc::new(AtomicU64::new(0));
    let hooks = hooks.flush(counting(&ends)).consumer_end(counting(&ends));
    let builder =
        AnyOrderRunner::builder(hooks).order(order).devices(1).window(1).on_error(OnError::Skip);
    let builder = builder.journal(place.resume()).run_timeout(Duration::from_millis(500));
    let mut pool = builder.build().unwrap();
    let error = pool.run(0..20).unwrap_err();
    assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
    let account = pool.account();
    assert_eq!((account.ok, account.failed, account.already_done), (2, 0, 5));
    let (done, flushes) = (place.counts(), ends.load(SeqCst));
    gate.open();
    returned.pass();
    drop(pool);
    assert_eq!(ends.load(SeqCst), flushes, "neither flushed nor ended");
    assert_eq!(place.counts(), done);
    assert_eq!(rest(&place, 20).len() as u64, 20 - done.0);
    assert_eq!(last_note(&place), None);
}

#[test]
fn a_journal_that_is_gone_ends_the_run_at_the_next_commit() {
    type Way = fn(&std::path::Path) -> std::io::Result<()>;
    let ways: [Way; 3] = [
        |path| std::fs::remove_file(path),
        |path| std::fs::rename(path, path.with_extension("moved")),
        |path| {
            std::fs::remove_file(path)?;
            std::fs::write(path, "another file")
        },
    ];
    for way in ways {
        no_hang(move || {
            let place = Place::new();
            let path = place.path().to_owned();
            let hooks = Hooks::new().consume(move |_, x| {
                if x == 5 {
                    way(&path)?;
                }
                Ok(())
            });
            let error = pool(hooks, Order::Input, place.resume()).run(0..10).unwrap_err();
            let Error::Journal { source: JournalError::Gone { path, .. }, .. } = error else {
                panic!("{error:#}")
            };
            assert_eq!(path, place.path());
        });
    }
}
