//! Compares the ways to give candle on the CPU its number of threads: `cargo bench --bench candle_cpu`
//!
//! Prints a table. Each run is a process of its own, since the number is a variable of the environment. Without
//! `--bench`, as in `cargo test --benches`, and with `--test`, it only checks that everything runs.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::env;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Conv2d, Conv2dConfig, Init, Linear, Module, VarBuilder, conv2d, linear};
use gangline::device::{CpuThreads, candle_threads};
use gangline::{Devices, OrderedRunner, Result, map};

use digits::{data_file, read_digits, read_file};
use rng::Rng;

#[expect(dead_code, reason = "the benchmark uses less of it than the examples")]
#[path = "common/digits.rs"]
mod digits;
#[path = "common/rng.rs"]
mod rng;

/// What candle reads before each product.
const VARIABLE: &str = "RAYON_NUM_THREADS";
/// Says in the process of a run which row and column it is, and how many images it has.
const RUN: &str = "CANDLE_CPU_RUN";
/// Runs of each cell, which take turns.
const ROUNDS: usize = 11;

/// A column of the table: a network and the length of the lists that it gets.
struct Column {
    network: Network,
    list: usize,
    images: usize,
}

#[derive(Debug, Clone, Copy)]
enum Network {
    /// The network of the example `digits`: two convolutions, 8 x 8 pixels.
    Digits,
    /// Three convolutions, 32 x 32 pixels, untrained weights.
    Photos,
}

/// A row of the table.
struct Row {
    name: &'static str,
    program: Program,
    setting: Setting,
}

/// What calls the network, once for each core.
#[derive(Clone, Copy)]
enum Program {
    /// A loop on each thread; nothing is handed over.
    Loops,
    Producers(CpuThreads),
}

/// Where candle gets its number of threads from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// It counts the cores before each product.
    Unset,
    /// The user has set the variable to 1.
    One,
    /// The program calls `candle_threads`.
    Called,
}

const COLUMNS: [Column; 4] = [
    Column { network: Network::Digits, list: 1, images: 4096 },
    Column { network: Network::Digits, list: 32, images: 8192 },
    Column { network: Network::Photos, list: 1, images: 512 },
    Column { network: Network::Photos, list: 32, images: 512 },
];

const ROWS: [Row; 6] = [
    Row { name: "loops, unset", program: Program::Loops, setting: Setting::Unset },
    Row { name: "loops, 1", program: Program::Loops, setting: Setting::One },
    Row { name: "global pool, unset", program: PRODUCERS_WITHOUT_POOLS, setting: Setting::Unset },
    Row { name: "unset", program: PRODUCERS, setting: Setting::Unset },
    Row { name: "1", program: PRODUCERS, setting: Setting::One },
    Row { name: "`candle_threads`", program: PRODUCERS, setting: Setting::Called },
];
const PRODUCERS: Program = Program::Producers(CpuThreads::Share);
const PRODUCERS_WITHOUT_POOLS: Program = Program::Producers(CpuThreads::Global);

/// A network and its inputs, as lists.
struct Workload {
    lists: Arc<Vec<Tensor>>,
    load: Arc<Load>,
}

type Load = dyn Fn() -> Result<Box<dyn Module>> + Send + Sync;

/// What one run took.
struct Taken {
    wall: Duration,
    /// Of all outputs, in order.
    hash: u64,
}

/// The extent of the measurement.
#[derive(Clone, Copy)]
enum Extent {
    Full,
    Smoke,
}

impl Extent {
    fn of_process() -> Self {
        let has = |flag: &str| env::args().any(|arg| arg == flag);
        if has("--bench") && !has("--test") { Extent::Full } else { Extent::Smoke }
    }

    fn rounds(self) -> usize {
        match self {
            Extent::Full => ROUNDS,
            Extent::Smoke => 1,
        }
    }

    fn images(self, column: &Column) -> usize {
        match self {
            Extent::Full => column.images,
            Extent::Smoke => 2 * column.list,
        }
    }
}

impl Program {
    fn run(self, workload: &Workload) -> Result<Taken> {
        match self {
            Program::Loops => workload.in_loops(num_cpus::get()),
            Program::Producers(threads) => workload.on_producers(num_cpus::get(), threads),
        }
    }
}

impl Workload {
    fn new(column: &Column, images: usize) -> Result<Self> {
        match column.network {
            Network::Digits => Workload::digits(column.list, images),
            Network::Photos => Workload::photos(column.list, images),
        }
    }

    fn digits(list: usize, images: usize) -> Result<Self> {
        let weights = read_file(&data_file("digits.safetensors"))?;
        let (_, held_out) = read_digits(&data_file("digits.csv"))?;
        let held_out: Vec<_> = held_out.iter().cycle().take(images).collect();
        let tensor = |digits: &[&digits::Digit]| {
            let pixels = digits.iter().map(|digit| digit.pixels.as_slice());
            digits::images(pixels, &Device::Cpu)
        };
        let lists = held_out.chunks(list).map(tensor).collect::<candle_core::Result<_>>()?;
        let load: Arc<Load> =
            Arc::new(move || Ok(Box::new(digits::Net::load(&weights, &Device::Cpu)?)));
        Ok(Workload { lists: Arc::new(lists), load })
    }

    fn photos(list: usize, images: usize) -> Result<Self> {
        let mut rng = Rng::seeded(1);
        let lists = (0..images / list).map(|_| rng.tensor(1.0, (list, 3, 32, 32)));
        let lists = Arc::new(lists.collect::<candle_core::Result<_>>()?);
        let load: Arc<Load> = Arc::new(|| Ok(Box::new(PhotoNet::seeded()?)));
        Ok(Workload { lists, load })
    }

    /// Each thread takes every n-th list.
    fn in_loops(&self, threads: usize) -> Result<Taken> {
        let all_are_warm = Barrier::new(threads + 1);
        let part = |at: usize| {
            let net = (self.load)()?;
            let warm_up =
                self.lists.iter().take(10).try_for_each(|list| scores(&*net, list).map(drop));
            all_are_warm.wait();
            warm_up?;
            let lists = self.lists.iter().skip(at).step_by(threads);
            lists.map(|list| scores(&*net, list)).collect::<Result<Vec<_>>>()
        };
        let (part, all_are_warm) = (&part, &all_are_warm);
        let (parts, wall) = thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|at| scope.spawn(move || part(at))).collect();
            all_are_warm.wait();
            let start = Instant::now();
            let joined = running.into_iter().map(|it| it.join().expect("no panic"));
            (joined.collect::<Result<Vec<_>>>(), start.elapsed())
        });
        let parts = parts?;
        let in_order = (0..self.lists.len()).map(|at| &parts[at % threads][at / threads]);
        Ok(Taken { wall, hash: hash(in_order) })
    }

    fn on_producers(&self, producers: usize, threads: CpuThreads) -> Result<Taken> {
        let load = self.load.clone();
        let score = map(
            move |_| load(),
            |_, net: &mut Box<dyn Module>, list: Tensor| scores(&**net, &list),
        );
        let builder = OrderedRunner::builder(score).devices(producers);
        let mut runner = builder.cpu_threads(threads).build()?;
        // Set-up by the first items, here and in candle, is not part of the measurement.
        runner.run(self.lists.iter().take(10).cloned())?;
        let start = Instant::now();
        let scores = runner.run(self.lists.iter().cloned())?;
        let wall = start.elapsed();
        runner.close()?;
        Ok(Taken { wall, hash: hash(scores.iter()) })
    }
}

impl Row {
    /// Measures a cell in a process of its own.
    fn measure(&self, places: (usize, usize), images: usize) -> Result<Taken> {
        let mut command = Command::new(env::current_exe()?);
        command.env(RUN, format!("{} {} {images}", places.0, places.1));
        match self.setting {
            Setting::One => command.env(VARIABLE, "1"),
            Setting::Unset | Setting::Called => command.env_remove(VARIABLE),
        };
        let output = command.env_remove("CANDLE_NUM_THREADS").output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let mut numbers = text.split_whitespace().map(str::parse);
        let (Some(Ok(wall)), Some(Ok(hash))) = (numbers.next(), numbers.next()) else {
            return Err(format!("a run has failed: {output:?}").into());
        };
        Ok(Taken { wall: Duration::from_nanos(wall), hash })
    }
}

fn scores(net: &dyn Module, list: &Tensor) -> Result<Vec<f32>> {
    Ok(net.forward(list)?.flatten_all()?.to_vec1::<f32>()?)
}

fn hash<'a>(scores: impl Iterator<Item = &'a Vec<f32>>) -> u64 {
    let mut hasher = DefaultHasher::new();
    scores.flatten().for_each(|score| score.to_bits().hash(&mut hasher));
    hasher.finish()
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
    if let Ok(run) = env::var(RUN) {
        return be_a_run(&run);
    }
    let extent = Extent::of_process();
    let mut cells = vec![vec![vec![]; COLUMNS.len()]; ROWS.len()];
    for _ in 0..extent.rounds() {
        for (at, column) in COLUMNS.iter().enumerate() {
            let mut right = None;
            for (place, row) in ROWS.iter().enumerate() {
                let taken = row.measure((place, at), extent.images(column))?;
                assert_eq!(*right.get_or_insert(taken.hash), taken.hash, "other outputs");
                cells[place][at].push(extent.images(column) as f64 / taken.wall.as_secs_f64());
            }
        }
    }
    println!(
        "{} cores; images per second: the best and the median of {} runs\n",
        num_cpus::get(),
        extent.rounds()
    );
    print!("{}", table(&mut cells));
    Ok(())
}

/// What the process of one run does.
fn be_a_run(run: &str) -> Result<()> {
    let numbers: Vec<usize> = run.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let (row, column) = (&ROWS[numbers[0]], &COLUMNS[numbers[1]]);
    if row.setting == Setting::Called {
        candle_threads(&format!("cpu*{}", num_cpus::get()).parse::<Devices>()?)?;
    }
    let taken = row.program.run(&Workload::new(column, numbers[2])?)?;
    println!("{} {}", taken.wall.as_nanos(), taken.hash);
    Ok(())
}

fn table(cells: &mut [Vec<Vec<f64>>]) -> String {
    let mut text = String::from("| |");
    for Column { network, list, .. } in &COLUMNS {
        text += &format!(" {network:?}, lists of {list} |");
    }
    text += "\n|---|---:|---:|---:|---:|\n";
    for (row, cells) in ROWS.iter().zip(cells) {
        text += &format!("| {} |", row.name);
        for rates in cells {
            rates.sort_by(f64::total_cmp);
            let (best, median) = (rates[rates.len() - 1], rates[rates.len() / 2]);
            text += &format!(" {best:.0}, {median:.0} |");
        }
        text += "\n";
    }
    text
}
