//! Items that are tried again, and items that leave gaps in the order.

use super::*;

/// Items that fail before they are given out leave gaps in the indices.
fn run_with_gaps(batching: Option<Batching>) {
    let hub = Arc::new(hub(2, 3, batching));
    let threads = match batching {
        None => producers(&hub, 2),
        Some(batching) => batch_producers(&hub, 2, batching),
    };
    let is_gap = |seq| seq == 0 || seq == 3 || seq == 4;
    let consumer = {
        let hub = hub.clone();
        thread::spawn(move || {
            let mut collector = Collector::new(&hub, Order::Input, Window::fixed(3), now());
            let mut total = None;
            loop {
                if let Some((seq, outcome)) = collector.pop() {
                    assert_eq!(seq, collector.consumed());
                    assert_eq!(outcome.ok(), (!is_gap(seq)).then_some(seq * 10));
                    collector.done(&hub);
                    continue;
                }
                total = total.or_else(|| hub.total());
                if total == Some(collector.consumed()) {
                    break;
                }
                collector.settle(&hub);
                collector.wait(&hub, total, None);
            }
            hub.abort();
        })
    };
    let mut feeder = Feeder::new(&hub);
    for seq in 0..7 {
        assert!(acquire(&mut feeder, &hub));
        match is_gap(seq) {
            true => feeder.leave_gap(&hub, seq, Err(NoOutput::skipped(Error::Closed {}))),
            false => feeder.push(&hub, seq),
        }
    }
    hub.end(7);
    consumer.join().unwrap();
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), 4);
}

/// Works on a lease. Every third item fails its first attempt.
fn work_on_lease(hub: &Hub, item_queue: &mut ItemQueue<'_, u64, u64>, lease: &Lease) {
    let fails = |seq: u64| seq % 3 == 0 && lease.attempt == 1;
    let inputs = inputs_of(hub, lease);
    let outcome = |&seq: &u64| if fails(seq) { Outcome::Failed } else { Outcome::Succeeded };
    finish(hub, lease, &lease.items.iter().map(outcome).collect::<Vec<_>>());
    for (&seq, item) in lease.items.iter().zip(inputs) {
        if fails(seq) { try_again(hub, seq, item) } else { item_queue.deliver(seq, Ok(item * 10)) }
    }
}

/// Every third item fails its first attempt, and the second goes to the other producer.
fn run_with_retries(batching: Option<Batching>) {
    let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    let policy = Policy { retries: 1, backoff, ..Policy::default() };
    let hub = Arc::new(hub_with(policy, 2, 3, batching));
    let produce = |lane| {
        let hub = hub.clone();
        thread::spawn(move || {
            let mut item_queue = ItemQueue::new(&hub, lane);
            if batching.is_some() {
                while let Some(lease) = item_queue.next_lease() {
                    work_on_lease(&hub, &mut item_queue, &lease);
                }
                return;
            }
            let mut next = item_queue.next();
            while let Some(given) = next {
                next = match given {
                    NextItem::Untracked(seq, item) if seq % 3 == 0 => {
                        hub.dispatch.schedule(|state, _| state.scheduler.adopt(seq, lane));
                        try_again(&hub, seq, item);
                        item_queue.next()
                    }
                    NextItem::Untracked(seq, item) => {
                        item_queue.deliver_and_next(seq, Ok(item * 10))
                    }
                    NextItem::Leased(lease) => {
                        work_on_lease(&hub, &mut item_queue, &lease);
                        item_queue.next()
                    }
                };
            }
        })
    };
    let threads: Vec<_> = (0..2).map(produce).collect();
    let given = Arc::new(AtomicU64::new(0));
    let consumer = {
        let (hub, given) = (hub.clone(), given.clone());
        thread::spawn(move || collect(&hub, Order::Input, Window::fixed(3), &given, u64::MAX))
    };
    assert_eq!(feed(&hub, 5, &given), 5);
    assert_eq!(consumer.join().unwrap(), (0..5).collect::<Vec<_>>());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn items_that_are_tried_again() {
    check(|| run_with_retries(None));
}

#[test]
fn batches_with_items_that_are_tried_again() {
    check(|| run_with_retries(Some(Batching::new(Batch::of(2)))));
}

#[test]
fn gaps_among_items() {
    check(|| run_with_gaps(None));
}

#[test]
fn gaps_among_batches() {
    check(|| run_with_gaps(Some(Batching::new(Batch::of(2)))));
}
