//! The settings of gangline that are measured, and the runner that sums.

use std::time::Duration;

use gangline::{AnyOrderRunner, ConsumerContext, Error, Order, ProducerContext, Result, Runner};

use crate::work::Work;

/// The settings of one pool.
#[derive(Clone, Copy, PartialEq)]
pub struct Gang {
    order: Order,
    setting: Setting,
}

#[derive(Clone, Copy, PartialEq)]
enum Setting {
    Default,
    WindowOf64,
    /// An item timeout that no item exceeds.
    ItemTimeout,
}

const ITEM_TIMEOUT: Duration = Duration::from_secs(10);

impl Gang {
    pub const ORDERED: Self = Self { order: Order::Input, setting: Setting::Default };
    pub const UNORDERED: Self = Self { order: Order::Completion, setting: Setting::Default };
    pub const ORDERED_64: Self = Self { order: Order::Input, setting: Setting::WindowOf64 };
    pub const UNORDERED_64: Self = Self { order: Order::Completion, setting: Setting::WindowOf64 };
    pub const TIMED: Self = Self { order: Order::Input, setting: Setting::ItemTimeout };
    pub const DEFAULTS: [Self; 2] = [Self::ORDERED, Self::UNORDERED];
    pub const NARROW: [Self; 2] = [Self::ORDERED_64, Self::UNORDERED_64];

    pub fn name(self) -> &'static str {
        match (self.order, self.setting) {
            (Order::Input, Setting::Default) => "gangline ordered",
            (Order::Input, Setting::WindowOf64) => "gangline ordered, window 64",
            (Order::Input, Setting::ItemTimeout) => "gangline ordered, item timeout",
            (_, Setting::Default) => "gangline unordered",
            (_, Setting::WindowOf64) => "gangline unordered, window 64",
            (_, Setting::ItemTimeout) => "gangline unordered, item timeout",
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
        match self.setting {
            Setting::Default => builder.build(),
            Setting::WindowOf64 => builder.window(64).build(),
            Setting::ItemTimeout => builder.item_timeout(ITEM_TIMEOUT).build(),
        }
    }
}

/// Sums the results of the work on numbers.
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
