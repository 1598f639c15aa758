//! From slides to maps: as a pipeline on all devices, and as a loop on one thread.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use gangline::report::RunReport;
use gangline::{Account, Batch, CfgNode, Device, Devices, Journal, OnError, OrderedRunner, Result};
use gangline::{each, map, map_batches, sink};

use crate::map::{Canvas, HEADER};
use crate::model::{Model, Settings};
use crate::slide::{Bytes, Reader, Slide, TileCache};
use crate::tissue::{Grid, Tile, Tissue};

/// The options of a run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) output: PathBuf,
    pub(crate) model: PathBuf,
    pub(crate) class: Option<usize>,
    pub(crate) grid: Grid,
    /// The least probability of a positive cell, from 0 to 255.
    pub(crate) threshold: u8,
    pub(crate) devices: Devices,
    pub(crate) readers: usize,
    /// Tiles in a batch. `None`: gangline chooses the size by the times of batches.
    pub(crate) batch: Option<usize>,
    /// The largest number of slides that are read at once.
    pub(crate) open: usize,
    /// Bytes of decoded tiles.
    pub(crate) cache: u64,
}

/// A slide, and the tiles to work on.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) slide: Slide,
    pub(crate) sections: u32,
    /// The share of the slide that is tissue.
    pub(crate) tissue: f64,
    pub(crate) tiles: Vec<Tile>,
    /// Width and height of the level that the model sees.
    pub(crate) size: [u32; 2],
    pub(crate) downsample: f64,
}

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) account: Account,
    pub(crate) report: RunReport,
    /// Tiles that the model has seen, and the batches in which it got them.
    pub(crate) tiles: u64,
    pub(crate) batches: u64,
}

/// A slide, with its index in the folder.
type Input = (u64, PathBuf);

impl Options {
    /// Cells of the map on a tile's side.
    pub(crate) fn cells(&self) -> usize {
        (self.grid.side / self.grid.cell) as usize
    }

    pub(crate) fn cache(&self) -> Arc<TileCache> {
        Arc::new(TileCache::with_weighter(1000, self.cache, Bytes))
    }

    fn settings(&self) -> Settings {
        let (path, side) = (self.model.clone(), self.grid.side as usize);
        let is_single = self.batch == Some(1);
        Settings { path, class: self.class, side, cells: self.cells(), is_single }
    }

    /// The settings that a journal belongs to. With other values, the maps would differ.
    fn cfg(&self) -> Result<CfgNode> {
        let Grid { level, side, stride, cell } = self.grid;
        let mut model = flate2::Crc::new();
        model.update(&std::fs::read(&self.model).map_err(|e| at(&self.model, &e))?);
        let model = i64::from(model.sum());
        let class = self.class.map_or(-1, |class| class as i64);
        let cfg = CfgNode::new()
            .with("model", model)?
            .with("class", class)?
            .with("level", level as i64)?;
        let cfg = cfg.with("tile", i64::from(side))?.with("stride", i64::from(stride))?;
        Ok(cfg.with("cell", i64::from(cell))?.with("threshold", i64::from(self.threshold))?)
    }
}

impl Work {
    pub(crate) fn open(reader: &mut Reader, (number, path): Input, grid: Grid) -> Result<Work> {
        let slide = Slide::open(number, &path)?;
        let tissue = Tissue::find(reader, &slide)?;
        let tiles = tissue.tiles(&slide, grid)?;
        let level = slide.level(grid.level)?;
        let (size, downsample) = ([level.width, level.height], level.downsample);
        Ok(Work {
            sections: tissue.sections(),
            tissue: tissue.share,
            tiles,
            size,
            downsample,
            slide,
        })
    }
}

/// Runs the pipeline over all slides except those that an earlier run has written. A slide that fails is skipped, and the
/// next run tries it again.
pub(crate) fn in_parallel(slides: Vec<PathBuf>, options: &Options) -> Result<Outcome> {
    let (cache, grid) = (options.cache(), options.grid);
    let reader = {
        let cache = cache.clone();
        move || Reader::new(cache.clone())
    };
    let open = map(
        {
            let reader = reader.clone();
            move |_| Ok(reader())
        },
        move |_, reader: &mut Reader, input: Input| Work::open(reader, input, grid),
    );
    let read = map(
        move |_| Ok(reader()),
        move |_, reader: &mut Reader, (work, tile): (Arc<Work>, Tile)| {
            Ok((tile, reader.square(&work.slide, grid.level, tile.x, tile.y, grid.side)?))
        },
    );
    let settings = options.settings();
    let counts = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let counting = counts.clone();
    let infer = map_batches(
        move |cx| Model::open(&settings, cx.device()),
        move |_, model: &mut Model, tiles: &mut Vec<(Tile, Vec<u8>)>| {
            counting.0.fetch_add(tiles.len() as u64, Relaxed);
            counting.1.fetch_add(1, Relaxed);
            let cells = model.run(tiles.iter().map(|(_, pixels)| pixels.as_slice()))?;
            Ok(tiles.iter().zip(cells).map(|((tile, _), cells)| Ok((*tile, cells?))).collect())
        },
    );
    let writing = options.clone();
    let write = map(
        |_| Ok(()),
        move |_, (), (work, canvas): (Arc<Work>, Canvas)| {
            let row = canvas.write(&work, &writing)?;
            println!("wrote {}", row.0);
            Ok(row)
        },
    );

    // Room for four batches for each device, so that reading goes on while the model works.
    let tile = u64::from(grid.side).pow(2) * 3;
    let batches = 4 * options.devices.len() as u64 * options.batch.unwrap_or(16) as u64;
    let room = (batches * tile).max(64 << 20);
    let cells = options.cells().pow(2) as u64;

    let journal =
        Journal::at(options.output.join("journal")).runner("slide", "1").resume().commit_items(1);
    let open = OrderedRunner::builder(open)
        .devices(2)
        .key(|(_, path): &Input| {
            path.file_name().unwrap_or_default().to_string_lossy().into_owned()
        })
        .cfg(options.cfg()?)
        .journal(journal)
        .on_error(OnError::Skip)
        .describe("open")
        .build()?;
    let read = OrderedRunner::builder(read)
        .devices(options.readers)
        .window_memory(room, |_| 64, |(_, pixels)| pixels.len() as u64)
        .on_error(OnError::Skip)
        .describe("read")
        .build()?;
    let infer = OrderedRunner::builder(infer)
        // ONNX Runtime opens GPUs, so they need no support in gangline.
        .devices(options.devices.clone().names_only())
        .batch(options.batch.map_or_else(Batch::auto, Batch::of))
        .window_memory(room, |(_, pixels)| pixels.len() as u64, move |_| cells)
        .on_error(OnError::Skip)
        .describe("infer")
        .build()?;
    let table = sink::csv(options.output.join("slides.csv"), HEADER);
    let write = OrderedRunner::builder(write.sink(table))
        .devices(1)
        .describe("write")
        .progress()
        .build()?;
    let (on_canvas, add_to) = (options.clone(), options.clone());
    let mut pipeline = open
        .expand(|work: &Arc<Work>| {
            let work = work.clone();
            (0..work.tiles.len()).map(move |i| (work.clone(), work.tiles[i]))
        })
        .open_parents(options.open)
        .then(read)
        .then(infer)
        .gather(
            move |work| Canvas::new(work, &on_canvas),
            move |canvas, _, _, (tile, cells)| canvas.add(tile, &cells, &add_to),
        )
        .then(write);
    pipeline.run((0..).zip(slides))?;
    let (tiles, batches) = (counts.0.load(Relaxed), counts.1.load(Relaxed));
    Ok(Outcome { account: pipeline.account(), report: pipeline.report(), tiles, batches })
}

/// Does the same in a loop, one tile after the other. The first slide that fails ends it.
pub(crate) fn in_sequence(slides: Vec<PathBuf>, options: &Options) -> Result<()> {
    let mut reader = Reader::new(options.cache());
    let mut model = Model::open(&options.settings(), &Device::Cpu)?;
    let grid = options.grid;
    let mut rows = Vec::new();
    for input in (0..).zip(slides) {
        let work = Work::open(&mut reader, input, grid)?;
        let mut canvas = Canvas::new(&work, options);
        for tile in &work.tiles {
            let pixels = reader.square(&work.slide, grid.level, tile.x, tile.y, grid.side)?;
            canvas.add(*tile, &model.run([pixels.as_slice()])?.remove(0)?, options);
        }
        rows.push(canvas.write(&work, options)?);
    }
    let table = sink::csv(options.output.join("slides.csv"), HEADER);
    OrderedRunner::new(each(Ok).sink(table), 1)?.run(rows)?;
    Ok(())
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

/// An error of the system with the path that it is about.
pub(crate) fn at(path: &Path, cause: &std::io::Error) -> String {
    format!("{}: {cause}", path.display())
}
