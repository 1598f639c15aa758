use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::testing::conformance::{Law, Laws, Probe};
use crate::{AnyOrderRunner, Batch, Builder, ConsumerContext, OnError, Order, Result};

/// Squares numbers; some it fails whenever they are tried. Counts calls of hooks.
#[derive(Default)]
struct Squares {
    bad: Vec<u64>,
    begun: AtomicU64,
    ended: Arc<AtomicU64>,
}

impl Runner for Squares {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = Vec<u64>;
    type Summary = Vec<u64>;

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        if self.bad.contains(&x) { Err("a bad item".into()) } else { Ok(x * x) }
    }
    fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> Result<()> {
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> {
        Ok(vec![])
    }
    fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u64>, y: u64) -> Result<()> {
        all.push(y);
        Ok(())
    }
    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> {
        Ok(all)
    }
}

/// A pool with one producer for each script.
fn pool(
    squares: Squares,
    scripts: &[ProducerScript],
    set: impl FnOnce(
        Builder<Arc<Squares>, crate::order::RuntimeOrder>,
    ) -> Builder<Arc<Squares>, crate::order::RuntimeOrder>,
) -> AnyOrderRunner<Arc<Squares>> {
    let squares = Arc::new(squares);
    let backend = InScripts { runner: squares.clone(), scripts: scripts.to_vec() };
    set(AnyOrderRunner::builder(squares)).backend(backend).build().unwrap()
}

fn script(ahead: usize, steps: impl Into<Vec<ScriptStep>>) -> ProducerScript {
    ProducerScript { ahead, steps: steps.into() }
}

fn squares_of(numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    numbers.into_iter().map(|x| x * x).collect()
}

#[test]
fn answers_out_of_order_are_consumed_in_order() {
    let scripts = [
        script(4, [ScriptStep::Answer(3), ScriptStep::Answer(1)]),
        script(3, [ScriptStep::Answer(2)]),
    ];
    let mut pool = pool(Squares::default(), &scripts, |builder| builder.window(10));
    for _ in 0..2 {
        assert_eq!(pool.run(0..100).unwrap(), squares_of(0..100));
        assert_eq!(pool.account().ok, 100);
    }
}

#[test]
fn a_crash_costs_one_attempt_of_one_item() {
    let steps =
        [ScriptStep::Answer(0), ScriptStep::Crash, ScriptStep::Answer(0), ScriptStep::Answer(0)];
    let scripts = [script(3, steps), script(1, [ScriptStep::Answer(0)])];
    let mut pool = pool(Squares::default(), &scripts, |builder| {
        builder.retries(1).backoff(Duration::ZERO, Duration::ZERO)
    });
    assert_eq!(pool.run(0..100).unwrap(), squares_of(0..100));
}

/// Its lease expires, and the other producer has the item tried again.
#[test]
fn a_dropped_answer_is_a_timeout() {
    let ended = Arc::new(AtomicU64::new(0));
    let squares = Squares { ended: ended.clone(), ..Squares::default() };
    let scripts = [script(1, [ScriptStep::Drop(0)]), script(1, [ScriptStep::Answer(0)])];
    let mut pool = pool(squares, &scripts, |builder| {
        builder.retries(1).item_timeout(Duration::from_millis(20)).window(4)
    });
    assert_eq!(pool.run(0..20).unwrap(), squares_of(0..20));
    pool.close().unwrap();
    drop(pool);
}

fn laws(scripts: Vec<ProducerScript>) -> Laws<Arc<Probe>> {
    Laws::new(move |probe| {
        let runner = Arc::new(probe);
        let backend = InScripts { runner: runner.clone(), scripts: scripts.clone() };
        AnyOrderRunner::builder(runner).backend(backend)
    })
}

#[test]
fn answers_that_do_not_count_break_no_law() {
    let steps = [
        ScriptStep::Answer(0),
        ScriptStep::AnswerTwice(0),
        ScriptStep::HandBack(0),
        ScriptStep::AnswerTooLate(0),
    ];
    let scripts = vec![script(1, steps), script(1, [ScriptStep::Answer(0)]), script(1, steps)];
    laws(scripts).check_all().unwrap();
}

/// All laws but that a slow item keeps none back: the script hands nothing back while a hook runs.
#[test]
fn several_leases_at_a_time_break_no_law() {
    let steps = [
        ScriptStep::Answer(2),
        ScriptStep::AnswerTwice(1),
        ScriptStep::HandBack(0),
        ScriptStep::Answer(3),
    ];
    let laws = laws(vec![script(4, steps), script(2, [ScriptStep::Answer(1)])]);
    laws.no_hang().unwrap();
    laws.accounted().unwrap();
    laws.named().unwrap();
    laws.bounded().unwrap();
    laws.ordered().unwrap();
    laws.paired().unwrap();
    laws.clean().unwrap();
    laws.panics().unwrap();
    laws.batched().unwrap();
}

#[test]
fn a_backend_that_keeps_items_back_breaks_a_law() {
    // Now and then the other one is so quick that the one with the slow item gets no second.
    let broken = (0..10).find_map(|_| {
        let laws =
            laws(vec![script(4, [ScriptStep::Answer(0)]), script(4, [ScriptStep::Answer(0)])]);
        laws.limit(Duration::from_secs(1)).prompt().err()
    });
    assert_eq!(broken.map(|error| error.law), Some(Law::Prompt));
}

fn steps() -> impl Strategy<Value = ScriptStep> {
    prop_oneof![
        6 => (0usize..4).prop_map(ScriptStep::Answer),
        1 => (0usize..4).prop_map(ScriptStep::AnswerTwice),
        1 => (0usize..4).prop_map(ScriptStep::AnswerTooLate),
        1 => (0usize..4).prop_map(ScriptStep::HandBack),
        1 => Just(ScriptStep::Crash),
    ]
}

/// A script that answers at last: one that only hands back would go on for ever.
fn scripts() -> impl Strategy<Value = ProducerScript> {
    (1usize..5, proptest::collection::vec(steps(), 0..12)).prop_map(|(ahead, mut steps)| {
        steps.push(ScriptStep::Answer(0));
        ProducerScript { ahead, steps }
    })
}

proptest! {
    /// Items are consumed once, in order, or fail once; the account says the same; states are paired.
    #[test]
    fn a_run_keeps_the_laws(
        scripts in proptest::collection::vec(scripts(), 1..4),
        items in 0u64..60,
        bad in proptest::collection::vec(0u64..60, 0..4),
        window in 4usize..12,
        batch in 1usize..4,
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        retries in 0u32..3,
    ) {
        let ended = Arc::new(AtomicU64::new(0));
        let squares = Squares { bad: bad.clone(), ended: ended.clone(), ..Squares::default() };
        let mut pool = pool(squares, &scripts, |builder| {
            let builder = builder.order(order).window(window).on_error(OnError::Skip);
            let builder = builder.retries(retries).backoff(Duration::ZERO, Duration::ZERO);
            if batch > 1 { builder.batch(Batch::up_to(batch)) } else { builder }
        });
        for _ in 0..2 {
            let consumed = pool.run(0..items).unwrap();
            let failed: Vec<u64> = pool.failures().iter().filter_map(Error::item).collect();
            let account = pool.account();
            prop_assert_eq!((account.ok, account.failed), (consumed.len() as u64, failed.len() as u64));
            prop_assert_eq!(account.ok + account.failed, items);
            let mut all: Vec<u64> = consumed.iter().map(|y| y.isqrt()).chain(failed.clone()).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..items).collect::<Vec<_>>(), "each is done once");
            if order == Order::Input {
                prop_assert!(consumed.is_sorted());
            }
            prop_assert!(bad.iter().all(|&item| item >= items || failed.contains(&item)));
        }
        let begun = pool.runner().begun.load(Ordering::Relaxed);
        pool.close().unwrap();
        prop_assert_eq!(ended.load(Ordering::Relaxed), begun);
    }
}
