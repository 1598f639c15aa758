//! A keeper's part in one run: sends items to its child, and reports what comes back.
//!
//! The child works on its calls in the order in which they were sent, and answers in that order. It may say of a batch that its
//! hook has returned, and begin the next before it answers. So only the first that has not returned can be in a hook: the
//! *current* call. Only that one can exceed a limit, and is blamed if the process ends. The calls behind it have not begun for
//! the scheduler, and come back if another producer asks for their items, if nothing waits for them, or if the process ends.
//! Then those before it are worked on again too, since their outputs are lost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use gangline_scheduler::ahead::note_returned;
use gangline_scheduler::{Begin, Copies, Inputs, Lease, Next};

use super::ahead::Ahead;
use super::frame::{Frame, FrameKind};
use super::hook_calls::{CallOutcome, Sent};
use super::keeper::Keeper;
use super::memory_writer::FrameWithBytes;
use super::message::{self, CallNumber, Done, HandedBack, Returned};
use super::waiting::{CallWatch, ChildAnswer, Interest, WaitEnd};
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::observe::event_log::EventWriter;
use crate::producers::backend::{Backend, NextStep};
use crate::producers::leasing;
use crate::run::Run;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::settle;

/// A keeper in a run.
pub(super) struct Shift<'a, I, T> {
    keeper: &'a mut Keeper<I, T>,
    run: &'a Run<I, T>,
    desk: ItemQueue<'a, I, T>,
    event_writer: Option<EventWriter>,
    /// The calls that the child has not answered, in the order in which it works on them.
    sent: VecDeque<Sent<I>>,
    /// The limits of the current call.
    watch: CallWatch,
    /// When the current call began: it was sent to an idle child, or the hook of the one before it had returned.
    since: Instant,
    /// How many calls the child may have.
    ahead: Ahead,
    recall: RecallState,
}

/// The last call of a child that has ended or is to be ended, and what came of it.
type CrashedCall<I, T> = (Sent<I>, CallOutcome<T>);

/// Whether calls that the child has not begun are to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RecallState {
    No,
    Wanted,
    /// The child has been told, and has not answered.
    Sent,
}

impl<'a, I, T> Shift<'a, I, T> {
    pub(super) fn new(keeper: &'a mut Keeper<I, T>, run: &'a Run<I, T>) -> Self {
        keeper.listen_to(run);
        if let Some(child) = &mut keeper.worker.child {
            // The traffic so far is that of an earlier run, or of the start.
            child.take_traffic();
        }
        keeper.note_worker(run, |_| {});
        let producer = keeper.producer();
        keeper.worker.listen_to(run.handover.dispatch.signals.ahead.bells(producer));
        let most = keeper.worker.settings.processes.ahead.get();
        let ahead = match run.handover.batching() {
            None => Ahead::of_items(most),
            Some(_) => Ahead::of_batches(most),
        };
        Shift {
            desk: ItemQueue::new(&run.handover, producer),
            event_writer: run.event_log.writer(producer),
            keeper,
            run,
            sent: VecDeque::new(),
            watch: CallWatch::default(),
            since: now(),
            ahead,
            recall: RecallState::No,
        }
    }

    /// Works until there are no more items for this producer.
    pub(super) fn work(mut self) -> NextStep {
        let (run, producer) = (self.run, self.keeper.producer());
        let next_step = loop {
            self.desk.set_readiness(self.keeper.readiness());
            let Some(lease) = self.next_lease() else {
                break leasing::leave(&self.keeper.shared);
            };
            let next_step = self.work_from(lease);
            if next_step != NextStep::On {
                break next_step;
            }
        };
        self.keeper.note_worker(run, |_| {});
        self.desk.leave();
        run.event_log.return_writer(producer, self.event_writer);
        next_step
    }

    /// Waits for a lease. `None` if the producer is to leave.
    fn next_lease(&mut self) -> Option<Lease> {
        loop {
            let until = match self.desk.try_lease() {
                Next::Work(lease) => return Some(lease),
                Next::Leave => return None,
                Next::Wait => None,
                Next::WaitUntil(time) => Some(time),
            };
            let tidies = self.keeper.tidy();
            self.desk.sleep_for_lease(until, tidies);
        }
    }

    /// Has an idle child work on a lease, and on those that are sent behind it, until it is idle again.
    fn work_from(&mut self, mut lease: Lease) -> NextStep {
        let (run, producer) = (self.run, self.keeper.producer());
        // The child may have ended since its last answer. That costs no attempt.
        if !self.keeper.worker.is_alive() {
            self.keeper.lose_process(run);
        }
        if self.keeper.is_due(run) {
            // Others may take the items while the process is replaced.
            run.handover.dispatch.release(lease.id);
            return NextStep::Recycle;
        }
        if !self.keeper.has_state {
            let shared = self.keeper.shared.clone();
            let prepared =
                leasing::prepare_for(self.keeper, producer, &shared, run, &lease, &mut self.desk);
            if let Err(next_step) = prepared {
                return next_step;
            }
        }
        let clones = leasing::Clones::ToSpeculate;
        let inputs = leasing::take_inputs(run, &mut lease, clones, &mut self.desk);
        let Some(inputs) = inputs else { return leasing::leave(&self.keeper.shared) };
        let mut messages = vec![];
        self.add(lease, inputs, &mut messages);
        self.add_more(&mut messages);
        self.keeper.child().send(messages);
        self.recall = RecallState::No;
        self.watch = CallWatch::default();
        self.begin_current();
        while let Some(watched) = self.watched() {
            let interest = self.keeper.worker.interest_in(run, &self.keeper.shared, watched);
            self.wait(interest);
        }
        leasing::leave(&self.keeper.shared)
    }

    /// The place of the current call.
    fn current(&self) -> Option<usize> {
        self.sent.iter().position(|sent| !sent.has_returned)
    }

    /// The current call, or the last one, of which only the answer is missing.
    fn watched(&self) -> Option<&Sent<I>> {
        self.current().map_or_else(|| self.sent.back(), |current| self.sent.get(current))
    }

    /// The number of calls whose hooks have not returned.
    fn unreturned(&self) -> usize {
        self.current().map_or(0, |current| self.sent.len() - current)
    }

    /// Adds a call to those to send. A call that cannot be encoded has failed.
    fn add(&mut self, lease: Lease, inputs: Vec<I>, messages: &mut Vec<FrameWithBytes>) {
        match self.keeper.worker.prepare_call(self.run, lease, inputs) {
            (sent, Ok(message)) => {
                self.keeper.lifetime.worked += sent.lease.items.len() as u64;
                self.sent.push_back(sent);
                messages.push(message);
            }
            (sent, Err(error)) => self.settle(sent, CallOutcome::Failed(*error)),
        }
    }

    /// Adds calls ahead, once the child has few left.
    fn add_more(&mut self, messages: &mut Vec<FrameWithBytes>) {
        let here = self.unreturned();
        let left = usize::try_from(self.keeper.life_left(self.run)).unwrap_or(usize::MAX);
        let most = self.ahead.number().min(here.saturating_add(left));
        let is_full = here > most / 2 || self.keeper.child().has_unwritten();
        if most == 1 || is_full || self.recall != RecallState::No || !self.keeper.has_state {
            return;
        }
        for (lease, inputs) in self.desk.lease_ahead(most - here) {
            let is_over =
                |item| self.run.is_withdrawn(item) || self.run.wanted.gave_up_on(Some(item));
            if lease.items.iter().any(|&item| is_over(item)) {
                self.give_back(lease, inputs);
                continue;
            }
            let copies = self.copy_to_speculate(&lease, &inputs);
            let before = self.sent.len();
            self.add(lease, inputs, messages);
            if let Some(sent) = self.sent.get_mut(before) {
                sent.copies = copies;
            }
        }
    }

    /// Keeps copies of the inputs of a lease for other producers, if they may work on its items too.
    fn copy_to_speculate(&self, lease: &Lease, inputs: &[I]) -> Copies {
        let dispatch = &self.run.handover.dispatch;
        if !dispatch.speculates() {
            return Copies::Missing;
        }
        let each = lease.items.iter().zip(inputs);
        let copies: Vec<_> = each
            .filter_map(|(&item, input)| Some((item, self.run.run_settings.copy_of(input)?)))
            .collect();
        let is_whole = copies.len() == inputs.len();
        dispatch.keep_inputs(copies).into_iter().for_each(drop_quietly);
        if is_whole { Copies::Kept } else { Copies::Missing }
    }

    /// Notes that the child begins the current call. If there is none, only an answer is missing, which has a limit of its own.
    fn begin_current(&mut self) {
        let current = self.current().filter(|_| self.keeper.has_state);
        let Some(sent) = current.and_then(|current| self.sent.get_mut(current)) else {
            if let Some(last) = self.sent.back() {
                self.watch.begin(self.keeper.worker.limit_of(&last.lease));
            }
            return;
        };
        let (run, lease, copies) = (self.run, &sent.lease, sent.copies);
        let (begin, events) = run
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.begin(lease.id, copies, now));
        run.heed(events);
        sent.is_stale = begin == Begin::Stale;
        self.since = now();
        if let Some(event_writer) = &mut self.event_writer {
            event_writer.pause(self.desk.waited);
            event_writer.started_all(&lease.items, |item| run.name_of(item), lease.attempt);
        }
        self.watch.begin(self.keeper.worker.limit_of(lease));
    }

    /// Waits for the child, and takes what comes.
    fn wait(&mut self, interest: Interest) {
        let (run, producer) = (self.run, self.keeper.producer());
        let watched = self.watched().expect("the caller has looked").call;
        let are_behind = self.unreturned() > 1;
        let is_over = |sent: &Sent<I>| run.wanted.gave_up_on(sent.lease.items.first().copied());
        if are_behind && self.recall == RecallState::No && self.sent.iter().any(is_over) {
            self.recall = RecallState::Wanted;
        }
        let bell = self.keeper.worker.bell().clone();
        let child = self.keeper.child();
        if self.recall == RecallState::Wanted {
            self.recall = RecallState::No;
            if are_behind {
                let recall =
                    message::encode(FrameKind::Recall, usize::MAX, &CallNumber { call: watched });
                child.send([recall.expect("a number can be encoded").into()]);
                self.recall = RecallState::Sent;
            }
        }
        self.watch.heed(child, watched, interest);
        if interest == Interest::Abandoned {
            let crash = child.reap(Duration::ZERO);
            return self.end_with(ChildAnswer::Died(crash));
        }
        match self.watch.wait(child, &bell) {
            WaitEnd::Frame(frame) => match frame.kind {
                FrameKind::HandedBack => self.take_back(frame),
                FrameKind::Returned => self.take_return(frame),
                _ => self.take_answer(frame),
            },
            WaitEnd::Bell => {
                let requests = &run.handover.dispatch.signals.ahead;
                if requests.take_recall(producer) && self.recall == RecallState::No {
                    self.recall = RecallState::Wanted;
                }
                if requests.take_offer(producer) {
                    self.send_more();
                }
            }
            WaitEnd::Ended(end) => {
                let answer = end.answer(child);
                self.end_with(answer);
            }
        }
    }

    /// Takes the calls that the child hands back.
    fn take_back(&mut self, frame: Frame) {
        let Ok(HandedBack { calls }) = message::decode(&frame) else {
            // The frame is wrong. Taken as an answer, it is an error that says how.
            return self.take_answer(frame);
        };
        self.recall = RecallState::No;
        let is_back = |sent: &Sent<I>| calls.contains(&sent.call);
        let (back, left) = std::mem::take(&mut self.sent).into_iter().partition(is_back);
        self.sent = left;
        self.give_all_back(back);
    }

    /// Notes that the hook of the current call has returned. The child has begun the next.
    fn take_return(&mut self, frame: Frame) {
        let returned = message::decode::<Returned>(&frame).ok();
        let current = self.current().and_then(|current| self.sent.get_mut(current));
        let Some((Returned { took, in_hook, .. }, sent)) =
            returned.zip(current).filter(|(returned, sent)| returned.call == sent.call)
        else {
            // The frame is wrong. Taken as an answer, it is an error that says how.
            return self.take_answer(frame);
        };
        sent.has_returned = true;
        let (dispatch, lease) = (&self.run.handover.dispatch, sent.lease.id);
        dispatch.schedule(|state, now| note_returned(&mut state.scheduler, lease, now));
        if let Some(event_writer) = &mut self.event_writer {
            event_writer.finished_all(&sent.lease.items);
        }
        self.note_times(took, in_hook);
        self.begin_current();
        self.send_more();
    }

    /// Notes how long the child was busy with the current call.
    fn note_times(&mut self, took: u64, in_hook: u64) {
        self.ahead.note(Duration::from_micros(took));
        let wait = (now() - self.since).saturating_sub(Duration::from_nanos(in_hook));
        self.keeper.note_worker(self.run, |worker| worker.wire_wait += wait);
    }

    /// Takes the answer to the first call. If that is the current one, the child then begins the next.
    fn take_answer(&mut self, frame: Frame) {
        let sent = self.sent.pop_front().expect("the child has a call");
        if !sent.has_returned
            && frame.kind == FrameKind::Done
            && let Ok((Done { took, in_hook, .. }, _)) = message::split::<Done>(&frame)
        {
            self.note_times(took, in_hook);
        }
        // Before the caller of a service has its answer.
        self.keeper.note_worker(self.run, |_| {});
        let was_current = !sent.has_returned;
        let worked = self.keeper.worker.worked(self.run, &sent, ChildAnswer::Frame(frame));
        if matches!(worked, CallOutcome::Crashed(_)) || worked.is_device_lost() {
            return self.crash(Some((sent, worked)));
        }
        let is_failed = match &worked {
            CallOutcome::Each(results) => results.iter().any(Result::is_err),
            CallOutcome::Failed(_) | CallOutcome::Crashed(_) => true,
        };
        if let CallOutcome::Failed(error) = &worked
            && error.is_panic()
        {
            self.keeper.lose_state(self.run);
        }
        if worked.is_short() {
            self.ahead.hold_back();
        }
        self.settle(sent, worked);
        if was_current {
            self.begin_current();
        }
        let dispatch = &self.run.handover.dispatch;
        if is_failed
            && self.recall == RecallState::No
            && dispatch.is_careful(self.keeper.producer())
        {
            // Others can show whether this producer is to blame.
            self.recall = RecallState::Wanted;
        }
        self.send_more();
    }

    /// Sends calls ahead, unless the child is idle.
    fn send_more(&mut self) {
        if self.sent.is_empty() {
            return;
        }
        let had_current = self.current().is_some();
        let mut messages = vec![];
        self.add_more(&mut messages);
        if !messages.is_empty() {
            self.keeper.child().send(messages);
            // The call behind the one that has returned may have been handed back.
            if !had_current {
                self.begin_current();
            }
        }
    }

    /// The process has ended. The current call was in its hook, unless the child has no state.
    fn end_with(&mut self, answer: ChildAnswer) {
        let current = self.current().filter(|_| self.keeper.has_state);
        let died = current.and_then(|current| self.sent.remove(current));
        let crashed = died.map(|sent| {
            let worked = self.keeper.worker.worked(self.run, &sent, answer);
            (sent, worked)
        });
        self.crash(crashed);
    }

    /// Ends the process. All calls go back but the crashed one, or the one that has lost the device: no other is to blame.
    fn crash(&mut self, crashed: Option<CrashedCall<I, T>>) {
        self.keeper.lose_process(self.run);
        self.ahead.hold_back();
        let back = std::mem::take(&mut self.sent);
        self.give_all_back(back);
        if let Some((sent, worked)) = crashed {
            self.settle(sent, worked);
        }
    }

    fn give_all_back(&mut self, sent: VecDeque<Sent<I>>) {
        let items = sent.iter().map(|sent| sent.lease.items.len() as u64).sum::<u64>();
        self.keeper.note_worker(self.run, |worker| worker.returned += items);
        self.keeper.lifetime.worked = self.keeper.lifetime.worked.saturating_sub(items);
        for Sent { lease, inputs, .. } in sent {
            self.give_back(lease, inputs);
        }
    }

    /// Gives a lease back that no hook has begun.
    fn give_back(&self, lease: Lease, inputs: Vec<I>) {
        let dispatch = &self.run.handover.dispatch;
        let kept = lease.items.iter().copied().zip(inputs).collect();
        dispatch.keep_inputs(kept).into_iter().for_each(drop_quietly);
        dispatch.release(lease.id);
    }

    /// Reports the outcomes of a lease. The inputs of items that failed are kept for another attempt.
    fn settle(&mut self, sent: Sent<I>, worked: CallOutcome<T>) {
        let (run, producer) = (self.run, self.keeper.producer());
        let Sent { lease, inputs, has_returned, .. } = sent;
        if let Some(event_writer) = self.event_writer.as_mut().filter(|_| !has_returned) {
            event_writer.finished_all(&lease.items);
        }
        self.desk.set_readiness(self.keeper.readiness());
        let mut inputs: Vec<_> = lease.items.iter().copied().zip(inputs).collect();
        let is_crash = matches!(worked, CallOutcome::Crashed(_));
        let results = match worked {
            CallOutcome::Each(results) => results,
            CallOutcome::Failed(error)
                if settle::is_given_to_largest(run, &lease, &error, &mut inputs) =>
            {
                return drop_quietly(error);
            }
            CallOutcome::Failed(error) | CallOutcome::Crashed(error) if lease.items.len() == 1 => {
                if is_crash && run.crashes.is_poison(lease.items[0]) {
                    inputs.drain(..).for_each(drop_quietly);
                }
                vec![Err(error)]
            }
            CallOutcome::Failed(error) | CallOutcome::Crashed(error) => {
                let failed = settle::FailedBatch { error, kept: Inputs::Kept, inputs };
                for (item, fault) in settle::together(run, producer, &lease, failed) {
                    settle::deliver(run, (item, Err(fault)), &mut self.desk);
                }
                return;
            }
        };
        let is_last = lease.attempt > run.policy().retries;
        let untried = settle::untried(&lease, &results);
        let (mut spare, mut kept, mut left) = (Vec::new(), Vec::new(), Vec::new());
        for ((item, input), result) in inputs.into_iter().zip(&results) {
            match result {
                Err(_) if untried.contains(&item) => left.push((item, input)),
                Err(_) if !is_last || run.handover.dispatch.speculates() => {
                    kept.push((item, input));
                }
                _ => spare.push(input),
            }
        }
        if !kept.is_empty() {
            run.handover.dispatch.keep_inputs(kept).into_iter().for_each(drop_quietly);
        }
        if lease.attempt > 1 && (is_last || results.iter().any(Result::is_ok)) {
            lease.items.iter().for_each(|item| run.crashes.forget(*item));
        }
        settle::each(run, producer, (&lease, results), left, &mut self.desk);
        spare.into_iter().for_each(drop_quietly);
    }
}
