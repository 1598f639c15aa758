//! Time limits and quarantine of the producers that work on parts.

use std::sync::Arc;
use std::time::Duration;

use gangline::{OnError, Order};

use crate::support::{Gate, Gathered, ORDERS, builder, no_hang, pass, pool, sorted, working};

/// The parts of this parent end at the limit, or are withdrawn.
const SLOW: u64 = 3;

#[test]
fn a_part_that_exceeds_its_time_fails_its_parent() {
    no_hang(|| {
        for order in ORDERS {
            let ended = Gate::default();
            let end = ended.clone();
            let hang = working(move |_, (parent, part): (u64, u64)| {
                if (parent, part) == (SLOW, 1) {
                    end.pass();
                }
                Ok(part)
            });
            let parts = builder(hang, order, 2).item_timeout(Duration::from_millis(300));
            let mut parts = parts.on_error(OnError::Skip).build().unwrap();
            let parents = pool(pass::<u64>(), Order::Input, 1);
            let mut last = pool(pass::<Gathered<u64>>(), Order::Input, 1);
            let line = parents.expand(|parent: &Arc<u64>| {
                let parent = **parent;
                (0..4).map(move |part| (parent, part))
            });
            let line = line.then(&mut parts);
            let mut line = line.gather(|_| 0, |sum, _, _, part| *sum += part).then(&mut last);
            let sums = line.run(0..8).unwrap();
            let whole = sorted(sums.into_iter().map(|(parent, sum)| (*parent, sum)).collect());
            let others = (0..8).filter(|&parent| parent != SLOW).map(|parent| (parent, 6));
            assert_eq!(whole, others.collect::<Vec<_>>());
            let failures = line.failures();
            assert_eq!(failures.len(), 1);
            assert!(failures[0].error().is_timeout());
            assert_eq!(
                (failures[0].error().item(), failures[0].error().part()),
                (Some(SLOW), Some(1))
            );
            ended.open();
        }
    });
}

#[test]
fn parts_that_a_bad_producer_fails_are_tried_by_another() {
    no_hang(|| {
        for order in ORDERS {
            let work = working(|cx, part: u64| match cx.producer() {
                0 => Err("this device is broken".into()),
                _ => Ok(part),
            });
            let parts = builder(work, order, 2).retries(3).quarantine_after(2);
            let mut parts = parts.build().unwrap();
            let parents = pool(pass::<u64>(), Order::Input, 1);
            let mut last = pool(pass::<Gathered<u64>>(), Order::Input, 1);
            let line = parents.expand(|parent: &Arc<u64>| 0..**parent).then(&mut parts);
            let mut line = line.gather(|_| 0, |sum, _, _, part| *sum += part).then(&mut last);
            let sums = line.run(0..20).unwrap();
            let whole = sorted(sums.into_iter().map(|(parent, sum)| (*parent, sum)).collect());
            assert_eq!(whole, (0..20).map(|n| (n, (0..n).sum())).collect::<Vec<_>>());
            drop(line);
            assert_eq!(parts.account().failed, 0);
        }
    });
}
