//! Models of a service: its callers, its producers, its own thread and its end, under thousands of schedules. A lost
//! wake-up shows as a deadlock, and a call that is answered twice or never as a wrong account.

mod streams;

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use gangline_scheduler::batch::{Batch, Batching};
use gangline_scheduler::{Outcome, Standing};
use shuttle::thread::{self, JoinHandle};

use super::background::BackgroundStream;
use super::calls::PendingCall;
use super::*;
use crate::base::Order;
use crate::concurrency::now;
use crate::concurrency::parker::block_on;
use crate::engine::model::{check, explore};
use crate::producers::producer_threads::ThreadIds;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::recording::Recording;
use crate::run::run_shape::{CarriedOver, InLine, RunShape};

const PRODUCERS: usize = 2;
const TASK_SCHEDULES: usize = 2_000;

/// A service in progress.
struct Model {
    calls: Calls<u64, u64>,
    run: Arc<Run<u64, u64>>,
    own_thread: JoinHandle<()>,
    producers: Vec<JoinHandle<()>>,
}

/// The answer to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Ok,
    Cancelled,
    Closed,
    Late,
}

impl Answer {
    fn of(x: u64, answer: Result<u64, Error>) -> Self {
        match answer {
            Ok(y) => {
                assert_eq!(y, 10 * x, "the answer to another call");
                Answer::Ok
            }
            Err(Error::Cancelled {}) => Answer::Cancelled,
            Err(Error::Closed {}) => Answer::Closed,
            Err(Error::DeadlineExceeded { .. }) => Answer::Late,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Explores fewer schedules than `check`: these models have two more threads, for the tasks that take calls over.
fn check_tasks(model: impl Fn() + Send + Sync + Clone + 'static) {
    explore(TASK_SCHEDULES, model);
}

/// Starts a service with this number of places.
fn start(places: usize, batch: Option<Batch>) -> Model {
    start_with(places, batch.map(Batching::new))
}

fn start_with(places: usize, batching: Option<Batching>) -> Model {
    let shape = RunShape {
        order: Order::Input,
        producers: PRODUCERS,
        window: places,
        batching,
        kind: RunKind::Service,
    };
    let event_log = Arc::new(EventLog::new(PRODUCERS, None, Detail::Run));
    let (earlier, recording) = (CarriedOver::nothing(PRODUCERS), Recording::default());
    let run = Arc::new(Run::<u64, u64>::new(
        shape,
        Arc::default(),
        earlier,
        InLine::default(),
        event_log.clone(),
        recording,
    ));
    let board = Arc::new(Board::new(places, event_log));
    run.handover.answer_with(board.clone());
    let producers = (0..PRODUCERS).map(|lane| {
        let run = run.clone();
        thread::spawn(move || produce(&run, lane))
    });
    let producers = producers.collect();
    let own_thread = {
        let (run, board) = (run.clone(), board.clone());
        let devices = format!("cpu*{PRODUCERS}").parse().expect("it is a device list");
        thread::spawn(move || serve(&run, &board, &devices))
    };
    let calls = Calls { board, run: Some(run.clone()), producers: ThreadIds::default() };
    Model { calls, run, own_thread, producers }
}

fn produce(run: &Run<u64, u64>, lane: usize) {
    let mut items = ItemQueue::new(&run.handover, lane);
    while let Some(lease) = items.next_lease() {
        let Some(inputs) = run.handover.dispatch.take_inputs(&lease) else {
            run.handover.dispatch.release(lease.id);
            continue;
        };
        let outcomes = vec![Outcome::Succeeded; inputs.len()];
        let (standings, events) = run
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.finish(lease.id, &outcomes, now));
        run.heed(events);
        for ((&seq, input), standing) in lease.items.iter().zip(inputs).zip(standings) {
            if standing == Standing::Counts {
                items.deliver_tracked(seq, Ok(10 * input));
            }
        }
    }
    items.leave();
}

impl Model {
    /// A caller that waits for its answer.
    fn caller(&self, x: u64, deadline: Option<Deadline>) -> JoinHandle<Answer> {
        let calls = self.calls.clone();
        thread::spawn(move || {
            let mut call = PendingCall::begin(&calls, x, deadline);
            Answer::of(x, block_on(|cx| call.poll(cx)))
        })
    }

    /// A caller that looks once, and goes away if it has no answer by then.
    fn deserter(&self, x: u64) -> JoinHandle<Option<Answer>> {
        let calls = self.calls.clone();
        thread::spawn(move || {
            let mut call = PendingCall::begin(&calls, x, None);
            match call.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Some(Answer::of(x, answer)),
                Poll::Pending => None,
            }
        })
    }

    /// A call that one task polls and hands to another, which waits for its answer.
    fn mover(&self, x: u64) -> JoinHandle<Answer> {
        let calls = self.calls.clone();
        thread::spawn(move || {
            let mut call = PendingCall::begin(&calls, x, None);
            match call.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => Answer::of(x, answer),
                Poll::Pending => {
                    let wait = move || Answer::of(x, block_on(|cx| call.poll(cx)));
                    thread::spawn(wait).join().unwrap()
                }
            }
        })
    }

    /// Ends the service, and returns its account.
    fn end(self) -> Account {
        self.run.abort();
        self.own_thread.join().unwrap();
        self.producers.into_iter().for_each(|producer| producer.join().unwrap());
        self.calls.board.account()
    }
}

/// Counts the answers: ok, failed, cancelled. A call that was not accepted counts as nothing.
fn counts(answers: &[Answer]) -> (u64, u64, u64) {
    let count = |answer| answers.iter().filter(|&&a| a == answer).count() as u64;
    (count(Answer::Ok), count(Answer::Late), count(Answer::Cancelled))
}

fn counted(account: &Account) -> (u64, u64, u64) {
    (account.ok, account.failed, account.cancelled)
}

#[test]
fn every_caller_gets_its_own_answer() {
    for batch in [None, Some(Batch::up_to(2)), Some(Batch::of(2))] {
        check(move || {
            let model = start(4, batch);
            let callers: Vec<_> = (0..3).map(|x| model.caller(x, None)).collect();
            let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
            assert_eq!(answers, [Answer::Ok; 3]);
            assert_eq!(counted(&model.end()), (3, 0, 0));
        });
    }
}

/// A place that one caller leaves gets to the next that waits, whichever way it is left.
#[test]
fn a_full_queue_lets_everyone_in() {
    check(|| {
        let model = start(1, None);
        let deserters: Vec<_> = (0..2).map(|x| model.deserter(x)).collect();
        let callers: Vec<_> = (2..4).map(|x| model.caller(x, None)).collect();
        let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(answers, [Answer::Ok; 2]);
        let seen = deserters.into_iter().filter_map(|it| it.join().unwrap()).count() as u64;
        let account = model.end();
        assert!((2 + seen..=4).contains(&account.ok), "{account:?}");
        assert!(account.ok + account.cancelled <= 4 && account.failed == 0, "{account:?}");
    });
}

/// The answer wakes the task that has polled last, also if it comes while the other polls. A dropped call is cancelled,
/// unless its answer was there first.
#[test]
fn a_call_that_moves_to_another_task_wakes_that_one() {
    check_tasks(|| {
        let model = start(4, None);
        let movers: Vec<_> = (0..2).map(|x| model.mover(x)).collect();
        let deserter = model.deserter(2);
        let answers: Vec<_> = movers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(answers, [Answer::Ok; 2]);
        let seen = u64::from(deserter.join().unwrap().is_some());
        let account = model.calls.board.account();
        assert_eq!(account.ok + account.cancelled, 3, "each call is answered once: {account:?}");
        assert!(account.ok >= 2 + seen, "{account:?}");
        assert_eq!(model.end(), account, "a dropped call is over at once");
    });
}

/// The place that a caller waits for wakes the task that has polled last, and so does the answer.
#[test]
fn a_caller_that_moves_to_another_task_gets_its_place_there() {
    check_tasks(|| {
        let model = start(1, None);
        let movers: Vec<_> = (0..2).map(|x| model.mover(x)).collect();
        let deserter = model.deserter(2);
        let answers: Vec<_> = movers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(answers, [Answer::Ok; 2]);
        let seen = u64::from(deserter.join().unwrap().is_some());
        let account = model.end();
        assert!((2 + seen..=3).contains(&account.ok), "{account:?}");
        assert!(account.ok + account.cancelled <= 3 && account.failed == 0, "{account:?}");
    });
}

/// The producer, the deadline and the end race for the answer.
#[test]
fn a_call_is_answered_once() {
    check(|| {
        let model = start(4, None);
        let late = Deadline { at: now(), limit: Duration::ZERO };
        let callers: Vec<_> = [None, Some(late), Some(late)]
            .into_iter()
            .zip(0..)
            .map(|(deadline, x)| model.caller(x, deadline))
            .collect();
        let ender = {
            let run = model.run.clone();
            thread::spawn(move || run.abort())
        };
        let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
        ender.join().unwrap();
        let account = model.end();
        let (ok, late, cancelled) = counts(&answers);
        // A call that is open at the end is counted as cancelled, and answered as closed.
        assert_eq!((account.ok, account.failed), (ok, late), "{answers:?}");
        assert_eq!(cancelled, 0);
        let refused = answers.iter().filter(|&&answer| answer == Answer::Closed).count() as u64;
        assert!(account.cancelled <= refused, "{answers:?}");
    });
}

/// Draining answers what was accepted, refuses the rest, and returns.
#[test]
fn draining_answers_what_was_accepted() {
    check(|| {
        let model = start(1, None);
        let callers: Vec<_> = (0..3).map(|x| model.caller(x, None)).collect();
        Interrupt::drain(&*model.run);
        assert!(model.calls.board.wait_until_answered(Duration::MAX));
        let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
        let account = model.end();
        let (ok, ..) = counts(&answers);
        assert!(answers.iter().all(|answer| matches!(answer, Answer::Ok | Answer::Closed)));
        assert_eq!(counted(&account), (ok, 0, 0), "{answers:?}");
    });
}

/// Starts a thread that takes `take` results of a stream of `items`, with at most two open. It returns the number of
/// results that were ok, and the error that ended the stream.
fn taker(model: &Model, items: Range<u64>, take: usize) -> JoinHandle<(u64, Option<Answer>)> {
    let calls = model.calls.clone();
    thread::spawn(move || {
        let mut stream = BackgroundStream::new(&calls, 2, items.clone());
        for (x, taken) in items.zip(0..).take(take) {
            match Answer::of(x, stream.next().expect("it has more")) {
                Answer::Ok => {}
                end => {
                    assert!(stream.next().is_none(), "it has ended");
                    return (taken, Some(end));
                }
            }
        }
        (take as u64, None)
    })
}

/// Streams get their results in order, and calls theirs, also if neither a place nor a producer is free.
#[test]
fn streams_and_calls_go_on_beside_each_other() {
    for batch in [None, Some(Batch::up_to(2))] {
        explore(TASK_SCHEDULES, move || {
            let model = start(1, batch);
            let takers = [taker(&model, 10..13, 3), taker(&model, 20..22, 2)];
            let callers: Vec<_> = (0..2).map(|x| model.caller(x, None)).collect();
            let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
            assert_eq!(answers, [Answer::Ok; 2]);
            assert_eq!(takers.map(|it| it.join().unwrap()), [(3, None), (2, None)]);
            assert_eq!(counted(&model.calls.board.stream_account()), (5, 0, 0));
            assert_eq!(counted(&model.end()), (7, 0, 0));
        });
    }
}

/// The open items of a dropped stream are given up at once, and calls are answered.
#[test]
fn a_dropped_stream_takes_its_items_back() {
    explore(TASK_SCHEDULES, || {
        let model = start(2, Some(Batch::up_to(2)));
        let taker = taker(&model, 10..20, 1);
        let callers: Vec<_> = (0..2).map(|x| model.caller(x, None)).collect();
        assert_eq!(taker.join().unwrap(), (1, None));
        let streamed = model.calls.board.stream_account();
        assert!((1..=3).contains(&streamed.ok) && streamed.ok + streamed.cancelled <= 3);
        let answers: Vec<_> = callers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(answers, [Answer::Ok; 2]);
        let account = model.end();
        assert_eq!((account.ok, account.cancelled), (2 + streamed.ok, streamed.cancelled));
    });
}

/// A stream ends with an error if the service ends while it has more, and each of its items is counted once.
#[test]
fn the_end_of_a_service_ends_its_streams() {
    for is_drained in [false, true] {
        explore(TASK_SCHEDULES, move || {
            let model = start(1, None);
            let taker = taker(&model, 10..99, 89);
            let caller = model.caller(0, None);
            match is_drained {
                false => model.run.abort(),
                true => {
                    Interrupt::drain(&*model.run);
                    assert!(model.calls.board.wait_until_answered(Duration::MAX));
                }
            }
            let (ok, end) = taker.join().unwrap();
            let answer = caller.join().unwrap();
            let board = model.calls.board.clone();
            model.end();
            let streamed = board.stream_account();
            assert!(ok == 89 && end.is_none() || end == Some(Answer::Closed), "{end:?}");
            assert!(streamed.ok >= ok && (!is_drained || streamed.ok == ok), "{streamed:?}");
            assert!(matches!(answer, Answer::Ok | Answer::Closed));
        });
    }
}
