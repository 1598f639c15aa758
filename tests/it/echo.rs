//! Runners that give batches back as they are.

use std::sync::{Arc, Mutex};

use gangline::{ConsumerContext, ProducerContext, Result, Runner};

/// The items of each call.
pub type Calls = Arc<Mutex<Vec<Vec<u64>>>>;

/// Gives numbers back, batch by batch, and notes which were worked on together.
#[derive(Default)]
pub struct Echo {
    calls: Calls,
    bad: Option<(u64, How)>,
}

#[derive(Clone, Copy, PartialEq)]
enum How {
    Fail,
    Panic,
}

impl Echo {
    pub fn new() -> Self {
        Self::default()
    }

    /// A batch with `bad` fails as a whole.
    pub fn failing_at(self, bad: u64) -> Self {
        Echo { bad: Some((bad, How::Fail)), ..self }
    }

    /// A batch with `bad` panics.
    pub fn panicking_at(self, bad: u64) -> Self {
        Echo { bad: Some((bad, How::Panic)), ..self }
    }

    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }
}

impl Runner for Echo {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), _: u64) -> Result<u64> {
        unreachable!("this runner works by the batch")
    }
    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> Result<Vec<Result<u64>>> {
        self.calls.lock().unwrap().push(inputs.clone());
        match self.bad.filter(|(bad, _)| inputs.contains(bad)) {
            Some((_, How::Panic)) => panic!("bad"),
            Some((_, How::Fail)) => Err("bad".into()),
            None => Ok(inputs.iter().copied().map(Ok).collect()),
        }
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
        Ok(vec![])
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u64>, x: u64) -> Result<()> {
        all.push(x);
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
        Ok(all)
    }
}

/// Takes its inputs, and fails at the first attempt at a batch with 5. Notes which were worked on together.
#[derive(Default)]
pub struct Together {
    calls: Calls,
}

impl Together {
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }
}

impl Runner for Together {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        Ok(x)
    }
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> Result<Vec<Result<u64>>> {
        let inputs = std::mem::take(inputs);
        self.calls.lock().unwrap().push(inputs.clone());
        if inputs.contains(&5) && cx.attempt() == 1 {
            return Err("five".into());
        }
        Ok(inputs.into_iter().map(Ok).collect())
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
        Ok(vec![])
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u64>, x: u64) -> Result<()> {
        all.push(x);
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
        Ok(all)
    }
}
