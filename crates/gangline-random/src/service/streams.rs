//! Streams beside the calls of a service.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use gangline::{Account, Error, Service};

use super::Callers;
use crate::item::{Fault, Item};
use crate::single::random_fault;
use crate::work::Work;

/// What is taken of a stream.
#[derive(Debug)]
pub(super) struct StreamPlan {
    items: Vec<Fault>,
    /// The number of results that are taken before it is dropped.
    take: usize,
}

impl StreamPlan {
    pub(super) fn random(random: &mut fastrand::Rng, one_in: u64, kinds: u16) -> Self {
        let number = random.usize(0..200);
        let fault = |random: &mut fastrand::Rng| match random.u64(0..one_in) {
            0 => random_fault(random, kinds),
            _ => Fault::None,
        };
        let items = (0..number).map(|_| fault(random)).collect();
        let take = if random.u8(0..4) == 0 { random.usize(0..=number) } else { usize::MAX };
        StreamPlan { items, take }
    }
}

impl Callers<'_> {
    /// Takes the results of a stream.
    pub(super) fn take(&self, service: &Service<Work>, plan: &StreamPlan) {
        self.begin.wait();
        let pulled = RefCell::new(VecDeque::new());
        let items = plan.items.iter().map(|&fault| {
            let x = self.answers.next.fetch_add(1, Ordering::AcqRel);
            self.answers.pulled.fetch_add(1, Ordering::AcqRel);
            pulled.borrow_mut().push_back((x, fault));
            Item { x, fault, live: self.record.items.live() }
        });
        let mut stream = service.stream(items);
        let mut taken = 0;
        while taken < plan.take {
            let Some(answer) = stream.next() else {
                let all = (taken, pulled.borrow().len());
                self.laws.equal("a stream gives all its results", &all, &(plan.items.len(), 0));
                break;
            };
            if let Err(
                Error::Closed { .. } | Error::Cancelled { .. } | Error::ServiceEnded { .. },
            ) = &answer
            {
                self.check_answer(0, Fault::None, None, &answer);
                let is_over = stream.next().is_none() && stream.next().is_none();
                self.laws.check("the end of a service ends its streams", is_over, String::new);
                break;
            }
            taken += 1;
            let (x, fault) = pulled.borrow_mut().pop_front().expect("a result is of an item");
            let count = match &answer {
                Ok(_) => &self.answers.taken_ok,
                Err(_) => &self.answers.taken_failed,
            };
            count.fetch_add(1, Ordering::AcqRel);
            self.check_answer(x, fault, None, &answer);
        }
    }

    /// Checks the account of the streams.
    pub(super) fn check_streams(&self, account: &Account) {
        let answers = self.answers;
        let [pulled, ok, failed] = [&answers.pulled, &answers.taken_ok, &answers.taken_failed]
            .map(|it| it.load(Ordering::Acquire));
        let all = || format!("{account:?}; {pulled} pulled, {ok} ok and {failed} failed taken");
        let counted = account.ok + account.failed + account.cancelled;
        // An item that was pulled at the end of the service may be refused.
        let ends = self.plan.ends_early() || self.plan.settings.may_lose_too_many();
        let adds_up = counted == pulled || ends && counted <= pulled;
        self.laws.check("the account of streams adds up", adds_up, all);
        let has_taken = account.ok >= ok && account.failed >= failed;
        self.laws.check("what is taken of streams is counted", has_taken, all);
    }
}
