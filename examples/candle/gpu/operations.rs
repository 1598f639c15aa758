//! Operations of candle, each the same on every device up to rounding.

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops::{layer_norm, softmax_last_dim};

use crate::rng::Rng;

/// Computes something from the same numbers on whatever device it is given.
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    /// By how much results may differ from the CPU's: of the largest of them, where that is above 1.
    pub(crate) tolerance: f32,
    compute: fn(&Numbers<'_>) -> Result<Tensor>,
}

/// Numbers that are the same each time, on one device.
struct Numbers<'a> {
    device: &'a Device,
}

impl Numbers<'_> {
    fn tensor<const N: usize>(&self, seed: u64, shape: [usize; N]) -> Result<Tensor> {
        Rng::seeded(seed).tensor(1.0, shape.as_slice())?.to_device(self.device)
    }
}

impl Operation {
    /// What comes out, in one row.
    pub(crate) fn on(&self, device: &Device) -> Result<Vec<f32>> {
        (self.compute)(&Numbers { device })?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()
    }
}

pub(crate) const OPERATIONS: &[Operation] = &[
    Operation {
        name: "copy there and back",
        tolerance: 0.0,
        compute: |n| n.tensor(1, [1000, 1000]),
    },
    Operation {
        name: "copy of a part, from a stride",
        tolerance: 0.0,
        compute: |n| n.tensor(1, [64, 96])?.t()?.narrow(0, 3, 50)?.contiguous(),
    },
    Operation {
        name: "elementwise, sum",
        tolerance: 1e-5,
        compute: |n| {
            let (a, b) = (n.tensor(1, [300, 200])?, n.tensor(2, [300, 200])?);
            (a.mul(&b)? + a.exp()?)?.sum(D::Minus1)
        },
    },
    Operation {
        name: "matmul f32",
        tolerance: 1e-4,
        compute: |n| n.tensor(1, [257, 320])?.matmul(&n.tensor(2, [320, 129])?),
    },
    Operation {
        name: "matmul f32, batched",
        tolerance: 1e-4,
        compute: |n| n.tensor(1, [6, 65, 64])?.matmul(&n.tensor(2, [6, 65, 64])?.t()?),
    },
    Operation {
        name: "matmul bf16",
        // bf16 has 8 bits.
        tolerance: 2e-2,
        compute: |n| {
            let (a, b) = (n.tensor(1, [128, 256])?, n.tensor(2, [256, 64])?);
            a.to_dtype(DType::BF16)?.matmul(&b.to_dtype(DType::BF16)?)
        },
    },
    Operation {
        name: "conv2d",
        tolerance: 1e-4,
        compute: |n| n.tensor(1, [4, 8, 28, 28])?.conv2d(&n.tensor(2, [16, 8, 3, 3])?, 1, 2, 1, 1),
    },
    Operation {
        name: "softmax",
        tolerance: 1e-5,
        compute: |n| softmax_last_dim(&n.tensor(1, [64, 333])?),
    },
    Operation {
        name: "layer_norm",
        tolerance: 1e-4,
        compute: |n| {
            layer_norm(&n.tensor(1, [64, 768])?, &n.tensor(2, [768])?, &n.tensor(3, [768])?, 1e-12)
        },
    },
    Operation { name: "gelu", tolerance: 1e-5, compute: |n| n.tensor(1, [64, 300])?.gelu_erf() },
    Operation {
        name: "index_select",
        tolerance: 0.0,
        compute: |n| {
            let rows = Tensor::from_slice(&[9u32, 0, 41, 9], 4, n.device)?;
            n.tensor(1, [50, 70])?.index_select(&rows, 0)
        },
    },
    Operation {
        name: "argsort",
        tolerance: 0.0,
        compute: |n| n.tensor(1, [20, 200])?.arg_sort_last_dim(true),
    },
];
