//! A run that can be ended at any moment, and goes on where it was: `cargo run --release --example resume`
//!
//! Press Ctrl-C, kill it, pull the plug; then start it again with the same options. The file that it writes is
//! in the end what one run would have written that nothing has disturbed.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

#[path = "common/args.rs"]
mod args;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gangline::{BoxError, Journal, OrderedRunner, Result, map, sink};

use crate::args::{Args, Flag};

/// The size of an item in numbers: some milliseconds of work.
const BLOCK: u64 = 5_000;

const FLAGS: &[Flag] = &[
    Flag { name: "--items", value: "N", help: "how many blocks of numbers (4000)" },
    Flag {
        name: "--output",
        value: "FILE",
        help: "the lines; the journal is beside it (in the folder for temporary files)",
    },
];

/// The number of a block that has the longest Collatz sequence, as a line.
fn longest(block: u64) -> String {
    let numbers = 1 + block * BLOCK..=(block + 1) * BLOCK;
    let (steps, number) =
        numbers.map(|number| (steps_of(number), number)).max().unwrap_or_default();
    format!("{block} {number} {steps}")
}

fn steps_of(number: u64) -> u32 {
    let next = |x: &u64| (*x > 1).then(|| if x.is_multiple_of(2) { x / 2 } else { 3 * x + 1 });
    std::iter::successors(Some(number), next).count() as u32 - 1
}

fn main() -> ExitCode {
    let about = "Finds long Collatz sequences, in a run that can be killed and started again.";
    args::main(about, FLAGS, resume)
}

fn resume(args: &Args) -> Result<(), BoxError> {
    let items: u64 = args.get("--items")?.unwrap_or(4_000);
    let in_temp = || std::env::temp_dir().join("gangline-resume.txt");
    let path: PathBuf = args.get("--output")?.unwrap_or_else(in_temp);
    let journal = path.with_extension("journal");
    println!("writing {}; end it as you like, and start it again", path.display());

    let lines = map(|_| Ok(()), |_, (), block| Ok(longest(block))).sink(sink::lines(&path));
    let mut runner = OrderedRunner::builder(lines)
        .journal(Journal::at(&journal).runner("longest", "1").resume())
        .build()?;
    let (result, report) = runner.run_with_report(0..items);
    println!("{report}");
    result?;
    check(&path, items)?;
    println!("all {items} lines are there; delete {} to begin again", journal.display());
    Ok(())
}

/// The lines are those of all blocks, in order.
fn check(path: &Path, items: u64) -> Result<()> {
    let mut lines = BufReader::new(File::open(path)?).lines();
    for block in 0..items {
        let line = lines.next().ok_or("the file is too short")??;
        if line.split(' ').next() != Some(&*block.to_string()) {
            return Err(format!("the line of block {block} is missing").into());
        }
    }
    match lines.next() {
        Some(line) => Err(format!("a line is there twice: {}", line?).into()),
        None => Ok(()),
    }
}
