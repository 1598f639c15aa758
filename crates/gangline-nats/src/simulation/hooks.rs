//! The hooks of a simulated worker, and the account of all hooks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use gangline::Hook;
use gangline::backend::{CallFailure, RemoteFailure};
use gangline::error::Crash;

use super::pool::SimulatedValue;
use super::random::Random;
use crate::hosting::{TaskAnswer, Timeout};
use crate::part::PartEvent;
use crate::wire::ItemHeader;

/// How long hooks take, and what they answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct HookSettings {
    /// The longest time of most hooks.
    pub(super) most: Duration,
    /// One hook in this number takes a hundred times as long; 0 for none.
    pub(super) slow: u64,
    /// One hook in this number fails; 0 for none.
    pub(super) failing: u64,
    pub(super) failure: HookFailure,
    /// One output in this number is large, and one text of a failure; 0 for none.
    pub(super) large: u64,
}

/// How hooks fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HookFailure {
    Error,
    /// The child process with the hook ends.
    Crash,
    TimedOut,
    /// The hook takes too long, and its worker has no other producer.
    LastTimedOut,
}

/// What all hooks of a simulation have done.
#[derive(Debug, Clone, Default)]
pub(super) struct HookAccount {
    /// How often a hook has begun each item of each run, by the epoch and the item.
    pub(super) begun: BTreeMap<(u64, u64), u64>,
    pub(super) failed: u64,
    /// The time for which hooks have items.
    pub(super) time: Duration,
    /// The number of items that were given up in a hook.
    pub(super) given_up: u64,
}

/// The hooks of one process.
#[derive(Debug)]
pub(super) struct Hooks {
    settings: HookSettings,
    random: Random,
    account: Rc<RefCell<HookAccount>>,
    /// By part and publication.
    running: BTreeMap<(u64, u64), RunningHook>,
}

#[derive(Debug)]
struct RunningHook {
    input: u64,
    is_given_up: bool,
}

/// The end of a hook.
#[derive(Debug)]
pub(super) struct HookEnd {
    pub(super) at: Duration,
    part: u64,
    publication: u64,
}

impl Hooks {
    pub(super) fn new(
        settings: HookSettings,
        random: Random,
        account: Rc<RefCell<HookAccount>>,
    ) -> Self {
        Hooks { settings, random, account, running: BTreeMap::new() }
    }

    /// The number of items that hooks have.
    pub(super) fn count(&self) -> usize {
        self.running.len()
    }

    /// The number of items that hooks have, and that were not given up.
    pub(super) fn wanted(&self) -> usize {
        self.running.values().filter(|hook| !hook.is_given_up).count()
    }

    pub(super) fn begin(
        &mut self,
        part: u64,
        header: &ItemHeader,
        input: &[u8],
        now: Duration,
    ) -> HookEnd {
        let publication = header.publication;
        let input = postcard::from_bytes::<SimulatedValue>(input).expect("it is an encoded value");
        let hook = RunningHook { input: input.number, is_given_up: false };
        let earlier = self.running.insert((part, publication), hook);
        assert!(earlier.is_none(), "publication {publication} is in two hooks of one worker");
        let mut account = self.account.borrow_mut();
        *account.begun.entry((header.epoch, header.item)).or_default() += 1;
        let time = self.random.time(self.settings.most);
        let is_slow = self.random.one_in(self.settings.slow);
        let time = if is_slow { time * 100 } else { time };
        account.time += time;
        HookEnd { at: now + time, part, publication }
    }

    /// Gives an item up. Half of the hooks look, and end soon.
    pub(super) fn give_up(
        &mut self,
        part: u64,
        publication: u64,
        now: Duration,
    ) -> Option<HookEnd> {
        let hook = self.running.get_mut(&(part, publication))?;
        if !std::mem::replace(&mut hook.is_given_up, true) {
            self.account.borrow_mut().given_up += 1;
        }
        let at = now + Duration::from_millis(1);
        self.random.one_in(2).then_some(HookEnd { at, part, publication })
    }

    /// What a hook that ends says.
    pub(super) fn end(&mut self, end: &HookEnd, _: Duration) -> Vec<(u64, PartEvent)> {
        let HookEnd { part, publication, .. } = *end;
        let Some(hook) = self.running.remove(&(part, publication)) else { return vec![] };
        let over = (part, PartEvent::HookOver(publication));
        if hook.is_given_up {
            return vec![over];
        }
        let answer = match self.random.one_in(self.settings.failing) {
            true => {
                self.account.borrow_mut().failed += 1;
                self.failure()
            }
            false => {
                let output = SimulatedValue::output(hook.input, self.settings.large);
                let output = postcard::to_allocvec(&output);
                TaskAnswer::Output(output.expect("a value can be encoded"))
            }
        };
        vec![(part, PartEvent::HookAnswered(publication, answer)), over]
    }

    /// The answer for an item whose hook fails.
    fn failure(&mut self) -> TaskAnswer {
        let limit = self.settings.most;
        let timeout = Timeout { hook: Hook::ProducerWork, limit, device: None };
        match self.settings.failure {
            HookFailure::Error => {
                let is_large = self.random.one_in(self.settings.large);
                let text = "it fails".repeat(if is_large { 100 } else { 1 });
                let failure = CallFailure::Error(RemoteFailure::text(text));
                TaskAnswer::Failed { failure, device: None }
            }
            HookFailure::Crash => {
                let crash = Crash::new(Some(11), None, String::new());
                TaskAnswer::Crashed { crash, device: None }
            }
            HookFailure::TimedOut => TaskAnswer::TimedOut(timeout),
            HookFailure::LastTimedOut => {
                let reason = "its last producer took too long".to_owned();
                TaskAnswer::Ended { reason, timeout: Some(timeout) }
            }
        }
    }
}
