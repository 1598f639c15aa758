//! Bounds that exclude each other.

use std::time::Duration;

use gangline::error::BuildError;
use gangline::{Batch, Builder, Error, OrderedRunner, map_batches};

use crate::hooks::Hooks;

type Setup = Builder<Hooks, gangline::order::InputOrder>;

fn refusal(set: impl FnOnce(Setup) -> Setup) -> (BuildError, String) {
    match set(OrderedRunner::builder(Hooks::new()).devices(2)).build() {
        Err(Error::Build(refused)) => (refused.clone(), refused.to_string()),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was built"),
    }
}

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_backoff_that_begins_above_its_longest_time_is_refused() {
    for (first, most, text) in [
        (5_000 * MS, 1_000 * MS, "at most its longest, 1 s, got 5 s"),
        (MS, Duration::ZERO, "at most its longest, 0 ns, got 1 ms"),
        (Duration::MAX, 1_500 * MS, "at most its longest, 1.5 s, got"),
    ] {
        let (error, shown) = refusal(|it| it.retries(2).backoff(first, most));
        assert!(matches!(error, BuildError::Backoff { .. }), "{error}");
        assert!(
            shown.starts_with("the first time of backoff must be") && shown.contains(text),
            "{shown}"
        );
        // Without retries it has no effect, and is as wrong.
        assert!(matches!(refusal(|it| it.backoff(first, most)).0, BuildError::Backoff { .. }));
    }
    for (first, most) in [(MS, MS), (Duration::ZERO, Duration::ZERO), (MS, Duration::MAX)] {
        let built = OrderedRunner::builder(Hooks::new()).devices(1).retries(1).backoff(first, most);
        built.build().unwrap();
    }
}

#[test]
fn a_latency_that_no_batch_keeps_is_refused() {
    for (rule, text) in [
        (Batch::auto().latency(Duration::ZERO), "must be more than 0 s, got 0 s"),
        (Batch::auto().latency(10 * MS).within(20 * MS), "incomplete one, 20 ms, got 10 ms"),
        (Batch::auto().within(20 * MS).latency(20 * MS), "incomplete one, 20 ms, got 20 ms"),
    ] {
        let (error, shown) = refusal(|it| it.batch(rule));
        assert!(matches!(error, BuildError::Latency { .. }), "{error}");
        assert!(
            shown.starts_with("the latency of batch must be") && shown.ends_with(text),
            "{shown}"
        );
    }
    let rule = Batch::auto().latency(20 * MS).within(10 * MS);
    let work =
        map_batches(|_| Ok(()), |_, (), xs: &mut Vec<u64>| Ok(xs.drain(..).map(Ok).collect()));
    let mut pool = OrderedRunner::builder(work).devices(1).batch(rule).build().unwrap();
    assert_eq!(pool.run(0..3).unwrap(), [0, 1, 2]);
}

#[test]
fn other_bounds_that_exclude_each_other_are_refused() {
    let of = |set: fn(Setup) -> Setup| refusal(set).1;
    let texts = [
        of(|it| it.batch(Batch::of(8)).window(7)),
        of(|it| it.min_producers(3)),
        of(|it| it.max_failures(3)),
        of(|it| it.max_batch_cost(8_u64, |_| 1_u64)),
    ];
    let starts = [
        "window must be at least 8",
        "min_producers must be between 1 and 2, got 3",
        "max_failures has no effect",
        "max_batch_cost needs a rule",
    ];
    for (text, start) in texts.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
}
