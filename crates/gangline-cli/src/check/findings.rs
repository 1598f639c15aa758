//! The findings of a check on all slots, and the judgement of each law.

use std::collections::HashSet;

use crate::args::check::CheckArgs;
use crate::check::equality::difference;
use crate::check::slot::{CheckedSlot, WorkerDeath};
use crate::execute::protocol::MessageForm;
use crate::plan::job_run::JobRun;
use gangline::testing::{BatchFault, BatchFaultKind, BatchLaw, LawState};

/// The findings of a check.
pub(super) struct Findings {
    /// The command, quoted for a shell.
    pub(super) command: String,
    pub(super) samples: usize,
    pub(super) most: usize,
    pub(super) tolerance: f64,
    pub(super) laws: Vec<JudgedLaw>,
    pub(super) slots: Vec<CheckedSlot>,
}

/// Something that a worker has to keep: a law of lists, or one of those below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Demand {
    Of(BatchLaw),
    /// The worker takes lists.
    Lists,
    /// No sample ends the worker.
    Alive,
    /// Workers on all devices give the same answers.
    SameOnAll,
}

/// Whether a demand holds, and the faults that show where it does not.
pub(super) struct JudgedLaw {
    pub(super) demand: Demand,
    pub(super) state: LawState,
    /// Why it could not be checked, if it is unchecked.
    pub(super) hint: &'static str,
    pub(super) faults: Vec<FoundFault>,
}

/// A fault on one slot. Samples are counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundFault {
    pub(super) slot: usize,
    pub(super) sample: usize,
    pub(super) size: usize,
    /// One sentence.
    pub(super) text: String,
}

impl Demand {
    /// The name of the demand in JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Demand::Of(BatchLaw::Answered) => "answered",
            Demand::Of(BatchLaw::Repeatable) => "repeatable",
            Demand::Of(BatchLaw::Equal) => "equal",
            Demand::Of(BatchLaw::Ordered) => "ordered",
            Demand::Of(BatchLaw::Contained) => "contained",
            Demand::Of(_) => "other",
            Demand::Lists => "lists",
            Demand::Alive => "alive",
            Demand::SameOnAll => "same_on_all",
        }
    }

    pub(super) fn sentence(self) -> &'static str {
        match self {
            Demand::Of(BatchLaw::Answered) => "samples have answers",
            Demand::Of(BatchLaw::Repeatable) => "a sample asked twice has the same answer",
            Demand::Of(BatchLaw::Equal) => "a sample has the same answer in a list as alone",
            Demand::Of(BatchLaw::Ordered) => "each answer belongs to its own sample",
            Demand::Of(BatchLaw::Contained) => "a bad sample fails alone",
            Demand::Of(_) => "another law of lists",
            Demand::Lists => "the worker takes lists",
            Demand::Alive => "no sample ends the worker",
            Demand::SameOnAll => "all devices give the same answers",
        }
    }
}

impl Findings {
    pub(super) fn new(
        args: &CheckArgs,
        run: &JobRun,
        samples: usize,
        slots: Vec<CheckedSlot>,
    ) -> Findings {
        let mut laws: Vec<JudgedLaw> = vec![lists(args, &slots)];
        laws.extend(BatchLaw::ALL.iter().map(|law| of_lists(*law, &slots)));
        laws.push(alive(&slots));
        if slots.len() > 1 {
            laws.push(same_on_all(args.tolerance, &slots));
        }
        Findings {
            command: run.command.join(" "),
            samples,
            most: args.most(),
            tolerance: args.tolerance,
            laws,
            slots,
        }
    }

    /// Whether no demand is broken.
    pub(super) fn has_held(&self) -> bool {
        self.laws.iter().all(|law| law.state != LawState::Broken)
    }

    /// The samples that fail alone, from 1, each with its error.
    pub(super) fn failing(&self) -> impl Iterator<Item = (usize, &str)> {
        let failing = self.slots.first().map_or(&[][..], |slot| &slot.report.failing);
        failing.iter().map(|(sample, error)| (sample + 1, &**error))
    }
}

const ONE_AT_A_TIME: &str = "it takes one sample at a time";

/// Judges whether workers take lists. One that does not is a fault only if `--batch` asks for lists.
fn lists(args: &CheckArgs, slots: &[CheckedSlot]) -> JudgedLaw {
    let without = slots.iter().enumerate().filter(|(_, slot)| slot.takes == MessageForm::Items);
    let text = "it takes one sample at a time: a worker that takes lists answers its first line with \
                {\"gangline\":2,\"batch\":true}";
    let faults: Vec<FoundFault> = without
        .map(|(slot, _)| FoundFault { slot, sample: 1, size: 1, text: text.to_owned() })
        .collect();
    let (state, faults) = match (args.batch, faults) {
        (_, faults) if faults.is_empty() => (LawState::Held, faults),
        (Some(2..), faults) => (LawState::Broken, faults),
        _ => (LawState::Unchecked, Vec::new()),
    };
    JudgedLaw { demand: Demand::Lists, state, hint: ONE_AT_A_TIME, faults }
}

fn of_lists(law: BatchLaw, slots: &[CheckedSlot]) -> JudgedLaw {
    let states = slots.iter().map(|slot| slot.report.law(law));
    let worst = |a: LawState, b: LawState| match (a, b) {
        (LawState::Broken, _) | (_, LawState::Broken) => LawState::Broken,
        (LawState::Unchecked, _) | (_, LawState::Unchecked) => LawState::Unchecked,
        _ => LawState::Held,
    };
    let state = states.reduce(worst).unwrap_or(LawState::Unchecked);
    let faults = slots.iter().enumerate().flat_map(|(slot, checked)| {
        let faults = checked.report.faults.iter().filter(|fault| fault.law() == law);
        faults.map(move |fault| FoundFault {
            slot,
            sample: fault.sample + 1,
            size: fault.size,
            text: sentence(fault),
        })
    });
    let mut faults: Vec<FoundFault> = faults.collect();
    let mut known = HashSet::new();
    faults.retain(|fault| known.insert((fault.slot, fault.text.clone())));
    JudgedLaw { demand: Demand::Of(law), state, hint: hint(law, slots), faults }
}

fn hint(law: BatchLaw, slots: &[CheckedSlot]) -> &'static str {
    let has_answers = |slot: &CheckedSlot| slot.report.failing.len() < slot.report.samples;
    let has_lists = |slot: &CheckedSlot| slot.report.sizes.iter().any(|size| size.size > 1);
    if !slots.iter().all(has_answers) {
        return "no sample has an answer";
    }
    if slots.iter().any(|slot| slot.report.sizes.is_empty()) {
        return "answers that change cannot be compared";
    }
    if !slots.iter().all(has_lists) {
        return "it takes lists to see that";
    }
    match law {
        BatchLaw::Ordered => "add samples with different answers",
        BatchLaw::Contained if slots.iter().all(|slot| slot.report.failing.is_empty()) => {
            "add a sample that has to fail"
        }
        _ => "lists do not hold without it",
    }
}

/// Judges whether samples end the worker.
///
/// If the worker ends with a list in hand, its samples are sent one by one. So deaths at a single sample name the
/// guilty ones, and those at lists count only if there is no such death.
fn alive(slots: &[CheckedSlot]) -> JudgedLaw {
    let mut faults = Vec::new();
    for (slot, checked) in slots.iter().enumerate() {
        let is_alone = |death: &&WorkerDeath| death.size == 1;
        let has_guilty = checked.deaths.iter().any(|death| death.size == 1);
        let deaths = checked.deaths.iter().filter(|death| !has_guilty || is_alone(death));
        for WorkerDeath { sample, size, why } in deaths {
            let sample = sample + 1;
            // The worker ends each time that it gets the sample, and one fault is enough.
            let is_known = |fault: &FoundFault| (fault.slot, fault.sample) == (slot, sample);
            if faults.iter().any(is_known) {
                continue;
            }
            let text = match size {
                1 => format!("sample {sample} {why}"),
                size => format!("a list of {size} from sample {sample} on {why}"),
            };
            faults.push(FoundFault { slot, sample, size: *size, text });
        }
    }
    let state = if faults.is_empty() { LawState::Held } else { LawState::Broken };
    JudgedLaw { demand: Demand::Alive, state, hint: "", faults }
}

/// Compares the answers of each slot with those of the first.
fn same_on_all(tolerance: f64, slots: &[CheckedSlot]) -> JudgedLaw {
    let mut faults = Vec::new();
    for (slot, checked) in slots.iter().enumerate().skip(1) {
        for (at, (first, then)) in slots[0].answers.iter().zip(&checked.answers).enumerate() {
            let text = match (first, then) {
                (Ok(first), Ok(then)) => difference(first, then, tolerance),
                (Err(_), Err(_)) => None,
                (Ok(_), Err(error)) => Some(format!("an answer, then an error: {error}")),
                (Err(error), Ok(_)) => Some(format!("an error, then an answer: {error}")),
            };
            let sample = at + 1;
            let text = text.map(|text| format!("sample {sample} on {}: {text}", slots[0].name));
            faults.extend(text.map(|text| FoundFault { slot, sample, size: 1, text }));
        }
    }
    let state = if faults.is_empty() { LawState::Held } else { LawState::Broken };
    JudgedLaw { demand: Demand::SameOnAll, state, hint: "", faults }
}

/// Describes a fault. Samples count from 1.
fn sentence(fault: &BatchFault) -> String {
    let BatchFault { kind, sample, size, beside, text, .. } = fault;
    let sample = sample + 1;
    let place = match beside {
        Some(beside) if beside + 1 != sample => {
            format!("in a list of {size} with sample {}, which fails", beside + 1)
        }
        _ => format!("in a list of {size}"),
    };
    match kind {
        BatchFaultKind::NoAnswer => format!("no sample has one; sample {sample}: {text}"),
        BatchFaultKind::Unrepeatable => format!("sample {sample}, alone and again: {text}"),
        BatchFaultKind::Differs => format!("sample {sample}, alone and {place}: {text}"),
        BatchFaultKind::Swapped { other } => {
            format!("sample {sample} has the answer of sample {} {place}: {text}", other + 1)
        }
        BatchFaultKind::Fails => format!("sample {sample} fails {place}: {text}"),
        BatchFaultKind::ListFails => {
            format!("sample {sample} and those behind it fail as a whole {place}: {text}")
        }
        BatchFaultKind::Passes => {
            format!("sample {sample} has an answer {place}, and fails alone: {text}")
        }
        _ => text.clone(),
    }
}
