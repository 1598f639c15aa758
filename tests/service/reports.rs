//! What the report of a service says, also after its end.

use std::sync::Arc;
use std::time::Duration;

use gangline::report::Ending;
use gangline::{AnyOrderRunner, Batch, CancelToken, Error, Hook, OrderedRunner, Service, map};

use crate::batches::{batches, passed};
use crate::hooks::Hooks;
use crate::support::{Counter, Gate, no_hang};

const SOON: Duration = Duration::from_millis(20);

/// A service with a hook that waits for the gate at item 0, and the number of hooks that have begun.
fn held_up(window: usize) -> (Service<Hooks>, Arc<Gate>, Arc<Counter>) {
    let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Counter::new()));
    let (passes, begins) = (gate.clone(), begun.clone());
    let hooks = Hooks::new().work(move |_, x| {
        begins.add(1);
        if x == 0 {
            passes.pass();
        }
        Ok(x)
    });
    let builder = AnyOrderRunner::builder(hooks).devices(1).window(window);
    (builder.key(|x| format!("call {x}")).build().unwrap().into_service(), gate, begun)
}

#[track_caller]
fn late(answer: Result<u64, Error>) -> Error {
    let error = answer.unwrap_err();
    assert!(matches!(error, Error::DeadlineExceeded { .. }), "{error:#}");
    error
}

/// A service whose first call is late in a hook, its error, and the gate of the hook. On a busy machine the hook begins
/// only after the deadline, and then there is another call with a later one.
fn late_in_a_hook() -> (Service<Hooks>, Error, Arc<Gate>) {
    let mut limit = SOON;
    loop {
        let (service, gate, _) = held_up(4);
        let error = late(service.with_deadline(limit).call(0));
        if error.producer().is_some() {
            return (service, error, gate);
        }
        gate.open();
        limit *= 4;
    }
}

#[test]
fn a_call_that_is_late_in_a_hook_is_a_failure_of_its_producer() {
    no_hang(|| {
        let (service, error, gate) = late_in_a_hook();
        assert_eq!((error.item(), error.producer(), error.attempt()), (Some(0), Some(0), Some(1)));
        assert_eq!((error.key(), error.hook()), (Some("call 0"), None::<Hook>));
        let check = |report: gangline::RunReport| {
            assert_eq!((report.account.failed, report.producers[0].failed), (1, 1));
            let [failure] = &report.failures[..] else { panic!("{report}") };
            assert_eq!((failure.item, failure.producer), (Some(0), Some(0)));
            assert_eq!(failure.key.as_deref(), Some("call 0"));
            assert_eq!(failure.error, format!("{error:#}"));
            let start = "the call for item 0 (\"call 0\") on cpu (producer 0, attempt 1) was not answered within ";
            assert!(failure.error.starts_with(start), "{}", failure.error);
            let said = "\n  item 0 (call 0) on cpu: was not answered within ";
            assert!(report.to_string().contains(said), "{report}");
        };
        check(service.report());
        gate.open();
        assert_eq!(service.call(1).unwrap(), 1);
        // What the hook of the late call returned counts no more.
        check(service.report());
        service.close().unwrap();
        check(service.report());
    });
}

#[test]
fn a_call_that_is_late_in_the_queue_is_a_failure_of_no_producer() {
    no_hang(|| {
        let (service, gate, begun) = held_up(4);
        let first = service.try_submit(0).unwrap();
        begun.reach(1);
        let error = late(service.with_deadline(SOON).call(7));
        assert_eq!((error.item(), error.producer()), (Some(1), None));
        let report = service.report();
        assert_eq!((report.account.failed, report.producers[0].failed), (1, 0));
        let calls = report.calls.unwrap();
        assert_eq!((calls.answered, calls.late, calls.latency), (0, 1, None));
        assert_eq!(report.failures[0].key.as_deref(), Some("call 7"));
        gate.open();
        first.wait().unwrap();
        let report = service.into_pool().unwrap().report();
        assert_eq!(report.failures.len(), 1);
        let calls = report.calls.unwrap();
        assert_eq!((calls.answered, calls.late, calls.latency.unwrap().count), (1, 1, 1));
        assert!(calls.latency.unwrap().max >= SOON, "it waited for the other: {report}");
        let text = report.to_string();
        assert!(text.contains("calls: 1 of 2 calls missed their deadline; answered in "), "{text}");
    });
}

#[test]
fn the_report_of_an_open_service_concludes_from_what_it_has_done() {
    no_hang(|| {
        let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1).unwrap();
        let service = service.into_service();
        assert!(service.report().conclusion.contains("in progress"), "{}", service.report());
        assert_eq!(service.call(1).unwrap(), 1);
        let report = service.report();
        assert!(!report.conclusion.contains("in progress"), "{report}");
        assert!(!report.conclusion.is_empty() && report.ending == Ending::InProgress, "{report}");
        service.close().unwrap();
    });
}

#[test]
fn a_call_that_is_late_without_a_place_is_not_counted() {
    no_hang(|| {
        let (service, gate, begun) = held_up(1);
        let first = service.try_submit(0).unwrap();
        begun.reach(1);
        assert_eq!(late(service.with_deadline(SOON).call(7)).item(), None);
        let report = service.report();
        assert_eq!((report.account.failed, report.failures.len()), (0, 0));
        gate.open();
        first.wait().unwrap();
    });
}

#[test]
fn of_a_batch_the_late_calls_alone_have_failed() {
    no_hang(|| {
        let (gate, begun) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
        let (passes, begins) = (gate.clone(), begun.clone());
        let waits = batches(move |_, inputs| {
            begins.open();
            passes.pass();
            passed(inputs)
        });
        let batch = Batch::of(3).within(Duration::from_secs(60));
        let builder = OrderedRunner::builder(waits).devices(1).batch(batch);
        let service = builder.build().unwrap().into_service();
        // Long enough for the batch to begin.
        let limited = service.with_deadline(Duration::from_secs(1));
        let tickets = [limited.try_submit(0), service.try_submit(1), limited.try_submit(2)];
        begun.pass();
        let [first, second, third] = tickets.map(Result::unwrap);
        late(first.wait());
        late(third.wait());
        gate.open();
        assert_eq!(second.wait().unwrap(), 1);
        let report = service.report();
        assert_eq!((report.account.ok, report.account.failed), (1, 2));
        assert_eq!(report.producers[0].failed, 2);
        let items: Vec<_> = report.failures.iter().map(|failure| failure.item).collect();
        assert_eq!(items, [Some(0), Some(2)]);
    });
}

#[test]
fn the_last_report_stays_for_every_handle() {
    no_hang(|| {
        let odd = || Hooks::new().work(|_, x| if x % 2 == 1 { Err("odd".into()) } else { Ok(x) });
        let ends: [fn(&Service<Hooks>); 3] = [
            |service| service.close().unwrap(),
            |service| {
                assert!(service.drain(Duration::from_secs(60)));
                service.close().unwrap();
            },
            |service| {
                service.close().unwrap();
                service.close().unwrap();
            },
        ];
        for end in ends {
            let service = OrderedRunner::new(odd(), 2).unwrap().into_service();
            let other = service.clone();
            let answered = (0..10).filter(|&x| service.call(x).is_ok()).count();
            end(&service);
            drop(service);
            let report = other.report();
            assert_eq!((report.account.ok, report.account.failed), (answered as u64, 5));
            assert_eq!((report.failures.len(), report.ending), (5, Ending::Finished));
            assert_eq!(report.producers.iter().map(|it| it.items).sum::<u64>(), 10);
            assert!(!report.conclusion.contains("in progress"), "{report}");
            assert_eq!(report.to_string(), other.report().to_string(), "it stays as it is");
        }
    });
}

#[test]
fn a_drained_service_still_has_its_report() {
    no_hang(|| {
        let service = OrderedRunner::new(Hooks::new(), 1).unwrap().into_service();
        service.call(1).unwrap();
        assert!(service.drain(Duration::from_secs(60)));
        assert_eq!(service.report().producers[0].items, 1);
    });
}

#[test]
fn a_service_that_ended_by_itself_says_why() {
    no_hang(|| {
        let gate = Arc::new(Gate::new());
        let passes = gate.clone();
        let hooks = Hooks::new().work(move |_, x| {
            passes.pass();
            Ok(x)
        });
        let builder = OrderedRunner::builder(hooks).devices(1).item_timeout(SOON);
        let service = builder.build().unwrap().into_service();
        service.call(0).unwrap_err();
        while service.call(1).is_ok() {}
        let check = |report: gangline::RunReport| {
            assert_eq!(report.ending, Ending::Failed, "{report}");
            assert!(report.error.as_ref().unwrap().contains("too few producers"), "{report}");
            assert!(!report.conclusion.contains("in progress"), "{report}");
        };
        check(service.report());
        gate.open();
        service.close().unwrap();
        check(service.report());
    });
}

#[test]
fn a_cancelled_service_says_so() {
    no_hang(|| {
        let token = CancelToken::new();
        let builder = OrderedRunner::builder(Hooks::new()).devices(1).cancel_token(token.clone());
        let service = builder.build().unwrap().into_service();
        service.call(1).unwrap();
        token.cancel();
        while service.call(2).is_ok() {}
        service.close().unwrap();
        let report = service.report();
        assert_eq!((report.ending, report.producers[0].items), (Ending::Cancelled, 1));
    });
}
