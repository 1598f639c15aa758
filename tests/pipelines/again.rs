//! Expansions behind a gathering: the parts of a slide are gathered, and what they have become is expanded again.

use std::sync::Arc;

use gangline::{Batch, Order, ProducerContext, map_batches};

use crate::support::{Gathered, builder, no_hang, pass, pool, working};

/// Slide `n` has n % 4 regions, 10 n + i.
fn regions(n: &Arc<u64>) -> std::ops::Range<u64> {
    10 * **n..10 * **n + **n % 4
}

/// Where a stage waits for a whole batch, no parent could ever be complete without the pause before it.
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
                let (slides, mut work, mut later) =
                    (batched(sizes[0]), batched(sizes[1]), batched(sizes[2]));
                let mut join = pool(working(|_, (_, n): Gathered<u64>| Ok(n)), Order::Input, 2);
                let mut between = batched(sizes[1]);
                let mut write = pool(working(|_, (_, n): Gathered<u64>| Ok(n)), Order::Input, 1);
                let seen = slides
                    .expand(regions)
                    .open_parents(most)
                    .then(&mut work)
                    .gather(|_| 0, |n, _, _, _| *n += 1)
                    .then(&mut join)
                    .then(&mut between)
                    .expand(|n| 0..**n)
                    .open_parents(most)
                    .then(&mut later)
                    .gather(|_| 0, |sum, _, _, x| *sum += x + 1)
                    .then(&mut write)
                    .run(0..30)
                    .unwrap();
                let expected: Vec<_> = (0..30).map(|n| (1..=n % 4).sum::<u64>()).collect();
                assert_eq!(seen, expected);
            }
        }
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
            let join = working(|_, (slide, _): Gathered<Vec<u64>>| Ok(*slide));
            let mut join = pool(join, Order::Completion, 2);
            let mut later = pool(pass::<u64>(), Order::Completion, 2);
            let write = working(|_, (slide, _): Gathered<u64>| Ok(*slide));
            let mut write = pool(write, Order::Input, 1);
            let error = slides
                .expand(regions)
                .then(&mut split)
                .then(&mut work)
                .gather(|_| vec![], |all: &mut Vec<_>, _, _, x| all.push(x))
                .then(&mut join)
                .expand(regions)
                .then(&mut later)
                .gather(|_| 0, |sum: &mut u64, _, _, x| *sum += x)
                .then(&mut write)
                .run(0..20)
                .unwrap_err();
            assert!(format!("{error:#}").ends_with("it ends the run"), "{error:#}");
            assert_eq!(error.item(), Some(7));
        }
    });
}
