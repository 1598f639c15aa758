//! Runners in a forked child. A binary of its own: a child has a copy of every lock that another test's thread holds.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fork::{Fork, fork, waitpid};
use gangline::service::{SendError, StreamOptions};
use gangline::{
    Batch, Error, OrderedRunner, Pipeline, ProducerContext, Result, Runner, UnorderedRunner, map,
    sink,
};
use rustix::process::{Pid, Signal, kill_process};

/// Generous, since it only tells a hang from a slow machine.
const LIMIT: Duration = Duration::from_secs(60);

/// One test at a time: at a fork no thread of another test holds a lock that the child needs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `f` in a forked child, and fails if the child panics or hangs.
#[track_caller]
fn in_child(f: impl FnOnce()) {
    let child = match fork().unwrap() {
        Fork::Child => {
            let outcome = catch_unwind(AssertUnwindSafe(f));
            std::process::exit(i32::from(outcome.is_err()));
        }
        Fork::Parent(child) => child,
    };
    let (done, ended) = channel();
    let waiting = thread::spawn(move || done.send(waitpid(child).unwrap()));
    let Ok(status) = ended.recv_timeout(LIMIT) else {
        kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
        panic!("the child hangs");
    };
    waiting.join().unwrap().unwrap();
    assert_eq!(status, 0, "the child has failed");
}

#[track_caller]
fn is_refused<T>(result: Result<T, Error>) {
    match result {
        Err(Error::Forked { built_in, here, .. }) => {
            assert_ne!(built_in, here);
            assert_eq!(here, std::process::id());
        }
        Err(error) => panic!("another error: {error}"),
        Ok(_) => panic!("it ran without threads"),
    }
}

/// Squares numbers, and removes a file when it is dropped.
struct Squares(Option<PathBuf>);

impl Runner for Squares {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        Ok(x * x)
    }
    fn consumer_init(&self, _: &gangline::ConsumerContext<'_>) -> Result<Vec<u64>> {
        Ok(vec![])
    }
    fn consumer_work(
        &self,
        _: &gangline::ConsumerContext<'_>,
        squares: &mut Vec<u64>,
        square: u64,
    ) -> Result<()> {
        squares.push(square);
        Ok(())
    }
    fn consumer_end(
        &self,
        _: &gangline::ConsumerContext<'_>,
        squares: Vec<u64>,
    ) -> Result<Vec<u64>> {
        Ok(squares)
    }
}

impl Drop for Squares {
    fn drop(&mut self) {
        self.0.take().map(std::fs::remove_file);
    }
}

fn squares() -> OrderedRunner<Squares> {
    OrderedRunner::new(Squares(None), 2).unwrap()
}

#[test]
fn a_pool_is_refused_in_a_child_and_serves_its_parent() {
    let _alone = alone();
    let mut pools = Some((squares(), squares()));
    let (pool, _) = pools.as_mut().unwrap();
    assert_eq!(pool.run(0..4).unwrap(), [0, 1, 4, 9]);
    in_child(|| {
        let (mut pool, owned) = pools.take().unwrap();
        is_refused(pool.run(0..4));
        is_refused(pool.try_run([Ok::<_, std::fmt::Error>(1)]));
        is_refused(pool.run_with_report(0..4).0);
        let mut outputs = pool.outputs(0..4);
        is_refused(outputs.next().unwrap());
        assert!(outputs.next().is_none());
        drop(outputs);
        let mut outputs = owned.into_outputs(0..4);
        is_refused(outputs.next().unwrap());
        is_refused(outputs.into_pool().run(0..4));
    });
    let (mut pool, _) = pools.unwrap();
    assert_eq!(pool.run(0..4).unwrap(), [0, 1, 4, 9]);
}

#[test]
fn pools_of_every_setting_are_dropped_in_a_child() {
    let _alone = alone();
    let limited = || {
        let builder = OrderedRunner::builder(Squares(None)).devices(3);
        builder.item_timeout(LIMIT).end_timeout(LIMIT).batch(Batch::of(4)).build().unwrap()
    };
    let (mut timed, unused) = (limited(), limited());
    assert_eq!(timed.run(0..3).unwrap(), [0, 1, 4]);
    let mut closed = UnorderedRunner::new(Squares(None), 1).unwrap();
    closed.close().unwrap();
    in_child(move || {
        is_refused(timed.run(0..3));
        drop((timed, unused));
        assert!(closed.run(0..3).unwrap_err().is_closed());
        closed.activate().unwrap();
        assert_eq!(closed.run(0..3).unwrap().len(), 3);
    });
}

#[test]
fn a_pool_that_is_opened_again_in_a_child_runs_there() {
    let _alone = alone();
    let mut pool = squares();
    in_child(|| {
        is_refused(pool.run(0..3));
        pool.close().unwrap();
        pool.activate().unwrap();
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 4]);
        pool.close().unwrap();
    });
    assert_eq!(pool.run(0..3).unwrap(), [0, 1, 4]);
}

#[test]
fn outputs_in_progress_end_in_a_child_and_go_on_in_its_parent() {
    let _alone = alone();
    let (mut pool, mut first, mut second) = (squares(), squares(), squares());
    let mut outputs = pool.outputs(0..100);
    let mut owned = squares().into_outputs(0..100);
    let mut pipeline = Pipeline::new(&mut first).then(&mut second);
    let mut last = pipeline.outputs(0..100);
    assert_eq!(outputs.next().unwrap().unwrap(), 0);
    assert_eq!(owned.next().unwrap().unwrap(), 0);
    assert_eq!(last.next().unwrap().unwrap(), 0);
    in_child(|| {
        is_refused(outputs.by_ref().find(Result::is_err).unwrap());
        is_refused(owned.by_ref().find(Result::is_err).unwrap());
        is_refused(last.by_ref().find(Result::is_err).unwrap());
        assert!(outputs.next().is_none() && owned.next().is_none() && last.next().is_none());
        drop((outputs, owned, last));
    });
}

#[test]
fn outputs_in_progress_are_dropped_in_a_child() {
    let _alone = alone();
    let (mut pool, mut first, mut second) = (squares(), squares(), squares());
    let mut pipeline = Pipeline::new(&mut first).then(&mut second);
    let all = (pool.outputs(0..100), squares().into_outputs(0..100), pipeline.outputs(0..100));
    let mut child_has = Some(all);
    in_child(|| drop(child_has.take()));
    let (outputs, owned, last) = child_has.unwrap();
    assert_eq!([outputs.count(), owned.count(), last.count()], [100; 3]);
}

#[test]
fn a_pipeline_is_refused_in_a_child() {
    let _alone = alone();
    let (mut first, mut second, mut third) = (squares(), squares(), squares());
    in_child(|| {
        let mut pipeline = Pipeline::new(&mut first).then(&mut second).then(&mut third);
        is_refused(pipeline.run(0..4));
        let mut outputs = pipeline.outputs(0..4);
        is_refused(outputs.next().unwrap());
        assert!(outputs.next().is_none());
        drop(outputs);
        drop(pipeline);
        // A pipeline of a stage of the child and a stage of its parent is refused too.
        let mut own = squares();
        is_refused(Pipeline::new(&mut own).then(&mut second).run(0..4));
        assert_eq!(own.run(0..2).unwrap(), [0, 1]);
    });
    assert_eq!(first.then(&mut second).run(0..3).unwrap(), [0, 1, 16]);
}

#[test]
fn a_service_is_refused_in_a_child_and_serves_its_parent() {
    let _alone = alone();
    let service = squares().into_service();
    let ticket = service.try_submit(3).unwrap();
    in_child(|| {
        is_refused(service.call(3));
        is_refused(service.with_deadline(LIMIT).call(3));
        is_refused(service.try_submit(3).unwrap().wait());
        is_refused(smol::block_on(service.call_async(3)));
        for ticket in service.try_submit_all(vec![3, 4]).unwrap() {
            is_refused(ticket.wait());
        }
        is_refused(ticket.wait());
        service.drain(LIMIT);
        is_refused(service.into_pool().unwrap().run(0..3));
    });
}

#[test]
fn a_call_without_an_answer_is_refused_where_its_first_wait_is_in_a_child() {
    let _alone = alone();
    let gate = Arc::new(Barrier::new(2));
    let passed = gate.clone();
    let work = map(
        |_| Ok(()),
        move |_, _, x: u64| {
            passed.wait();
            Ok(x * x)
        },
    );
    let service = OrderedRunner::new(work, 1).unwrap().into_service();
    let (mut call, mut other) = (Some(service.call_async(3)), Some(service.try_submit(4).unwrap()));
    in_child(|| {
        is_refused(smol::block_on(call.take().unwrap()));
        is_refused(smol::block_on(other.take().unwrap()));
    });
    gate.wait();
    assert_eq!(smol::block_on(call.unwrap()).unwrap(), 9);
    gate.wait();
    assert_eq!(smol::block_on(other.unwrap()).unwrap(), 16);
}

#[test]
fn a_service_is_dropped_in_a_child_and_serves_its_parent() {
    let _alone = alone();
    let service = squares().into_service();
    let mut child_has = Some((service.clone(), service.try_submit(3).unwrap()));
    in_child(|| drop(child_has.take()));
    let (_, ticket) = child_has.unwrap();
    assert_eq!(ticket.wait().unwrap(), 9);
    assert_eq!(service.call(4).unwrap(), 16);
    in_child(|| drop(service));
}

#[test]
fn a_stream_of_a_service_ends_in_a_child_and_goes_on_in_its_parent() {
    let _alone = alone();
    let service = squares().into_service();
    let (mut sender, mut results) = service.open_stream(StreamOptions::new().window(4));
    sender.send_some(vec![0, 1, 2]).unwrap();
    assert_eq!(results.next().unwrap().result.unwrap(), 0);
    let mut child_has = Some((sender, results));
    in_child(|| {
        let (mut sender, mut results) = child_has.take().unwrap();
        assert_eq!((sender.room(), sender.send(3)), (0, Err(SendError(3))));
        assert!(results.wait_until(Instant::now() + LIMIT), "it need not wait");
        is_refused(results.next().unwrap().result);
        assert!(results.next().is_none() && results.take_ready(1).is_empty());
        drop((sender, results));
        let (sender, mut results) = service.open_stream(StreamOptions::new());
        assert_eq!(sender.room(), 0);
        is_refused(results.take_ready(9).pop().unwrap().result);
        assert!(results.next().is_none());
        is_refused(service.stream(0..3).next().unwrap());
    });
    let (mut sender, results) = child_has.unwrap();
    sender.send(3).unwrap();
    sender.finish();
    assert!(results.map(|next| next.result.unwrap()).eq([1, 4, 9]));
    let (mut sender, results) = service.open_stream(StreamOptions::new());
    sender.send(5).unwrap();
    let mut child_has = Some((sender, results));
    in_child(|| drop(child_has.take()));
    drop(child_has);
    assert_eq!(service.call(4).unwrap(), 16);
}

#[test]
fn a_child_leaves_the_files_of_its_parent() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let kept = folder.path().join("kept");
    std::fs::write(&kept, "of the parent").unwrap();
    let pool = OrderedRunner::new(Squares(Some(kept.clone())), 2).unwrap();
    let mut file = sink::atomic_file(folder.path().join("file")).unwrap();
    let part = sink::atomic_dir(folder.path().join("folder")).unwrap();
    std::fs::write(part.path().join("one"), "1").unwrap();
    file.write_all(b"once\n").unwrap();
    let mut child_has = Some((pool, file, part));
    in_child(|| drop(child_has.take()));
    let (pool, file, part) = child_has.unwrap();
    assert!(kept.exists());
    file.commit().unwrap();
    part.commit().unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "once\n");
    assert_eq!(std::fs::read_to_string(folder.path().join("folder/one")).unwrap(), "1");
    drop(pool);
    assert!(!kept.exists(), "the parent ends its own pool");
}

#[test]
fn a_child_that_panics_drops_its_pool() {
    let _alone = alone();
    let pool = squares();
    in_child(move || {
        let unwound = catch_unwind(AssertUnwindSafe(move || {
            let _pool = pool;
            std::panic::resume_unwind(Box::new("the child's own panic"));
        }));
        assert!(unwound.is_err());
    });
}

#[test]
fn a_child_of_a_child_is_refused_too() {
    let _alone = alone();
    let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)), 1).unwrap();
    in_child(|| {
        in_child(|| is_refused(pool.run([1])));
        is_refused(pool.run([1]));
    });
    assert_eq!(pool.run([1]).unwrap(), [2]);
}

mod streams {
    use futures_lite::StreamExt;
    use futures_lite::stream::{iter, pending};

    use super::*;

    #[test]
    fn streams_are_refused_in_a_child() {
        let _alone = alone();
        let (mut pool, mut next) = (squares(), squares());
        in_child(|| {
            smol::block_on(async {
                is_refused(pool.run_stream(iter(0..4)).await);
                let mut outputs = pool.outputs_stream(iter(0..4));
                is_refused(outputs.next().await.unwrap());
                assert!(outputs.next().await.is_none());
                drop(outputs);
                let mut pipeline = Pipeline::new(&mut pool).then(&mut next);
                is_refused(pipeline.run_stream(iter(0..4)).await);
                let mut outputs = pipeline.outputs_stream(iter(0..4));
                is_refused(outputs.next().await.unwrap());
                assert!(outputs.next().await.is_none());
            });
        });
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 4]);
    }

    #[test]
    fn streams_in_progress_end_in_a_child() {
        let _alone = alone();
        let mut pools: Vec<_> = (0..6).map(|_| squares()).collect();
        let [a, b, c, d, e, f] = &mut pools[..] else { unreachable!() };
        let endless = || iter(0..3).chain(pending());
        let mut outputs = a.outputs_stream(endless());
        let mut run = Box::pin(b.run_stream(endless()));
        let mut first = Pipeline::new(&mut *c).then(d);
        let mut last = first.outputs_stream(endless());
        let mut second = Pipeline::new(&mut *e).then(f);
        let mut whole = Box::pin(second.run_stream(endless()));
        smol::block_on(async {
            assert_eq!(outputs.next().await.unwrap().unwrap(), 0);
            assert_eq!(last.next().await.unwrap().unwrap(), 0);
            assert!(futures_lite::future::poll_once(&mut run).await.is_none());
            assert!(futures_lite::future::poll_once(&mut whole).await.is_none());
        });
        in_child(|| {
            smol::block_on(async {
                is_refused(outputs.next().await.unwrap());
                is_refused(last.next().await.unwrap());
                is_refused(run.as_mut().await);
                is_refused(whole.as_mut().await);
                assert!(outputs.next().await.is_none() && last.next().await.is_none());
            });
            drop((outputs, run, last, whole));
        });
    }
}
