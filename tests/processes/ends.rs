//! How processes end.

use std::path::PathBuf;
use std::time::Duration;

use gangline::closures::BoxRunner;
use gangline::process::{Processes, Recipe};
use gangline::{
    Batch, CancelToken, CfgNode, Error, Hook, OnError, OrderedRunner, ProducerContext, Result,
};

use crate::chores::{CHORES, Chore, Chores, await_end, builder, pid_in, squared, squares};
use crate::suite::tests;

tests![
    each_state_is_ended_once,
    a_runner_is_dropped_behind_its_last_state,
    a_crash_in_the_end_is_reported,
    an_end_that_hangs_is_killed,
    a_process_is_ended_after_its_number_of_items_for_another,
    no_process_has_more_items_than_that_also_of_those_sent_ahead,
    an_end_between_two_items_that_crashes_is_reported_at_the_end,
    an_end_between_two_items_that_hangs_is_killed,
    a_run_that_is_cancelled_while_a_process_ends_is_over_soon,
    a_dropped_pool_leaves_no_process,
    a_hook_starts_workers_of_its_own,
];

fn each_state_is_ended_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("end");
    let cfg = CfgNode::new().with("end", &path).unwrap();
    let mut pool = builder(1).cfg(cfg).build().unwrap();
    pool.run(squares(0..5)).unwrap();
    assert!(!path.exists());
    pool.close().unwrap();
    assert_eq!(std::fs::read_to_string(path).unwrap(), "0");
}

type Noting = BoxRunner<u64, u64, Vec<u64>>;

/// A runner that writes into the file `note` when it is dropped.
pub static NOTING: Recipe<Noting> = Recipe::new("noting", make_noting);

struct Note(Option<PathBuf>);

impl Drop for Note {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            std::fs::write(path, "dropped").unwrap();
        }
    }
}

fn make_noting(cfg: &CfgNode) -> Result<Noting> {
    let note = Note(cfg.get_or("note", None)?);
    let work = move |_: &ProducerContext<'_>, (): &mut (), items: &mut Vec<u64>| {
        assert!(note.0.as_ref().is_none_or(|path| !path.exists()), "it is in use");
        Ok(items.drain(..).map(Ok).collect())
    };
    Ok(BoxRunner::new(gangline::map_batches(|_| Ok(()), work)))
}

fn a_runner_is_dropped_behind_its_last_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("note");
    let builder = OrderedRunner::builder(make_noting(&CfgNode::new()).unwrap()).devices(1);
    let builder = builder.cfg(CfgNode::new().with("note", &path).unwrap()).batch(Batch::of(4));
    let mut pool = builder.processes(&NOTING, Processes::new()).build().unwrap();
    assert_eq!(pool.run(0..100).unwrap().len(), 100);
    assert!(!path.exists());
    pool.close().unwrap();
    assert!(path.exists(), "the process has ended");
}

fn a_crash_in_the_end_is_reported() {
    let cfg = CfgNode::new().with("end", "abort").unwrap();
    let mut pool = builder(1).cfg(cfg).build().unwrap();
    let error = pool.close().unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerEnd));
    assert!(matches!(error, Error::HookCrashed { .. }), "{error:?}");
}

fn an_end_that_hangs_is_killed() {
    let cfg = CfgNode::new().with("end", "hang").unwrap();
    let limit = Duration::from_millis(100);
    let mut pool = builder(1).cfg(cfg).end_timeout(limit).build().unwrap();
    let pids = pool.run([Chore::Pid]).unwrap();
    let error = pool.close().unwrap_err();
    assert!(error.is_timeout() && error.hook() == Some(Hook::ProducerEnd), "{error:?}");
    await_end(rustix::process::Pid::from_raw(pids[0].parse().unwrap()).unwrap());
}

fn a_process_is_ended_after_its_number_of_items_for_another() {
    let directory = tempfile::tempdir().unwrap();
    let (starts, end) = (directory.path().join("starts"), directory.path().join("end"));
    let cfg = CfgNode::new().with("init", &starts).unwrap().with("end", &end).unwrap();
    let mut pool = builder(1).cfg(cfg).recycle_after(3).build().unwrap();
    let pids = pool.run((0..7).map(|_| Chore::Pid)).unwrap();
    let ages: Vec<_> = pids.chunk_by(|a, b| a == b).map(<[_]>::len).collect();
    assert_eq!(ages, [3, 3, 1]);
    assert!(end.exists(), "the hook was called");
    let report = pool.report();
    let producer = &report.producers[0];
    assert_eq!((producer.recycles, producer.rebuilds, producer.states_lost), (2, 0, 0), "{report}");
    let worker = producer.worker.as_ref().unwrap();
    assert_eq!((worker.restarts, worker.pid.unwrap().to_string()), (0, pids[6].clone()));
    assert_eq!(
        pool.run([Chore::Pid, Chore::Pid, Chore::Pid]).unwrap()[..2],
        [pids[6].clone(), pids[6].clone()]
    );
    assert_eq!(std::fs::read_to_string(starts).unwrap().len(), 4);
    pool.close().unwrap();
}

fn no_process_has_more_items_than_that_also_of_those_sent_ahead() {
    let mut pool = builder(3).window(64).recycle_after(10).on_error(OnError::Skip).build().unwrap();
    let items = (0..600).map(|n| if n % 97 == 96 { Chore::Abort } else { Chore::Pid });
    let mut ages = std::collections::BTreeMap::new();
    for pid in pool.run(items).unwrap() {
        *ages.entry(pid).or_insert(0) += 1;
    }
    assert_eq!((ages.values().sum::<u32>(), ages.values().max()), (594, Some(&10)));
    assert_eq!(pool.account().failed, 6);
    pool.close().unwrap();
}

fn an_end_between_two_items_that_crashes_is_reported_at_the_end() {
    let cfg = CfgNode::new().with("end", "abort").unwrap();
    let mut pool = builder(1).cfg(cfg).recycle_after(2).build().unwrap();
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    let error = pool.close().unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ProducerEnd), "{error:?}");
}

fn an_end_between_two_items_that_hangs_is_killed() {
    let cfg = CfgNode::new().with("end", "hang").unwrap();
    let limit = Duration::from_millis(100);
    let builder = builder(1).cfg(cfg).recycle_after(2).end_timeout(limit);
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    assert!(pool.close().unwrap_err().is_timeout());
}

fn a_run_that_is_cancelled_while_a_process_ends_is_over_soon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let cfg = CfgNode::new().with("end", "hang").unwrap().with("note", &path).unwrap();
    let token = CancelToken::new();
    let pool = OrderedRunner::builder(Chores::new()).devices(1).cfg(cfg);
    let pool = pool.recycle_after(2).cancel_token(token.clone());
    let processes = Processes::new().kill_after(Duration::from_millis(50));
    let mut pool = pool.processes(&CHORES, processes).build().unwrap();
    let cancelling = std::thread::spawn(move || {
        pid_in(&path);
        token.cancel();
    });
    assert!(pool.run(squares(0..5)).unwrap_err().is_cancelled());
    cancelling.join().unwrap();
}

fn a_dropped_pool_leaves_no_process() {
    let mut pool = builder(2).build().unwrap();
    let pids = pool.run([Chore::Pid, Chore::Pid, Chore::Pid]).unwrap();
    drop(pool);
    for pid in pids {
        await_end(rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap());
    }
}

fn a_hook_starts_workers_of_its_own() {
    let mut pool = builder(1).build().unwrap();
    let pids = pool.run([Chore::Pid, Chore::Build]).unwrap();
    assert_ne!(pids[0], pids[1]);
}
