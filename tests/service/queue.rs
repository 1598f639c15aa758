//! The queue of a service: its bound, and the order of arrival.

use std::sync::{Arc, Mutex};
use std::thread;

use gangline::OrderedRunner;
use gangline::service::{Call, Full};

use crate::hooks::Hooks;
use crate::runtimes::block_on;
use crate::support::{Counter, Gate, no_hang};

/// A service of one producer that waits at a gate in its first item, with `queue` places.
fn held_up(queue: usize) -> (gangline::Service<Hooks>, Arc<Gate>, Arc<Mutex<Vec<u64>>>) {
    let (gate, seen) = (Arc::new(Gate::new()), Arc::new(Mutex::new(vec![])));
    let (passed, noted) = (gate.clone(), seen.clone());
    let hooks = Hooks::new().work(move |_, x| {
        noted.lock().unwrap().push(x);
        passed.pass();
        Ok(x)
    });
    let builder = OrderedRunner::builder(hooks).devices(1).window(queue);
    (builder.build().unwrap().into_service(), gate, seen)
}

#[test]
fn a_full_queue_refuses_and_gives_the_input_back() {
    no_hang(|| {
        let (service, gate, _) = held_up(3);
        let tickets: Vec<_> = (0..3).map(|x| service.try_submit(x).unwrap()).collect();
        assert_eq!(service.try_submit(9).unwrap_err(), Full(9));
        assert_eq!(service.queue(), 3);
        gate.open();
        for (x, ticket) in (0..).zip(tickets) {
            assert_eq!(ticket.wait().unwrap(), x);
        }
        assert_eq!(service.call(9).unwrap(), 9);
    });
}

#[test]
fn several_items_take_their_places_together_or_not_at_all() {
    no_hang(|| {
        let (service, gate, _) = held_up(4);
        let first = service.try_submit_all(vec![0, 1]).unwrap();
        assert_eq!(service.try_submit_all(vec![2, 3, 4]).unwrap_err(), Full(vec![2, 3, 4]));
        let second = service.try_submit_all(vec![5, 6]).unwrap();
        gate.open();
        let answers = first.into_iter().chain(second).map(|ticket| ticket.wait().unwrap());
        assert_eq!(answers.collect::<Vec<_>>(), [0, 1, 5, 6]);
    });
}

#[test]
fn a_call_says_whether_it_waits_for_its_place() {
    no_hang(|| {
        let (service, gate, seen) = held_up(1);
        let accepted = Call::from(service.try_submit(0).unwrap());
        let (given_up, waiting) = (service.call_async(1), service.call_async(2));
        assert!(!accepted.waits_for_place());
        assert!(given_up.waits_for_place() && waiting.waits_for_place());
        drop(given_up);
        gate.open();
        assert_eq!(block_on(accepted).unwrap(), 0);
        assert_eq!(block_on(waiting).unwrap(), 2);
        assert_eq!(*seen.lock().unwrap(), [0, 2]);
        service.close().unwrap();
        assert!(!service.call_async(3).waits_for_place(), "it was refused");
    });
}

/// The callers arrive one after the other, each once the one before it waits.
#[test]
fn callers_are_accepted_in_the_order_of_their_arrival() {
    no_hang(|| {
        let (service, gate, seen) = held_up(1);
        let first = service.try_submit(0).unwrap();
        let calls: Vec<_> = (1..20).map(|x| service.call_async(x)).collect();
        assert_eq!(service.try_submit(99).unwrap_err(), Full(99), "others wait");
        gate.open();
        first.wait().unwrap();
        let answers = calls.into_iter().map(crate::runtimes::block_on);
        assert_eq!(answers.map(Result::unwrap).collect::<Vec<_>>(), (1..20).collect::<Vec<_>>());
        assert_eq!(*seen.lock().unwrap(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_blocked_caller_gets_the_place_of_one_that_gives_up() {
    no_hang(|| {
        let (service, gate, seen) = held_up(2);
        let in_hook = service.try_submit(0).unwrap();
        let queued = service.try_submit(1).unwrap();
        let begun = Arc::new(Counter::new());
        thread::scope(|scope| {
            let (service, begins) = (&service, begun.clone());
            let blocked = scope.spawn(move || {
                begins.add(1);
                service.call(2).unwrap()
            });
            begun.reach(1);
            drop(queued);
            gate.open();
            assert_eq!(blocked.join().unwrap(), 2);
        });
        assert_eq!(in_hook.wait().unwrap(), 0);
        assert_eq!(*seen.lock().unwrap(), [0, 2], "1 was given up before a hook had it");
        assert_eq!(service.account().cancelled, 1);
    });
}
