//! The phases of the server.

use tokio::sync::{Notify, watch};

use crate::execute::lane::Server;

/// The phases of the server, in order. It never returns to an earlier one.
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
pub(crate) struct Phases {
    phase: watch::Sender<ServerPhase>,
    reload: Notify,
}

impl Phases {
    pub(crate) fn new() -> Phases {
        Phases { phase: watch::Sender::new(ServerPhase::Loading), reload: Notify::new() }
    }

    /// Goes on to this phase, unless a later one has begun.
    pub(crate) fn reach(&self, phase: ServerPhase) {
        self.phase.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }

    pub(crate) fn now(&self) -> ServerPhase {
        *self.phase.borrow()
    }

    /// Waits until this phase or a later one has begun.
    pub(crate) async fn reached(&self, phase: ServerPhase) {
        let mut receiver = self.phase.subscribe();
        // The sender is `self`, so the wait cannot fail.
        let _ = receiver.wait_for(|now| *now >= phase).await;
    }

    /// Waits for a request to replace the workers. It returns at once if one came since the last wait.
    pub(crate) async fn reload_asked(&self) {
        self.reload.notified().await;
    }
}

impl Server for Phases {
    fn drain(&self) {
        self.reach(ServerPhase::Draining);
    }

    fn reload(&self) {
        self.reload.notify_one();
    }
}
