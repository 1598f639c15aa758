//! Conclusions that do not depend on exact times: start-up, `consumer_init`, too few items.

use std::thread::sleep;
use std::time::Duration;

use gangline::report::Bottleneck;
use gangline::{ConsumerContext, OrderedRunner, ProducerContext, Result, RunReport, Runner};

const LONG: Duration = Duration::from_millis(600);

/// Hooks that take some time.
#[derive(Default)]
struct Slow {
    producer_init: Duration,
    producer_work: Duration,
    consumer_init: Duration,
}

impl Runner for Slow {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        sleep(self.producer_init);
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        sleep(self.producer_work);
        Ok(x)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        sleep(self.consumer_init);
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: u64) -> Result<()> {
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

fn reports(hooks: Slow, items: [u64; 2]) -> [RunReport; 2] {
    let mut pool = OrderedRunner::builder(hooks).devices(4).build().expect("the hooks succeed");
    items.map(|items| {
        let (done, report) = pool.run_with_report(0..items);
        done.expect("the hooks succeed");
        report
    })
}

#[test]
fn start_up_is_blamed_on_the_first_run_of_a_pool_alone() {
    let hooks = Slow { producer_init: LONG, ..Slow::default() };
    let [first, second] = reports(hooks, [8, 8]);
    assert_eq!(first.bottleneck, Bottleneck::StartUp, "{first}");
    assert!(first.conclusion.contains("use one pool for more runs"), "{first}");
    assert!(!second.conclusion.contains("use one pool for more runs"), "{second}");
}

#[test]
fn the_start_of_the_consumer_is_not_its_work() {
    let hooks = Slow { consumer_init: LONG, ..Slow::default() };
    let [report, _] = reports(hooks, [8, 8]);
    assert_eq!(report.bottleneck, Bottleneck::StartUp, "{report}");
    assert!(report.conclusion.contains("`consumer_init` took"), "{report}");
    assert!(report.consumer_working + LONG <= report.lasted, "{report}");
}

#[test]
fn a_run_with_fewer_items_than_producers_had_too_few() {
    let hooks = Slow { producer_work: LONG, ..Slow::default() };
    let [_, report] = reports(hooks, [1, 3]);
    assert_eq!(report.bottleneck, Bottleneck::TooFew, "{report}");
    assert!(report.conclusion.contains("3 items for 4 producers"), "{report}");
}
