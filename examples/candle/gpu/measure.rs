//! The same network arranged in several ways, one after the other.

use std::fs::File;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use candle_nn::VarBuilder;
use gangline::closures::MapBatches;
use gangline::{
    Batch, BoxError, Device, Devices, OrderedRunner, ProducerContext, Result, Runner, map,
    map_batches,
};
use serde_json::json;

use crate::args::{Args, Flag, Usage};
use crate::load::{trouble, watched};
use crate::memory::free_and_total;
use crate::network::{Item, Network};
use crate::phases::Phases;
use crate::table::{HEAD, Program, Row, line};
use crate::workload::{Kind, Precision, Size, Workload, difference};
use crate::{only, torch};

/// Items in a batch where only the number of producers differs; also that of PyTorch's DataLoader.
pub(crate) const BATCH: usize = 64;

/// Items in a batch of one producer; also in PyTorch's loop.
pub(crate) const BATCHES: [usize; 6] = [8, 16, 32, 64, 128, 256];

/// What this is meant to reach on a GPU.
const AIM_RATIO: f64 = 8.0;
const AIM_BUSY: f64 = 0.95;

pub(crate) const JSON: Flag =
    Flag { name: "--json", value: "FILE", help: "where to write what was measured" };
pub(crate) const REPORT: Flag = Flag {
    name: "--report",
    value: "FILE",
    help: "where to write the last run's report, as a page",
};

/// How much is measured, and with what.
pub(crate) struct Plan {
    pub(crate) device: Device,
    pub(crate) workload: Workload,
    pub(crate) seconds: f64,
    pub(crate) precision: Precision,
    pub(crate) workers: usize,
    report: Option<PathBuf>,
}

/// Items are ready, or have to be made of text first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Items,
    Text,
}

/// What a producer is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    /// A thread. All share a CUDA context.
    Thread,
    /// A child process.
    #[cfg_attr(
        not(feature = "processes"),
        expect(dead_code, reason = "this build has no processes")
    )]
    Process,
}

/// One way to use the device.
#[derive(Clone, Copy)]
struct Arrangement {
    producers: usize,
    home: Home,
    /// Items in a batch; 1 for one at a time.
    batch: usize,
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
        let kind = args.get("--network")?.unwrap_or(Kind::Bert);
        let report: Option<PathBuf> = args.get("--report")?;
        if let Some(path) = &report {
            // Now: after all measurements it would be lost.
            let opened = File::options().append(true).create(true).open(path);
            opened.map_err(|e| format!("--report {}: {e}", path.display()))?;
        }
        let plan = Plan {
            device,
            workload: Workload::new(kind, Size::of(args, device)?, count("--items", 512)?)?,
            seconds,
            precision: args.get("--precision")?.filter(|_| !exact).unwrap_or(default),
            workers: count("--workers", 4)?,
            report,
        };
        plan.precision.set();
        Ok(plan)
    }

    pub(crate) fn headline(&self) -> String {
        let Plan { device, workload, precision, .. } = self;
        let blind = trouble(*device).map(|why| format!("\nthe GPU's load is not measured: {why}"));
        format!("{device}, {workload}, {precision}{}\n\n", blind.unwrap_or_default())
    }

    /// How often all items have to be gone through to fill the time, when once takes so long.
    fn times(&self, once: Duration) -> usize {
        (self.seconds / once.as_secs_f64().max(1e-6)).ceil().clamp(1.0, 10_000.0) as usize
    }

    /// The network by itself, warm.
    fn network(&self, batch: usize) -> Result<(Network, candle_core::Device), BoxError> {
        let device = open(self.device)?;
        let model = &self.workload.model;
        let dtype = self.precision.dtype();
        // Cloning shares the values; only another device gets a copy.
        let network =
            model.load(VarBuilder::from_tensors(model.tensors().clone(), dtype, &device))?;
        warm_up(&network, &device, &self.workload.items(), batch)?;
        Ok((network, device))
    }

    /// The baseline: no runner at all, one item after the other.
    pub(crate) fn plain_loop(&self) -> Result<(Row, Vectors), BoxError> {
        let (network, _) = self.network(1)?;
        let items = self.workload.items();
        let compute = |item: &Item| network.vectors(std::slice::from_ref(item));
        let start = Instant::now();
        let vectors = items.iter().map(compute).collect::<Result<Vec<_>, _>>()?.concat();
        let times = self.times(start.elapsed());
        let many = || {
            let start = Instant::now();
            for item in (0..times).flat_map(|_| &items) {
                compute(item)?;
            }
            Ok::<_, BoxError>(start.elapsed())
        };
        let (took, load) = watched(self.device, many);
        let name = "a plain loop, one at a time".into();
        let items = times * items.len();
        let row = Row { program: Program::PlainLoop, name, batch: 1, items, took: took?, load };
        Ok((row, vectors))
    }

    /// Where the time of one batch goes.
    fn phases(&self) -> Result<Phases, BoxError> {
        let (network, device) = self.network(BATCH)?;
        let batch: Vec<_> = self.workload.items().into_iter().cycle().take(BATCH).collect();
        Ok(Phases::of(&network, &device, &batch)?)
    }

    fn arranged(&self, arrangement: Arrangement) -> Result<(Row, Vectors), BoxError> {
        #[cfg(feature = "processes")]
        if arrangement.home == Home::Process {
            let Arrangement { producers, batch, .. } = arrangement;
            let runner = crate::processes::runner(self, producers, batch)?;
            return self
                .measured(arrangement, runner, |runner, times| Ok(runner.run(self.texts(times))?));
        }
        let source = arrangement.source;
        self.measured(arrangement, self.runner(arrangement)?, |runner, times| {
            self.go_through(runner, source, times)
        })
    }

    /// Goes through the items once, which tells how long that takes, and then often. `go` goes through them.
    fn measured<R: Runner + 'static>(
        &self,
        arrangement: Arrangement,
        mut runner: OrderedRunner<R>,
        mut go: impl FnMut(&mut OrderedRunner<R>, usize) -> Result<Vectors, BoxError>,
    ) -> Result<(Row, Vectors), BoxError> {
        let start = Instant::now();
        let vectors = go(&mut runner, 1)?;
        let times = self.times(start.elapsed());
        let many = || {
            let start = Instant::now();
            go(&mut runner, times)?;
            Ok::<_, BoxError>(start.elapsed())
        };
        let (took, load) = watched(self.device, many);
        if let Some(path) = &self.report {
            std::fs::write(path, runner.report().to_html())?;
        }
        runner.close()?;
        let row = Row {
            program: Program::Gangline,
            name: arrangement.name(self.workers),
            batch: arrangement.batch,
            items: times * self.workload.texts.len(),
            took: took?,
            load,
        };
        Ok((row, vectors))
    }

    /// The texts, one after the other, again and again.
    fn texts(&self, times: usize) -> impl Iterator<Item = String> + use<> {
        let texts = self.workload.texts.clone();
        (0..times * texts.len()).map(move |at| texts[at % texts.len()].clone())
    }

    fn runner(&self, arrangement: Arrangement) -> Result<OrderedRunner<Measured>, BoxError> {
        let Arrangement { producers, batch, .. } = arrangement;
        let devices = Devices::from_places(vec![vec![self.device]; producers])?;
        let (model, dtype, items) =
            (self.workload.model.clone(), self.precision.dtype(), self.workload.items());
        let init: Init = Box::new(move |cx| {
            let network = model.load(cx.var_builder([model.tensors()], dtype)?)?;
            warm_up(&network, &cx.candle_device()?, &items, batch)?;
            Ok(network)
        });
        // The items stay in `inputs`: a batch that does not fit the device is split and tried again.
        let work: Work =
            |_, network, inputs| Ok(network.vectors(inputs)?.into_iter().map(Ok).collect());
        let measured = map_batches(init, work);
        Ok(OrderedRunner::builder(measured).devices(devices).batch(Batch::of(batch)).build()?)
    }

    fn go_through(
        &self,
        runner: &mut OrderedRunner<Measured>,
        source: Source,
        times: usize,
    ) -> Result<Vectors, BoxError> {
        if source == Source::Items {
            let items = self.workload.items();
            return Ok(runner.run((0..times).flat_map(|_| &items).cloned())?);
        }
        let make = self.workload.maker();
        let prepare = map(|_| Ok(()), move |_, (), text: String| Ok(make(&text)));
        let preparing = OrderedRunner::new(prepare, self.workers)?;
        Ok(preparing.then(runner).run(self.texts(times))?)
    }
}

/// What a producer does first: it loads the network.
type Init = Box<dyn Fn(&ProducerContext<'_>) -> Result<Network> + Send + Sync>;
type Work = fn(&ProducerContext<'_>, &mut Network, &mut Vec<Item>) -> Result<Vec<Result<Vec<f32>>>>;
type Measured = MapBatches<Init, Work, Network, Item, Vec<f32>>;

/// Computes a batch for nothing: what a GPU sets up when it is first used, such as compiling kernels, is then
/// done, and there is memory enough. The CPU has nothing of the kind.
pub(crate) fn warm_up(
    network: &Network,
    device: &candle_core::Device,
    items: &[Item],
    batch: usize,
) -> candle_core::Result<()> {
    if device.is_cpu() {
        return Ok(());
    }
    let items: Vec<_> = items.iter().cycle().take(batch).cloned().collect();
    network.vectors(&items).map(drop)
}

impl Arrangement {
    /// What is measured, in this order.
    fn all() -> Vec<Arrangement> {
        let alone =
            |batch| Arrangement { producers: 1, home: Home::Thread, batch, source: Source::Items };
        let mut all: Vec<_> = [1].into_iter().chain(BATCHES).map(alone).collect();
        all.extend([2, 3, 4, 6].map(|producers| Arrangement { producers, ..alone(BATCH) }));
        // What programs do that have no batches.
        all.extend([4, 6].map(|producers| Arrangement { producers, ..alone(1) }));
        #[cfg(feature = "processes")]
        {
            let processes = |producers, batch| Arrangement {
                home: Home::Process,
                producers,
                source: Source::Text,
                ..alone(batch)
            };
            all.extend([4, 6].map(|producers| processes(producers, 1)));
            all.push(processes(2, BATCH));
        }
        all.push(Arrangement { producers: 2, source: Source::Text, ..alone(BATCH) });
        all
    }

    fn name(self, workers: usize) -> String {
        let Arrangement { producers, home, batch, source } = self;
        let noun = match (home, producers) {
            (Home::Thread, 1) => "producer",
            (Home::Thread, _) => "producers",
            (Home::Process, 1) => "process",
            (Home::Process, _) => "processes",
        };
        let size = match batch {
            1 => "one at a time".into(),
            many => format!("batches of {many}"),
        };
        let stage = match (home, source) {
            (Home::Thread, Source::Text) => format!(", items from cpu*{workers}"),
            // A child makes the items itself.
            (_, Source::Items) | (Home::Process, _) => String::new(),
        };
        format!("{producers} {noun}, {size}{stage}")
    }
}

pub(crate) fn run(args: &Args, devices: &Devices) -> Result<ExitCode, BoxError> {
    let python = args.get::<String>("--python")?;
    let json = args.get::<PathBuf>("--json")?;
    let plan = Plan::new(args, devices)?;
    print!("{}{HEAD}", plan.headline());
    let (first, right) = plan.plain_loop()?;
    let one = first.rate();
    print!("{}", line(&first, one));

    let (mut rows, mut agree) = (vec![first], true);
    for arrangement in Arrangement::all() {
        let (row, vectors) = plan.arranged(arrangement)?;
        print!("{}", line(&row, one));
        agree &= says_right(&row, difference(&right, &vectors), plan.precision);
        rows.push(row);
    }
    let phases = plan.phases()?;
    let write = |rows: &[Row]| match &json {
        Some(path) => write_json(path, &plan, rows, &phases),
        None => Ok(()),
    };
    // Before PyTorch, which may not come back.
    write(&rows)?;
    // Asking gives back what the runs have freed, so that PyTorch finds it.
    if let Some((free, total)) = free_and_total(&open(plan.device)?) {
        println!(
            "  {} MiB of the GPU are still in use, also while PyTorch runs",
            (total - free) >> 20
        );
    }
    match &python {
        None => println!("PyTorch: not measured, --python was not given"),
        Some(python) => {
            let says = |row| {
                print!("{}", line(&row, one));
                rows.push(row);
            };
            agree &= match torch::measure(&plan, python, says) {
                Ok(theirs) => torch::says_right(difference(&right, &theirs), plan.precision),
                Err(error) => {
                    println!("PyTorch: {error}");
                    false
                }
            };
        }
    }
    write(&rows)?;
    let in_run = rows.iter().find(|row| row.program == Program::Gangline && row.batch == BATCH);
    let in_run = in_run.expect("it is one of the arrangements").time_of_batch();
    print!("\n{}\n{}", phases.text(BATCH, in_run), aims(&rows));
    Ok(if agree { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write_json(path: &Path, plan: &Plan, rows: &[Row], phases: &Phases) -> Result<(), BoxError> {
    let measured = json!({
        "gangline": env!("CARGO_PKG_VERSION"),
        "device": plan.device.to_string(),
        "network": plan.workload.to_string(),
        "size": plan.workload.size.to_string(),
        "precision": plan.precision.to_string(),
        "rows": rows.iter().map(Row::json).collect::<Vec<_>>(),
        "seconds_of_a_batch": { "items": BATCH, "steps": phases.json() },
    });
    std::fs::write(path, serde_json::to_vec_pretty(&measured)?)?;
    Ok(())
}

fn says_right(row: &Row, difference: f32, precision: Precision) -> bool {
    let right = difference <= precision.tolerance();
    if !right {
        println!("  WRONG: {} differs from the plain loop by {difference:.1e}", row.name);
    }
    right
}

/// What was aimed at and what was reached: for people to read, and no reason to fail.
fn aims(rows: &[Row]) -> String {
    let of = |program| rows.iter().filter(move |row| row.program == program);
    let fastest = |program| of(program).max_by(|a, b| a.rate().total_cmp(&b.rate()));
    let one = fastest(Program::PlainLoop).expect("the loop is the first row").rate();
    let best = fastest(Program::Gangline).expect("there are arrangements");
    let mut text = format!("fastest: {}\n", best.name);
    text += &aim("times the plain loop's rate", AIM_RATIO, Some(best.rate() / one));
    text += &aim("of the time the GPU is busy", AIM_BUSY, best.load.busy);
    let theirs = fastest(Program::PyTorch).map(|row| best.rate() / row.rate());
    text + &aim("times PyTorch's best rate", 1.0, theirs)
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
