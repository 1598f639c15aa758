//! Ganglines: the settings that are measured, and the runner that sums.

use gangline::{AnyOrderRunner, ConsumerContext, Error, Order, ProducerContext, Result, Runner};

use crate::work::Work;

/// A setting.
#[derive(Clone, Copy, PartialEq)]
pub struct Gang {
    order: Order,
    window: Window,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Window {
    /// Left alone.
    Default,
    Of64,
}

impl Gang {
    pub const ORDERED: Self = Self { order: Order::Input, window: Window::Default };
    pub const UNORDERED: Self = Self { order: Order::Completion, window: Window::Default };
    pub const ORDERED_64: Self = Self { order: Order::Input, window: Window::Of64 };
    pub const UNORDERED_64: Self = Self { order: Order::Completion, window: Window::Of64 };
    pub const DEFAULTS: [Self; 2] = [Self::ORDERED, Self::UNORDERED];
    pub const NARROW: [Self; 2] = [Self::ORDERED_64, Self::UNORDERED_64];

    pub fn name(self) -> &'static str {
        match (self.order, self.window) {
            (Order::Input, Window::Default) => "gangline ordered",
            (Order::Input, Window::Of64) => "gangline ordered, window 64",
            (_, Window::Default) => "gangline unordered",
            (_, Window::Of64) => "gangline unordered, window 64",
        }
    }

    pub fn manner(self) -> &'static str {
        match self.order {
            Order::Input => "in order",
            _ => "any order",
        }
    }

    pub fn build<R: Runner + 'static>(
        self,
        runner: R,
        threads: usize,
    ) -> Result<AnyOrderRunner<R>, Error> {
        let builder = AnyOrderRunner::builder(runner).order(self.order).devices(threads);
        match self.window {
            Window::Default => builder.build(),
            Window::Of64 => builder.window(64).build(),
        }
    }
}

/// Sums the results of work on numbers.
pub struct Sum(pub Work);

impl Runner for Sum {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
        Ok(self.0.on(x))
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(0)
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
        *sum = sum.wrapping_add(y);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        Ok(sum)
    }
}
