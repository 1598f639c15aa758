//! Hooks that take about as long as they may: the producer and the deadline thread race for each item.

use std::thread;
use std::time::Duration;

use gangline::{AnyOrderRunner, OnError, Order, OrderedRunner, map};

const LIMIT: Duration = Duration::from_millis(4);
const ITEMS: u64 = 60;

/// Takes between three quarters and one and a half times the limit for one item in four, and no time for others.
fn about_the_limit(x: u64) -> u64 {
    if x.is_multiple_of(4) {
        let mixed = x.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 61;
        thread::sleep(LIMIT * (24 + 3 * mixed as u32) / 32);
    }
    x
}

#[test]
fn each_item_is_consumed_or_has_timed_out() {
    let mut timed_out = 0;
    for order in [Order::Input, Order::Completion] {
        for retries in [0, 1] {
            let runner = map(|_| Ok(()), |_, (), x: u64| Ok(about_the_limit(x)));
            let builder =
                AnyOrderRunner::builder(runner).devices(4).order(order).item_timeout(LIMIT);
            // A producer counts as lost until its hook returns.
            let builder = builder.on_error(OnError::Skip).retries(retries).min_producers(1);
            let mut pool = builder.build().unwrap();
            for run in 0..4 {
                let items = ITEMS * run..ITEMS * (run + 1);
                let (mut seen, error) = match pool.run(items.clone()) {
                    Ok(seen) => (seen, None),
                    // All four were in hooks that timed out.
                    Err(error) => (vec![], Some(error)),
                };
                let account = pool.account();
                if let Some(error) = error {
                    assert!(error.to_string().contains("producers"), "{error}");
                    continue;
                }
                assert!(order != Order::Input || seen.is_sorted());
                assert_eq!((account.ok, account.ok + account.failed), (seen.len() as u64, ITEMS));
                let failed = pool.failures().iter().map(|failure| {
                    assert!(failure.is_timeout(), "{failure}");
                    items.start + failure.item().expect("one item per hook")
                });
                seen.extend(failed);
                seen.sort_unstable();
                assert_eq!(seen, items.collect::<Vec<_>>(), "each once");
                timed_out += account.failed;
            }
            pool.close().unwrap();
        }
    }
    assert!(timed_out > 0, "no hook was late");
}

/// The hook has not returned when its run ends, and its item must not reach the next run.
#[test]
fn a_result_that_is_late_by_a_whole_run_is_dropped() {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let stuck = map(
        |_| Ok(()),
        move |_, (), x: u64| {
            if x == 3 {
                gate.lock().expect("one hook waits at a time").recv()?;
            }
            Ok(x)
        },
    );
    // Longer than a busy machine keeps the other hooks from their end.
    let limit = Duration::from_millis(300);
    let builder = OrderedRunner::builder(stuck).devices(2).item_timeout(limit);
    let mut pool = builder.on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run(0..6).unwrap(), [0, 1, 2, 4, 5]);
    assert_eq!(pool.failures()[0].item(), Some(3));
    open.send(()).unwrap();
    assert_eq!(pool.run(10..20).unwrap(), (10..20).collect::<Vec<_>>());
    assert_eq!(pool.account().failed, 0);
    pool.close().unwrap();
}
