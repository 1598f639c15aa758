//! The laws about the life of a pool: no hang, paired, cancel, clean, panics.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};
use gangline_scheduler::OnError;

use super::gate::HookGate;
use super::probe::{Answer, Answers, Task, TaskWork, panic_text};
use super::record::{Act, PoolRecord};
use super::trial::{BOTH, Make, Setup, Trial, ensure, failed, passing, tasks, text_of};
use crate::base::{Order, Result};
use crate::runner::Runner;

pub(super) fn no_hang<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        for fault in [TaskWork::Fail, TaskWork::Panic] {
            for at in [0, 25] {
                let mut trial = Trial::plain(make, order)?;
                failed(trial.run(tasks(60, &[(at, fault)])), "a hook of a producer failed")?;
                trial.check_next_run()?;
            }
        }
        for act in [Act::Fail, Act::Panic] {
            let mut trial =
                Trial::new(make, PoolRecord::with_act(40, act), |builder| builder.order(order))?;
            failed(trial.run(passing(0..60)), "consumer_work failed")?;
            trial.check_next_run()?;
        }
        let mut trial = Trial::plain(make, order)?;
        let mut left = 20;
        let torn = std::iter::from_fn(|| {
            left -= 1;
            if left == 0 {
                panic!("the input panics on purpose")
            }
            Some(Task::new(left, TaskWork::Pass))
        });
        let error = failed(trial.pool.run(torn), "its input panicked")?;
        ensure!(error.is_input(), "the input panicked: {}", text_of(&error));
        trial.check_next_run()?;
        let taken = trial.pool.outputs(passing(0..60)).take(3).filter(|it| it.is_ok()).count();
        ensure!(taken == 3, "outputs() yields {taken} of 3 results");
        trial.check_next_run()?;

        let set = |builder: Setup<R>| {
            builder.order(order).retries(1).backoff(Duration::ZERO, Duration::ZERO)
        };
        let mut trial = Trial::new(make, PoolRecord::new(), set)?;
        let some = [(0, TaskWork::FailAtFirst), (17, TaskWork::FailAtFirst)];
        let answers = trial.run(tasks(30, &some))?;
        ensure!(answers.all.len() == 30, "{} of 30 items came", answers.all.len());
        let second = answers.all.iter().filter(|answer| answer.attempt == 2).count();
        ensure!(second == 2, "2 items pass at their second attempt, but it is {second}");
    }
    Ok(())
}

pub(super) fn paired<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    let notes = Notes::new()?;
    let mut trial = Trial::new(make, PoolRecord::with_notes(&notes.folder), |builder| builder)?;
    trial.run(passing(0..20))?;
    let ends = trial.record.progress().ends;
    ensure!(ends == 1, "consumer_end was called {ends} times in a run that succeeded");
    failed(trial.run(tasks(20, &[(5, TaskWork::Fail)])), "a hook failed")?;
    let ends = trial.record.progress().ends;
    ensure!(ends == 0, "consumer_end was called in a run that failed");
    trial.run(vec![])?;
    let ends = trial.record.progress().ends;
    ensure!(ends == 1, "consumer_end was called {ends} times in a run without items");
    let producers = trial.pool.devices().len();
    notes.check(producers, 0)?;
    trial.pool.close()?;
    notes.check(0, producers)?;
    trial.pool.activate()?;
    trial.check_next_run()?;
    drop(trial);
    notes.check(0, 2 * producers)?;

    let record = PoolRecord::with_act(10, Act::Stop);
    let mut trial = Trial::new(make, record, |builder| builder)?;
    trial.run(passing(0..60))?;
    let ends = trial.record.progress().ends;
    ensure!(ends == 1, "consumer_end was called {ends} times in a run that was stopped");
    Ok(())
}

pub(super) fn cancelled<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        // A hook that looks at `is_cancelled` is in an item.
        let mut trial = Trial::plain(make, order)?;
        let (gate, token) = (HookGate::new()?, trial.pool.cancel_token());
        let endless = tasks(60, &[(3, TaskWork::UntilCancelled(gate.port()?))]);
        let outcome = trial.run_while(endless, &gate, |_| {
            let visitor = gate.arrival();
            token.cancel();
            drop(visitor?);
            Ok(())
        })?;
        let error = failed(outcome, "it was cancelled")?;
        ensure!(error.is_cancelled(), "it was cancelled: {}", text_of(&error));
        let ends = trial.record.progress().ends;
        ensure!(ends == 0, "consumer_end was called in a run that was cancelled");
        trial.check_next_run()?;

        // The input is endless.
        let (record, token) = (trial.record.clone(), trial.pool.cancel_token());
        record.change(|progress| *progress = Default::default());
        let endless = (0..).map(|number| {
            record.pull();
            if number == 30 {
                token.cancel();
            }
            Task::new(number, TaskWork::Pass)
        });
        let error = failed(trial.pool.run(endless), "it was cancelled")?;
        ensure!(error.is_cancelled(), "it was cancelled: {}", text_of(&error));
        let pulled = trial.record.progress().pulled;
        ensure!(pulled == 31, "{pulled} items were pulled, although the 31st cancelled the run");
        trial.check_next_run()?;

        let token = trial.pool.cancel_token();
        let drained = (0..).map(|number| {
            if number == 30 {
                token.drain();
            }
            Task::new(number, TaskWork::Pass)
        });
        let count = trial.pool.run(drained)?.all.len();
        ensure!(count == 31, "31 items were pulled before a drain, {count} were completed");
    }
    Ok(())
}

pub(super) fn clean<R>(make: &Make<R>, limit: Duration) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for fault in [None, Some(TaskWork::Fail), Some(TaskWork::Panic)] {
        let (alive, gone) = bounded::<()>(0);
        let mut trial = Trial::new(make, PoolRecord::with_alive(alive), |builder| builder)?;
        let faults: Vec<_> = fault.map(|fault| (5, fault)).into_iter().collect();
        let outcome = trial.run(tasks(20, &faults));
        ensure!(outcome.is_ok() == fault.is_none(), "a run with {fault:?} is {outcome:?}");
        trial.check_next_run()?;
        trial.pool.close()?;
        drop((trial, outcome));
        match gone.recv_timeout(limit / 2) {
            Err(RecvTimeoutError::Disconnected) => {}
            _ => {
                let left = "the runner, or a thread on which its hooks ran";
                return Err(format!("after close and drop, {left} is still there").into());
            }
        }
    }
    Ok(())
}

pub(super) fn panics<R>(make: &Make<R>) -> Result<()>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    for order in BOTH {
        let set = |builder: Setup<R>| builder.order(order).on_error(OnError::Skip);
        let mut trial = Trial::new(make, PoolRecord::new(), set)?;
        let guilty = [0, 9, 10, 11];
        let answers = trial.run(tasks(60, &guilty.map(|number| (number, TaskWork::Panic))))?;
        let tainted = answers.all.iter().find(|answer| answer.is_tainted);
        ensure!(tainted.is_none(), "a state that saw a panic is used again: {tainted:?}");
        ensure!(answers.all.len() == 56, "56 of 60 items pass, {} came", answers.all.len());
        for item in guilty {
            let error = trial.pool.failures().iter().find(|error| error.item() == Some(item));
            let Some(error) = error else { return Err(format!("no error of item {item}").into()) };
            let shown = text_of(error);
            let is_its = error.is_panic() && shown.contains(&panic_text(item));
            ensure!(is_its, "item {item} panicked, but its error is: {shown}");
        }
    }
    let mut trial = Trial::plain(make, Order::Input)?;
    let error = failed(trial.run(tasks(20, &[(5, TaskWork::Panic)])), "a hook panicked")?;
    ensure!(error.item() == Some(5), "item 5 panicked: {}", text_of(&error));
    trial.check_next_run()
}

/// A folder in which each living state has a file.
#[derive(Debug)]
struct Notes {
    folder: PathBuf,
}

impl Notes {
    fn new() -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gangline-conformance-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder)?;
        Ok(Notes { folder })
    }

    fn check(&self, alive: usize, ended: usize) -> Result<()> {
        let count = |extension| count_files(&self.folder, extension);
        let seen = (count("begun")?, count("ended")?);
        ensure!(
            seen == (alive, ended),
            "{alive} states are alive and producer_end was called for {ended}, but it is {seen:?}"
        );
        Ok(())
    }
}

fn count_files(folder: &Path, extension: &str) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(folder)? {
        count += usize::from(entry?.path().extension().is_some_and(|it| it == extension));
    }
    Ok(count)
}

impl Drop for Notes {
    fn drop(&mut self) {
        // A file that stays is in the folder of temporary files.
        _ = fs::remove_dir_all(&self.folder);
    }
}
