//! Models of two stages that share one bound for the memory that their items take.

use std::sync::Arc;

use gangline_scheduler::window::Window;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread::{self, JoinHandle};

use crate::base::{Measure, Order};
use crate::concurrency::now;
use crate::engine::collector::Collector;
use crate::engine::feed::Source;
use crate::engine::link::{Earlier, StageLink};
use crate::observe::event_log::{Detail, EventLog};
use crate::run::Run;
use crate::run::handover::item_queue::{ItemQueue, NextItem};
use crate::run::handover::shared_budget::{Bounded, share_budget};
use crate::run::measures::Measures;
use crate::run::output_memory::measured;
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunShape};
use crate::runner::RunControl;

/// A run has two stages and a link, and takes longer than that of other models.
const SCHEDULES: usize = 500;
const WINDOW: usize = 4;

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    super::explore(SCHEDULES, model);
}

/// Two stages with one bound.
struct Model {
    sizes: &'static [u64],
    most: u64,
    /// What the items of both stages take, at least as long as they count.
    out: Arc<AtomicU64>,
    /// The item that the first stage holds until it has the next one.
    held: Option<u64>,
    /// The number of items that the first stage has had.
    begun: Arc<(Mutex<u64>, Condvar)>,
}

impl Model {
    fn new(sizes: &'static [u64], most: u64, held: Option<u64>) -> Self {
        Model { sizes, most, out: Arc::default(), held, begun: Arc::default() }
    }

    /// A run of items that take as much as `sizes` says. `measured` is called when an input is measured.
    fn stage(
        &self,
        producers: usize,
        upstream: Option<Arc<dyn RunControl>>,
        measured: impl Fn(u64) + Send + Sync + 'static,
    ) -> Arc<Run<u64, u64>> {
        let sizes = self.sizes;
        let mut measures = Measures::default();
        measures.set(Measure::Memory, self.most, move |&item: &u64| {
            measured(sizes[item as usize]);
            sizes[item as usize]
        });
        measures.set_output(move |&item: &u64| sizes[item as usize]);
        let run_settings = RunSettings { measures: Some(measures), ..RunSettings::default() };
        let (order, window) = (Order::Input, WINDOW);
        let (batching, kind) = (None, Default::default());
        let shape = RunShape { order, producers, window, batching, kind };
        let event_log = Arc::new(EventLog::new(producers, None, Detail::Run));
        let in_line = InLine { upstream, ..InLine::default() };
        let (earlier, recording) = (CarriedOver::nothing(producers), Recording::default());
        Arc::new(Run::new(shape, Arc::new(run_settings), earlier, in_line, event_log, recording))
    }

    /// Counts an item that counts in a stage by now. The sum exceeds the bound only if that has no room for the largest
    /// item of each stage.
    fn enter(out: &AtomicU64, size: u64, most: u64) {
        let out = out.fetch_add(size, Ordering::SeqCst) + size;
        assert!(out <= most, "{out} of {most} bytes are in flight");
    }

    fn producers(
        &self,
        run: &Arc<Run<u64, u64>>,
        count: usize,
        is_first: bool,
    ) -> Vec<JoinHandle<()>> {
        let largest = self.sizes.iter().max().expect("there are items");
        let (sizes, most) = (self.sizes, self.most.max(2 * largest));
        let held = self.held.filter(|_| is_first);
        let produce = |lane| {
            let (run, out, begun) = (run.clone(), self.out.clone(), self.begun.clone());
            thread::spawn(move || {
                let mut item_queue = ItemQueue::new(&run.handover, lane);
                let mut next = item_queue.next();
                while let Some(NextItem::Untracked(seq, item)) = next {
                    Self::enter(&out, sizes[item as usize], most);
                    if is_first {
                        *begun.0.lock().unwrap() += 1;
                        begun.1.notify_all();
                    }
                    if held == Some(item) {
                        let count = begun.0.lock().unwrap();
                        drop(begun.1.wait_while(count, |count| *count < item + 2).unwrap());
                    }
                    let measured = measured(&run, lane, seq, item).expect("the run goes on");
                    next = item_queue.deliver_and_next(seq, measured);
                }
            })
        };
        (0..count).map(produce).collect()
    }

    /// Feeds all items through both stages.
    fn run(&self) {
        let items = self.sizes.len() as u64;
        let first = self.stage(2, None, |_| {});
        let upstream: Arc<dyn RunControl> = first.clone();
        let out = self.out.clone();
        // The second stage measures an item before the first gives its room back.
        let second = self.stage(1, Some(upstream), move |size| {
            out.fetch_sub(size, Ordering::SeqCst);
        });
        let stages: [Arc<dyn Bounded>; 2] = [first.clone(), second.clone()];
        share_budget(&stages);

        let mut threads = self.producers(&first, 2, true);
        threads.extend(self.producers(&second, 1, false));
        let window = Window::fixed(WINDOW);
        let earlier = Earlier { run: first.clone(), order: Order::Input, window, stage: 0 };
        let link = StageLink::new(earlier, second.clone());
        let link = thread::spawn(move || link.run());
        let consumer = {
            let (sizes, out) = (self.sizes, self.out.clone());
            thread::spawn(move || consume(&second, sizes, &out))
        };
        Source::new(0..items, |items| items.next().map(Ok))
            .feed(&first, |items| items.next().map(Ok));
        assert_eq!(consumer.join().unwrap(), (0..items).collect::<Vec<_>>());
        assert_eq!(link.join().unwrap().given.items, items);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn consume(run: &Run<u64, u64>, sizes: &[u64], out: &AtomicU64) -> Vec<u64> {
    let window = Window::fixed(WINDOW);
    let mut collector = Collector::new(&run.handover, Order::Input, window, now());
    let (mut consumed, mut total) = (Vec::new(), None);
    while let Some((_, outcome)) = collector.next_result(run, &mut total) {
        let item = outcome.unwrap();
        out.fetch_sub(sizes[item as usize], Ordering::SeqCst);
        consumed.push(item);
        collector.done(&run.handover);
    }
    run.abort();
    consumed
}

/// The windows of both stages together have room for four times the bound.
#[test]
fn the_memory_of_both_stages_is_bounded() {
    check(|| Model::new(&[1; 6], 2, None).run());
    check(|| Model::new(&[1, 3, 2, 1, 3], 3, None).run());
}

/// The first stage holds an item until it has the next one. If both before it are in the second stage, there is room for
/// the next only once one of them is consumed. So only the second stage can wake the feeder of the first.
#[test]
fn room_that_one_stage_returns_wakes_the_feeder_of_another() {
    check(|| Model::new(&[1; 4], 3, Some(2)).run());
}
