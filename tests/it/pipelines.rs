//! Pipelines: their results, the order of these, and the items in flight meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{
    AnyOrderRunner, Batch, ConsumerContext, Order, OrderedRunner, Pipeline, Result, Runner,
    UnorderedRunner,
};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::support::{Counter, Gate, map, no_hang};

both_orders!(
    what_comes_out_is_what_streams_in_a_chain_give,
    handles_of_all_kinds_go_together,
    only_the_last_consumer_is_asked,
    an_endless_input_ends_when_the_last_consumer_stops,
    a_stop_in_consumer_init_pulls_nothing,
    a_stop_drops_what_the_stages_before_have_in_hand,
    stages_work_at_the_same_time,
    batches_in_every_stage,
    a_pipeline_runs_any_number_of_times,
    handles_work_alone_and_in_other_rows_afterwards,
    a_leaked_stream_of_a_stage_is_ended_first,
    no_item_is_left,
);

pub const ORDERS: [Order; 2] = [Order::Input, Order::Completion];

/// Each way in which two more stages can be ordered.
pub fn pairs() -> impl Iterator<Item = (Order, Order)> {
    ORDERS.into_iter().flat_map(|a| ORDERS.into_iter().map(move |b| (a, b)))
}

/// Makes `f(x)` of `x`, in a time that differs from one to the next.
fn uneven(f: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Hooks {
    Hooks::new().work(move |_, x| {
        (0..x.wrapping_mul(7_919) % 23).for_each(|_| thread::yield_now());
        Ok(f(x))
    })
}

fn plus(n: u64) -> Hooks {
    uneven(move |x| x + n)
}

fn what_comes_out_is_what_streams_in_a_chain_give(order: Order) {
    let (mut a, mut b) = (plus(1).pool(order, 2), plus(2).pool(order, 2));
    let chained = b.try_run(a.outputs(0..2_000)).unwrap();
    let piped = a.then(&mut b).run(0..2_000).unwrap();
    match order {
        Order::Input => assert_eq!(piped, chained),
        Order::Completion => assert_eq!(sorted(piped), sorted(chained)),
    }
}

fn handles_of_all_kinds_go_together(order: Order) {
    let parse = map(|_| Ok(()), |_, (), text: &str| Ok(text.parse::<u32>()?));
    let halve = map(|_| Ok(2.0), |_, by: &mut f64, x: u32| Ok(f64::from(x) / *by));
    let show = map(|_| Ok(()), |_, (), x: f64| Ok(x.to_string()));
    let parse = OrderedRunner::new(parse, 2).unwrap();
    let mut halve = UnorderedRunner::new(halve, 1).unwrap();
    let mut show = AnyOrderRunner::builder(show).devices(2).order(order).build().unwrap();
    let mut seen = parse.then(&mut halve).then(&mut show).run(["1", "2", "3"]).unwrap();
    seen.sort_unstable();
    assert_eq!(seen, ["0.5", "1", "1.5"]);
}

fn only_the_last_consumer_is_asked(order: Order) {
    let silent = || {
        Hooks::new()
            .consumer_init(|_| panic!("not the last"))
            .consume(|_, _| panic!("not the last"))
            .consumer_end(|_| panic!("not the last"))
    };
    let (a, mut b) = (silent().pool(order, 2), silent().pool(order, 2));
    let mut c = Hooks::new().pool(order, 2);
    assert_eq!(a.then(&mut b).then(&mut c).run(0..50).unwrap().len(), 50);
}

/// Stops at the item with this value.
fn stopping_at(value: u64) -> Hooks {
    Hooks::new().consume(move |cx, y| {
        if y == value {
            cx.stop();
        }
        Ok(())
    })
}

fn an_endless_input_ends_when_the_last_consumer_stops(order: Order) {
    for (second, third) in pairs() {
        let pulled = AtomicU64::new(0);
        let mut a = Hooks::new().windowed(order, 2, 4);
        let mut b = Hooks::new().windowed(second, 2, 6);
        let mut c = stopping_at(500).windowed(third, 2, 5);
        let items = (0..).inspect(|_| {
            pulled.fetch_add(1, SeqCst);
        });
        let seen = Pipeline::new(&mut a).then(&mut b).then(&mut c).run(items).unwrap();
        assert_eq!(seen.last(), Some(&500));
        let pulled = pulled.into_inner();
        assert!(pulled <= seen.len() as u64 + 15, "{pulled} for {}", seen.len());
        check_row([&a, &b, &c], pulled, seen.len() as u64);
        assert_eq!(c.account().failed + b.account().failed + a.account().failed, 0);
    }
}

/// The accounts add up in each stage, and from one to the next.
#[track_caller]
pub fn check_row<R: Runner, const N: usize>(
    stages: [&AnyOrderRunner<R>; N],
    mut pulled: u64,
    consumed: u64,
) {
    for stage in stages {
        let account = stage.account();
        let sum = account.ok + account.failed + account.already_done + account.cancelled;
        assert_eq!(sum, pulled, "{account:?}");
        pulled = account.ok;
    }
    assert_eq!(pulled, consumed);
}

fn a_stop_in_consumer_init_pulls_nothing(order: Order) {
    let ended = Arc::new(Counter::new());
    let ends = ended.clone();
    let mut a = Hooks::new().pool(order, 2);
    let mut b = Hooks::new()
        .consumer_init(|cx| {
            cx.stop();
            Ok(())
        })
        .consume(|_, _| panic!("nothing is consumed after a stop"))
        .consumer_end(move |_| {
            ends.add(1);
            Ok(())
        })
        .pool(order, 2);
    let items = (0..10).inspect(|_| panic!("nothing is pulled after a stop"));
    assert!(Pipeline::new(&mut a).then(&mut b).run(items).unwrap().is_empty());
    assert_eq!(ended.get(), 1);
    assert_eq!(a.account().unread, Some(10));
    check_row([&a, &b], 0, 0);
}

/// Their producers see it, wherever they are.
fn a_stop_drops_what_the_stages_before_have_in_hand(order: Order) {
    let at_work = Arc::new(Counter::new());
    let working = at_work.clone();
    let hooks = Hooks::new().work(move |cx, x| {
        if x > 0 {
            working.add(1);
            while !cx.is_cancelled() {
                thread::yield_now();
            }
        }
        Ok(x)
    });
    let mut a = hooks.pool(order, 2);
    let mut b = Hooks::new().pool(order, 2);
    let stops = at_work.clone();
    let mut c = Hooks::new()
        .consume(move |cx, _| {
            stops.reach(2);
            cx.stop();
            Ok(())
        })
        .pool(order, 2);
    assert_eq!(Pipeline::new(&mut a).then(&mut b).then(&mut c).run(0..).unwrap(), [0]);
    assert_eq!((a.account().ok, a.account().failed), (1, 0));
}

/// The first and the last each wait for the other to be in the middle of an item.
fn stages_work_at_the_same_time(order: Order) {
    let (first, last) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (is_first, is_last) = (first.clone(), last.clone());
    let a = Hooks::new()
        .work(move |_, x| {
            if x == 1 {
                is_first.open();
                last.pass();
            }
            Ok(x)
        })
        .pool(order, 1);
    let mut b = Hooks::new().pool(order, 1);
    let mut c = Hooks::new()
        .work(move |_, x| {
            if x == 0 {
                is_last.open();
                first.pass();
            }
            Ok(x)
        })
        .pool(order, 1);
    assert_eq!(a.then(&mut b).then(&mut c).run(0..20).unwrap().len(), 20);
}

/// Adds one by the batch, and notes how many came at once.
fn in_batches(
    order: Order,
    batch: Batch,
    window: usize,
) -> (AnyOrderRunner<Hooks>, Arc<AtomicU64>) {
    let most = Arc::new(AtomicU64::new(0));
    let notes = most.clone();
    let hooks = Hooks::new().by_batch(move |_, inputs| {
        notes.fetch_max(inputs.len() as u64, SeqCst);
        Ok(inputs.drain(..).map(|x| Ok(x + 1)).collect())
    });
    let builder = AnyOrderRunner::builder(hooks).devices(2).order(order);
    (builder.batch(batch).window(window).build().unwrap(), most)
}

fn batches_in_every_stage(order: Order) {
    let soon = Duration::from_micros(50);
    for batch in [Batch::of(3), Batch::up_to(3), Batch::of(3).within(soon)] {
        let (mut a, _) = in_batches(order, batch, 3);
        let (mut b, _) = in_batches(order, Batch::of(5), 7);
        let (mut c, _) = in_batches(order, batch, 4);
        for items in [0, 1, 250] {
            let seen = Pipeline::new(&mut a).then(&mut b).then(&mut c).run(0..items).unwrap();
            assert_eq!(sorted(seen), (3..items + 3).collect::<Vec<_>>());
        }
    }
}

fn a_pipeline_runs_any_number_of_times(order: Order) {
    let (a, mut b) = (plus(1).pool(order, 2), plus(1).pool(order, 2));
    let mut row = a.then(&mut b);
    for items in 0..50 {
        assert_eq!(row.run(0..items).unwrap().len() as u64, items);
    }
    assert!(format!("{row:?}").contains("stages: 2"));
}

fn handles_work_alone_and_in_other_rows_afterwards(order: Order) {
    let (mut a, mut b, mut c) =
        (plus(1).pool(order, 2), plus(10).pool(order, 1), plus(100).pool(order, 2));
    for _ in 0..3 {
        assert_eq!(
            sorted(Pipeline::new(&mut a).then(&mut b).then(&mut c).run([0, 1]).unwrap()),
            [111, 112]
        );
        assert_eq!(sorted(Pipeline::new(&mut c).then(&mut a).run([0, 1]).unwrap()), [101, 102]);
        assert_eq!(b.run([5]).unwrap(), [15]);
        assert_eq!(a.outputs([5]).map(Result::unwrap).collect::<Vec<_>>(), [6]);
        assert_eq!(Pipeline::new(&mut b).then(&mut a).try_run(c.outputs([0])).unwrap(), [111]);
    }
}

fn a_leaked_stream_of_a_stage_is_ended_first(order: Order) {
    let (mut a, mut b) = (plus(1).pool(order, 2), plus(1).pool(order, 2));
    for _ in 0..3 {
        let mut streams = (a.outputs(0..), b.outputs(0..));
        assert!(streams.0.next().is_some() && streams.1.next().is_some());
        std::mem::forget(streams);
        assert_eq!(sorted(Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap()), [2, 3, 4, 5, 6]);
    }
}

/// Neither in a good run nor in one that ends early.
fn no_item_is_left(order: Order) {
    let held = Arc::new(());
    let pass = || map(|_| Ok(()), |_, (), item: (u64, Arc<()>)| Ok(item));
    let last = |stop_at: u64| {
        let consume = move |cx: &ConsumerContext<'_>, (): &mut (), (x, _): (u64, Arc<()>)| {
            if x == stop_at {
                cx.stop();
            }
            Ok(())
        };
        pass().fold(|_| Ok(()), consume)
    };
    for stop_at in [0, 40, u64::MAX] {
        let a = AnyOrderRunner::builder(pass()).devices(2).order(order).build().unwrap();
        let mut b = AnyOrderRunner::builder(pass()).devices(2).order(order).build().unwrap();
        let mut c = AnyOrderRunner::builder(last(stop_at)).devices(1).order(order).build().unwrap();
        let items = (0..200).map(|x| (x, held.clone()));
        a.then(&mut b).then(&mut c).run(items).unwrap();
        assert_eq!(Arc::strong_count(&held), 1);
    }
}

#[test]
fn indices_are_those_of_the_input_while_stages_are_ordered() {
    no_hang(|| {
        let indexed = || {
            uneven(|x| x).consume(|cx, y| match cx.item() {
                Some(item) if item == y => Ok(()),
                item => Err(format!("{item:?} for {y}").into()),
            })
        };
        let checked = Hooks::new().work(|cx, x| match cx.item() {
            Some(item) if item == x => Ok(x),
            item => Err(format!("{item:?} for {x}").into()),
        });
        let mut a = uneven(|x| x).pool(Order::Input, 3);
        let mut b = checked.pool(Order::Input, 2);
        let mut c = indexed().pool(Order::Completion, 2);
        Pipeline::new(&mut a).then(&mut b).then(&mut c).run(0..500).unwrap();
        let mut c = indexed().pool(Order::Input, 2);
        let seen = a.then(&mut b).then(&mut c).run(0..500).unwrap();
        assert_eq!(seen, (0..500).collect::<Vec<_>>());
    });
}

/// An iterator that borrows and stays on its thread, as for `run`.
#[test]
fn the_input_may_borrow_and_need_not_be_send() {
    no_hang(|| {
        let values = std::rc::Rc::new(vec![1, 2, 3]);
        let borrowed = &values;
        let (a, mut b) = (plus(1).pool(Order::Input, 2), plus(1).pool(Order::Input, 2));
        let items = (0..3).map(|i| borrowed[i]);
        assert_eq!(a.then(&mut b).run(items).unwrap(), [3, 4, 5]);
    });
}

#[test]
fn a_pipeline_is_send_and_sync_for_every_runner() {
    fn send_and_sync<T: Send + Sync>() {}
    fn check<R: Runner + 'static, S: Runner + 'static>() {
        send_and_sync::<Pipeline<'_, R, S>>();
    }
    check::<Hooks, Hooks>();
}
