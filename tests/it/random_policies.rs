//! The laws of runs that go on after failures, for scripts of faults of any kind and all policies at once.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use gangline::{AnyOrderRunner, Batch, Journal, OnError, Order};
use proptest::prelude::*;

use crate::hooks::{Hooks, sorted};
use crate::support::no_hang;

/// What is wrong with an item.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// This number of attempts fail.
    Fails(u32),
    Panics(u32),
    /// The first call takes longer than others: another producer may start it too.
    Slow,
}

#[derive(Debug, Clone)]
struct Script {
    items: Vec<Fault>,
    producers: usize,
    /// One of them fails everything.
    broken: Option<usize>,
    order: Order,
    window: Option<usize>,
    batch: Option<usize>,
    retries: u32,
    quarantine_after: Option<usize>,
    races: bool,
    on_error: OnError,
}

fn faults() -> impl Strategy<Value = Fault> {
    prop_oneof![
        12 => Just(Fault::None),
        2 => (1..4_u32).prop_map(Fault::Fails),
        1 => (1..4_u32).prop_map(Fault::Panics),
        1 => Just(Fault::Slow),
    ]
}

prop_compose! {
    fn scripts()(
        items in proptest::collection::vec(faults(), 0..60),
        (producers, broken) in (1..4_usize).prop_flat_map(|producers| {
            (Just(producers), proptest::option::weighted(0.3, 0..producers))
        }),
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        window in proptest::option::of(4..20_usize),
        batch in proptest::option::weighted(0.3, 1..5_usize),
        retries in 0..3_u32,
        quarantine_after in proptest::option::of(1..4_usize),
        races in any::<bool>(),
        on_error in prop_oneof![3 => Just(OnError::Skip), 1 => Just(OnError::Stop)],
    ) -> Script {
        Script { items, producers, broken, order, window, batch, retries, quarantine_after, races, on_error }
    }
}

impl Script {
    fn hooks(&self) -> Hooks {
        let (items, broken) = (self.items.clone(), self.broken);
        let was_slow: Vec<_> = items.iter().map(|_| AtomicBool::new(false)).collect();
        Hooks::new().work(move |cx, x| {
            if Some(cx.producer()) == broken {
                return Err("a broken device".into());
            }
            match items[x as usize] {
                Fault::Fails(attempts) if cx.attempt() <= attempts => Err("not yet".into()),
                Fault::Panics(attempts) => {
                    assert!(cx.attempt() > attempts, "not yet");
                    Ok(x)
                }
                Fault::Slow if !was_slow[x as usize].swap(true, SeqCst) => {
                    thread::sleep(Duration::from_millis(12));
                    Ok(x)
                }
                _ => Ok(x),
            }
        })
    }

    fn pool(&self, journal: Option<Journal>) -> AnyOrderRunner<Hooks> {
        let soon = Duration::from_micros(1);
        let builder =
            AnyOrderRunner::builder(self.hooks()).devices(self.producers).order(self.order);
        let mut builder = builder.on_error(self.on_error).retries(self.retries).backoff(soon, soon);
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        if let Some(most) = self.batch {
            builder = builder.batch(Batch::up_to(most));
        }
        if let Some(failures) = self.quarantine_after {
            builder = builder.quarantine_after(failures);
        }
        if self.races {
            builder = builder.speculate();
        }
        if let Some(journal) = journal {
            builder = builder.journal(journal);
        }
        builder.build().unwrap()
    }

    /// Whether the item succeeds on each producer, within the allowed attempts.
    fn is_good(&self, item: u64) -> bool {
        match self.items[item as usize] {
            Fault::Fails(attempts) | Fault::Panics(attempts) => attempts <= self.retries,
            Fault::None | Fault::Slow => true,
        }
    }

    /// Whether no attempt can succeed.
    fn is_bad(&self, item: u64) -> bool {
        // A producer's failure is no attempt where it may be quarantined for it.
        let more = u32::from(self.quarantine_after.is_some()) * self.producers as u32;
        match self.items[item as usize] {
            Fault::Fails(attempts) | Fault::Panics(attempts) => attempts > self.retries + more,
            Fault::None | Fault::Slow => false,
        }
    }
}

fn all_once(outputs: &[u64]) -> bool {
    outputs.windows(2).all(|pair| pair[0] < pair[1])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(160))]

    #[test]
    fn whatever_fails_the_account_adds_up(script in scripts()) {
        let count = script.items.len() as u64;
        let mut pool = script.pool(None);
        let (result, report) = no_hang(move || pool.run_with_report(0..count));
        let account = report.account;
        prop_assert_eq!(report.failures.len() as u64, account.failed, "each is told of");
        prop_assert!(account.ok + account.failed + account.cancelled <= count);
        let Ok(outputs) = result else {
            prop_assert!(account.failed > 0 || script.broken.is_some(), "{}", report);
            return Ok(());
        };
        prop_assert_eq!((account.ok, account.cancelled), (outputs.len() as u64, 0));
        prop_assert_eq!(account.ok + account.failed, count, "nothing is forgotten");
        prop_assert!(script.order == Order::Completion || outputs.is_sorted());
        let outputs = sorted(outputs);
        prop_assert!(all_once(&outputs), "nothing is consumed twice: {:?}", outputs);
        prop_assert!(!outputs.iter().any(|&item| script.is_bad(item)));
        if script.broken.is_none() {
            let good: Vec<_> = (0..count).filter(|&item| script.is_good(item)).collect();
            prop_assert!(good.iter().all(|item| outputs.contains(item)));
        }
        prop_assert!(script.on_error == OnError::Skip || account.failed == 0);
    }

    /// What the first run did, and what the second does, is everything that can be done, once.
    #[test]
    fn two_runs_with_a_journal_do_everything_once(script in scripts()) {
        let count = script.items.len() as u64;
        let place = tempfile::tempdir().unwrap();
        let journal = || Journal::at(place.path().join("journal"));
        let (mut first, mut second) = (script.pool(Some(journal())), None);
        let mut done = vec![];
        if let Ok(outputs) = no_hang(move || first.run(0..count)) {
            done = outputs;
            second = Some(script.pool(Some(journal().resume())));
        }
        let Some(mut second) = second else { return Ok(()) };
        let (result, report) = no_hang(move || second.run_with_report(0..count));
        prop_assert_eq!(report.account.already_done, done.len() as u64, "what is done is left out");
        let Ok(more) = result else { return Ok(()) };
        done.extend(more);
        prop_assert!(all_once(&sorted(done.clone())), "{:?}", done);
        if script.broken.is_none() {
            prop_assert!((0..count).filter(|&item| script.is_good(item)).all(|item| done.contains(&item)));
        }
    }
}
