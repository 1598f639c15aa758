//! Networks in each precision, against `f32` on the CPU.

use candle_nn::VarBuilder;
use gangline::BoxError;

use crate::check::{CheckVerdict, Findings, Subject, within};
use crate::measure::open;
use crate::workload::{Kind, Precision, Workload, difference};

/// Each network, in each precision that the device has.
pub(crate) fn precisions(subject: &Subject) -> Result<Findings, BoxError> {
    let mut findings = Vec::new();
    for kind in [Kind::Bert, Kind::Conv] {
        let all: &[Precision] = match (subject.is_cpu(), kind) {
            (true, Kind::Bert) => &[Precision::F16, Precision::Bf16],
            // On the CPU, candle has no convolution in `bf16`.
            (true, Kind::Conv) => &[Precision::F16],
            (false, _) => &[Precision::Tf32, Precision::F16, Precision::Bf16],
        };
        let workload = Workload::new(kind, subject.size, 4)?;
        let right = vectors(&workload, &candle_core::Device::Cpu, Precision::F32)?;
        for &precision in all {
            precision.set();
            let there = vectors(&workload, &open(subject.device)?, precision);
            Precision::F32.set();
            let verdict = match there {
                Ok(there) => within(difference(&right, &there), precision.tolerance()),
                Err(error) => CheckVerdict::Failed(error.to_string()),
            };
            findings.push((format!("{kind} in {precision}"), verdict));
        }
    }
    Ok(findings)
}

fn vectors(
    workload: &Workload,
    device: &candle_core::Device,
    precision: Precision,
) -> candle_core::Result<Vec<Vec<f32>>> {
    let tensors = workload.model.tensors().clone();
    let tensors = VarBuilder::from_tensors(tensors, precision.dtype(), device);
    workload.model.load(tensors)?.vectors(&workload.items())
}
