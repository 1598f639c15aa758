use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use super::*;

/// Two threads exchange every number; each sleeps until the other's arrives.
fn ping_pong(barrier: Barrier, rounds: u64) {
    let pair = || Arc::new((EventCount::with_barrier(barrier), AtomicU64::new(0)));
    let (ping, pong) = (pair(), pair());
    let expect = |side: &(EventCount, AtomicU64), value| {
        while side.1.load(Ordering::Acquire) != value {
            side.0.wait_unless(|| side.1.load(Ordering::Acquire) == value);
        }
    };
    let send = |side: &(EventCount, AtomicU64), value| {
        side.1.store(value, Ordering::Release);
        side.0.notify();
    };
    let (their_ping, their_pong) = (ping.clone(), pong.clone());
    let other = thread::spawn(move || {
        for round in 1..=rounds {
            expect(&their_ping, round);
            send(&their_pong, round);
        }
    });
    for round in 1..=rounds {
        send(&ping, round);
        expect(&pong, round);
    }
    other.join().unwrap();
}

#[test]
fn no_wake_up_is_lost() {
    ping_pong(Barrier::new(), 20_000);
    ping_pong(Barrier::Symmetric, 20_000);
}

#[test]
fn a_refused_fence_costs_time_and_no_wake_up() {
    ping_pong(Barrier::Broken, 50);
}

#[test]
fn all_are_woken_at_once() {
    let sleep = Arc::new((EventCount::new(), AtomicUsize::new(0)));
    let sleepers: Vec<_> = (0..4)
        .map(|_| {
            let sleep = sleep.clone();
            thread::spawn(move || {
                let is_over = || sleep.1.load(Ordering::Acquire) > 0;
                while !is_over() {
                    sleep.0.wait_unless(is_over);
                }
            })
        })
        .collect();
    sleep.1.store(1, Ordering::Release);
    sleep.0.notify_all();
    sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
}
