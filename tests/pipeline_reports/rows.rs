//! Rows of stages to make pipelines of.

use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Builder, Error, OnError, Order, Pipeline};

use crate::hooks::Hooks;

pub type Stage = AnyOrderRunner<Hooks>;

pub const ORDERS: [Order; 2] = [Order::Input, Order::Completion];

/// Each way in which `stages` stages can be ordered.
pub fn orders(stages: usize) -> Vec<Vec<Order>> {
    let mut all = vec![vec![]];
    for _ in 0..stages {
        let longer = |orders: &Vec<Order>| {
            let orders = orders.clone();
            ORDERS.map(|order| [orders.clone(), vec![order]].concat())
        };
        all = all.iter().flat_map(longer).collect();
    }
    all
}

/// A stage that skips what fails.
pub fn skipping(hooks: Hooks, order: Order) -> Builder<Hooks, RuntimeOrder> {
    AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(OnError::Skip)
}

/// Passes on all items but those that `fails` names.
pub fn failing(fails: impl Fn(u64) -> bool + Send + Sync + 'static) -> Hooks {
    Hooks::new().work(move |_, x| if fails(x) { Err(format!("no {x}").into()) } else { Ok(x) })
}

/// Hands a pipeline of these stages to `use_it`.
pub fn with_pipeline<T>(row: &mut [Stage], use_it: impl FnOnce(&mut dyn Row) -> T) -> T {
    match row {
        [a, b] => use_it(&mut Pipeline::new(&mut *a).then(&mut *b)),
        [a, b, c] => use_it(&mut Pipeline::new(&mut *a).then(&mut *b).then(&mut *c)),
        [a, b, c, d] => {
            use_it(&mut Pipeline::new(&mut *a).then(&mut *b).then(&mut *c).then(&mut *d))
        }
        _ => panic!("rows have two to four stages"),
    }
}

/// A pipeline, whatever its first runner is.
pub trait Row {
    fn run_all(&mut self, items: &mut dyn Iterator<Item = u64>) -> Result<Vec<u64>, Error>;
    fn run_vec(&mut self, items: Vec<u64>) -> Result<Vec<u64>, Error>;
    fn pipeline(&self) -> &Pipeline<'_, Hooks, Hooks>;
}

impl Row for Pipeline<'_, Hooks, Hooks> {
    fn run_all(&mut self, items: &mut dyn Iterator<Item = u64>) -> Result<Vec<u64>, Error> {
        self.run(items)
    }

    fn run_vec(&mut self, items: Vec<u64>) -> Result<Vec<u64>, Error> {
        self.run(items)
    }

    fn pipeline(&self) -> &Pipeline<'_, Hooks, Hooks> {
        self
    }
}
