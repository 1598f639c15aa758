//! The calls that a worker was sent and has not begun, and the outputs of the one that its hook has returned from.
//!
//! The reader pushes calls, and the thread of the hooks receives one after the other. While a hook works, a helper finishes the
//! call before it, which it encodes and answers, and prepares the call behind it, whose inputs it decodes. So the next hook
//! begins at once.

use std::collections::VecDeque;
use std::mem::replace;

use super::{Condvar, Mutex, MutexGuard, lock, wait};

/// A queue with one receiver and one helper. Each message is either received or taken back.
#[derive(Debug)]
pub(crate) struct CallQueue<M, P, O> {
    state: Mutex<QueueState<M, P, O>>,
    /// For the receiver: a message has come, or is prepared, or the helper has finished outputs.
    arrived: Condvar,
    /// For the helper: a message can be prepared, or outputs are to be finished.
    wanted: Condvar,
}

#[derive(Debug)]
struct QueueState<M, P, O> {
    waiting: VecDeque<Waiting<M, P>>,
    hooks: HookThread,
    /// The outputs of one call only: a worker keeps those of no more than two, with the one in its hook.
    outputs: PendingOutputs<O>,
}

/// What the helper does with the outputs of a call.
#[derive(Debug)]
enum PendingOutputs<O> {
    None,
    Given(O),
    /// It finishes them.
    Taken,
}

/// What the helper is to do.
#[derive(Debug)]
pub(crate) enum HelperTask<M, O> {
    /// The helper says when it has [finished](CallQueue::note_finished).
    Finish(O),
    /// The helper gives the message [back](CallQueue::put_prepared).
    Prepare(M),
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

impl<M, P, O> Default for CallQueue<M, P, O> {
    fn default() -> Self {
        let (waiting, outputs) = (VecDeque::new(), PendingOutputs::None);
        let state = QueueState { waiting, hooks: HookThread::Waits, outputs };
        CallQueue { state: Mutex::new(state), arrived: Condvar::new(), wanted: Condvar::new() }
    }
}

impl<M, P, O> CallQueue<M, P, O> {
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

    /// Whether a call waits behind the one that the hook has returned from, so that it is worth it to hand its outputs over.
    pub(crate) fn is_followed(&self) -> bool {
        lock(&self.state).waiting.front().is_some_and(|next| next.call.is_some())
    }

    /// Hands the outputs of a call to the helper, once that has finished those of the call before.
    pub(crate) fn hand_over(&self, outputs: O) {
        let mut state = self.with_outputs_finished();
        state.outputs = PendingOutputs::Given(outputs);
        self.wanted.notify_one();
    }

    /// Waits until the helper has finished all outputs. The thread of the hooks does so before it answers by itself, so that
    /// answers have the order of their calls.
    pub(crate) fn await_finished(&self) {
        drop(self.with_outputs_finished());
    }

    fn with_outputs_finished(&self) -> MutexGuard<'_, QueueState<M, P, O>> {
        let mut state = lock(&self.state);
        while !matches!(state.outputs, PendingOutputs::None) {
            state = wait(&self.arrived, state);
        }
        state
    }

    /// Waits until there is something to do for the helper: outputs, or a message behind the call that a hook works on.
    /// PendingOutputs come first: the coordinator waits for them.
    pub(crate) fn next_task(&self) -> HelperTask<M, O> {
        let mut state = lock(&self.state);
        loop {
            if matches!(state.outputs, PendingOutputs::Given(_))
                && let PendingOutputs::Given(outputs) =
                    replace(&mut state.outputs, PendingOutputs::Taken)
            {
                return HelperTask::Finish(outputs);
            }
            if let Some(message) = state.next_to_prepare()
                && let Preparation::Raw(message, _) =
                    replace(&mut message.preparation, Preparation::Taken(Claim::Received))
            {
                return HelperTask::Prepare(message);
            }
            state = wait(&self.wanted, state);
        }
    }

    /// Notes that the helper has finished the outputs that it had.
    pub(crate) fn note_finished(&self) {
        lock(&self.state).outputs = PendingOutputs::None;
        self.arrived.notify_one();
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

impl<M, P, O> QueueState<M, P, O> {
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
    /// prepares every other one, and answers those that another waits behind.
    #[test]
    fn a_recalled_call_is_answered_or_handed_back_and_not_both() {
        let model = || {
            let calls = Arc::new(CallQueue::<u64, u64, u64>::default());
            let answered = Arc::new(Mutex::new(vec![]));
            let worker = thread::spawn({
                let (calls, answered) = (calls.clone(), answered.clone());
                move || {
                    loop {
                        match calls.receive() {
                            (0, _) => return calls.await_finished(),
                            (call, prepared) => {
                                assert!(prepared.is_none_or(|it| it == call));
                                if calls.is_followed() {
                                    calls.hand_over(call);
                                } else {
                                    calls.await_finished();
                                    lock(&answered).push(call);
                                }
                            }
                        }
                    }
                }
            });
            let helper = thread::spawn({
                let (calls, answered) = (calls.clone(), answered.clone());
                move || {
                    let mut back = vec![];
                    loop {
                        match calls.next_task() {
                            HelperTask::Finish(call) => {
                                lock(&answered).push(call);
                                calls.note_finished();
                            }
                            HelperTask::Prepare(call) => {
                                back.extend(calls.put_prepared(call, call));
                                if call == LAST {
                                    return back;
                                }
                            }
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
            worker.join().unwrap();
            let answered = lock(&answered).clone();
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
