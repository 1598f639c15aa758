//! Synchronisation primitives that a model checker can replace.

pub(crate) mod alarm;
mod barrier;
pub(crate) mod bell;
#[cfg(any(test, all(feature = "processes", target_os = "linux")))]
#[cfg_attr(
    not(any(shuttle, all(feature = "processes", target_os = "linux"))),
    expect(dead_code, reason = "a worker process uses it, and a model")
)]
pub(crate) mod call_queue;
pub(crate) mod cancel;
#[cfg_attr(shuttle, path = "concurrency/model_deque.rs")]
mod deque;
pub(crate) mod driver_bell;
pub(crate) mod event_count;
pub(crate) mod home_process;
pub(crate) mod parker;
pub(crate) mod queue;
#[cfg_attr(shuttle, path = "concurrency/model_ring.rs")]
mod ring;
pub(crate) mod spawn;
pub(crate) mod time_aside;
pub(crate) mod yields;

#[cfg(not(shuttle))]
pub(crate) use std::sync::atomic;
#[cfg(not(shuttle))]
pub use std::sync::{Condvar, Mutex, MutexGuard};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::atomic;
#[cfg(shuttle)]
pub use shuttle::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use self::barrier::Barrier;
pub(crate) use self::deque::{Inbox, Stealer};
pub(crate) use self::ring::{Reader, Writer, ring};

/// Locks a mutex under which nothing panics.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no user code, and nothing that panics, runs under a lock of ours")
}

pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).expect("no user code, and nothing that panics, runs under a lock of ours")
}

#[cfg(all(feature = "simulation", not(shuttle)))]
std::thread_local! {
    static TIME_OF_TEST: std::cell::Cell<Option<std::time::Instant>> = const { std::cell::Cell::new(None) };
}

/// Sets what [`now`] returns on this thread from now on.
#[cfg(all(feature = "simulation", not(shuttle)))]
pub fn set_time_of_test(time: std::time::Instant) {
    TIME_OF_TEST.set(Some(time));
}

/// Returns the time. In a model it stands still, so that a schedule is reproducible, and a test may set it.
pub fn now() -> std::time::Instant {
    #[cfg(all(feature = "simulation", not(shuttle)))]
    if let Some(time) = TIME_OF_TEST.get() {
        return time;
    }
    #[cfg(not(shuttle))]
    return std::time::Instant::now();
    #[cfg(shuttle)]
    return {
        static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        *START.get_or_init(std::time::Instant::now)
    };
}
