//! Parts that fail, and functions of an expansion that panic.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::error::OutOfMemory;
use gangline::{Batch, BoxError, Error, Hook, OnError, Order, Pipeline, map_batches};

use crate::support::{
    Gate, Gathered, ORDERS, builder, no_hang, pass, pool, skipping, sorted, working,
};

/// Fails at this part.
fn failing_at(bad: u64) -> impl Fn(&gangline::ProducerContext<'_>, u64) -> gangline::Result<u64> {
    move |_, x| if x == bad { Err("bad tile".into()) } else { Ok(x) }
}

/// Parent `n` has the parts 10 n to 10 n + 9.
fn ten(n: &Arc<u64>) -> std::ops::Range<u64> {
    10 * **n..10 * **n + 10
}

#[test]
fn a_failed_part_names_its_parent_and_itself() {
    no_hang(|| {
        let mut open = builder(pass::<u64>(), Order::Input, 2)
            .key(|n: &u64| format!("s{n}.tif"))
            .build()
            .unwrap();
        let mut decode = pool(pass::<u64>(), Order::Input, 2);
        let mut work = pool(working(failing_at(37)), Order::Input, 3);
        let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let mut pipeline = Pipeline::new(&mut open)
            .expand(ten)
            .then(&mut decode)
            .then(&mut work)
            .gather(|_| 0, |count, _, _, _| *count += 1)
            .then(&mut write);
        let error = pipeline.run(0..100).unwrap_err();
        assert_eq!((error.item(), error.part(), error.key()), (Some(3), Some(7), Some("s3.tif")));
        assert_eq!((error.hook(), error.attempt()), (Some(Hook::ProducerWork), Some(1)));
        let text = format!("{error:#}");
        assert!(
            text.starts_with("item 3 (\"s3.tif\"), part 7 failed: producer_work failed"),
            "{text}"
        );
        assert!(text.ends_with("bad tile"), "{text}");
        drop(pipeline);
        assert_eq!(write.account().ok, 3, "the parents before it are consumed");
        let account = work.account();
        assert_eq!((account.ok, account.failed), (37, 1));
        assert_eq!(open.account().failed + decode.account().failed + write.account().failed, 0);
    });
}

#[test]
fn a_parent_fails_with_its_part_and_the_others_go_on() {
    no_hang(|| {
        for order in ORDERS {
            let calls = Arc::new(AtomicU64::new(0));
            let counts = calls.clone();
            let open = pool(pass::<u64>(), Order::Input, 1);
            let fails = failing_at(32);
            let mut work = skipping(
                working(move |cx, x| {
                    counts.fetch_add(u64::from(x / 10 == 3), SeqCst);
                    fails(cx, x)
                }),
                order,
                1,
            );
            let mut write = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let seen = open
                .expand(ten)
                .then(&mut work)
                .gather(|_| 0, |count, _, _, _| *count += 1)
                .then(&mut write)
                .run(0..20)
                .unwrap();
            let parents: Vec<_> = seen.iter().map(|(n, _)| **n).collect();
            let expected: Vec<_> = (0..20).filter(|n| *n != 3).collect();
            assert_eq!(sorted(parents), expected);
            assert!(seen.iter().all(|(_, count)| *count == 10));
            assert_eq!(calls.load(SeqCst), 3, "the parts behind it are not begun");
            let failures = write.failures();
            assert_eq!(failures.len(), 1);
            assert_eq!((failures[0].item(), failures[0].part()), (Some(3), Some(2)));
            let account = work.account();
            assert_eq!((account.ok, account.failed), (192, 1));
            assert_eq!(write.account().ok, 19);
        }
    });
}

/// The second part is in a hook when the first fails.
#[test]
fn a_hook_sees_that_its_part_is_withdrawn() {
    no_hang(|| {
        for batch in [false, true] {
            let began = Gate::default();
            let open = pool(pass::<u64>(), Order::Input, 1);
            let work = working(move |cx, x: u64| match x {
                0 => {
                    began.pass();
                    Err("bad tile".into())
                }
                1 => {
                    began.open();
                    while !cx.is_cancelled() {
                        std::thread::yield_now();
                    }
                    Err("it gave up".into())
                }
                _ => Ok(x),
            });
            let work = builder(work, Order::Input, 2).on_error(OnError::Skip);
            // With a time limit all parts are tracked.
            let work = match batch {
                true => work.item_timeout(std::time::Duration::from_secs(50)),
                false => work,
            };
            let mut work = work.build().unwrap();
            let mut write = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let seen = open
                .expand(ten)
                .then(&mut work)
                .gather(|_| 0, |count, _, _, _| *count += 1)
                .then(&mut write)
                .run(0..3)
                .unwrap();
            assert_eq!(seen.len(), 2);
            assert_eq!(write.failures().len(), 1);
            assert!(format!("{:#}", write.failures()[0]).ends_with("bad tile"));
            assert_eq!(work.account().failed, 1, "what gave up did not fail");
        }
    });
}

#[test]
fn the_parts_of_a_failed_parent_are_cut_from_batches() {
    no_hang(|| {
        for _ in 0..20 {
            let open = pool(pass::<u64>(), Order::Input, 1);
            let work = map_batches(
                |_| Ok(()),
                |_, (): &mut (), xs: &mut Vec<u64>| {
                    let result = |x| if x == 12 { Err(BoxError::from("bad tile")) } else { Ok(x) };
                    Ok(xs.drain(..).map(result).collect())
                },
            );
            let mut work = builder(work, Order::Input, 2)
                .batch(Batch::up_to(7))
                .on_error(OnError::Skip)
                .build()
                .unwrap();
            let mut write = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let seen = open
                .expand(ten)
                .open_parents(3)
                .then(&mut work)
                .gather(|_| 0, |count, _, _, _| *count += 1)
                .then(&mut write)
                .run(0..30)
                .unwrap();
            assert!(seen.iter().all(|(n, count)| **n != 1 && *count == 10));
            assert_eq!((seen.len(), work.account().failed), (29, 1));
        }
    });
}

#[test]
fn a_hole_is_gathered_and_counted() {
    no_hang(|| {
        for order in ORDERS {
            let open = pool(pass::<u64>(), Order::Input, 1);
            let mut work = skipping(working(failing_at(32)), order, 2);
            let mut write = pool(pass::<Gathered<Vec<u64>>>(), Order::Input, 1);
            let add = |all: &mut Vec<u64>, _: &u64, part, result: Result<u64, Error>| match result {
                Ok(x) => all.push(x),
                Err(error) => {
                    assert_eq!((error.item(), error.part(), part), (Some(3), Some(2), 2));
                    all.push(1_000);
                }
            };
            let seen = open
                .expand(ten)
                .then(&mut work)
                .gather_results(|_| vec![], add)
                .then(&mut write)
                .run(0..9)
                .unwrap();
            assert_eq!(seen.len(), 9);
            assert!(seen.iter().all(|(n, all)| all.contains(&1_000) == (**n == 3)));
            let account = work.account();
            assert_eq!((account.ok, account.failed), (89, 1));
            assert_eq!(write.account().failed, 0);
        }
    });
}

#[test]
fn an_iterator_of_parts_that_fails() {
    no_hang(|| {
        for on_error in [OnError::Stop, OnError::Skip] {
            let open = pool(pass::<u64>(), Order::Input, 1);
            let mut work =
                builder(pass::<u64>(), Order::Input, 2).on_error(on_error).build().unwrap();
            let mut write = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let parts = |n: &Arc<u64>| {
                let n = **n;
                (0..4).map(move |x| if (n, x) == (2, 1) { Err("torn") } else { Ok(x) })
            };
            let mut pipeline = open
                .try_expand(parts)
                .then(&mut work)
                .gather(|_| 0, |sum, _, _, x| *sum += x)
                .then(&mut write);
            let result = pipeline.run(0..5);
            drop(pipeline);
            let error = match &result {
                Err(error) => error,
                Ok(seen) => {
                    assert_eq!(seen.len(), 4);
                    &write.failures()[0]
                }
            };
            assert_eq!(result.is_err(), on_error == OnError::Stop);
            assert!(error.is_input() && !error.is_panic());
            assert_eq!((error.item(), error.part()), (Some(2), Some(1)));
            assert!(format!("{error:#}").ends_with("torn"), "{error:#}");
            assert_eq!(work.account().failed, 1);
        }
    });
}

/// Also where failures of parts are gathered: nothing is known of the parts that are missing.
#[test]
fn an_expansion_that_panics_fails_its_parent() {
    no_hang(|| {
        for (at_once, on_error) in [
            (true, OnError::Stop),
            (true, OnError::Skip),
            (false, OnError::Stop),
            (false, OnError::Skip),
        ] {
            let open = pool(pass::<u64>(), Order::Input, 1);
            let mut work =
                builder(pass::<u64>(), Order::Input, 2).on_error(on_error).build().unwrap();
            let mut write = skipping(pass::<Gathered<u64>>(), Order::Input, 1);
            let parts = move |n: &Arc<u64>| {
                let n = **n;
                assert!(!(at_once && n == 2), "torn");
                (0..4).inspect(move |x| assert!((n, *x) != (2, 1), "torn"))
            };
            let mut pipeline = open
                .expand(parts)
                .then(&mut work)
                .gather_results(|_| 0, |sum, _, _, x| *sum += x.unwrap_or(100))
                .then(&mut write);
            let result = pipeline.run(0..5);
            drop(pipeline);
            let error = match &result {
                Err(error) => error,
                Ok(seen) => {
                    assert_eq!(seen.iter().map(|seen| seen.1).collect::<Vec<_>>(), [6; 4]);
                    &write.failures()[0]
                }
            };
            assert_eq!(result.is_err(), on_error == OnError::Stop);
            assert!(error.is_input() && error.is_panic());
            assert_eq!((error.item(), error.part()), (Some(2), Some(u64::from(!at_once))));
            assert!(format!("{error:#}").ends_with("torn"), "{error:#}");
        }
    });
}

#[test]
fn a_gathering_that_panics_fails_its_parent() {
    no_hang(|| {
        for (in_init, on_error) in [
            (true, OnError::Stop),
            (true, OnError::Skip),
            (false, OnError::Stop),
            (false, OnError::Skip),
        ] {
            let open = pool(pass::<u64>(), Order::Input, 1);
            let mut work = pool(pass::<u64>(), Order::Input, 2);
            let mut write = builder(pass::<Gathered<u64>>(), Order::Input, 1)
                .on_error(on_error)
                .build()
                .unwrap();
            let init = move |n: &u64| {
                assert!(!in_init || *n != 2, "no seam");
                0
            };
            let add = move |sum: &mut u64, _: &u64, part, x| {
                assert!(in_init || (x, part) != (23, 3), "no seam");
                *sum += 1;
            };
            let mut pipeline = open.expand(ten).then(&mut work).gather(init, add).then(&mut write);
            let result = pipeline.run(0..5);
            drop(pipeline);
            let error = match &result {
                Err(error) => error,
                Ok(seen) => {
                    assert_eq!(seen.iter().map(|seen| *seen.0).collect::<Vec<_>>(), [0, 1, 3, 4]);
                    &write.failures()[0]
                }
            };
            assert_eq!(result.is_err(), on_error == OnError::Stop);
            assert!(error.is_panic() && !error.is_input());
            let part = if in_init { None } else { Some(3) };
            assert_eq!((error.item(), error.part()), (Some(2), part));
            assert!(error.source().unwrap().to_string().contains("gathering"), "{error:#}");
            assert!(format!("{error:#}").ends_with("no seam"), "{error:#}");
            assert_eq!((write.account().failed, work.account().failed), (1, 0));
        }
    });
}

#[test]
fn a_skipped_parent_leaves_its_gap() {
    no_hang(|| {
        let mut open = skipping(working(failing_at(2)), Order::Input, 2);
        let mut work = pool(pass::<u64>(), Order::Input, 2);
        let mut write = pool(
            working(|cx, (n, count): Gathered<u64>| {
                assert_eq!(cx.item(), Some(*n));
                Ok((*n, count))
            }),
            Order::Input,
            1,
        );
        let seen = Pipeline::new(&mut open)
            .expand(ten)
            .then(&mut work)
            .gather(|_| 0, |count, _, _, _| *count += 1)
            .then(&mut write)
            .run(0..5)
            .unwrap();
        assert_eq!(seen, [(0, 10), (1, 10), (3, 10), (4, 10)]);
        assert_eq!(write.failures()[0].item(), Some(2));
        assert_eq!((open.account().failed, open.account().ok), (1, 4));
    });
}

#[test]
fn parts_are_tried_again() {
    no_hang(|| {
        let open = pool(pass::<u64>(), Order::Input, 1);
        let flaky = working(|cx, x: u64| match cx.attempt() {
            1 if x.is_multiple_of(3) => Err("busy".into()),
            _ => Ok(x),
        });
        let mut work = builder(flaky, Order::Input, 3)
            .retries(2)
            .backoff(std::time::Duration::ZERO, std::time::Duration::ZERO)
            .build()
            .unwrap();
        let mut write = pool(pass::<Gathered<Vec<u64>>>(), Order::Input, 1);
        let seen = open
            .expand(ten)
            .then(&mut work)
            .gather(|_| vec![], |all, _, _, x| all.push(x))
            .then(&mut write)
            .run(0..20)
            .unwrap();
        let all: Vec<_> = seen.into_iter().flat_map(|seen| seen.1).collect();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
    });
}

#[test]
fn batches_of_parts_that_the_device_has_no_memory_for_are_split() {
    no_hang(|| {
        let open = pool(pass::<u64>(), Order::Input, 1);
        let work = map_batches(
            |_| Ok(()),
            |_, (): &mut (), xs: &mut Vec<u64>| match xs.len() {
                0..=4 => Ok(xs.drain(..).map(Ok).collect()),
                _ => Err(OutOfMemory::new("too much").into()),
            },
        );
        let mut work = builder(work, Order::Input, 2).batch(Batch::of(16)).build().unwrap();
        let mut write = pool(pass::<Gathered<Vec<u64>>>(), Order::Input, 1);
        let seen = open
            .expand(ten)
            .then(&mut work)
            .gather(|_| vec![], |all, _, _, x| all.push(x))
            .then(&mut write)
            .run(0..20)
            .unwrap();
        let all: Vec<_> = seen.into_iter().flat_map(|seen| seen.1).collect();
        assert_eq!(all, (0..200).collect::<Vec<_>>());
    });
}

/// Panics when it is dropped, unless it was taken apart.
struct Sharp(bool);

impl Drop for Sharp {
    fn drop(&mut self) {
        assert!(!self.0 || std::thread::panicking(), "it is sharp");
    }
}

#[test]
fn destructors_that_panic_end_nothing() {
    no_hang(|| {
        let open = pool(working(|_, n: u64| Ok(n)), Order::Input, 1);
        let mut work = skipping(
            working(|_, mut part: (u64, Sharp)| {
                part.1.0 = false;
                if part.0 % 10 == 7 { Err("bad tile".into()) } else { Ok((part.0, Sharp(true))) }
            }),
            Order::Input,
            2,
        );
        let mut write = skipping(
            working(|_, (n, mut sharp): (Arc<u64>, Vec<Sharp>)| {
                sharp.iter_mut().for_each(|sharp| sharp.0 = false);
                Ok(*n)
            }),
            Order::Input,
            1,
        );
        let parts = |n: &Arc<u64>| {
            let n = **n;
            (10 * n..10 * n + if n.is_multiple_of(2) { 10 } else { 5 }).map(|x| (x, Sharp(true)))
        };
        let seen = open
            .expand(parts)
            .then(&mut work)
            .gather(|_| vec![], |all, _, _, (_, sharp)| all.push(sharp))
            .then(&mut write)
            .run(0..20)
            .unwrap();
        assert_eq!(seen, (0..20).filter(|n| n % 2 == 1).collect::<Vec<_>>());
    });
}
