//! The network that is measured, and its inputs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use candle_transformers::models::bert::Config;
use gangline::{BoxError, Device};

use crate::args::{Args, Flag};
use crate::encoder::Weights;
use crate::rng::Rng;
use crate::words;

pub(crate) const SIZE: Flag = Flag {
    name: "--size",
    value: "SIZE",
    help: "of the network: tiny, small or base (default: base on a GPU, else tiny)",
};
pub(crate) const ITEMS: Flag = Flag {
    name: "--items",
    value: "N",
    help: "texts, gone through again and again (default: 512)",
};
pub(crate) const SECONDS: Flag =
    Flag { name: "--seconds", value: "S", help: "about how long to measure each row (default: 4)" };
pub(crate) const PRECISION: Flag = Flag {
    name: "--precision",
    value: "KIND",
    help: "of matrix products on a GPU: tf32 or f32 (default: tf32; the CPU always has f32)",
};
pub(crate) const WORKERS: Flag = Flag {
    name: "--workers",
    value: "N",
    help: "CPU workers that make tokens, also PyTorch's (default: 4)",
};

/// How large the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// For a machine without a GPU.
    Tiny,
    /// As all-MiniLM-L6-v2.
    Small,
    /// As BERT-base.
    Base,
}

/// How exact products of `f32` matrices are on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    /// Factors are rounded to 10 bits: what tensor cores take.
    Tf32,
}

/// A network with untrained weights, and texts for it.
pub(crate) struct Workload {
    pub(crate) size: Size,
    pub(crate) weights: Arc<Weights>,
    pub(crate) texts: Vec<String>,
    /// In each text, all alike, so that no arrangement gains by how it pads.
    pub(crate) text_tokens: usize,
}

impl Size {
    /// The one that is asked for, or one that suits the device.
    pub(crate) fn of(args: &Args, device: Device) -> Result<Self, BoxError> {
        let default = if device == Device::Cpu { Size::Tiny } else { Size::Base };
        Ok(args.get("--size")?.unwrap_or(default))
    }

    fn config(self) -> Config {
        let (hidden_size, num_hidden_layers, num_attention_heads, vocab_size) = match self {
            Size::Tiny => (64, 2, 4, 1000),
            Size::Small => (384, 6, 12, 30_522),
            Size::Base => (768, 12, 12, 30_522),
        };
        Config {
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            vocab_size,
            intermediate_size: 4 * hidden_size,
            ..Config::default()
        }
    }

    fn text_tokens(self) -> usize {
        match self {
            Size::Tiny => 16,
            Size::Small => 64,
            Size::Base => 128,
        }
    }
}

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "tiny" => Ok(Size::Tiny),
            "small" => Ok(Size::Small),
            "base" => Ok(Size::Base),
            _ => Err("not one of tiny, small, base"),
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { hidden_size: hidden, num_hidden_layers: layers, .. } = self.config();
        let tokens = self.text_tokens();
        write!(f, "BERT of {layers} layers, {hidden} wide, {tokens} tokens in a text")
    }
}

impl FromStr for Precision {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f32" => Ok(Precision::F32),
            "tf32" => Ok(Precision::Tf32),
            _ => Err("not one of f32, tf32"),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
        })
    }
}

impl Precision {
    /// By how much vectors of length 1 may differ between two programs.
    pub(crate) fn tolerance(self) -> f32 {
        match self {
            Precision::F32 => 1e-3,
            Precision::Tf32 => 1e-2,
        }
    }

    /// Has candle compute with it, in the whole process.
    pub(crate) fn set(self) {
        candle_core::cuda::set_gemm_reduced_precision_f32(self == Precision::Tf32);
    }
}

impl Workload {
    pub(crate) fn new(size: Size, texts: usize) -> Result<Self, BoxError> {
        let weights = Arc::new(Weights::seeded(size.config(), 1)?);
        let (mut rng, text_tokens) = (Rng::seeded(2), size.text_tokens());
        // Two tokens begin and end a text.
        let texts = (0..texts).map(|_| words::sentence(&mut rng, text_tokens - 2)).collect();
        Ok(Workload { size, weights, texts, text_tokens })
    }

    pub(crate) fn tokens(&self) -> Vec<Vec<u32>> {
        let vocabulary = self.weights.config.vocab_size;
        self.texts.iter().map(|text| words::tokens(text, vocabulary, self.text_tokens)).collect()
    }
}

/// The largest difference between numbers at the same place: NaN where one is, infinite where some have
/// no partner.
pub(crate) fn difference(some: &[Vec<f32>], others: &[Vec<f32>]) -> f32 {
    let lengths = |vectors: &[Vec<f32>]| vectors.iter().map(Vec::len).collect::<Vec<_>>();
    if lengths(some) != lengths(others) {
        return f32::INFINITY;
    }
    let pairs = some.iter().flatten().zip(others.iter().flatten());
    // Unlike `max`, this does not lose a NaN.
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, |most, d| if d <= most { most } else { d })
}
