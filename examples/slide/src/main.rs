//! Probability maps of whole slides, with a model of yours: see README.md beside this package.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

mod job;
mod map;
mod model;
mod options;
mod slide;
mod tables;
mod tissue;

use std::fs::File;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use gangline::Result;

use self::job::{Job, at};
use self::options::{Command, Options};

fn main() -> ExitCode {
    let done = match Command::parse() {
        Command::Make(made) => made.write().map(|()| ExitCode::SUCCESS),
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
        File::options().append(true).create(true).open(path).map_err(|e| at(path, &e))?;
    }
    model::load_runtime(options.onnxruntime.clone())?;
    std::fs::create_dir_all(&options.output).map_err(|e| at(&options.output, &e))?;
    let job = Arc::new(Job::new(options));
    let report = job::run(slides, &job)?;
    if let Some(path) = &job.options.report {
        let text = match path.extension().and_then(|kind| kind.to_str()) {
            Some("html") => report.to_html(),
            Some("json") => report.to_json(),
            _ => report.to_string(),
        };
        std::fs::write(path, text).map_err(|e| at(path, &e))?;
    }
    let gangline::Account { ok, already_done, failed, .. } = report.account;
    println!("{ok} slides written, {already_done} written earlier, {failed} failed");
    if failed > 0 {
        println!("{} names all that failed", job.options.output.join(tables::FAILED).display());
    }
    if let Some(fullness) = job.fullness() {
        println!("{fullness}");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
