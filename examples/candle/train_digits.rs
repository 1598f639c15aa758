//! Trains the network of `digits`, reproducibly: `cargo run --release --example train_digits`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::{AdamW, Module, Optimizer, ParamsAdamW, VarBuilder, loss};
use gangline::BoxError;

use args::{Args, Flag};
use digits::{Digit, Net, SIDE, data_file, images, read_digits, read_file};
use rng::Rng;

#[path = "../common/args.rs"]
mod args;
#[path = "common/digits.rs"]
mod digits;
#[path = "common/rng.rs"]
mod rng;

const FLAGS: &[Flag] = &[
    Flag { name: "--data", value: "FILE", help: "default: examples/data/digits.csv" },
    Flag { name: "--weights", value: "FILE", help: "default: examples/data/digits.safetensors" },
    Flag { name: "--judge-by", value: "PART", help: "held-out (default) or validation" },
];

const ABOUT: &str = "Trains the network that the example `digits` runs.

With `--judge-by validation` the last fifth of the training part judges instead of training,
and no weights are written. That is the way to try other settings: the held-out part has no say.";

/// The first training row that judges with `--judge-by validation`. A new writer begins here.
const FIRST_VALIDATION: usize = 1029;

// These, and the sizes of the layers, were chosen by trials within the training part: five times,
// each time on other writers than those that had been trained on.
const SEED: u64 = 20;
const EPOCHS: usize = 40;
const BATCH: usize = 32;
/// Adam's step at the start; it falls to zero in a straight line.
const RATE: f64 = 3e-3;

/// Which digits measure the accuracy.
enum Judge {
    HeldOut,
    Validation,
}

impl FromStr for Judge {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "held-out" => Ok(Judge::HeldOut),
            "validation" => Ok(Judge::Validation),
            _ => Err("neither `held-out` nor `validation`"),
        }
    }
}

fn main() -> ExitCode {
    args::main(ABOUT, FLAGS, train)
}

fn train(args: &Args) -> Result<(), BoxError> {
    let data = args.get::<PathBuf>("--data")?.unwrap_or_else(|| data_file("digits.csv"));
    let path = args.get::<PathBuf>("--weights")?;
    let path = path.unwrap_or_else(|| data_file("digits.safetensors"));
    let (mut training, held_out) = read_digits(&data)?;
    match args.get("--judge-by")?.unwrap_or(Judge::HeldOut) {
        Judge::Validation => {
            let validation = training.split_off(FIRST_VALIDATION);
            fit(&training, &validation)?;
            Ok(())
        }
        Judge::HeldOut => {
            let weights = fit(&training, &held_out)?;
            save(weights, &path, &held_out)
        }
    }
}

/// Trains on one part, judges by the other, and returns the weights.
fn fit(training: &[Digit], judges: &[Digit]) -> Result<HashMap<String, Tensor>, BoxError> {
    println!("{} digits to train on, {} others to judge by", training.len(), judges.len());
    let mut rng = Rng::seeded(SEED);
    let vars = first_weights(&mut rng)?;
    let weights = tensors(&vars);
    let net = Net::new(VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu))?;
    let params = ParamsAdamW { lr: RATE, ..Default::default() };
    let mut adam = AdamW::new(vars.into_values().collect(), params)?;
    let mut order: Vec<&Digit> = training.iter().collect();
    for epoch in 0..EPOCHS {
        adam.set_learning_rate(RATE * (1.0 - epoch as f64 / EPOCHS as f64));
        shuffle(&mut order, &mut rng);
        let loss = go_through(&net, &mut adam, &order, &mut rng)?;
        let accuracy = accuracy(&net, judges)?;
        println!("epoch {:2}: loss {loss:.4}, accuracy {accuracy:.1} %", epoch + 1);
    }
    Ok(weights)
}

/// One step of Adam for each batch; the mean loss.
fn go_through(
    net: &Net,
    adam: &mut AdamW,
    digits: &[&Digit],
    rng: &mut Rng,
) -> Result<f64, BoxError> {
    let mut total = 0.0;
    for batch in digits.chunks(BATCH) {
        let pixels: Vec<_> = batch.iter().map(|digit| redrawn(digit, rng)).collect();
        let labels: Vec<_> = batch.iter().map(|digit| digit.label).collect();
        let scores = net.forward(&images(pixels.iter().map(Vec::as_slice), &Device::Cpu)?)?;
        let loss = loss::cross_entropy(&scores, &Tensor::new(labels, &Device::Cpu)?)?;
        adam.backward_step(&loss)?;
        total += f64::from(loss.to_scalar::<f32>()?) * batch.len() as f64;
    }
    Ok(total / digits.len() as f64)
}

/// Writes the file, and reads it back to see that it serves.
fn save(weights: HashMap<String, Tensor>, path: &Path, held_out: &[Digit]) -> Result<(), BoxError> {
    candle_core::safetensors::save(&weights, path)
        .map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    let net = Net::load(&read_file(path)?, &Device::Cpu)?;
    println!("{}: accuracy {:.1} %", path.display(), accuracy(&net, held_out)?);
    Ok(())
}

/// The values of the variables; they follow when Adam changes the variables.
fn tensors(vars: &BTreeMap<String, Var>) -> HashMap<String, Tensor> {
    vars.iter().map(|(name, var)| (name.clone(), var.as_tensor().clone())).collect()
}

fn accuracy(net: &Net, digits: &[Digit]) -> Result<f64, BoxError> {
    let read = net.read(&images(digits.iter().map(|d| d.pixels.as_slice()), &Device::Cpu)?)?;
    let right = read.iter().zip(digits).filter(|(read, digit)| **read == digit.label).count();
    Ok(100.0 * right as f64 / digits.len() as f64)
}

/// Uniform around zero, so wide that the signal keeps its size from layer to layer (He).
fn first_weights(rng: &mut Rng) -> candle_core::Result<BTreeMap<String, Var>> {
    let layers: [(&str, &[usize]); 4] = [
        ("strokes", &[32, 1, 3, 3]),
        ("parts", &[48, 32, 3, 3]),
        ("hidden", &[128, 768]),
        ("scores", &[10, 128]),
    ];
    let mut weights = BTreeMap::new();
    for (name, shape) in layers {
        let outputs = shape[0];
        let inputs: usize = shape[1..].iter().product();
        let weight = rng.tensor((6.0 / inputs as f32).sqrt(), shape)?;
        weights.insert(format!("{name}.weight"), Var::from_tensor(&weight)?);
        weights.insert(format!("{name}.bias"), Var::zeros(outputs, DType::F32, &Device::Cpu)?);
    }
    Ok(weights)
}

/// Fisher and Yates.
fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.uniform(0.0, (last + 1) as f32) as usize);
    }
}

/// The image a little turned, stretched, slanted and moved.
fn redrawn(digit: &Digit, rng: &mut Rng) -> Vec<f32> {
    let (sin, cos) = rng.uniform(-0.2, 0.2).sin_cos();
    let (wide, high) = (rng.uniform(0.85, 1.15), rng.uniform(0.85, 1.15));
    let slant = rng.uniform(-0.2, 0.2);
    let (right, down) = (rng.uniform(-0.8, 0.8), rng.uniform(-0.8, 0.8));
    let middle = (SIDE - 1) as f32 / 2.0;
    let pixel = |at: usize| {
        let (x, y) = ((at % SIDE) as f32 - middle, (at / SIDE) as f32 - middle);
        let (x, y) = (wide * (cos * x - sin * y) + slant * y, high * (sin * x + cos * y));
        ink(digit, x + middle + right, y + middle + down)
    };
    (0..SIDE * SIDE).map(pixel).collect()
}

/// The ink between pixels: the mean of the four around, weighted by nearness; paper outside.
fn ink(digit: &Digit, x: f32, y: f32) -> f32 {
    let near = |x: f32, y: f32| {
        let inside = |v: f32| (0.0..SIDE as f32).contains(&v);
        if inside(x) && inside(y) { digit.pixels[y as usize * SIDE + x as usize] } else { 0.0 }
    };
    let (left, top) = (x.floor(), y.floor());
    let (dx, dy) = (x - left, y - top);
    let upper = near(left, top) * (1.0 - dx) + near(left + 1.0, top) * dx;
    let lower = near(left, top + 1.0) * (1.0 - dx) + near(left + 1.0, top + 1.0) * dx;
    upper * (1.0 - dy) + lower * dy
}
