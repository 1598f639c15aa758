//! The handwritten digits of `examples/data` and the network that reads them.

use std::path::{Path, PathBuf};

use candle_core::{D, DType, Device, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, VarBuilder, conv2d, linear};
use gangline::BoxError;

/// Height and width of an image.
pub(crate) const SIDE: usize = 8;

/// Rows from this one on are held out: no training step ever sees them.
///
/// The file goes through its writers one after another, and here a new writer begins. So the
/// held-out digits were written by hands that the network has not met.
pub(crate) const FIRST_HELD_OUT: usize = 1287;

/// One handwritten digit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Digit {
    /// Its row in the file, from 0.
    pub(crate) row: usize,
    pub(crate) label: u32,
    /// Row by row from the upper left; 0 is paper, 1 is ink.
    pub(crate) pixels: Vec<f32>,
}

/// Where the examples keep their data, wherever they are started from. A program that was carried to another machine
/// finds them in a copy of the repository that it is started in.
pub(crate) fn data_file(name: &str) -> PathBuf {
    let here = Path::new("examples/data").join(name);
    let there = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../data")).join(name);
    if there.exists() { there } else { here }
}

/// The bytes of a file, or an error that names it.
pub(crate) fn read_file(path: &Path) -> Result<Vec<u8>, BoxError> {
    std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()).into())
}

/// The digits in `path`, as training part and held-out part.
pub(crate) fn read_digits(path: &Path) -> Result<(Vec<Digit>, Vec<Digit>), BoxError> {
    let text = String::from_utf8(read_file(path)?)
        .map_err(|e| format!("{} is not text: {e}", path.display()))?;
    let mut digits = parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
    if digits.len() <= FIRST_HELD_OUT {
        let (path, rows) = (path.display(), digits.len());
        return Err(format!("{path}: {rows} rows leave none after row {FIRST_HELD_OUT}").into());
    }
    let held_out = digits.split_off(FIRST_HELD_OUT);
    Ok((digits, held_out))
}

fn parse(text: &str) -> Result<Vec<Digit>, String> {
    let mut lines = text.lines();
    if !lines.next().is_some_and(|names| names.starts_with("label,")) {
        return Err("the first line does not name the columns, from `label` on".into());
    }
    lines.enumerate().map(|(row, line)| parse_digit(row, line)).collect()
}

fn parse_digit(row: usize, line: &str) -> Result<Digit, String> {
    let at = |problem: String| format!("line {}: {problem}", row + 2);
    let cells = line.split(',').map(parse_cell).collect::<Result<Vec<u8>, _>>().map_err(at)?;
    match cells.as_slice() {
        [label @ 0..=9, pixels @ ..] if pixels.len() == SIDE * SIDE => Ok(Digit {
            row,
            label: u32::from(*label),
            pixels: pixels.iter().map(|&ink| f32::from(ink) / 16.0).collect(),
        }),
        [label @ 10..=16, ..] => Err(at(format!("the label {label} is not a digit from 0 to 9"))),
        _ => Err(at(format!("{} columns instead of {}", cells.len(), 1 + SIDE * SIDE))),
    }
}

fn parse_cell(text: &str) -> Result<u8, String> {
    match text.trim().parse() {
        Ok(value @ 0..=16) => Ok(value),
        _ => Err(format!("{text:?} is not a whole number from 0 to 16")),
    }
}

/// Images as a tensor of shape (images, 1, 8, 8).
pub(crate) fn images<'a>(
    pixels: impl ExactSizeIterator<Item = &'a [f32]>,
    device: &Device,
) -> candle_core::Result<Tensor> {
    let shape = (pixels.len(), 1, SIDE, SIDE);
    Tensor::from_vec(pixels.flatten().copied().collect(), shape, device)
}

/// Two convolutions and two linear layers: an image in, a score for each of the ten digits out.
pub(crate) struct Net {
    strokes: Conv2d,
    parts: Conv2d,
    hidden: Linear,
    scores: Linear,
}

impl Net {
    pub(crate) fn new(weights: VarBuilder<'_>) -> candle_core::Result<Self> {
        let near = Conv2dConfig { padding: 1, ..Default::default() };
        let halving = Conv2dConfig { padding: 1, stride: 2, ..Default::default() };
        Ok(Net {
            strokes: conv2d(1, 32, 3, near, weights.pp("strokes"))?,
            parts: conv2d(32, 48, 3, halving, weights.pp("parts"))?,
            hidden: linear(48 * 4 * 4, 128, weights.pp("hidden"))?,
            scores: linear(128, 10, weights.pp("scores"))?,
        })
    }

    /// The network with the weights of a safetensors file, on `device`.
    pub(crate) fn load(safetensors: &[u8], device: &Device) -> candle_core::Result<Self> {
        Self::new(VarBuilder::from_slice_safetensors(safetensors, DType::F32, device)?)
    }

    /// The digit that each image is taken for.
    pub(crate) fn read(&self, images: &Tensor) -> candle_core::Result<Vec<u32>> {
        self.forward(images)?.argmax(D::Minus1)?.to_vec1()
    }
}

impl Module for Net {
    fn forward(&self, images: &Tensor) -> candle_core::Result<Tensor> {
        let x = self.strokes.forward(images)?.relu()?;
        let x = self.parts.forward(&x)?.relu()?.flatten_from(1)?;
        let x = self.hidden.forward(&x)?.relu()?;
        self.scores.forward(&x)
    }
}
