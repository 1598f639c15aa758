//! The command line.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, value_parser};
use gangline::Devices;
use gangline_slide_support::Make;

/// Probability maps of whole slides, with a model of yours.
#[derive(Debug, Parser)]
#[command(name = "slide")]
pub(crate) enum Command {
    Make(Make),
    Run(Box<Options>),
}

/// Writes the probability maps of slides
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Folder of tiled .tif, .tiff, .btf and .svs
    #[arg(long, value_name = "FOLDER")]
    pub(crate) slides: PathBuf,
    /// ONNX model: tiles in, probabilities out
    #[arg(long, value_name = "FILE")]
    pub(crate) model: PathBuf,
    /// Folder for maps, areas, slides.csv and the journal
    #[arg(long, value_name = "FOLDER")]
    pub(crate) output: PathBuf,
    /// Devices of the model, such as cpu*4 or cuda:0
    #[arg(long, value_name = "LIST", default_value = "cpu*2")]
    pub(crate) devices: Devices,
    /// Tiles in a batch, by default chosen by the times of batches
    #[arg(long, value_name = "N")]
    pub(crate) batch: Option<NonZeroUsize>,
    /// Threads that read tiles
    #[arg(long, value_name = "N", default_value = "2")]
    pub(crate) readers: NonZeroUsize,
    /// Level that the model sees, where 0 is the largest
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) level: usize,
    /// Side of a tile
    #[arg(long, value_name = "PIXELS", default_value_t = 256, value_parser = value_parser!(u32).range(1..=8192))]
    pub(crate) tile: u32,
    /// Share of a tile that the next one has too
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = value_parser!(u32).range(..=95))]
    pub(crate) overlap: u32,
    /// Side of the square that one pixel of the map shows. It divides --tile
    #[arg(long, value_name = "PIXELS", default_value_t = 16, value_parser = value_parser!(u32).range(1..))]
    pub(crate) cell: u32,
    /// The class that is wanted, from 0. By default, the last
    #[arg(long, value_name = "N")]
    pub(crate) class: Option<usize>,
    /// Probability from which on a cell belongs to an area
    #[arg(long, value_name = "P", default_value = "0.5", value_parser = of_255)]
    pub(crate) threshold: u8,
    /// Slides that are read at once
    #[arg(long, value_name = "N", default_value = "4")]
    pub(crate) open: NonZeroUsize,
    /// Decoded tiles that are kept
    #[arg(long, value_name = "MB", default_value_t = 128)]
    pub(crate) cache: u64,
    /// The library of ONNX Runtime
    #[arg(long, value_name = "FILE")]
    pub(crate) onnxruntime: Option<PathBuf>,
    /// File for the report: .html, .json or text
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

impl Options {
    /// Ends the program if options do not fit each other.
    pub(crate) fn check(&self) {
        if !self.tile.is_multiple_of(self.cell) {
            let text = format!("--cell {} does not divide --tile {}", self.cell, self.tile);
            Command::command().error(ErrorKind::ValueValidation, text).exit();
        }
    }

    /// Pixels from one tile to the next: whole cells.
    pub(crate) fn stride(&self) -> u32 {
        (self.tile * (100 - self.overlap) / 100 / self.cell).max(1) * self.cell
    }

    /// Cells of the map on a tile's side.
    pub(crate) fn cells(&self) -> usize {
        (self.tile / self.cell) as usize
    }
}

/// A probability as the byte that stands for it in maps.
fn of_255(text: &str) -> Result<u8, String> {
    match text.parse::<f64>() {
        Ok(share @ 0.0..=1.0) => Ok((share * 255.0).round() as u8),
        _ => Err("must be from 0 to 1".to_owned()),
    }
}
