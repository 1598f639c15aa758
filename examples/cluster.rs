//! A broker, three workers of which one is killed, and a run that goes on:
//! `cargo run --features nats --example cluster -- --workers 3`
//!
//! The broker is `nats-server`, a package of most distributions. On several machines it is started by hand, and so
//! are the workers: see docs/cluster.md.
#![cfg_attr(not(target_os = "linux"), expect(unused, reason = "a cluster needs Linux"))]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gangline::closures::FnMap;
use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};

/// On each device, once: here a model would be loaded.
fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

/// Squares a number, and says which process it was.
fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<(u64, u32)> {
    std::thread::sleep(Duration::from_millis(5)); // a model at work
    Ok((x * x, std::process::id()))
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

fn start(command: &mut Command) -> Result<Running> {
    let name = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).spawn();
    Ok(Running(child.map_err(|error| format!("{name} cannot be started: {error}"))?))
}

#[cfg(target_os = "linux")]
fn main() -> Result<()> {
    use gangline::cluster::Nats;
    use gangline::process::Recipe;

    type Squares = FnMap<(), u64, (u64, u32)>;
    fn make(_: &CfgNode) -> Result<Squares> {
        Ok(map(init, work))
    }
    static SQUARES: Recipe<Squares> = Recipe::new("squares", make);
    gangline::worker_main(&[&SQUARES]);

    let workers = workers_asked_for()?;
    let folder = tempfile::tempdir()?;
    // The system chooses a free port.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let url = format!("nats://127.0.0.1:{port}");
    let mut broker = Command::new("nats-server");
    broker.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(folder.path());
    let _broker = start(broker.stderr(Stdio::null()))?;
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        std::thread::sleep(Duration::from_millis(10));
    }

    let mut fleet = Vec::new();
    for _ in 0..workers {
        let mut worker = Command::new(std::env::current_exe()?);
        worker.env("GANGLINE_NATS", &url).env("GANGLINE_DEVICES", "cpu");
        fleet.push(start(&mut worker)?);
    }
    let nats = Nats::connect(&url).min_workers(workers).lease_time(Duration::from_secs(2));
    let builder = OrderedRunner::builder(make(&CfgNode::new())?).retries(3);
    let mut pool = builder.cluster(&SQUARES, nats).build()?;
    println!("{workers} workers have joined");

    let items = (0..600).inspect(|&x| {
        if x == 300 && workers > 1 {
            println!("one is killed");
            drop(fleet.pop());
        }
    });
    let squares = pool.run(items)?;
    let expected = (0..600).map(|x: u64| x * x);
    assert!(squares.iter().map(|it| it.0).eq(expected), "each is there once, in order");
    let mut processes: Vec<_> = squares.iter().map(|it| it.1).collect();
    processes.sort_unstable();
    processes.dedup();
    println!("600 items are done, in order, by {} workers", processes.len());
    Ok(pool.close()?)
}

/// The number behind `--workers`; 3 without it.
fn workers_asked_for() -> Result<usize> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(3),
        ["--workers", number] => Ok(number.parse()?),
        _ => Err("the only option is `--workers 3`".into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("a cluster needs Linux");
}
