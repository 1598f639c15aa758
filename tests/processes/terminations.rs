//! Services and runs that end at once.

use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

use gangline::process::Processes;
use gangline::{CfgNode, OrderedRunner, Service, Terminator, each};

use crate::chores::{CHORES, Chore, Chores, await_end, pid_in, squares};
use crate::suite::tests;

tests![
    a_termination_kills_hooks_and_answers_all_callers,
    a_termination_ends_a_close_that_waits_for_a_hook,
    a_termination_ends_a_close_that_waits_for_an_end,
    a_termination_ends_an_init,
    a_service_may_be_terminated_twice,
    a_terminator_kills_the_hooks_of_a_run,
    a_terminator_kills_the_hooks_of_all_stages,
    a_terminated_pool_begins_no_run,
];

/// A service that waits for hooks as long as they take.
fn service(producers: usize, cfg: CfgNode) -> Service<Chores> {
    let builder = OrderedRunner::builder(Chores::new()).devices(producers).cfg(cfg);
    let builder = builder.processes(&CHORES, Processes::new().kill_after(None));
    builder.build().unwrap().into_service()
}

/// Has a hook go on for ever, and returns once it has begun: with its call.
fn begin(service: &Service<Chores>, path: PathBuf) -> gangline::service::Ticket<Chores> {
    let ticket = service.try_submit(Chore::HangOn(path.clone())).unwrap();
    pid_in(&path);
    ticket
}

fn a_termination_kills_hooks_and_answers_all_callers() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let service = service(2, CfgNode::new());
    let hangs = [path("first"), path("second")].map(|path| begin(&service, path));
    let waits = service.try_submit(Chore::Pid).unwrap();
    let stream = service.stream(squares(0..100));
    thread::scope(|scope| {
        let calling = scope.spawn(|| service.call(Chore::Pid));
        let streaming = scope.spawn(move || stream.collect::<Vec<_>>());
        service.terminate().unwrap();
        // Either it had begun, or it found the service closed.
        let error = calling.join().unwrap().unwrap_err();
        assert!(error.is_cancelled() || error.is_closed(), "{error:?}");
        assert!(streaming.join().unwrap().iter().all(Result::is_err));
    });
    for ticket in hangs.into_iter().chain([waits]) {
        assert!(ticket.wait().unwrap_err().is_cancelled());
    }
    for name in ["first", "second"] {
        let pid = pid_in(&path(name));
        assert!(rustix::process::test_kill_process(pid).is_err(), "{pid:?} is there");
    }
    assert!(service.call(Chore::Pid).unwrap_err().is_closed());
    service.close().unwrap();
}

fn a_termination_ends_a_close_that_waits_for_a_hook() {
    let directory = tempfile::tempdir().unwrap();
    let service = service(1, CfgNode::new());
    let hangs = begin(&service, directory.path().join("pid"));
    thread::scope(|scope| {
        let closing = scope.spawn(|| service.close());
        assert!(hangs.wait().unwrap_err().is_closed(), "the close has begun");
        service.terminate().unwrap();
        closing.join().unwrap().unwrap();
    });
    await_end(pid_in(&directory.path().join("pid")));
}

fn a_termination_ends_a_close_that_waits_for_an_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pid");
    let cfg = CfgNode::new().with("end", "hang").unwrap().with("note", &path).unwrap();
    let service = service(1, cfg);
    thread::scope(|scope| {
        let closing = scope.spawn(|| service.close());
        pid_in(&path);
        service.terminate().unwrap();
        closing.join().unwrap().unwrap();
    });
    await_end(pid_in(&path));
}

/// Of a process that takes the place of one that has crashed.
fn a_termination_ends_an_init() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let cfg = CfgNode::new().with("gate", path("gate")).unwrap();
    let cfg = cfg.with("starts", path("starts")).unwrap();
    std::fs::write(path("gate"), "open").unwrap();
    let service = service(1, cfg);
    std::fs::remove_file(path("gate")).unwrap();
    service.call(Chore::Abort).unwrap_err();
    let waits = service.try_submit(Chore::Pid).unwrap();
    while std::fs::read_to_string(path("starts")).unwrap() != "xx" {
        thread::yield_now();
    }
    service.terminate().unwrap();
    assert!(waits.wait().unwrap_err().is_cancelled());
}

fn a_service_may_be_terminated_twice() {
    let service = service(1, CfgNode::new());
    let pid = service.call(Chore::Pid).unwrap();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| service.terminate().unwrap());
        }
    });
    assert!(!std::path::Path::new("/proc").join(pid).exists());
    service.terminate().unwrap();
    assert!(service.call(Chore::Pid).unwrap_err().is_closed());
}

/// A pool that waits for hooks as long as they take.
fn pool(producers: usize) -> OrderedRunner<Chores> {
    let builder = OrderedRunner::builder(Chores::new()).devices(producers);
    builder.processes(&CHORES, Processes::new().kill_after(None)).build().unwrap()
}

fn a_terminator_kills_the_hooks_of_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["first", "second"].map(|name| directory.path().join(name));
    let mut pool = pool(2);
    let terminator = pool.terminator();
    thread::scope(|scope| {
        let running = scope.spawn(|| pool.run(paths.clone().map(Chore::HangOn)));
        let pids = paths.each_ref().map(|path| pid_in(path));
        terminator.terminate();
        assert!(running.join().unwrap().unwrap_err().is_cancelled());
        pids.into_iter().for_each(await_end);
    });
    assert!(pool.run([Chore::Pid]).unwrap_err().is_closed());
    pool.close().unwrap();
}

fn a_terminator_kills_the_hooks_of_all_stages() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["first", "second"].map(|name| directory.path().join(name));
    let [first, second] = paths.clone().map(Chore::HangOn);
    let second = Mutex::new(Some(second));
    let between = each(move |_: String| Ok(second.lock().unwrap().take().unwrap_or(Chore::Pid)));
    let pools = [pool(1), pool(1)];
    let terminators = pools.each_ref().map(OrderedRunner::terminator);
    let [before, behind] = pools;
    let mut pipeline = before.then(OrderedRunner::new(between, 1).unwrap()).then(behind);
    thread::scope(|scope| {
        let running = scope.spawn(|| pipeline.run([Chore::Pid, first]));
        let pids = paths.each_ref().map(|path| pid_in(path));
        terminators.iter().for_each(Terminator::terminate);
        assert!(running.join().unwrap().unwrap_err().is_cancelled());
        pids.into_iter().for_each(await_end);
    });
    pipeline.close().unwrap();
}

/// The request to its token alone would end one run only.
fn a_terminated_pool_begins_no_run() {
    let mut pool = pool(1);
    let terminator = pool.terminator();
    let pid = pool.run([Chore::Pid]).unwrap();
    terminator.clone().terminate();
    terminator.terminate();
    for _ in 0..2 {
        let error = pool.run([Chore::Pid]).unwrap_err();
        assert!(error.is_closed(), "{error:?} of {pid:?}");
    }
    drop(pool);
    terminator.terminate();
}
