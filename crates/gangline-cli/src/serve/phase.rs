//! How far the server has come.

use tokio::sync::watch;

use crate::execute::lane::Server;

/// From the start to the end. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerPhase {
    /// Workers load their models.
    Loading,
    Ready,
    /// Accepted requests are answered, and no more are accepted.
    Draining,
    /// All are answered, and connections are closed.
    Closing,
}

/// The phase, which threads and tasks can wait for.
#[derive(Debug)]
pub(crate) struct Phases(watch::Sender<ServerPhase>);

impl Phases {
    pub(crate) fn new() -> Phases {
        Phases(watch::Sender::new(ServerPhase::Loading))
    }

    /// Goes on to that phase, unless a later one has begun.
    pub(crate) fn reach(&self, phase: ServerPhase) {
        self.0.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }

    pub(crate) fn now(&self) -> ServerPhase {
        *self.0.borrow()
    }

    /// Waits until that phase or a later one has begun.
    pub(crate) async fn reached(&self, phase: ServerPhase) {
        let mut receiver = self.0.subscribe();
        // The sender is `self`, so the wait cannot fail.
        let _ = receiver.wait_for(|now| *now >= phase).await;
    }
}

impl Server for Phases {
    fn drain(&self) {
        self.reach(ServerPhase::Draining);
    }
}
