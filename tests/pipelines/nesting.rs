//! Expansions within expansions: slide, region, tile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{Batch, OnError, Order, ProducerContext, map_batches};

use crate::support::{Gathered, ORDERS, builder, no_hang, pass, pool, skipping, sorted, working};

/// Slide `n` has n % 4 regions, 10 n + i; region `r` has r % 3 + 1 tiles, 100 r + i.
fn regions(n: &Arc<u64>) -> std::ops::Range<u64> {
    10 * **n..10 * **n + **n % 4
}

fn tiles(r: &Arc<u64>) -> std::ops::Range<u64> {
    100 * **r..100 * **r + **r % 3 + 1
}

fn expected(n: u64) -> Vec<Vec<u64>> {
    regions(&Arc::new(n)).map(|r| tiles(&Arc::new(r)).collect()).collect()
}

#[test]
fn slides_are_gathered_of_regions_and_regions_of_tiles() {
    no_hang(|| {
        for orders in ORDERS.iter().flat_map(|&a| ORDERS.map(|b| [a, b])) {
            for most in [1, 2, 8] {
                let slides = pool(pass::<u64>(), Order::Input, 2);
                let mut split = pool(pass::<u64>(), orders[0], 2);
                let mut work = pool(pass::<u64>(), orders[1], 3);
                let mut join =
                    pool(working(|_, (_, all): Gathered<Vec<u64>>| Ok(all)), Order::Input, 2);
                let mut write = pool(pass::<Gathered<Vec<Vec<u64>>>>(), Order::Input, 1);
                let seen = slides
                    .expand(regions)
                    .open_parents(most)
                    .then(&mut split)
                    .expand(tiles)
                    .open_parents(most)
                    .then(&mut work)
                    .gather(|_| vec![], |all: &mut Vec<_>, _, _, x| all.push(x))
                    .then(&mut join)
                    .gather(|_| vec![], |all: &mut Vec<_>, _, _, x| all.push(x))
                    .then(&mut write)
                    .run(0..100)
                    .unwrap();
                assert_eq!(seen.len(), 100);
                let is_ordered = orders == [Order::Input; 2];
                let seen = if is_ordered { seen } else { sorted(seen) };
                for (n, all) in seen {
                    let all = match is_ordered {
                        true => all,
                        false => sorted(all.into_iter().map(sorted).collect()),
                    };
                    assert_eq!(all, expected(*n), "{n} in {orders:?}");
                }
            }
        }
    });
}

/// Where a stage waits for a whole batch, no region or slide could ever be complete without its end.
#[test]
fn batches_in_every_stage_fill_or_go_on() {
    no_hang(|| {
        let batched = |size| {
            let pass = map_batches(
                |_| Ok(()),
                |_, (): &mut (), xs: &mut Vec<u64>| Ok(xs.drain(..).map(Ok).collect()),
            );
            builder(pass, Order::Input, 1).batch(Batch::of(size)).build().unwrap()
        };
        for sizes in [[7, 5, 3], [3, 64, 2], [1, 2, 64]] {
            for most in [1, 3] {
                let (slides, mut split, mut work) =
                    (batched(sizes[0]), batched(sizes[1]), batched(sizes[2]));
                let mut join = pool(working(|_, (_, n): Gathered<u64>| Ok(n)), Order::Input, 2);
                let mut later = batched(sizes[1]);
                let mut write = pool(working(|_, (_, n): Gathered<u64>| Ok(n)), Order::Input, 1);
                let seen = slides
                    .expand(regions)
                    .open_parents(most)
                    .then(&mut split)
                    .expand(tiles)
                    .open_parents(most)
                    .then(&mut work)
                    .gather(|_| 0, |n, _, _, _| *n += 1)
                    .then(&mut join)
                    .then(&mut later)
                    .gather(|_| 0, |sum, _, _, n| *sum += n)
                    .then(&mut write)
                    .run(0..30)
                    .unwrap();
                let tiles: Vec<_> = (0..30)
                    .map(|n| expected(n).iter().map(Vec::len).sum::<usize>() as u64)
                    .collect();
                assert_eq!(seen, tiles);
            }
        }
    });
}

#[test]
fn a_failed_tile_fails_its_region_and_its_slide() {
    no_hang(|| {
        let begun = Arc::new(AtomicU64::new(0));
        let counts = begun.clone();
        let slides =
            builder(pass::<u64>(), Order::Input, 1).key(|n: &u64| format!("s{n}")).build().unwrap();
        let mut split = skipping(pass::<u64>(), Order::Input, 1);
        let mut work = skipping(
            working(move |_, x: u64| {
                counts.fetch_add(u64::from(x / 1_000 == 3), SeqCst);
                if x == 3_001 { Err("bad tile".into()) } else { Ok(x) }
            }),
            Order::Input,
            1,
        );
        let mut join = skipping(working(|_, (_, n): Gathered<u64>| Ok(n)), Order::Input, 1);
        let mut write = builder(pass::<Gathered<u64>>(), Order::Input, 1)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let seen = slides
            .expand(|n| 10 * **n..10 * **n + 2)
            .then(&mut split)
            .expand(|r| 100 * **r..100 * **r + 4)
            .then(&mut work)
            .gather(|_| 0, |n, _, _, _| *n += 1)
            .then(&mut join)
            .gather(|_| 0, |sum, _, _, n| *sum += n)
            .then(&mut write)
            .run(0..6)
            .unwrap();
        let slides_seen: Vec<_> = seen.iter().map(|(n, tiles)| (**n, *tiles)).collect();
        assert_eq!(slides_seen, [(0, 8), (1, 8), (2, 8), (4, 8), (5, 8)]);
        let error = &write.failures()[0];
        assert_eq!((error.item(), error.key(), error.part()), (Some(3), Some("s3"), Some(1)));
        assert!(error.to_string().starts_with("item 3 (\"s3\"), part 0"), "{error}");
        assert!(format!("{error:#}").contains("part 0, part 1 failed"), "{error:#}");
        assert!(begun.load(SeqCst) <= 6, "{begun:?}");
    });
}

/// The failure that ends a run comes behind all parts, and is none itself.
#[test]
fn a_failure_that_ends_the_run_passes_stages_that_mix_their_parts() {
    no_hang(|| {
        for ends in [true, false] {
            let fails_at = move |n: u64| {
                move |_: &ProducerContext<'_>, x: u64| match x == n {
                    true => Err("it ends the run".into()),
                    false => Ok(x),
                }
            };
            let slides = pool(working(fails_at(if ends { 7 } else { 1000 })), Order::Input, 2);
            let mut split = pool(working(fails_at(71)), Order::Completion, 2);
            let mut work = pool(pass::<u64>(), Order::Completion, 3);
            let join = working(|_, (_, all): Gathered<Vec<u64>>| Ok(all.len() as u64));
            let mut join = pool(join, Order::Completion, 2);
            let write = working(|_, (slide, _): Gathered<u64>| Ok(*slide));
            let mut write = pool(write, Order::Input, 1);
            let error = slides
                .expand(regions)
                .then(&mut split)
                .expand(tiles)
                .then(&mut work)
                .gather(|_| vec![], |all: &mut Vec<_>, _, _, x| all.push(x))
                .then(&mut join)
                .gather(|_| 0, |sum: &mut u64, _, _, x| *sum += x)
                .then(&mut write)
                .run(0..20)
                .unwrap_err();
            assert!(format!("{error:#}").ends_with("it ends the run"), "{error:#}");
            assert_eq!(error.item(), Some(7));
        }
    });
}
