//! Batches that fail as a whole: the calls of the hook, the events and the reports.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gangline::error::{OutOfMemory, OutputCount, Untried};
use gangline::event::Event;
use gangline::report::{Bottleneck, RunReport};
use gangline::{
    Batch, BoxError, Error, OnError, OrderedRunner, Result, Runner, Verdict, map_batches,
};

/// The number of events of a kind for each item.
type Told = Arc<Mutex<BTreeMap<u64, usize>>>;

/// What a hook does with its inputs.
type Hook = fn(&mut Vec<u64>) -> Result<Vec<Result<u64>>>;

fn runner(
    calls: &Arc<AtomicUsize>,
    hook: Hook,
) -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> + use<> {
    let calls = calls.clone();
    map_batches(
        |_| Ok(()),
        move |_, (), inputs: &mut Vec<u64>| {
            calls.fetch_add(1, Ordering::Relaxed);
            hook(inputs)
        },
    )
}

#[track_caller]
fn check_told_once(hook: Hook, on_error: OnError, batch: u64, items: u64) -> RunReport {
    let builder = OrderedRunner::builder(runner(&Arc::default(), hook)).devices(1);
    let builder = builder.batch(Batch::of(usize::try_from(batch).unwrap())).on_error(on_error);
    let told = Told::default();
    let noted = told.clone();
    let builder = builder.observer(move |_, event: &Event| {
        if let Event::ItemFailed { failure, .. } = event {
            *noted.lock().unwrap().entry(failure.item.unwrap()).or_default() += 1;
        }
    });
    let mut pool = builder.build().unwrap();
    let (_, report) = pool.run_with_report(0..items);
    drop(pool);
    let told = told.lock().unwrap();
    assert_eq!(told.values().sum::<usize>() as u64, report.account.failed, "{told:?}");
    assert!(told.values().all(|times| *times == 1), "{told:?}");
    assert_eq!(report.failures.len() as u64, report.account.failed);
    let items: Vec<_> = report.failures.iter().filter_map(|failure| failure.item).collect();
    assert!(items.iter().eq(told.keys()), "{items:?}");
    report
}

#[test]
fn items_that_failed_together_are_told_once_each() {
    let takes_all: Hook = |inputs| {
        inputs.clear();
        Err("the device is gone".into())
    };
    let takes_one: Hook = |inputs| {
        inputs.pop();
        Err("the device is gone".into())
    };
    let panics: Hook = |inputs| {
        inputs.clear();
        panic!("the hook panics")
    };
    let too_few: Hook = |inputs| Ok(inputs.drain(1..).map(Ok).collect());
    for hook in [takes_all, takes_one, panics, too_few] {
        assert_eq!(check_told_once(hook, OnError::Skip, 8, 8).account.failed, 8);
        assert_eq!(check_told_once(hook, OnError::Skip, 3, 12).account.failed, 12);
        assert_eq!(check_told_once(hook, OnError::Stop, 8, 8).account.failed, 8);
    }
    let one_by_one: Hook = |inputs| {
        Ok(inputs.drain(..).map(|x| if x % 3 == 0 { Err("bad".into()) } else { Ok(x) }).collect())
    };
    assert_eq!(check_told_once(one_by_one, OnError::Skip, 4, 12).account.failed, 4);
}

#[test]
fn items_that_failed_together_name_the_hook_and_the_device_each() {
    let takes_all: Hook = |inputs| {
        inputs.clear();
        Err("the device is gone".into())
    };
    let takes_one: Hook = |inputs| {
        inputs.pop();
        panic!("the hook panics")
    };
    let too_few: Hook = |inputs| Ok(inputs.drain(1..).map(Ok).collect());
    for hook in [takes_all, takes_one, too_few] {
        for on_error in [OnError::Skip, OnError::Stop] {
            let report = check_told_once(hook, on_error, 4, 4);
            for failure in &report.failures {
                assert_eq!(failure.hook.as_deref(), Some("producer_work_batch"), "{report}");
                assert_eq!((failure.producer, failure.attempts), (Some(0), 1), "{report}");
                assert_eq!(failure.device.as_deref(), Some("cpu"), "{report}");
            }
            assert!(report.incidents.iter().all(|it| it.producer == Some(0)), "{report}");
        }
        let builder = OrderedRunner::builder(runner(&Arc::default(), hook)).devices(1);
        let service = builder.batch(Batch::up_to(4)).build().unwrap().into_service();
        for ticket in service.try_submit_all(vec![1, 2, 3, 4]).unwrap() {
            let error = ticket.wait().unwrap_err();
            assert_eq!(error.hook(), Some(gangline::Hook::ProducerWorkBatch), "{error:#}");
            assert_eq!((error.producer(), error.attempt()), (Some(0), Some(1)), "{error:#}");
            assert!(error.device().is_some() && error.item().is_some(), "{error:#}");
        }
        let report = service.report();
        assert!(report.failures.iter().all(|it| it.producer == Some(0)), "{report}");
    }
}

#[test]
fn a_wrong_number_of_outputs_fails_at_once() {
    let one_less: Hook = |inputs| Ok(inputs.iter().skip(1).map(|x| Ok(*x)).collect());
    let none: Hook = |_| Ok(vec![]);
    let one_more: Hook = |inputs| Ok(inputs.iter().chain([&7]).map(|x| Ok(*x)).collect());
    let taken: Hook = |inputs| Ok(vec![Ok(inputs.drain(..).sum())]);
    for (hook, outputs) in [(one_less, 31), (none, 0), (one_more, 33), (taken, 1)] {
        let calls = Arc::default();
        let builder = OrderedRunner::builder(runner(&calls, hook)).devices(1);
        let mut pool = builder.batch(Batch::of(32)).build().unwrap();
        let error = pool.run(0..320).unwrap_err();
        assert_eq!(error.items().len(), 32);
        let Error::HookFailed { source, .. } = &error else { panic!("{error:?}") };
        let count = source.downcast_ref::<OutputCount>().unwrap();
        assert_eq!((count.inputs, count.outputs), (32, outputs));
        assert!(calls.load(Ordering::Relaxed) <= 10, "no batch is split");
        assert_eq!(pool.report().splits.split, 0);

        let calls = Arc::default();
        let builder =
            OrderedRunner::builder(runner(&calls, hook)).devices(2).on_error(OnError::Skip);
        let mut pool = builder.batch(Batch::of(32)).build().unwrap();
        assert!(pool.run(0..320).unwrap().is_empty());
        assert_eq!((pool.account().failed, calls.load(Ordering::Relaxed)), (320, 10));
    }
}

/// Each item alone may even succeed, which would hide that the hook is wrong.
#[test]
fn a_wrong_number_of_outputs_is_not_tried_again() {
    let one: Hook = |inputs| Ok(vec![Ok(inputs.drain(..).sum())]);
    let none: Hook = |_| Ok(vec![]);
    let one_more: Hook = |inputs| Ok(inputs.iter().chain([&7]).map(|x| Ok(*x)).collect());
    for hook in [one, none, one_more] {
        for verdict in [None, Some(Verdict::Retry), Some(Verdict::RetryHere)] {
            let calls = Arc::default();
            let builder = OrderedRunner::builder(runner(&calls, hook)).devices(2).retries(3);
            let builder = builder.batch(Batch::of(4)).on_error(OnError::Skip);
            let builder = match verdict {
                Some(verdict) => builder.classify(move |_| verdict),
                None => builder,
            };
            let mut pool = builder.build().unwrap();
            let (outputs, report) = pool.run_with_report(0..16);
            assert!(outputs.unwrap().is_empty());
            assert_eq!((report.account.failed, report.retries.items), (16, 0), "{report}");
            assert_eq!(calls.load(Ordering::Relaxed), 4);
        }
    }
}

/// An item that is tried again, and one that no other joins, are calls of no batch.
#[test]
fn only_batches_and_their_parts_are_calls_of_batches() {
    let bad: Hook = |inputs| match inputs.contains(&3) {
        true => Err("three is bad".into()),
        false => Ok(inputs.drain(..).map(Ok).collect()),
    };
    for (items, retries, batches) in [(4, 0, 1), (4, 3, 1), (9, 0, 2), (9, 2, 2)] {
        let builder = OrderedRunner::builder(runner(&Arc::default(), bad)).devices(1);
        let builder = builder.batch(Batch::of(4)).on_error(OnError::Skip).retries(retries);
        let (_, report) = builder.build().unwrap().run_with_report(0..items);
        assert_eq!((report.splits.batches, report.splits.split), (batches, 1), "{report}");
        assert_eq!(report.splits.calls, batches + 4, "{report}");
    }
}

#[test]
fn splits_are_counted_and_named() {
    // They work for longer than all the rest of the run takes, so that the splits are what limits it.
    let single: Hook = |inputs| {
        thread::sleep(Duration::from_millis(1));
        match inputs.len() {
            1 => Ok(inputs.drain(..).map(Ok).collect()),
            _ => Err("one at a time, please".into()),
        }
    };
    let up_to_eight: Hook = |inputs| {
        thread::sleep(Duration::from_millis(10));
        match inputs.len() {
            ..=8 => Ok(inputs.drain(..).map(Ok).collect()),
            length => Err(format!("{length} are too many").into()),
        }
    };
    for (hook, error, each) in
        [(single, "one at a time, please", 63), (up_to_eight, "32 are too many", 7)]
    {
        let calls = Arc::default();
        let builder = OrderedRunner::builder(runner(&calls, hook)).devices(1);
        let mut pool = builder.batch(Batch::of(32)).build().unwrap();
        let (outputs, report) = pool.run_with_report(0..320);
        assert_eq!(outputs.unwrap().len(), 320);
        let splits = &report.splits;
        assert_eq!((splits.batches, splits.split, splits.calls), (10, 10, 10 * each));
        assert_eq!(calls.load(Ordering::Relaxed) as u64, splits.calls);
        assert!(splits.error.as_ref().unwrap().ends_with(error), "{splits:?}");
        assert_eq!(report.bottleneck, Bottleneck::Splits);
        assert!(report.conclusion.contains("10 of 10 batches were split"), "{}", report.conclusion);
        assert!(
            report.conclusion.contains(error) && !report.conclusion.contains("use larger batches")
        );
        let text = report.to_string().replace(['\n', ' '], "");
        assert!(text.contains(&error.replace(' ', "")), "{report}");
        assert!(report.to_html().contains("Split batches"));
        assert_eq!(RunReport::from_json(&report.to_json()).unwrap().splits, *splits);
    }
}

#[test]
fn few_splits_are_no_verdict() {
    let one_bad: Hook = |inputs| match inputs.contains(&40) {
        true => Err("40 is bad".into()),
        false => Ok(inputs.drain(..).map(Ok).collect()),
    };
    let builder = OrderedRunner::builder(runner(&Arc::default(), one_bad)).devices(1);
    let mut pool = builder.batch(Batch::of(32)).on_error(OnError::Skip).build().unwrap();
    let (_, report) = pool.run_with_report(0..320);
    assert_eq!((report.splits.batches, report.splits.split), (10, 1));
    assert_ne!(report.bottleneck, Bottleneck::Splits);
    assert_eq!(report.account.failed, 1);
}

#[test]
fn a_text_report_has_all_causes_of_a_failure() {
    use anyhow::Context;
    let deep: Hook = |_| {
        let decoding = Err::<(), _>(std::fmt::Error).context("Format error decoding Jpeg");
        let tile = decoding.with_context(|| format!("reading tile {}", "x".repeat(100)));
        Err(tile.context("loading the image").unwrap_err().into())
    };
    let builder = OrderedRunner::builder(runner(&Arc::default(), deep)).devices(1);
    let mut pool = builder.batch(Batch::of(1)).on_error(OnError::Skip).build().unwrap();
    let (_, report) = pool.run_with_report(0..2);
    let text = report.to_string().replace("\n    ", " ");
    for cause in [
        "loading the image: reading tile",
        "Format error decoding Jpeg: an error occurred when formatting",
    ] {
        assert!(text.contains(cause), "{cause} is missing in {text}");
    }
    let (result, report) = {
        let builder = OrderedRunner::builder(runner(&Arc::default(), deep)).devices(1);
        builder.batch(Batch::of(1)).build().unwrap().run_with_report(0..2)
    };
    assert!(result.is_err() && report.to_string().contains("Format error decoding Jpeg"));
}

/// What a hook was given in each call.
type Calls = Arc<Mutex<Vec<Vec<u64>>>>;

/// Works on the items before 5, leaves the inputs of the others or all of them, and does not try those in a larger batch.
fn tries_some(
    calls: &Calls,
    leaves_all: bool,
    why: fn() -> BoxError,
) -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> + use<> {
    let calls = calls.clone();
    map_batches(
        |_| Ok(()),
        move |_, (), inputs: &mut Vec<u64>| {
            calls.lock().unwrap().push(inputs.clone());
            let most = if inputs.len() > 1 { 5 } else { 8 };
            let output = |x: &u64| if *x < most { Ok(*x) } else { Err(Untried::new(why()).into()) };
            let outputs = inputs.iter().map(output).collect();
            if !leaves_all {
                inputs.retain(|x| *x >= most);
            }
            Ok(outputs)
        },
    )
}

#[test]
fn what_a_batch_has_not_tried_comes_again_in_halves() {
    for leaves_all in [true, false] {
        let calls = Calls::default();
        let builder = OrderedRunner::builder(tries_some(&calls, leaves_all, || "later".into()));
        let mut pool = builder.devices(1).batch(Batch::of(8)).build().unwrap();
        let (outputs, report) = pool.run_with_report(0..8);
        assert_eq!(outputs.unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let all: Vec<u64> = (0..8).collect();
        let expected = [&all[..], &[5], &[6, 7], &[6], &[7]];
        assert_eq!(*calls.lock().unwrap(), expected, "nothing is worked on twice");
        assert_eq!((report.splits.split, report.retries.attempts), (1, 0), "{report}");
        assert_eq!(pool.learned_batch_limits(), [None]);
    }
}

#[test]
fn a_batch_that_runs_out_of_memory_in_part_makes_later_ones_smaller() {
    let calls = Calls::default();
    let why = || OutOfMemory::new("no room").into();
    let builder = OrderedRunner::builder(tries_some(&calls, false, why));
    let mut pool = builder.devices(1).batch(Batch::of(8)).build().unwrap();
    assert_eq!(pool.run(0..8).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(pool.learned_batch_limits()[0].is_some_and(|limit| limit < 8));
}

#[test]
fn what_is_not_tried_alone_or_without_its_input_has_failed() {
    let takes_all: Hook = |inputs| {
        let untried = |_| Err(Untried::new("never").into());
        Ok(inputs.drain(..).map(untried).collect())
    };
    let leaves_all: Hook =
        |inputs| Ok(inputs.iter().map(|_| Err(Untried::new("never").into())).collect());
    for (hook, expected) in [(takes_all, 2), (leaves_all, 14)] {
        let calls = Arc::default();
        let builder = OrderedRunner::builder(runner(&calls, hook)).devices(1);
        let builder = builder.batch(Batch::of(4)).on_error(OnError::Skip);
        let mut pool = builder.build().unwrap();
        assert!(pool.run(0..8).unwrap().is_empty());
        assert_eq!((pool.account().failed, calls.load(Ordering::Relaxed)), (8, expected));
        assert!(format!("{:#}", pool.failures()[0]).ends_with("not tried: never"));
    }
}
