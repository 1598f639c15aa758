//! Compares gangline with its peers in one run on one machine: `cargo bench -p gangline-bench --bench peers`. With
//! `-- --help` it prints its options. docs/performance-internals.md explains the output.
//!
//! Timings are printed and never asserted; a wrong sum panics.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the figures are for its user")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod busy;
mod calls;
#[path = "../chart/mod.rs"]
mod chart;
mod contest;
mod effort;
mod gangs;
mod idle;
mod machine;
mod many;
mod memory;
mod observed;
mod options;
mod ownership;
mod pause;
mod plot;
mod processor;
mod promises;
mod report;
mod skew;
mod slow_item;
mod speedup;
mod subject;
mod subjects;
mod throughput;
mod work;

use std::alloc::System;
use std::process::ExitCode;

use gangline::BoxError;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

use crate::effort::Effort;
use crate::options::{Command, Options, Section};
use crate::report::Report;

/// Counts allocations, for all subjects alike, at little cost. The channels' map, which allocates most, does
/// so for one item in seven, on one thread only.
#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() -> ExitCode {
    match options::parse(std::env::args().skip(1)) {
        Ok(Command::Measure(options)) => end(measure(&options)),
        Ok(Command::PeakMemory(items)) => end(memory::report_own_peak(items)),
        Ok(Command::PeakMemoryOfCalls(calls)) => end(memory::report_own_peak_of_calls(calls)),
        Ok(Command::BusyLoop) => busy::compute_until_input_ends(),
        Ok(Command::Nothing) => ExitCode::SUCCESS,
        Ok(Command::Help) => {
            println!("{}", options::HELP);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}\n\n{}", options::HELP);
            ExitCode::from(2)
        }
    }
}

fn measure(options: &Options) -> Result<(), BoxError> {
    let mut report = Report::default();
    machine::describe(options, &mut report);
    for section in &options.sections {
        match section {
            Section::Throughput => throughput::measure(options, &mut report)?,
            Section::Speedup => speedup::measure(options, &mut report)?,
            Section::SlowItem => slow_item::measure(options, &mut report)?,
            Section::Many => many::measure(options, &mut report)?,
            Section::Pause => pause::measure(options, &mut report)?,
            Section::Skew => skew::measure(options, &mut report)?,
            Section::Idle => idle::measure(options, &mut report)?,
            Section::Busy => busy::measure(options, &mut report)?,
            Section::Ownership => ownership::measure(options, &mut report)?,
            Section::Observed => observed::measure(options, &mut report)?,
            Section::Calls => calls::measure(options, &mut report)?,
            Section::Memory => memory::measure(options, &mut report)?,
        }
    }
    // A smoke run neither keeps nor breaks promises.
    if options.effort != Effort::Smoke {
        report.conclude();
    }
    match &options.markdown {
        Some(path) => report.save(path),
        None => Ok(()),
    }
}

fn end(result: Result<(), BoxError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
