//! Runs that are cancelled, stopped or drained, wherever their threads are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use gangline::{CancelToken, Order};

use crate::support::{Gate, Gathered, builder, no_hang, pass, pool, working};

/// Where the cancel is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    Open,
    Expand,
    Part,
    Work,
    Init,
    Add,
    Write,
}

const MOMENTS: [Moment; 7] = [
    Moment::Open,
    Moment::Expand,
    Moment::Part,
    Moment::Work,
    Moment::Init,
    Moment::Add,
    Moment::Write,
];

/// Runs an endless input of parents without end of parts, and calls `act` once at that moment.
fn run_until(moment: Moment, act: impl Fn() + Send + Sync + 'static, token: &CancelToken) -> bool {
    let act = Arc::new(act);
    let count = Arc::new(AtomicU64::new(0));
    // At the 20th of these events.
    let at = move |here: Moment| {
        if here == moment && count.fetch_add(1, SeqCst) == 20 {
            act();
        }
    };
    let at = Arc::new(at);
    let [a, b, c, d, e, f, g] = std::array::from_fn(|_| at.clone());
    let open = working(move |_, n: u64| {
        a(Moment::Open);
        Ok(n)
    });
    let open = builder(open, Order::Input, 2).cancel_token(token.clone()).build().unwrap();
    let work = working(move |_, x: u64| {
        d(Moment::Work);
        Ok(x)
    });
    let mut work = builder(work, Order::Input, 2).window(5).build().unwrap();
    let mut write = pool(
        working(move |_, (n, _): Gathered<u64>| {
            g(Moment::Write);
            Ok(*n)
        }),
        Order::Input,
        1,
    );
    let result = open
        .expand(move |n| {
            b(Moment::Expand);
            let c = c.clone();
            (0..**n % 7).inspect(move |_| c(Moment::Part))
        })
        .open_parents(2)
        .then(&mut work)
        .gather(
            move |_| {
                e(Moment::Init);
                0
            },
            move |sum: &mut u64, _, _, x| {
                f(Moment::Add);
                *sum += x;
            },
        )
        .then(&mut write)
        .run(0..);
    match &result {
        Ok(_) => {}
        Err(error) => assert!(error.is_cancelled(), "{error:#}"),
    }
    let account = work.account();
    assert_eq!(account.failed, 0);
    result.is_ok()
}

#[test]
fn a_cancel_ends_it_at_any_moment() {
    no_hang(|| {
        for moment in MOMENTS {
            let token = CancelToken::new();
            let cancels = token.clone();
            assert!(!run_until(moment, move || cancels.cancel(), &token), "{moment:?}");
        }
    });
}

#[test]
fn a_drain_completes_the_open_parents_at_any_moment() {
    no_hang(|| {
        for moment in MOMENTS {
            let token = CancelToken::new();
            let drains = token.clone();
            assert!(run_until(moment, move || drains.drain(), &token), "{moment:?}");
        }
    });
}

/// All but the first open parent wait: for permits of parts, for the permit of a parent, in the source.
#[test]
fn a_stop_of_the_last_consumer_ends_endless_parts() {
    no_hang(|| {
        let seen = Gate::default();
        let (open, mut work) =
            (pool(pass::<u64>(), Order::Input, 1), pool(pass::<u64>(), Order::Input, 1));
        let write = gangline::map(|_| Ok(()), |_, (), (n, _): Gathered<u64>| Ok(*n)).fold(
            |_| Ok(0),
            |cx, count: &mut u64, _| {
                *count += 1;
                cx.stop();
                Ok(())
            },
        );
        let mut write = pool(write, Order::Input, 1);
        let counts = seen.clone();
        let count = open
            .expand(move |n| {
                let counts = counts.clone();
                (0..if **n == 0 { 1 } else { u64::MAX }).inspect(move |_| counts.add(1))
            })
            .open_parents(2)
            .then(&mut work)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(&mut write)
            .run(0..)
            .unwrap();
        assert_eq!(count, 1);
    });
}

/// The link waits for the permit of a parent, whose only part is in a hook.
#[test]
fn a_cancel_reaches_a_link_that_waits_for_an_open_parent() {
    no_hang(|| {
        let token = CancelToken::new();
        let (cancels, arrived) = (token.clone(), Gate::default());
        let arrives = arrived.clone();
        let open = builder(pass::<u64>(), Order::Input, 1).cancel_token(token).build().unwrap();
        let work = working(move |cx, x: u64| {
            arrives.open();
            while !cx.is_cancelled() {
                std::thread::yield_now();
            }
            Ok(x)
        });
        let mut work = pool(work, Order::Input, 1);
        let mut write = pool(pass::<Gathered<u64>>(), Order::Input, 1);
        let canceller = std::thread::spawn(move || {
            arrived.pass();
            (0..100).for_each(|_| std::thread::yield_now());
            cancels.cancel();
        });
        let error = open
            .expand(|_| 0..1)
            .open_parents(1)
            .then(&mut work)
            .gather(|_| 0, |sum, _, _, x| *sum += x)
            .then(&mut write)
            .run(0..)
            .unwrap_err();
        assert!(error.is_cancelled());
        canceller.join().unwrap();
    });
}
