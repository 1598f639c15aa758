//! One job: what is put into the command, and which command.

use std::ffi::OsString;
use std::sync::Arc;

use super::gate::{Admission, Turn};
use super::template::{Template, Values, Words, quoted};

/// One input and the command that it goes into.
#[derive(Debug, Clone)]
pub(super) struct Job {
    /// From 1, in the order of the input.
    pub(super) number: u64,
    /// The input: one piece, or the columns of a record, or what a line of a job file says.
    pub(super) fields: Arc<[OsString]>,
    /// The same for all jobs, but for those of a job file.
    pub(super) command: Arc<Template>,
    pub(super) needs: Needs,
    /// There once it is one of a run.
    pub(super) turn: Option<Arc<Turn>>,
}

/// What a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Needs {
    /// A slot, with the GPUs that it has.
    Slot,
    /// No GPU: it may overtake those that wait for one.
    NoGpu,
}

impl Job {
    /// What the job is known by from one run to the next: its content, and not its number.
    pub(super) fn key(&self) -> String {
        self.fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(" ")
    }

    /// Asks whether it may be started.
    pub(super) fn start(&self) -> Admission {
        self.turn.as_ref().map_or(Admission::Started, |turn| turn.start())
    }

    /// The words of one attempt.
    pub(super) fn words(&self, gpus: &[String], worker: usize, attempt: u32) -> Words {
        let (fields, number) = (&*self.fields, self.number);
        self.command.fill(&Values { fields, number, gpus, worker, attempt })
    }
}
