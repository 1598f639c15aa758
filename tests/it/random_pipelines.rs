//! The laws of pipelines, for rows of any shape and with any fault.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{AnyOrderRunner, Hook, Order};
use proptest::prelude::*;

use crate::hooks::{Gauge, Hooks, sorted};
use crate::pipelines::check_row;
use crate::pipelines_faults::{Row, failed, only, run};

#[derive(Debug, Clone)]
struct Shape {
    orders: Vec<Order>,
    producers: Vec<usize>,
    windows: Vec<Option<usize>>,
    items: u64,
    /// Stage and item.
    fails: Option<(usize, u64)>,
    panics: bool,
    stops: Option<u64>,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let order = prop_oneof![2 => Just(Order::Input), 1 => Just(Order::Completion)];
    (
        proptest::collection::vec(order, 3),
        proptest::collection::vec(1..4_usize, 3),
        proptest::collection::vec(proptest::option::of(1..12_usize), 3),
        0..80_u64,
        proptest::option::of((0..3_usize, 0..80_u64)),
        proptest::bool::ANY,
        proptest::option::weighted(0.3, 0..80_u64),
    )
        .prop_map(|(orders, producers, windows, items, fails, panics, stops)| Shape {
            orders,
            producers,
            windows,
            items,
            fails,
            panics,
            stops,
        })
}

impl Shape {
    fn row(&self, gauge: &Gauge) -> Row {
        std::array::from_fn(|stage| {
            let (fails, panics, stops) = (self.fails, self.panics, self.stops);
            let gauge = gauge.clone();
            let hooks = Hooks::new()
                .work(move |_, x| match fails == Some((stage, x)) {
                    true if panics => panic!("it broke"),
                    true => Err("it broke".into()),
                    false => Ok(x),
                })
                .consume(move |cx, y| {
                    gauge.down();
                    if stops == Some(y) {
                        cx.stop();
                    }
                    Ok(())
                });
            let builder = AnyOrderRunner::builder(hooks);
            let builder = builder.devices(self.producers[stage]).order(self.orders[stage]);
            match self.windows[stage] {
                Some(window) => builder.window(window).build().unwrap(),
                None => builder.build().unwrap(),
            }
        })
    }

    fn is_ordered(&self) -> bool {
        self.orders.iter().all(|order| *order == Order::Input)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_row_gives_what_one_after_the_other_gives(shape in shapes()) {
        let (gauge, pulled) = (Gauge::default(), AtomicU64::new(0));
        let mut row = shape.row(&gauge);
        let items = (0..shape.items).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
            gauge.up();
        });
        let result = run(&mut row, items);
        let pulled = pulled.into_inner();
        let consumed = row[2].account().ok;
        check_row(row.each_ref(), pulled, consumed);
        prop_assert_eq!(row[0].account().unread, Some(shape.items - pulled));
        if let [Some(a), Some(b), Some(c)] = shape.windows[..] {
            prop_assert!(gauge.most() <= (a + b + c) as u64);
        }
        let failure = shape.fails.filter(|(_, at)| *at < shape.items);
        let stop = shape.stops.filter(|at| *at < shape.items);
        match result {
            Ok(seen) => {
                prop_assert_eq!(failed(&row), [0; 3]);
                prop_assert_eq!(seen.len() as u64, consumed);
                if shape.is_ordered() {
                    prop_assert!(failure.is_none_or(|(_, at)| stop.is_some_and(|stop| stop < at)));
                    let count = stop.map_or(shape.items, |at| at + 1);
                    prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
                } else {
                    prop_assert!(failure.is_none() || stop.is_some());
                    let seen = sorted(seen);
                    prop_assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "twice");
                    prop_assert!(stop.is_some() || seen.len() as u64 == shape.items);
                }
            }
            Err(error) => {
                let (stage, at) = failure.expect("nothing else fails");
                prop_assert_eq!(failed(&row), only(stage));
                prop_assert_eq!(error.hook(), Some(Hook::ProducerWork));
                prop_assert_eq!(error.is_panic(), shape.panics);
                if shape.is_ordered() {
                    prop_assert_eq!((error.item(), consumed), (Some(at), at));
                }
            }
        }
        // Nothing of it reaches the next run.
        let quiet: Vec<_> = (100..150).collect();
        prop_assert_eq!(sorted(run(&mut row, quiet.clone()).unwrap()), quiet);
    }
}
