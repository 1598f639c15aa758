//! What a stage of a random pipeline does with its items.

use super::*;

impl Stage {
    pub(super) fn random(random: &mut fastrand::Rng, faults: bool) -> Self {
        let batch = if random.u8(0..4) == 0 { random.usize(1..6) } else { 0 };
        let mut chance = |one_in: u8, most: u64| match faults && random.u8(0..one_in) == 0 {
            true => random.u64(0..most),
            false => 0,
        };
        let (fails, panics, falters) = (chance(2, 60), chance(5, 25), chance(4, 60));
        Stage {
            seed: random.u64(..),
            ordered: random.u8(0..4) > 0,
            producers: random.usize(1..=4),
            window: random.usize(batch.max(1)..batch.max(1) + 9),
            batch,
            waits_for_batch: random.bool(),
            fails,
            panics,
            falters,
            busy: if random.u8(0..3) == 0 { random.u64(0..2000) } else { 0 },
            retries: if random.u8(0..4) == 0 { random.u32(1..3) } else { 0 },
            timeout: random.u8(0..5) == 0,
            speculate: random.u8(0..10) == 0,
            skips: random.u8(0..6) > 0,
            recycle: if random.u8(0..8) == 0 { random.u64(1..30) } else { 0 },
            quarantine: random.u8(0..12) == 0,
            memory: None,
        }
    }

    pub(super) fn does(&self, x: u64) -> Does {
        let chance = hash(self.seed, x) % 256;
        if chance < self.fails {
            Does::Fails
        } else if chance < self.fails + self.panics {
            Does::Panics
        } else if chance < self.fails + self.panics + self.falters {
            Does::Falters
        } else {
            Does::Works
        }
    }

    /// The outcome in the plain loop.
    pub(super) fn expected(&self, x: u64) -> Outcome {
        let done = || x.wrapping_mul(3).wrapping_add(1);
        match self.does(x) {
            Does::Works => Outcome::Value(done()),
            Does::Fails | Does::Panics => Outcome::Fails,
            Does::Falters if self.quarantine => Outcome::Unknown,
            Does::Falters if self.retries > 0 => Outcome::Value(done()),
            Does::Falters => Outcome::Fails,
        }
    }

    pub(super) fn work(&self, cx: &ProducerContext<'_>, x: u64) -> Result<u64, BoxError> {
        (0..hash(self.seed, x) % (self.busy + 1)).for_each(|_| std::hint::spin_loop());
        match self.does(x) {
            Does::Fails => Err(format!("fault of {x}").into()),
            Does::Panics => panic!("fault of {x}"),
            Does::Falters if cx.attempt() == 1 => Err(format!("fault of {x}").into()),
            _ => Ok(x.wrapping_mul(3).wrapping_add(1)),
        }
    }

    pub(super) fn pool<I>(
        &self,
        record: &Arc<Record>,
        unpack: fn(I) -> Value,
        journal: Option<Journal>,
    ) -> AnyOrderRunner<Step<I>>
    where
        I: Clone + Send + 'static,
    {
        let runner = Step { stage: *self, record: record.clone(), unpack };
        let mut builder = AnyOrderRunner::builder(runner)
            .order(if self.ordered { Order::Input } else { Order::Completion })
            .devices(self.producers)
            .window(self.window)
            .retries(self.retries)
            .backoff(Duration::ZERO, Duration::ZERO)
            .on_error(if self.skips { OnError::Skip } else { OnError::Stop });
        if let Some(most) = self.memory {
            builder = builder.window_memory(most, |_| 1, |value| value.x % 3);
        }
        if self.batch > 0 {
            builder = builder.batch(match self.waits_for_batch {
                true => Batch::of(self.batch),
                false if self.batch == 1 => Batch::auto(),
                false => Batch::up_to(self.batch),
            });
        }
        if self.timeout {
            builder = builder.item_timeout(Duration::from_secs(100));
        }
        if self.speculate {
            builder = builder.speculate();
        }
        if self.recycle > 0 {
            builder = builder.recycle_after(self.recycle);
        }
        if self.quarantine {
            builder = builder.quarantine_after(2);
        }
        if let Some(journal) = journal {
            builder = builder.journal(journal);
        }
        builder.build().expect("a pool is built")
    }
}

impl<I: Send> Step<I> {
    pub(super) fn step(&self, cx: &ProducerContext<'_>, value: Value) -> Result<Value, BoxError> {
        let x = self.stage.work(cx, value.x)?;
        Ok(Value { x, ..value })
    }
}

impl<I: Clone + Send> Runner for Step<I> {
    type Input = I;
    type Output = Value;
    type ProducerState = Live;
    type ConsumerState = Vec<(u64, u64)>;
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Live, BoxError> {
        Ok(self.record.states.live())
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Live,
        input: I,
    ) -> Result<Value, BoxError> {
        self.step(cx, (self.unpack)(input))
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Live,
        inputs: &mut Vec<I>,
    ) -> Result<Vec<Result<Value, BoxError>>, BoxError> {
        for input in &*inputs {
            let x = (self.unpack)(input.clone()).x;
            assert!(self.stage.does(x) != Does::Panics, "fault of {x}");
        }
        let values = inputs.drain(..).map(self.unpack).enumerate();
        Ok(values.map(|(i, value)| self.step(&cx.at(i), value)).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<(u64, u64)>, BoxError> {
        Ok(vec![])
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        _: &mut Vec<(u64, u64)>,
        output: Value,
    ) -> Result<(), BoxError> {
        self.record.consume(&output);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, _: Vec<(u64, u64)>) -> Result<(), BoxError> {
        Ok(())
    }
}
