//! The account of a pipeline, and those of its pools.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{Account, AnyOrderRunner, CancelToken, OnError, Order, Pipeline};
use proptest::prelude::*;

use crate::hooks::Hooks;
use crate::rows::{Stage, with_pipeline};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    All,
    Stop(u64),
    Cancel(u64),
    Drain(u64),
}

#[derive(Debug, Clone)]
struct Shape {
    orders: Vec<Order>,
    windows: Vec<Option<usize>>,
    skips: Vec<bool>,
    /// Stage and item.
    fails: Vec<(usize, u64)>,
    has_keys: bool,
    items: u64,
    end: End,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let order = prop_oneof![2 => Just(Order::Input), 1 => Just(Order::Completion)];
    let end = prop_oneof![
        3 => Just(End::All),
        1 => (0..60_u64).prop_map(End::Stop),
        1 => (0..60_u64).prop_map(End::Cancel),
        1 => (0..60_u64).prop_map(End::Drain),
    ];
    let parts = (2..5_usize, prop::collection::vec((0..4_usize, 0..60_u64), 0..12), any::<bool>());
    parts.prop_flat_map(move |(stages, fails, has_keys)| {
        let parts = (
            prop::collection::vec(order.clone(), stages),
            prop::collection::vec(prop::option::of(1..9_usize), stages),
            prop::collection::vec(prop::bool::weighted(0.8), stages),
            0..60_u64,
            end.clone(),
        );
        parts.prop_map(move |(orders, windows, skips, items, end)| Shape {
            orders,
            windows,
            skips,
            fails: fails.clone(),
            has_keys,
            items,
            end,
        })
    })
}

impl Shape {
    fn row(&self, token: &CancelToken) -> Vec<Stage> {
        let stage = |stage| {
            let (fails, end, token) = (self.fails.clone(), self.end, token.clone());
            let ends = token.clone();
            let hooks = Hooks::new()
                .work(move |_, x| match fails.contains(&(stage, x)) {
                    true => Err("it broke".into()),
                    false => Ok(x),
                })
                .consume(move |cx, y| {
                    match end {
                        End::Stop(at) if at == y => cx.stop(),
                        End::Cancel(at) if at == y => ends.cancel(),
                        End::Drain(at) if at == y => ends.drain(),
                        _ => {}
                    }
                    Ok(())
                });
            let mut builder = AnyOrderRunner::builder(hooks).devices(2).order(self.orders[stage]);
            if let Some(window) = self.windows[stage] {
                builder = builder.window(window);
            }
            if self.skips[stage] {
                builder = builder.on_error(OnError::Skip);
            }
            if self.has_keys && stage == 0 {
                builder = builder.key(|x| format!("key {x}"));
            }
            builder.cancel_token(token).build().unwrap()
        };
        (0..self.orders.len()).map(stage).collect()
    }
}

fn sum(account: Account) -> u64 {
    account.ok + account.failed + account.already_done + account.cancelled
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_item_of_the_input_is_counted_once(shape in shapes()) {
        let token = CancelToken::new();
        let mut row = shape.row(&token);
        let pulled = AtomicU64::new(0);
        let mut items = (0..shape.items).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
        });
        let (result, whole, failures) = with_pipeline(&mut row, |row| {
            let result = row.run_all(&mut items);
            let failures: Vec<_> =
                row.pipeline().failures().iter().map(|f| (f.stage() - 1, f.item())).collect();
            (result, row.pipeline().account(), failures)
        });
        let pulled = pulled.into_inner();
        prop_assert_eq!(sum(whole), pulled);
        let stages: Vec<Account> = row.iter().map(Stage::account).collect();
        let all = |count: fn(&Account) -> u64| stages.iter().map(count).sum::<u64>();
        prop_assert_eq!(whole.ok, stages.last().unwrap().ok);
        prop_assert_eq!(whole.failed, all(|account| account.failed));
        prop_assert_eq!(whole.cancelled, all(|account| account.cancelled));
        prop_assert_eq!(whole.unread, stages[0].unread);
        prop_assert_eq!(whole.already_done, 0);
        for pair in stages.windows(2) {
            prop_assert_eq!(sum(pair[1]), pair[0].ok, "a stage gets what the one before gives");
        }
        // Every listed failure is one that was asked for, and none is listed twice.
        let mut listed = failures.clone();
        listed.sort_unstable();
        listed.dedup();
        if shape.has_keys || shape.orders.iter().all(|order| *order == Order::Input) {
            prop_assert_eq!(listed.len(), failures.len());
            for (stage, item) in &failures {
                prop_assert!(shape.fails.contains(&(*stage, item.unwrap())), "{:?}", failures);
            }
        }
        match result {
            Ok(seen) => {
                prop_assert_eq!(whole.ok, seen.len() as u64);
                if shape.end == End::All {
                    prop_assert_eq!((whole.cancelled, whole.unread), (0, Some(0)));
                    prop_assert_eq!(whole.failed, failures.len() as u64);
                }
            }
            // A stage may have skipped items that the consumer never came to.
            Err(_) => prop_assert!(failures.len() as u64 <= whole.failed),
        }
    }
}

#[test]
fn a_run_that_is_refused_has_read_nothing() {
    let mut a = AnyOrderRunner::builder(Hooks::new()).devices(1).build().unwrap();
    let mut b = AnyOrderRunner::builder(Hooks::new()).devices(1).build().unwrap();
    Pipeline::new(&mut a).then(&mut b).run(0..9).unwrap();
    b.close().unwrap();
    let mut row = a.then(&mut b);
    assert_eq!(row.account(), Account::default(), "before its first run");
    assert!(row.run(0..7).unwrap_err().is_closed());
    let account = row.account();
    assert_eq!((sum(account), account.unread), (0, Some(7)));
}
