//! Parents and parts: their order and what they are made of.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use gangline::{Batch, Order, Pipeline, map_batches};

use crate::support::{Gate, Gathered, ORDERS, builder, no_hang, pass, pool, sorted, working};

/// Parent `n` has the parts 100 n, 100 n + 1, ..., as many as its rest by 5.
fn parts_of(n: u64) -> std::ops::Range<u64> {
    100 * n..100 * n + n % 5
}

#[test]
fn parents_and_parts_keep_their_order() {
    no_hang(|| {
        for windows in [[1, 1, 1], [2, 7, 3], [64, 64, 64]] {
            for most in [1, 2, 9] {
                let build = |window| move |runner| builder(runner, Order::Input, 2).window(window);
                let mut open = build(windows[0])(pass::<u64>()).build().unwrap();
                let mut work = builder(working(|_, x: u64| Ok(x + 1)), Order::Input, 3)
                    .window(windows[1])
                    .build()
                    .unwrap();
                let mut write = builder(pass::<Gathered<Vec<(u64, u64)>>>(), Order::Input, 2)
                    .window(windows[2])
                    .build()
                    .unwrap();
                let mut pipeline = Pipeline::new(&mut open)
                    .expand(|n| parts_of(**n))
                    .open_parents(most)
                    .then(&mut work)
                    .gather(|_| vec![], |all: &mut Vec<_>, _, part, y| all.push((part, y)))
                    .then(&mut write);
                for items in [0, 1, 40] {
                    let seen = pipeline.run(0..items).unwrap();
                    let expected: Vec<_> = (0..items)
                        .map(|n| (Arc::new(n), (0..).zip(parts_of(n).map(|x| x + 1)).collect()))
                        .collect();
                    assert_eq!(seen, expected);
                }
                drop(pipeline);
                assert_eq!((open.account().ok, write.account().ok), (40, 40));
                let account = work.account();
                assert_eq!((account.ok, account.failed, account.cancelled), (80, 0, 0));
                assert_eq!(account.unread, Some(0));
            }
        }
    });
}

/// The index of a part in its own parent is in its error and in `add`.
#[test]
fn a_hook_sees_the_number_of_a_part_among_all_with_a_gap_behind_each_parent() {
    no_hang(|| {
        let open = pool(pass::<u64>(), Order::Input, 1);
        let number = working(|cx, _: u64| Ok(cx.item()));
        let write = pool(pass::<Gathered<Vec<Option<u64>>>>(), Order::Input, 1);
        let line = open.expand(|n| 0..**n).then(pool(number, Order::Input, 1));
        let gather = line.gather(|_| vec![], |all: &mut Vec<_>, _, _, at| all.push(at));
        let seen = gather.then(write).run([2, 0, 3]).unwrap();
        let seen: Vec<_> = seen.into_iter().map(|(_, numbers)| numbers).collect();
        assert_eq!(seen[..2], [vec![Some(0), Some(1)], vec![]]);
        let first = seen[2][0].unwrap();
        assert_eq!(seen[2], [first, first + 1, first + 2].map(Some));
        assert!(first > 3, "{seen:?}");
    });
}

#[test]
fn every_part_finds_its_parent_in_any_order() {
    no_hang(|| {
        for orders in ORDERS.iter().flat_map(|&a| ORDERS.map(|b| [a, b])) {
            for unordered in [false, true] {
                let open = pool(pass::<u64>(), Order::Input, 2);
                let mut first = pool(working(|_, x: u64| Ok(x + 1)), orders[0], 3);
                let mut second = pool(working(|_, x: u64| Ok(x + 1)), orders[1], 2);
                let mut write = pool(pass::<Gathered<Vec<(u64, u64)>>>(), Order::Input, 1);
                let parts = open.expand(|n| parts_of(**n)).then(&mut first).then(&mut second);
                let gather =
                    parts.gather(|_| vec![], |all: &mut Vec<_>, _, part, y| all.push((part, y)));
                let gather = if unordered { gather.unordered() } else { gather };
                let seen = gather.then(&mut write).run(0..300).unwrap();
                let is_ordered = orders == [Order::Input; 2];
                let seen = if is_ordered { seen } else { sorted(seen) };
                for ((n, all), expected) in seen.iter().zip(0..) {
                    assert_eq!(**n, expected);
                    let all =
                        if is_ordered && !unordered { all.clone() } else { sorted(all.clone()) };
                    let expected: Vec<_> = (0..).zip(parts_of(expected).map(|x| x + 2)).collect();
                    assert_eq!(all, expected, "{orders:?}");
                }
                assert_eq!(seen.len(), 300);
            }
        }
    });
}

#[test]
fn a_parent_without_parts_leaves_in_its_turn() {
    no_hang(|| {
        let open = pool(pass::<u64>(), Order::Input, 1);
        let mut work = pool(pass::<u64>(), Order::Input, 1);
        let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let seen = open
            .expand(|n| 0..if **n == 3 { 2 } else { 0 })
            .then(&mut work)
            .gather(|n| 10 * n, |sum, _, _, x| *sum += x)
            .then(&mut write)
            .run(0..6)
            .unwrap();
        assert_eq!(seen.iter().map(|(_, sum)| *sum).collect::<Vec<_>>(), [0, 10, 20, 31, 40, 50]);
    });
}

/// Runs parents of this many parts each, and returns the sizes of the batches.
fn batches(parents: u64, parts: u64, batch: usize, most: Option<usize>) -> Vec<usize> {
    let sizes = Arc::new(std::sync::Mutex::new(vec![]));
    let noted = sizes.clone();
    let open = pool(pass::<u64>(), Order::Input, 1);
    let mut decode = pool(pass::<u64>(), Order::Input, 1);
    let infer = map_batches(
        |_| Ok(()),
        move |_, (): &mut (), xs: &mut Vec<u64>| {
            noted.lock().unwrap().push(xs.len());
            Ok(xs.drain(..).map(Ok).collect())
        },
    );
    let mut infer = builder(infer, Order::Input, 1).batch(Batch::of(batch)).build().unwrap();
    let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
    let expand = open.expand(move |_| 0..parts);
    let expand = match most {
        Some(most) => expand.open_parents(most),
        None => expand,
    };
    let seen = expand
        .then(&mut decode)
        .then(&mut infer)
        .gather(|_| 0, |count, _, _, _| *count += 1)
        .then(&mut write)
        .run(0..parents)
        .unwrap();
    assert!(seen.iter().all(|(_, count)| *count == parts));
    assert_eq!(seen.len() as u64, parents);
    let sizes = sizes.lock().unwrap().clone();
    assert_eq!(sizes.iter().sum::<usize>() as u64, parents * parts);
    sizes
}

#[test]
fn batches_cross_parents() {
    no_hang(|| {
        for _ in 0..50 {
            let sizes = batches(7, 33, 32, None);
            assert!(sizes.len() <= 8, "{sizes:?}");
        }
    });
}

/// Its last parts fill no batch, and no further parent may open before they are gathered.
#[test]
fn the_parts_of_an_only_open_parent_do_not_wait_for_a_batch_to_fill() {
    no_hang(|| {
        assert_eq!(batches(3, 5, 4, Some(1)), [4, 1, 4, 1, 4, 1]);
        assert_eq!(batches(5, 1, 32, Some(2)).iter().sum::<usize>(), 5);
    });
}

/// Each parent is read only when those before it were consumed.
#[test]
fn a_ready_part_waits_for_no_later_parent() {
    no_hang(|| {
        let consumed = Gate::default();
        let counts = consumed.clone();
        let open = pool(pass::<u64>(), Order::Input, 2);
        let mut work = pool(pass::<u64>(), Order::Input, 3);
        let mut write = pool(
            working(move |_, (n, sum): Gathered<u64>| {
                counts.add(1);
                Ok((*n, sum))
            }),
            Order::Input,
            1,
        );
        let items = (0..50).inspect(|&n| consumed.reach(n));
        let mut pipeline = open
            .expand(|n| 0..**n)
            .then(&mut work)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(&mut write);
        assert_eq!(pipeline.run(items).unwrap().len(), 50);
    });
}

/// The parts are pulled on a thread of the pipeline, and only as far as the window goes.
#[test]
fn parts_are_pulled_lazily() {
    no_hang(|| {
        let pulled = Arc::new(AtomicUsize::new(0));
        let (gate, arrived) = (Gate::default(), Gate::default());
        let (counts, blocks, arrives) = (pulled.clone(), gate.clone(), arrived.clone());
        let caller = std::thread::current().id();
        let open = pool(pass::<u64>(), Order::Input, 1);
        let mut work = builder(
            working(move |_, x: u64| {
                arrives.add(1);
                blocks.pass();
                Ok(x)
            }),
            Order::Input,
            2,
        )
        .window(4)
        .build()
        .unwrap();
        let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let looks = pulled.clone();
        let watcher = std::thread::spawn(move || {
            arrived.reach(2);
            (0..100).for_each(|_| std::thread::yield_now());
            let seen = looks.load(SeqCst);
            gate.open();
            seen
        });
        let seen = open
            .expand(move |_| {
                let counts = counts.clone();
                (0..1_000).inspect(move |_| {
                    assert_ne!(std::thread::current().id(), caller);
                    counts.fetch_add(1, SeqCst);
                })
            })
            .then(&mut work)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(&mut write)
            .run([0])
            .unwrap();
        assert_eq!(seen[0].1, 499_500);
        assert!(watcher.join().unwrap() <= 4);
    });
}

#[test]
fn a_pipeline_runs_again_after_any_run() {
    no_hang(|| {
        let open = pool(
            working(|_, n: u64| if n == 99 { Err("no".into()) } else { Ok(n) }),
            Order::Input,
            2,
        );
        let mut work = pool(pass::<u64>(), Order::Input, 2);
        let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let mut pipeline = open
            .expand(|n| 0..**n)
            .then(&mut work)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(&mut write);
        for _ in 0..20 {
            assert!(pipeline.run([3, 2, 99, 4]).is_err());
            assert_eq!(pipeline.run([3, 4]).unwrap().iter().map(|seen| seen.1).sum::<u64>(), 9);
        }
        assert!(format!("{pipeline:?}").contains("stages: 3"));
    });
}
