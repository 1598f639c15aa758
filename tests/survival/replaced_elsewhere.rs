//! Producers that are replaced in services, pipelines and batches, beside copies, and on pools of threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{Batch, Error, OnError, OrderedRunner, Pipeline, UnorderedRunner};

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

#[test]
fn a_service_answers_although_its_hooks_are_stuck() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let builder = UnorderedRunner::builder(stuck_at(|x| x % 10 == 7, &gate)).devices(2);
        let builder = builder.item_timeout(SOON).replace_lost(20);
        let service = builder.build().unwrap().into_service();
        let failed = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..4)
            .map(|caller| {
                let (service, failed) = (service.clone(), failed.clone());
                thread::spawn(move || {
                    for x in (caller * 10)..(caller * 10 + 10) {
                        match service.call(x) {
                            Ok(y) => assert_eq!(y, x),
                            Err(error) => {
                                assert!(error.is_timeout() && x % 10 == 7, "{error:#}");
                                failed.fetch_add(1, SeqCst);
                            }
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        assert_eq!(failed.load(SeqCst), 4);
        let report = service.report();
        let replaced: u64 = report.producers.iter().map(|producer| producer.replacements).sum();
        assert_eq!(replaced, 4, "{report}");
        service.close().unwrap();
        gate.open();
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
        let pool = builder.replace_lost(1).build().unwrap();
        let service = service.get_or_init(|| pool.into_service());
        assert!(service.call(0).unwrap_err().is_timeout());
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
            let builder = OrderedRunner::builder(stuck_at(is_stuck, &gate)).devices(1);
            builder.item_timeout(SOON).retries(1).replace_lost(2).build().unwrap()
        };
        let (mut first, mut second) = (stage(|x| x % 10 == 3), stage(|x| x % 10 == 5));
        let outputs = Pipeline::new(&mut first).then(&mut second).run(0..20).unwrap();
        assert_eq!(outputs, (0..20).collect::<Vec<_>>());
        for pool in [&first, &second] {
            assert_eq!(pool.report().producers[0].replacements, 2);
        }
        gate.open();
    });
}

#[test]
fn the_items_of_a_batch_that_is_stuck_are_tried_by_the_replacement() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let builder = OrderedRunner::builder(stuck_at(|x| x == 5, &gate)).devices(1);
        let builder = builder.batch(Batch::of(4)).item_timeout(SOON).retries(1);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert_eq!(pool.run(0..12).unwrap(), (0..12).collect::<Vec<_>>());
        gate.open();
    });
}

/// The first copy of the item is stuck for ever, and so is the second.
#[test]
fn copies_that_are_stuck_are_replaced() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let builder = OrderedRunner::builder(stuck_at(|x| x == 9, &gate)).devices(2);
        let builder = builder.item_timeout(SOON).retries(1).speculate();
        let mut pool = builder.replace_lost(2).build().unwrap();
        assert_eq!(pool.run(0..10).unwrap(), (0..10).collect::<Vec<_>>());
        assert_eq!(pool.run(0..5).unwrap().len(), 5);
        gate.open();
        pool.close().unwrap();
    });
}

#[test]
fn outputs_go_on_with_a_replacement() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let builder = OrderedRunner::builder(stuck_at(|x| x == 2, &gate)).devices(1);
        let builder = builder.item_timeout(SOON).on_error(OnError::Skip);
        let mut pool = builder.replace_lost(1).build().unwrap();
        let (ok, failed): (Vec<_>, Vec<_>) = pool.outputs(0..6).partition(Result::is_ok);
        assert_eq!((ok.len(), failed.len()), (5, 1));
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
            move |cx, _, x: u64| {
                if x == 0 && cx.attempt() == 1 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let builder = OrderedRunner::builder(runner).devices(1).item_timeout(SOON).retries(1);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2]);
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
        let hooks = Hooks::new().work(move |cx, x| {
            assert_eq!(rayon::current_num_threads(), 2);
            let (one, two) = rayon::join(|| x, || x);
            if x == 1 && cx.attempt() == 1 {
                stuck.pass();
            }
            Ok((one + two) / 2)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).cpu_threads(2);
        let builder = builder.item_timeout(SOON).retries(1);
        let mut pool = builder.replace_lost(1).build().unwrap();
        assert_eq!(pool.run(0..8).unwrap(), (0..8).collect::<Vec<_>>());
        gate.open();
        pool.close().unwrap();
    });
}
