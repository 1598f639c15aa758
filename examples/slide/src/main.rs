//! Probability maps of whole slides, with a model of yours: see README.md beside this package.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

mod job;
mod make;
mod map;
mod model;
mod onnx;
mod options;
mod regions;
mod slide;
mod tiled;
mod tissue;

use std::fs::File;
use std::process::ExitCode;

use clap::Parser;
use gangline::Result;

use self::options::{Command, Options};

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Make(made) => make::make(&made).map(|()| ExitCode::SUCCESS),
        Command::Run(options) => run(*options),
    };
    done.unwrap_or_else(|e| {
        eprintln!("error: {e}");
        ExitCode::FAILURE
    })
}

fn run(options: Options) -> Result<ExitCode> {
    options.check();
    let slides = job::slides_in(&options.slides)?;
    if let Some(path) = &options.report {
        // Now: after hours of work the report would be lost.
        File::options().append(true).create(true).open(path).map_err(|e| job::at(path, &e))?;
    }
    model::load_runtime(options.onnxruntime.clone())?;
    std::fs::create_dir_all(&options.output).map_err(|e| job::at(&options.output, &e))?;
    let (batch, path) = (options.batch, options.report.clone());
    let (report, batches) = job::run(slides, options)?;
    if let Some(path) = path {
        let text = match path.extension().and_then(|kind| kind.to_str()) {
            Some("html") => report.to_html(),
            Some("json") => report.to_json(),
            _ => report.to_string(),
        };
        std::fs::write(&path, text).map_err(|e| job::at(&path, &e))?;
    }
    let (ok, earlier, failed) =
        (report.account.ok, report.account.already_done, report.account.failed);
    println!("{ok} slides written, {earlier} written earlier, {failed} failed");
    if let (Some(size), 1..) = (batch, batches.count) {
        let full = 100.0 * batches.tiles as f64 / (batches.count * size.get() as u64) as f64;
        let job::Batches { tiles, count } = batches;
        println!("{tiles} tiles in {count} batches of at most {size}: {full:.1} % full");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
