//! One network on many devices, results in input order: `cargo run --example nn_predictor -- --devices 'cpu*4'`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::collections::HashMap;
use std::process::ExitCode;

use candle_core::{DType, Device, Tensor};
use candle_nn::VarBuilder;
use gangline::device::candle_threads;
use gangline::{
    BoxError, ConsumerContext, Devices, OrderedRunner, ProducerContext, Result, Runner,
};

use args::{Args, Flag};
use network::{Net, seeded_weights};

#[path = "../common/args.rs"]
mod args;
#[path = "common/network.rs"]
mod network;
#[path = "common/rng.rs"]
mod rng;

const FLAGS: &[Flag] =
    &[Flag { name: "--devices", value: "LIST", help: "such as cuda:0-3 (default: cpu*4)" }];

struct Predictor {
    /// Drawn once and copied to every device: if each producer drew its own, the answers would depend on
    /// which producer got which input. Real weights are files: `cx.var_builder(["model.safetensors"], ..)`.
    weights: HashMap<String, Tensor>,
}

impl Runner for Predictor {
    type Input = f32;
    type Output = Tensor;
    type ProducerState = Net;
    type ConsumerState = Vec<Tensor>;
    type Summary = Tensor;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Net> {
        Ok(Net::new(cx.var_builder([&self.weights], DType::F32)?)?)
    }

    fn producer_work(&self, _: &ProducerContext<'_>, net: &mut Net, x: f32) -> Result<Tensor> {
        Ok(net.predict(&[x])?)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<Tensor>> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        rows: &mut Vec<Tensor>,
        row: Tensor,
    ) -> Result<()> {
        rows.push(row);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, rows: Vec<Tensor>) -> Result<Tensor> {
        Ok(Tensor::cat(&rows, 0)?)
    }
}

fn main() -> ExitCode {
    args::main("Runs a small network over 100 numbers, one by one.", FLAGS, predict)
}

fn predict(args: &Args) -> Result<(), BoxError> {
    let devices = args.get::<Devices>("--devices")?.map_or_else(|| "cpu*4".parse(), Ok)?;
    candle_threads(&devices)?;
    let weights = seeded_weights(4)?;
    let net = Net::new(VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu))?;
    let mut runner = OrderedRunner::new(Predictor { weights }, devices)?;
    let result = runner.run((0..100u8).map(f32::from))?;
    println!("shape {:?}", result.dims());
    assert_eq!(result.dims(), [100, 3]);
    assert_rows(&net, &result)?;
    runner.close()?;
    Ok(())
}

/// Row by row what the network says alone; a GPU may round the last digit in its own way.
fn assert_rows(net: &Net, result: &Tensor) -> Result<(), BoxError> {
    for (x, row) in (0..100u8).zip(result.to_vec2::<f32>()?) {
        let alone = net.predict(&[f32::from(x)])?.squeeze(0)?.to_vec1::<f32>()?;
        assert!(row.iter().zip(&alone).all(|(a, b)| (a - b).abs() <= 1e-6 * b.max(1.0)), "row {x}");
    }
    Ok(())
}
