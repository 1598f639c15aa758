//! A service under the layers of tower.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_lite::future::block_on;
use gangline::{Error, OrderedRunner, Service as Pool};
use tower::{Service, ServiceBuilder, ServiceExt};

use crate::hooks::Hooks;
use crate::support::{Gate, no_hang};

/// A service of one producer that waits at a gate, with `queue` places.
fn held_up(queue: usize) -> (Pool<Hooks>, Arc<Gate>, Arc<Mutex<Vec<u64>>>) {
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

fn poll_ready(service: &mut Pool<Hooks>) -> Poll<Result<(), Error>> {
    service.poll_ready(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_handle_is_ready_while_the_queue_has_a_place_and_keeps_it() {
    no_hang(|| {
        let (service, gate, _) = held_up(2);
        let (mut first, mut second) = (service.clone(), service.clone());
        assert!(poll_ready(&mut first).is_ready());
        assert!(poll_ready(&mut first).is_ready(), "it has one place, also if it is asked twice");
        assert!(poll_ready(&mut second).is_ready());
        let mut third = second.clone();
        assert!(poll_ready(&mut third).is_pending(), "a clone has no place of its own");
        assert!(service.try_submit(9).is_err(), "both places are kept");
        drop(second);
        assert!(poll_ready(&mut third).is_ready(), "the place was passed on");
        gate.open();
        assert_eq!(block_on(Service::call(&mut first, 1)).unwrap(), 1);
        assert_eq!(block_on(Service::call(&mut third, 3)).unwrap(), 3);
        assert_eq!(service.account().ok, 2);
        assert!(service.try_submit_all(vec![4, 5]).is_ok(), "no place was lost");
    });
}

#[test]
fn a_place_that_becomes_free_wakes_the_handle() {
    no_hang(|| {
        let (service, gate, _) = held_up(1);
        let ticket = service.try_submit(1).unwrap();
        let waiting = service.clone();
        let other = std::thread::spawn(move || block_on(waiting.oneshot(2)).unwrap());
        gate.open();
        assert_eq!(ticket.wait().unwrap(), 1);
        assert_eq!(other.join().unwrap(), 2);
    });
}

#[test]
fn a_layer_sheds_what_the_queue_has_no_room_for() {
    no_hang(|| {
        let (service, gate, seen) = held_up(1);
        let mut layered = ServiceBuilder::new().load_shed().service(service.clone());
        let mut ask =
            |x| block_on(layered.ready()).map(|ready| ready.call(x)).map_err(|it| it.to_string());
        let first = ask(1).unwrap();
        let shed = block_on(ask(2).unwrap()).unwrap_err();
        assert!(shed.is::<tower::load_shed::error::Overloaded>(), "{shed}");
        gate.open();
        assert_eq!(block_on(first).unwrap(), 1);
        assert_eq!(*seen.lock().unwrap(), [1], "what was shed is not worked on");
    });
}

#[test]
fn a_call_without_a_place_waits_for_one() {
    no_hang(|| {
        let (mut service, gate, _) = held_up(1);
        let first = Service::call(&mut service, 1);
        let second = Service::call(&mut service, 2);
        gate.open();
        assert_eq!((block_on(first).unwrap(), block_on(second).unwrap()), (1, 2));
    });
}

#[test]
fn a_closed_service_is_never_ready() {
    no_hang(|| {
        let (service, gate, _) = held_up(1);
        let (mut ready, mut waiting) = (service.clone(), service.clone());
        assert!(poll_ready(&mut ready).is_ready());
        assert!(poll_ready(&mut waiting).is_pending());
        gate.open();
        service.close().unwrap();
        let refused = |polled| matches!(polled, Poll::Ready(Err(error)) if error_is_closed(&error));
        assert!(refused(poll_ready(&mut waiting)));
        assert!(refused(poll_ready(&mut service.clone())));
        assert!(block_on(Service::call(&mut ready, 1)).unwrap_err().is_closed());
    });
}

fn error_is_closed(error: &Error) -> bool {
    error.is_closed()
}

#[test]
fn the_deadline_begins_with_the_call() {
    no_hang(|| {
        let (service, gate, _) = held_up(2);
        let mut handle = service.with_deadline(Duration::from_millis(300));
        assert!(poll_ready(&mut handle).is_ready());
        std::thread::sleep(Duration::from_millis(350));
        let call = Service::call(&mut handle, 1);
        let mut call = pin!(call);
        let polled = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending(), "its time has just begun");
        assert!(matches!(block_on(call), Err(Error::DeadlineExceeded { .. })));
        gate.open();
    });
}
