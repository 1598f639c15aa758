//! The networks that are measured: each makes a vector of length 1 of an item.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Conv2d, Conv2dConfig, Linear, Module, VarBuilder, conv2d, linear};

use crate::encoder::{Encoder, Texts, Weights};
use crate::rng::Rng;

/// What a vector is made of. Going through the same items again copies none.
#[derive(Debug, Clone)]
pub(crate) enum Item {
    /// A text as tokens.
    Text(Arc<[u32]>),
    /// An image: red, green and blue of each pixel, plane by plane.
    Image(Arc<[u8]>),
}

/// A network's shape and its weights on the CPU, for each producer to load on its own device.
pub(crate) enum Model {
    /// Its items are texts.
    Bert(Weights),
    /// Its items are images.
    Conv { shape: ConvShape, tensors: HashMap<String, Tensor> },
}

/// Layers of convolution, each of which halves the image's sides, then a mean and a linear layer.
#[derive(Debug, Clone)]
pub(crate) struct ConvShape {
    /// Pixels on each side of an image.
    pub(crate) side: usize,
    /// Channels of each layer.
    pub(crate) channels: Vec<usize>,
    /// Numbers in a vector.
    pub(crate) width: usize,
}

/// A network on one device.
pub(crate) enum Network {
    Bert(Encoder),
    Conv(ConvNet),
}

/// Items of a batch on the device of a network.
pub(crate) enum Uploaded {
    Texts(Texts),
    Images(Tensor),
}

pub(crate) struct ConvNet {
    shape: ConvShape,
    layers: Vec<Conv2d>,
    last: Linear,
    device: Device,
    dtype: DType,
}

/// Makes `count` numbers from 0 to 255 of a text; `pixels` of torch_loop.py makes the same.
pub(crate) fn pixels(text: &str, count: usize) -> Arc<[u8]> {
    let seed =
        text.bytes().fold(0, |seed: u32, byte| seed.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let pixel = |at: u32| (seed.wrapping_add(at.wrapping_mul(0x9e37_79b1)) >> 24) as u8;
    (0..count as u32).map(pixel).collect()
}

impl Item {
    fn tokens(&self) -> &[u32] {
        match self {
            Item::Text(tokens) => tokens,
            Item::Image(_) => unreachable!("the items were made for a network of texts"),
        }
    }

    fn pixels(&self) -> &[u8] {
        match self {
            Item::Image(pixels) => pixels,
            Item::Text(_) => unreachable!("the items were made for a network of images"),
        }
    }
}

impl Model {
    pub(crate) fn tensors(&self) -> &HashMap<String, Tensor> {
        match self {
            Model::Bert(weights) => &weights.tensors,
            Model::Conv { tensors, .. } => tensors,
        }
    }

    /// Numbers in a vector.
    pub(crate) fn width(&self) -> usize {
        match self {
            Model::Bert(weights) => weights.config.hidden_size,
            Model::Conv { shape, .. } => shape.width,
        }
    }

    /// The network with tensors that are on its device, in the type that it computes in.
    pub(crate) fn load(&self, tensors: VarBuilder<'_>) -> Result<Network> {
        Ok(match self {
            Model::Bert(weights) => Network::Bert(Encoder::new(tensors, &weights.config)?),
            Model::Conv { shape, .. } => Network::Conv(ConvNet::new(shape, &tensors)?),
        })
    }
}

impl ConvShape {
    const KERNEL: usize = 3;

    /// Untrained weights; the same seed gives the same ones.
    pub(crate) fn seeded(self, seed: u64) -> Result<Model> {
        let mut rng = Rng::seeded(seed);
        let mut tensors = HashMap::new();
        for (at, (from, to)) in self.steps().enumerate() {
            // As far from 0 as keeps activations of a layer as large as those before it.
            let bound = (6.0 / (from * Self::KERNEL * Self::KERNEL) as f32).sqrt();
            let weight = rng.tensor(bound, (to, from, Self::KERNEL, Self::KERNEL))?;
            tensors.insert(format!("layers.{at}.weight"), weight);
            tensors.insert(format!("layers.{at}.bias"), rng.tensor(0.1, to)?);
        }
        let features = *self.channels.last().expect("there are layers");
        tensors.insert("last.weight".into(), rng.tensor(0.1, (self.width, features))?);
        tensors.insert("last.bias".into(), rng.tensor(0.1, self.width)?);
        Ok(Model::Conv { shape: self, tensors })
    }

    /// The channels before and after each layer.
    fn steps(&self) -> impl Iterator<Item = (usize, usize)> {
        [3].into_iter().chain(self.channels.clone()).zip(self.channels.clone())
    }
}

impl Network {
    pub(crate) fn upload(&self, items: &[Item]) -> Result<Uploaded> {
        Ok(match self {
            Network::Bert(encoder) => {
                let texts: Vec<_> = items.iter().map(Item::tokens).collect();
                Uploaded::Texts(encoder.upload(&texts)?)
            }
            Network::Conv(net) => Uploaded::Images(net.upload(items)?),
        })
    }

    /// The vectors, still on the device.
    pub(crate) fn forward(&self, items: &Uploaded) -> Result<Tensor> {
        match (self, items) {
            (Network::Bert(encoder), Uploaded::Texts(texts)) => encoder.forward(texts),
            (Network::Conv(net), Uploaded::Images(images)) => net.forward(images),
            _ => unreachable!("the items were uploaded for this network"),
        }
    }

    pub(crate) fn vectors(&self, items: &[Item]) -> Result<Vec<Vec<f32>>> {
        self.forward(&self.upload(items)?)?.to_vec2()
    }
}

impl ConvNet {
    fn new(shape: &ConvShape, tensors: &VarBuilder<'_>) -> Result<Self> {
        let halving = Conv2dConfig { stride: 2, padding: 1, ..Conv2dConfig::default() };
        let layer = |(at, (from, to))| {
            conv2d(from, to, ConvShape::KERNEL, halving, tensors.pp(format!("layers.{at}")))
        };
        let features = *shape.channels.last().expect("there are layers");
        Ok(ConvNet {
            shape: shape.clone(),
            layers: shape.steps().enumerate().map(layer).collect::<Result<_>>()?,
            last: linear(features, shape.width, tensors.pp("last"))?,
            device: tensors.device().clone(),
            dtype: tensors.dtype(),
        })
    }

    /// The bytes travel as they are, and become numbers from 0 to 1 on the device.
    fn upload(&self, items: &[Item]) -> Result<Tensor> {
        let shape = (items.len(), 3, self.shape.side, self.shape.side);
        let images: Vec<_> = items.iter().map(Item::pixels).collect();
        let bytes = images.concat();
        Tensor::from_vec(bytes, shape, &self.device)?.to_dtype(self.dtype)? / 255.0
    }

    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let mut x = images.clone();
        for layer in &self.layers {
            x = layer.forward(&x)?.relu()?;
        }
        let vectors = self.last.forward(&x.mean((2, 3))?)?.to_dtype(DType::F32)?;
        vectors.broadcast_div(&vectors.sqr()?.sum_keepdim(1)?.sqrt()?)
    }
}
