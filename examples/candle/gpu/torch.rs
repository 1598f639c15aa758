//! The same network, weights and texts in PyTorch, in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use gangline::{BoxError, Devices};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::args::{Args, Flag};
use crate::encoder::Weights;
use crate::load::watched;
use crate::measure::{BATCH, BATCHES, Plan};
use crate::network::Model;
use crate::table::{HEAD, Program, Row, line};
use crate::workload::{Precision, difference};

pub(crate) const PYTHON: Flag = Flag {
    name: "--python",
    value: "PATH",
    help: "a Python with PyTorch (`torch`: python3; `measure`: without it, no PyTorch)",
};

const SCRIPT: &str = include_str!("torch_loop.py");

/// Ends the process also when it is not listened to any longer.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(args: &Args, devices: &Devices) -> Result<ExitCode, BoxError> {
    let python = args.get::<String>("--python")?.unwrap_or_else(|| "python3".into());
    let plan = Plan::new(args, devices)?;
    print!("{}{HEAD}", plan.headline());
    let (ours, right) = plan.plain_loop()?;
    print!("{}", line(&ours, ours.rate()));
    let theirs = measure(&plan, &python, |row| print!("{}", line(&row, ours.rate())))?;
    let agree = says_right(difference(&right, &theirs), plan.precision);
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn says_right(difference: f32, precision: Precision) -> bool {
    let (tolerance, right) = (precision.tolerance(), difference <= precision.tolerance());
    let verdict = if right { "agrees" } else { "WRONG" };
    println!("PyTorch {verdict}: largest difference {difference:.1e}, tolerance {tolerance:.0e}");
    right
}

/// Runs PyTorch, passes each row on when it is there, and returns the vectors of all items.
pub(crate) fn measure(
    plan: &Plan,
    python: &str,
    mut says: impl FnMut(Row),
) -> Result<Vec<Vec<f32>>, BoxError> {
    let dir = TempDir::with_prefix("gangline-gpu-")?;
    export(plan, dir.path())?;
    let mut child = Command::new(python)
        .arg(dir.path().join("torch_loop.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .map_err(|e| format!("PyTorch is not measured: {python} cannot be started: {e}"))?;
    let mut go = child.0.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.0.stdout.take().expect("it is piped")).lines();

    while let Some(name) = next(&mut lines)? {
        if let Some(why) = name.strip_prefix("missing ") {
            return Err(format!("PyTorch is not measured: {python}: {why}").into());
        }
        // It waits for a line before it starts, so that the GPU is watched from then on.
        let (answer, load) = watched(plan.device, || {
            writeln!(go)?;
            next(&mut lines)
        });
        let answer: Value = serde_json::from_str(&answer?.unwrap_or_default())
            .map_err(|e| format!("PyTorch ended in the middle of {name:?}: {e}"))?;
        let items = answer["items"].as_u64().unwrap_or(0) as usize;
        let took = Duration::from_secs_f64(answer["seconds"].as_f64().unwrap_or(f64::MIN_POSITIVE));
        let batch = answer["batch"].as_u64().unwrap_or(1) as usize;
        says(Row { program: Program::PyTorch, name, batch, items, took, load });
    }
    let status = child.0.wait()?;
    if !status.success() {
        return Err(format!("{python} with PyTorch failed: {status}").into());
    }
    read_vectors(plan, &dir.path().join("vectors.bin"))
}

fn next(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
) -> Result<Option<String>, BoxError> {
    Ok(lines.next().transpose()?)
}

/// Writes the script and all it needs.
fn export(plan: &Plan, dir: &Path) -> Result<(), BoxError> {
    let workload = &plan.workload;
    let network = match &*workload.model {
        Model::Bert(Weights { config, .. }) => json!({
            "kind": "bert",
            "layers": config.num_hidden_layers,
            "heads": config.num_attention_heads,
            "epsilon": config.layer_norm_eps,
            "vocabulary": config.vocab_size,
            "tokens": workload.size.text_tokens(),
        }),
        Model::Conv { shape, .. } => json!({
            "kind": "conv",
            "layers": shape.channels.len(),
            "side": shape.side,
        }),
    };
    let job = json!({
        "network": network,
        "device": plan.device.to_string(),
        "texts": *workload.texts,
        "batch": BATCH,
        "batches": BATCHES,
        "seconds": plan.seconds,
        "workers": plan.workers,
        "precision": plan.precision.to_string(),
    });
    std::fs::write(dir.join("job.json"), serde_json::to_vec(&job)?)?;
    std::fs::write(dir.join("torch_loop.py"), SCRIPT)?;
    candle_core::safetensors::save(workload.model.tensors(), dir.join("weights.safetensors"))?;
    Ok(())
}

/// The vectors of all texts, one after the other, as numbers of four bytes.
fn read_vectors(plan: &Plan, path: &Path) -> Result<Vec<Vec<f32>>, BoxError> {
    let bytes = std::fs::read(path)?;
    let numbers = bytes
        .chunks_exact(4)
        .map(|four| f32::from_le_bytes(four.try_into().expect("chunks of four")));
    let numbers: Vec<f32> = numbers.collect();
    let width = plan.workload.model.width();
    Ok(numbers.chunks(width).map(<[f32]>::to_vec).collect())
}
