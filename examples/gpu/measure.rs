//! The same network arranged in several ways, one after the other.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use gangline::{Batch, BoxError, Device, Devices, OrderedRunner, map};

use crate::args::{Args, Usage};
use crate::embedder::Embedder;
use crate::encoder::Encoder;
use crate::load::{trouble, watched};
use crate::table::{HEAD, Row, line};
use crate::workload::{Precision, Size, Workload, difference};
use crate::{only, torch, words};

/// Texts in a large batch; also PyTorch's.
pub(crate) const BATCH: usize = 64;

/// What this is meant to reach on a GPU.
const AIM_RATIO: f64 = 8.0;
const AIM_BUSY: f64 = 0.95;

/// How much is measured, and with what.
pub(crate) struct Plan {
    pub(crate) device: Device,
    pub(crate) workload: Workload,
    pub(crate) seconds: f64,
    pub(crate) precision: Precision,
    pub(crate) workers: usize,
}

/// Items are ready as tokens, or have to be made of text first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Tokens,
    Text,
}

/// One way to use the device.
#[derive(Clone, Copy)]
struct Arrangement {
    producers: usize,
    /// Texts in a batch; without it, one at a time.
    batch: Option<usize>,
    source: Source,
}

type Vectors = Vec<Vec<f32>>;

impl Plan {
    pub(crate) fn new(args: &Args, devices: &Devices) -> Result<Self, BoxError> {
        let device = only(devices)?;
        let count = |name, default| {
            let given = args.get::<NonZeroUsize>(name);
            given.map(|given| given.map_or(default, NonZeroUsize::get))
        };
        let seconds: f64 = args.get("--seconds")?.unwrap_or(4.0);
        if !(0.0..=3600.0).contains(&seconds) {
            return Err(Usage(format!("--seconds {seconds}: not from 0 to 3600")).into());
        }
        // The CPU has nothing less exact.
        let exact = device == Device::Cpu;
        let default = if exact { Precision::F32 } else { Precision::Tf32 };
        let plan = Plan {
            device,
            workload: Workload::new(Size::of(args, device)?, count("--items", 512)?)?,
            seconds,
            precision: args.get("--precision")?.filter(|_| !exact).unwrap_or(default),
            workers: count("--workers", 4)?,
        };
        plan.precision.set();
        Ok(plan)
    }

    pub(crate) fn headline(&self) -> String {
        let Plan { device, workload, precision, .. } = self;
        let blind = trouble(*device).map(|why| format!("\nthe GPU's load is not measured: {why}"));
        format!("{device}, {}, {precision}{}\n\n", workload.size, blind.unwrap_or_default())
    }

    /// How often all items have to be gone through to fill the time, when once takes so long.
    fn times(&self, once: Duration) -> usize {
        (self.seconds / once.as_secs_f64().max(1e-6)).ceil().clamp(1.0, 10_000.0) as usize
    }

    /// The baseline: no runner at all, one item after the other.
    pub(crate) fn plain_loop(&self) -> Result<(Row, Vectors), BoxError> {
        let encoder = Encoder::load(&self.workload.weights, &open(self.device)?)?;
        encoder.warm_up(1, self.workload.text_tokens)?;
        let tokens = self.workload.tokens();
        let encode = |text: &Vec<u32>| encoder.encode(std::slice::from_ref(text));
        let start = Instant::now();
        let vectors = tokens.iter().map(encode).collect::<Result<Vec<_>, _>>()?.concat();
        let times = self.times(start.elapsed());
        let many = || {
            let start = Instant::now();
            for text in (0..times).flat_map(|_| &tokens) {
                encode(text)?;
            }
            Ok::<_, BoxError>(start.elapsed())
        };
        let (took, load) = watched(self.device, many);
        let (name, items) = ("a plain loop, one at a time".into(), times * tokens.len());
        Ok((Row { name, items, took: took?, load }, vectors))
    }

    /// Goes through the items once, which tells how long that takes, and then often.
    fn arranged(&self, arrangement: Arrangement) -> Result<(Row, Vectors), BoxError> {
        let mut runner = self.runner(arrangement)?;
        let start = Instant::now();
        let vectors = self.go_through(&mut runner, arrangement.source, 1)?;
        let times = self.times(start.elapsed());
        let many = || {
            let start = Instant::now();
            self.go_through(&mut runner, arrangement.source, times)?;
            Ok::<_, BoxError>(start.elapsed())
        };
        let (took, load) = watched(self.device, many);
        runner.close()?;
        let items = times * self.workload.texts.len();
        Ok((Row { name: arrangement.name(self.workers), items, took: took?, load }, vectors))
    }

    fn runner(&self, arrangement: Arrangement) -> Result<OrderedRunner<Embedder>, BoxError> {
        let Arrangement { producers, batch, .. } = arrangement;
        let largest = (batch.unwrap_or(1), self.workload.text_tokens);
        let devices = Devices::from_places(vec![vec![self.device]; producers])?;
        let embedder = Embedder::new(&self.workload.weights, largest);
        let builder = OrderedRunner::builder(embedder).devices(devices);
        Ok(match batch {
            Some(most) => builder.batch(Batch::of(most)).build()?,
            None => builder.build()?,
        })
    }

    fn go_through(
        &self,
        runner: &mut OrderedRunner<Embedder>,
        source: Source,
        times: usize,
    ) -> Result<Vectors, BoxError> {
        if source == Source::Tokens {
            let tokens = self.workload.tokens();
            return Ok(runner.run((0..times).flat_map(|_| &tokens).cloned())?);
        }
        let (vocabulary, most) =
            (self.workload.weights.config.vocab_size, self.workload.text_tokens);
        let tokenize =
            map(|_| Ok(()), move |_, (), text: String| Ok(words::tokens(&text, vocabulary, most)));
        let mut tokenizer = OrderedRunner::new(tokenize, self.workers)?;
        let texts = (0..times).flat_map(|_| &self.workload.texts).cloned();
        Ok(tokenizer.then(runner).run(texts)?)
    }
}

impl Arrangement {
    const ALL: [Arrangement; 7] = [
        Arrangement { producers: 1, batch: None, source: Source::Tokens },
        Arrangement { producers: 1, batch: Some(BATCH / 2), source: Source::Tokens },
        Arrangement { producers: 1, batch: Some(BATCH), source: Source::Tokens },
        Arrangement { producers: 2, batch: Some(BATCH), source: Source::Tokens },
        Arrangement { producers: 3, batch: Some(BATCH), source: Source::Tokens },
        Arrangement { producers: 4, batch: Some(BATCH), source: Source::Tokens },
        Arrangement { producers: 2, batch: Some(BATCH), source: Source::Text },
    ];

    fn name(self, workers: usize) -> String {
        let Arrangement { producers, batch, source } = self;
        let plural = if producers == 1 { "" } else { "s" };
        let size = batch.map_or_else(|| "one at a time".into(), |n| format!("batches of {n}"));
        let stage = match source {
            Source::Tokens => String::new(),
            Source::Text => format!(", text from cpu*{workers}"),
        };
        format!("{producers} producer{plural}, {size}{stage}")
    }
}

pub(crate) fn run(args: &Args, devices: &Devices) -> Result<ExitCode, BoxError> {
    let python = args.get::<String>("--python")?;
    let plan = Plan::new(args, devices)?;
    print!("{}{HEAD}", plan.headline());
    let (first, right) = plan.plain_loop()?;
    let one = first.rate();
    print!("{}", line(&first, one));

    let (mut rows, mut agree) = (Vec::new(), true);
    for arrangement in Arrangement::ALL {
        let (row, vectors) = plan.arranged(arrangement)?;
        print!("{}", line(&row, one));
        agree &= says_right(&row, difference(&right, &vectors), plan.precision);
        rows.push(row);
    }
    let mut others = Vec::new();
    match &python {
        None => println!("PyTorch: not measured, --python was not given"),
        Some(python) => {
            let theirs = torch::measure(&plan, python, |row| print!("{}", line(row, one)))?;
            agree &= torch::says_right(difference(&right, &theirs.vectors), plan.precision);
            others = theirs.rows;
        }
    }
    print!("\n{}", aims(one, &rows, &others));
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn says_right(row: &Row, difference: f32, precision: Precision) -> bool {
    let right = difference <= precision.tolerance();
    if !right {
        println!("  WRONG: {} differs from the plain loop by {difference:.1e}", row.name);
    }
    right
}

/// What was aimed at and what was reached: for people to read, and no reason to fail.
fn aims(one: f64, rows: &[Row], theirs: &[Row]) -> String {
    let best = rows.iter().max_by(|a, b| a.rate().total_cmp(&b.rate())).expect("there are rows");
    let ratio = best.rate() / one;
    let mut text = format!("fastest: {}\n", best.name);
    text += &aim("times the plain loop's rate", AIM_RATIO, Some(ratio));
    text += &aim("of the time the GPU is busy", AIM_BUSY, best.load.busy);
    let fastest = theirs.iter().map(Row::rate).max_by(f64::total_cmp);
    text + &aim("times PyTorch's best rate", 1.0, fastest.map(|rate| best.rate() / rate))
}

fn aim(what: &str, aim: f64, reached: Option<f64>) -> String {
    let Some(reached) = reached else { return format!("  not measured: {what}, aim {aim}\n") };
    let verdict = if reached >= aim { "reached" } else { "missed" };
    format!("  {verdict}: {reached:.2} {what}, aim {aim}\n")
}

/// The device for candle, as a producer has it.
pub(crate) fn open(device: Device) -> Result<candle_core::Device, BoxError> {
    match device {
        Device::Cpu => Ok(candle_core::Device::Cpu),
        Device::Cuda(index) => Ok(candle_core::Device::new_cuda_with_stream(index)?),
        Device::Metal(index) => Ok(candle_core::Device::new_metal(index)?),
        other => Err(format!("{other} is not known here").into()),
    }
}
