//! What can be set before a runner is built.

use std::fmt;
use std::marker::PhantomData;

use super::{Handle, InChosenOrder, Kind};
use crate::cancel::CancelToken;
use crate::cfg::CfgNode;
use crate::device::{Devices, IntoDevices};
use crate::engine::session::{Engine, Settings};
use crate::error::Error;
use crate::order::Order;
use crate::runner::Runner;

/// Builds a runner: see [`Handle::builder`].
///
/// ```
/// use gangline::{CfgNode, Order, Pool, map};
///
/// # fn main() -> gangline::Result<()> {
/// let powers = map(
///     |cx| Ok(cx.cfg().get::<u32>("exponent")?),
///     |_, exponent: &mut u32, x: u64| Ok(x.pow(*exponent)),
/// );
/// let mut runner = Pool::builder(powers)
///     .devices("cpu*2")
///     .order(Order::Input)
///     .window(16)
///     .cfg(CfgNode::new().with("exponent", 3)?)
///     .build()?;
/// assert_eq!(runner.run([1, 2, 3])?, [1, 8, 27]);
/// # Ok(())
/// # }
/// ```
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder<R, O> {
    runner: R,
    /// A bad value's error waits here for `build`.
    devices: Option<Result<Devices, Error>>,
    cfg: CfgNode,
    order: Order,
    window: Option<usize>,
    stack_size: Option<usize>,
    token: CancelToken,
    kind: PhantomData<fn() -> O>,
}

impl<R: Runner + 'static, O: Kind> Builder<R, O> {
    pub(super) fn new(runner: R) -> Self {
        Builder {
            runner,
            devices: None,
            cfg: CfgNode::new(),
            order: O::ORDER,
            window: None,
            stack_size: None,
            token: CancelToken::new(),
            kind: PhantomData,
        }
    }

    /// Where the producers work: one producer for each place. Without it,
    /// [`Devices::available`].
    pub fn devices(mut self, devices: impl IntoDevices) -> Self {
        self.devices = Some(devices.into_devices());
        self
    }

    /// The configuration that the hooks see. Empty without it.
    pub fn cfg(mut self, cfg: CfgNode) -> Self {
        self.cfg = cfg;
        self
    }

    /// How many items may be given out and not yet consumed: exactly `items`. 1 makes
    /// everything serial; 0 is refused.
    ///
    /// Without it the window starts with three items for each producer and grows while items are
    /// fast: to about 2 ms of work for each producer, and to 8,192 items at most.
    pub fn window(mut self, items: usize) -> Self {
        self.window = Some(items);
        self
    }

    /// A token that ends what is in progress, also the building. Without it the runner gets one of
    /// its own: [`Handle::cancel_token`].
    pub fn cancel_token(mut self, token: CancelToken) -> Self {
        self.token = token;
        self
    }

    /// The size in bytes of the stacks of the runner's threads. Without it, that of
    /// [`std::thread`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Builds the runner: starts all producers at once, and returns when every `producer_init` has.
    ///
    /// # Errors
    ///
    /// When a value that was set is not allowed, when the devices cannot be used by this build on
    /// this machine, when a thread cannot be started, when a `producer_init` fails or panics, or when
    /// the token cancels the building. The other producers are ended first.
    pub fn build(self) -> Result<Handle<R, O>, Error> {
        let devices = self.devices.unwrap_or_else(|| Ok(Devices::available()))?;
        if self.window == Some(0) {
            return Err(Error::Window { window: 0, least: 1 });
        }
        let settings = Settings {
            devices,
            order: self.order,
            window: self.window,
            stack_size: self.stack_size,
            token: self.token,
        };
        let engine = Engine::new(self.runner, self.cfg, settings)?;
        Ok(Handle { engine, order: PhantomData })
    }
}

impl<R: Runner + 'static> Builder<R, InChosenOrder> {
    /// The order in which the consumer sees results.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }
}

impl<R, O> fmt::Debug for Builder<R, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("devices", &self.devices)
            .field("order", &self.order)
            .field("window", &self.window)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}
