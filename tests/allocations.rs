//! What a run allocates and copies. The allocator counts for all threads, so this binary has one test, which
//! runs its parts in turn.

use std::alloc::System;
use std::time::Duration;

use gangline::{
    AnyOrderRunner, ConsumerContext, Journal, Order, ProducerContext, Result, Runner, map,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ITEMS: u64 = 100_000;

#[test]
fn nothing_is_allocated_or_copied_for_an_item() {
    for order in [Order::Input, Order::Completion] {
        for window in [None, Some(64)] {
            let allocations = allocations_of_a_run(order, window);
            // Growing rings and the run's own parts: a few for each doubling of the run.
            assert!(allocations < 1_000, "{order:?}, {window:?}: {allocations} allocations");
        }
        let allocations = allocations_of_a_stream(order);
        assert!(allocations < 1_000, "stream, {order:?}: {allocations} allocations");
        let allocations = allocations_of_a_pipeline(order);
        assert!(allocations < 2_000, "pipeline, {order:?}: {allocations} allocations");
    }
    payloads_stay_where_they_are();
    keys_take_no_memory_once_their_items_are_consumed();
    keys_take_no_memory_in_a_pipeline_either();
    done_items_take_no_memory_in_a_pipeline();
}

fn allocations_of_a_run(order: Order, window: Option<usize>) -> usize {
    let builder = AnyOrderRunner::builder(Count).devices(2).order(order);
    let builder = match window {
        Some(items) => builder.window(items),
        None => builder,
    };
    allocations_of(builder.build().expect("no hook of it fails"))
}

fn allocations_of(mut pool: AnyOrderRunner<Count>) -> usize {
    let region = Region::new(ALLOCATOR);
    assert_eq!(pool.run(0..ITEMS).expect("no hook of it fails"), ITEMS);
    region.change().allocations
}

fn allocations_of_a_stream(order: Order) -> usize {
    let runner = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let mut pool =
        AnyOrderRunner::builder(runner).devices(2).order(order).build().expect("it cannot fail");
    let region = Region::new(ALLOCATOR);
    let sum: u64 = pool.outputs(0..ITEMS).map(|output| output.expect("no hook of it fails")).sum();
    assert_eq!(sum, ITEMS * (ITEMS - 1) / 2);
    region.change().allocations
}

fn allocations_of_a_pipeline(order: Order) -> usize {
    let pass = map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let first =
        AnyOrderRunner::builder(pass).devices(2).order(order).build().expect("it cannot fail");
    let mut second = AnyOrderRunner::builder(Count)
        .devices(2)
        .order(order)
        .build()
        .expect("no hook of it fails");
    let region = Region::new(ALLOCATOR);
    assert_eq!(first.then(&mut second).run(0..ITEMS).expect("no hook of it fails"), ITEMS);
    region.change().allocations
}

fn keys_take_no_memory_once_their_items_are_consumed() {
    let mut pool = AnyOrderRunner::builder(Count)
        .devices(2)
        .window(64)
        .key(|item| format!("key of item {item:020}"))
        .build()
        .expect("no hook of it fails");
    check_memory(|items| pool.run(items).expect("no hook of it fails"));
}

fn keys_take_no_memory_in_a_pipeline_either() {
    for order in [Order::Input, Order::Completion] {
        let builder = || AnyOrderRunner::builder(Count).devices(2).window(64).order(order);
        let key = |item: &u64| format!("key of item {item:020}");
        let first = builder().key(key).build().expect("no hook of it fails");
        let mut second = builder().build().expect("no hook of it fails");
        let mut third = builder().build().expect("no hook of it fails");
        let mut line = first.then(&mut second).then(&mut third);
        check_memory(|items| line.run(items).expect("no hook of it fails"));
    }
}

fn done_items_take_no_memory_in_a_pipeline() {
    let folder = tempfile::tempdir().expect("there is room");
    for order in [Order::Input, Order::Completion] {
        let journal = Journal::at(folder.path().join(format!("{order:?}"))).resume();
        let journal = journal.commit_items(10_000).commit_every(Duration::from_secs(600));
        let builder = || AnyOrderRunner::builder(Count).devices(2).window(64).order(order);
        let first = builder().journal(journal).build().expect("no hook of it fails");
        let mut second = builder().build().expect("no hook of it fails");
        let mut third = builder().build().expect("no hook of it fails");
        let mut line = first.then(&mut second).then(&mut third);
        assert_eq!(line.run(0..ITEMS).expect("no hook of it fails"), ITEMS);
        check_memory(|items| {
            assert_eq!(line.run(items).expect("no hook of it fails"), 0);
            line.account().already_done
        });
    }
}

/// Both counts of live bytes are taken in one run, so the run's own parts cancel out. `run` returns the number of
/// items that it had.
fn check_memory(run: impl FnOnce(&mut dyn Iterator<Item = u64>) -> u64) {
    let live = || {
        let stats = ALLOCATOR.stats();
        stats.bytes_allocated as i64 - stats.bytes_deallocated as i64
    };
    let (mut early, mut late) = (0, 0);
    let mut items = (0..ITEMS).inspect(|&item| match item {
        10_000 => early = live(),
        item if item == ITEMS - 1 => late = live(),
        _ => {}
    });
    assert_eq!(run(&mut items), ITEMS);
    let grown = late - early;
    assert!(grown < 1 << 20, "{grown} bytes more after {ITEMS} items than after 10,000");
}

fn payloads_stay_where_they_are() {
    let runner = map(|_| Ok(()), |_, (), payload: Vec<u8>| Ok(payload));
    let mut pool = AnyOrderRunner::builder(runner).devices(2).build().expect("it cannot fail");
    let payloads: Vec<Vec<u8>> = (0..200).map(|_| vec![0; 1 << 10]).collect();
    let places = |payloads: &[Vec<u8>]| payloads.iter().map(|p| p.as_ptr() as usize).collect();
    let before: Vec<usize> = places(&payloads);
    let after: Vec<usize> = places(&pool.run(payloads).expect("no hook of it fails"));
    assert_eq!(after, before, "a payload was copied");
}

/// Counts its items; `map` would collect them, which allocates.
struct Count;

impl Runner for Count {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), input: u64) -> Result<u64> {
        Ok(input)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(0)
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, count: &mut u64, _: u64) -> Result<()> {
        *count += 1;
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, count: u64) -> Result<u64> {
        Ok(count)
    }
}
