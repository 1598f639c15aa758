//! The laws about results: accounted, named, bounded, ordered, prompt; and batches.

use gangline_scheduler::OnError;
use gangline_scheduler::batch::Batch;

use super::gate::HookGate;
use super::probe::{Answer, Answers, Task, TaskWork, failure_text, panic_text};
use super::record::{Act, PoolRecord};
use super::trial::{BOTH, Make, Setup, Trial, ensure, failed, passing, tasks, text_of};
use crate::base::{Hook, Order, Result};
use crate::runner::Runner;

/// Checks the account of a run that did not pull all of its items, or did.
fn check_account<R>(trial: &Trial<R>, all: u64, ok: u64, failed: u64) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    let account = trial.pool.account();
    let pulled = trial.record.progress().pulled;
    let sum = account.ok + account.failed + account.already_done + account.cancelled;
    ensure!(sum == pulled, "{pulled} items were pulled, the account has {sum}: {account:?}");
    let seen = (account.ok, account.failed, account.unread);
    ensure!(
        seen == (ok, failed, Some(all - pulled)),
        "{ok} items are ok, {failed} failed and {} unread, but it is {account:?}",
        all - pulled
    );
    Ok(())
}

pub(super) fn accounted<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        let mut trial = Trial::plain(make, order)?;
        trial.run(passing(0..30))?;
        check_account(&trial, 30, 30, 0)?;
        trial.run(vec![])?;
        check_account(&trial, 0, 0, 0)?;
        let outcome = trial.run(tasks(500, &[(20, TaskWork::Fail)]));
        failed(outcome, "an item failed")?;
        let ok = trial.record.progress().consumed.len() as u64;
        check_account(&trial, 500, ok, 1)?;

        let set = |builder: Setup<R>| builder.order(order).on_error(OnError::Skip);
        let mut trial = Trial::new(make, PoolRecord::new(), set)?;
        let some = [(0, TaskWork::Fail), (7, TaskWork::Panic), (29, TaskWork::Fail)];
        let answers = trial.run(tasks(30, &some))?;
        ensure!(answers.all.len() == 27, "27 of 30 items pass, {} came", answers.all.len());
        check_account(&trial, 30, 27, 3)?;
        let skipped = trial.record.progress().skipped.len();
        ensure!(skipped == 3, "3 items are skipped, consumer_skipped was called {skipped} times");
        let errors = trial.pool.failures().len();
        ensure!(errors == 3, "3 items are skipped, the pool has {errors} errors");

        let record = PoolRecord::with_act(10, Act::Stop);
        let mut trial = Trial::new(make, record, |builder| builder.order(order))?;
        let answers = trial.run(passing(0..500))?;
        let consumed = trial.record.progress().consumed.len();
        ensure!(
            answers.all.len() == consumed,
            "{consumed} answers were consumed before the stop, the summary has {}",
            answers.all.len()
        );
        check_account(&trial, 500, consumed as u64, 0)?;
    }
    Ok(())
}

pub(super) fn named<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    let mut trial = Trial::new(make, PoolRecord::new(), |builder| builder.on_error(OnError::Skip))?;
    trial.run(tasks(20, &[(3, TaskWork::Fail), (11, TaskWork::Panic)]))?;
    let producers = trial.pool.devices().len();
    for (item, text) in [(3, failure_text(3)), (11, panic_text(11))] {
        let found = trial.pool.failures().iter().find(|error| error.item() == Some(item));
        let Some(error) = found else { return Err(format!("no error names item {item}").into()) };
        let shown = text_of(error);
        ensure!(error.hook() == Some(Hook::ProducerWork), "the hook is missing: {shown}");
        ensure!(error.attempt() == Some(1), "the attempt is missing: {shown}");
        ensure!(
            error.producer().is_some_and(|producer| producer < producers),
            "the producer is missing: {shown}"
        );
        ensure!(error.device().is_some(), "the device is missing: {shown}");
        ensure!(error.is_panic() == (item == 11), "error and panic are confused: {shown}");
        ensure!(shown.contains(&text), "the cause {text:?} is missing: {shown}");
    }
    for (act, text) in [(Act::Fail, failure_text(4)), (Act::Panic, panic_text(4))] {
        let mut trial = Trial::new(make, PoolRecord::with_act(4, act), |builder| builder)?;
        let error = failed(trial.run(passing(0..20)), "consumer_work failed")?;
        let shown = text_of(&error);
        let site = (error.hook(), error.item());
        ensure!(site == (Some(Hook::ConsumerWork), Some(4)), "hook or item are missing: {shown}");
        ensure!(shown.contains(&text), "the cause {text:?} is missing: {shown}");
    }
    Ok(())
}

pub(super) fn bounded<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        for window in [1, 2, 7] {
            let set = |builder: Setup<R>| builder.order(order).window(window);
            let mut trial = Trial::new(make, PoolRecord::new(), set)?;
            trial.run(passing(0..100))?;
            check_window(&trial.record, window)?;
            // The first item is slow, so the window fills.
            let gate = HookGate::new()?;
            let slow = tasks(100, &[(0, TaskWork::Wait(gate.port()?))]);
            let outcome = trial.run_while(slow, &gate, |record| {
                let _visitor = gate.arrival()?;
                let is_full = record.wait_until(|progress| progress.pulled >= window as u64);
                ensure!(is_full, "the run ends before its first item");
                Ok(())
            })?;
            outcome?;
            check_window(&trial.record, window)?;
        }
    }
    Ok(())
}

fn check_window(record: &PoolRecord, window: usize) -> Result<()> {
    let most = record.progress().most_in_flight;
    ensure!(most <= window as u64, "{most} items were in flight in a window of {window}");
    Ok(())
}

pub(super) fn ordered<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    let mut trial = Trial::plain(make, Order::Input)?;
    let answers = trial.run(passing(0..200))?;
    ensure!(answers.numbers().into_iter().eq(0..200), "results are not in input order");
    ensure!(
        answers.all.iter().all(|answer| answer.item == Some(answer.number)),
        "a hook was given the index of another item"
    );
    // The first item waits until the window is full of later ones.
    let gate = HookGate::new()?;
    let slow = tasks(60, &[(0, TaskWork::Wait(gate.port()?))]);
    let mut trial = Trial::new(make, PoolRecord::new(), |builder| builder.window(8))?;
    let outcome = trial.run_while(slow, &gate, |record| {
        let _visitor = gate.arrival()?;
        record.wait_until(|progress| progress.pulled >= 8);
        let consumed = record.progress().consumed.clone();
        ensure!(consumed.is_empty(), "{consumed:?} were consumed before item 0");
        Ok(())
    })?;
    ensure!(outcome?.numbers().into_iter().eq(0..60), "results are not in input order");
    check_failures_in_order(make)?;

    let set = |builder: Setup<R>| builder.on_error(OnError::Skip);
    let mut trial = Trial::new(make, PoolRecord::new(), set)?;
    let answers = trial.run(tasks(40, &[(3, TaskWork::Fail), (30, TaskWork::Fail)]))?;
    let expected = (0..40).filter(|number| ![3, 30].contains(number));
    ensure!(answers.numbers().into_iter().eq(expected), "skipped items leave no gap in the order");

    let mut trial = Trial::plain(make, Order::Completion)?;
    let mut numbers = trial.run(passing(0..200))?.numbers();
    numbers.sort_unstable();
    ensure!(numbers.into_iter().eq(0..200), "an item is lost or consumed twice");
    Ok(())
}

fn check_failures_in_order<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    // A later item fails, while the one that fails first in order is still in its hook.
    let gate = HookGate::new()?;
    let mut trial = Trial::new(make, PoolRecord::new(), |builder| builder.window(8))?;
    let some = [(4, TaskWork::WaitAndFail(gate.port()?)), (6, TaskWork::Fail)];
    let outcome = trial.run_while(tasks(300, &some), &gate, |record| {
        let _visitor = gate.arrival()?;
        // No more may come: after item 6 has failed, nothing is pulled.
        record.wait_until(|progress| progress.pulled >= 7);
        Ok(())
    })?;
    let error = failed(outcome, "items 4 and 6 failed")?;
    ensure!(error.item() == Some(4), "item 4 fails first in order: {}", text_of(&error));
    let consumed = trial.record.progress().consumed.clone();
    ensure!(
        consumed.iter().copied().eq(0..4),
        "those before item 4 are consumed, and none after it, but it is {consumed:?}"
    );
    let pulled = trial.record.progress().pulled;
    ensure!(pulled <= 12, "{pulled} items were pulled in a window of 8, although item 4 failed");
    Ok(())
}

pub(super) fn prompt<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        for batch in [None, Some(Batch::up_to(4))] {
            let set = |builder: Setup<R>| match batch {
                Some(batch) => builder.order(order).batch(batch),
                None => builder.order(order),
            };
            let mut trial = Trial::new(make, PoolRecord::new(), set)?;
            // The input gives an item when the one before is consumed.
            let record = trial.record.clone();
            let slow = passing(0..12).into_iter().inspect(|task| {
                let earlier = task.number() as usize;
                record.wait_until(|progress| progress.consumed.len() >= earlier);
            });
            let count = trial.pool.run(slow)?.all.len();
            ensure!(count == 12, "{count} of 12 items of a slow input came");
        }
    }
    // One item is slow. All others are done meanwhile.
    for slow in [0, 5] {
        let gate = HookGate::new()?;
        let set = |builder: Setup<R>| builder.order(Order::Completion).window(20);
        let mut trial = Trial::new(make, PoolRecord::new(), set)?;
        let some = [(slow, TaskWork::Wait(gate.port()?))];
        let outcome = trial.run_while(tasks(20, &some), &gate, |record| {
            let _visitor = gate.arrival()?;
            record.wait_until(|progress| progress.consumed.len() >= 19);
            ensure!(!record.progress().consumed.contains(&slow), "a hook that waits has a result");
            Ok(())
        })?;
        ensure!(outcome?.all.len() == 20, "an item beside a slow one is lost");
    }
    Ok(())
}

pub(super) fn batched<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        let set = |builder: Setup<R>| {
            builder.order(order).batch(Batch::of(4)).window(16).on_error(OnError::Skip)
        };
        let mut trial = Trial::new(make, PoolRecord::new(), set)?;
        let answers = trial.run(tasks(24, &[(9, TaskWork::Fail)]))?;
        check_account(&trial, 24, 23, 1)?;
        let alone = answers.all.iter().filter(|answer| answer.batch != 4).count();
        ensure!(alone == 0, "{alone} items came to a hook in batches that are not of 4 items");
        let misnamed = answers.all.iter().find(|answer| answer.item != Some(answer.number));
        ensure!(misnamed.is_none(), "in a batch, cx.at(i) is not of item i: {misnamed:?}");
    }
    Ok(())
}
