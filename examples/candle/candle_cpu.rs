//! Compares candle on the CPU with a share of the cores per producer to rayon's global pool: `cargo bench
//! --bench candle_cpu`
//!
//! Prints a table for each network. Without `--bench`, as in `cargo test --benches`, and with `--test`, it
//! only checks that everything runs.
#![expect(clippy::print_stdout, reason = "the tables are the output")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{
    Conv2d, Conv2dConfig, Init, Linear, Module, VarBuilder, conv2d, linear, ops::softmax_last_dim,
};
use gangline::device::CpuThreads;
use gangline::{OrderedRunner, Result, map};

use digits::{SIDE, data_file, read_digits, read_file};
use rng::Rng;

#[expect(dead_code, reason = "the benchmark uses less of it than the examples")]
#[path = "common/digits.rs"]
mod digits;
#[path = "common/rng.rs"]
mod rng;

/// Runs per setup, interleaved with the others. The least time counts, since disturbance only adds to it.
const ROUNDS: usize = 21;

/// A network and its inputs.
struct Workload {
    name: &'static str,
    images: Arc<Vec<Tensor>>,
    load: Arc<Load>,
}

type Load = dyn Fn() -> Result<Box<dyn Module>> + Send + Sync;

/// The scores of each item, in order.
type Scores = Vec<Vec<f32>>;

/// One row of a table.
struct Setup {
    producers: usize,
    threads: CpuThreads,
    wall: Duration,
    cpu: Duration,
}

/// The extent of the measurement.
#[derive(Clone, Copy)]
enum Extent {
    Full,
    Smoke,
}

impl Extent {
    fn of_process() -> Self {
        let has = |flag: &str| std::env::args().any(|arg| arg == flag);
        if has("--bench") && !has("--test") { Extent::Full } else { Extent::Smoke }
    }

    fn rounds(self) -> usize {
        match self {
            Extent::Full => ROUNDS,
            Extent::Smoke => 1,
        }
    }

    fn items(self, full: usize) -> usize {
        match self {
            Extent::Full => full,
            Extent::Smoke => 10,
        }
    }
}

impl Workload {
    /// The network of the example `digits`, on one digit at a time.
    fn digits(extent: Extent) -> Result<Self> {
        let weights = read_file(&data_file("digits.safetensors"))?;
        let (_, held_out) = read_digits(&data_file("digits.csv"))?;
        let image = |digit: &digits::Digit| {
            Tensor::from_slice(&digit.pixels, (1, 1, SIDE, SIDE), &Device::Cpu)
        };
        let images: Vec<Tensor> = held_out.iter().map(image).collect::<candle_core::Result<_>>()?;
        let images = images.into_iter().cycle().take(extent.items(800)).collect();
        let load: Arc<Load> =
            Arc::new(move || Ok(Box::new(digits::Net::load(&weights, &Device::Cpu)?)));
        Ok(Workload { name: "digits: 2 convolutions, 8 x 8", images: Arc::new(images), load })
    }

    /// A network for small photographs, with untrained weights.
    fn photos(extent: Extent) -> Result<Self> {
        let mut rng = Rng::seeded(1);
        let images = (0..extent.items(250)).map(|_| rng.tensor(1.0, (1, 3, 32, 32)));
        let images = Arc::new(images.collect::<candle_core::Result<_>>()?);
        let load: Arc<Load> = Arc::new(|| Ok(Box::new(PhotoNet::seeded()?)));
        Ok(Workload { name: "photos: 3 convolutions, 32 x 32", images, load })
    }

    fn run(&self, setup: &mut Setup) -> Result<Scores> {
        let load = self.load.clone();
        let score = map(
            move |_| load(),
            |_, net: &mut Box<dyn Module>, image: Tensor| {
                Ok(softmax_last_dim(&net.forward(&image)?)?.squeeze(0)?.to_vec1::<f32>()?)
            },
        );
        let mut runner = OrderedRunner::builder(score)
            .devices(setup.producers)
            .cpu_threads(setup.threads)
            .build()?;
        // Set-up by the first items, here and in candle, is not part of the measurement.
        runner.run(self.images.iter().take(10).cloned())?;
        let (start, cpu) = (Instant::now(), cpu_time());
        let scores = runner.run(self.images.iter().cloned())?;
        setup.cpu = setup.cpu.min(cpu_time().saturating_sub(cpu));
        setup.wall = setup.wall.min(start.elapsed());
        runner.close()?;
        Ok(scores)
    }

    /// Measures all setups; the first one gives the expected scores.
    fn measure(&self, setups: &mut [Setup], extent: Extent) -> Result<()> {
        let mut right = None;
        for _ in 0..extent.rounds() {
            for setup in &mut *setups {
                let scores = self.run(setup)?;
                assert!(*right.get_or_insert_with(|| scores.clone()) == scores, "other outputs");
            }
        }
        Ok(())
    }

    fn table(&self, setups: &[Setup]) -> String {
        let items = self.images.len() as f64;
        let mut text = format!("\n### {}\n\n", self.name);
        text += "| producers | rayon | items/s | speed-up | promised | CPU s per 1,000 items |\n";
        text += "|---:|---|---:|---:|---:|---:|\n";
        for setup in setups {
            let rate = items / setup.wall.as_secs_f64();
            let speed_up = setups[0].wall.as_secs_f64() / setup.wall.as_secs_f64();
            let cpu = 1000.0 * setup.cpu.as_secs_f64() / items;
            let (producers, rayon) = (setup.producers, setup.rayon());
            let promised = setup.promised().map_or_else(String::new, |least| format!("{least:.1}"));
            text += &format!(
                "| {producers} | {rayon} | {rate:.0} | {speed_up:.2} | {promised} | {cpu:.3} |\n"
            );
        }
        text
    }
}

impl Setup {
    fn new(producers: usize, threads: CpuThreads) -> Self {
        Setup { producers, threads, wall: Duration::MAX, cpu: Duration::MAX }
    }

    /// One producer with one thread as the reference; then as many producers as there are cores for each, and
    /// twice as many as cores.
    fn all(cores: usize) -> Vec<Self> {
        let counts = (1..=cores).chain([2 * cores]);
        let both = [CpuThreads::Share, CpuThreads::Global];
        [Setup::new(1, CpuThreads::Exactly(1))]
            .into_iter()
            .chain(counts.flat_map(|n| both.map(|threads| Setup::new(n, threads))))
            .collect()
    }

    fn rayon(&self) -> String {
        match self.threads {
            CpuThreads::Exactly(1) => "one thread".into(),
            CpuThreads::Share => format!("shares: {}", (num_cpus::get() / self.producers).max(1)),
            _ => "global pool".into(),
        }
    }

    /// The promised speed-up of one thread per core.
    fn promised(&self) -> Option<f64> {
        let cores = num_cpus::get();
        let has_shares = self.threads == CpuThreads::Share;
        (has_shares && self.producers == cores).then_some(0.9 * cores as f64)
    }
}

struct PhotoNet {
    convolutions: [Conv2d; 3],
    scores: Linear,
}

impl PhotoNet {
    fn seeded() -> candle_core::Result<Self> {
        let same = Conv2dConfig { padding: 1, ..Default::default() };
        let weights = VarBuilder::from_backend(Box::new(Seeded), DType::F32, Device::Cpu);
        Ok(PhotoNet {
            convolutions: [
                conv2d(3, 16, 3, same, weights.pp("edges"))?,
                conv2d(16, 32, 3, same, weights.pp("corners"))?,
                conv2d(32, 64, 3, same, weights.pp("parts"))?,
            ],
            scores: linear(64 * 4 * 4, 10, weights.pp("scores"))?,
        })
    }
}

impl Module for PhotoNet {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let layer =
            |x: Tensor, conv: &Conv2d| conv.forward(&x)?.relu()?.max_pool2d_with_stride(2, 2);
        let x = self.convolutions.iter().try_fold(images.clone(), layer)?;
        self.scores.forward(&x.flatten_from(1)?)
    }
}

/// Weights that are the same in every producer.
struct Seeded;

impl SimpleBackend for Seeded {
    fn get(
        &self,
        s: Shape,
        name: &str,
        _: Init,
        _: DType,
        _: &Device,
    ) -> candle_core::Result<Tensor> {
        Rng::seeded(name.len() as u64).tensor(0.1, s)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> candle_core::Result<Tensor> {
        candle_core::bail!("{name}: the shape is needed")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        true
    }
}

fn main() -> Result<()> {
    let (extent, cores) = (Extent::of_process(), num_cpus::get());
    println!("{cores} cores; the least of {} interleaved runs", extent.rounds());
    for workload in [Workload::digits(extent)?, Workload::photos(extent)?] {
        let mut setups = Setup::all(cores);
        workload.measure(&mut setups, extent)?;
        print!("{}", workload.table(&setups));
    }
    Ok(())
}

/// The processor time of this process; nothing if the system has no `/proc`.
fn cpu_time() -> Duration {
    const TICK: Duration = Duration::from_millis(10);
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, may hold spaces. User and system time are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}
