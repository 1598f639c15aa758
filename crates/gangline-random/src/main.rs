//! Runs random compositions of gangline with random faults, and checks what gangline promises.
//!
//! Each case is composed from its seed alone. `--seed N` repeats one; `--seconds S` runs cases until the time is
//! over, and prints the seed of each that broke a law.

#![expect(clippy::print_stdout, reason = "what it prints is its purpose")]

#[cfg(target_os = "linux")]
mod cluster;
mod inputs;
mod item;
mod laws;
mod live;
mod pipeline;
#[cfg(target_os = "linux")]
mod processes;
mod service;
mod single;
mod watchdog;
mod work;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::laws::Broken;
use crate::watchdog::Watchdog;

/// What a case composes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Single,
    Service,
    Pipeline,
    Processes,
    Cluster,
}

/// What the arguments ask for.
struct Arguments {
    seed: Option<u64>,
    base: u64,
    times: u32,
    limit: Duration,
    only: Option<Kind>,
}

const USAGE: &str = "gangline-random [--seed N [--times T]] [--seconds S [--base N]] [--only KIND]\n\
    KIND: single, service, pipeline, processes or cluster. A cluster needs nats-server, in the PATH or in /usr/sbin";

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    gangline_nats::worker_main(&[&processes::CHORES, &cluster::CLUSTER_CHORES]);
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            println!("{problem}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    watchdog::watch_panics();
    let watchdog = Watchdog::start();
    if !has_broker() {
        println!("nats-server is not installed: there are no clusters");
    }
    let found = match arguments.seed {
        Some(seed) => repeat(&arguments, seed, &watchdog),
        None => run_many(&arguments, &watchdog),
    };
    #[cfg(target_os = "linux")]
    if let Some(faults) = cluster::end() {
        println!("{faults} faults of workers and brokers");
    }
    if found { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs one case, and prints what it composed and what broke. Returns whether a law is broken.
fn repeat(arguments: &Arguments, seed: u64, watchdog: &Watchdog) -> bool {
    let mut found = false;
    for time in 0..arguments.times {
        let (kind, plan, broken) = run_case(seed, arguments.only, watchdog);
        if time == 0 {
            println!("seed {seed}, {kind:?}: {plan}");
        }
        found |= !broken.is_empty();
        for Broken { law, detail } in broken {
            println!("broken in turn {time}: {law}: {detail}");
        }
    }
    found
}

/// Runs cases until the time is over. Returns whether a law is broken.
fn run_many(arguments: &Arguments, watchdog: &Watchdog) -> bool {
    println!("cases from seed {} for {} s", arguments.base, arguments.limit.as_secs());
    let begin = Instant::now();
    let mut counts = BTreeMap::<Kind, u64>::new();
    let mut found = BTreeMap::<&'static str, Vec<u64>>::new();
    let mut seed = arguments.base;
    while begin.elapsed() < arguments.limit {
        let (kind, plan, broken) = run_case(seed, arguments.only, watchdog);
        *counts.entry(kind).or_default() += 1;
        for Broken { law, detail } in broken {
            let seeds = found.entry(law).or_default();
            if seeds.len() < 3 && seeds.last() != Some(&seed) {
                println!("broken with --seed {seed}: {law}: {detail}\n  {kind:?}: {plan}");
            }
            seeds.push(seed);
        }
        seed = seed.wrapping_add(1);
    }
    println!("{} cases: {counts:?}", counts.values().sum::<u64>());
    for (law, seeds) in &found {
        println!("{law}: {} times; repeat with --seed {}", seeds.len(), seeds[0]);
    }
    !found.is_empty()
}

fn run_case(seed: u64, only: Option<Kind>, watchdog: &Watchdog) -> (Kind, String, Vec<Broken>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let kind = match random.u32(0..1000) {
        _ if only.is_some() => only.unwrap_or(Kind::Single),
        // A case of a cluster takes seconds, any other one milliseconds.
        0..3 if has_broker() => Kind::Cluster,
        0..450 => Kind::Single,
        450..650 => Kind::Service,
        650..970 => Kind::Pipeline,
        _ => Kind::Processes,
    };
    watchdog.begin(seed, kind == Kind::Cluster);
    let run = match kind {
        Kind::Service => service::run,
        Kind::Pipeline => pipeline::run,
        #[cfg(target_os = "linux")]
        Kind::Processes => processes::run,
        #[cfg(target_os = "linux")]
        Kind::Cluster => cluster::run,
        _ => single::run,
    };
    let came = catch_unwind(AssertUnwindSafe(|| run(&mut random)));
    watchdog.end();
    let (plan, mut broken) = came.unwrap_or_else(|_| {
        let detail = "the thread of the run panicked".to_owned();
        (String::new(), vec![Broken { law: "no panic reaches the caller", detail }])
    });
    broken.extend(watchdog::unexpected_panics());
    (kind, plan, broken)
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let limit = Duration::from_secs(30);
        let mut all = Arguments { seed: None, base: 1, times: 1, limit, only: None };
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            let number =
                || value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
            match word.as_str() {
                "--seed" => all.seed = Some(number()?),
                "--base" => all.base = number()?,
                "--times" => all.times = number()?.try_into().unwrap_or(u32::MAX),
                "--seconds" => all.limit = Duration::from_secs(number()?),
                "--only" => all.only = Some(kind(&value)?),
                _ => return Err(format!("unknown argument {word}")),
            }
        }
        Ok(all)
    }
}

fn kind(name: &str) -> Result<Kind, String> {
    match name {
        "single" => Ok(Kind::Single),
        "service" => Ok(Kind::Service),
        "pipeline" => Ok(Kind::Pipeline),
        "processes" => Ok(Kind::Processes),
        "cluster" if has_broker() => Ok(Kind::Cluster),
        _ => Err(format!("unknown kind {name}")),
    }
}

/// Whether cases of clusters can run here.
fn has_broker() -> bool {
    #[cfg(target_os = "linux")]
    return cluster::live_cluster::nats_server().is_some();
    #[cfg(not(target_os = "linux"))]
    return false;
}
