//! Reads handwritten digits on several workers, of which one is killed:
//! `cargo run --release --features nats --example cluster -- --workers 3`
//!
//! It starts a broker if `nats-server` is installed, a package of most distributions. On several machines the broker is
//! started by hand, and so are the workers: see docs/cluster.md.
#![cfg_attr(not(target_os = "linux"), expect(unused, reason = "a cluster needs Linux"))]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use candle_core::Device;
use gangline::closures::FnMap;
use gangline::{BoxError, CfgNode, ProducerContext, Result, map};

use args::{Args, Flag};
use digits::{FIRST_HELD_OUT, Net, data_file, images, read_digits, read_file};

#[path = "../common/args.rs"]
mod args;
#[path = "common/digits.rs"]
mod digits;

const FLAGS: &[Flag] =
    &[Flag { name: "--workers", value: "N", help: "one of several is killed (default: 3)" }];

/// Less than this is no reading.
const LEAST_ACCURACY: f64 = 97.0;

/// What a producer keeps: its device, and the network on it.
type Desk = (Device, Net);
/// The digit that an image is taken for, and the process that has read it.
type Reading = (u32, u32);
type Reader = FnMap<Desk, Vec<f32>, Reading>;

/// In a worker, for each of its devices: the configuration says where the weights are.
fn init(cx: &ProducerContext<'_>) -> Result<Desk> {
    let weights = read_file(&cx.cfg().get::<PathBuf>("weights")?)?;
    let device = cx.candle_device()?;
    let net = Net::load(&weights, &device)?;
    Ok((device, net))
}

fn work(_: &ProducerContext<'_>, (device, net): &mut Desk, pixels: Vec<f32>) -> Result<Reading> {
    let read = net.read(&images([pixels.as_slice()].into_iter(), device)?)?;
    Ok((read[0], std::process::id()))
}

fn make(_: &CfgNode) -> Result<Reader> {
    Ok(map(init, work))
}

/// A process that ends with its value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[cfg(target_os = "linux")]
static READER: gangline::process::Recipe<Reader> =
    gangline::process::Recipe::new("digits", make).version("1");

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    gangline_nats::worker_main(&[&READER]);
    args::main("Reads the held-out digits on workers of a cluster.", FLAGS, read)
}

#[cfg(target_os = "linux")]
fn read(args: &Args) -> Result<(), BoxError> {
    use gangline::OrderedRunner;
    use gangline_nats::{ClusterBuilder, Nats};

    let workers = args.get("--workers")?.unwrap_or(3);
    let (_, held_out) = read_digits(&data_file("digits.csv"))?;
    let cfg = CfgNode::new().with("weights", data_file("digits.safetensors"))?;
    let folder = tempfile::tempdir()?;
    let (_broker, url) = start_broker(folder.path())?;
    let mut fleet = Vec::new();
    for _ in 0..workers {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.env("GANGLINE_NATS", &url).env("GANGLINE_DEVICES", "cpu");
        fleet.push(start(&mut worker)?);
    }
    let nats = Nats::connect(&url).min_workers(workers).lease_time(Duration::from_secs(2));
    // So that all have something before one is killed.
    let builder = OrderedRunner::builder(make(&cfg)?).cfg(cfg).retries(3).window(24);
    let mut pool = builder.cluster(&READER, nats).build()?;
    println!("{workers} joined");

    let items = held_out.iter().map(|digit| {
        if digit.row == FIRST_HELD_OUT + held_out.len() / 3 && workers > 1 {
            println!("one is killed");
            drop(fleet.pop());
        }
        digit.pixels.clone()
    });
    let readings = pool.run(items)?;
    pool.close()?;
    assert_eq!(readings.len(), held_out.len(), "no digit is lost, and none is there twice");

    // In the order of the input: else few of them would agree.
    let both = held_out.iter().zip(&readings);
    let right = both.filter(|(digit, (read_as, _))| digit.label == *read_as).count();
    let processes: BTreeSet<u32> = readings.iter().map(|(_, process)| *process).collect();
    let accuracy = 100.0 * right as f64 / readings.len() as f64;
    println!("{} digits in order, by {} processes", readings.len(), processes.len());
    println!("accuracy {accuracy:.1} %");
    match accuracy < LEAST_ACCURACY {
        true => Err(format!("expected an accuracy of {LEAST_ACCURACY} % or more").into()),
        false => Ok(()),
    }
}

/// Starts a broker with a folder of its own, and waits until it listens.
fn start_broker(folder: &Path) -> Result<(Running, String), BoxError> {
    // The system chooses a free port.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    // Debian's package puts it where only root looks.
    let found = Path::new("/usr/sbin/nats-server");
    let mut broker = Command::new(if found.exists() { found } else { Path::new("nats-server") });
    broker.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(folder);
    let mut broker = start(broker.stderr(Stdio::null()))?;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        if let Some(status) = broker.0.try_wait()? {
            return Err(format!("the broker has ended: {status}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((broker, format!("nats://127.0.0.1:{port}")))
}

fn start(command: &mut Command) -> Result<Running, BoxError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).spawn();
    Ok(Running(child.map_err(|error| format!("{name} cannot be started: {error}"))?))
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("a cluster needs Linux");
}
