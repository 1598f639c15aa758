//! Every way of using a device, against the CPU.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use candle_core::{DType, Tensor};
use gangline::gpu::GpuLock;
use gangline::{
    Batch, BoxError, ConsumerContext, Device, Devices, Hook, OrderedRunner, ProducerContext,
    Result, Runner, map,
};

use crate::args::Args;
use crate::digits::{FIRST_HELD_OUT, Net, data_file, images, read_digits, read_file};
use crate::embedder::Embedder;
use crate::encoder::{Encoder, Weights};
use crate::memory::free_and_total;
use crate::operations::OPERATIONS;
use crate::precisions::precisions;
use crate::workload::{Kind, Precision, Size, Workload, difference};

/// What came of one check.
pub(crate) enum CheckVerdict {
    /// With what it saw.
    Passed(String),
    Failed(String),
    /// With the reason.
    Skipped(&'static str),
}

/// What is checked, and on what.
pub(crate) struct Subject {
    pub(crate) device: Device,
    pub(crate) size: Size,
}

/// What a group of checks found, by name.
pub(crate) type Findings = Vec<(String, CheckVerdict)>;

/// A group of checks. Its error fails the whole group.
type Group = (&'static str, fn(&Subject) -> Result<Findings, BoxError>);

const GROUPS: &[Group] = &[
    ("devices", devices_of_their_own),
    ("operations", operations),
    ("digits in batches", digits_in_batches),
    ("transformer", transformer),
    ("precisions", precisions),
    ("an error beside others' work", error_beside_work),
    ("a batch that does not fit", batch_without_memory),
    ("close and activate", close_and_activate),
    ("the device beside the CPU", beside_cpu),
    ("locks", locks),
    ("a kernel that fails in a child process", failing_kernel),
];

const ONLY_GPU: &str = "the CPU has nothing to check here";

/// More than this left on the GPU after a runner was closed is a leak.
const LEAK: usize = 64 << 20;

/// A producer holds so much while it lives: more than a leak.
const HELD: usize = 4 * LEAK;

pub(crate) fn run(args: &Args, devices: &Devices) -> Result<ExitCode, BoxError> {
    Precision::F32.set();
    let devices: Vec<Device> = devices.places().flatten().copied().collect();
    let mut seen = Vec::new();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for device in devices {
        if seen.contains(&device) {
            continue;
        }
        seen.push(device);
        let subject = Subject { device, size: Size::of(args, device)? };
        println!("{device}, transformers of the size {}\n", subject.size);
        for (name, verdict) in GROUPS.iter().flat_map(|group| findings(group, &subject)) {
            let (word, text) = match verdict {
                CheckVerdict::Passed(text) => (count(&mut passed, "ok"), text),
                CheckVerdict::Failed(text) => (count(&mut failed, "FAILED"), text),
                CheckVerdict::Skipped(why) => (count(&mut skipped, "skipped"), why.into()),
            };
            println!("{word:<8} {name:<50} {text}");
        }
        println!();
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn count(counter: &mut usize, word: &'static str) -> &'static str {
    *counter += 1;
    word
}

fn findings(&(name, group): &Group, subject: &Subject) -> Findings {
    let failed = |e: BoxError| vec![(name.into(), CheckVerdict::Failed(chain(&*e)))];
    group(subject).unwrap_or_else(failed)
}

/// An error with all its causes, in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn passed(condition: bool, text: String) -> CheckVerdict {
    if condition { CheckVerdict::Passed(text) } else { CheckVerdict::Failed(text) }
}

pub(crate) fn within(difference: f32, tolerance: f32) -> CheckVerdict {
    let text = format!("largest difference {difference:.1e}, tolerance {tolerance:.0e}");
    passed(difference <= tolerance, text)
}

impl Subject {
    pub(crate) fn is_cpu(&self) -> bool {
        self.device == Device::Cpu
    }

    /// The number of producers on the device.
    fn producers(&self, count: usize) -> Result<Devices, BoxError> {
        Ok(Devices::from_places(vec![vec![self.device]; count])?)
    }
}

/// candle takes each opened device for another one: producers on one GPU must not share.
fn devices_of_their_own(subject: &Subject) -> Result<Findings, BoxError> {
    let opened = Arc::new(Mutex::new(Vec::new()));
    let list = opened.clone();
    let keep = map(
        move |cx| {
            let device = cx.candle_device()?;
            let again = cx.candle_device()?.same_device(&device);
            list.lock().expect("nobody panics with it").push((device, again));
            Ok(())
        },
        |_, (), (): ()| Ok(()),
    );
    OrderedRunner::new(keep, subject.producers(3)?)?.close()?;
    let opened = opened.lock().expect("nobody panics with it");
    let same = opened.len() == 3 && opened.iter().all(|(_, again)| *again);
    let distinct = (0..3).all(|i| (0..i).all(|j| !opened[i].0.same_device(&opened[j].0)));
    let distinct = match subject.is_cpu() {
        true => CheckVerdict::Skipped(ONLY_GPU),
        false => passed(distinct, "3 producers, 3 devices of candle".into()),
    };
    Ok(vec![
        ("a producer's device stays the same".into(), passed(same, "3 producers".into())),
        ("producers on one GPU do not share".into(), distinct),
    ])
}

fn operations(subject: &Subject) -> Result<Findings, BoxError> {
    // An operation that fails is a finding, and the others go on.
    let compute = map(
        |cx| cx.candle_device(),
        |_, device, at: usize| Ok(OPERATIONS[at].on(device).map_err(|e| e.to_string())),
    );
    let computed = OrderedRunner::new(compute, subject.producers(1)?)?.run(0..OPERATIONS.len())?;
    let compare = |(operation, there): (&crate::operations::Operation, _)| {
        let right = operation.on(&candle_core::Device::Cpu)?;
        let verdict = match there {
            Ok(there) => {
                let most = right.iter().fold(1.0, |most: f32, x| most.max(x.abs()));
                within(difference(&[right], &[there]) / most, operation.tolerance)
            }
            Err(why) => CheckVerdict::Failed(why),
        };
        Ok((operation.name.into(), verdict))
    };
    OPERATIONS.iter().zip(computed).map(compare).collect()
}

/// A trained network on real data.
fn digits_in_batches(subject: &Subject) -> Result<Findings, BoxError> {
    let (_, digits) = read_digits(&data_file("digits.csv"))?;
    let weights = Arc::new(read_file(&data_file("digits.safetensors"))?);
    let net = Net::load(&weights, &candle_core::Device::Cpu)?;
    let pixels = digits.iter().map(|digit| digit.pixels.as_slice());
    let right = net.read(&images(pixels, &candle_core::Device::Cpu)?)?;

    let reader = DigitReader { weights };
    let mut runner = OrderedRunner::builder(reader)
        .devices(subject.producers(2)?)
        .batch(Batch::of(32))
        .build()?;
    let read = runner.run(digits.iter().map(|digit| digit.pixels.clone()))?;
    runner.close()?;
    let same = right.iter().zip(&read).filter(|(right, read)| right == read).count();
    let first = digits.first().is_some_and(|digit| digit.row == FIRST_HELD_OUT);
    let hits = digits.iter().zip(&read).filter(|(digit, read)| digit.label == **read).count();
    let text = format!("{same} of {} as on the CPU, {hits} right", digits.len());
    let well = first && same == digits.len() && hits * 100 > digits.len() * 97;
    Ok(vec![("digits in batches of 32, 2 producers".into(), passed(well, text))])
}

struct DigitReader {
    weights: Arc<Vec<u8>>,
}

impl Runner for DigitReader {
    type Input = Vec<f32>;
    type Output = u32;
    type ProducerState = (Net, candle_core::Device);
    type ConsumerState = Vec<u32>;
    type Summary = Vec<u32>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Self::ProducerState> {
        let net = Net::new(cx.var_builder([&*self.weights], DType::F32)?)?;
        Ok((net, cx.candle_device()?))
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        pixels: Vec<f32>,
    ) -> Result<u32> {
        self.producer_work_batch(cx, state, &mut vec![pixels])?.pop().expect("one for one")
    }

    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (net, device): &mut Self::ProducerState,
        pixels: &mut Vec<Vec<f32>>,
    ) -> Result<Vec<Result<u32>>> {
        let images = images(pixels.iter().map(Vec::as_slice), device)?;
        Ok(net.read(&images)?.into_iter().map(Ok).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u32>, one: u32) -> Result<()> {
        all.push(one);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u32>) -> Result<Vec<u32>> {
        Ok(all)
    }
}

/// One at a time, in batches, and by several producers: always what a plain loop on the CPU makes.
fn transformer(subject: &Subject) -> Result<Findings, BoxError> {
    let mut tokens = Workload::new(Kind::Bert, subject.size, 24)?.tokens();
    let weights = Arc::new(Weights::seeded(subject.size.config(), 1)?);
    // Of all lengths, so that batches are padded.
    let longest = subject.size.text_tokens();
    tokens.iter_mut().enumerate().for_each(|(i, text)| text.truncate(2 + i % (longest - 1)));
    let right = Encoder::load(&weights, &candle_core::Device::Cpu)?;
    let right: Vec<_> = right.encode(&tokens)?;

    let arrangements = [
        ("1 producer, one at a time", 1, None),
        ("1 producer, batches of 8", 1, Some(Batch::of(8))),
        ("1 producer, batches of what is there", 1, Some(Batch::up_to(8))),
        ("3 producers, one at a time", 3, None),
        ("3 producers, batches of 8", 3, Some(Batch::of(8))),
    ];
    let check = |(name, producers, batch): (&str, usize, Option<Batch>)| {
        let embedder = Embedder::new(&weights, (8, longest));
        let mut builder = OrderedRunner::builder(embedder).devices(subject.producers(producers)?);
        if let Some(batch) = batch {
            builder = builder.batch(batch);
        }
        let mut runner = builder.build()?;
        let vectors = runner.run(tokens.iter().cloned())?;
        let batches = runner.runner().batches();
        runner.close()?;
        let verdict = match within(difference(&right, &vectors), 1e-3) {
            CheckVerdict::Passed(text) => {
                CheckVerdict::Passed(format!("{text}, {batches} batches"))
            }
            other => other,
        };
        Ok((format!("transformer, {name}"), verdict))
    };
    arrangements.into_iter().map(check).collect()
}

/// One producer's operation fails while two others compute: the error names it, and the next run is whole.
fn error_beside_work(subject: &Subject) -> Result<Findings, BoxError> {
    const GUILTY: usize = 20;
    let multiply = map(
        |cx| cx.candle_device(),
        |_, device, (at, fails): (usize, bool)| {
            let a = Tensor::ones((64, 64), DType::F32, device)?;
            let rows = if fails { 63 } else { 64 };
            let b = Tensor::ones((rows, 64), DType::F32, device)?;
            Ok(a.matmul(&b)?.mean_all()?.to_scalar::<f32>()? + at as f32)
        },
    );
    let mut runner = OrderedRunner::new(multiply, subject.producers(3)?)?;
    let Err(error) = runner.run((0..200).map(|at| (at, at == GUILTY))) else {
        return Ok(vec![(
            "an error of one producer".into(),
            CheckVerdict::Failed("no error".into()),
        )]);
    };
    let named = error.item() == Some(GUILTY as u64)
        && error.hook() == Some(Hook::ProducerWork)
        && error.device() == Some(&subject.device);
    let sums = runner.run((0..200).map(|at| (at, false)))?;
    let whole = sums.iter().enumerate().all(|(at, &sum)| sum == 64.0 + at as f32);
    runner.close()?;
    Ok(vec![
        ("an error of one producer names its item".into(), passed(named, error.to_string())),
        ("the next run is whole".into(), passed(whole && sums.len() == 200, "200 items".into())),
    ])
}

/// Each item of a batch takes a sixth of the free memory, so eight do not fit and four do.
fn batch_without_memory(subject: &Subject) -> Result<Findings, BoxError> {
    let name = String::from("a batch beyond the GPU's memory is split");
    if free_and_total(&crate::measure::open(subject.device)?).is_none() {
        return Ok(vec![(name, CheckVerdict::Skipped(ONLY_GPU))]);
    }
    let refused = Arc::new(AtomicUsize::new(0));
    let hungry = Hungry { refused: refused.clone() };
    let mut runner = OrderedRunner::builder(hungry)
        .devices(subject.producers(1)?)
        .batch(Batch::of(8))
        .build()?;
    let outputs = runner.run(0..32)?;
    runner.close()?;
    let refused = refused.load(Ordering::Relaxed);
    let whole = outputs.iter().copied().eq(0..32) && refused > 0;
    let text =
        format!("{} of 32 items, {refused} batches refused for want of memory", outputs.len());
    Ok(vec![(name, passed(whole, text))])
}

/// Takes memory until there is none.
struct Hungry {
    refused: Arc<AtomicUsize>,
}

impl Runner for Hungry {
    type Input = u32;
    type Output = u32;
    type ProducerState = (candle_core::Device, usize);
    type ConsumerState = Vec<u32>;
    type Summary = Vec<u32>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Self::ProducerState> {
        let device = cx.candle_device()?;
        let (free, _) = free_and_total(&device).ok_or("the device does not say its memory")?;
        Ok((device, free / 6))
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        input: u32,
    ) -> Result<u32> {
        self.producer_work_batch(cx, state, &mut vec![input])?.pop().expect("one for one")
    }

    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (device, share): &mut Self::ProducerState,
        inputs: &mut Vec<u32>,
    ) -> Result<Vec<Result<u32>>> {
        let take = |_: &u32| Tensor::zeros(*share, DType::U8, device);
        let taken = inputs.iter().map(take).collect::<candle_core::Result<Vec<_>>>();
        let taken = taken.inspect_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        device.synchronize()?;
        drop(taken);
        Ok(inputs.iter().map(|&input| Ok(input)).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u32>> {
        Ok(Vec::new())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u32>, one: u32) -> Result<()> {
        all.push(one);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u32>) -> Result<Vec<u32>> {
        Ok(all)
    }
}

/// A runner that is closed gives its memory back, and works again once it is activated.
fn close_and_activate(subject: &Subject) -> Result<Findings, BoxError> {
    let hold = map(
        |cx| {
            let device = cx.candle_device()?;
            Ok(if device.is_cpu() {
                Tensor::ones(1, DType::U8, &device)?
            } else {
                Tensor::ones(HELD, DType::U8, &device)?
            })
        },
        |_, held: &mut Tensor, at: u64| {
            Ok(at + u64::from(held.narrow(0, 0, 1)?.to_vec1::<u8>()?[0]))
        },
    );
    let watcher = crate::measure::open(subject.device)?;
    let free = || free_and_total(&watcher).map(|(free, _)| free);
    let mut runner = OrderedRunner::new(hold, subject.producers(2)?)?;
    let (mut right, mut free_when_closed) = (true, Vec::new());
    for round in 0..4 {
        runner.activate()?;
        right &= runner.run([round, 10])? == [round + 1, 11];
        runner.close()?;
        free_when_closed.extend(free());
    }
    let memory = match (free_when_closed.first(), free_when_closed.last()) {
        (Some(&first), Some(&last)) => {
            let lost = first.saturating_sub(last);
            let free: Vec<_> = free_when_closed.iter().map(|free| free >> 20).collect();
            passed(lost < LEAK, format!("{free:?} MiB free after each of 4 rounds"))
        }
        _ => CheckVerdict::Skipped(ONLY_GPU),
    };
    Ok(vec![
        ("closed and activated".into(), passed(right, "4 rounds".into())),
        ("a closed runner's memory comes back".into(), memory),
    ])
}

/// Which of the two a batch is computed on does not show in its results.
fn beside_cpu(subject: &Subject) -> Result<Findings, BoxError> {
    let tokens = Workload::new(Kind::Bert, subject.size, 64)?.tokens();
    let weights = Arc::new(Weights::seeded(subject.size.config(), 1)?);
    let right = Encoder::load(&weights, &candle_core::Device::Cpu)?.encode(&tokens)?;
    let places = [vec![subject.device], vec![Device::Cpu]];
    let mut runner = OrderedRunner::builder(Embedder::new(&weights, (4, tokens[0].len())))
        .devices(Devices::from_places(places)?)
        .batch(Batch::up_to(4))
        .build()?;
    let vectors = runner.run(tokens)?;
    runner.close()?;
    let name = format!("transformer on {} beside the CPU", subject.device);
    Ok(vec![(name, within(difference(&right, &vectors), 1e-3))])
}

/// Two runs on one GPU: the second is refused until the first is closed.
fn locks(subject: &Subject) -> Result<Findings, BoxError> {
    let name = String::from("a locked GPU is refused, and free once closed");
    if subject.is_cpu() {
        return Ok(vec![(name, CheckVerdict::Skipped(ONLY_GPU))]);
    }
    let directory = tempfile::tempdir()?;
    let devices = subject.producers(1)?;
    let build = || {
        OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u32| Ok(x)))
            .devices(devices.clone())
            .lock_gpus(GpuLock::or_fail().in_dir(directory.path()))
            .build()
    };
    let mut first = build()?;
    let refused = build().err().map(|error| chain(&error));
    first.close()?;
    let free = build().is_ok();
    let text = refused.clone().unwrap_or_else(|| "both were built".into());
    Ok(vec![(name, passed(refused.is_some() && free, text))])
}

fn failing_kernel(subject: &Subject) -> Result<Findings, BoxError> {
    let alone = String::from("a failing kernel costs a child process one item");
    let beside = String::from("a run outlives a GPU that breaks");
    #[cfg(feature = "processes")]
    let verdicts = {
        let (survived, text) = crate::crash::survived(subject.producers(2)?)?;
        let outlived = match subject.is_cpu() {
            true => CheckVerdict::Skipped(ONLY_GPU),
            false => match crate::crash::outlived(subject.producers(1)?) {
                Ok(text) => CheckVerdict::Passed(text),
                Err(error) => CheckVerdict::Failed(chain(&*error)),
            },
        };
        [passed(survived, text), outlived]
    };
    #[cfg(not(feature = "processes"))]
    let verdicts = {
        let _ = subject;
        [(); 2].map(|()| CheckVerdict::Skipped("this build has no feature `processes`"))
    };
    Ok([alone, beside].into_iter().zip(verdicts).collect())
}
