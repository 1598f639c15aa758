//! All ways to drive a run, behind one function.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use futures_lite::{Stream, StreamExt, stream};
use gangline::order::RuntimeOrder;
use gangline::{
    Account, AnyOrderRunner, Builder, CancelToken, Error, OnError, Order, Pipeline, Result,
};

use crate::hooks::Hooks;
use crate::runtimes::{block_on, poll_once};
use crate::support::no_hang;

/// A way to drive a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    Run,
    TryRun,
    Outputs,
    /// Outputs that own the pool or the pipeline.
    IntoOutputs,
    /// A run of a pipeline that owns its pools.
    OwnedRun,
    RunStream,
    OutputsStream,
}

/// Makes a test of each law for each driver, or for each that is a task, has a consumer or gives outputs to its caller,
/// with one to three stages in both orders.
macro_rules! every_driver {
    (tasks: $($law:ident),+ $(,)?) => { $(
        mod $law {
            crate::drivers::every_driver!(@each $law, run_stream RunStream, outputs_stream OutputsStream);
        }
    )+ };
    (consumers: $($law:ident),+ $(,)?) => { $(
        mod $law {
            crate::drivers::every_driver!(
                @each $law, run Run, try_run TryRun, owned_run OwnedRun, run_stream RunStream
            );
        }
    )+ };
    (outputs: $($law:ident),+ $(,)?) => { $(
        mod $law {
            crate::drivers::every_driver!(
                @each $law, outputs Outputs, into_outputs IntoOutputs, outputs_stream OutputsStream
            );
        }
    )+ };
    (@each $law:ident, $($test:ident $driver:ident),+) => { $(
        #[test]
        fn $test() {
            crate::drivers::Driver::$driver.each(super::$law);
        }
    )+ };
    ($($law:ident),+ $(,)?) => { $(
        mod $law {
            crate::drivers::every_driver!(
                @each $law, run Run, try_run TryRun, owned_run OwnedRun, outputs Outputs,
                into_outputs IntoOutputs, run_stream RunStream, outputs_stream OutputsStream
            );
        }
    )+ };
}
pub(crate) use every_driver;

impl Driver {
    pub fn is_task(self) -> bool {
        matches!(self, Driver::RunStream | Driver::OutputsStream)
    }

    /// Whether it has no form for a source whose items may fail.
    pub fn needs_sound_items(self) -> bool {
        self == Driver::Run
    }

    /// Checks a law for every shape that this way can drive.
    pub fn each(self, law: fn(Shape)) {
        for order in [Order::Input, Order::Completion] {
            for stages in 1..=3 {
                no_hang(move || law(Shape { driver: self, order, stages }));
            }
        }
    }
}

/// Which run a law is checked for.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub driver: Driver,
    pub order: Order,
    pub stages: usize,
}

/// Pools in a row, and what takes their results.
pub struct Line {
    driver: Driver,
    /// Empty once a pipeline owns them.
    pub pools: Vec<Stage>,
    owned: Option<Pipeline<'static, Hooks, Hooks>>,
    take: Watch,
    /// Called before each poll of a task.
    pub poll: Watch,
    seen: Arc<Mutex<Vec<u64>>>,
}

pub type Stage = AnyOrderRunner<Hooks>;
pub type Setup = Builder<Hooks, RuntimeOrder>;
type Watch = Arc<dyn Fn() + Send + Sync>;
type Items = Box<dyn Iterator<Item = Result<u64>> + Send>;
/// Polls a task, and returns whether it is pending.
pub type Task<'a> = Box<dyn FnMut() -> bool + 'a>;

/// How a run went.
#[derive(Debug)]
pub struct Ran {
    /// The results that were consumed.
    pub ok: Vec<u64>,
    /// How many results the caller of outputs had before each error.
    pub ok_before: Vec<usize>,
    /// The items that failed, the last error included.
    pub failed: Vec<Option<u64>>,
    /// The last error that the caller had.
    pub error: Option<Error>,
    pub account: Account,
}

impl Ran {
    /// The number of items that were pulled.
    pub fn pulled(&self) -> u64 {
        let Account { ok, failed, already_done, cancelled, .. } = self.account;
        ok + failed + already_done + cancelled
    }
}

impl Shape {
    /// Pools with these hooks. `build` sets up each, of which it gets the number. `take` is called for each result, also
    /// of a skipped item, and consumes it.
    pub fn line(
        self,
        hooks: impl Fn(usize) -> Hooks,
        build: impl Fn(usize, Setup) -> Setup,
        take: impl Fn() + Send + Sync + 'static,
    ) -> Line {
        let Shape { driver, order, stages } = self;
        let (take, seen): (Watch, Arc<Mutex<Vec<u64>>>) = (Arc::new(take), Arc::default());
        let pools = (0..stages).map(|stage| {
            let (takes, skips, sees) = (take.clone(), take.clone(), seen.clone());
            let mut hooks = hooks(stage);
            let own = std::mem::replace(&mut hooks.consume, Box::new(|_, _| Ok(())));
            let hooks = hooks.consume(move |cx, y| {
                own(cx, y)?;
                takes();
                sees.lock().unwrap().push(y);
                Ok(())
            });
            let hooks = hooks.skipped(move |_| {
                skips();
                Ok(())
            });
            build(stage, AnyOrderRunner::builder(hooks).order(order).devices(1)).build().unwrap()
        });
        Line { driver, pools: pools.collect(), owned: None, take, poll: Arc::new(|| ()), seen }
    }

    /// Whether an account may say that this many items were pulled, if the run ended while the source returned the last
    /// of `all`. The thread of outputs that own their pools may still be inside the source then.
    pub fn may_count(self, pulled: u64, all: u64) -> bool {
        pulled == all || self.driver == Driver::IntoOutputs && pulled + 1 == all
    }

    /// Pools that pass numbers through, and fail at item 4 in stage `failing`.
    pub fn failing(self, failing: usize, on_error: OnError) -> Line {
        let hooks = move |stage| {
            let fails = move |x| stage == failing && x == 4;
            Hooks::new().work(move |_, x| if fails(x) { Err("four".into()) } else { Ok(x) })
        };
        self.line(hooks, |_, it| it.devices(2).on_error(on_error), || ())
    }

    /// Pools that pass numbers through, and the tokens that end them.
    pub fn with_tokens(self) -> (Line, Vec<CancelToken>) {
        let tokens: Vec<_> = (0..self.stages).map(|_| CancelToken::new()).collect();
        let given = |stage: usize, it: Setup| it.cancel_token(tokens[stage].clone());
        (self.line(|_| Hooks::new(), given, || ()), tokens)
    }
}

/// Evaluates `$drive` for the only pool, or for the pipeline of all. Returns the account too.
macro_rules! with_row {
    ($pools:expr, $row:ident => $drive:expr) => {
        match &mut $pools[..] {
            [$row] => ($drive, $row.account()),
            [a, b] => {
                let mut $row = Pipeline::new(&mut *a).then(b);
                ($drive, $row.account())
            }
            [a, b, c] => {
                let mut $row = Pipeline::new(&mut *a).then(b).then(c);
                ($drive, $row.account())
            }
            _ => unreachable!("a line has at most three stages"),
        }
    };
}

impl Line {
    pub fn drive(&mut self, items: impl IntoIterator<Item = u64, IntoIter: Send + 'static>) -> Ran {
        self.try_drive(items.into_iter().map(Ok))
    }

    /// As [`drive`](Self::drive), with items that may fail.
    pub fn try_drive(&mut self, items: impl Iterator<Item = Result<u64>> + Send + 'static) -> Ran {
        let items: Items = Box::new(items);
        match self.driver {
            Driver::Run => {
                let items = items.map(|item| item.expect("a law of this way has sound items"));
                let (result, account) = with_row!(self.pools, row => row.run(items));
                self.consumed_in_row(result, account)
            }
            Driver::TryRun => {
                let (result, account) = with_row!(self.pools, row => row.try_run(items));
                self.consumed_in_row(result, account)
            }
            Driver::Outputs => {
                let (ran, account) =
                    with_row!(self.pools, row => take_all(row.try_outputs(items), &*self.take));
                Ran { account, ..ran }
            }
            Driver::IntoOutputs if self.pools.len() == 1 => {
                let mut outputs = self.pools.remove(0).try_into_outputs(items);
                let ran = take_all(outputs.by_ref(), &*self.take);
                self.pools.push(outputs.into_pool());
                Ran { account: self.pools[0].account(), ..ran }
            }
            Driver::IntoOutputs => {
                let mut outputs = self.owned().try_into_outputs(items);
                let ran = take_all(outputs.by_ref(), &*self.take);
                let pipeline = self.owned.insert(outputs.into_pipeline());
                Ran { account: pipeline.account(), ..ran }
            }
            Driver::OwnedRun => {
                let mut pipeline = self.owned();
                let (result, account) = (pipeline.try_run(items), pipeline.account());
                let failed = pipeline.failures().iter().map(|failure| failure.item()).collect();
                self.owned = Some(pipeline);
                self.consumed(result, account, failed)
            }
            Driver::RunStream | Driver::OutputsStream => self.drive_stream(stream::iter(items)),
        }
    }

    /// As [`try_drive`](Self::try_drive), in a task.
    pub fn drive_stream(&mut self, items: impl Stream<Item = Result<u64>> + Send + 'static) -> Ran {
        let items = items.boxed();
        if self.driver == Driver::RunStream {
            let (result, account) = with_row!(
                self.pools, row => block_on(watched(row.try_run_stream(items), &*self.poll))
            );
            return self.consumed_in_row(result, account);
        }
        let (ran, account) = with_row!(self.pools, row => {
            let mut outputs = row.try_outputs_stream(items);
            let next = || block_on(watched(outputs.next(), &*self.poll));
            take_all(std::iter::from_fn(next), &*self.take)
        });
        Ran { account, ..ran }
    }

    /// Hands a task to `use_it`, which may drop or leak it. Returns its account.
    pub fn with_task(
        &mut self,
        items: impl Stream<Item = Result<u64>> + Send + 'static,
        use_it: impl FnOnce(Task<'_>),
    ) -> Account {
        let items = items.boxed();
        match self.driver {
            Driver::RunStream => {
                let ((), account) = with_row!(self.pools, row => {
                    let mut run = row.try_run_stream(items);
                    use_it(Box::new(move || poll_once(&mut run).is_pending()));
                });
                account
            }
            _ => {
                let ((), account) = with_row!(self.pools, row => {
                    let mut outputs = row.try_outputs_stream(items);
                    use_it(Box::new(|| {
                        let next = poll_once(outputs.next());
                        if let Poll::Ready(Some(_)) = next {
                            (self.take)();
                        }
                        next.is_pending()
                    }));
                });
                account
            }
        }
    }

    /// The pipeline that owns all pools.
    fn owned(&mut self) -> Pipeline<'static, Hooks, Hooks> {
        self.owned.take().unwrap_or_else(|| {
            let mut pools = self.pools.drain(..);
            let first = Pipeline::new(pools.next().unwrap());
            pools.fold(first, Pipeline::then)
        })
    }

    fn consumed_in_row(&mut self, result: Result<Vec<u64>, Error>, account: Account) -> Ran {
        let failed = self.pools.last().unwrap().failures().iter().map(Error::item).collect();
        self.consumed(result, account, failed)
    }

    /// What a run has given to the hooks of the last stage.
    fn consumed(
        &mut self,
        result: Result<Vec<u64>, Error>,
        account: Account,
        mut failed: Vec<Option<u64>>,
    ) -> Ran {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let ok = match &result {
            Ok(summary) => {
                // An earlier run that was given up may have consumed some before.
                assert!(seen.ends_with(summary), "the summary is what was consumed");
                summary.clone()
            }
            Err(_) => seen,
        };
        failed.extend(result.as_ref().err().map(Error::item));
        Ran { ok, ok_before: vec![], failed, error: result.err(), account }
    }
}

/// What outputs give to the caller.
fn take_all(mut outputs: impl Iterator<Item = Result<u64, Error>>, take: &dyn Fn()) -> Ran {
    let (ok, ok_before, failed) = (vec![], vec![], vec![]);
    let mut ran = Ran { ok, ok_before, failed, error: None, account: Account::default() };
    for output in outputs.by_ref() {
        take();
        match output {
            Ok(output) => ran.ok.push(output),
            Err(error) => {
                ran.ok_before.push(ran.ok.len());
                ran.failed.push(error.item());
                ran.error = Some(error);
            }
        }
    }
    assert!(outputs.next().is_none(), "they are over");
    ran
}

/// Calls `poll` before each poll.
async fn watched<F: Future + Unpin>(mut future: F, poll: &dyn Fn()) -> F::Output {
    std::future::poll_fn(|cx| {
        poll();
        Pin::new(&mut future).poll(cx)
    })
    .await
}
