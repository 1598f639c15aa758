//! One job: an input and its command.

use std::ffi::OsString;
use std::sync::Arc;

use crate::plan::gate::{Admission, Turn};
use crate::plan::template::{CommandWords, Template, Values, quoted};

/// One input and the command that it is substituted into.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    /// From 1, in the order of the input.
    pub(crate) number: u64,
    /// The input: one piece, the columns of a record, or the text of a line of a job file.
    pub(crate) fields: Arc<[OsString]>,
    /// Its key, if that is not the whole input.
    pub(crate) name: Option<Arc<str>>,
    /// Shared by all jobs, except those of a job file.
    pub(crate) command: Arc<Template>,
    pub(crate) needs: Needs,
    /// Set once the job is part of a run.
    pub(crate) turn: Option<Arc<Turn>>,
}

/// The device that a job needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// A slot, with its GPUs.
    Slot,
    /// No GPU: the job may overtake those that wait for one.
    NoGpu,
}

impl Job {
    /// The identity of the job across runs: its content or a part of that, not its number.
    pub(crate) fn key(&self) -> String {
        if let Some(name) = &self.name {
            return name.as_ref().into();
        }
        self.fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(" ")
    }

    /// Asks whether the jobs of a list may start, in the order in which they were read.
    pub(crate) fn start(list: &[Job], needs_slot: &dyn Fn() -> bool) -> Admission {
        let (first, last) = (list.first(), list.last());
        let turns = first
            .zip(last)
            .and_then(|(first, last)| Some((first.turn.as_ref()?, last.turn.as_ref()?)));
        turns.map_or(Admission::Started, |(first, last)| last.start_list(first, needs_slot))
    }

    /// The words of one attempt.
    pub(crate) fn words(&self, gpus: &[String], worker: usize, attempt: u32) -> CommandWords {
        let (fields, number) = (&*self.fields, self.number);
        self.command.fill(&Values { fields, number, gpus, worker, attempt })
    }
}
