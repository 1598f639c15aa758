//! The findings as JSON, as `docs/check.schema.json` describes it.

use serde_json::{Map, Value, json};

use crate::check::findings::{Findings, JudgedLaw};
use crate::check::memory::MemoryOf;
use crate::check::slot::CheckedSlot;
use crate::error::CliError;
use crate::execute::protocol::MessageForm;
use crate::exit;
use gangline::testing::{BatchSize, LawState};

pub(super) fn of(findings: &Findings) -> Result<String, CliError> {
    let laws = findings.laws.iter().map(|law| (law.demand.name().to_owned(), state(law).into()));
    let faults = findings.laws.iter().flat_map(|law| faults(findings, law));
    let failing = findings.failing();
    let failing = failing.map(|(sample, error)| json!({ "sample": sample, "error": error }));
    let value = json!({
        "held": findings.has_held(),
        "command": findings.command,
        "samples": findings.samples,
        "failing": failing.collect::<Vec<_>>(),
        "batch": findings.most,
        "tolerance": findings.tolerance,
        "laws": Value::Object(laws.collect::<Map<_, _>>()),
        "faults": faults.collect::<Vec<_>>(),
        "devices": findings.slots.iter().map(device).collect::<Vec<_>>(),
    });
    let text = serde_json::to_string_pretty(&value);
    text.map(|text| text + "\n").map_err(|error| CliError::new(exit::INTERNAL, error))
}

fn state(law: &JudgedLaw) -> &'static str {
    match law.state {
        LawState::Held => "held",
        LawState::Broken => "broken",
        _ => "unchecked",
    }
}

fn faults(findings: &Findings, law: &JudgedLaw) -> Vec<Value> {
    let name = law.demand.name();
    let faults = law.faults.iter().map(|fault| {
        json!({
            "law": name,
            "device": findings.slots[fault.slot].name,
            "sample": fault.sample,
            "size": fault.size,
            "text": fault.text,
        })
    });
    faults.collect()
}

fn device(slot: &CheckedSlot) -> Value {
    let of = match slot.memory_of {
        MemoryOf::Gpus => "gpus",
        MemoryOf::Worker => "worker",
    };
    json!({
        "device": slot.name,
        "ready_seconds": slot.ready.as_secs_f64(),
        "takes_lists": slot.takes == MessageForm::Lists,
        "memory_of": of,
        "sizes": slot.report.sizes.iter().map(|found| size(slot, found)).collect::<Vec<_>>(),
        "advised_batch": slot.report.advised(),
    })
}

/// Describes a size. A figure that is not known has no key.
fn size(slot: &CheckedSlot, found: &BatchSize) -> Value {
    let mut value = json!({ "size": found.size, "lists": found.lists, "fits": found.fits });
    if let Some(least) = found.least {
        value["seconds"] = least.as_secs_f64().into();
    }
    if let Some(rate) = found.rate() {
        value["samples_per_second"] = rate.into();
    }
    if let Some(bytes) = slot.memory.get(&found.size) {
        value["memory_bytes"] = (*bytes).into();
    }
    value
}
