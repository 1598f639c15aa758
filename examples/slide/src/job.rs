//! From slides to maps: a pipeline on all devices.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gangline::report::RunReport;
use gangline::{Batch, CfgNode, Journal, OnError, OrderedRunner, Result, Runner};
use gangline::{each, map_batches};

use crate::map::Canvas;
use crate::model::Model;
use crate::options::Options;
use crate::slide::{Bytes, Corner, TileCache, name};
use crate::tables::Write;
use crate::tissue::Work;

/// What all threads of a run share.
pub(crate) struct Job {
    pub(crate) options: Arc<Options>,
    cache: TileCache,
    /// The batches that the model has seen, and the tiles in them.
    batches: AtomicU64,
    tiles: AtomicU64,
}

/// The endings of the names of slides, in letters of any case.
const KINDS: [&str; 4] = ["tif", "tiff", "btf", "svs"];

/// A slide, with its index in the folder.
type Input = (u64, PathBuf);

/// A tile of a slide.
type Tile = (Arc<Work>, Corner);

/// What is known of a tile: its pixels, or the cells that the model made of them.
type Part = (Corner, Vec<u8>);

impl Job {
    pub(crate) fn new(options: Options) -> Job {
        let cache = TileCache::with_weighter(1000, options.cache << 20, Bytes);
        let options = Arc::new(options);
        Job { options, cache, batches: AtomicU64::new(0), tiles: AtomicU64::new(0) }
    }

    /// How full the batches were, if the user chose their size.
    pub(crate) fn fullness(&self) -> Option<String> {
        let (size, count) = (self.options.batch?, self.batches.load(Relaxed));
        let tiles = self.tiles.load(Relaxed);
        let full = 100.0 * tiles as f64 / (count * size.get() as u64).max(1) as f64;
        Some(format!("{tiles} tiles in {count} batches of at most {size}: {full:.1} % full"))
    }

    /// The bytes of tiles that wait for a stage: four batches for each device, so that reading goes on while the model
    /// works.
    fn room(&self) -> u64 {
        let Options { devices, batch, tile, .. } = &*self.options;
        let batches = 4 * devices.len() * batch.map_or(16, usize::from);
        (batches as u64 * u64::from(*tile).pow(2) * 3).max(64 << 20)
    }
}

/// Runs the pipeline over all slides except those that an earlier run has written. A slide that fails is skipped, and the
/// next run tries it again.
pub(crate) fn run(slides: Vec<PathBuf>, job: &Arc<Job>) -> Result<RunReport> {
    let (begun, blended) = (job.options.clone(), job.options.clone());
    let mut pipeline = open(job.clone())?
        .expand(|work: &Arc<Work>| {
            let work = work.clone();
            (0..work.tiles.len()).map(move |i| (work.clone(), work.tiles[i]))
        })
        .open_parents(job.options.open.get())
        .then(read(job.clone())?)
        .then(infer(job.clone())?)
        .gather(
            move |work| Canvas::new(work, &begun),
            move |canvas, _, _, (corner, cells)| canvas.add(corner, &cells, &blended),
        )
        .then(write(job.clone())?);
    pipeline.run((0..).zip(slides))?;
    Ok(pipeline.report())
}

/// The stage that finds the tiles of each slide. The journal is about slides, so it belongs to this stage.
fn open(job: Arc<Job>) -> Result<OrderedRunner<impl Runner<Input = Input, Output = Work>>> {
    let journal = Journal::at(job.options.output.join("journal")).runner("slide", "1");
    let settings = settings(&job.options)?;
    let open = move |(number, path): Input| Work::open(number, &path, &job.cache, &job.options);
    let builder = OrderedRunner::builder(each(open))
        .devices(2)
        .key(|(_, path): &Input| name(path))
        .cfg(settings)
        .journal(journal.resume().commit_items(1));
    Ok(builder.on_error(OnError::Skip).describe("open").build()?)
}

fn read(job: Arc<Job>) -> Result<OrderedRunner<impl Runner<Input = Tile, Output = Part>>> {
    let Options { readers, level, tile, .. } = *job.options;
    let room = job.room();
    let read = move |(work, corner): Tile| {
        Ok((corner, work.slide.pixels(&job.cache, level, corner, [tile, tile])?))
    };
    let builder = OrderedRunner::builder(each(read)).devices(readers.get());
    let builder = builder.window_memory(room, |_| 64, |(_, pixels)| pixels.len() as u64);
    Ok(builder.on_error(OnError::Skip).describe("read").build()?)
}

fn infer(job: Arc<Job>) -> Result<OrderedRunner<impl Runner<Input = Part, Output = Part>>> {
    let (options, room) = (job.options.clone(), job.room());
    let (batch, cells) = (options.batch, options.cells().pow(2) as u64);
    // ONNX Runtime opens GPUs, so they need no support in gangline.
    let devices = options.devices.clone().names_only();
    let infer = map_batches(
        move |cx| Model::open(options.clone(), cx.device()),
        move |_, model: &mut Model, batch: &mut Vec<Part>| {
            job.batches.fetch_add(1, Relaxed);
            job.tiles.fetch_add(batch.len() as u64, Relaxed);
            let cells = model.run(batch.iter().map(|(_, pixels)| pixels.as_slice()))?;
            Ok(batch.iter().zip(cells).map(|((corner, _), cells)| Ok((*corner, cells?))).collect())
        },
    );
    let builder = OrderedRunner::builder(infer)
        .devices(devices)
        .batch(batch.map_or_else(Batch::auto, |size| Batch::of(size.get())))
        .window_memory(room, |(_, pixels)| pixels.len() as u64, move |_| cells);
    Ok(builder.on_error(OnError::Skip).describe("infer").build()?)
}

/// The stage that writes the files of each slide. If one cannot be written, the run ends.
fn write(job: Arc<Job>) -> Result<OrderedRunner<Write>> {
    Ok(OrderedRunner::builder(Write::new(job)).devices(1).describe("write").progress().build()?)
}

/// The settings that a journal belongs to. With other values, the maps would differ.
fn settings(options: &Options) -> Result<CfgNode> {
    let mut model = flate2::Crc::new();
    model.update(&std::fs::read(&options.model).map_err(|e| at(&options.model, &e))?);
    let Options { level, tile, cell, class, threshold, .. } = options;
    let cfg = CfgNode::new().with("model", model.sum())?.with("class", class)?;
    let cfg = cfg.with("level", level)?.with("tile", tile)?.with("stride", options.stride())?;
    Ok(cfg.with("cell", cell)?.with("threshold", threshold)?)
}

/// The tiled files of a folder, by name.
pub(crate) fn slides_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|e| at(folder, &e))?;
    let mut slides = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let is_one = |kind: &OsStr| KINDS.iter().any(|it| kind.eq_ignore_ascii_case(it));
    slides.retain(|path| path.extension().is_some_and(is_one));
    if slides.is_empty() {
        return Err(format!("{} has no .tif, .tiff, .btf or .svs", folder.display()).into());
    }
    slides.sort();
    Ok(slides)
}

/// An error of the system with the path that it is about.
pub(crate) fn at(path: &Path, cause: &std::io::Error) -> String {
    format!("{}: {cause}", path.display())
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gangline_slide_support::Make;

    use super::*;
    use crate::model;
    use crate::options::Command;

    #[test]
    #[ignore = "needs ONNX Runtime: .ci/slide"]
    fn the_pipeline_does_what_a_loop_does() {
        model::load_runtime(None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().to_owned();
        Make { output, slides: 3, side: 1100, width: 4 }.write().unwrap();
        let of = |output: &str| {
            let output = folder.path().join(output);
            std::fs::create_dir(&output).unwrap();
            let model = folder.path().join("model.onnx");
            let paths = [("--slides", folder.path()), ("--model", &model), ("--output", &output)];
            let words = paths.map(|(name, path)| format!("{name}={}", path.display()));
            let words = ["slide", "run"].map(str::to_owned).into_iter().chain(words);
            let Command::Run(options) = Command::parse_from(words) else { panic!("run") };
            *options
        };
        let (Job { options, cache, .. }, slides) =
            (Job::new(of("loop")), slides_in(folder.path()).unwrap());
        let mut model = Model::open(options.clone(), &gangline::Device::Cpu).unwrap();
        for (number, path) in (0..).zip(&slides) {
            let work = Work::open(number, path, &cache, &options).unwrap();
            let mut canvas = Canvas::new(&work, &options);
            for &tile in &work.tiles {
                let pixels = work.slide.pixels(&cache, 0, tile, [256, 256]).unwrap();
                let cells = model.run([pixels.as_slice()]).unwrap().remove(0).unwrap();
                canvas.add(tile, &cells, &options);
            }
            canvas.write(&work, &options).unwrap();
        }
        run(slides, &Arc::new(Job::new(of("maps")))).unwrap();
        for number in 0..3 {
            for kind in ["map.tif", "geojson"] {
                let name = format!("slide-{number:03}.tif.{kind}");
                let [one, other] =
                    ["loop", "maps"].map(|it| std::fs::read(folder.path().join(it).join(&name)));
                assert!(one.unwrap() == other.unwrap(), "{name}");
            }
        }
    }
}
