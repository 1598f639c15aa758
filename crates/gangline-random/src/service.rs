//! A service with many callers, and streams beside them.

mod streams;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use gangline::service::{Call, Full, Ticket};
use gangline::{Account, AnyOrderRunner, Error, Service};

use self::streams::StreamPlan;
use crate::item::{Fault, Item, Output, answer};
use crate::laws::{Broken, Laws};
use crate::live::{check_nothing_left, threads};
use crate::single::{Expected, Settings, Timeout, random_fault};
use crate::work::{Record, Work};

/// How a caller makes one of its calls.
#[derive(Debug, Clone, Copy)]
enum How {
    Call,
    Async,
    /// The future is dropped after this number of polls.
    Dropped(u8),
    Submit,
    /// The ticket is dropped at once.
    DroppedTicket,
    /// This number at once, all or none.
    SubmitAll(usize),
    Deadline(Duration),
    /// Several futures at once, on one thread.
    Joined(usize),
}

#[derive(Debug, Clone, Copy)]
enum End {
    /// All calls are answered before it is closed.
    Close,
    CloseEarly,
    Drain(Duration),
    Cancel,
    IntoPool,
    /// The last handle is dropped.
    Drop,
}

#[derive(Debug)]
struct Plan {
    settings: Settings,
    /// The calls of each caller.
    callers: Vec<Vec<(How, Fault)>>,
    streams: Vec<StreamPlan>,
    end: End,
}

/// What callers saw.
#[derive(Default)]
struct Answers {
    next: AtomicU64,
    calls: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    /// Refused before they had a place: as the queue was full, or the service had ended.
    refused: AtomicU64,
    given_up: AtomicU64,
    /// The items that streams have pulled.
    pulled: AtomicU64,
    /// The outputs that streams have handed out.
    taken_ok: AtomicU64,
    taken_failed: AtomicU64,
}

/// What all callers share.
struct Callers<'a> {
    plan: &'a Plan,
    laws: &'a Laws,
    record: &'a Record,
    answers: &'a Answers,
    begin: Barrier,
}

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Self {
        let mut settings = Settings::random(random);
        settings.hooks.consumer_init = false;
        settings.hooks.consumer_end = false;
        settings.hooks.init = 0;
        let callers = if random.u8(0..4) == 0 { random.usize(1..=64) } else { random.usize(1..=8) };
        let (one_in, kinds) = (random.u64(1..40), random.u16(0..16) | 0x80);
        let most = if callers > 8 { 6 } else { 30 };
        let calls = (0..callers)
            .map(|_| {
                let calls = random.usize(1..=most);
                (0..calls).map(|_| random_call(random, one_in, kinds, settings.timeout)).collect()
            })
            .collect();
        let streams = random.usize(0..6).saturating_sub(2);
        let streams = (0..streams).map(|_| StreamPlan::random(random, one_in, kinds)).collect();
        let end = match random.u8(0..12) {
            0 => End::CloseEarly,
            1 => End::Drain(Duration::from_millis(random.u64(0..20))),
            2 => End::Drain(Duration::from_secs(25)),
            3 => End::Cancel,
            4 | 5 => End::IntoPool,
            6 => End::Drop,
            _ => End::Close,
        };
        Plan { settings, callers: calls, streams, end }
    }

    /// Whether it may end before all calls are made.
    fn ends_early(&self) -> bool {
        matches!(self.end, End::CloseEarly | End::Drain(_) | End::Cancel)
    }
}

fn random_call(
    random: &mut fastrand::Rng,
    one_in: u64,
    kinds: u16,
    timeout: Timeout,
) -> (How, Fault) {
    let mut how = match random.u8(0..16) {
        0..5 => How::Call,
        5..8 => How::Async,
        8 => How::Dropped(random.u8(0..3)),
        9 | 10 => How::Submit,
        11 => How::DroppedTicket,
        12 => How::SubmitAll(random.usize(0..5)),
        13 => How::Deadline(Duration::from_micros(random.u64(1..20_000))),
        14 => How::Deadline(Duration::from_secs(100)),
        _ => How::Joined(random.usize(1..5)),
    };
    let fault = match random.u64(0..one_in) {
        0 => random_fault(random, kinds),
        _ => Fault::None,
    };
    if random.u8(0..60) == 0 {
        // It hangs until its caller has given it up, or until its time is over.
        if timeout == Timeout::Short {
            return (how, Fault::Slow);
        }
        how = How::Deadline(Duration::from_millis(random.u64(1..10)));
        return (how, Fault::Slow);
    }
    (how, fault)
}

pub(crate) fn run(random: &mut fastrand::Rng) -> (String, Vec<Broken>) {
    let plan = Plan::random(random);
    let (laws, before) = (Laws::default(), threads());
    let record = Arc::new(Record::default());
    let work = Work { record: record.clone(), faults: plan.settings.hooks };
    match plan.settings.apply(AnyOrderRunner::builder(work)).build() {
        Ok(pool) => serve(&plan, &laws, &record, pool),
        Err(error) => laws.check("a pool is built", false, || format!("{error:?}")),
    }
    check_nothing_left(&laws, &[("items", &record.items), ("states", &record.states)], before);
    (format!("{plan:?}"), laws.into_broken())
}

fn serve(plan: &Plan, laws: &Laws, record: &Arc<Record>, pool: AnyOrderRunner<Work>) {
    let answers = Answers::default();
    let token = pool.cancel_token();
    let service = pool.into_service();
    let ends = usize::from(plan.ends_early());
    let begin = Barrier::new(plan.callers.len() + plan.streams.len() + ends);
    let callers = Callers { plan, laws, record, answers: &answers, begin };
    thread::scope(|scope| {
        for calls in &plan.callers {
            let (callers, service) = (&callers, service.clone());
            scope.spawn(move || callers.make(&service, calls));
        }
        for stream in &plan.streams {
            let (callers, service) = (&callers, service.clone());
            scope.spawn(move || callers.take(&service, stream));
        }
        if ends > 0 {
            callers.begin.wait();
            match plan.end {
                End::Drain(limit) => {
                    let all = service.drain(limit);
                    laws.check(
                        "drain answers all",
                        all || limit < Duration::from_secs(25),
                        String::new,
                    );
                }
                End::Cancel => token.cancel(),
                _ => {
                    let closed = service.close();
                    laws.check("close", closed.is_ok() || plan.settings.hooks.end, || {
                        format!("{closed:?}")
                    });
                }
            }
        }
    });
    callers.check(&service);
    match plan.end {
        End::IntoPool => match service.into_pool() {
            Ok(pool) => drop(pool),
            Err(_) => laws.check("the last handle becomes a pool", false, String::new),
        },
        End::Drop => drop(service),
        _ => drop(service.close()),
    }
}

impl Callers<'_> {
    fn make(&self, service: &Service<Work>, calls: &[(How, Fault)]) {
        self.begin.wait();
        for &(how, fault) in calls {
            match how {
                How::Call => {
                    let item = self.item(fault);
                    let x = item.x;
                    self.answered(x, fault, None, service.call(item));
                }
                How::Async => {
                    let item = self.item(fault);
                    let x = item.x;
                    self.answered(x, fault, None, block_on(service.call_async(item)));
                }
                How::Dropped(polls) => self.drop_future(service, fault, polls),
                How::Submit | How::DroppedTicket | How::SubmitAll(_) => {
                    self.submit(service, how, fault);
                }
                How::Deadline(limit) => {
                    let item = self.item(fault);
                    let x = item.x;
                    let answer = service.with_deadline(limit).call(item);
                    self.answered(x, fault, Some(limit), answer);
                }
                How::Joined(number) => {
                    let items: Vec<Item> = (0..number).map(|_| self.item(fault)).collect();
                    let xs: Vec<u64> = items.iter().map(|item| item.x).collect();
                    let calls = items.into_iter().map(|item| service.call_async(item)).collect();
                    for (x, answer) in xs.into_iter().zip(join(calls)) {
                        self.answered(x, fault, None, answer);
                    }
                }
            }
        }
    }

    fn item(&self, fault: Fault) -> Item {
        let x = self.answers.next.fetch_add(1, Ordering::AcqRel);
        self.answers.calls.fetch_add(1, Ordering::AcqRel);
        Item { x, fault, live: self.record.items.live() }
    }

    fn drop_future(&self, service: &Service<Work>, fault: Fault, polls: u8) {
        let item = self.item(fault);
        let x = item.x;
        let mut call = service.call_async(item);
        for _ in 0..polls {
            if let Poll::Ready(answer) = poll_once(&mut call) {
                return self.answered(x, fault, None, answer);
            }
            thread::yield_now();
        }
        self.answers.given_up.fetch_add(1, Ordering::AcqRel);
    }

    fn submit(&self, service: &Service<Work>, how: How, fault: Fault) {
        let number = if let How::SubmitAll(number) = how { number } else { 1 };
        let items: Vec<Item> = (0..number).map(|_| self.item(fault)).collect();
        let xs: Vec<u64> = items.iter().map(|item| item.x).collect();
        let tickets = match how {
            How::SubmitAll(_) => service.try_submit_all(items).map_err(|Full(items)| items),
            _ => {
                let item = items.into_iter().next().expect("there is one");
                match service.try_submit(item) {
                    Ok(ticket) => Ok(vec![ticket]),
                    Err(Full(item)) => Err(vec![item]),
                }
            }
        };
        match tickets {
            Err(back) => {
                let back: Vec<u64> = back.iter().map(|item| item.x).collect();
                self.laws.equal("a full queue returns the inputs", &back, &xs);
                self.answers.refused.fetch_add(number as u64, Ordering::AcqRel);
            }
            Ok(tickets) if matches!(how, How::DroppedTicket) => {
                self.answers.given_up.fetch_add(tickets.len() as u64, Ordering::AcqRel);
            }
            Ok(tickets) => {
                for (x, ticket) in xs.into_iter().zip(tickets) {
                    self.answered(x, fault, None, Ticket::wait(ticket));
                }
            }
        }
    }

    fn answered(
        &self,
        x: u64,
        fault: Fault,
        limit: Option<Duration>,
        answer: Result<Output, Error>,
    ) {
        let count = match &answer {
            Ok(_) => &self.answers.ok,
            Err(Error::Closed { .. }) => &self.answers.refused,
            Err(Error::Cancelled { .. } | Error::ServiceEnded { .. }) => &self.answers.cancelled,
            Err(_) => &self.answers.failed,
        };
        count.fetch_add(1, Ordering::AcqRel);
        self.check_answer(x, fault, limit, &answer);
    }

    fn check_answer(
        &self,
        x: u64,
        fault: Fault,
        limit: Option<Duration>,
        answer: &Result<Output, Error>,
    ) {
        let settings = &self.plan.settings;
        let expected = settings.expected(fault);
        let own = |error: &Error| chain(error).contains(&format!("fault of {x}"));
        let short = settings.timeout == Timeout::Short;
        let holds = match answer {
            Ok(output) => {
                output.x == x && output.y == self::answer(x) && expected != Expected::Failed
            }
            Err(Error::DeadlineExceeded { .. }) => {
                limit.is_some_and(|limit| limit < Duration::from_secs(1))
            }
            Err(Error::Cancelled { .. }) => matches!(self.plan.end, End::Cancel | End::Drain(_)),
            Err(Error::Closed { .. }) => {
                matches!(self.plan.end, End::CloseEarly | End::Drain(_) | End::Cancel)
            }
            Err(Error::ServiceEnded { .. }) => settings.may_lose_too_many(),
            Err(Error::TimedOut { .. }) => short,
            Err(error @ Error::BatchFailed { .. }) => {
                short && error.is_timeout() || expected != Expected::Ok && own(error)
            }
            Err(error) => {
                expected != Expected::Ok && (own(error) || matches!(fault, Fault::Memory(0)))
            }
        };
        self.laws.check("each call has its own answer", holds, || {
            let answer = answer.as_ref().map(|output| (output.x, output.y));
            format!("{x} of {fault:?}: {answer:?}, expected {expected:?}")
        });
    }

    fn check(&self, service: &Service<Work>) {
        let answers = self.answers;
        let [calls, ok, failed, cancelled, refused, given_up] = [
            &answers.calls,
            &answers.ok,
            &answers.failed,
            &answers.cancelled,
            &answers.refused,
            &answers.given_up,
        ]
        .map(|it| it.load(Ordering::Acquire));
        self.laws.equal(
            "each call is answered",
            &(ok + failed + cancelled + refused + given_up),
            &calls,
        );
        let streamed = service.stream_account();
        self.check_streams(&streamed);
        let account = without(service.account(), &streamed);
        let all = || {
            format!(
                "{account:?}; callers saw {ok} ok, {failed} failed, {cancelled} cancelled, {refused} refused, {given_up} given up"
            )
        };
        let counted = account.ok + account.failed + account.cancelled;
        let early = self.plan.ends_early() || self.plan.settings.may_lose_too_many();
        // A call that is given up or late before it has a place is not counted.
        let waits = self.plan.settings.window.is_some();
        let least = if early || waits { ok } else { calls - refused };
        self.laws.check(
            "the account of a service adds up",
            least <= counted && counted <= calls,
            all,
        );
        self.laws.check("ok is what was answered", (ok..=ok + given_up).contains(&account.ok), all);
        let late = if waits { 0..=failed + given_up } else { failed..=failed + given_up };
        self.laws.check("failed is what was answered", late.contains(&account.failed), all);
    }
}

/// The account of the calls alone.
fn without(mut all: Account, streamed: &Account) -> Account {
    all.ok -= streamed.ok;
    all.failed -= streamed.failed;
    all.cancelled -= streamed.cancelled;
    all
}

/// The texts of an error and its causes.
fn chain(error: &Error) -> String {
    format!("{error:#}")
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn poll_once(call: &mut Call<Work>) -> Poll<Result<Output, Error>> {
    pin!(call).poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for all calls at once.
fn join(calls: Vec<Call<Work>>) -> Vec<Result<Output, Error>> {
    let mut calls: Vec<_> = calls.into_iter().map(Some).collect();
    let mut answers: Vec<_> = calls.iter().map(|_| None).collect();
    block_on(std::future::poll_fn(|cx| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            if let Some(pending) = call
                && let Poll::Ready(ready) = pin!(pending).poll(cx)
            {
                (*answer, *call) = (Some(ready), None);
            }
        }
        if calls.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
    }));
    answers.into_iter().map(|answer| answer.expect("all are ready")).collect()
}
