//! A BERT of candle-transformers that makes one vector of length 1 of each text.

use std::collections::HashMap;

use candle_core::{D, DType, Device, Result, Shape, Tensor, bail};
use candle_nn::{Embedding, LayerNorm, Module, VarBuilder, embedding, layer_norm};
use candle_transformers::models::bert::{BertEncoder, Config};

use crate::rng::Rng;

/// A network's shape and its weights on the CPU, for each producer to load on its own device.
pub(crate) struct Weights {
    pub(crate) config: Config,
    pub(crate) tensors: HashMap<String, Tensor>,
}

impl Weights {
    /// Untrained weights; the same seed gives the same ones.
    pub(crate) fn seeded(config: Config, seed: u64) -> Result<Self> {
        let mut rng = Rng::seeded(seed);
        let named = shapes(&config).into_iter().map(|(name, shape)| {
            let tensor = if name.ends_with("LayerNorm.weight") {
                Tensor::ones(shape, DType::F32, &Device::Cpu)?
            } else {
                // As far from 0 as trained ones are, so that activations neither vanish nor grow.
                rng.tensor(0.06, shape)?
            };
            Ok((name, tensor))
        });
        Ok(Weights { tensors: named.collect::<Result<_>>()?, config })
    }
}

/// The network on one device.
///
/// It has the layers of candle's `BertModel`, but a mask of its own. `BertModel` multiplies the mask with the least
/// `f32`, which is infinite in `f16` and `bf16`, and 0 times infinity is no number.
pub(crate) struct Encoder {
    words: Embedding,
    /// What is added to the word at each place: the place's vector, and that of texts without a second part.
    places: Tensor,
    norm: LayerNorm,
    layers: BertEncoder,
    device: Device,
}

/// Added to the attention to padding, so that its share is 0 in every type.
const HIDDEN: f64 = -1e4;

/// Texts as tokens on a device, padded to the longest.
pub(crate) struct Texts {
    ids: Tensor,
    /// 1 where there is a token, 0 where there is padding.
    mask: Tensor,
}

impl Encoder {
    pub(crate) fn load(weights: &Weights, device: &Device) -> Result<Self> {
        // Cloning shares the values; only another device gets a copy.
        let tensors = VarBuilder::from_tensors(weights.tensors.clone(), DType::F32, device);
        Self::new(tensors, &weights.config)
    }

    pub(crate) fn new(tensors: VarBuilder<'_>, config: &Config) -> Result<Self> {
        // Files of a BERT with a task on top have the prefix.
        let tensors = match tensors.contains_tensor("bert.embeddings.word_embeddings.weight") {
            true => tensors.pp("bert"),
            false => tensors,
        };
        let (first, width) = (tensors.pp("embeddings"), config.hidden_size);
        let table = |name, rows| first.pp(name).get((rows, width), "weight");
        let places = table("position_embeddings", config.max_position_embeddings)?;
        let types = table("token_type_embeddings", config.type_vocab_size)?;
        Ok(Encoder {
            words: embedding(config.vocab_size, width, first.pp("word_embeddings"))?,
            places: places.broadcast_add(&types.narrow(0, 0, 1)?)?,
            norm: layer_norm(width, config.layer_norm_eps, first.pp("LayerNorm"))?,
            layers: BertEncoder::load(tensors.pp("encoder"), config)?,
            device: tensors.device().clone(),
        })
    }

    /// One vector for each text, which is given as its tokens: the mean of what the network makes of them,
    /// scaled to length 1. Texts are padded to the longest; the padding changes no vector.
    pub(crate) fn encode(&self, texts: &[impl AsRef<[u32]>]) -> Result<Vec<Vec<f32>>> {
        self.forward(&self.upload(texts)?)?.to_vec2()
    }

    /// The texts on the device.
    pub(crate) fn upload(&self, texts: &[impl AsRef<[u32]>]) -> Result<Texts> {
        let texts: Vec<&[u32]> = texts.iter().map(AsRef::as_ref).collect();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        if texts.iter().any(|text| text.is_empty()) {
            bail!("a text without tokens has no vector");
        }
        let shape = (texts.len(), longest);
        let places = texts.iter().flat_map(|text| (0..longest).map(|at| text.get(at)));
        let ids: Vec<u32> = places.clone().map(|token| token.copied().unwrap_or(0)).collect();
        let mask: Vec<f32> = places.map(|token| f32::from(token.is_some())).collect();
        let device = &self.device;
        Ok(Texts {
            ids: Tensor::from_vec(ids, shape, device)?,
            mask: Tensor::from_vec(mask, shape, device)?,
        })
    }

    /// The vectors, still on the device. The network computes in the type of its weights.
    pub(crate) fn forward(&self, Texts { ids, mask }: &Texts) -> Result<Tensor> {
        let words = self.words.forward(ids)?;
        let words = words.broadcast_add(&self.places.narrow(0, 0, ids.dim(1)?)?)?;
        let hidden = mask.affine(-HIDDEN, HIDDEN)?.to_dtype(words.dtype())?;
        let hidden = hidden.unsqueeze(1)?.unsqueeze(1)?;
        let states = self.layers.forward(&self.norm.forward(&words)?, &hidden)?;
        let states = states.to_dtype(DType::F32)?;
        let sums = states.broadcast_mul(&mask.unsqueeze(D::Minus1)?)?.sum(1)?;
        // The length becomes 1 whatever it was, so the sum does as well as the mean.
        sums.broadcast_div(&sums.sqr()?.sum_keepdim(1)?.sqrt()?)
    }

    /// Encodes a batch of this size for nothing: what a GPU sets up when it is first used, such as compiling
    /// kernels, is then done, and there is memory enough. The CPU has nothing of the kind.
    pub(crate) fn warm_up(&self, texts: usize, tokens: usize) -> Result<()> {
        if self.device.is_cpu() {
            return Ok(());
        }
        self.encode(&vec![vec![0; tokens]; texts]).map(drop)
    }
}

/// The names that BERT's weights have in files, and their shapes.
fn shapes(config: &Config) -> Vec<(String, Shape)> {
    let (hidden, inner) = (config.hidden_size, config.intermediate_size);
    let tables = [
        ("word", config.vocab_size),
        ("position", config.max_position_embeddings),
        ("token_type", config.type_vocab_size),
    ];
    let mut all = Vec::new();
    for (name, rows) in tables {
        all.push((format!("embeddings.{name}_embeddings.weight"), Shape::from((rows, hidden))));
    }
    let mut norms = vec![String::from("embeddings")];
    for layer in (0..config.num_hidden_layers).map(|i| format!("encoder.layer.{i}")) {
        let linears = [
            ("attention.self.query", hidden, hidden),
            ("attention.self.key", hidden, hidden),
            ("attention.self.value", hidden, hidden),
            ("attention.output.dense", hidden, hidden),
            ("intermediate.dense", inner, hidden),
            ("output.dense", hidden, inner),
        ];
        for (name, rows, columns) in linears {
            all.push((format!("{layer}.{name}.weight"), Shape::from((rows, columns))));
            all.push((format!("{layer}.{name}.bias"), Shape::from(rows)));
        }
        norms.extend([format!("{layer}.attention.output"), format!("{layer}.output")]);
    }
    for norm in norms {
        all.push((format!("{norm}.LayerNorm.weight"), Shape::from(hidden)));
        all.push((format!("{norm}.LayerNorm.bias"), Shape::from(hidden)));
    }
    all
}
