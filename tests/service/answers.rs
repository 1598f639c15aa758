//! Each caller gets the answer to its own call.

use std::sync::{Arc, Mutex};
use std::thread;

use gangline::{Batch, BoxError, CfgNode, OrderedRunner, RunReport, Service};

use crate::batches::{batches, passed};
use crate::hooks::Hooks;
use crate::support::{Counter, no_hang};

#[test]
fn a_service_is_shared_by_threads() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Service<Hooks>>();
    fn sent<T: Send + 'static>() {}
    sent::<gangline::service::Call<Hooks>>();
    sent::<gangline::service::Ticket<Hooks>>();
}

#[test]
fn every_caller_gets_its_own_answer() {
    no_hang(|| {
        let service =
            OrderedRunner::new(Hooks::new().work(|_, x| Ok(x * x)), 3).unwrap().into_service();
        thread::scope(|scope| {
            for caller in 0..8 {
                let service = &service;
                scope.spawn(move || {
                    for x in (0..200).map(|i| 1_000 * caller + i) {
                        assert_eq!(service.call(x).unwrap(), x * x);
                    }
                });
            }
        });
        assert_eq!(service.account().ok, 1_600);
        let report = service.report();
        assert_eq!(report.account.ok, 1_600);
        assert_eq!(report.producers.iter().map(|it| it.items).sum::<u64>(), 1_600);
    });
}

/// The producer has neither left the service nor ended a wait.
#[test]
fn a_report_of_a_service_covers_the_time_up_to_now() {
    no_hang(|| {
        let service =
            OrderedRunner::new(Hooks::new().work(|_, x| Ok(x)), 1).unwrap().into_service();
        assert_eq!(service.call(1).unwrap(), 1);
        let first = service.report();
        let shown = |report: &RunReport| {
            let it = &report.producers[0];
            (it.items, report.lasted >= it.working + it.waiting)
        };
        assert_eq!(shown(&first), (1, true));
        // Only time passes.
        let later = loop {
            let later = service.report();
            if later.producers[0].waiting > first.producers[0].waiting {
                break later;
            }
        };
        assert_eq!(shown(&later), (1, true));
        assert!(later.lasted > first.lasted);
        let pool = service.into_pool().unwrap();
        assert_eq!((pool.report().producers[0].items, pool.report().account.ok), (1, 1));
        assert!(!pool.report().conclusion.contains("in progress"));
    });
}

/// One producer is in a hook while the other callers arrive, so they make one batch.
#[test]
fn batches_form_across_callers() {
    no_hang(|| {
        let (sizes, here) = (Arc::new(Mutex::new(vec![])), Arc::new(Counter::new()));
        let begun = Arc::new(Counter::new());
        let (noted, arrived, begins) = (sizes.clone(), here.clone(), begun.clone());
        let hooks = batches(move |_, inputs| {
            noted.lock().unwrap().push(inputs.len());
            if inputs[0] == 0 {
                begins.add(1);
                arrived.reach(1);
            }
            passed(inputs)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).batch(Batch::up_to(8));
        let service = builder.build().unwrap().into_service();
        let first = service.try_submit(0).unwrap();
        begun.reach(1);
        let rest: Vec<_> = (1..9).map(|x| service.try_submit(x).unwrap()).collect();
        here.add(1);
        assert_eq!(first.wait().unwrap(), 0);
        let answers: Vec<_> = rest.into_iter().map(|ticket| ticket.wait().unwrap()).collect();
        assert_eq!(answers, (1..9).collect::<Vec<_>>());
        assert_eq!(*sizes.lock().unwrap(), [1, 8]);
    });
}

/// `Batch::of` waits for a whole batch in a run. A lone caller would wait for ever.
#[test]
fn a_lone_caller_does_not_wait_for_a_whole_batch() {
    no_hang(|| {
        let builder = OrderedRunner::builder(Hooks::new()).devices(2).batch(Batch::of(32));
        let service = builder.build().unwrap().into_service();
        assert_eq!(service.call(7).unwrap(), 7);
    });
}

#[test]
fn a_failed_item_answers_its_own_caller_with_the_whole_error() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, x| match x {
            3 => Err(BoxError::from("three is bad")),
            4 => panic!("four is worse"),
            x => Ok(x),
        });
        let service = OrderedRunner::new(hooks, 2).unwrap().into_service();
        let error = service.call(3).unwrap_err();
        assert!(format!("{error:#}").ends_with("three is bad"), "{error:#}");
        assert_eq!(error.item(), Some(0));
        assert!(service.call(4).unwrap_err().is_panic());
        assert_eq!(service.call(5).unwrap(), 5, "the service goes on");
        let account = service.account();
        assert_eq!((account.ok, account.failed, account.cancelled), (1, 2, 0));
    });
}

#[test]
fn each_item_of_a_batch_that_fails_together_has_the_whole_error() {
    no_hang(|| {
        let gate = Arc::new(Counter::new());
        let opened = gate.clone();
        let taken = batches(move |_, inputs| {
            gate.reach(1);
            inputs.clear();
            Err("the inputs are gone".into())
        });
        let builder = OrderedRunner::builder(taken).devices(1).batch(Batch::up_to(4));
        let service = builder.build().unwrap().into_service();
        let first = service.try_submit(0).unwrap();
        let tickets: Vec<_> = (1..4).map(|x| service.try_submit(x).unwrap()).collect();
        opened.add(1);
        first.wait().unwrap_err();
        for ticket in tickets {
            let error = ticket.wait().unwrap_err();
            assert!(format!("{error:#}").contains("the inputs are gone"), "{error:#}");
        }
        assert_eq!(service.account().failed, 4);
    });
}

#[test]
fn the_error_of_a_call_has_the_key_of_its_item() {
    no_hang(|| {
        let hooks = Hooks::new().work(|_, _| Err("bad".into()));
        let builder = OrderedRunner::builder(hooks).devices(1).cfg(CfgNode::new());
        let service = builder.key(|x: &u64| format!("item-{x}")).build().unwrap().into_service();
        assert_eq!(service.call(7).unwrap_err().key(), Some("item-7"));
        assert_eq!(service.call(7).unwrap_err().key(), Some("item-7"), "also the second time");
    });
}

#[test]
fn an_item_too_large_for_a_batch_answers_its_caller() {
    no_hang(|| {
        let builder = OrderedRunner::builder(Hooks::new()).devices(1).batch(Batch::up_to(4));
        let service = builder.max_batch_cost(10u64, |x: &u64| *x).build().unwrap().into_service();
        let error = service.call(11).unwrap_err();
        assert!(matches!(error, gangline::Error::TooLarge { amount: 11, most: 10, .. }), "{error}");
        assert_eq!(service.call(10).unwrap(), 10);
    });
}
