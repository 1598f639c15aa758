//! A runner with hooks that each test writes for itself, and one test body for both orders.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use gangline::{
    AnyOrderRunner, Batch, ConsumerContext, Error, Order, ProducerContext, Result, Runner,
};

type OnProducer = dyn Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync;
type OnItem = dyn Fn(&ProducerContext<'_>, u64) -> Result<u64> + Send + Sync;
type OnBatch =
    dyn Fn(&ProducerContext<'_>, &mut Vec<u64>) -> Result<Vec<Result<u64>>> + Send + Sync;
type OnConsumer = dyn Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync;
type OnSkipped = dyn Fn(&ConsumerContext<'_>, &Error) -> Result<()> + Send + Sync;
pub type OnOutput = dyn Fn(&ConsumerContext<'_>, u64) -> Result<()> + Send + Sync;

/// The inputs of each batch.
pub type Calls = Arc<Mutex<Vec<Vec<u64>>>>;

/// Passes numbers through; the summary is what was consumed, in that order. Its states are not
/// `Send`. A test replaces the hooks that it is about.
pub struct Hooks {
    init: Box<OnProducer>,
    work: Box<OnItem>,
    batch: Option<Box<OnBatch>>,
    calls: Calls,
    end: Box<OnProducer>,
    consumer_init: Box<OnConsumer>,
    pub consume: Box<OnOutput>,
    skipped: Box<OnSkipped>,
    flush: Box<OnConsumer>,
    consumer_end: Box<OnConsumer>,
}

impl Hooks {
    pub fn new() -> Self {
        Hooks {
            init: Box::new(|_| Ok(())),
            work: Box::new(|_, x| Ok(x)),
            batch: None,
            calls: Calls::default(),
            end: Box::new(|_| Ok(())),
            consumer_init: Box::new(|_| Ok(())),
            consume: Box::new(|_, _| Ok(())),
            skipped: Box::new(|_, _| Ok(())),
            flush: Box::new(|_| Ok(())),
            consumer_end: Box::new(|_| Ok(())),
        }
    }

    pub fn init<F>(mut self, f: F) -> Self
    where
        F: Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.init = Box::new(f);
        self
    }

    pub fn work<F>(mut self, f: F) -> Self
    where
        F: Fn(&ProducerContext<'_>, u64) -> Result<u64> + Send + Sync + 'static,
    {
        self.work = Box::new(f);
        self
    }

    /// The hook for batches, which are noted. Without one they are worked on item by item, as by `work`.
    pub fn by_batch<F>(mut self, f: F) -> Self
    where
        F: Fn(&ProducerContext<'_>, &mut Vec<u64>) -> Result<Vec<Result<u64>>>,
        F: Send + Sync + 'static,
    {
        self.batch = Some(Box::new(f));
        self
    }

    /// The batches that the hook for them was given.
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// The number of items of each batch.
    pub fn sizes(&self) -> Vec<usize> {
        self.calls.lock().unwrap().iter().map(Vec::len).collect()
    }

    pub fn end<F>(mut self, f: F) -> Self
    where
        F: Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.end = Box::new(f);
        self
    }

    pub fn consumer_init<F>(mut self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.consumer_init = Box::new(f);
        self
    }

    pub fn consume<F>(mut self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>, u64) -> Result<()> + Send + Sync + 'static,
    {
        self.consume = Box::new(f);
        self
    }

    pub fn skipped<F>(self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.skipped_with(move |cx, _| f(cx))
    }

    pub fn skipped_with<F>(mut self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>, &Error) -> Result<()> + Send + Sync + 'static,
    {
        self.skipped = Box::new(f);
        self
    }

    pub fn flush<F>(mut self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.flush = Box::new(f);
        self
    }

    pub fn consumer_end<F>(mut self, f: F) -> Self
    where
        F: Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static,
    {
        self.consumer_end = Box::new(f);
        self
    }

    /// A pool with these hooks, `producers` of them, and a window of its own size.
    #[track_caller]
    pub fn pool(self, order: Order, producers: usize) -> AnyOrderRunner<Hooks> {
        AnyOrderRunner::builder(self).order(order).devices(producers).build().unwrap()
    }

    #[track_caller]
    pub fn batched(self, order: Order, producers: usize, batch: Batch) -> AnyOrderRunner<Hooks> {
        let builder = AnyOrderRunner::builder(self).order(order).devices(producers);
        builder.batch(batch).build().unwrap()
    }

    #[track_caller]
    pub fn windowed(self, order: Order, producers: usize, window: usize) -> AnyOrderRunner<Hooks> {
        AnyOrderRunner::builder(self)
            .order(order)
            .devices(producers)
            .window(window)
            .build()
            .unwrap()
    }
}

impl Runner for Hooks {
    type Input = u64;
    type Output = u64;
    type ProducerState = Rc<Cell<u64>>;
    type ConsumerState = Rc<RefCell<Vec<u64>>>;
    type Summary = Vec<u64>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Rc<Cell<u64>>> {
        (self.init)(cx)?;
        Ok(Rc::default())
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        seen: &mut Rc<Cell<u64>>,
        x: u64,
    ) -> Result<u64> {
        seen.set(seen.get() + 1);
        (self.work)(cx, x)
    }

    /// With the inputs in their place, so that a guilty one is searched for.
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        seen: &mut Rc<Cell<u64>>,
        inputs: &mut Vec<u64>,
    ) -> Result<Vec<Result<u64>>> {
        if let Some(batch) = &self.batch {
            assert_eq!(inputs.len(), cx.items().len());
            self.calls.lock().unwrap().push(inputs.clone());
            return batch(cx, inputs);
        }
        let each = inputs.iter().enumerate();
        each.map(|(i, &x)| Ok(Ok(self.producer_work(&cx.at(i), seen, x)?))).collect()
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, _: Rc<Cell<u64>>) -> Result<()> {
        (self.end)(cx)
    }

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Rc<RefCell<Vec<u64>>>> {
        (self.consumer_init)(cx)?;
        Ok(Rc::default())
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        consumed: &mut Rc<RefCell<Vec<u64>>>,
        y: u64,
    ) -> Result<()> {
        (self.consume)(cx, y)?;
        consumed.borrow_mut().push(y);
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        _: &mut Rc<RefCell<Vec<u64>>>,
        error: &Error,
    ) -> Result<()> {
        (self.skipped)(cx, error)
    }

    fn consumer_flush(
        &self,
        cx: &ConsumerContext<'_>,
        _: &mut Rc<RefCell<Vec<u64>>>,
    ) -> Result<()> {
        (self.flush)(cx)
    }

    fn consumer_end(
        &self,
        cx: &ConsumerContext<'_>,
        consumed: Rc<RefCell<Vec<u64>>>,
    ) -> Result<Vec<u64>> {
        (self.consumer_end)(cx)?;
        Ok(consumed.take())
    }
}

/// How many items were given out and not yet consumed, and the most that ever were.
#[derive(Debug, Default, Clone)]
pub struct Gauge {
    now: Arc<AtomicU64>,
    most: Arc<AtomicU64>,
}

impl Gauge {
    pub fn up(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    pub fn down(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn now(&self) -> u64 {
        self.now.load(Ordering::SeqCst)
    }

    pub fn most(&self) -> u64 {
        self.most.load(Ordering::SeqCst)
    }
}

/// Each function as a test for each order, which fails where it hangs.
macro_rules! both_orders {
    ($($test:ident),+ $(,)?) => {
        mod ordered {
            $(
                #[test]
                fn $test() {
                    crate::support::no_hang(|| super::$test(gangline::Order::Input));
                }
            )+
        }
        mod unordered {
            $(
                #[test]
                fn $test() {
                    crate::support::no_hang(|| super::$test(gangline::Order::Completion));
                }
            )+
        }
    };
}
pub(crate) use both_orders;

/// Results in the order of the input, whatever order they came in.
pub fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values
}
