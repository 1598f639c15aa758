//! Producers in child processes that abort, exit or are killed.

use std::time::Duration;

use gangline::closures::FnMap;
use gangline::process::{Processes, Recipe};
use gangline::{AnyOrderRunner, CfgNode, Error, OnError, Order, ProducerContext, Result, map};
use serde::{Deserialize, Serialize};

use crate::item::answer;
use crate::laws::{Broken, Laws};
use crate::live::{check_nothing_left, children, soon, threads};

/// What a child does with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chore {
    Answer,
    Fail,
    Panic,
    Abort,
    Exit(i32),
    /// Aborts in the first attempt.
    AbortOnce,
    /// Hangs until it is killed or given up.
    Hang,
    /// Ends the process a moment after the result is sent, most likely between two items.
    EndLater,
}

type Input = (u64, Chore);

fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

fn work(cx: &ProducerContext<'_>, (): &mut (), (x, chore): Input) -> Result<u64> {
    match chore {
        Chore::Answer => {}
        Chore::Fail => return Err(format!("fault of {x}").into()),
        Chore::Panic => std::panic::resume_unwind(Box::new(format!("fault of {x}"))),
        Chore::Abort => std::process::abort(),
        Chore::Exit(status) => std::process::exit(status),
        Chore::AbortOnce if cx.attempt() == 1 => std::process::abort(),
        Chore::AbortOnce => {}
        Chore::Hang => loop {
            std::thread::park();
        },
        Chore::EndLater => {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_micros(300));
                std::process::abort();
            });
        }
    }
    Ok(answer(x))
}

fn make(_: &CfgNode) -> Result<FnMap<(), Input, u64>> {
    Ok(map(init, work))
}

pub(crate) static CHORES: Recipe<FnMap<(), Input, u64>> = Recipe::new("chores", make);

#[derive(Debug)]
struct Plan {
    ordered: bool,
    producers: usize,
    retries: u32,
    window: Option<usize>,
    timeout: bool,
    skips: bool,
    replace: usize,
    cancels_at: Option<u64>,
    service: bool,
    items: Vec<Chore>,
}

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Self {
        let timeout = random.u8(0..5) == 0;
        let chance = random.u8(1..30);
        let items = (0..random.usize(0..40)).map(|_| match random.u8(0..chance + 8) {
            0 => Chore::Fail,
            1 => Chore::Panic,
            2 => Chore::Abort,
            3 => Chore::Exit(random.i32(0..4)),
            4 => Chore::AbortOnce,
            5 if timeout => Chore::Hang,
            6 => Chore::EndLater,
            _ => Chore::Answer,
        });
        let items: Vec<Chore> = items.collect();
        Plan {
            ordered: random.bool(),
            producers: random.usize(1..=3),
            retries: if random.bool() { random.u32(1..3) } else { 0 },
            window: random.bool().then(|| random.usize(1..12)),
            timeout,
            skips: random.u8(0..4) > 0,
            replace: if random.u8(0..4) == 0 { 20 } else { 0 },
            cancels_at: (random.u8(0..8) == 0).then(|| random.u64(0..items.len() as u64 + 2)),
            service: random.u8(0..4) == 0,
            items,
        }
    }

    /// Whether an item succeeds. `None`: it may, since a process that ends later may end in its hook.
    fn succeeds(&self, chore: Chore) -> Option<bool> {
        match chore {
            Chore::Fail | Chore::Panic | Chore::Abort | Chore::Exit(_) | Chore::Hang => Some(false),
            Chore::AbortOnce if self.retries == 0 => Some(false),
            _ if self.items.contains(&Chore::EndLater) || self.timeout => None,
            _ => Some(true),
        }
    }
}

pub(crate) fn run(random: &mut fastrand::Rng) -> (String, Vec<Broken>) {
    let plan = Plan::random(random);
    let (laws, before, others) = (Laws::default(), threads(), children().len());
    let mut builder = AnyOrderRunner::builder(make(&CfgNode::new()).expect("it never fails"))
        .order(if plan.ordered { Order::Input } else { Order::Completion })
        .devices(plan.producers)
        .retries(plan.retries)
        .backoff(Duration::ZERO, Duration::ZERO)
        .replace_lost(plan.replace)
        .on_error(if plan.skips { OnError::Skip } else { OnError::Stop });
    if let Some(window) = plan.window {
        builder = builder.window(window);
    }
    if plan.timeout {
        builder = builder.item_timeout(Duration::from_millis(60));
    }
    let processes = Processes::new().kill_after(Duration::from_millis(100));
    match builder.processes(&CHORES, processes).build() {
        Ok(pool) if plan.service => serve(&plan, &laws, pool),
        Ok(pool) => run_once(&plan, &laws, pool),
        Err(error) => laws.check("a pool is built", false, || format!("{error:#}")),
    }
    check_nothing_left(&laws, &[], before);
    laws.check("no child is left", soon(|| children().len() <= others), || {
        format!("{:?}, {others} before", children())
    });
    (format!("{plan:?}"), laws.into_broken())
}

fn run_once(plan: &Plan, laws: &Laws, mut pool: AnyOrderRunner<FnMap<(), Input, u64>>) {
    let token = pool.cancel_token();
    let mut pulled = 0;
    let items = plan.items.iter().copied().zip(0..).map(|(chore, x)| {
        pulled = x + 1;
        if plan.cancels_at == Some(x) {
            token.cancel();
        }
        (x, chore)
    });
    let result = pool.run(items);
    let account = pool.account();
    let sum = account.ok + account.failed + account.cancelled;
    laws.equal("the account adds up", &sum, &pulled);
    match result {
        Ok(seen) => {
            let failed: Vec<u64> = pool.failures().iter().filter_map(Error::item).collect();
            laws.equal("failed is what was skipped", &account.failed, &(failed.len() as u64));
            laws.equal("all is pulled", &pulled, &(plan.items.len() as u64));
            let ok = (0..pulled).filter(|x| !failed.contains(x)).map(answer);
            let (mut ok, mut seen): (Vec<u64>, _) = (ok.collect(), seen);
            if !plan.ordered {
                ok.sort_unstable();
                seen.sort_unstable();
            }
            laws.equal("each item once, as in the plain loop", &seen, &ok);
            for (chore, x) in plan.items.iter().zip(0..) {
                let holds = plan.succeeds(*chore).is_none_or(|it| it != failed.contains(&x));
                laws.check("each item as its fault says", holds, || format!("{x}, {chore:?}"));
            }
            laws.check(
                "a failure is skipped only if the policy says so",
                plan.skips || failed.is_empty(),
                String::new,
            );
        }
        Err(error) => {
            let chore = error.item().and_then(|item| plan.items.get(item as usize));
            let fails = !plan.skips && chore.is_some_and(|it| plan.succeeds(*it) != Some(true));
            let holds = fails || error.is_cancelled() && plan.cancels_at.is_some();
            laws.check("the error is one that the plan has", holds, || format!("{error:#}"));
        }
    }
}

fn serve(plan: &Plan, laws: &Laws, pool: AnyOrderRunner<FnMap<(), Input, u64>>) {
    let service = pool.into_service();
    let check = |x, chore, answered: Result<u64, Error>| {
        let holds = match &answered {
            Ok(y) => *y == answer(x) && plan.succeeds(chore) != Some(false),
            Err(_) => plan.succeeds(chore) != Some(true),
        };
        laws.check("each call has its own answer", holds, || {
            format!("{x}, {chore:?}: {answered:?}")
        });
    };
    // With an odd number of items, every second one is of a stream.
    let is_streamed = |x: u64| plan.items.len() % 2 == 1 && x % 2 == 1;
    let items = plan.items.iter().copied().zip(0..);
    let (streamed, calls): (Vec<_>, Vec<_>) = items.partition(|&(_, x)| is_streamed(x));
    std::thread::scope(|scope| {
        for (chore, x) in calls {
            let (service, check) = (&service, &check);
            scope.spawn(move || check(x, chore, service.call((x, chore))));
        }
        let mut stream = service.stream(streamed.iter().map(|&(chore, x)| (x, chore)));
        for &(chore, x) in &streamed {
            check(x, chore, stream.next().expect("each item has a result"));
        }
        laws.check("a stream ends", stream.next().is_none(), String::new);
    });
    let account = service.account();
    laws.equal(
        "each call is counted",
        &(account.ok + account.failed + account.cancelled),
        &(plan.items.len() as u64),
    );
}
