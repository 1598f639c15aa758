//! The rayon pools of producers on the CPU.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use gangline::device::CpuThreads;
use gangline::error::BuildError;
use gangline::{
    AnyOrderRunner, Device, Devices, Error, Hook, Order, OrderedRunner, ProducerContext, Result,
    Runner,
};
use rayon::prelude::*;

use crate::probe::{Probe, output};
use crate::support::{Gate, map, no_hang};

/// A hook that sees its pool.
type Look<T> = fn(&ProducerContext<'_>) -> T;

/// What `look` gives for an item on each of `devices`, by their place.
fn look<T>(devices: &str, threads: CpuThreads, look: Look<T>) -> Vec<T>
where
    T: Clone + Send + 'static,
{
    let devices = devices.parse::<Devices>().unwrap().names_only();
    let all_have_one = Arc::new(Barrier::new(devices.len()));
    let count = devices.len();
    let hook = map(
        |_| Ok(()),
        move |cx, (), ()| {
            all_have_one.wait();
            Ok((cx.producer(), look(cx)))
        },
    );
    let mut runner =
        OrderedRunner::builder(hook).devices(devices).cpu_threads(threads).build().unwrap();
    let mut seen = runner.run(vec![(); count]).unwrap();
    runner.close().unwrap();
    seen.sort_by_key(|(worker, _)| *worker);
    seen.into_iter().map(|(_, value)| value).collect()
}

fn threads_seen(devices: &str, threads: impl Into<CpuThreads>) -> Vec<usize> {
    look(devices, threads.into(), |_| rayon::current_num_threads())
}

/// The name of the thread, and its place in its rayon pool.
fn who() -> (String, Option<usize>) {
    (thread::current().name().unwrap_or_default().to_owned(), rayon::current_thread_index())
}

fn nothing() -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> {
    map(|_| Ok(()), |_, (), x: u64| Ok(x))
}

fn cores() -> usize {
    let asked = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    asked.filter(|&threads| threads > 0).unwrap_or_else(num_cpus::get)
}

#[test]
fn each_producer_has_its_share_of_the_cores() {
    no_hang(|| {
        for producers in [1, 2, 3, cores(), cores() + 1] {
            let share = (cores() / producers).max(1);
            let seen = threads_seen(&format!("cpu*{producers}"), CpuThreads::Share);
            assert_eq!(seen, vec![share; producers]);
        }
    });
}

#[test]
fn shares_are_the_default() {
    no_hang(|| {
        let ask = map(|_| Ok(rayon::current_num_threads()), |_, seen, ()| Ok(*seen));
        let mut runner = OrderedRunner::new(ask, 2).unwrap();
        assert_eq!(runner.run([()]).unwrap(), [(cores() / 2).max(1)]);
    });
}

#[test]
fn exactly_as_many_as_asked_for() {
    no_hang(|| {
        assert_eq!(threads_seen("cpu*2", 1), [1, 1]);
        assert_eq!(threads_seen("cpu*2", 3), [3, 3]);
        assert_eq!(threads_seen("cpu", CpuThreads::Exactly(4)), [4]);
    });
}

#[test]
fn only_places_with_the_cpu_have_a_pool() {
    no_hang(|| {
        let own: Look<_> = |_| rayon::current_thread_index();
        let seen = look("cuda:0,cpu,cuda:1+cpu,metal:0", CpuThreads::Share, own);
        assert_eq!(seen, [None, Some(0), Some(0), None]);
        assert_eq!(look("cpu*2", CpuThreads::Global, own), [None, None]);
        assert_eq!(
            look("cpu,cuda:0", CpuThreads::Share, own),
            [None, None],
            "nobody to share with"
        );
        let threads: Look<_> = |cx| (*cx.device() == Device::Cpu, rayon::current_num_threads());
        let share = (cores() / 2).max(1);
        let seen = look("cuda:0*3,cpu*2", CpuThreads::Share, threads);
        assert_eq!(seen[3..], [(true, share), (true, share)], "GPUs take no share");
    });
}

#[test]
fn no_thread_at_all_is_refused() {
    no_hang(|| {
        let never = map(|_| -> Result<()> { panic!("a hook") }, |_, (), x: u64| Ok(x));
        let error = OrderedRunner::builder(never).devices("cpu*2").cpu_threads(0).build();
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Build(BuildError::CpuThreads { .. })), "{error:?}");
        assert_eq!(error.to_string(), "cpu_threads must be at least 1, got 0");
        assert!(error.hook().is_none());
    });
}

/// All hooks of a producer are in the pool, and so is what they do in parallel.
#[test]
fn with_one_thread_all_is_done_by_the_producer() {
    no_hang(|| {
        let threads = || {
            let names: BTreeSet<_> = (0..1000).into_par_iter().map(|_| who()).collect();
            let (a, b) = rayon::join(who, who);
            let own = (thread::current().name().unwrap().to_owned(), Some(0));
            assert!(names.iter().chain([&a, &b]).all(|name| *name == own), "{names:?} {a:?} {b:?}");
            own.0
        };
        let hook = map(
            move |_| Ok(threads()),
            move |_, made_on, ()| {
                assert_eq!(*made_on, threads());
                Ok(())
            },
        );
        let mut runner = OrderedRunner::builder(hook).devices("cpu*3").cpu_threads(1).build();
        runner.as_mut().unwrap().run(vec![(); 100]).unwrap();
    });
}

#[test]
fn every_thread_of_a_pool_has_its_name_and_takes_part() {
    no_hang(|| {
        let names = |worker: usize| -> Vec<_> {
            let name = |n| if n == 0 { String::new() } else { format!("-{n}") };
            (0..3).map(|n| (format!("gangline-p{worker}{}", name(n)), Some(n))).collect()
        };
        let seen = look("cpu*2", CpuThreads::Exactly(3), |_| rayon::broadcast(|_| who()));
        assert_eq!(seen, [names(0), names(1)]);
    });
}

#[test]
fn every_thread_of_a_pool_has_the_stack_size() {
    /// Overflows the stack that a thread has by default.
    fn deep(depth: u64) -> u64 {
        let page = std::hint::black_box([depth; 1024]);
        if depth == 0 { 0 } else { deep(depth - 1) + page[17].min(1) }
    }
    no_hang(|| {
        let hook = map(|_| Ok(()), |_, (), depth| Ok(rayon::broadcast(|_| deep(depth))));
        let builder = OrderedRunner::builder(hook).devices(1).cpu_threads(3);
        let mut runner = builder.stack_size(64 << 20).build().unwrap();
        assert_eq!(runner.run([2000]).unwrap(), [[2000; 3]]);
    });
}

#[test]
fn a_panic_in_a_pool_is_that_of_the_hook() {
    no_hang(|| {
        for threads in [1, 3] {
            let hook = map(
                |_| Ok(()),
                |_, (), bad: u64| Ok((0..100).into_par_iter().map(|x| 1 / (x ^ bad)).sum::<u64>()),
            );
            let builder = OrderedRunner::builder(hook).devices(2).cpu_threads(threads);
            let mut runner = builder.build().unwrap();
            for _ in 0..3 {
                let error = runner.run([1000, 1001, 50, 1002]).unwrap_err();
                assert_eq!((error.hook(), error.item()), (Some(Hook::ProducerWork), Some(2)));
                assert!(format!("{error:#}").contains("divide by zero"), "{error:#}");
            }
            assert_eq!(runner.run([1000]).unwrap(), [0], "it stays usable");
            runner.close().unwrap();
        }
    });
}

thread_local! {
    static LEAVES: RefCell<Option<Leaves>> = const { RefCell::new(None) };
}

/// Counts when its thread is gone.
struct Leaves(Arc<AtomicU64>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Counts the threads of its pool that are gone.
fn leaver(gone: &Arc<AtomicU64>) -> impl Runner<Input = (), Summary = Vec<()>> + use<> {
    let gone = gone.clone();
    map(
        move |_| {
            rayon::broadcast(|_| LEAVES.set(Some(Leaves(gone.clone()))));
            Ok(())
        },
        |_, (), ()| {
            rayon::broadcast(|_| ());
            Ok(())
        },
    )
}

#[test]
fn threads_are_gone_after_close_each_time() {
    no_hang(|| {
        let gone = Arc::new(AtomicU64::new(0));
        let builder = AnyOrderRunner::builder(leaver(&gone)).devices("cpu*2").cpu_threads(3);
        let mut pool = builder.order(Order::Completion).build().unwrap();
        for round in 1..=50 {
            pool.run(vec![(); 5]).unwrap();
            assert_eq!(gone.load(SeqCst), 6 * (round - 1));
            pool.close().unwrap();
            assert_eq!(gone.load(SeqCst), 6 * round);
            pool.activate().unwrap();
        }
        drop(pool);
        assert_eq!(gone.load(SeqCst), 6 * 51);
    });
}

#[test]
fn threads_are_gone_after_a_building_that_failed() {
    no_hang(|| {
        let gone = Arc::new(AtomicU64::new(0));
        let count = gone.clone();
        let hook = map(
            move |cx| {
                rayon::broadcast(|_| LEAVES.set(Some(Leaves(count.clone()))));
                if cx.producer() == 1 { Err("it broke".into()) } else { Ok(()) }
            },
            |_, (), x: u64| Ok(x),
        );
        let error =
            AnyOrderRunner::builder(hook).devices("cpu*3").cpu_threads(2).build().unwrap_err();
        assert_eq!(error.hook(), Some(Hook::ProducerInit));
        assert_eq!(gone.load(SeqCst), 6);
    });
}

/// Work that a hook leaves in its pool is done before the pool ends, also by its first thread, from which
/// no other thread can steal it.
#[test]
fn what_was_spawned_is_done_before_close_returns() {
    no_hang(|| {
        for threads in [1, 2] {
            let done = Arc::new(AtomicU64::new(0));
            let count = done.clone();
            let hook = map(
                |_| Ok(()),
                move |_, (), ()| {
                    let (one, each) = (count.clone(), count.clone());
                    rayon::spawn(move || {
                        one.fetch_add(1, SeqCst);
                        rayon::spawn_broadcast(move |_| _ = each.fetch_add(1, SeqCst));
                    });
                    Ok(())
                },
            );
            let builder = OrderedRunner::builder(hook).devices(1).cpu_threads(threads);
            let mut runner = builder.build().unwrap();
            runner.run(vec![(); 10]).unwrap();
            runner.close().unwrap();
            assert_eq!(done.load(SeqCst), 10 * (1 + threads as u64));
        }
    });
}

#[test]
fn a_runner_dropped_by_its_own_pool_does_not_join_itself() {
    no_hang(|| {
        let slot = Arc::new(Mutex::new(None::<AnyOrderRunner<Probe>>));
        let (filled, dropped) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (place, wait, done) = (slot.clone(), filled.clone(), dropped.clone());
        let probe = Probe::new();
        let tally = probe.tally();
        let pulls = tally.clone();
        let probe = probe.on_producer(Hook::ProducerWork, move |cx| {
            if cx.item() == Some(0) {
                pulls.pulled.reach(2);
                return Ok(());
            }
            wait.pass();
            rayon::broadcast(|cx| (cx.index() == 1).then(|| drop(place.lock().unwrap().take())));
            done.open();
            Ok(())
        });
        let mut runner =
            AnyOrderRunner::builder(probe).devices("cpu*2").cpu_threads(2).build().unwrap();
        let mut stream = runner.outputs(tally.input(0..2));
        assert_eq!(stream.next().unwrap().unwrap().value, output(0));
        std::mem::forget(stream);
        *slot.lock().unwrap() = Some(runner);
        filled.open();
        dropped.pass();
        tally.called(Hook::ProducerEnd).reach(2);
    });
}

#[test]
fn a_pool_refuses_to_be_made_on_a_thread_of_another() {
    no_hang(|| {
        let refused: Look<_> = |_| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
            builder.build().is_err()
        };
        assert_eq!(look("cpu", CpuThreads::Exactly(1), refused), [true]);
        assert_eq!(look("cpu", CpuThreads::Global, refused), [false]);
    });
}

/// A runner inside a hook has pools of its own.
#[test]
fn pools_nest() {
    no_hang(|| {
        let hook = map(
            |_| {
                let ask = map(|_| Ok(()), |_, (), ()| Ok(rayon::current_num_threads()));
                Ok(OrderedRunner::builder(ask).devices("cpu*2").cpu_threads(3).build()?)
            },
            |_, inner, ()| Ok((rayon::current_num_threads(), inner.run([()])?)),
        );
        let builder = OrderedRunner::builder(hook).devices("cpu*2").cpu_threads(2);
        assert_eq!(builder.build().unwrap().run([()]).unwrap(), [(2, vec![3])]);
    });
}

/// Runs itself with another variable: a process cannot change its own without `unsafe`.
#[test]
fn the_variable_of_rayon_says_how_many_cores_there_are() {
    if std::env::var_os("CHILD_OF_CPU_THREADS").is_some() {
        assert_eq!(threads_seen("cpu*2", CpuThreads::Share), [3, 3]);
        assert_eq!(threads_seen("cpu*2", 1), [1, 1]);
        return;
    }
    let name = "cpu_threads::the_variable_of_rayon_says_how_many_cores_there_are";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("CHILD_OF_CPU_THREADS", "1")
        .env("RAYON_NUM_THREADS", "7")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn the_settings_are_shown() {
    let builder = OrderedRunner::builder(nothing()).devices("cpu*2").cpu_threads(2);
    assert!(format!("{builder:?}").contains("cpu_threads: Exactly(2)"), "{builder:?}");
}
