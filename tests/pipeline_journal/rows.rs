//! Pipelines of two and three stages, with a journal on the first.

use gangline::journal::KeyKind;
use gangline::order::RuntimeOrder;
use gangline::{Account, AnyOrderRunner, Builder, Error, Journal, OnError, Order};

use crate::hooks::{Hooks, sorted};

pub const KINDS: [KeyKind; 3] = [KeyKind::Position, KeyKind::HashedPosition, KeyKind::Name];

/// Rows of two and three stages, each stage in either order.
pub fn shapes() -> Vec<Vec<Order>> {
    let orders = [Order::Input, Order::Completion];
    let pairs: Vec<Vec<Order>> =
        orders.iter().flat_map(|a| orders.iter().map(|b| vec![*a, *b])).collect();
    let longer = |pair: &Vec<Order>| orders.map(|order| [pair.clone(), vec![order]].concat());
    let triples: Vec<Vec<Order>> = pairs.iter().flat_map(longer).collect();
    [pairs, triples].concat()
}

/// A first stage that skips errors, with items that are known like that.
pub fn first(hooks: Hooks, order: Order, kind: KeyKind) -> Builder<Hooks, RuntimeOrder> {
    let builder = later(hooks, order);
    match kind {
        KeyKind::HashedPosition => builder.hashed_by(|x| x.wrapping_mul(7919)),
        KeyKind::Name => builder.key(|x| format!("item {x}")),
        _ => builder,
    }
}

/// A stage that skips errors.
pub fn later(hooks: Hooks, order: Order) -> Builder<Hooks, RuntimeOrder> {
    AnyOrderRunner::builder(hooks).order(order).devices(2).on_error(OnError::Skip)
}

/// A row of stages before the first run: `hooks` makes those of each stage.
pub struct Row<'a> {
    pub orders: &'a [Order],
    pub kind: KeyKind,
    pub hooks: &'a dyn Fn(usize) -> Hooks,
}

impl Row<'_> {
    /// Runs these items, and returns what was consumed and the account.
    pub fn try_run(
        &self,
        journal: Journal,
        items: impl IntoIterator<Item = u64>,
    ) -> (Result<Vec<u64>, Error>, Account) {
        let hooks = self.hooks;
        let first = first(hooks(0), self.orders[0], self.kind).journal(journal);
        let a = first.build().unwrap();
        let mut rest: Vec<_> = (1..self.orders.len())
            .map(|stage| later(hooks(stage), self.orders[stage]).build().unwrap())
            .collect();
        match &mut rest[..] {
            [b] => {
                let mut row = a.then(b);
                (row.run(items), row.account())
            }
            [b, c] => {
                let mut row = a.then(b).then(c);
                (row.run(items), row.account())
            }
            _ => panic!("rows have two or three stages"),
        }
    }

    /// What was consumed, in ascending order, and the account's ok, failed and already done.
    #[track_caller]
    pub fn run(
        &self,
        journal: Journal,
        items: impl IntoIterator<Item = u64>,
    ) -> (Vec<u64>, [u64; 3]) {
        let (result, account) = self.try_run(journal, items);
        let outputs = result.unwrap();
        assert_eq!((account.cancelled, account.unread), (0, Some(0)));
        (sorted(outputs), [account.ok, account.failed, account.already_done])
    }
}

pub fn plain(_: usize) -> Hooks {
    Hooks::new()
}
