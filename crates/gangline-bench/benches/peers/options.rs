//! The command line.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use gangline::BoxError;

use crate::effort::Effort;
use crate::work::Amount;

pub const HELP: &str = "\
cargo bench -p gangline-bench --bench peers -- [OPTIONS]

Measures gangline beside other libraries, prints tables, and ends with the promises that the measured rows and
sections can judge. Run it on a quiet machine with at least two cores.

  --quick            fewer rounds and items than the full 15 minutes
  --rows LIST        amounts of work per item, for the section throughput (all):
                     none,60ns,1us,10us,10ns,200ns,5us,100us
  --sections LIST    (all) throughput,speedup,slow-item,many,pause,skew,idle,busy,ownership,observed,calls,
                     memory
  --threads N        producers, and threads of the peers (2); most promises are about 2
  --rounds N         rounds of each section (9; quick: 5); the section busy takes at most 5 (quick: 3)
  --out DIR          draw the plots of throughput, speedup and many into this folder, as SVG
  --markdown FILE    write what is printed also into this file
  --help             print this

Relative paths start at the repository's root.";

pub enum Command {
    Measure(Options),
    /// Hidden: the child processes of the memory section.
    PeakMemory(u64),
    PeakMemoryOfCalls(u64),
    /// Hidden: the program that runs beside the subjects of a section.
    BusyLoop,
    /// A test runner asks for a list of tests; the list is empty.
    Nothing,
    Help,
}

pub struct Options {
    pub effort: Effort,
    pub amounts: Vec<Amount>,
    pub sections: Vec<Section>,
    pub threads: usize,
    pub rounds: usize,
    pub out: Option<PathBuf>,
    pub markdown: Option<PathBuf>,
}

#[derive(Clone, Copy)]
pub enum Section {
    Throughput,
    Speedup,
    SlowItem,
    Many,
    Pause,
    Skew,
    Idle,
    Busy,
    Ownership,
    Observed,
    Calls,
    Memory,
}

pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Command, BoxError> {
    let mut typed = Typed::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--bench" => typed.bench = true,
            "--test" => typed.test = true,
            "--quick" => typed.quick = true,
            "--rows" => typed.amounts = Some(list(&value()?)?),
            "--sections" => typed.sections = Some(list(&value()?)?),
            "--threads" => typed.threads = Some(positive(&value()?)?),
            "--rounds" => typed.rounds = Some(positive(&value()?)?),
            "--out" => typed.out = Some(in_repository(&value()?)),
            "--markdown" => typed.markdown = Some(in_repository(&value()?)),
            "--peak-memory" => return Ok(Command::PeakMemory(value()?.parse()?)),
            "--peak-memory-of-calls" => {
                return Ok(Command::PeakMemoryOfCalls(value()?.parse()?));
            }
            "--busy-loop" => return Ok(Command::BusyLoop),
            "--list" => return Ok(Command::Nothing),
            "--help" | "-h" => return Ok(Command::Help),
            other => return Err(format!("unknown option {other:?}").into()),
        }
    }
    Ok(Command::Measure(typed.into_options()))
}

#[derive(Default)]
struct Typed {
    bench: bool,
    test: bool,
    quick: bool,
    amounts: Option<Vec<Amount>>,
    sections: Option<Vec<Section>>,
    threads: Option<usize>,
    rounds: Option<usize>,
    out: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

impl Typed {
    fn into_options(self) -> Options {
        let effort = self.effort();
        Options {
            effort,
            amounts: self.amounts.unwrap_or_else(|| Amount::ALL.to_vec()),
            sections: self.sections.unwrap_or_else(|| Section::ALL.to_vec()),
            threads: self.threads.unwrap_or(2),
            rounds: self.rounds.unwrap_or(effort.rounds()),
            out: self.out,
            markdown: self.markdown,
        }
    }

    /// `cargo bench` passes `--bench`, `cargo test --benches` passes nothing.
    fn effort(&self) -> Effort {
        match (self.bench && !self.test, self.quick) {
            (false, _) => Effort::Smoke,
            (true, true) => Effort::Quick,
            (true, false) => Effort::Full,
        }
    }
}

impl Section {
    const ALL: [Self; 12] = [
        Self::Throughput,
        Self::Speedup,
        Self::SlowItem,
        Self::Many,
        Self::Pause,
        Self::Skew,
        Self::Idle,
        Self::Busy,
        Self::Ownership,
        Self::Observed,
        Self::Calls,
        Self::Memory,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Throughput => "throughput",
            Self::Speedup => "speedup",
            Self::SlowItem => "slow-item",
            Self::Many => "many",
            Self::Pause => "pause",
            Self::Skew => "skew",
            Self::Idle => "idle",
            Self::Busy => "busy",
            Self::Ownership => "ownership",
            Self::Observed => "observed",
            Self::Calls => "calls",
            Self::Memory => "memory",
        }
    }
}

impl FromStr for Section {
    type Err = BoxError;

    fn from_str(text: &str) -> Result<Self, BoxError> {
        let named = Self::ALL.into_iter().find(|section| section.name() == text);
        named.ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            format!("no section is called {text:?}; there are {all}").into()
        })
    }
}

fn list<T: FromStr<Err = BoxError>>(text: &str) -> Result<Vec<T>, BoxError> {
    text.split(',').map(|word| word.trim().parse()).collect()
}

/// Cargo starts a benchmark in the folder of its package; a relative path is meant from the repository's root.
fn in_repository(path: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path)
}

fn positive(text: &str) -> Result<usize, BoxError> {
    Ok(text.parse::<NonZero<usize>>().map_err(|error| format!("{text:?}: {error}"))?.get())
}
