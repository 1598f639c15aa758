//! How long a report says that everybody was at work.

use std::sync::Arc;
use std::time::Duration;

use gangline::{OnError, OrderedRunner, map};

use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

const SOON: Duration = Duration::from_millis(60);

#[test]
fn a_producer_that_is_stuck_was_at_work_until_the_end() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 5 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(work)
            .devices(2)
            .item_limit(SOON)
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let (_, report) = runner.run_with_report(0..50);
        let stuck = report.producers.iter().find(|producer| producer.left_behind).unwrap();
        assert!(stuck.working > Duration::ZERO && stuck.busy > 0.0, "{report}");
        gate.open();
    });
}

/// Of two that are at the same item the first has lost, and is at it still when the run is over.
#[test]
fn a_producer_that_lost_a_race_was_at_work_until_the_end() {
    no_hang(|| {
        let (gate, starts) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
        let (stuck, count) = (gate.clone(), starts.clone());
        let work = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                if x == 5 && count.add(1) == 1 {
                    stuck.pass();
                }
                Ok(x)
            },
        );
        let mut runner =
            OrderedRunner::builder(work).devices(2).window(8).idempotent().build().unwrap();
        let (outputs, report) = runner.run_with_report(0..50);
        assert_eq!(outputs.unwrap().len(), 50);
        assert!(report.producers.iter().all(|one| one.working > Duration::ZERO), "{report}");
        gate.open();
    });
}

#[test]
fn a_consumer_that_is_stuck_was_at_work_until_the_end() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let stuck = gate.clone();
        let hooks = Hooks::new().consume(move |_, y| {
            if y == 5 {
                stuck.pass();
            }
            Ok(())
        });
        let mut runner =
            OrderedRunner::builder(hooks).devices(2).window(16).run_limit(SOON).build().unwrap();
        let (result, report) = runner.run_with_report(0..50);
        assert!(result.is_err());
        assert!(report.consumer_working > Duration::ZERO, "{report}");
        assert_eq!(report.window, 16);
        gate.open();
    });
}
