//! Models of an expansion: parents are expanded into parts, and gathered.

use std::ops::Range;
use std::sync::Arc;

use gangline_scheduler::OnError;
use gangline_scheduler::batch::{Batch, Batching};
use gangline_scheduler::window::Window;
use shuttle::thread::{self, JoinHandle};

use super::explore;
use super::stages::stage_producers;
use crate::base::Order;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::expand::{ExpandLink, Parents, Unfold, closing};
use crate::engine::gather::{FoldParts, GatherLink};
use crate::engine::link::Earlier;
use crate::engine::link::be_parts;
use crate::error::{BoxError, Error, Result};
use crate::observe::event_log::{Detail, EventLog};
use crate::policy::Policy;
use crate::run::Run;
use crate::run::handover::feeder::Feeder;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::handover::item_queue::NextItem;
use crate::run::parts::{Holes, OpenParents, PartStage};
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunShape};
use crate::run::settle;
use crate::runner::RunControl;

/// A run has three stages and two links, and takes five times as long as that of other models.
const SCHEDULES: usize = 500;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    explore(SCHEDULES, model);
}

/// Parent `n` has (n + 1) % 3 parts.
struct Split;

impl Unfold<u64> for Split {
    type Part = u64;
    type Parts = Range<u64>;

    fn parts(&self, parent: &Arc<u64>) -> Range<u64> {
        10 * **parent..10 * **parent + (**parent + 1) % 3
    }

    fn next(parts: &mut Range<u64>) -> Option<Result<u64, BoxError>> {
        Iterator::next(parts).map(Ok)
    }
}

struct Collect;

impl FoldParts<u64, u64> for Collect {
    type Gathered = Vec<u64>;
    type Item = (Arc<u64>, Vec<u64>);

    fn init(&self, _: &u64) -> Vec<u64> {
        vec![]
    }

    fn add(&self, gathered: &mut Vec<u64>, _: &u64, part: u64, output: Result<u64, Error>) {
        let output = output.expect("failures are not gathered");
        assert_eq!(output % 10, part);
        gathered.push(output);
    }

    fn finish(&self, parent: Arc<u64>, gathered: Vec<u64>) -> (Arc<u64>, Vec<u64>) {
        (parent, gathered)
    }
}

/// How a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Complete,
    /// This part fails, and is skipped.
    Skips(u64),
    StopsAfter(usize),
    Cancel,
}

#[derive(Debug, Clone, Copy)]
struct Model {
    order: Order,
    windows: [usize; 3],
    parents: u64,
    open: usize,
    batch: Option<usize>,
    end: End,
}

fn new_run<I, T>(
    model: Model,
    (producers, stage): (usize, usize),
    batching: Option<Batching>,
    upstream: Option<Arc<dyn RunControl>>,
) -> Arc<Run<I, T>> {
    let order = if stage == 1 { model.order } else { Order::Input };
    let window = model.windows[stage];
    let shape = RunShape { order, producers, window, batching, kind: Default::default() };
    let policy = Policy { on_error: OnError::Skip, ..Policy::default() };
    let settings = Arc::new(RunSettings { policy, ..RunSettings::default() });
    let event_log = Arc::new(EventLog::new(producers, None, Detail::Run));
    let earlier = CarriedOver::nothing(producers);
    let in_line = InLine { upstream, ..InLine::default() };
    Arc::new(Run::new(shape, settings, earlier, in_line, event_log, Recording::default()))
}

/// Works on batches of parts.
fn batch_producer(run: Arc<Run<u64, u64>>, lane: usize) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut desk = ItemQueue::new(&run.handover, lane);
        while let Some(lease) = desk.next_lease() {
            match run.handover.dispatch.take_inputs(&lease) {
                Some(inputs) => {
                    let worked = inputs.into_iter().map(Ok).collect();
                    settle::each(&run, lane, (&lease, worked), vec![], &mut desk);
                }
                None => run.handover.dispatch.release(lease.id),
            }
        }
    })
}

fn last_producer(run: Arc<Run<(Arc<u64>, Vec<u64>), (u64, Vec<u64>)>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut item_queue = ItemQueue::new(&run.handover, 0);
        let mut next = item_queue.next();
        while let Some(NextItem::Untracked(seq, (parent, parts))) = next {
            next = item_queue.deliver_and_next(seq, Ok((*parent, parts)));
        }
    })
}

fn run_parts(model: Model) {
    let Model { order, windows, parents: items, open: most, batch, end } = model;
    let batching = batch.map(|size| Batching::new(Batch::of(size)));
    let first = new_run::<u64, u64>(model, (1, 0), None, None);
    let open = Arc::new(OpenParents::new(most, Holes::Fail));
    let upstream = closing(first.clone(), open.clone());
    let second = new_run::<u64, u64>(model, (2, 1), batching, Some(upstream));
    let stage = PartStage::new(open.clone());
    stage.be_last();
    be_parts(&second, stage);
    let third =
        new_run::<(Arc<u64>, Vec<u64>), (u64, Vec<u64>)>(model, (1, 2), None, Some(second.clone()));

    let parents = Arc::new(Parents::new(open.clone(), 0));
    let fixed = |run: &Arc<Run<u64, u64>>, order, window, stage| Earlier {
        run: run.clone(),
        order,
        window: Window::fixed(window),
        stage,
    };
    let expanding = ExpandLink {
        from: fixed(&first, Order::Input, windows[0], 0),
        to: second.clone(),
        unfold: Arc::new(Split),
        parents: parents.clone(),
    };
    let gathering = GatherLink {
        from: fixed(&second, order, windows[1], 1),
        to: third.clone(),
        fold: Arc::new(Collect),
        parents,
        stage: second.parts.get().expect("it was just set").clone(),
        leaving: order,
    };
    let mut threads = stage_producers(&first, 1, None);
    threads.extend(match batch {
        Some(_) => (0..2).map(|lane| batch_producer(second.clone(), lane)).collect(),
        None => stage_producers(&second, 2, if let End::Skips(at) = end { Some(at) } else { None }),
    });
    threads.push(last_producer(third.clone()));
    let links =
        [thread::spawn(move || _ = expanding.run()), thread::spawn(move || _ = gathering.run())];
    let consumer = {
        let third = third.clone();
        thread::spawn(move || consume(&third, windows[2], end))
    };
    let ender = {
        let runs: [Arc<dyn Interrupt>; 3] = [third.clone(), second.clone(), first.clone()];
        thread::spawn(move || {
            if end == End::Cancel {
                runs.iter().for_each(|run| run.cancel());
            }
        })
    };
    feed(&first, items);
    let seen = consumer.join().unwrap();
    links.into_iter().for_each(|link| link.join().unwrap());
    ender.join().unwrap();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    check_seen(seen, model);
}

fn feed(run: &Run<u64, u64>, items: u64) {
    let mut feeder = Feeder::new(&run.handover);
    let mut pulled = 0;
    while pulled < items && feeder.wait_for_permit(&run.handover) && feeder.spend(&run.handover) {
        feeder.push(&run.handover, pulled);
        pulled += 1;
    }
    run.handover.end(pulled);
}

fn consume(
    run: &Run<(Arc<u64>, Vec<u64>), (u64, Vec<u64>)>,
    window: usize,
    end: End,
) -> Vec<(u64, Vec<u64>)> {
    let window = Window::fixed(window);
    let mut collector = Collector::new(&run.handover, Order::Input, window, now());
    let (mut seen, mut total) = (vec![], None);
    while let Some((_, outcome)) = collector.next_result(run, &mut total) {
        seen.extend(outcome.ok());
        if end == End::StopsAfter(seen.len()) {
            run.stop();
        }
        collector.done(&run.handover);
    }
    run.abort();
    seen
}

fn check_seen(mut seen: Vec<(u64, Vec<u64>)>, model: Model) {
    if model.order == Order::Completion {
        seen.sort_unstable();
        seen.iter_mut().for_each(|(_, parts)| parts.sort_unstable());
    }
    let is_whole = |n: u64| !matches!(model.end, End::Skips(part) if part / 10 == n);
    let parts = |n: u64| Split.parts(&Arc::new(n)).collect::<Vec<_>>();
    let all: Vec<_> = (0..model.parents).filter(|n| is_whole(*n)).map(|n| (n, parts(n))).collect();
    match model.end {
        End::Complete | End::Skips(_) => assert_eq!(seen, all),
        End::StopsAfter(count) => assert_eq!(seen.len(), count),
        End::Cancel => {}
    }
    if model.order == Order::Input {
        assert_eq!(seen, all[..seen.len()]);
    }
}

const MODEL: Model = Model {
    order: Order::Input,
    windows: [1, 2, 1],
    parents: 3,
    open: 2,
    batch: None,
    end: End::Complete,
};

#[test]
fn parts_are_handed_over_and_gathered() {
    check(|| run_parts(MODEL));
    check(|| run_parts(Model { order: Order::Completion, ..MODEL }));
}

#[test]
fn one_open_parent_at_a_time() {
    check(|| run_parts(Model { open: 1, windows: [2, 1, 2], ..MODEL }));
}

/// Without the pause before a parent waits, the batch would wait for parts that never come.
#[test]
fn batches_of_the_parts_of_few_open_parents() {
    check(|| run_parts(Model { open: 1, windows: [1, 3, 1], batch: Some(3), ..MODEL }));
    check(|| run_parts(Model { open: 2, windows: [1, 4, 1], batch: Some(4), ..MODEL }));
}

#[test]
fn a_part_that_fails_withdraws_those_behind_it() {
    check(|| run_parts(Model { end: End::Skips(10), ..MODEL }));
    check(|| run_parts(Model { end: End::Skips(11), order: Order::Completion, ..MODEL }));
}

#[test]
fn expansions_that_end_early() {
    for end in [End::StopsAfter(1), End::Cancel] {
        check(move || run_parts(Model { end, ..MODEL }));
        check(move || run_parts(Model { end, open: 1, ..MODEL }));
    }
}
