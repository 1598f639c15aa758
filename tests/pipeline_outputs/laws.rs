//! The laws of outputs, for pipelines of any shape and with any fault.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{Account, AnyOrderRunner, OnError, Order, Pipeline};
use proptest::prelude::*;

use crate::hooks::{Gauge, Hooks, sorted};
use crate::rows::Stage;

#[derive(Debug, Clone)]
struct Shape {
    orders: Vec<Order>,
    producers: Vec<usize>,
    windows: Vec<Option<usize>>,
    skips: bool,
    panics: bool,
    /// Stage and item.
    fails: Option<(usize, u64)>,
    items: u64,
    /// Drops the outputs after this number.
    taken: Option<usize>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let order = prop_oneof![2 => Just(Order::Input), 1 => Just(Order::Completion)];
    let parts = (
        prop::collection::vec(order, 3),
        prop::collection::vec(1..4_usize, 3),
        prop::collection::vec(prop::option::of(1..12_usize), 3),
        any::<bool>(),
        any::<bool>(),
        prop::option::of((0..3_usize, 0..80_u64)),
        0..80_u64,
        prop::option::weighted(0.3, 0..80_usize),
    );
    parts.prop_map(|(orders, producers, windows, skips, panics, fails, items, taken)| Shape {
        orders,
        producers,
        windows,
        skips,
        panics,
        fails,
        items,
        taken,
    })
}

impl Shape {
    fn row(&self) -> [Stage; 3] {
        std::array::from_fn(|stage| {
            let (fails, panics) = (self.fails, self.panics);
            let hooks = Hooks::new().work(move |_, x| match fails == Some((stage, x)) {
                true if panics => panic!("it broke"),
                true => Err("it broke".into()),
                false => Ok(x),
            });
            let builder = AnyOrderRunner::builder(hooks).order(self.orders[stage]);
            let mut builder = builder.devices(self.producers[stage]);
            if self.skips {
                builder = builder.on_error(OnError::Skip);
            }
            if let Some(window) = self.windows[stage] {
                builder = builder.window(window);
            }
            builder.build().unwrap()
        })
    }
}

fn sum(account: Account) -> u64 {
    account.ok + account.failed + account.already_done + account.cancelled
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn outputs_are_in_order_bounded_and_accounted_for(shape in shapes()) {
        let (gauge, pulled) = (Gauge::default(), AtomicU64::new(0));
        let mut row = shape.row();
        let [a, b, c] = &mut row;
        let mut line = Pipeline::new(&mut *a).then(b).then(c);
        let items = (0..shape.items).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
            gauge.up();
        });
        let (mut seen, mut errors) = (vec![], vec![]);
        for output in line.outputs(items).take(shape.taken.unwrap_or(usize::MAX)) {
            gauge.down();
            match output {
                Ok(output) => seen.push(output),
                Err(error) => errors.push(error),
            }
        }
        let (whole, pulled) = (line.account(), pulled.into_inner());
        drop(line);
        if let [Some(a), Some(b), Some(c)] = shape.windows[..] {
            prop_assert!(gauge.most() <= (a + b + c) as u64);
        }
        prop_assert_eq!(sum(whole), pulled);
        prop_assert_eq!(whole.unread, Some(shape.items - pulled));
        prop_assert_eq!(whole.ok, seen.len() as u64);
        let stages = row.each_ref().map(Stage::account);
        prop_assert_eq!(whole.failed, stages.iter().map(|account| account.failed).sum::<u64>());
        for pair in stages.windows(2) {
            prop_assert_eq!(sum(pair[1]), pair[0].ok);
        }
        let failure = shape.fails.filter(|(_, at)| *at < shape.items);
        prop_assert!(errors.len() <= usize::from(failure.is_some()), "{:?}", errors);
        let is_ordered = shape.orders.iter().all(|order| *order == Order::Input);
        if is_ordered {
            prop_assert!(seen.is_sorted());
            prop_assert!(errors.iter().all(|error| error.item() == failure.map(|(_, at)| at)));
        }
        if shape.taken.is_none() {
            prop_assert_eq!(errors.len(), usize::from(failure.is_some()));
            if failure.is_none() || shape.skips {
                let all = (0..shape.items).filter(|x| failure.is_none_or(|(_, at)| at != *x));
                prop_assert_eq!(sorted(seen), all.collect::<Vec<_>>());
                prop_assert_eq!(whole.cancelled, 0);
            } else if is_ordered {
                prop_assert_eq!(seen.len() as u64, failure.unwrap().1);
            }
        }
        // Nothing of it reaches the next run.
        let [a, b, c] = &mut row;
        let quiet: Vec<u64> = (100..150).collect();
        prop_assert_eq!(sorted(Pipeline::new(&mut *a).then(b).then(c).run(quiet.clone()).unwrap()), quiet);
    }
}
