//! The network of the predictor examples: `Linear(1, 3)` and ReLU.

use std::collections::HashMap;

use candle_core::{Device, Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder, linear};

use crate::rng::Rng;

/// Weights by name. The same seed gives the same ones. They lie on the CPU.
pub(crate) fn seeded_weights(seed: u64) -> Result<HashMap<String, Tensor>> {
    let mut rng = Rng::seeded(seed);
    let weights = [("fc.weight", rng.tensor(1.0, (3, 1))?), ("fc.bias", rng.tensor(1.0, 3)?)];
    Ok(weights.into_iter().map(|(name, tensor)| (name.to_owned(), tensor)).collect())
}

pub(crate) struct Net {
    fc: Linear,
}

impl Net {
    pub(crate) fn new(weights: VarBuilder<'_>) -> Result<Self> {
        Ok(Net { fc: linear(1, 3, weights.pp("fc"))? })
    }

    /// Three numbers for each input: a tensor of shape (inputs, 3), on the CPU.
    pub(crate) fn predict(&self, inputs: &[f32]) -> Result<Tensor> {
        let column = Tensor::from_slice(inputs, (inputs.len(), 1), self.fc.weight().device())?;
        self.fc.forward(&column)?.relu()?.to_device(&Device::Cpu)
    }
}
