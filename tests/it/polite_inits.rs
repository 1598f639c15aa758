//! A `producer_init` that gives up once its run is over: allowed, and no failure of the producer.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{Batch, CancelToken, Error, OnError, OrderedRunner, ProducerContext};

use crate::support::{Gate, map, no_hang, one_by_one};

/// Two go well, the third ends the run and gives up, the others go well.
fn third_ends(
    end: impl Fn() + Send + Sync + 'static,
) -> impl Fn(&ProducerContext<'_>) -> gangline::Result<()> + Send + Sync + 'static {
    let inits = AtomicU64::new(0);
    move |cx| {
        if inits.fetch_add(1, SeqCst) != 2 {
            return Ok(());
        }
        end();
        while !cx.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        Err("given up".into())
    }
}

fn panics_at(item: u64) -> impl Fn(u64) -> gangline::Result<u64> + Send + Sync + 'static {
    move |x| {
        if x == item {
            // Without the text of a panic, with its backtrace: that can take a second.
            resume_unwind(Box::new("it loses its state"));
        }
        Ok(x)
    }
}

#[test]
fn a_state_that_is_not_made_for_a_cancelled_run_is_made_for_the_next() {
    no_hang(|| {
        let token = CancelToken::new();
        let (cancel, work) = (token.clone(), panics_at(9));
        let work = map(third_ends(move || cancel.cancel()), move |_, (), x| work(x));
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .min_producers(1)
            .on_error(OnError::Skip)
            .cancel_token(token)
            .build()
            .unwrap();
        // Nothing comes after what it panics at, so the state is lost until the next run.
        assert_eq!(runner.run(0..10).unwrap().len(), 9);
        assert!(runner.run(0..9).unwrap_err().is_cancelled());
        let (outputs, report) = runner.run_with_report(0..9);
        assert_eq!(outputs.unwrap().len(), 9);
        assert!(report.producers.iter().all(|producer| producer.quarantined.is_none()), "{report}");
    });
}

#[test]
fn a_state_that_is_not_made_for_a_batch_of_a_cancelled_run_is_made_for_the_next() {
    no_hang(|| {
        let (token, gate) = (CancelToken::new(), Arc::new(Gate::new()));
        let (cancel, opens, work) = (token.clone(), gate.clone(), panics_at(3));
        let init = third_ends(move || {
            cancel.cancel();
            opens.open();
        });
        let work = map(init, move |_, (), x| {
            // The other producer leaves something for which a state is to be made.
            if x >= 10 {
                gate.pass();
            }
            work(x)
        });
        let mut runner = OrderedRunner::builder(one_by_one(work))
            .devices(2)
            .batch(Batch::of(2))
            .on_error(OnError::Skip)
            .cancel_token(token)
            .build()
            .unwrap();
        assert!(runner.run(0..100).unwrap_err().is_cancelled());
        let (outputs, report) = runner.run_with_report(10..20);
        assert_eq!(outputs.unwrap().len(), 10);
        assert!(report.producers.iter().all(|producer| producer.quarantined.is_none()), "{report}");
    });
}

#[test]
fn a_run_whose_time_is_over_before_it_begins_fails_with_that() {
    no_hang(|| {
        for is_line in [false, true] {
            let work = panics_at(9);
            let work = map(third_ends(|| {}), move |_, (), x| work(x));
            let mut runner = OrderedRunner::builder(work)
                .devices(2)
                .on_error(OnError::Skip)
                .run_timeout(Duration::from_secs(2))
                .build()
                .unwrap();
            assert!(runner.run([9]).unwrap().is_empty());
            let error = match is_line {
                false => runner.run(0..9).unwrap_err(),
                true => {
                    let last = map(|_| Ok(()), |_, (), x: u64| Ok(x));
                    let mut last = OrderedRunner::new(last, 1).unwrap();
                    runner.then(&mut last).run(0..9).unwrap_err()
                }
            };
            assert!(matches!(error, Error::RunTimedOut { .. }), "{error:#}");
        }
    });
}

/// It is not one of those that the runner could do without.
#[test]
fn an_init_that_gives_up_since_the_building_is_cancelled_is_no_producer_less() {
    no_hang(|| {
        let token = CancelToken::new();
        let cancel = token.clone();
        let init = move |cx: &ProducerContext<'_>| {
            if cx.producer() == 0 {
                return Ok(());
            }
            // Time for the builder to hear of the other. Where that is not enough the test sees less, and passes.
            thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            Err("given up".into())
        };
        let builder = OrderedRunner::builder(map(init, |_, (), x: u64| Ok(x)));
        let builder = builder.devices(2).min_producers(1).on_error(OnError::Skip);
        let error = builder.cancel_token(token).build().unwrap_err();
        assert!(error.is_cancelled(), "{error}");
    });
}
