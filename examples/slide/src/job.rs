//! From slides to maps: a pipeline on all devices.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gangline::report::RunReport;
use gangline::{Batch, CfgNode, Journal, OnError, OrderedRunner, Result};
use gangline::{each, map, map_batches, sink};

use crate::map::{Canvas, HEADER};
use crate::model::Model;
use crate::options::Options;
use crate::slide::{Bytes, Corner, Reader, Slide, TileCache};
use crate::tissue::Tissue;

/// A slide, and the tiles to work on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) slide: Slide,
    pub(crate) tissue: Tissue,
    pub(crate) tiles: Vec<Corner>,
}

/// The batches that the model has seen.
#[derive(Debug)]
pub(crate) struct Batches {
    pub(crate) tiles: u64,
    pub(crate) count: u64,
}

/// A slide, with its index in the folder.
type Input = (u64, PathBuf);

impl Work {
    pub(crate) fn open(
        reader: &mut Reader,
        (number, path): Input,
        options: &Options,
    ) -> Result<Work> {
        let slide = Slide::open(number, &path)?;
        let tissue = Tissue::find(reader, &slide)?;
        Ok(Work { tiles: tissue.tiles(&slide, options)?, tissue, slide })
    }
}

/// Runs the pipeline over all slides except those that an earlier run has written. A slide that fails is skipped, and the
/// next run tries it again.
pub(crate) fn run(slides: Vec<PathBuf>, options: Options) -> Result<(RunReport, Batches)> {
    let options = Arc::new(options);
    let cache = Arc::new(TileCache::with_weighter(1000, options.cache << 20, Bytes));
    let (tiles, count) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let open = {
        let (cache, options) = (cache.clone(), options.clone());
        map(
            move |_| Ok(Reader::new(cache.clone())),
            move |_, reader: &mut Reader, input: Input| Work::open(reader, input, &options),
        )
    };
    let read = {
        let Options { level, tile, .. } = *options;
        map(
            move |_| Ok(Reader::new(cache.clone())),
            move |_, reader: &mut Reader, (work, corner): (Arc<Work>, Corner)| {
                Ok((corner, reader.pixels(&work.slide, level, corner, [tile, tile])?))
            },
        )
    };
    let infer = {
        let (options, tiles, count) = (options.clone(), tiles.clone(), count.clone());
        map_batches(
            move |cx| Model::open(options.clone(), cx.device()),
            move |_, model: &mut Model, batch: &mut Vec<(Corner, Vec<u8>)>| {
                tiles.fetch_add(batch.len() as u64, Relaxed);
                count.fetch_add(1, Relaxed);
                let cells = model.run(batch.iter().map(|(_, pixels)| pixels.as_slice()))?;
                Ok(batch
                    .iter()
                    .zip(cells)
                    .map(|((corner, _), cells)| Ok((*corner, cells?)))
                    .collect())
            },
        )
    };
    let write = {
        let options = options.clone();
        each(move |(work, canvas): (Arc<Work>, Canvas)| {
            let row = canvas.write(&work, &options)?;
            println!("wrote {}", row.0);
            Ok(row)
        })
    };

    // Room for four batches for each device, so that reading goes on while the model works.
    let batches = 4 * options.devices.len() * options.batch.map_or(16, usize::from);
    let room = (batches as u64 * u64::from(options.tile).pow(2) * 3).max(64 << 20);
    let cells = options.cells().pow(2) as u64;
    let journal =
        Journal::at(options.output.join("journal")).runner("slide", "1").resume().commit_items(1);
    let open = OrderedRunner::builder(open)
        .devices(2)
        .key(|(_, path): &Input| name(path))
        .cfg(settings(&options)?)
        .journal(journal)
        .on_error(OnError::Skip)
        .describe("open")
        .build()?;
    let read = OrderedRunner::builder(read)
        .devices(options.readers.get())
        .window_memory(room, |_| 64, |(_, pixels)| pixels.len() as u64)
        .on_error(OnError::Skip)
        .describe("read")
        .build()?;
    let infer = OrderedRunner::builder(infer)
        // ONNX Runtime opens GPUs, so they need no support in gangline.
        .devices(options.devices.clone().names_only())
        .batch(options.batch.map_or_else(Batch::auto, |size| Batch::of(size.get())))
        .window_memory(room, |(_, pixels)| pixels.len() as u64, move |_| cells)
        .on_error(OnError::Skip)
        .describe("infer")
        .build()?;
    let write =
        OrderedRunner::builder(write.sink(sink::csv(options.output.join("slides.csv"), HEADER)))
            .devices(1)
            .describe("write")
            .progress()
            .build()?;
    let on_canvas = options.clone();
    let mut pipeline = open
        .expand(|work: &Arc<Work>| {
            let work = work.clone();
            (0..work.tiles.len()).map(move |i| (work.clone(), work.tiles[i]))
        })
        .open_parents(options.open.get())
        .then(read)
        .then(infer)
        .gather(
            move |work| Canvas::new(work, &on_canvas),
            move |canvas, _, _, (corner, cells)| canvas.add(corner, &cells, &options),
        )
        .then(write);
    pipeline.run((0..).zip(slides))?;
    let batches = Batches { tiles: tiles.load(Relaxed), count: count.load(Relaxed) };
    Ok((pipeline.report(), batches))
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
    let mut slides = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|e| at(folder, &e))? {
        let path = entry?.path();
        let kind = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        if ["tif", "tiff", "svs", "btf"].contains(&kind.as_str()) {
            slides.push(path);
        }
    }
    if slides.is_empty() {
        return Err(format!("{} has no .tif, .tiff, .btf or .svs", folder.display()).into());
    }
    slides.sort();
    Ok(slides)
}

/// The name of a slide, by which the journal and its files know it.
pub(crate) fn name(slide: &Path) -> String {
    slide.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// An error of the system with the path that it is about.
pub(crate) fn at(path: &Path, cause: &std::io::Error) -> String {
    format!("{}: {cause}", path.display())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::{Command, Make};
    use crate::{make, model};

    #[test]
    #[ignore = "needs ONNX Runtime: .ci/slide"]
    fn the_pipeline_does_what_a_loop_does() {
        model::load_runtime(None).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().to_owned();
        make::make(&Make { output, slides: 3, side: 1100, width: 4 }).unwrap();
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
        let (options, slides) = (Arc::new(of("loop")), slides_in(folder.path()).unwrap());
        let mut reader = Reader::new(Arc::new(TileCache::with_weighter(100, 1 << 24, Bytes)));
        let mut model = Model::open(options.clone(), &gangline::Device::Cpu).unwrap();
        for input in (0..).zip(slides.clone()) {
            let work = Work::open(&mut reader, input, &options).unwrap();
            let mut canvas = Canvas::new(&work, &options);
            for &tile in &work.tiles {
                let pixels = reader.pixels(&work.slide, 0, tile, [256, 256]).unwrap();
                let cells = model.run([pixels.as_slice()]).unwrap().remove(0).unwrap();
                canvas.add(tile, &cells, &options);
            }
            canvas.write(&work, &options).unwrap();
        }
        run(slides, of("maps")).unwrap();
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
