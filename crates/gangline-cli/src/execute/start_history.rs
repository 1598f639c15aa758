//! The starts of warm workers that failed: whether another one can help, and whether messages have said why.

use std::collections::HashSet;
use std::sync::Mutex;

use crate::locking::lock;

/// What is known from the starts of all slots.
#[derive(Debug, Default)]
pub(super) struct StartHistory(Mutex<KnownStarts>);

#[derive(Debug, Default)]
struct KnownStarts {
    /// Commands of which a worker got ready.
    ready: HashSet<String>,
    /// Commands that are no workers.
    hopeless: HashSet<String>,
    /// The starts that failed, as messages have said.
    told: HashSet<FailedStart>,
    /// Why slots were given up, as messages have said.
    given_up: HashSet<String>,
}

/// A start that failed, apart from its slot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FailedStart {
    /// The result, as messages have it.
    pub(super) why: String,
    /// The end of what it wrote to standard error.
    pub(super) said: Vec<u8>,
}

/// What a failed start shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartFault {
    /// The command is no worker: its first line is wrong, or it cannot be started.
    NoWorker,
    /// It ended before it was ready.
    Ended,
    /// Another start may succeed.
    Unknown,
}

/// The slot of a failed start.
#[derive(Debug, Clone, Copy)]
pub(super) struct StartedOn<'a> {
    /// The command, with what marks add on this slot.
    pub(super) command: &'a str,
    /// Whether a worker on another slot with the same command sees the same: it has no GPU.
    pub(super) is_alike: bool,
    /// The failed start before this one.
    pub(super) before: Option<&'a FailedStart>,
}

/// How a slot goes on after a failed start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StartVerdict {
    /// No further start is made, since it would fail in the same way.
    pub(super) is_final: bool,
    /// Messages have said the same of this or another slot.
    pub(super) is_told: bool,
    /// A start on another slot has shown that the command is no worker, so this one was not tried.
    pub(super) is_hopeless: bool,
}

impl StartVerdict {
    pub(super) const HOPELESS: StartVerdict =
        StartVerdict { is_final: true, is_told: true, is_hopeless: true };
}

impl StartHistory {
    pub(super) fn got_ready(&self, command: &str) {
        let mut known = lock(&self.0);
        if !known.ready.contains(command) {
            known.ready.insert(command.to_owned());
        }
    }

    /// Whether the command is no worker, as a start on another slot has shown.
    pub(super) fn is_hopeless(&self, command: &str) -> bool {
        lock(&self.0).hopeless.contains(command)
    }

    /// Notes why a slot is given up. Returns whether no slot was given up for that reason before.
    pub(super) fn gives_up(&self, why: &str) -> bool {
        lock(&self.0).given_up.insert(why.to_owned())
    }

    /// Judges a start that failed. Of a command that was once a worker, no failure is final.
    pub(super) fn judge(
        &self,
        on: StartedOn<'_>,
        fault: StartFault,
        failed: &FailedStart,
    ) -> StartVerdict {
        let mut known = lock(&self.0);
        let is_repeated = on.before == Some(failed) || on.is_alike && known.told.contains(failed);
        let is_told = !known.told.insert(failed.clone());
        let is_wrong = match fault {
            StartFault::NoWorker => true,
            // A worker that was killed while others load has said nothing, and may have room later.
            StartFault::Ended => is_repeated && !failed.said.is_empty(),
            StartFault::Unknown => false,
        };
        let is_final = is_wrong && !known.ready.contains(on.command);
        let is_of_command = fault == StartFault::NoWorker || on.is_alike;
        if is_final && is_of_command && !known.hopeless.insert(on.command.to_owned()) {
            // Another slot was a moment quicker.
            return StartVerdict::HOPELESS;
        }
        StartVerdict { is_final, is_told, is_hopeless: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(why: &str, said: &str) -> FailedStart {
        FailedStart { why: why.to_owned(), said: said.into() }
    }

    fn on<'a>(command: &'a str, before: Option<&'a FailedStart>) -> StartedOn<'a> {
        StartedOn { command, is_alike: false, before }
    }

    #[test]
    fn a_command_that_is_no_worker_is_started_once() {
        let history = StartHistory::default();
        let wrong = failed("answered with hello", "");
        let verdict = history.judge(on("cat", None), StartFault::NoWorker, &wrong);
        assert_eq!(verdict, StartVerdict { is_final: true, ..StartVerdict::default() });
        assert!(history.is_hopeless("cat") && !history.is_hopeless("cat 1"));
        history.got_ready("./model");
        let verdict = history.judge(on("./model", None), StartFault::NoWorker, &wrong);
        assert_eq!(verdict, StartVerdict { is_told: true, ..StartVerdict::default() });
    }

    #[test]
    fn the_same_message_twice_is_final() {
        let history = StartHistory::default();
        let missing = failed("exited with 2", "no model file");
        let other = failed("exited with 2", "no memory");
        let judge = |before, failed| history.judge(on("./a", before), StartFault::Ended, failed);
        assert!(!judge(None, &missing).is_final);
        assert!(!judge(Some(&missing), &other).is_final);
        assert!(!judge(Some(&other), &missing).is_final);
        assert!(judge(Some(&missing), &missing).is_final);
        assert!(!history.is_hopeless("./a"), "another GPU may do");
        let killed = failed("was killed by SIGKILL", "");
        assert!(!judge(Some(&killed), &killed).is_final);
    }

    #[test]
    fn slots_without_gpus_are_alike() {
        let history = StartHistory::default();
        let missing = failed("exited with 2", "no such file");
        let alike = StartedOn { command: "python3 a.py", is_alike: true, before: None };
        assert!(!history.judge(alike, StartFault::Ended, &missing).is_final);
        let second = history.judge(alike, StartFault::Ended, &missing);
        assert_eq!(second, StartVerdict { is_final: true, is_told: true, is_hopeless: false });
        assert!(history.is_hopeless("python3 a.py"));
    }
}
