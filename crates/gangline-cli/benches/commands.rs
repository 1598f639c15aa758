//! Compares `gangline run` with other programs that start commands:
//! `cargo bench -p gangline-cli --bench commands`
//!
//! Prints the median over rounds of the ratio within a round. GNU parallel is skipped if it is not installed.
#![expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]

use std::fs;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const GANGLINE: &str = env!("CARGO_BIN_EXE_gangline");

/// Jobs per round.
const JOBS: u32 = 1_000;
const ROUNDS: usize = 7;

/// Inputs of a warm worker per round.
const INPUTS: u32 = 10_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|word| word == "--worker") {
        return work();
    }
    // `cargo test --benches` only checks that it starts.
    if !arguments.iter().any(|word| word == "--bench") {
        return Ok(());
    }
    starting()?;
    two_workers()?;
    many_slots()?;
    warm_worker()?;
    journal()?;
    memory()
}

/// Starts and reaps `true`, two at a time.
fn starting() -> Result<(), Box<dyn std::error::Error>> {
    let gangline = || format!("seq {JOBS} | {GANGLINE} run -j2 -- true");
    let xargs = || format!("seq {JOBS} | xargs -P2 -n1 true");
    let parallel = || format!("seq {} | parallel -j2 true", JOBS / 10);
    let has_parallel = time("parallel --version").is_ok();
    let (mut ours, mut to_xargs, mut to_parallel) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let own = time(&gangline())?.as_secs_f64() / f64::from(JOBS);
        ours.push(own);
        to_xargs.push(own / (time(&xargs())?.as_secs_f64() / f64::from(JOBS)));
        if has_parallel {
            to_parallel.push(own / (time(&parallel())?.as_secs_f64() / f64::from(JOBS / 10)));
        }
    }
    println!("`true`, two at a time: {:.0} us a job", median(&mut ours) * 1e6);
    println!("  of the time of xargs -P2 -n1: {:.2} (promised: 1.1)", median(&mut to_xargs));
    match has_parallel {
        true => {
            println!(
                "  of the time of GNU parallel: {:.3} (promised: 0.2)",
                median(&mut to_parallel)
            );
        }
        false => println!("  GNU parallel is not installed"),
    }
    Ok(())
}

fn two_workers() -> Result<(), Box<dyn std::error::Error>> {
    let command = format!("{GANGLINE} run -j2 -- sh -c 'sleep 0.05' sh {{}} ::: 1 2 3 4 5 6");
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| time(&command).map(|time| time.as_secs_f64()))
        .collect::<io::Result<_>>()?;
    println!("6 jobs of 50 ms on 2 workers: {:.0} ms (promised: 300)", median(&mut times) * 1e3);
    Ok(())
}

/// Half a thousand jobs of a second, all at once.
fn many_slots() -> Result<(), Box<dyn std::error::Error>> {
    let gangline = time(&format!("seq 500 | {GANGLINE} run -j500 --shell 'sleep 1'"))?;
    println!("500 jobs of 1 s at once: {:.1} s", gangline.as_secs_f64());
    let xargs = time("seq 500 | xargs -P500 -n1 sh -c 'sleep 1; true'")?;
    println!("  xargs -P500 -n1: {:.1} s", xargs.as_secs_f64());
    if time("parallel --version").is_ok() {
        let parallel = time("seq 500 | parallel -j500 'sleep 1; true'")?;
        println!("  GNU parallel: {:.1} s", parallel.as_secs_f64());
    }
    Ok(())
}

/// Times an input to a warm worker and its answer, and compares it with a loop that writes and reads a line.
fn warm_worker() -> Result<(), Box<dyn std::error::Error>> {
    let own = std::env::current_exe()?;
    let command = format!("seq {INPUTS} | {GANGLINE} run -j1 --warm -- {} --worker", own.display());
    let (mut ours, mut to_bare) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let time = time(&command)?.as_secs_f64() / f64::from(INPUTS);
        ours.push(time);
        to_bare.push(time / (converse(&own)?.as_secs_f64() / f64::from(INPUTS)));
    }
    println!("an input to a warm worker: {:.0} us", median(&mut ours) * 1e6);
    println!("  of the time of a bare loop: {:.2}", median(&mut to_bare));
    Ok(())
}

/// Times a loop that writes a line to the worker and waits for its answer.
fn converse(worker: &Path) -> io::Result<Duration> {
    let start = Instant::now();
    let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
    let mut child = Command::new(worker).arg("--worker").stdin(stdin).stdout(stdout).spawn()?;
    let (mut stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let mut answers = stdout.map(io::BufReader::new).into_iter().flat_map(BufRead::lines);
    for item in 0..INPUTS {
        if let Some(stdin) = &mut stdin {
            stdin.write_all(format!("{{\"item\":{item},\"input\":\"{item}\"}}\n").as_bytes())?;
        }
        answers.next().transpose()?;
    }
    drop(stdin);
    child.wait()?;
    Ok(start.elapsed())
}

/// Compares runs with a journal and without: of warm workers that get lists or single inputs, and of commands.
fn journal() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let journal = folder.path().join("journal");
    let own = std::env::current_exe()?;
    let worker = format!("-- {} --worker", own.display());
    for (what, inputs, command) in [
        ("an input in a list of 64", 10 * INPUTS, format!("--warm --batch 64 {worker}")),
        ("an input to a warm worker", INPUTS, format!("--warm {worker}")),
        ("`true`", JOBS, "-- true".to_owned()),
    ] {
        let run =
            |option: &str| time(&format!("seq {inputs} | {GANGLINE} run -j2 {option} {command}"));
        let mut ratios = Vec::new();
        for _ in 0..ROUNDS {
            let without = run("")?;
            let with = run(&format!("--journal {}", journal.display()))?;
            ratios.push(with.as_secs_f64() / without.as_secs_f64());
            fs::remove_file(&journal)?;
        }
        println!(
            "{what} with a journal, of the time without: {:.2} (promised: 1.5)",
            median(&mut ratios)
        );
    }
    Ok(())
}

/// The peak memory of the process that runs the jobs, for few and for many inputs to warm workers.
fn memory() -> Result<(), Box<dyn std::error::Error>> {
    let (few, many) = (peak(10_000)?, peak(1_000_000)?);
    println!("peak memory: {few} KiB for 10,000 inputs, {many} KiB for 1,000,000");
    Ok(())
}

fn peak(inputs: u32) -> Result<u64, Box<dyn std::error::Error>> {
    let mut list = tempfile::NamedTempFile::new()?;
    for number in 0..inputs {
        writeln!(list, "{number}")?;
    }
    let list = list.into_temp_path();
    let own = std::env::current_exe()?;
    // `exec` replaces the supervisor, so that the working process is our child.
    let mut child = Command::new(GANGLINE)
        .args(["--supervisor", &std::process::id().to_string(), "run", "-j2", "--warm", "--input"])
        .arg(&list)
        .arg("--")
        .arg(own)
        .arg("--worker")
        .stdout(Stdio::null())
        .spawn()?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        peak = fs::read_to_string(&status).ok().and_then(|text| high_water(&text)).unwrap_or(peak);
        thread::sleep(Duration::from_millis(20));
    }
    match child.wait()?.success() {
        true => Ok(peak),
        false => Err("the run failed".into()),
    }
}

fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// A warm worker that returns its inputs.
fn work() -> Result<(), Box<dyn std::error::Error>> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let message: serde_json::Value = serde_json::from_str(&line?)?;
        let one = message.get("item").map(|_| std::slice::from_ref(&message));
        let list = message.get("items").and_then(serde_json::Value::as_array);
        match one.or(list.map(Vec::as_slice)) {
            Some(items) => items.iter().try_for_each(|it| {
                let answer = serde_json::json!({ "item": it["item"], "output": it["input"] });
                writeln!(stdout, "{answer}")
            })?,
            None => writeln!(
                stdout,
                "{}",
                serde_json::json!({ "gangline": 2, "batch": message["batch"] != 1 })
            )?,
        }
        stdout.flush()?;
    }
    Ok(())
}

fn time(script: &str) -> io::Result<Duration> {
    let started = Instant::now();
    let status = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    match status.success() {
        true => Ok(started.elapsed()),
        false => Err(io::Error::other(format!("`{script}` failed"))),
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
