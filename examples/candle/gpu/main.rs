//! Checks every way of using a GPU against the CPU, and measures how busy a real network keeps it:
//! `cargo run --release --features cuda,nvml,transformers --example gpu -- check`
//!
//! Runs on the CPU as well, for what can be checked there: `-- check --devices cpu --size tiny`
//!
//! Exit codes: 0 when all went well; 1 when a check or anything else failed; 2 when the command line is
//! wrong; 3 when `--require-cuda` was given and no such device can be used.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::process::ExitCode;

use gangline::device::candle_threads;
use gangline::{BoxError, Device, Devices, OrderedRunner, map};

use args::{Args, Flag, Usage};

#[expect(dead_code, reason = "`main` of this example starts one of several commands")]
#[path = "../../common/args.rs"]
mod args;
mod check;
#[cfg(feature = "processes")]
mod crash;
#[path = "../common/digits.rs"]
mod digits;
#[path = "../common/embedder.rs"]
mod embedder;
#[path = "../common/encoder.rs"]
mod encoder;
mod load;
mod measure;
mod memory;
mod network;
mod operations;
mod phases;
mod precisions;
#[cfg(feature = "processes")]
mod processes;
#[path = "../common/rng.rs"]
mod rng;
mod table;
mod torch;
#[path = "../common/words.rs"]
mod words;
mod workload;

/// No device as asked for: nothing was checked or measured.
const NO_DEVICE: u8 = 3;

const USAGE: &str = "\
Checks and measures gangline on a GPU.

Commands:
  check      every way of using the device, against the CPU
  measure    items per second and how busy the device is: one at a time, in batches, with several producers
  torch      the same network in PyTorch: whether the outputs agree, and how fast it is

`--help` after a command lists its options. Exit code: 0 all went well, 1 a check failed, 2 wrong command
line, 3 no CUDA device although --require-cuda was given.";

const DEVICES: Flag = Flag {
    name: "--devices",
    value: "LIST",
    help: "such as cuda:0 or cpu (default: the first GPU, else cpu)",
};
const REQUIRE_CUDA: Flag =
    Flag { name: "--require-cuda", value: "", help: "exit with 3 where there is no CUDA device" };

/// What the user may ask for.
struct Command {
    name: &'static str,
    about: &'static str,
    flags: &'static [Flag],
    run: fn(&Args, &Devices) -> Result<ExitCode, BoxError>,
}

const COMMANDS: [Command; 3] = [
    Command {
        name: "check",
        about: "Checks every way of using the devices against the CPU.",
        flags: &[DEVICES, REQUIRE_CUDA, workload::SIZE],
        run: check::run,
    },
    Command {
        name: "measure",
        about: "Measures items per second, and how busy the device is.",
        flags: &[
            DEVICES,
            REQUIRE_CUDA,
            workload::NETWORK,
            workload::SIZE,
            workload::ITEMS,
            workload::SECONDS,
            workload::PRECISION,
            workload::WORKERS,
            torch::PYTHON,
            measure::JSON,
            measure::REPORT,
        ],
        run: measure::run,
    },
    Command {
        name: "torch",
        about: "Runs the same network in PyTorch and compares the outputs.",
        flags: &[
            DEVICES,
            REQUIRE_CUDA,
            workload::NETWORK,
            workload::SIZE,
            workload::ITEMS,
            workload::SECONDS,
            workload::PRECISION,
            workload::WORKERS,
            torch::PYTHON,
        ],
        run: torch::run,
    },
];

fn main() -> ExitCode {
    #[cfg(feature = "processes")]
    gangline::worker_main(&[&crash::LOOKUP, &crash::OUTLIVE, &processes::MEASURED]);
    let mut words = std::env::args().skip(1);
    let name = words.next().unwrap_or_default();
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return no_command(&name);
    };
    args::run(command.about, command.flags, words.collect(), |args| start(command, args))
}

fn no_command(name: &str) -> ExitCode {
    if name == "--help" || name == "-h" {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {name:?} is no command\n\n{USAGE}");
    ExitCode::from(2)
}

fn start(command: &Command, args: &Args) -> Result<ExitCode, BoxError> {
    let devices = args.get("--devices")?.unwrap_or_else(first_gpu_or_cpu);
    candle_threads(&devices)?;
    let requires_cuda = args.get::<String>("--require-cuda")?.is_some();
    if let Some(why) = missing(&devices, requires_cuda) {
        eprintln!("no device: {why}");
        return Ok(ExitCode::from(if requires_cuda { NO_DEVICE } else { 1 }));
    }
    (command.run)(args, &devices)
}

fn first_gpu_or_cpu() -> Devices {
    let available = Devices::available();
    let first = available.places().next().and_then(|place| place.first());
    Devices::from_places([vec![*first.unwrap_or(&Device::Cpu)]]).expect("one place with one device")
}

/// Why the devices cannot be used, if so.
fn missing(devices: &Devices, requires_cuda: bool) -> Option<String> {
    let is_cuda = |place: &[Device]| place.iter().any(|device| matches!(device, Device::Cuda(_)));
    if requires_cuda && !devices.places().any(is_cuda) {
        let built = if cfg!(feature = "cuda") { "" } else { "; this build has no feature `cuda`" };
        return Some(format!("{devices} is no CUDA device{built}"));
    }
    let open = map(|cx| cx.candle_devices().map(drop), |_, (), (): ()| Ok(()));
    OrderedRunner::new(open, devices).err().map(|error| format!("{error:#}"))
}

/// The one device of a list that may have no more.
fn only(devices: &Devices) -> Result<Device, BoxError> {
    let mut places = devices.places();
    match (places.next(), places.next()) {
        (Some(&[device]), None) => Ok(device),
        _ => Err(Usage(format!("--devices {devices}: one device is measured at a time")).into()),
    }
}
