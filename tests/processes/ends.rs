//! How processes end.

use std::time::Duration;

use gangline::error::BuildError;
use gangline::{CfgNode, Error, Hook};

use crate::chores::{Chore, await_end, builder, squares, tests};

tests![
    each_state_is_ended_once,
    a_crash_in_the_end_is_reported,
    an_end_that_hangs_is_killed,
    states_are_not_recycled,
    a_dropped_pool_leaves_no_process,
    a_worker_cannot_build_workers,
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

fn states_are_not_recycled() {
    let error = builder(1).recycle_after(2).build().unwrap_err();
    assert!(matches!(error, Error::Build(BuildError::RecycledProcesses { .. })), "{error:?}");
}

fn a_dropped_pool_leaves_no_process() {
    let mut pool = builder(2).build().unwrap();
    let pids = pool.run([Chore::Pid, Chore::Pid, Chore::Pid]).unwrap();
    drop(pool);
    for pid in pids {
        await_end(rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap());
    }
}

fn a_worker_cannot_build_workers() {
    let mut pool = builder(1).build().unwrap();
    let error = pool.run([Chore::Build]).unwrap_err();
    assert!(format!("{error:#}").contains("a worker cannot start workers"), "{error:#}");
}
