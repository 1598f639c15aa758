//! Reads handwritten digits on all devices, in order: `cargo run --release --example digits -- --devices 'cpu*2'`
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use candle_core::DType;
use gangline::device::candle_threads;
use gangline::{
    BoxError, ConsumerContext, Device, Devices, OrderedRunner, ProducerContext, Result, Runner,
};

use args::{Args, Flag};
use digits::{Digit, FIRST_HELD_OUT, Net, SIDE, data_file, images, read_digits, read_file};

#[path = "../common/args.rs"]
mod args;
#[path = "common/digits.rs"]
mod digits;

const FLAGS: &[Flag] = &[
    Flag {
        name: "--devices",
        value: "LIST",
        help: "such as cpu*4, cuda:all or cuda:0|cpu (default: all)",
    },
    Flag { name: "--batch", value: "N", help: "digits in one item (default: 1)" },
    Flag { name: "--data", value: "FILE", help: "default: examples/data/digits.csv" },
    Flag { name: "--weights", value: "FILE", help: "default: examples/data/digits.safetensors" },
];

/// Less than this is no reading.
const LEAST_ACCURACY: f64 = 97.0;

/// How many misread digits fit side by side into 80 columns.
const DRAWN: usize = 4;

struct Reader {
    /// The safetensors file, for each producer to load on its own device.
    weights: Vec<u8>,
}

/// What a producer keeps: its device, and the network on it.
struct Desk {
    device: candle_core::Device,
    net: Net,
}

/// One item, read: which producer did it and how long it took goes along.
struct Answer {
    worker: usize,
    device: Device,
    readings: Vec<Reading>,
    busy: Duration,
}

struct Reading {
    digit: Digit,
    read_as: u32,
}

impl Reading {
    fn is_right(&self) -> bool {
        self.digit.label == self.read_as
    }
}

/// What one producer did.
struct Share {
    device: Device,
    items: usize,
    digits: usize,
    right: usize,
    busy: Duration,
}

/// What the consumer gathers.
#[derive(Default)]
struct Tally {
    readings: Vec<Reading>,
    shares: BTreeMap<usize, Share>,
}

impl Runner for Reader {
    type Input = Vec<Digit>;
    type Output = Answer;
    type ProducerState = Desk;
    type ConsumerState = Tally;
    type Summary = Tally;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Desk> {
        let device = cx.candle_device()?;
        let net = Net::new(cx.var_builder([&self.weights], DType::F32)?)?;
        // The first use of a GPU compiles its kernels: now, and not within the first item.
        let blank = [0.0; SIDE * SIDE];
        net.read(&images([blank.as_slice()].into_iter(), &device)?)?;
        Ok(Desk { device, net })
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        desk: &mut Desk,
        digits: Vec<Digit>,
    ) -> Result<Answer> {
        let start = Instant::now();
        let pixels = digits.iter().map(|digit| digit.pixels.as_slice());
        let read = desk.net.read(&images(pixels, &desk.device)?)?;
        let busy = start.elapsed();
        let readings =
            digits.into_iter().zip(read).map(|(digit, read_as)| Reading { digit, read_as });
        Ok(Answer {
            worker: cx.producer(),
            device: *cx.device(),
            readings: readings.collect(),
            busy,
        })
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Tally> {
        Ok(Tally::default())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        tally: &mut Tally,
        answer: Answer,
    ) -> Result<()> {
        tally.add(answer);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, tally: Tally) -> Result<Tally> {
        Ok(tally)
    }
}

impl Share {
    fn none(device: Device) -> Self {
        Share { device, items: 0, digits: 0, right: 0, busy: Duration::ZERO }
    }
}

impl Tally {
    fn add(&mut self, answer: Answer) {
        let share = self.shares.entry(answer.worker).or_insert(Share::none(answer.device));
        share.items += 1;
        share.digits += answer.readings.len();
        share.right += answer.readings.iter().filter(|reading| reading.is_right()).count();
        share.busy += answer.busy;
        self.readings.extend(answer.readings);
    }

    fn accuracy(&self) -> f64 {
        let right = self.readings.iter().filter(|reading| reading.is_right()).count();
        100.0 * right as f64 / self.readings.len() as f64
    }

    fn is_in_order(&self) -> bool {
        let rows = self.readings.iter().map(|reading| reading.digit.row);
        rows.eq(FIRST_HELD_OUT..FIRST_HELD_OUT + self.readings.len())
    }
}

fn main() -> ExitCode {
    args::main("Reads the handwritten digits that were held out of training.", FLAGS, read)
}

fn read(args: &Args) -> Result<(), BoxError> {
    let devices: Devices = args.get("--devices")?.unwrap_or_else(Devices::available);
    candle_threads(&devices)?;
    devices.fallbacks().iter().for_each(|fallback| eprintln!("{fallback}"));
    let batch = args.get::<NonZeroUsize>("--batch")?.map_or(1, NonZeroUsize::get);
    let data = args.get::<PathBuf>("--data")?.unwrap_or_else(|| data_file("digits.csv"));
    let weights = args.get("--weights")?.unwrap_or_else(|| data_file("digits.safetensors"));

    let (_, held_out) = read_digits(&data)?;
    let mut runner = OrderedRunner::new(Reader { weights: checked_weights(&weights)? }, devices)?;
    let start = Instant::now();
    let tally = runner.run(held_out.chunks(batch).map(<[Digit]>::to_vec))?;
    let took = start.elapsed();
    runner.close()?;

    assert_eq!(tally.readings.len(), held_out.len());
    assert!(tally.is_in_order());
    // All at once: `| head -1` then gets its line without a broken pipe here.
    print!("{}", report(&tally, took));
    if tally.accuracy() < LEAST_ACCURACY {
        return Err(format!("expected an accuracy of {LEAST_ACCURACY} % or more").into());
    }
    Ok(())
}

/// Loads the weights once here: an error names the file before any device is opened.
fn checked_weights(path: &Path) -> Result<Vec<u8>, BoxError> {
    let weights = read_file(path)?;
    let tried = Net::load(&weights, &candle_core::Device::Cpu);
    tried.map_err(|e| format!("{} does not fit the network: {e}", path.display()))?;
    Ok(weights)
}

fn report(tally: &Tally, took: Duration) -> String {
    let wrong: Vec<_> = tally.readings.iter().filter(|reading| !reading.is_right()).collect();
    let items: usize = tally.shares.values().map(|share| share.items).sum();
    let (seconds, digits) = (took.as_secs_f64(), tally.readings.len());
    let rate = items as f64 / seconds;
    [
        format!("accuracy {:.1} %\n", tally.accuracy()),
        format!("{digits} digits, {} wrong\n", wrong.len()),
        format!("{items} items in {seconds:.3} s, {rate:.0} items/s\n\n"),
        table(&tally.shares),
        String::from("\n"),
        drawing(&wrong[..wrong.len().min(DRAWN)]),
    ]
    .concat()
}

fn table(shares: &BTreeMap<usize, Share>) -> String {
    let mut text = String::from("producer  device   items  digits  right  busy\n");
    for (worker, Share { device, items, digits, right, busy }) in shares {
        let (device, busy) = (device.to_string(), busy.as_secs_f64());
        text += &format!("{worker:>8}  {device:<7}{items:>7}{digits:>8}{right:>7}  {busy:.3} s\n");
    }
    text
}

/// The images side by side, each pixel two letters wide, with what they are below.
fn drawing(readings: &[&Reading]) -> String {
    let mut text = String::new();
    for y in 0..SIDE {
        let rows = readings.iter().map(|reading| shades(&reading.digit.pixels[y * SIDE..][..SIDE]));
        text += &line(rows);
    }
    text + &line(readings.iter().map(|r| format!("is {}, read as {}", r.digit.label, r.read_as)))
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let line: String = cells.map(|cell| format!("{cell:<20}")).collect();
    format!("{}\n", line.trim_end())
}

fn shades(pixels: &[f32]) -> String {
    const SHADES: &[u8] = b" .:-=+*#%@";
    let shade = |ink: &f32| SHADES[(ink * (SHADES.len() - 1) as f32).round() as usize] as char;
    pixels.iter().map(shade).flat_map(|shade| [shade, shade]).collect()
}
