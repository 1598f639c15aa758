//! Tracks which threads take part in a run.

use std::sync::Arc;

use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::{Condvar, Mutex, MutexGuard, lock, wait};

/// The producers that are in a run, so that its end can wait for them.
///
/// Reference counts or dropped channel ends cannot do this. The end must not wait for an abandoned producer,
/// and only the thread in the hook could drop its own reference.
#[derive(Debug)]
pub(crate) struct Participants {
    state: Mutex<ParticipantsState>,
    left: Condvar,
    /// Wakes the driver, which waits for the end.
    driver: Arc<DriverBell>,
}

#[derive(Debug)]
struct ParticipantsState {
    is_over: bool,
    producers: Vec<Entered>,
    consumer: Attendance,
    /// The number of links that take results of the run.
    links: usize,
}

/// The thread that entered for a producer.
#[derive(Debug, Clone, Default)]
struct Entered {
    presence: Attendance,
    away: Away,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Attendance {
    #[default]
    Out,
    In,
    /// In a hook that the run does not wait for.
    Excused,
}

/// Whether a producer's thread is in a hook of a run that does not wait for it.
pub(crate) type Away = Arc<AtomicBool>;

/// A thread of a run beside its producers, which calls functions of the user too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultReceiver {
    Consumer,
    /// Takes the results to the next stage.
    Link,
}

/// The participation of a receiver in a run, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Receiving {
    participants: Arc<Participants>,
    receiver: ResultReceiver,
}

/// A producer's participation in a run, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Participation {
    participants: Arc<Participants>,
    producer: usize,
}

impl Participants {
    pub(crate) fn new(producers: usize, driver: Arc<DriverBell>) -> Arc<Self> {
        let producers = vec![Entered::default(); producers];
        let consumer = Attendance::Out;
        let state = ParticipantsState { is_over: false, producers, consumer, links: 0 };
        Arc::new(Participants { state: Mutex::new(state), left: Condvar::new(), driver })
    }

    /// Registers the thread of a producer, with its flag. `None` if the run is over. `come` begins its part, under the lock
    /// of [`excuse`](Self::excuse).
    pub(crate) fn enter(
        self: &Arc<Self>,
        producer: usize,
        away: &Away,
        come: impl FnOnce(),
    ) -> Option<Participation> {
        let mut state = lock(&self.state);
        if state.is_over {
            return None;
        }
        come();
        let presence = Attendance::In;
        state.producers[producer] = Entered { presence, away: away.clone() };
        Some(Participation { participants: self.clone(), producer })
    }

    /// Registers a thread that takes results. Call it before the run can be over.
    pub(crate) fn receive(self: &Arc<Self>, receiver: ResultReceiver) -> Receiving {
        let mut state = lock(&self.state);
        match receiver {
            ResultReceiver::Consumer => state.consumer = Attendance::In,
            ResultReceiver::Link => state.links += 1,
        }
        Receiving { participants: self.clone(), receiver }
    }

    /// Lets the run end without waiting for the consumer.
    pub(crate) fn excuse_consumer(&self) {
        let mut state = lock(&self.state);
        state.consumer = Attendance::Excused;
        self.notify(state);
    }

    /// Lets the run end without waiting for this producer, unless it has come back.
    pub(crate) fn excuse(&self, producer: usize, is_abandoned: impl FnOnce() -> bool) {
        let mut state = lock(&self.state);
        if is_abandoned() {
            state.excuse(producer);
        }
        self.notify(state);
    }

    fn notify(&self, state: MutexGuard<'_, ParticipantsState>) {
        drop(state);
        self.left.notify_all();
        self.driver.ring();
    }

    pub(crate) fn present(&self) -> Vec<usize> {
        lock(&self.state).present()
    }

    /// Waits until every thread has left, except producers for which `has_lost` is true. No producer
    /// can enter afterwards.
    pub(crate) fn end(&self, has_lost: impl Fn(usize) -> bool) {
        let mut state = lock(&self.state);
        state.is_over = true;
        while !state.have_left(&has_lost) {
            state = wait(&self.left, state);
        }
    }

    /// Returns whether every thread has left, except lost producers: a task cannot [wait](Self::end) for that. No
    /// producer can enter afterwards. Threads that have not left ring the driver's bell when they do.
    #[cfg(feature = "futures")]
    pub(crate) fn have_ended(&self, has_lost: impl Fn(usize) -> bool) -> bool {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.have_left(&has_lost)
    }
}

impl Participation {
    /// Makes the run's end wait for the producer again, which was excused or is about to be. Returns `false` if the run is
    /// over. `come_back` ends the abandonment, under the lock of
    /// [`excuse`](Participants::excuse).
    pub(crate) fn come_back(&self, come_back: impl FnOnce()) -> bool {
        let mut state = lock(&self.participants.state);
        if state.is_over {
            return false;
        }
        come_back();
        state.set(self.producer, Attendance::In);
        true
    }
}

impl ParticipantsState {
    fn present(&self) -> Vec<usize> {
        let producers = 0..self.producers.len();
        producers.filter(|&producer| self.producers[producer].presence == Attendance::In).collect()
    }

    /// Whether every thread has left but the producers that have lost.
    fn have_left(&mut self, has_lost: impl Fn(usize) -> bool) -> bool {
        // Checked in each round: a producer stays in the run until it has settled the items that make others
        // lose.
        let losers = self.present().into_iter().filter(|&producer| has_lost(producer));
        losers.for_each(|producer| self.excuse(producer));
        self.present().is_empty() && self.consumer != Attendance::In && self.links == 0
    }

    fn excuse(&mut self, producer: usize) {
        if self.producers[producer].presence == Attendance::In {
            self.set(producer, Attendance::Excused);
        }
    }

    /// Sets the flag under the lock. Otherwise a producer that has just left could be marked as away for ever.
    fn set(&mut self, producer: usize, presence: Attendance) {
        let entered = &mut self.producers[producer];
        entered.presence = presence;
        entered.away.store(presence == Attendance::Excused, Ordering::Relaxed);
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        let mut state = lock(&self.participants.state);
        match self.receiver {
            ResultReceiver::Consumer => state.consumer = Attendance::Out,
            ResultReceiver::Link => state.links -= 1,
        }
        self.participants.notify(state);
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        let mut state = lock(&self.participants.state);
        state.set(self.producer, Attendance::Out);
        self.participants.notify(state);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_waits_for_those_who_are_there_and_for_nobody_else() {
        let participants = Participants::new(3, Arc::default());
        let first = participants.enter(0, &Away::default(), || ()).unwrap();
        let second = participants.enter(1, &Away::default(), || ()).unwrap();
        participants.excuse(1, || true);
        assert_eq!(participants.present(), [0]);
        thread::scope(|scope| {
            let ending = scope.spawn(|| participants.end(|_| false));
            drop(first);
            ending.join().unwrap();
        });
        assert!(participants.enter(2, &Away::default(), || ()).is_none(), "it is over");
        drop(second);
    }

    #[test]
    fn who_is_made_to_lose_while_the_end_waits_is_not_waited_for() {
        let participants = Participants::new(2, Arc::default());
        let away = Away::default();
        let loser = participants.enter(0, &away, || ()).unwrap();
        let winner = participants.enter(1, &Away::default(), || ()).unwrap();
        let lost = Arc::new(AtomicBool::new(false));
        let ((looked, looks), (over, is_over)) = (channel(), channel());
        let (ending, is_lost) = (participants.clone(), lost.clone());
        thread::spawn(move || {
            ending.end(|producer| {
                looked.send(producer).unwrap();
                producer == 0 && is_lost.load(Ordering::Relaxed)
            });
            over.send(()).unwrap();
        });
        assert_eq!([looks.recv().unwrap(), looks.recv().unwrap()], [0, 1]);
        lost.store(true, Ordering::Relaxed);
        drop(winner);
        is_over.recv_timeout(Duration::from_secs(60)).expect("it waits for the loser");
        assert!(away.load(Ordering::Relaxed));
        drop(loser);
        assert!(!away.load(Ordering::Relaxed), "it is back");
    }
}
