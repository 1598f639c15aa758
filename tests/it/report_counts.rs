//! What a report counts, and where.

use std::sync::Arc;
use std::time::Duration;

use gangline::{Batch, OnError, OrderedRunner, RunReport, map};

use crate::hooks::Hooks;
use crate::support::{Gate, no_hang};

const SOON: Duration = Duration::from_millis(60);

fn failed(report: &RunReport) -> u64 {
    report.producers.iter().map(|producer| producer.failed).sum()
}

#[test]
fn what_fails_together_counts_on_the_producer_that_it_failed_on() {
    no_hang(|| {
        let dies = map(
            |_| Ok(()),
            |_, (), x: u64| {
                assert_ne!(x % 8, 5, "dies");
                Ok(x)
            },
        );
        let mut runner = OrderedRunner::builder(dies)
            .devices(2)
            .batch(Batch::of(4))
            .on_error(OnError::Skip)
            .build()
            .unwrap();
        let (outputs, report) = runner.run_with_report(0..48);
        assert_eq!(outputs.unwrap().len(), 24, "nothing is left of what a batch is made of");
        assert_eq!((report.account.failed, failed(&report)), (24, 24), "{report}");
    });
}

/// One item is stuck until the gate opens.
fn stuck_at(item: u64, gate: &Arc<Gate>) -> Hooks {
    let gate = gate.clone();
    Hooks::new().work(move |_, x| {
        if x == item {
            gate.pass();
        }
        Ok(x)
    })
}

#[test]
fn what_was_stuck_counts_on_the_producer_that_it_was_stuck_on() {
    no_hang(|| {
        for (batch, items) in [(None, 1), (Some(Batch::of(4)), 4)] {
            let gate = Arc::new(Gate::new());
            let builder = OrderedRunner::builder(stuck_at(5, &gate))
                .devices(2)
                .item_limit(SOON)
                .on_error(OnError::Skip);
            let builder = match batch {
                Some(batch) => builder.batch(batch),
                None => builder,
            };
            let mut runner = builder.build().unwrap();
            let (outputs, report) = runner.run_with_report(0..48);
            assert_eq!(outputs.unwrap().len(), 48 - items as usize);
            let stuck = report.producers.iter().find(|producer| producer.left_behind).unwrap();
            assert_eq!((failed(&report), stuck.failed), (items, items), "{report}");
            gate.open();
        }
    });
}

#[test]
fn an_item_that_the_last_producer_is_stuck_at_has_its_key() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let mut runner = OrderedRunner::builder(stuck_at(5, &gate))
            .devices(1)
            .item_limit(SOON)
            .key(|x| format!("tile {x}"))
            .build()
            .unwrap();
        let (result, report) = runner.run_with_report(0..50);
        let error = result.unwrap_err();
        assert_eq!((error.item(), error.key()), (Some(5), Some("tile 5")), "{error:#}");
        let [failure] = &report.failures[..] else { panic!("{report}") };
        assert_eq!(failure.key.as_deref(), Some("tile 5"));
        assert_eq!((report.account.failed, failed(&report)), (1, 1), "{report}");
        gate.open();
    });
}
