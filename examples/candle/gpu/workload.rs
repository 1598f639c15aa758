//! The network that is measured, and its inputs.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use candle_core::DType;
use candle_transformers::models::bert::Config;
use gangline::{BoxError, Device};

use crate::args::{Args, Flag};
use crate::encoder::Weights;
use crate::network::{ConvShape, Item, Model, pixels};
use crate::rng::Rng;
use crate::words;

pub(crate) const NETWORK: Flag =
    Flag { name: "--network", value: "KIND", help: "bert or conv (default: bert)" };

pub(crate) const SIZE: Flag = Flag {
    name: "--size",
    value: "SIZE",
    help: "of the network: tiny, small or base (default: base on a GPU, else tiny)",
};
pub(crate) const ITEMS: Flag = Flag {
    name: "--items",
    value: "N",
    help: "texts or images, gone through again and again (default: 512)",
};
pub(crate) const SECONDS: Flag =
    Flag { name: "--seconds", value: "S", help: "about how long to measure each row (default: 4)" };
pub(crate) const PRECISION: Flag = Flag {
    name: "--precision",
    value: "KIND",
    help: "on a GPU: f32, tf32, f16 or bf16 (default: tf32; the CPU always has f32)",
};
pub(crate) const WORKERS: Flag = Flag {
    name: "--workers",
    value: "N",
    help: "CPU workers that make tokens or pixels, also PyTorch's (default: 4)",
};

/// What kind of network is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A transformer, of texts.
    Bert,
    /// A convolutional network, of images.
    Conv,
}

/// How large the network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    /// For a machine without a GPU.
    Tiny,
    /// As all-MiniLM-L6-v2, or images of 64 pixels a side.
    Small,
    /// As BERT-base, or images of 224 pixels a side.
    Base,
}

/// In which numbers a network computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    F32,
    /// Factors of products of `f32` matrices are rounded to 10 bits: what tensor cores take.
    Tf32,
    F16,
    Bf16,
}

/// A network with untrained weights, and texts of which its items are made.
pub(crate) struct Workload {
    pub(crate) kind: Kind,
    pub(crate) size: Size,
    pub(crate) model: Arc<Model>,
    pub(crate) texts: Arc<Vec<String>>,
}

impl Size {
    /// The one that is asked for, or one that suits the device.
    pub(crate) fn of(args: &Args, device: Device) -> Result<Self, BoxError> {
        let default = if device == Device::Cpu { Size::Tiny } else { Size::Base };
        Ok(args.get("--size")?.unwrap_or(default))
    }

    pub(crate) fn config(self) -> Config {
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

    /// In each text, all alike, so that no arrangement gains by how it pads.
    pub(crate) fn text_tokens(self) -> usize {
        match self {
            Size::Tiny => 16,
            Size::Small => 64,
            Size::Base => 128,
        }
    }

    fn tokens(self, text: &str) -> Vec<u32> {
        words::tokens(text, self.config().vocab_size, self.text_tokens())
    }

    fn conv(self) -> ConvShape {
        let (side, channels, width) = match self {
            Size::Tiny => (16, vec![8, 16], 32),
            Size::Small => (64, vec![32, 64, 128], 128),
            Size::Base => (224, vec![64, 128, 256, 512], 512),
        };
        ConvShape { side, channels, width }
    }
}

impl Kind {
    /// As `--network` takes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Bert => "bert",
            Kind::Conv => "conv",
        }
    }
}

impl FromStr for Kind {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "bert" => Ok(Kind::Bert),
            "conv" => Ok(Kind::Conv),
            _ => Err("not one of bert, conv"),
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Bert => "transformer",
            Kind::Conv => "convolutions",
        })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Tiny => "tiny",
            Size::Small => "small",
            Size::Base => "base",
        })
    }
}

impl FromStr for Precision {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "f32" => Ok(Precision::F32),
            "tf32" => Ok(Precision::Tf32),
            "f16" => Ok(Precision::F16),
            "bf16" => Ok(Precision::Bf16),
            _ => Err("not one of f32, tf32, f16, bf16"),
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::F16 => "f16",
            Precision::Bf16 => "bf16",
        })
    }
}

impl Precision {
    /// The type of the weights and of what is computed with them.
    pub(crate) fn dtype(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::F16 => DType::F16,
            Precision::Bf16 => DType::BF16,
        }
    }

    /// By how much numbers of vectors of length 1 may differ between two ways to compute them.
    pub(crate) fn tolerance(self) -> f32 {
        match self {
            Precision::F32 => 1e-3,
            Precision::Tf32 | Precision::F16 => 1e-2,
            Precision::Bf16 => 3e-2,
        }
    }

    /// Has candle compute with it, in the whole process.
    pub(crate) fn set(self) {
        candle_core::cuda::set_gemm_reduced_precision_f32(self == Precision::Tf32);
    }
}

impl Workload {
    pub(crate) fn new(kind: Kind, size: Size, texts: usize) -> Result<Self, BoxError> {
        let model = match kind {
            Kind::Bert => Model::Bert(Weights::seeded(size.config(), 1)?),
            Kind::Conv => size.conv().seeded(1)?,
        };
        let mut rng = Rng::seeded(2);
        // Two tokens begin and end a text.
        let words = size.text_tokens() - 2;
        let texts = (0..texts).map(|_| words::sentence(&mut rng, words)).collect();
        Ok(Workload { kind, size, model: Arc::new(model), texts: Arc::new(texts) })
    }

    /// What makes an item of a text: its tokens, or pixels that follow from it.
    pub(crate) fn maker(&self) -> impl Fn(&str) -> Item + Clone + Send + Sync + 'static {
        let (kind, size) = (self.kind, self.size);
        let numbers = 3 * size.conv().side * size.conv().side;
        move |text| match kind {
            Kind::Bert => Item::Text(size.tokens(text).into()),
            Kind::Conv => Item::Image(pixels(text, numbers)),
        }
    }

    pub(crate) fn items(&self) -> Vec<Item> {
        let make = self.maker();
        self.texts.iter().map(|text| make(text)).collect()
    }

    /// The tokens of each text.
    pub(crate) fn tokens(&self) -> Vec<Vec<u32>> {
        self.texts.iter().map(|text| self.size.tokens(text)).collect()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.model {
            Model::Bert(weights) => {
                let Config { hidden_size: hidden, num_hidden_layers: layers, .. } = weights.config;
                let tokens = self.size.text_tokens();
                write!(f, "BERT of {layers} layers, {hidden} wide, {tokens} tokens in a text")
            }
            Model::Conv { shape, .. } => {
                let (side, layers) = (shape.side, shape.channels.len());
                write!(f, "{layers} layers of convolution, images of {side} x {side}")
            }
        }
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
