//! The network of the predictor examples: `Linear(1, 3)` and ReLU.

use candle_core::{Device, Result, Tensor};
use candle_nn::{Linear, Module};

use crate::rng::Rng;

pub(crate) struct Net {
    fc: Linear,
}

impl Net {
    /// The same seed gives the same weights. They lie on the CPU.
    pub(crate) fn seeded(seed: u64) -> Result<Self> {
        let mut rng = Rng::seeded(seed);
        Ok(Net { fc: Linear::new(rng.tensor(1.0, (3, 1))?, Some(rng.tensor(1.0, 3)?)) })
    }

    /// The same network on another device.
    pub(crate) fn to_device(&self, device: &Device) -> Result<Self> {
        let bias = self.fc.bias().map(|bias| bias.to_device(device)).transpose()?;
        Ok(Net { fc: Linear::new(self.fc.weight().to_device(device)?, bias) })
    }

    /// Three numbers for each input: a tensor of shape (inputs, 3), on the CPU.
    pub(crate) fn predict(&self, inputs: &[f32]) -> Result<Tensor> {
        let column = Tensor::from_slice(inputs, (inputs.len(), 1), self.fc.weight().device())?;
        self.fc.forward(&column)?.relu()?.to_device(&Device::Cpu)
    }
}
