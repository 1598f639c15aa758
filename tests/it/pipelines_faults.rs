//! Runners in a row: what fails in one stage ends all, names its place, and is accounted there.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Batch, Builder, CancelToken, Error, Hook, Order, Pipeline, Result};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::pipelines::{check_row, pairs};
use crate::probe::Fault;
use crate::support::{Counter, Gate, map};

both_orders!(
    an_item_that_fails_in_any_stage,
    a_consumer_hook_that_fails,
    only_consumer_hooks_of_the_last_stage_can_fail,
    of_several_failures_the_first_in_order_stands,
    nothing_is_pulled_after_a_failure,
    a_failure_wakes_a_guarded_input,
    a_failure_wakes_producers_of_earlier_stages,
    items_of_a_batch_that_fail_together_count_in_their_own_stage,
    an_item_that_is_too_large_for_a_later_stage_fails_there,
    what_measures_items_of_a_later_stage_may_panic,
    a_state_that_cannot_be_made_anew,
    what_is_left_may_panic_when_dropped,
    a_run_within_a_hook_of_a_stage,
);

const ITEMS: u64 = 200;

pub(crate) type Row = [AnyOrderRunner<Hooks>; 3];

pub(crate) fn run(row: &mut Row, items: impl IntoIterator<Item = u64>) -> Result<Vec<u64>, Error> {
    try_run(row, items.into_iter().map(Result::<_, Error>::Ok))
}

fn try_run<E>(
    row: &mut Row,
    items: impl IntoIterator<Item = Result<u64, E>>,
) -> Result<Vec<u64>, Error>
where
    E: Into<gangline::BoxError>,
{
    let [a, b, c] = row;
    Pipeline::new(&mut *a).then(b).then(c).try_run(items)
}

/// All handles work, alone and in a row.
#[track_caller]
fn check_works(row: &mut Row) {
    let all = 1_000..1_020;
    assert_eq!(sorted(run(row, all.clone()).unwrap()), all.clone().collect::<Vec<_>>());
    check_row(row.each_ref(), 20, 20);
    for pool in row {
        assert_eq!(sorted(pool.run(all.clone()).unwrap()), all.clone().collect::<Vec<_>>());
        pool.close().unwrap();
    }
}

/// `failed` of each stage.
pub(crate) fn failed(row: &Row) -> [u64; 3] {
    row.each_ref().map(|pool| pool.account().failed)
}

pub(crate) fn only(stage: usize) -> [u64; 3] {
    std::array::from_fn(|i| u64::from(i == stage))
}

/// Three stages of these orders, `hooks` of each by its number.
fn row(orders: [Order; 3], hooks: impl Fn(usize) -> Hooks) -> Row {
    std::array::from_fn(|stage| hooks(stage).windowed(orders[stage], 2, [5, 3, 7][stage]))
}

/// Stages that fail at the item with this value, each only where `at` says so.
fn failing(orders: [Order; 3], fault: Fault, at: impl Fn(usize) -> Option<u64>) -> Row {
    row(orders, |stage| {
        let at = at(stage);
        Hooks::new().work(move |_, x| {
            if Some(x) == at {
                fault.strike()?;
            }
            Ok(x)
        })
    })
}

fn counted(count: u64, pulled: &Arc<AtomicU64>) -> impl Iterator<Item = u64> + use<> {
    let pulled = pulled.clone();
    (0..count).inspect(move |_| {
        pulled.fetch_add(1, SeqCst);
    })
}

fn an_item_that_fails_in_any_stage(order: Order) {
    for ((second, third), stage) in pairs().flat_map(|pair| (0..3).map(move |stage| (pair, stage)))
    {
        let orders = [order, second, third];
        let is_ordered = orders == [Order::Input; 3];
        for (fault, at) in [(Fault::Error, 0), (Fault::Panic, 71), (Fault::Error, ITEMS - 1)] {
            let mut row = failing(orders, fault, |i| (i == stage).then_some(at));
            let pulled = Arc::default();
            let error = run(&mut row, counted(ITEMS, &pulled)).unwrap_err();
            // Behind a stage that is not ordered items are counted anew.
            let keeps_index = orders[..stage].iter().all(|order| *order == Order::Input);
            let item = if keeps_index { Some(at) } else { error.item() };
            fault.check(&error, Hook::ProducerWork, item);
            assert_eq!(failed(&row), only(stage), "{orders:?}");
            let pulled = pulled.load(SeqCst);
            let consumed = row[2].account().ok;
            check_row(row.each_ref(), pulled, consumed);
            assert_eq!(row[0].account().unread, Some(ITEMS - pulled));
            if is_ordered {
                assert_eq!(consumed, at, "all before it are consumed, and none after it");
            }
            check_works(&mut row);
        }
    }
}

fn a_consumer_hook_that_fails(order: Order) {
    for ((second, third), fault) in pairs().flat_map(|p| Fault::BOTH.map(|fault| (p, fault))) {
        for hook in [Hook::ConsumerInit, Hook::ConsumerWork, Hook::ConsumerEnd] {
            let armed = Arc::new(AtomicBool::new(true));
            let mut row = row([order, second, third], |stage| {
                let is_armed = armed.clone();
                let strike = move || match stage == 2 && is_armed.load(SeqCst) {
                    true => fault.strike(),
                    false => Ok(()),
                };
                match hook {
                    Hook::ConsumerInit => Hooks::new().consumer_init(move |_| strike()),
                    Hook::ConsumerEnd => Hooks::new().consumer_end(move |_| strike()),
                    _ => Hooks::new().consume(move |cx, _| match cx.item() {
                        Some(71) => strike(),
                        _ => Ok(()),
                    }),
                }
            });
            let pulled = Arc::default();
            let error = run(&mut row, counted(ITEMS, &pulled)).unwrap_err();
            let is_work = hook == Hook::ConsumerWork;
            fault.check(&error, hook, is_work.then_some(71));
            assert_eq!(failed(&row), [0, 0, u64::from(is_work)]);
            let pulled = pulled.load(SeqCst);
            check_row(row.each_ref(), pulled, row[2].account().ok);
            match hook {
                Hook::ConsumerInit => assert_eq!(pulled, 0),
                Hook::ConsumerEnd => assert_eq!(row[2].account().ok, ITEMS),
                _ => assert!((72..=71 + 15).contains(&pulled), "{pulled}"),
            }
            armed.store(false, SeqCst);
            check_works(&mut row);
        }
    }
}

fn only_consumer_hooks_of_the_last_stage_can_fail(order: Order) {
    let mut row = row([order; 3], |stage| {
        Hooks::new().consume(move |_, _| match stage {
            2 => Ok(()),
            _ => Err("not the last".into()),
        })
    });
    assert_eq!(run(&mut row, 0..50).unwrap().len(), 50);
}

fn of_several_failures_the_first_in_order_stands(last: Order) {
    let orders = [Order::Input, Order::Input, last];
    for (at, first) in [([50, 30, 90], 1), ([30, 50, 40], 0), ([60, 60, 59], 2), ([9, 8, 7], 2)] {
        let mut row = failing(orders, Fault::Error, |stage| Some(at[stage]));
        let error = run(&mut row, 0..ITEMS).unwrap_err();
        // In order of completion any of them may be noticed first.
        let stage = if last == Order::Input {
            assert_eq!((error.item(), row[2].account().ok), (Some(at[first]), at[first]));
            first
        } else {
            at.iter().position(|&at| Some(at) == error.item()).unwrap()
        };
        if at[0] != at[1] || last == Order::Input {
            assert_eq!(failed(&row), only(stage), "{at:?}");
        }
        assert_eq!(failed(&row).iter().sum::<u64>(), 1);
    }
}

/// The item that fails waits until the input is being asked for another; that one is the last.
fn nothing_is_pulled_after_a_failure(order: Order) {
    for stage in 0..3 {
        let asked = Arc::new(Gate::new());
        let mut row = row([order; 3], |i| {
            let asked = asked.clone();
            Hooks::new().work(move |_, x| {
                if i == stage && x == 0 {
                    asked.pass();
                    return Err("it broke".into());
                }
                Ok(x)
            })
        });
        // Nothing comes out of it, so it returns when the run wants no more.
        let (_sender, receiver) = crossbeam_channel::bounded::<u64>(0);
        let mut until_the_failure = CancelToken::new().guard(receiver);
        let pulled = AtomicU64::new(0);
        let items = (0..).inspect(|&x| {
            pulled.fetch_add(1, SeqCst);
            assert!(x <= 2, "the input was asked again");
            if x == 2 {
                asked.open();
                assert!(until_the_failure.next().is_none());
            }
        });
        let error = run(&mut row, items).unwrap_err();
        assert_eq!((error.item(), pulled.into_inner()), (Some(0), 3));
        assert_eq!(failed(&row), only(stage));
    }
}

/// Its other end stays open for ever.
fn a_failure_wakes_a_guarded_input(order: Order) {
    for stage in 0..3 {
        let mut row = failing([order; 3], Fault::Error, |i| (i == stage).then_some(2));
        let (sender, receiver) = crossbeam_channel::unbounded();
        (0..3).for_each(|x| sender.send(x).unwrap());
        let error = run(&mut row, CancelToken::new().guard(receiver)).unwrap_err();
        assert!([Some(2), None].contains(&error.item()) || order == Order::Completion);
        assert_eq!(failed(&row), only(stage));
    }
}

/// They are told that their results are not wanted.
fn a_failure_wakes_producers_of_earlier_stages(order: Order) {
    for fault in Fault::BOTH {
        let at_work = Arc::new(Counter::new());
        let mut row = row([order; 3], |stage| {
            let at_work = at_work.clone();
            Hooks::new().work(move |cx, x| {
                if stage == 0 && (1..ITEMS).contains(&x) {
                    at_work.add(1);
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                }
                if stage == 2 && x == 0 {
                    at_work.reach(2);
                    fault.strike()?;
                }
                Ok(x)
            })
        });
        let error = run(&mut row, 0..ITEMS).unwrap_err();
        fault.check(&error, Hook::ProducerWork, Some(0));
        assert_eq!(failed(&row), only(2));
        check_works(&mut row);
    }
}

fn items_of_a_batch_that_fail_together_count_in_their_own_stage(order: Order) {
    let broken = || {
        Hooks::new().by_batch(|cx, inputs| {
            if cx.items()[0] < 4 {
                return Ok(inputs.drain(..).map(Ok).collect());
            }
            inputs.clear();
            Err("the device is gone".into())
        })
    };
    let build = |doubler: Hooks, window| {
        let builder = AnyOrderRunner::builder(doubler).devices(1).order(order).window(window);
        builder.batch(Batch::of(4)).build().unwrap()
    };
    let good = || Hooks::new().by_batch(|_, inputs| Ok(inputs.drain(..).map(Ok).collect()));
    for stage in 0..3 {
        let doubler = |i| if i == stage { broken() } else { good() };
        let mut row = [build(doubler(0), 8), build(doubler(1), 4), build(doubler(2), 12)];
        let [a, b, c] = &mut row;
        let error = Pipeline::new(&mut *a).then(b).then(c).run(0..100).unwrap_err();
        assert_eq!(
            (error.hook(), error.items()),
            (Some(Hook::ProducerWorkBatch), &[4, 5, 6, 7][..])
        );
        let failed = row.each_ref().map(|pool| pool.account().failed);
        assert_eq!(failed, only(stage).map(|failed| 4 * failed));
        for pool in &row[stage..] {
            assert!(pool.account().ok <= 4);
        }
        if order == Order::Input {
            assert_eq!(row[2].account().ok, 4);
        }
    }
}

/// Three stages, the second of which measures.
fn measured(
    order: Order,
    measure: impl FnOnce(Builder<Hooks, RuntimeOrder>) -> Builder<Hooks, RuntimeOrder>,
) -> Row {
    let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
    let measured = measure(builder).build().unwrap();
    [Hooks::new().pool(order, 2), measured, Hooks::new().pool(order, 2)]
}

fn an_item_that_is_too_large_for_a_later_stage_fails_there(order: Order) {
    let mut row = measured(order, |b| b.batch(Batch::up_to(4)).max_batch_cost(2_000_u64, |&x| x));
    let error = run(&mut row, (0..30).chain([2_001]).chain(0..30)).unwrap_err();
    assert!(format!("{error:#}").contains("2001"), "{error:#}");
    assert_eq!(failed(&row), only(1));
    check_row(row.each_ref(), row_pulled(&row), row[2].account().ok);
    if order == Order::Input {
        assert_eq!((error.item(), row[2].account().ok), (Some(30), 30));
    }
    check_works(&mut row);
}

fn what_measures_items_of_a_later_stage_may_panic(order: Order) {
    let mut row = measured(order, |b| {
        b.window_memory(10_000_u64, |&x| if x == 7 { panic!("no idea") } else { x }, |_| 0)
    });
    let error = run(&mut row, 0..50).unwrap_err();
    assert!(format!("{error:#}").ends_with("no idea"), "{error:#}");
    assert_eq!(failed(&row), only(1));
    check_row(row.each_ref(), row_pulled(&row), row[2].account().ok);
    check_works(&mut row);
}

fn row_pulled(row: &Row) -> u64 {
    let account = row[0].account();
    account.ok + account.failed + account.cancelled
}

fn a_state_that_cannot_be_made_anew(order: Order) {
    for stage in 0..3 {
        let fails = Arc::new(AtomicBool::new(false));
        let mut row = row([order; 3], |i| {
            let fails = fails.clone();
            Hooks::new()
                .init(move |_| match i == stage && fails.load(SeqCst) {
                    true => Err("out of memory".into()),
                    false => Ok(()),
                })
                .work(move |_, x| if i == stage && x == 7 { panic!("it broke") } else { Ok(x) })
        });
        assert!(run(&mut row, 7..8).unwrap_err().is_panic());
        fails.store(true, SeqCst);
        for _ in 0..2 {
            let items = (0..5).inspect(|_| panic!("nothing is to be pulled"));
            let error = run(&mut row, items).unwrap_err();
            assert_eq!(error.hook(), Some(Hook::ProducerInit));
            assert!(format!("{error:#}").ends_with("out of memory"));
            assert_eq!(failed(&row), [0; 3]);
            check_row(row.each_ref(), 0, 0);
        }
        fails.store(false, SeqCst);
        check_works(&mut row);
    }
}

struct Bomb(u64);

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("a bomb went off");
        }
    }
}

/// What waits between the stages is dropped item by item.
fn what_is_left_may_panic_when_dropped(order: Order) {
    for at in [0, 20] {
        let pass = || map(|_| Ok(()), |_, (), bomb: Bomb| Ok(bomb));
        let last = map(
            |_| Ok(()),
            move |_, (), bomb: Bomb| {
                let x = bomb.0;
                std::mem::forget(bomb);
                if x == at { Err("it broke".into()) } else { Ok(x) }
            },
        );
        let mut a =
            AnyOrderRunner::builder(pass()).devices(2).order(order).window(9).build().unwrap();
        let mut b =
            AnyOrderRunner::builder(pass()).devices(2).order(order).window(9).build().unwrap();
        let mut c =
            AnyOrderRunner::builder(last).devices(1).order(order).window(1).build().unwrap();
        for _ in 0..3 {
            let error = Pipeline::new(&mut a)
                .then(&mut b)
                .then(&mut c)
                .run((0..100).map(Bomb))
                .unwrap_err();
            assert!(format!("{error:#}").ends_with(": it broke"), "{error:#}");
            assert_eq!(c.account().failed, 1);
        }
    }
}

/// A whole row within one item of another.
fn a_run_within_a_hook_of_a_stage(order: Order) {
    let hooks = |stage| match stage {
        1 => Hooks::new().work(move |_, x| {
            let mut row = failing([order; 3], Fault::Error, |i| (i == 1 && x == 5).then_some(3));
            Ok(run(&mut row, 0..x)?.len() as u64)
        }),
        _ => Hooks::new(),
    };
    let mut row = row([order; 3], hooks);
    assert_eq!(sorted(run(&mut row, [1, 2, 3]).unwrap()), [1, 2, 3]);
    let error = run(&mut row, [1, 5, 2]).unwrap_err();
    let cause = error.source().unwrap().downcast_ref::<Error>().unwrap();
    assert_eq!((cause.hook(), failed(&row)), (Some(Hook::ProducerWork), only(1)));
}
