//! Batches as items, made by the caller's iterator: `cargo run --example batch_predictor -- --devices 'cpu*2'`
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
    &[Flag { name: "--devices", value: "LIST", help: "such as cuda:0-1 (default: cpu*2)" }];

struct Predictor {
    weights: HashMap<String, Tensor>,
}

impl Runner for Predictor {
    type Input = Vec<f32>;
    type Output = Tensor;
    type ProducerState = Net;
    type ConsumerState = Vec<Tensor>;
    type Summary = Vec<Tensor>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Net> {
        Ok(Net::new(cx.var_builder([&self.weights], DType::F32)?)?)
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        net: &mut Net,
        batch: Vec<f32>,
    ) -> Result<Tensor> {
        Ok(net.predict(&batch)?)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<Tensor>> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        pieces: &mut Vec<Tensor>,
        piece: Tensor,
    ) -> Result<()> {
        pieces.push(piece);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, pieces: Vec<Tensor>) -> Result<Vec<Tensor>> {
        Ok(pieces)
    }
}

/// `data` in pieces of `size`; the last may be shorter.
fn batches(data: &[f32], size: usize) -> impl Iterator<Item = Vec<f32>> {
    data.chunks(size).map(<[f32]>::to_vec)
}

fn main() -> ExitCode {
    args::main("Runs a small network over 100 numbers, in batches.", FLAGS, predict)
}

fn predict(args: &Args) -> Result<(), BoxError> {
    let devices = args.get::<Devices>("--devices")?.map_or_else(|| "cpu*2".parse(), Ok)?;
    candle_threads(&devices)?;
    let weights = seeded_weights(4)?;
    let net = Net::new(VarBuilder::from_tensors(weights.clone(), DType::F32, &Device::Cpu))?;
    let mut runner = OrderedRunner::new(Predictor { weights }, devices)?;
    let data: Vec<f32> = (0..100u8).map(f32::from).collect();
    let alone = net.predict(&data)?;
    // One runner serves both: the producers and their networks stay.
    for (size, pieces, last) in [(10, 10, 10), (7, 15, 2)] {
        let result = runner.run(batches(&data, size))?;
        assert_eq!(result.len(), pieces);
        assert!(result[..pieces - 1].iter().all(|piece| piece.dims() == [size, 3]));
        assert_eq!(result[pieces - 1].dims(), [last, 3]);
        assert_equal(&Tensor::cat(&result, 0)?, &alone)?;
        println!("{pieces} pieces, the last {:?}", result[pieces - 1].dims());
    }
    runner.close()?;
    Ok(())
}

/// The same rows in the same order; a GPU may round the last digit in its own way.
fn assert_equal(result: &Tensor, alone: &Tensor) -> Result<(), BoxError> {
    assert_eq!(result.dims(), [100, 3]);
    let difference = (result - alone)?.abs()?.max_all()?.to_scalar::<f32>()?;
    assert!(difference <= 1e-4, "the rows differ by up to {difference}");
    Ok(())
}
