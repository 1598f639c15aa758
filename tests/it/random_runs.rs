//! The laws together, for runs of any shape and with any fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Batch, Builder, CancelToken, Error, Order};
use proptest::prelude::*;

use crate::hooks::{Gauge, Hooks, sorted};

/// What a producer makes of one item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Work {
    Passes,
    Fails,
    Panics,
}

/// What the consumer does at one item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Fails,
    Panics,
    Stops,
    Cancels,
    Finishes,
}

#[derive(Debug, Clone)]
struct Script {
    order: Order,
    producers: usize,
    window: Option<usize>,
    items: Vec<Work>,
    /// At which item the consumer does something, and what.
    act: Option<(u64, Act)>,
    grouping: Grouping,
}

/// How items make batches, and what bounds them. Their sizes are from 1 to 7.
#[derive(Debug, Clone)]
struct Grouping {
    batch: Option<Batch>,
    cost: Option<u64>,
    padded: Option<u64>,
    weight: Option<u64>,
}

fn size(x: u64) -> u64 {
    1 + x * 5 % 7
}

fn groupings() -> impl Strategy<Value = Grouping> {
    let soon = Duration::from_micros(50);
    let batch = (1..8_usize, 0..4).prop_map(move |(most, rule)| match rule {
        0 => Batch::of(most),
        1 => Batch::up_to(most),
        2 => Batch::of(most).within(soon),
        _ => Batch::up_to(most).within(soon),
    });
    let limit = || proptest::option::of(7..30_u64);
    (proptest::option::of(batch), limit(), limit(), proptest::option::of(1..40_u64))
        .prop_map(|(batch, cost, padded, weight)| Grouping { batch, cost, padded, weight })
}

impl Grouping {
    fn apply(&self, mut builder: Builder<Hooks, RuntimeOrder>) -> Builder<Hooks, RuntimeOrder> {
        if let Some(batch) = self.batch {
            builder = builder.batch(batch);
            if let Some(cost) = self.cost {
                builder = builder.max_batch_cost(cost, |&x| size(x));
            }
            if let Some(padded) = self.padded {
                builder = builder.max_padded_size(padded, |&x| size(x));
            }
        }
        match self.weight {
            Some(weight) => builder.window_memory(weight, |&x| size(x), |_| 1),
            None => builder,
        }
    }

    fn most(&self) -> usize {
        self.batch.map_or(1, |batch| batch.most())
    }
}

fn scripts() -> impl Strategy<Value = Script> {
    let work =
        prop_oneof![60 => Just(Work::Passes), 1 => Just(Work::Fails), 1 => Just(Work::Panics)];
    let act = prop_oneof![
        Just(Act::Fails),
        Just(Act::Panics),
        Just(Act::Stops),
        Just(Act::Cancels),
        Just(Act::Finishes)
    ];
    (
        prop_oneof![Just(Order::Input), Just(Order::Completion)],
        1..5_usize,
        proptest::option::of(1..20_usize),
        proptest::collection::vec(work, 0..60),
        proptest::option::of((0..60_u64, act)),
        groupings(),
    )
        .prop_map(|(order, producers, window, items, act, grouping)| Script {
            order,
            producers,
            window: window.map(|window| window.max(grouping.most())),
            items,
            act,
            grouping,
        })
}

impl Script {
    fn pool(&self, gauge: &Gauge, ok: &Arc<AtomicU64>) -> AnyOrderRunner<Hooks> {
        let token = CancelToken::new();
        let (items, act, cancel) = (self.items.clone(), self.act, token.clone());
        let (gauge, ok) = (gauge.clone(), ok.clone());
        let hooks = Hooks::new()
            .work(move |_, x| match items[x as usize] {
                Work::Passes => Ok(x),
                Work::Fails => Err("fails".into()),
                Work::Panics => panic!("panics"),
            })
            .consume(move |cx, y| {
                gauge.down();
                match act.filter(|(at, _)| *at == y).map(|(_, act)| act) {
                    Some(Act::Fails) => return Err("fails".into()),
                    Some(Act::Panics) => panic!("panics"),
                    Some(Act::Stops) => cx.stop(),
                    Some(Act::Cancels) => cancel.cancel(),
                    Some(Act::Finishes) => cancel.drain(),
                    None => {}
                }
                ok.fetch_add(1, SeqCst);
                Ok(())
            });
        let builder = AnyOrderRunner::builder(hooks).order(self.order).devices(self.producers);
        let builder = match self.window {
            Some(window) => builder.window(window),
            None => builder,
        };
        self.grouping.apply(builder).cancel_token(token).build().unwrap()
    }

    fn first_failure(&self) -> Option<u64> {
        self.items.iter().position(|work| *work != Work::Passes).map(|x| x as u64)
    }

    /// What a run in input order must come to: what was consumed well, and the error.
    fn check_in_order(&self, result: &Result<Vec<u64>, Error>, ok: u64) {
        let count = self.items.len() as u64;
        let failure = self.first_failure();
        let act = self.act.filter(|(at, _)| *at < failure.unwrap_or(count));
        match (act, failure) {
            (Some((at, Act::Fails | Act::Panics)), _) => {
                assert_eq!((result.as_ref().unwrap_err().item(), ok), (Some(at), at));
            }
            (Some((at, Act::Stops)), _) => {
                assert_eq!((result.as_ref().unwrap().len() as u64, ok), (at + 1, at + 1));
            }
            (Some((at, Act::Cancels)), _) => {
                assert!(result.as_ref().unwrap_err().is_cancelled());
                assert_eq!(ok, at + 1);
            }
            // Whether the failing item was given out before the finish is open.
            (Some((at, Act::Finishes)), failure) => match result {
                Ok(_) => assert!(ok > at),
                Err(error) => assert_eq!((error.item(), Some(ok)), (failure, failure)),
            },
            (None, Some(failure)) => {
                assert_eq!((result.as_ref().unwrap_err().item(), ok), (Some(failure), failure));
            }
            (None, None) => assert_eq!((result.as_ref().unwrap().len() as u64, ok), (count, count)),
        }
        if let Ok(seen) = result {
            assert_eq!(*seen, (0..ok).collect::<Vec<_>>());
        }
    }

    fn check_as_finished(&self, result: &Result<Vec<u64>, Error>, ok: u64) {
        match result {
            Ok(seen) => {
                let seen = sorted(seen.clone());
                assert_eq!(seen.len() as u64, ok);
                assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "consumed twice");
                assert!(seen.iter().all(|&x| self.items[x as usize] == Work::Passes));
                if self.act.is_none() {
                    assert_eq!((ok, self.first_failure()), (self.items.len() as u64, None));
                }
            }
            Err(error) if error.is_cancelled() => {
                assert_eq!(self.act.map(|(_, act)| act), Some(Act::Cancels));
            }
            Err(error) => {
                let item = error.item().expect("it names its item");
                let acted = self.act.is_some_and(|(at, _)| at == item);
                assert!(acted || self.items[item as usize] != Work::Passes, "{error:#}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_run_keeps_the_laws(script in scripts()) {
        let (gauge, ok, pulled) = (Gauge::default(), Arc::default(), AtomicU64::new(0));
        let mut pool = script.pool(&gauge, &ok);
        let count = script.items.len() as u64;
        let items = (0..count).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
            gauge.up();
        });
        let result = pool.run(items);
        let (ok, pulled, account) = (ok.load(SeqCst), pulled.into_inner(), pool.account());
        match script.order {
            Order::Input => script.check_in_order(&result, ok),
            Order::Completion => script.check_as_finished(&result, ok),
        }
        prop_assert_eq!((account.ok, account.unread), (ok, Some(count - pulled)));
        prop_assert_eq!(account.ok + account.failed + account.cancelled, pulled);
        let failed = result.as_ref().is_err_and(|error| !error.is_cancelled());
        prop_assert_eq!(account.failed, u64::from(failed));
        if let Some(window) = script.window {
            prop_assert!(gauge.most() <= window as u64);
        }
        // Nothing of it reaches the next run.
        let quiet: Vec<_> = (0..count).filter(|&x| {
            script.items[x as usize] == Work::Passes && script.act.is_none_or(|(at, _)| at != x)
        }).collect();
        prop_assert_eq!(sorted(pool.run(quiet.clone()).unwrap()), quiet);
    }

    #[test]
    fn a_stream_keeps_the_laws(script in scripts(), taken in 0..70_usize) {
        let (gauge, pulled) = (Gauge::default(), AtomicU64::new(0));
        let mut pool = script.pool(&gauge, &Arc::default());
        let count = script.items.len() as u64;
        let (mut seen, mut error) = (vec![], None);
        for output in pool.outputs((0..count).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
            gauge.up();
        })).take(taken) {
            prop_assert!(error.is_none(), "an error is the last");
            gauge.down();
            match output {
                Ok(y) => seen.push(y),
                Err(failed) => error = Some(failed),
            }
        }
        let account = pool.account();
        let pulled = pulled.into_inner();
        prop_assert_eq!(account.ok, seen.len() as u64);
        prop_assert_eq!(account.failed, u64::from(error.is_some()));
        prop_assert_eq!(account.ok + account.failed + account.cancelled, pulled);
        prop_assert_eq!(account.unread, Some(count - pulled));
        if let Some(window) = script.window {
            prop_assert!(gauge.most() <= window as u64);
        }
        if let Order::Input = script.order {
            prop_assert_eq!(&seen, &(0..seen.len() as u64).collect::<Vec<_>>());
            if let Some(error) = error {
                prop_assert_eq!(error.item(), script.first_failure());
            }
        } else if error.is_none() && taken as u64 >= count {
            prop_assert_eq!(sorted(seen), (0..count).collect::<Vec<_>>());
        }
    }
}
