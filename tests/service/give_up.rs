//! Calls that are dropped, and calls that are too late.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::backend::Bell;
use gangline::{Batch, Error, OrderedRunner, Runner};

use crate::batches::{batches, passed};
use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

#[test]
fn a_dropped_call_in_a_hook_is_cancelled_and_counted_once() {
    no_hang(|| {
        let (begun, cancelled) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (begins, seen) = (begun.clone(), cancelled.clone());
        let hooks = Hooks::new().work(move |cx, x| {
            if x == 1 {
                begins.open();
                while !cx.is_cancelled() {
                    std::thread::yield_now();
                }
                seen.open();
            }
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let call = service.call_async(1);
        begun.pass();
        drop(call);
        assert_eq!(service.account().cancelled, 1, "at once");
        cancelled.pass();
        assert_eq!(service.call(2).unwrap(), 2);
        let account = service.account();
        assert_eq!((account.ok, account.failed, account.cancelled), (1, 0, 1));
    });
}

/// Wakes a hook that waits elsewhere than in the library.
#[derive(Debug)]
struct Rung(SyncSender<()>);

impl Bell for Rung {
    fn ring(&self) {
        // One is enough.
        let _ = self.0.try_send(());
    }
}

#[test]
fn a_hook_that_waits_hears_of_a_dropped_call() {
    no_hang(|| {
        let (begun, cancelled) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (begins, seen) = (begun.clone(), cancelled.clone());
        let (sender, rung) = sync_channel(1);
        let (bell, rung): (Arc<dyn Bell>, _) = (Arc::new(Rung(sender)), Mutex::new(rung));
        let hooks = Hooks::new().work(move |cx, x| {
            cx.listen(&bell);
            begins.open();
            while !cx.is_cancelled() {
                rung.lock().unwrap().recv().unwrap();
            }
            seen.open();
            Ok(x)
        });
        let service = OrderedRunner::new(hooks, 1).unwrap().into_service();
        let call = service.call_async(1);
        begun.pass();
        drop(call);
        cancelled.pass();
        assert_eq!(service.account().cancelled, 1);
    });
}

/// Whether each item of a batch is cancelled, and whether the batch is.
type Cancelled = (Vec<bool>, bool);

/// Waits in a batch until `gone` is open, and notes which items are cancelled then.
fn looks(
    begun: &Arc<Gate>,
    gone: &Arc<Gate>,
    cancelled: &Arc<Mutex<Vec<Cancelled>>>,
) -> impl Runner<Input = u64, Output = u64> + 'static {
    let (begun, gone, cancelled) = (begun.clone(), gone.clone(), cancelled.clone());
    batches(move |cx, inputs| {
        begun.open();
        gone.pass();
        let each = (0..inputs.len()).map(|i| cx.at(i).is_cancelled()).collect();
        cancelled.lock().unwrap().push((each, cx.is_cancelled()));
        passed(inputs)
    })
}

#[test]
fn in_a_batch_only_the_item_of_the_dropped_call_is_cancelled() {
    no_hang(|| {
        let (begun, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let cancelled = Arc::default();
        let looks = looks(&begun, &gone, &cancelled);
        let batch = Batch::of(3).within(Duration::from_secs(60));
        let builder = OrderedRunner::builder(looks).devices(1).batch(batch);
        let service = builder.build().unwrap().into_service();
        let mut tickets: Vec<_> = (0..3).map(|x| service.try_submit(x).unwrap()).collect();
        begun.pass();
        drop(tickets.remove(1));
        gone.open();
        let answers: Vec<_> = tickets.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
        assert_eq!(answers, [0, 2]);
        assert_eq!(*cancelled.lock().unwrap(), [(vec![false, true, false], false)]);
        let account = service.account();
        assert_eq!((account.ok, account.cancelled), (2, 1));
    });
}

#[test]
fn a_batch_is_cancelled_once_all_its_callers_have_gone() {
    no_hang(|| {
        let (begun, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let cancelled = Arc::default();
        let looks = looks(&begun, &gone, &cancelled);
        let batch = Batch::of(2).within(Duration::from_secs(60));
        let builder = OrderedRunner::builder(looks).devices(1).batch(batch);
        let service = builder.build().unwrap().into_service();
        let tickets: Vec<_> = (0..2).map(|x| service.try_submit(x).unwrap()).collect();
        begun.pass();
        drop(tickets);
        gone.open();
        service.close().unwrap();
        assert_eq!(*cancelled.lock().unwrap(), [(vec![true, true], true)]);
        assert_eq!(service.account().cancelled, 2);
    });
}

#[test]
fn deadlines_answer_calls_in_hooks_in_the_queue_and_before_it() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let (passed, started) = (gate.clone(), Arc::new(Counter::new()));
        let starts = started.clone();
        let hooks = Hooks::new().work(move |_, x| {
            starts.add(1);
            passed.pass();
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).window(2);
        let service = builder.build().unwrap().into_service();
        let limited = service.with_deadline(Duration::from_millis(300));
        let in_hook = limited.call_async(0);
        started.reach(1);
        let queued = limited.call_async(1);
        let before = limited.call_async(2);
        for call in [before, queued, in_hook] {
            let error = crate::runtimes::block_on(call).unwrap_err();
            assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error}");
            assert!(error.is_timeout());
        }
        gate.open();
        assert_eq!(service.call(3).unwrap(), 3);
        assert_eq!(started.get(), 2, "neither 1 nor 2 reached a hook");
        let account = service.account();
        assert_eq!(account.ok, 1);
        assert!((2..=3).contains(&account.failed), "2 may have had the place of another at last");
    });
}

#[test]
fn a_call_that_is_dropped_once_its_batch_has_failed_takes_no_answer_from_the_others() {
    no_hang(|| {
        let (asked, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (asks, goes) = (asked.clone(), gone.clone());
        let fails = batches(|_, inputs| {
            inputs.clear();
            Err("bad".into())
        });
        let builder = OrderedRunner::builder(fails).devices(1);
        let builder = builder.batch(Batch::of(2).within(Duration::from_secs(60)));
        let builder = builder.classify(move |_| {
            asks.open();
            goes.pass();
            gangline::Verdict::Skip
        });
        let service = builder.build().unwrap().into_service();
        let mut tickets: Vec<_> = (0..2).map(|x| service.try_submit(x).unwrap()).collect();
        asked.pass();
        drop(tickets.remove(0));
        gone.open();
        let error = tickets.remove(0).wait().unwrap_err();
        assert_eq!(error.item(), Some(1), "{error:#}");
        let account = service.account();
        assert_eq!((account.failed, account.cancelled), (1, 1));
    });
}
