//! Probability maps of whole slides, with a model of yours: see README.md beside this package.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

#[expect(dead_code, reason = "programs with one command use the rest")]
#[path = "../../common/args.rs"]
mod args;
mod job;
mod make;
mod map;
mod model;
mod onnx;
mod regions;
mod slide;
mod tiled;
mod tissue;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gangline::report::RunReport;
use gangline::{BoxError, Devices};

use self::args::{Args, Flag, Usage};
use self::job::{Options, Outcome};
use self::tissue::Grid;

const fn flag(name: &'static str, value: &'static str, help: &'static str) -> Flag {
    Flag { name, value, help }
}

const MAKE: &[Flag] = &[
    flag("--output", "FOLDER", "the slides, model.onnx and truth.csv"),
    flag("--slides", "N", "how many (4)"),
    flag("--side", "PIXELS", "of the largest (3000)"),
    flag("--width", "N", "channels of the model's layers (16)"),
    flag("--faulty", "", "adds a truncated, an empty and a NaN slide"),
];

const RUN: &[Flag] = &[
    flag("--slides", "FOLDER", "tiled .tif, .tiff, .btf and .svs"),
    flag("--model", "FILE", "ONNX: tiles in, probabilities out"),
    flag("--output", "FOLDER", "maps, areas, slides.csv and the journal"),
    flag("--devices", "LIST", "for the model: cpu*4, cuda:0 (cpu*2)"),
    flag("--batch", "N", "tiles in a batch, or auto (auto)"),
    flag("--readers", "N", "threads that read tiles (2)"),
    flag("--level", "N", "that the model sees, 0 is the largest (0)"),
    flag("--tile", "PIXELS", "the side of a tile (256)"),
    flag("--overlap", "PERCENT", "of a tile with the next (25)"),
    flag("--cell", "PIXELS", "the side of a pixel of the map (16)"),
    flag("--class", "N", "the class that is wanted, from 0 (the last)"),
    flag("--threshold", "P", "areas are from this probability on (0.5)"),
    flag("--open", "N", "slides at once (4)"),
    flag("--cache", "MB", "decoded tiles that are kept (128)"),
    flag("--onnxruntime", "FILE", "the library of ONNX Runtime"),
    flag("--report", "FILE", "how it went: .html, .json or text"),
    flag("--sequential", "", "a loop on one thread, for comparison"),
];

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let command = if words.is_empty() { String::new() } else { words.remove(0) };
    match command.as_str() {
        "make" => args::run("slide make: writes slides to try.", MAKE, words, make_slides),
        "run" => args::run("slide run: writes the probability maps of slides.", RUN, words, run),
        _ => {
            eprintln!(
                "usage: slide make --output FOLDER ..\n       slide run --slides FOLDER ..\n\n--help after either"
            );
            ExitCode::from(2)
        }
    }
}

fn make_slides(args: &Args) -> Result<ExitCode, BoxError> {
    let folder: PathBuf = needed(args, "--output")?;
    let (slides, side) = (or(args, "--slides", 4)?, or(args, "--side", 3000_u32)?);
    let width = or(args, "--width", 16)?;
    if side < 512 || width == 0 {
        let text = format!("--side {side} --width {width}: must be at least 512 and 1");
        return Err(Usage(text).into());
    }
    let faulty = args.get::<String>("--faulty")?.is_some();
    make::make(&folder, slides, side, width, faulty)?;
    Ok(ExitCode::SUCCESS)
}

fn run(args: &Args) -> Result<ExitCode, BoxError> {
    let options = options(args)?;
    let folder: PathBuf = needed(args, "--slides")?;
    let slides = job::slides_in(&folder)?;
    let report_path: Option<PathBuf> = args.get("--report")?;
    if let Some(path) = &report_path {
        // Now: after hours of work the report would be lost.
        File::options().append(true).create(true).open(path).map_err(|e| job::at(path, &e))?;
    }
    model::load_runtime(args.get("--onnxruntime")?)?;
    std::fs::create_dir_all(&options.output).map_err(|e| job::at(&options.output, &e))?;
    if args.get::<String>("--sequential")?.is_some() {
        job::in_sequence(slides, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Outcome { account, report, tiles, batches } = job::in_parallel(slides, &options)?;
    if let Some(path) = report_path {
        write_report(&path, &report)?;
    }
    let (ok, earlier, failed) = (account.ok, account.already_done, account.failed);
    println!("{ok} slides written, {earlier} written earlier, {failed} failed");
    if let (Some(size), 1..) = (options.batch, batches) {
        let full = 100.0 * tiles as f64 / (batches * size as u64) as f64;
        println!("{tiles} tiles in {batches} batches of at most {size}: {full:.1} % full");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn options(args: &Args) -> Result<Options, BoxError> {
    let (side, cell): (u32, u32) = (or(args, "--tile", 256)?, or(args, "--cell", 16)?);
    let overlap: u32 = or(args, "--overlap", 25)?;
    if cell == 0 || side == 0 || !side.is_multiple_of(cell) || overlap > 95 {
        let text = format!(
            "--tile {side} --cell {cell} --overlap {overlap}: --cell divides --tile, and --overlap is at most 95"
        );
        return Err(Usage(text).into());
    }
    let stride = (side * (100 - overlap) / 100 / cell).max(1) * cell;
    let batch = match or(args, "--batch", String::from("auto"))?.as_str() {
        "auto" => None,
        size => match size.parse() {
            Ok(size @ 1..) => Some(size),
            _ => {
                return Err(Usage(format!("--batch {size}: write a number from 1, or auto")).into());
            }
        },
    };
    let threshold: f64 = or(args, "--threshold", 0.5)?;
    if !(0.0..=1.0).contains(&threshold) {
        return Err(Usage(format!("--threshold {threshold}: must be from 0 to 1")).into());
    }
    let (readers, open): (usize, usize) = (or(args, "--readers", 2)?, or(args, "--open", 4)?);
    if readers == 0 || open == 0 {
        let text = format!("--readers {readers} --open {open}: both must be at least 1");
        return Err(Usage(text).into());
    }
    Ok(Options {
        output: needed(args, "--output")?,
        model: needed(args, "--model")?,
        class: args.get("--class")?,
        grid: Grid { level: or(args, "--level", 0)?, side, stride, cell },
        threshold: (threshold * 255.0).round() as u8,
        devices: or(args, "--devices", "cpu*2".parse::<Devices>()?)?,
        readers,
        batch,
        open,
        cache: or(args, "--cache", 128_u64)? << 20,
    })
}

fn or<T: std::str::FromStr<Err: std::fmt::Display>>(
    args: &Args,
    name: &str,
    value: T,
) -> Result<T, BoxError> {
    Ok(args.get(name)?.unwrap_or(value))
}

fn needed<T: std::str::FromStr<Err: std::fmt::Display>>(
    args: &Args,
    name: &str,
) -> Result<T, BoxError> {
    Ok(args.get(name)?.ok_or_else(|| Usage(format!("{name} is needed")))?)
}

fn write_report(path: &Path, report: &RunReport) -> Result<(), BoxError> {
    let text = match path.extension().and_then(|kind| kind.to_str()) {
        Some("html") => report.to_html(),
        Some("json") => report.to_json(),
        _ => report.to_string(),
    };
    Ok(std::fs::write(path, text).map_err(|e| job::at(path, &e))?)
}
