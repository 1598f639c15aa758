//! A small seeded generator (SplitMix64), because candle cannot seed its own on the CPU.

use candle_core::{Device, Shape, Tensor};

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn seeded(seed: u64) -> Self {
        Rng(seed)
    }

    /// A number from `low` up to, but without, `high`.
    pub(crate) fn uniform(&mut self, low: f32, high: f32) -> f32 {
        // The upper 24 bits are exact in an `f32`.
        let unit = (self.next() >> 40) as f32 / (1u64 << 24) as f32;
        low + (high - low) * unit
    }

    /// A tensor on the CPU with values between `-bound` and `bound`.
    pub(crate) fn tensor(
        &mut self,
        bound: f32,
        shape: impl Into<Shape>,
    ) -> candle_core::Result<Tensor> {
        let shape = shape.into();
        let values = (0..shape.elem_count()).map(|_| self.uniform(-bound, bound)).collect();
        Tensor::from_vec(values, shape, &Device::Cpu)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
