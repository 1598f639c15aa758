//! What a pipeline with an expansion says of the items of its input, and what it passes over when it resumes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gangline::{Journal, OnError, Order, ProducerContext, Result};

use gangline::report::RetryOutcome;

use crate::support::{Gathered, ORDERS, builder, no_hang, pass, pool, skipping, sorted, working};

/// Fails for the part 21.
fn without_21(x: u64) -> Result<u64> {
    if x == 21 { Err("bad".into()) } else { Ok(x) }
}

fn tens(n: &Arc<u64>) -> impl Iterator<Item = u64> + Send + use<> {
    let n = **n;
    (0..10).map(move |i| n * 10 + i)
}

fn sum<P>(sum: &mut u64, _: &P, _: u64, x: u64) {
    *sum += x;
}

#[test]
fn a_parent_that_fails_with_a_part_counts_once() {
    no_hang(|| {
        for order in ORDERS {
            let mut first = builder(pass::<u64>(), order, 2).key(|x| format!("image {x}"));
            first = first.describe("read");
            let first = first.build().unwrap();
            let mut parts = skipping(working(|_, x| without_21(x)), order, 2);
            let mut last = pool(pass::<Gathered<u64>>(), Order::Input, 1);
            let mut line = first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
            let seen: Vec<u64> = line.run(0..5).unwrap().into_iter().map(|(n, _)| *n).collect();
            assert_eq!(sorted(seen), [0, 1, 3, 4]);
            let account = line.account();
            assert_eq!((account.ok, account.failed, account.cancelled), (4, 1, 0), "{order:?}");
            let report = line.report();
            assert_eq!((report.account, report.stages.len()), (account, 3));
            assert_eq!(report.stages[0].name, "read");
            let failures = line.failures();
            assert_eq!(failures.len(), 1);
            let failure = &failures[0];
            assert_eq!((failure.stage(), failure.item()), (2, Some(2)), "{order:?}");
            assert_eq!((failure.key(), failure.error().part()), (Some("image 2"), Some(1)));
            drop(line);
            assert_eq!(parts.account().failed, 1);
        }
    });
}

/// Attempts at a part are counted by its index in its stage, and its failure by that of its item.
#[test]
fn a_retried_part_is_named_by_its_item_and_ends_as_it_did() {
    no_hang(|| {
        for order in ORDERS {
            let mut first = builder(pass::<u64>(), order, 2).key(|x| format!("image {x}"));
            first = first.on_error(OnError::Skip);
            let first = first.build().unwrap();
            // 13 succeeds at the second attempt, 21 never.
            let work = |cx: &ProducerContext<'_>, x: u64| match (x, cx.attempt()) {
                (13, 1) => Err("once".into()),
                (x, _) => without_21(x),
            };
            let parts = builder(working(work), order, 2).on_error(OnError::Skip).retries(1);
            let mut parts = parts.build().unwrap();
            let mut last = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let mut line = first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
            line.run(0..5).unwrap();
            let report = line.report();
            let retries = &report.retries;
            assert_eq!((retries.items, retries.succeeded, retries.failed), (2, 1, 1), "{order:?}");
            let mut ended: Vec<_> = retries.list.iter().collect();
            ended.sort_by_key(|part| part.item);
            let ended: Vec<_> = ended
                .into_iter()
                .map(|part| (part.item, &part.parts[..], part.key.as_deref(), part.outcome))
                .collect();
            let expected = [
                (1, &[3][..], Some("image 1"), RetryOutcome::Succeeded),
                (2, &[1][..], Some("image 2"), RetryOutcome::Failed),
            ];
            assert_eq!(ended, expected, "{order:?}");
            let failure = report.failures.iter().find(|failure| !failure.parts.is_empty());
            assert_eq!(
                failure.map(|failure| (failure.item, &failure.parts[..])),
                Some((Some(2), &[1][..]))
            );
            let text = report.to_string();
            assert!(text.contains("item 2 (image 2), part 1"), "{text}");
        }
    });
}

#[test]
fn a_part_that_ends_the_run_is_named_by_its_item() {
    no_hang(|| {
        for order in ORDERS {
            let builder = builder(pass::<u64>(), order, 2);
            let first = builder.key(|x| format!("image {x}")).build().unwrap();
            let mut parts = pool(working(|_, x| without_21(x)), order, 2);
            let mut last = pool(pass::<Gathered<u64>>(), Order::Input, 1);
            let mut line = first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
            line.run(0..5).unwrap_err();
            let report = line.report();
            for failures in [&report.failures, &report.stages[1].report.failures] {
                let [failure] = &failures[..] else { panic!("{report}") };
                assert_eq!((failure.item, &failure.parts[..]), (Some(2), &[1][..]), "{order:?}");
                assert_eq!(failure.key.as_deref(), Some("image 2"), "{order:?}");
                assert_eq!(failure.error, "item 2 (\"image 2\"), part 1 failed");
            }
        }
    });
}

#[test]
fn a_part_that_ends_the_run_is_one_failed_item() {
    no_hang(|| {
        let first = pool(pass::<u64>(), Order::Input, 2);
        let mut parts = pool(working(|_, x| without_21(x)), Order::Input, 2);
        let mut last = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let mut line = first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
        line.run(0..1000).unwrap_err();
        let account = line.account();
        assert_eq!((account.ok, account.failed), (2, 1));
        assert_eq!(account.unread, Some(1000 - 3 - account.cancelled));
    });
}

/// An item that fails before the expansion passes by the stages of the parts.
#[test]
fn a_failure_before_the_expansion_names_its_stage() {
    no_hang(|| {
        for orders in ORDERS.map(|order| [Order::Input, order]) {
            let bad = |x: u64| if x == 2 { Err("bad".into()) } else { Ok(x) };
            let first = skipping(pass::<u64>(), orders[0], 1);
            let mut second = skipping(working(move |_, x| bad(x)), orders[0], 2);
            let mut a = skipping(pass::<u64>(), orders[1], 2);
            let mut b = skipping(pass::<u64>(), orders[1], 2);
            let mut last = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let mut line = first
                .then(&mut second)
                .expand(tens)
                .then(&mut a)
                .then(&mut b)
                .gather(|_| 0, sum)
                .then(&mut last);
            assert_eq!(line.run(0..4).unwrap().len(), 3);
            let account = line.account();
            assert_eq!((account.ok, account.failed, account.cancelled), (3, 1, 0));
            let failures = line.failures();
            assert_eq!(failures[0].stage(), 2);
            assert_eq!(failures[0].error().part(), None);
        }
    });
}

#[test]
fn a_journal_passes_over_parents_that_are_done() {
    no_hang(|| {
        for order in ORDERS {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("run.journal");
            let run = |journal, bad: fn(u64) -> Result<u64>| {
                let worked = Arc::new(AtomicU64::new(0));
                let count = worked.clone();
                let work = move |_: &ProducerContext<'_>, x: u64| {
                    count.fetch_add(1, Ordering::Relaxed);
                    bad(x)
                };
                let first = builder(pass::<u64>(), order, 2).on_error(OnError::Skip);
                let first = first.key(|x| format!("{x}")).journal(journal).build().unwrap();
                let mut parts = skipping(working(work), order, 2);
                let mut last = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
                let mut line =
                    first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
                let seen = line.run(0..5).unwrap().into_iter().map(|(n, _)| *n).collect();
                let account = line.account();
                let counts = [account.ok, account.failed, account.already_done];
                (sorted::<u64>(seen), counts, worked.load(Ordering::Relaxed))
            };
            let (seen, counts, _) = run(Journal::at(&at).resume(), without_21);
            assert_eq!((seen, counts), (vec![0, 1, 3, 4], [4, 1, 0]), "{order:?}");
            let again = run(Journal::at(&at).rerun_failed(), Ok);
            assert_eq!(again, (vec![2], [1, 0, 4], 10), "{order:?}");
            let nothing = run(Journal::at(&at).resume(), Ok);
            assert_eq!(nothing, (vec![], [0, 0, 5], 0), "{order:?}");
        }
    });
}

#[test]
fn outputs_are_those_of_gathered_parents() {
    no_hang(|| {
        for order in ORDERS {
            let first = pool(pass::<u64>(), order, 2);
            let mut parts = pool(pass::<u64>(), order, 2);
            let sums = |_: &ProducerContext<'_>, (_, sum): Gathered<u64>| Ok(sum);
            let mut last = pool(working(sums), order, 1);
            let mut line = first.expand(tens).then(&mut parts).gather(|_| 0, sum).then(&mut last);
            let some: Vec<u64> = line.outputs(0..).take(20).map(|sum| sum.unwrap()).collect();
            assert_eq!(some.len(), 20, "dropped before its end");
            let all: Vec<u64> = line.outputs(0..20).map(|sum| sum.unwrap()).collect();
            assert_eq!(sorted(all), (0..20).map(|n| n * 100 + 45).collect::<Vec<_>>());
            assert_eq!(line.account().ok, 20);
        }
    });
}
