//! Decoding on the CPU, scoring on a device, in two stages: `cargo run --release --example stages`
//!
//! The device is a simulation: a call takes a fixed time, and a little more for each item, during which the
//! processor is free. So it needs batches, as a GPU does, and it is idle while the CPU decodes for it.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::thread;
use std::time::{Duration, Instant};

use gangline::{
    Batch, ConsumerContext, Devices, OrderedRunner, ProducerContext, Result, Runner, map,
};

const ITEMS: usize = 400;
/// Numbers in the text of one item.
const NUMBERS: usize = 20_000;
const CALL: Duration = Duration::from_millis(1);
const ITEM: Duration = Duration::from_micros(100);

/// Scores vectors on a device, by the batch, after it has made them of inputs on its own thread.
struct Scorer<I> {
    decode: fn(I) -> Result<Vec<f32>>,
}

impl<I: Send + 'static> Runner for Scorer<I> {
    type Input = I;
    type Output = f32;
    type ProducerState = ();
    type ConsumerState = Vec<f32>;
    type Summary = Vec<f32>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), input: I) -> Result<f32> {
        let vector = (self.decode)(input)?;
        Ok(score_on_device(&[vector])[0])
    }
    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<I>,
    ) -> Result<Vec<Result<f32>>> {
        let vectors = inputs.drain(..).map(self.decode).collect::<Result<Vec<_>>>()?;
        Ok(score_on_device(&vectors).into_iter().map(Ok).collect())
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<f32>> {
        Ok(Vec::new())
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<f32>, y: f32) -> Result<()> {
        all.push(y);
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<f32>) -> Result<Vec<f32>> {
        Ok(all)
    }
}

fn score_on_device(vectors: &[Vec<f32>]) -> Vec<f32> {
    thread::sleep(CALL + ITEM * vectors.len() as u32);
    vectors.iter().map(|vector| vector.iter().sum::<f32>() / vector.len() as f32).collect()
}

fn decode(text: String) -> Result<Vec<f32>> {
    Ok(text.split(' ').map(str::parse).collect::<Result<_, _>>()?)
}

/// The one device there is, with a producer for each time that it is named.
fn scorer<I: Send + 'static>(
    devices: &str,
    decode: fn(I) -> Result<Vec<f32>>,
) -> Result<OrderedRunner<Scorer<I>>> {
    let devices: Devices = devices.parse::<Devices>()?.names_only();
    let builder = OrderedRunner::builder(Scorer { decode }).devices(devices).describe("score");
    Ok(builder.batch(Batch::up_to(8)).build()?)
}

fn main() -> Result<()> {
    let text =
        |i: usize| (0..NUMBERS).map(|n| ((i + n) % 97).to_string()).collect::<Vec<_>>().join(" ");
    let texts: Vec<String> = (0..ITEMS).map(text).collect();

    let mut both = scorer("cuda:0", decode)?;
    let (alone, slow) = timed(|| Ok(both.run(texts.clone())?))?;
    println!("one runner that decodes and scores: {slow:6.0} items/s");

    let decoder = map(|_| Ok(()), |_, (), text| decode(text));
    let decoder = OrderedRunner::builder(decoder).devices("cpu*2").describe("decode").build()?;
    let mut scorer = scorer("cuda:0", Ok)?;
    let mut pipeline = decoder.then(&mut scorer);
    let (staged, fast) = timed(|| Ok(pipeline.run(texts)?))?;
    println!(
        "two stages:                         {fast:6.0} items/s, {:.1} times as many",
        fast / slow
    );

    assert_eq!(staged, alone, "the same results in the same order");
    println!("\n{}", pipeline.report());
    Ok(())
}

/// What `run` returns, and how many items a second it got through.
fn timed<T>(run: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = run()?;
    Ok((result, ITEMS as f64 / start.elapsed().as_secs_f64()))
}
