//! Calls that are dropped, and calls that are too late.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::{Batch, Error, OrderedRunner, ProducerContext, Runner};

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

type Cancelled = (Vec<bool>, bool);

/// Waits in its first batch until told that callers have gone, and notes which items are cancelled.
struct Looks {
    begun: Arc<Gate>,
    gone: Arc<Gate>,
    /// For each batch: whether each item is cancelled, and whether the batch is.
    cancelled: Arc<Mutex<Vec<Cancelled>>>,
}

impl Runner for Looks {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> gangline::Result<u64> {
        Ok(x)
    }
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> gangline::Result<Vec<gangline::Result<u64>>> {
        self.begun.open();
        self.gone.pass();
        let each = (0..inputs.len()).map(|i| cx.at(i).is_cancelled()).collect();
        self.cancelled.lock().unwrap().push((each, cx.is_cancelled()));
        Ok(inputs.drain(..).map(Ok).collect())
    }
    fn consumer_init(&self, _: &gangline::ConsumerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }
    fn consumer_work(
        &self,
        _: &gangline::ConsumerContext<'_>,
        (): &mut (),
        _: u64,
    ) -> gangline::Result<()> {
        Ok(())
    }
    fn consumer_end(&self, _: &gangline::ConsumerContext<'_>, (): ()) -> gangline::Result<()> {
        Ok(())
    }
}

#[test]
fn in_a_batch_only_the_item_of_the_dropped_call_is_cancelled() {
    no_hang(|| {
        let (begun, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let cancelled = Arc::default();
        let looks = Looks { begun: begun.clone(), gone: gone.clone(), cancelled };
        let cancelled = looks.cancelled.clone();
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
        let looks = Looks { begun: begun.clone(), gone: gone.clone(), cancelled };
        let cancelled = looks.cancelled.clone();
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
        let limited = service.with_deadline(Duration::from_millis(30));
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

/// Takes the inputs of a batch, and fails it.
struct TakesAll;

impl Runner for TakesAll {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> gangline::Result<u64> {
        Ok(x)
    }
    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> gangline::Result<Vec<gangline::Result<u64>>> {
        inputs.clear();
        Err("bad".into())
    }
    fn consumer_init(&self, _: &gangline::ConsumerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }
    fn consumer_work(
        &self,
        _: &gangline::ConsumerContext<'_>,
        (): &mut (),
        _: u64,
    ) -> gangline::Result<()> {
        Ok(())
    }
    fn consumer_end(&self, _: &gangline::ConsumerContext<'_>, (): ()) -> gangline::Result<()> {
        Ok(())
    }
}

#[test]
fn a_call_that_is_dropped_once_its_batch_has_failed_takes_no_answer_from_the_others() {
    no_hang(|| {
        let (asked, gone) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (asks, goes) = (asked.clone(), gone.clone());
        let builder = OrderedRunner::builder(TakesAll).devices(1);
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
