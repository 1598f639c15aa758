//! Producers that lost a race for an item and are still in its hook: what waits for them, and for how long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use gangline::event::Event;
use gangline::{CancelToken, Error, OnError, OrderedRunner, Runner};

use crate::support::{Counter, Gate, map, no_hang};

const SHORT: Duration = Duration::from_secs(1);

/// Work that is stuck at the first start of item 0 until the gate opens, and at each of item 100.
fn stuck_at_first(gate: &Arc<Gate>) -> impl Fn(u64) -> u64 + Send + Sync + use<> {
    let (gate, starts) = (gate.clone(), AtomicU64::new(0));
    move |x| {
        if x == 100 || x == 0 && starts.fetch_add(1, SeqCst) == 0 {
            gate.pass();
        }
        x
    }
}

/// Cancels the run in which a producer is quarantined. Later ones tell it at their starts, too.
fn cancels_at_first_loss(token: &CancelToken) -> impl FnMut(Duration, &Event) + use<> {
    let (token, mut is_first) = (token.clone(), true);
    move |_, event| {
        if matches!(event, Event::ProducerQuarantined { .. }) && std::mem::take(&mut is_first) {
            token.cancel();
        }
    }
}

/// A runner of two producers, of which one is at item 0 for as long as the gate is closed.
fn with_a_loser(
    gate: &Arc<Gate>,
) -> OrderedRunner<impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> + use<>> {
    let work = stuck_at_first(gate);
    let work = map(|_| Ok(()), move |_, (), x: u64| Ok(work(x)));
    let builder = OrderedRunner::builder(work).devices(2).window(2);
    let mut runner = builder.speculate().item_timeout(SHORT).build().unwrap();
    assert_eq!(runner.run(0..20).unwrap(), (0..20).collect::<Vec<_>>());
    runner
}

#[test]
fn a_loser_holds_a_close_no_longer_than_an_item_may_take() {
    no_hang(|| {
        for is_dropped in [false, true] {
            let gate = Arc::new(Gate::new());
            let mut runner = with_a_loser(&gate);
            if is_dropped {
                drop(runner);
            } else if let Err(error) = runner.close() {
                assert!(matches!(error, Error::TimedOut { .. }), "{error:#}");
            }
            gate.open();
        }
    });
}

#[test]
fn a_run_whose_only_producer_is_away_ends_in_time() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = with_a_loser(&gate);
        let error = runner.run([100]).unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error:#}");
        // One run, unless the machine was so slow that the first producer was written off in the first.
        loop {
            let error = runner.run(0..20).unwrap_err();
            if matches!(error, Error::TooFewProducers { here: 0, .. }) {
                break;
            }
            assert!(matches!(error, Error::TimedOut { .. }), "{error:#}");
            assert!(error.items().is_empty(), "no item is to blame: {error:#}");
            assert_eq!(runner.account().failed, 0);
        }
        gate.open();
    });
}

#[test]
fn runs_that_wait_for_a_producer_that_is_away_can_be_cancelled() {
    no_hang(|| {
        let (gate, inits) = (Arc::new(Gate::new()), AtomicU64::new(0));
        let (begun, token) = (Arc::new(Counter::new()), CancelToken::new());
        let (work, begins) = (stuck_at_first(&gate), begun.clone());
        let work = map(
            move |_| match inits.fetch_add(1, SeqCst) {
                0 | 1 => Ok(()),
                2 => Err("no state".into()),
                _ => Ok(()),
            },
            move |_, (), x: u64| match x {
                2 => panic!("it loses its state"),
                _ => Ok(work(x)),
            },
        );
        let work = work.fold(
            move |_| {
                begins.add(1);
                Ok(())
            },
            |_, (), _| Ok(()),
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .window(2)
            .speculate()
            .on_error(OnError::Skip)
            .cancel_token(token.clone())
            .observer(cancels_at_first_loss(&token))
            .build()
            .unwrap();
        assert!(runner.run(0..20).unwrap_err().is_cancelled());
        for number in 2..=4 {
            let (begun, token) = (begun.clone(), token.clone());
            let ender = std::thread::spawn(move || {
                begun.reach(number);
                token.cancel();
            });
            assert!(runner.run(0..20).unwrap_err().is_cancelled());
            ender.join().unwrap();
        }
        gate.open();
        runner.run(3..20).unwrap();
        runner.close().unwrap();
    });
}

#[test]
fn an_item_that_all_fail_slowly_is_not_tried_without_end() {
    no_hang(|| {
        let begun = Arc::new(Counter::new());
        let begins = begun.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| match begins.add(1) {
                // It ends here, so that a failure is one and no hang.
                n if n > 20 => Ok(x),
                n if n % 2 == 1 => {
                    begins.reach(n + 1);
                    Err("slow".into())
                }
                // The helper returns last, so it is the one to attribute the failure.
                _ => {
                    std::thread::sleep(Duration::from_millis(50));
                    Err("slower".into())
                }
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(3)
            .quarantine_after(3)
            .speculate()
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        assert!(runner.run([7]).unwrap().is_empty());
        assert!(begun.get() <= 6, "{} starts", begun.get());
        assert_eq!(runner.account().failed, 1);
    });
}

#[test]
fn a_retry_does_not_wait_for_a_producer_that_is_not_back_from_an_earlier_run() {
    no_hang(|| {
        let gates = [Arc::new(Gate::new()), Arc::new(Gate::new())];
        let (stuck, inits) = (gates.clone(), AtomicU64::new(0));
        let starts = [(); 2].map(|()| AtomicU64::new(0));
        let (fails, token) = (AtomicBool::new(true), CancelToken::new());
        let work = map(
            move |_| match inits.fetch_add(1, SeqCst) {
                3 => Err("no state".into()),
                _ => Ok(()),
            },
            move |_, (), x: u64| match x {
                0 | 1 if starts[x as usize].fetch_add(1, SeqCst) == 0 => {
                    stuck[x as usize].pass();
                    Ok(x)
                }
                5 => panic!("it loses its state"),
                7 if fails.swap(false, SeqCst) => Err("once".into()),
                _ => Ok(x),
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(3)
            .window(3)
            .speculate()
            .retries(1)
            .backoff(Duration::from_millis(1), Duration::from_millis(1))
            .cancel_token(token.clone())
            .on_error(OnError::Skip)
            .observer(cancels_at_first_loss(&token))
            .build()
            .unwrap();
        assert!(runner.run(0..20).unwrap_err().is_cancelled());
        // Both are away, and the third is gone. The first comes back.
        let gate = gates[0].clone();
        let all = runner.run(std::iter::once_with(|| {
            gate.open();
            7
        }));
        assert_eq!(all.unwrap(), [7]);
        gates[1].open();
        runner.close().unwrap();
    });
}
