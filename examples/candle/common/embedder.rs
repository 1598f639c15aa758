//! A runner that makes vectors of texts, alone or in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::DType;
use gangline::{ConsumerContext, ProducerContext, Result, Runner};

use crate::encoder::{Encoder, Weights};

/// Its items are texts as tokens, its outputs their vectors.
pub(crate) struct Embedder {
    weights: Arc<Weights>,
    /// The largest batch: its number of texts, and of tokens in each.
    largest: (usize, usize),
    /// How many were encoded.
    batches: AtomicU64,
}

impl Embedder {
    pub(crate) fn new(weights: &Arc<Weights>, largest: (usize, usize)) -> Self {
        Embedder { weights: weights.clone(), largest, batches: AtomicU64::new(0) }
    }

    /// How many batches were encoded, of one text or more, besides those that only warmed up.
    pub(crate) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Relaxed)
    }
}

impl Runner for Embedder {
    type Input = Vec<u32>;
    type Output = Vec<f32>;
    type ProducerState = Encoder;
    type ConsumerState = Vec<Vec<f32>>;
    type Summary = Vec<Vec<f32>>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Encoder> {
        let tensors = cx.var_builder([&self.weights.tensors], DType::F32)?;
        let encoder = Encoder::new(tensors, &self.weights.config)?;
        encoder.warm_up(self.largest.0, self.largest.1)?;
        Ok(encoder)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        encoder: &mut Encoder,
        tokens: Vec<u32>,
    ) -> Result<Vec<f32>> {
        let mut vectors = self.producer_work_batch(cx, encoder, &mut vec![tokens])?;
        vectors.pop().expect("one vector for one text")
    }

    /// The texts stay in `inputs`: a batch that does not fit the device is split and tried again.
    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        encoder: &mut Encoder,
        inputs: &mut Vec<Vec<u32>>,
    ) -> Result<Vec<Result<Vec<f32>>>> {
        let vectors = encoder.encode(inputs)?;
        self.batches.fetch_add(1, Ordering::Relaxed);
        Ok(vectors.into_iter().map(Ok).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<Vec<f32>>> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        vectors: &mut Vec<Vec<f32>>,
        vector: Vec<f32>,
    ) -> Result<()> {
        vectors.push(vector);
        Ok(())
    }

    fn consumer_end(
        &self,
        _: &ConsumerContext<'_>,
        vectors: Vec<Vec<f32>>,
    ) -> Result<Vec<Vec<f32>>> {
        Ok(vectors)
    }
}
