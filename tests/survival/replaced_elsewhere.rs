//! Producers that are replaced in services, pipelines and pools of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{Error, OrderedRunner, Pipeline, UnorderedRunner};

use crate::hooks::Hooks;
use crate::support::{Gate, map, no_hang};

/// Longer than a busy machine keeps a hook from its end.
const SOON: Duration = Duration::from_millis(300);

/// Hooks that are stuck at each item whose first attempt this is.
fn stuck_at(is_stuck: fn(u64) -> bool, gate: &Arc<Gate>) -> Hooks {
    let gate = gate.clone();
    Hooks::new().work(move |cx, x| {
        if is_stuck(x) && cx.attempt() == 1 {
            gate.pass();
        }
        Ok(x)
    })
}

/// The whole life of a service is one run.
#[test]
fn a_service_calls_a_producer_init_again_that_fails() {
    no_hang(|| {
        let inits = AtomicU64::new(0);
        let hooks = Hooks::new().init(move |_| match inits.fetch_add(1, SeqCst) {
            0 | 1 => Err("the device is busy".into()),
            _ => {
                thread::sleep(Duration::from_millis(200));
                Ok(())
            }
        });
        let builder = UnorderedRunner::builder(hooks).devices(1).init_in_run();
        let service = builder.replace_lost(2).build().unwrap().into_service();
        assert_eq!(service.call(7).unwrap(), 7);
        let report = service.report();
        let producer = &report.producers[0];
        assert_eq!(producer.replacements, 2, "{report}");
        assert!(producer.times.loading <= report.lasted, "each moment counts once: {report}");
        service.close().unwrap();
    });
}

/// It could not be answered: all producers may be busy with such calls.
#[test]
fn a_hook_of_a_replacement_cannot_call_its_own_service() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let service = Arc::new(std::sync::OnceLock::<gangline::Service<Hooks>>::new());
        let (stuck, own) = (gate.clone(), service.clone());
        let hooks = Hooks::new().work(move |_, x| match x {
            0 => {
                stuck.pass();
                Ok(0)
            }
            1 => match own.get().unwrap().call(2) {
                Err(Error::OwnThread { .. }) => Ok(11),
                other => panic!("{other:?}"),
            },
            _ => Ok(x),
        });
        let builder = UnorderedRunner::builder(hooks).devices(1).item_timeout(SOON);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert!(pool.run([0]).unwrap_err().is_timeout());
        let service = service.get_or_init(|| pool.into_service());
        assert_eq!(service.call(1).unwrap(), 11);
        service.close().unwrap();
        gate.open();
    });
}

#[test]
fn each_stage_of_a_pipeline_replaces_its_own() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stage = |is_stuck| {
            let builder = OrderedRunner::builder(stuck_at(is_stuck, &gate)).devices(2);
            builder.item_timeout(SOON).retries(1).replace_lost(2).build().unwrap()
        };
        let (mut first, mut second) = (stage(|x| x % 10 == 3), stage(|x| x % 10 == 5));
        for items in [0..10, 0..3] {
            let outputs = Pipeline::new(&mut first).then(&mut second).run(items.clone()).unwrap();
            assert_eq!(outputs, items.collect::<Vec<_>>());
        }
        for pool in [&first, &second] {
            let report = pool.report();
            assert_eq!(report.producers.iter().map(|it| it.replacements).sum::<u64>(), 1);
        }
        gate.open();
    });
}

/// The state of an abandoned hook lives until that hook has returned, on its own thread.
#[test]
fn states_that_cannot_be_sent_stay_on_their_threads() {
    struct State(thread::ThreadId, Arc<AtomicU64>);
    impl Drop for State {
        fn drop(&mut self) {
            assert_eq!(self.0, thread::current().id());
            self.1.fetch_add(1, SeqCst);
        }
    }
    no_hang(|| {
        let (gate, dropped) = (Arc::new(Gate::new()), Arc::new(AtomicU64::new(0)));
        let (stuck, drops) = (gate.clone(), dropped.clone());
        let runner = map(
            move |_| Ok(State(thread::current().id(), drops.clone())),
            move |_, _, x: u64| {
                if x == 0 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let builder = OrderedRunner::builder(runner).devices(1).item_timeout(SOON);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert!(pool.run([0]).unwrap_err().is_timeout());
        assert_eq!(pool.run(1..3).unwrap(), [1, 2]);
        gate.open();
        drop(pool);
        while dropped.load(SeqCst) < 2 {
            thread::yield_now();
        }
    });
}

#[test]
fn a_replacement_has_a_pool_of_its_own() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let hooks = Hooks::new().work(move |_, x| {
            assert_eq!(rayon::current_num_threads(), 2);
            let (one, two) = rayon::join(|| x, || x);
            if x == 0 {
                stuck.pass();
            }
            Ok((one + two) / 2)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).cpu_threads(2);
        let mut pool = builder.item_timeout(SOON).replace_lost(1).build().unwrap();
        assert!(pool.run([0]).unwrap_err().is_timeout());
        assert_eq!(pool.run(1..8).unwrap(), (1..8).collect::<Vec<_>>());
        gate.open();
        pool.close().unwrap();
    });
}
