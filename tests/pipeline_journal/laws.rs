//! The laws of a journal, for pipelines of any shape that end early again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use gangline::journal::KeyKind;
use gangline::{
    Account, AnyOrderRunner, Batch, Error, OnError, Order, Pipeline, Runner, map_batches,
};
use proptest::prelude::*;

use crate::hooks::Hooks;
use crate::journal_file::Place;
use crate::rows::{KINDS, first, later};

/// How one of the runs ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    All,
    /// The consumer stops at the n-th item that it gets.
    Stop(usize),
    Cancel(usize),
    Drain(usize),
    /// The consumer fails at this item.
    Fail(u64),
}

#[derive(Debug, Clone)]
struct Shape {
    orders: Vec<Order>,
    windows: Vec<Option<usize>>,
    kind: KeyKind,
    batch: Option<usize>,
    retries: u32,
    /// Stage and item: fails in every run but the last.
    fails: BTreeSet<(usize, u64)>,
    items: u64,
    ends: Vec<End>,
    commit_items: usize,
}

fn shapes() -> impl Strategy<Value = Shape> {
    let order = prop_oneof![1 => Just(Order::Input), 1 => Just(Order::Completion)];
    let end = prop_oneof![
        1 => Just(End::All),
        2 => (0..40_usize).prop_map(End::Stop),
        2 => (0..40_usize).prop_map(End::Cancel),
        1 => (0..40_usize).prop_map(End::Drain),
        1 => (0..80_u64).prop_map(End::Fail),
    ];
    let parts = (
        prop::collection::vec(order, 2..4_usize),
        prop::collection::vec(prop::option::of(8..20_usize), 3),
        prop::sample::select(KINDS.to_vec()),
        prop::option::of(1..5_usize),
        0..2_u32,
        prop::collection::btree_set((0..3_usize, 0..80_u64), 0..10),
        0..80_u64,
        prop::collection::vec(end, 0..4),
        1..20_usize,
    );
    parts.prop_map(|(orders, windows, kind, batch, retries, fails, items, ends, commit_items)| {
        Shape { orders, windows, kind, batch, retries, fails, items, ends, commit_items }
    })
}

/// What the consumer has had: the number of times, by item.
type Seen = Arc<Mutex<BTreeMap<u64, u64>>>;

impl Shape {
    fn hooks(&self, stage: usize, end: End, is_last_run: bool, seen: &Seen) -> Hooks {
        let fails = if is_last_run { BTreeSet::new() } else { self.fails.clone() };
        let (seen, count) = (seen.clone(), Mutex::new(0));
        Hooks::new()
            .work(move |_, x| match fails.contains(&(stage, x)) {
                true => Err("it broke".into()),
                false => Ok(x),
            })
            .consume(move |cx, y| {
                if end == End::Fail(y) {
                    return Err("the disk is full".into());
                }
                *seen.lock().unwrap().entry(y).or_default() += 1;
                let mut count = count.lock().unwrap();
                *count += 1;
                if end == End::Stop(*count) {
                    cx.stop();
                }
                Ok(())
            })
    }

    /// Returns the result and the accounts: of the pipeline, then of its pools.
    fn run(
        &self,
        place: &Place,
        end: End,
        is_last_run: bool,
        seen: &Seen,
    ) -> (Result<(), Error>, Vec<Account>) {
        let journal = place.resume().commit_items(self.commit_items);
        let hooks = |stage| self.hooks(stage, end, is_last_run, seen);
        let mut a = first(hooks(0), self.orders[0], self.kind).journal(journal);
        a = a.retries(self.retries);
        if let Some(window) = self.windows[0] {
            a = a.window(window);
        }
        let mut a = a.build().unwrap();
        let last = self.orders.len() - 1;
        let mut c = later(hooks(last), self.orders[last]);
        // An error of the consumer ends the run.
        c = c.classify(|error| match error.hook() {
            Some(gangline::Hook::ConsumerWork) => gangline::Verdict::Stop,
            _ => gangline::Verdict::Skip,
        });
        if let Some(window) = self.windows[last] {
            c = c.window(window);
        }
        let mut c = c.build().unwrap();
        let token = a.cancel_token();
        let items = (0..self.items).inspect(|&x| match end {
            End::Cancel(at) if at as u64 == x => token.cancel(),
            End::Drain(at) if at as u64 == x => token.drain(),
            _ => {}
        });
        if last == 1 {
            let (result, whole) = {
                let mut row = Pipeline::new(&mut a).then(&mut c);
                (row.run(items).map(drop), row.account())
            };
            return (result, vec![whole, a.account(), c.account()]);
        }
        let mut b = AnyOrderRunner::builder(self.middle(is_last_run)).order(self.orders[1]);
        b = b.devices(2).on_error(OnError::Skip);
        if let Some(batch) = self.batch {
            b = b.batch(Batch::of(batch));
        }
        let mut b = b.build().unwrap();
        let (result, whole) = {
            let mut row = Pipeline::new(&mut a).then(&mut b).then(&mut c);
            (row.run(items).map(drop), row.account())
        };
        (result, vec![whole, a.account(), b.account(), c.account()])
    }

    /// A stage that takes batches.
    fn middle(&self, is_last_run: bool) -> impl Runner<Input = u64, Output = u64> + use<> {
        let fails = if is_last_run { BTreeSet::new() } else { self.fails.clone() };
        map_batches(
            |_| Ok(()),
            move |_, (), xs: &mut Vec<u64>| {
                let each = |x| match fails.contains(&(1, x)) {
                    true => Err("it broke".into()),
                    false => Ok(x),
                };
                Ok(xs.drain(..).map(each).collect())
            },
        )
    }
}

fn sum(account: Account) -> u64 {
    account.ok + account.failed + account.already_done + account.cancelled
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Each run continues where the one before has ended, whatever ended it.
    #[test]
    fn every_item_is_consumed_once_over_all_runs(shape in shapes()) {
        let (place, seen) = (Place::new(), Seen::default());
        for end in &shape.ends {
            let before = seen.lock().unwrap().len() as u64;
            let (result, accounts) = shape.run(&place, *end, false, &seen);
            let whole = accounts[0];
            if let Err(error) = &result {
                prop_assert!(matches!(end, End::Cancel(_) | End::Fail(_)), "{error:#}");
            }
            let after = seen.lock().unwrap().len() as u64;
            prop_assert_eq!(whole.ok, after - before);
            prop_assert!(whole.already_done <= before);
            prop_assert_eq!(whole.already_done, accounts[1].already_done, "only the first stage");
            prop_assert!(accounts[2..].iter().all(|account| account.already_done == 0));
            for pair in accounts[1..].windows(2) {
                prop_assert_eq!(sum(pair[1]), pair[0].ok);
            }
            prop_assert_eq!(sum(whole) + whole.unread.unwrap(), shape.items);
            prop_assert_eq!(place.counts().0, after, "what was consumed is done, and nothing else");
        }
        let before = seen.lock().unwrap().len() as u64;
        let (result, accounts) = shape.run(&place, End::All, true, &seen);
        result.unwrap();
        prop_assert_eq!(accounts[0].already_done, before);
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        prop_assert!(seen.values().all(|times| *times == 1), "{:?}", seen);
        prop_assert!(seen.into_keys().eq(0..shape.items));
    }
}
