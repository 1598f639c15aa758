//! A runner that can be made to fail in any hook, and that counts what happens to it.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use gangline::order::OrderKind;
use gangline::{
    Account, AnyOrderRunner, ConsumerContext, Devices, Error, Hook, Order, Pool, ProducerContext,
    Result, Runner,
};

use crate::support::Counter;

/// How a hook goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    Error,
    Panic,
}

impl Fault {
    pub(crate) const BOTH: [Fault; 2] = [Fault::Error, Fault::Panic];

    pub(crate) fn strike(self) -> Result<()> {
        match self {
            Fault::Error => Err("it broke".into()),
            Fault::Panic => panic!("it broke"),
        }
    }

    /// The error says which hook, which item and which cause.
    #[track_caller]
    pub(crate) fn check(self, error: &Error, hook: Hook, item: Option<u64>) {
        assert_eq!(error.hook(), Some(hook), "{error:#}");
        assert_eq!(error.item(), item, "{error:#}");
        assert_eq!(error.is_panic(), self == Fault::Panic, "{error:#}");
        assert_eq!(error.device().is_some(), is_of_a_producer(hook), "{error:#}");
        assert!(!error.is_cancelled() && !error.is_closed() && !error.is_input(), "{error:#}");
        let text = format!("{error:#}");
        assert!(text.starts_with(&hook.to_string()), "{text}");
        assert!(text.ends_with(": it broke"), "{text}");
        if let Some(item) = item {
            assert!(text.contains(&format!("item {item}")), "{text}");
        }
    }
}

fn is_of_a_producer(hook: Hook) -> bool {
    matches!(hook, Hook::ProducerInit | Hook::ProducerWork | Hook::ProducerEnd)
}

fn index(hook: Hook) -> usize {
    match hook {
        Hook::ProducerInit => 0,
        Hook::ProducerWork => 1,
        Hook::ProducerEnd => 2,
        Hook::ConsumerInit => 3,
        Hook::ConsumerWork => 4,
        Hook::ConsumerEnd => 5,
        _ => unreachable!("there are six hooks"),
    }
}

/// How many there were, and how many there are.
#[derive(Debug, Default)]
pub(crate) struct Census {
    made: AtomicU64,
    dropped: AtomicU64,
}

impl Census {
    pub(crate) fn made(&self) -> u64 {
        self.made.load(SeqCst)
    }

    pub(crate) fn alive(&self) -> u64 {
        let dropped = self.dropped.load(SeqCst);
        self.made() - dropped
    }
}

/// Is counted for as long as it lives.
#[derive(Debug)]
pub(crate) struct Alive(Arc<Census>);

impl Alive {
    pub(crate) fn new(census: &Arc<Census>) -> Self {
        census.made.fetch_add(1, SeqCst);
        Alive(census.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

thread_local! {
    /// Dropped when the thread ends, which is before it can be joined.
    static PRESENT: RefCell<Vec<Alive>> = const { RefCell::new(Vec::new()) };
}

/// Counts the current thread for as long as it lives.
fn count_this_thread(census: &Arc<Census>) {
    PRESENT.with_borrow_mut(|present| {
        if !present.iter().any(|alive| Arc::ptr_eq(&alive.0, census)) {
            present.push(Alive::new(census));
        }
    });
}

/// What happened to a [`Probe`].
#[derive(Debug, Default)]
pub(crate) struct Tally {
    disarmed: AtomicBool,
    called: [Counter; 6],
    succeeded: [Counter; 6],
    failed: [Counter; 6],
    /// How often an item was asked for and there was one.
    pub(crate) pulled: Counter,
    late_pulls: Counter,
    most_outstanding: AtomicU64,
    /// Indices of the items that were consumed, in that order.
    seen: Mutex<Vec<u64>>,
    /// The length of the latest input.
    offered: AtomicU64,
    /// What was pulled and consumed before the latest input.
    before: Mutex<(u64, u64)>,
    pub(crate) inputs: Arc<Census>,
    pub(crate) outputs: Arc<Census>,
    pub(crate) producer_states: Arc<Census>,
    pub(crate) consumer_states: Arc<Census>,
    pub(crate) iterators: Arc<Census>,
    pub(crate) threads: Arc<Census>,
}

impl Tally {
    pub(crate) fn called(&self, hook: Hook) -> &Counter {
        &self.called[index(hook)]
    }

    pub(crate) fn succeeded(&self, hook: Hook) -> &Counter {
        &self.succeeded[index(hook)]
    }

    fn panicked(&self, hook: Hook) -> u64 {
        let i = index(hook);
        self.called[i].get() - self.succeeded[i].get() - self.failed[i].get()
    }

    /// Indices of the items that were consumed since this was last asked, in that order.
    pub(crate) fn seen(&self) -> Vec<u64> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    pub(crate) fn most_outstanding(&self) -> u64 {
        self.most_outstanding.load(SeqCst)
    }

    /// From now on no hook fails any more.
    pub(crate) fn disarm(&self) {
        self.disarmed.store(true, SeqCst);
    }

    /// Items with these values.
    pub(crate) fn input(self: &Arc<Self>, values: Range<u64>) -> Feed<impl FnMut(u64) + use<>> {
        self.input_with(values, |_| {})
    }

    /// Items with these values; `f` is called with the index of each before it is given.
    pub(crate) fn input_with<F: FnMut(u64)>(self: &Arc<Self>, values: Range<u64>, f: F) -> Feed<F> {
        self.offered.store(values.end - values.start, SeqCst);
        let (pulled, consumed) = (self.pulled.get(), self.succeeded(Hook::ConsumerWork).get());
        *self.before.lock().unwrap() = (pulled, consumed);
        let before = pulled - consumed;
        let alive = Alive::new(&self.iterators);
        Feed { tally: self.clone(), values, before, next: 0, is_over: false, f, _alive: alive }
    }

    /// Calls a hook's own fault, and counts.
    fn hook<T>(
        &self,
        hook: Hook,
        fault: impl FnOnce() -> Result<()>,
        f: impl FnOnce() -> T,
    ) -> Result<T> {
        count_this_thread(&self.threads);
        self.called(hook).add(1);
        if !self.disarmed.load(SeqCst)
            && let Err(error) = fault()
        {
            self.failed[index(hook)].add(1);
            return Err(error);
        }
        let value = f();
        self.succeeded(hook).add(1);
        Ok(value)
    }

    /// Every item pulled from the latest input is accounted once.
    #[track_caller]
    pub(crate) fn check_account(&self, account: Account) {
        let now = (self.pulled.get(), self.succeeded(Hook::ConsumerWork).get());
        let before = *self.before.lock().unwrap();
        let pulled = now.0 - before.0;
        let Account { ok, failed, already_done, cancelled, unread, .. } = account;
        assert_eq!(ok + failed + already_done + cancelled, pulled, "{account:?}");
        assert_eq!(ok, now.1 - before.1, "{account:?}");
        assert_eq!(already_done, 0, "{account:?}");
        assert_eq!(unread, Some(self.offered.load(SeqCst) - pulled), "{account:?}");
        assert_eq!(self.late_pulls.get(), 0, "an iterator that was over was asked again");
    }

    /// No value of a run is left.
    #[track_caller]
    pub(crate) fn check_run_is_over(&self) {
        assert_eq!(self.inputs.alive(), 0, "inputs are left");
        assert_eq!(self.outputs.alive(), 0, "outputs are left");
        assert_eq!(self.consumer_states.alive(), 0, "a consumer's state is left");
        assert_eq!(self.iterators.alive(), 0, "the input is left");
    }

    /// Each producer state that was not lost to a panic was ended, and no thread is left.
    #[track_caller]
    pub(crate) fn check_closed(&self) {
        let lost = self.panicked(Hook::ProducerWork);
        let made = self.succeeded(Hook::ProducerInit).get();
        assert_eq!(self.called(Hook::ProducerEnd).get(), made - lost, "ends; {lost} were lost");
        assert_eq!(self.producer_states.alive(), 0, "a producer's state is left");
        assert_eq!(self.threads.alive(), 0, "threads are left");
        self.check_run_is_over();
    }
}

/// A counted input.
#[derive(Debug)]
pub(crate) struct Feed<F> {
    tally: Arc<Tally>,
    values: Range<u64>,
    /// How much further the tally's `pulled` was than what was consumed, when this was made.
    before: u64,
    next: u64,
    /// It ended, or panicked.
    is_over: bool,
    f: F,
    _alive: Alive,
}

impl<F: FnMut(u64)> Iterator for Feed<F> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        if std::mem::replace(&mut self.is_over, true) {
            self.tally.late_pulls.add(1);
        }
        let value = self.values.next()?;
        let pulled = self.tally.pulled.add(1) - self.before;
        let consumed = self.tally.succeeded(Hook::ConsumerWork).get();
        self.tally.most_outstanding.fetch_max(pulled - consumed, SeqCst);
        self.next += 1;
        (self.f)(self.next - 1);
        self.is_over = false;
        Some(Item::new(value, &self.tally.inputs))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.values.size_hint()
    }
}

/// An input or an output: counted, and not `Clone`.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: u64,
    _alive: Alive,
}

impl Item {
    pub(crate) fn new(value: u64, census: &Arc<Census>) -> Self {
        Item { value, _alive: Alive::new(census) }
    }
}

/// A producer's state or a consumer's: counted, and neither `Send` nor `Sync`.
#[derive(Debug)]
pub(crate) struct State {
    consumed: Rc<RefCell<Vec<(u64, u64)>>>,
    _alive: Alive,
}

impl State {
    fn new(census: &Arc<Census>) -> Self {
        State { consumed: Rc::default(), _alive: Alive::new(census) }
    }
}

type OnProducer = Box<dyn Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync>;
type OnConsumer = Box<dyn Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync>;

/// Makes `3 * x + 1` of `x`; its summary is the pairs of index and output as they were consumed.
pub(crate) struct Probe {
    tally: Arc<Tally>,
    producer_init: OnProducer,
    producer_work: OnProducer,
    producer_end: OnProducer,
    consumer_init: OnConsumer,
    consumer_work: OnConsumer,
    consumer_end: OnConsumer,
}

impl Probe {
    pub(crate) fn new() -> Self {
        Probe {
            tally: Arc::default(),
            producer_init: Box::new(|_| Ok(())),
            producer_work: Box::new(|_| Ok(())),
            producer_end: Box::new(|_| Ok(())),
            consumer_init: Box::new(|_| Ok(())),
            consumer_work: Box::new(|_| Ok(())),
            consumer_end: Box::new(|_| Ok(())),
        }
    }

    pub(crate) fn tally(&self) -> Arc<Tally> {
        self.tally.clone()
    }

    pub(crate) fn on_producer(
        mut self,
        hook: Hook,
        f: impl Fn(&ProducerContext<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        *match hook {
            Hook::ProducerInit => &mut self.producer_init,
            Hook::ProducerWork => &mut self.producer_work,
            Hook::ProducerEnd => &mut self.producer_end,
            _ => panic!("{hook} is no hook of a producer"),
        } = Box::new(f);
        self
    }

    pub(crate) fn on_consumer(
        mut self,
        hook: Hook,
        f: impl Fn(&ConsumerContext<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        *match hook {
            Hook::ConsumerInit => &mut self.consumer_init,
            Hook::ConsumerWork => &mut self.consumer_work,
            Hook::ConsumerEnd => &mut self.consumer_end,
            _ => panic!("{hook} is no hook of a consumer"),
        } = Box::new(f);
        self
    }

    /// Fails in `hook` at the items for which `at` is true; it is asked about item 0 where there is
    /// none.
    pub(crate) fn failing(
        self,
        hook: Hook,
        fault: Fault,
        at: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        let strike = move |item: Option<u64>| match at(item.unwrap_or(0)) {
            true => fault.strike(),
            false => Ok(()),
        };
        match is_of_a_producer(hook) {
            true => self.on_producer(hook, move |cx| strike(cx.item())),
            false => self.on_consumer(hook, move |cx| strike(cx.item())),
        }
    }

    /// Built on three devices that are told apart in errors.
    #[track_caller]
    pub(crate) fn on_three(self, order: Order) -> AnyOrderRunner<Probe> {
        AnyOrderRunner::builder(self).devices(three()).order(order).build().unwrap()
    }

    /// As [`on_three`](Probe::on_three), with a window of `window` items.
    #[track_caller]
    pub(crate) fn on_three_within(self, window: usize, order: Order) -> AnyOrderRunner<Probe> {
        AnyOrderRunner::builder(self).devices(three()).order(order).window(window).build().unwrap()
    }
}

/// Three devices that are told apart in errors.
pub(crate) fn three() -> Devices {
    "cuda:0-2".parse::<Devices>().unwrap().names_only()
}

/// The output for an input.
pub(crate) fn output(value: u64) -> u64 {
    3 * value + 1
}

/// The summary is of `values`, each once, in the order asked for.
#[track_caller]
pub(crate) fn check_summary(mut summary: Vec<(u64, u64)>, values: Range<u64>, order: Order) {
    if order == Order::Completion {
        summary.sort_unstable();
    }
    let expected: Vec<_> = values.enumerate().map(|(i, value)| (i as u64, output(value))).collect();
    assert_eq!(summary, expected);
}

/// After a run of whatever end: the account is right and nothing of the run is left; the next run
/// gives exactly its own data; closing ends the states that are alive and leaves no thread.
#[track_caller]
pub(crate) fn check_afterwards<O: OrderKind>(mut runner: Pool<Probe, O>) {
    let tally = runner.runner().tally();
    tally.check_account(runner.account());
    tally.check_run_is_over();
    tally.disarm();
    let summary = runner.run(tally.input(1000..1020)).expect("a run after a fault");
    check_summary(summary, 1000..1020, runner.order());
    tally.check_account(runner.account());
    assert_eq!(runner.account().ok, 20);
    tally.check_run_is_over();
    runner.close().expect("closing after a fault");
    runner.close().expect("closing twice");
    tally.check_closed();
    drop(runner);
    tally.check_closed();
}

impl Runner for Probe {
    type Input = Item;
    type Output = Item;
    type ProducerState = State;
    type ConsumerState = State;
    type Summary = Vec<(u64, u64)>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<State> {
        let made = || State::new(&self.tally.producer_states);
        self.tally.hook(Hook::ProducerInit, || (self.producer_init)(cx), made)
    }

    fn producer_work(&self, cx: &ProducerContext<'_>, _: &mut State, input: Item) -> Result<Item> {
        let made = || Item::new(output(input.value), &self.tally.outputs);
        self.tally.hook(Hook::ProducerWork, || (self.producer_work)(cx), made)
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: State) -> Result<()> {
        self.tally.hook(Hook::ProducerEnd, || (self.producer_end)(cx), || drop(state))
    }

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<State> {
        let made = || State::new(&self.tally.consumer_states);
        self.tally.hook(Hook::ConsumerInit, || (self.consumer_init)(cx), made)
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut State,
        output: Item,
    ) -> Result<()> {
        let item = cx.item().expect("a result has an item");
        let consume = || {
            state.consumed.borrow_mut().push((item, output.value));
            self.tally.seen.lock().unwrap().push(item);
        };
        self.tally.hook(Hook::ConsumerWork, || (self.consumer_work)(cx), consume)
    }

    fn consumer_end(&self, cx: &ConsumerContext<'_>, state: State) -> Result<Vec<(u64, u64)>> {
        let summary = || state.consumed.take();
        self.tally.hook(Hook::ConsumerEnd, || (self.consumer_end)(cx), summary)
    }
}
