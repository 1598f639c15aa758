//! What producers do in a simulation.

use super::*;

impl Simulation {
    pub(super) fn ask(&mut self, producer: ProducerId) {
        let readiness = match self.has_state[producer] {
            true => Readiness::Ready,
            false => Readiness::NeedsInit,
        };
        let bound = self.scheduler.workload.bound;
        self.untracked.retain(|&index| index < bound);
        let is_careful = self.is_over
            || self.scheduler.health().is_suspect(producer)
            || !self.scheduler.health().may_take_new(producer)
            || self.scheduler.has_waiting_items()
            || self.untracked.is_empty();
        if is_careful {
            match self.scheduler.lease(producer, readiness, self.now) {
                Next::Work(lease) => return self.take(producer, lease, readiness),
                Next::Leave => {
                    self.producers[producer] = Doing::Left;
                    return;
                }
                Next::Wait => self.producers[producer] = Doing::Waits(None),
                Next::WaitUntil(time) => self.producers[producer] = Doing::Waits(Some(time)),
            }
        }
        if self.untracked.is_empty() || !self.scheduler.health().may_take_new(producer) {
            return;
        }
        let index = self.untracked.pop_front().expect("there is one");
        if self.scheduler.health().is_suspect(producer) || readiness == Readiness::NeedsInit {
            let lease = self.scheduler.track(index, producer, readiness, self.now);
            return self.take(producer, lease, readiness);
        }
        self.scheduler.stop_waiting(producer, self.now);
        match self.call(&[index]) {
            Some(time) => self.producers[producer] = Doing::WorksUntracked(index, time),
            None => self.producers[producer] = Doing::Stuck,
        }
    }

    pub(super) fn take(&mut self, producer: ProducerId, lease: Lease, readiness: Readiness) {
        for index in &lease.items {
            let retried = self.retried.get(index).copied().unwrap_or(0);
            assert_eq!(lease.attempt, retried + 1, "only retries are attempts, at {index}");
            assert!(self.scheduler.workload.bound > *index, "{index} was given up");
        }
        if readiness == Readiness::NeedsInit {
            self.producers[producer] = Doing::Prepares(lease, self.now.after(MS));
        } else {
            self.work(producer, lease);
        }
    }

    pub(super) fn prepared(&mut self, producer: ProducerId, lease: Lease) {
        if self.flaw(producer) == Flaw::NoSecondInit {
            self.scheduler.release(lease.id, self.now);
            if self.scheduler.producer_lost(producer, self.now).is_err() {
                self.end();
            }
            self.producers[producer] = Doing::Asks;
            return;
        }
        self.has_state[producer] = true;
        self.work(producer, lease);
    }

    pub(super) fn work(&mut self, producer: ProducerId, lease: Lease) {
        if self.scheduler.begin(lease.id, Copies::Kept, self.now) == Begin::Stale {
            return self.scheduler.release(lease.id, self.now);
        }
        self.producers[producer] = match self.call(&lease.items) {
            Some(time) => Doing::Works(lease, time),
            None => Doing::Stuck,
        };
    }

    /// The time at which a call that begins now returns; `None` if it never does.
    pub(super) fn call(&mut self, items: &[u64]) -> Option<RunTime> {
        let mut time = MS + self.random(3) as u32 * MS / 2;
        let (may_be_stuck, mut is_stuck) = (self.may_be_stuck(), false);
        for &index in items {
            let number = self.calls.entry(index).or_default();
            *number += 1;
            let is_first = *number == 1;
            match self.script.items[index as usize] {
                Fault::Slow(times) if is_first => time += times * MS,
                Fault::Stuck => is_stuck |= is_first && may_be_stuck,
                _ => {}
            }
        }
        (!is_stuck).then(|| self.now.after(time))
    }

    /// Whether a hook may be stuck: only if a timeout, or a copy that succeeds, gets the run past it.
    pub(super) fn may_be_stuck(&self) -> bool {
        let is_here = |it: &&Doing| !matches!(it, Doing::Stuck | Doing::Left);
        let others = self.producers.iter().filter(is_here);
        let copies_succeed = self.script.flaws.iter().all(|flaw| *flaw == Flaw::None)
            && !self.script.items.iter().any(|it| matches!(it, Fault::Fails(_) | Fault::Panics(_)));
        let is_passed =
            self.script.item_timeout.is_some() || self.script.speculates && copies_succeed;
        is_passed && others.count() > 1
    }

    pub(super) fn outcome(&self, producer: ProducerId, index: u64, attempt: u32) -> Outcome {
        let fails = match self.script.items[index as usize] {
            Fault::Fails(attempts) | Fault::Panics(attempts) => attempt <= attempts,
            _ => false,
        };
        match fails || self.flaw(producer) == Flaw::Broken {
            true => Outcome::Failed,
            false => Outcome::Succeeded,
        }
    }

    pub(super) fn panics(&self, index: u64, attempt: u32) -> bool {
        matches!(self.script.items[index as usize], Fault::Panics(most) if attempt <= most)
    }

    pub(super) fn worked(&mut self, producer: ProducerId, Lease { id, items, attempt, .. }: Lease) {
        if items.iter().any(|&index| self.panics(index, attempt)) {
            self.has_state[producer] = false;
        }
        let outcomes: Vec<_> =
            items.iter().map(|&index| self.outcome(producer, index, attempt)).collect();
        let is_short = matches!(self.flaw(producer), Flaw::Memory(most) if items.len() > most);
        let fails = is_short || outcomes.contains(&Outcome::Failed);
        if self.script.batch.is_some() && items.len() > 1 && fails {
            let is_kept = self.script.keeps_inputs || is_short;
            let inputs = if is_kept { Inputs::Kept } else { self.inputs() };
            let memory = if is_short { Memory::Short } else { Memory::Sufficient };
            match self.scheduler.fail_together(id, inputs, memory, self.now) {
                Together::Split(_) => {}
                Together::Failed(items) => self.failed(producer, &items),
            }
            return;
        }
        let standings = self.scheduler.finish(id, &outcomes, self.now);
        for ((index, outcome), standing) in items.into_iter().zip(outcomes).zip(standings) {
            match (outcome, standing) {
                (Outcome::Succeeded, Standing::Counts) => self.succeed(producer, index),
                (Outcome::Failed, Standing::Counts) => self.failed(producer, &[index]),
                _ => {}
            }
        }
    }

    pub(super) fn worked_untracked(&mut self, producer: ProducerId, index: u64) {
        self.has_state[producer] = !self.panics(index, 1);
        match self.outcome(producer, index, 1) {
            Outcome::Succeeded if self.scheduler.workload.bound > index => {
                self.succeed(producer, index);
            }
            Outcome::Succeeded => {}
            Outcome::Failed => {
                self.scheduler.adopt(index, producer);
                self.failed(producer, &[index]);
            }
        }
    }
}
