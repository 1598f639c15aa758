//! The calls that a worker was sent and has not begun.
//!
//! The reader pushes them, and the thread of the hooks receives one after the other. While a hook works, a helper prepares the
//! call behind it: it decodes the inputs, so that the next hook begins at once.

use std::collections::VecDeque;

use super::{Condvar, Mutex, lock, wait};

/// A queue with one receiver and one helper. Each message is either received or taken back.
#[derive(Debug)]
pub(crate) struct CallQueue<M, P> {
    state: Mutex<QueueState<M, P>>,
    /// For the receiver: a message has come, or is prepared.
    arrived: Condvar,
    /// For the helper: a message can be prepared.
    wanted: Condvar,
}

#[derive(Debug)]
struct QueueState<M, P> {
    waiting: VecDeque<Waiting<M, P>>,
    hooks: HookThread,
}

/// What the thread of the hooks does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookThread {
    /// It takes the next message at once, and prepares it by itself.
    Waits,
    Works,
}

#[derive(Debug)]
struct Waiting<M, P> {
    /// The number of a call. `None` for a message that is not recalled.
    call: Option<u64>,
    preparation: Preparation<M, P>,
}

/// How far a message is prepared.
#[derive(Debug)]
enum Preparation<M, P> {
    Raw(M, Preparing),
    /// The helper has it.
    Taken(Claim),
    Prepared(M, P),
}

/// The way of a message that the helper has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    Received,
    /// It is taken back as soon as the helper gives it back.
    Back,
}

/// Whether it is worth it to prepare a message ahead of its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Preparing {
    Ahead,
    InTurn,
}

/// A message in its turn, with what the helper has made of it.
pub(crate) type Received<M, P> = (M, Option<P>);

impl<M, P> Default for CallQueue<M, P> {
    fn default() -> Self {
        let state = QueueState { waiting: VecDeque::new(), hooks: HookThread::Waits };
        CallQueue { state: Mutex::new(state), arrived: Condvar::new(), wanted: Condvar::new() }
    }
}

impl<M, P> CallQueue<M, P> {
    /// Adds a message. One with a number can be taken back before it is received.
    pub(crate) fn push(&self, call: Option<u64>, message: M, preparing: Preparing) {
        let mut state = lock(&self.state);
        state
            .waiting
            .push_back(Waiting { call, preparation: Preparation::Raw(message, preparing) });
        match state.hooks {
            HookThread::Waits => self.arrived.notify_one(),
            HookThread::Works if preparing == Preparing::Ahead => self.wanted.notify_one(),
            HookThread::Works => {}
        }
    }

    /// Waits for the next message.
    pub(crate) fn receive(&self) -> Received<M, P> {
        let mut state = lock(&self.state);
        state.hooks = HookThread::Waits;
        let received = loop {
            let is_taken = |it: &Waiting<M, P>| matches!(it.preparation, Preparation::Taken(_));
            match state.waiting.front() {
                Some(first) if !is_taken(first) => {
                    let first = state.waiting.pop_front().expect("it was just seen");
                    break match first.preparation {
                        Preparation::Raw(message, _) => (message, None),
                        Preparation::Prepared(message, prepared) => (message, Some(prepared)),
                        Preparation::Taken(_) => unreachable!("it was just looked at"),
                    };
                }
                _ => state = wait(&self.arrived, state),
            }
        };
        state.hooks = HookThread::Works;
        if state.next_to_prepare().is_some() {
            self.wanted.notify_one();
        }
        received
    }

    /// Waits until a hook works and a message behind it can be prepared, and takes that. The helper gives it
    /// [back](CallQueue::put_prepared).
    pub(crate) fn take_to_prepare(&self) -> M {
        let mut state = lock(&self.state);
        loop {
            if let Some(message) = state.next_to_prepare()
                && let Preparation::Raw(message, _) =
                    std::mem::replace(&mut message.preparation, Preparation::Taken(Claim::Received))
            {
                return message;
            }
            state = wait(&self.wanted, state);
        }
    }

    /// Gives the message back that the helper has. Returns the number of its call if that was to be taken back meanwhile, and is
    /// now.
    pub(crate) fn put_prepared(&self, message: M, prepared: P) -> Option<u64> {
        let mut state = lock(&self.state);
        // It took the first, and what it has stays there.
        let taken = state.waiting.front_mut().expect("nothing else takes it");
        // In both cases the thread of the hooks may wait for it, or for what is behind it.
        self.arrived.notify_one();
        if matches!(taken.preparation, Preparation::Taken(Claim::Back)) {
            return state.waiting.pop_front().and_then(|it| it.call);
        }
        taken.preparation = Preparation::Prepared(message, prepared);
        None
    }

    /// Takes back the last messages, as far as they are of calls behind this one. Returns the numbers of their calls. One that
    /// the helper has comes back [later](CallQueue::put_prepared).
    pub(crate) fn take_back(&self, last: u64) -> Vec<u64> {
        let mut state = lock(&self.state);
        let stays = |it: &Waiting<M, P>| it.call.is_none_or(|call| call <= last);
        let mut kept = state.waiting.iter().rposition(stays).map_or(0, |last| last + 1);
        if let Some(Waiting { preparation: Preparation::Taken(claim), .. }) =
            state.waiting.get_mut(kept)
        {
            *claim = Claim::Back;
            kept += 1;
        }
        let back = state.waiting.split_off(kept);
        drop(state);
        back.into_iter().filter_map(|it| it.call).collect()
    }
}

impl<M, P> QueueState<M, P> {
    /// The first message, if it can be prepared. The next but one has time.
    fn next_to_prepare(&mut self) -> Option<&mut Waiting<M, P>> {
        if self.hooks == HookThread::Waits {
            return None;
        }
        let is_raw = |it: &&mut Waiting<M, P>| {
            matches!(it.preparation, Preparation::Raw(_, Preparing::Ahead))
        };
        self.waiting.front_mut().filter(is_raw)
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;

    /// A worker receives calls while its coordinator sends them and recalls what was not begun. The last one ends it. A helper
    /// prepares every other one.
    #[test]
    fn a_recalled_call_is_answered_or_handed_back_and_not_both() {
        let model = || {
            let calls = Arc::new(CallQueue::<u64, u64>::default());
            let worker = thread::spawn({
                let calls = calls.clone();
                move || {
                    let mut answered = vec![];
                    loop {
                        match calls.receive() {
                            (0, _) => return answered,
                            (call, prepared) => {
                                assert!(prepared.is_none_or(|it| it == call));
                                answered.push(call);
                            }
                        }
                    }
                }
            });
            let helper = thread::spawn({
                let calls = calls.clone();
                move || {
                    let mut back = vec![];
                    loop {
                        let call = calls.take_to_prepare();
                        back.extend(calls.put_prepared(call, call));
                        if call == LAST {
                            return back;
                        }
                    }
                }
            });
            let mut handed_back = vec![];
            for call in 1..=4 {
                let preparing = if call % 2 == 0 { Preparing::Ahead } else { Preparing::InTurn };
                calls.push(Some(call), call, preparing);
                if call % 2 == 0 {
                    handed_back.extend(calls.take_back(1));
                }
            }
            calls.push(None, 0, Preparing::InTurn);
            let answered: Vec<u64> = worker.join().unwrap();
            assert!(answered.contains(&1), "the first stays");
            assert!(answered.is_sorted());
            // The worker has ended and works for ever, so the helper gets what stays in the queue.
            calls.push(None, LAST, Preparing::Ahead);
            let mut all = [answered, handed_back, helper.join().unwrap()].concat();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        };
        shuttle::check_random(model, 5_000);
        shuttle::check_pct(model, 5_000, 3);
    }

    const LAST: u64 = 9;
}
