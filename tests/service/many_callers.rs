//! Many callers at once, with failures, deadlines and dropped calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use gangline::{Batch, Builder, Error, OrderedRunner};

use crate::hooks::Hooks;
use crate::support::no_hang;

const CALLERS: u64 = 64;
const CALLS: u64 = 150;

/// A number that looks random and is the same each time.
fn mixed(x: u64) -> u64 {
    (x ^ 0x5DEE_CE66).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

/// What the callers have seen.
#[derive(Default)]
struct Seen {
    ok: AtomicU64,
    failed: AtomicU64,
    late: AtomicU64,
    dropped: AtomicU64,
}

fn every_call_is_answered_once(
    set: impl FnOnce(
        Builder<Hooks, gangline::order::InputOrder>,
    ) -> Builder<Hooks, gangline::order::InputOrder>
    + Send
    + 'static,
) {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, x| match mixed(x) % 16 {
            0 => Err("bad".into()),
            1 => panic!("worse"),
            2 => {
                thread::sleep(Duration::from_micros(300));
                Ok(x)
            }
            _ => Ok(x),
        });
        let service = set(OrderedRunner::builder(hooks).devices(3).window(24)).build().unwrap();
        let service = service.into_service();
        let seen = Seen::default();
        thread::scope(|scope| {
            for caller in 0..CALLERS {
                let (service, seen) = (&service, &seen);
                scope.spawn(move || {
                    for x in (0..CALLS).map(|i| caller * CALLS + i) {
                        call(service, seen, x);
                    }
                });
            }
        });
        assert!(service.drain(Duration::from_secs(60)), "dropped calls have no answer to wait for");
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let account = service.account();
        // A call may be answered before it is dropped.
        assert!((0..=count(&seen.dropped)).contains(&(account.ok - count(&seen.ok))));
        // A caller that was late without a place had no call.
        assert!(account.failed >= count(&seen.failed));
        assert!(account.failed <= count(&seen.failed) + count(&seen.late) + count(&seen.dropped));
        let all = account.ok + account.failed + account.cancelled;
        assert!(all <= CALLERS * CALLS);
        let answered = [&seen.ok, &seen.failed, &seen.late, &seen.dropped].map(count);
        assert_eq!(answered.iter().sum::<u64>(), CALLERS * CALLS);
        service.close().unwrap();
    });
}

fn call(service: &gangline::Service<Hooks>, seen: &Seen, x: u64) {
    let answer = match mixed(x + 7) % 8 {
        0 => {
            drop(service.call_async(x));
            seen.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        1 => service.with_deadline(Duration::from_micros(mixed(x) % 2_000)).call(x),
        2 => crate::runtimes::block_on(service.call_async(x)),
        3 => match service.try_submit(x) {
            Ok(ticket) => ticket.wait(),
            // To try again and again would take the processor from the hooks.
            Err(_) => service.call(x),
        },
        _ => service.call(x),
    };
    match answer {
        Ok(y) => {
            assert_eq!(y, x, "its own answer");
            assert!(mixed(x) % 16 > 1);
            seen.ok.fetch_add(1, Ordering::Relaxed);
        }
        Err(Error::DeadlineExceeded { .. }) => {
            seen.late.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => {
            assert!(mixed(x) % 16 <= 1, "{error:#}");
            seen.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn one_by_one() {
    every_call_is_answered_once(|builder| builder);
}

#[test]
fn in_batches() {
    every_call_is_answered_once(|builder| builder.batch(Batch::up_to(8)));
}

#[test]
fn in_batches_that_wait() {
    let batch = Batch::of(8).within(Duration::from_millis(1));
    every_call_is_answered_once(move |builder| builder.batch(batch));
}

#[test]
fn with_copies_of_slow_items() {
    every_call_is_answered_once(|builder| builder.speculate());
}

#[test]
fn with_quarantine_and_timeouts() {
    every_call_is_answered_once(|builder| {
        builder.quarantine_after(3).item_timeout(Duration::from_secs(60))
    });
}

/// Counts what is alive.
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn new(alive: &Arc<AtomicU64>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn no_input_and_no_output_is_leaked() {
    no_hang(|| {
        let alive = Arc::new(AtomicU64::new(0));
        let pass = gangline::map(|_| Ok(()), |_, _: &mut (), x: Counted| Ok(x));
        let service = OrderedRunner::builder(pass).devices(2).window(8).build().unwrap();
        let service = service.into_service();
        for i in 0..2_000u64 {
            match mixed(i) % 3 {
                0 => drop(service.call_async(Counted::new(&alive))),
                1 => drop(service.try_submit(Counted::new(&alive))),
                _ => drop(service.call(Counted::new(&alive)).unwrap()),
            }
        }
        service.close().unwrap();
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    });
}
