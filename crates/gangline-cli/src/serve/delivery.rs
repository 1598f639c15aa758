//! The way of an answer from the worker to its caller.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::report::HumanDuration;

use crate::locking::lock;
use crate::serve::app::App;
use crate::serve::open_count::{OpenCount, OpenGuard};
use crate::serve::phase::ServerPhase;

/// How many times the time limit of idle connections a caller may read nothing. The systems on both sides report what it
/// reads in steps of up to 128 KiB, so a slow one seems to pause.
const IDLES: u32 = 3;

/// The requests that have come, and whose answers are not written to their end.
#[derive(Clone)]
pub(crate) struct AnswerDeliveries {
    pub(crate) app: Arc<App>,
    open: OpenCount,
    /// The number of answers that were cut off since the server began to drain.
    cut: Arc<AtomicUsize>,
}

/// The request of a connection that its caller has no whole answer to.
#[derive(Debug, Default)]
pub(crate) struct UnansweredRequest(Mutex<RequestState>);

#[derive(Debug, Default)]
enum RequestState {
    #[default]
    None,
    Asked(OpenGuard),
    /// Its answer is being written.
    Answered(OpenGuard),
}

impl AnswerDeliveries {
    pub(crate) fn new(app: Arc<App>) -> AnswerDeliveries {
        AnswerDeliveries { app, open: OpenCount::new(), cut: Arc::default() }
    }

    /// The time for which a caller may read nothing.
    pub(crate) fn patience(&self) -> Duration {
        self.app.args.http.idle_timeout.saturating_mul(IDLES)
    }

    /// Says that an answer is cut off, since its caller reads nothing.
    pub(crate) fn cut(&self) {
        if self.app.phases.now() >= ServerPhase::Draining {
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
        let patience = HumanDuration(self.patience());
        self.app.workers.lanes.shared.terminal.tell(&format!(
            "an answer was cut off: its caller has read nothing of it for {patience:#} ({IDLES} times --idle-timeout)"
        ));
    }

    /// Waits until each answer is written, or cut off.
    pub(crate) async fn done(&self) {
        self.open.none().await;
    }

    /// The answers that are not written to their end.
    pub(crate) fn open(&self) -> usize {
        self.open.count()
    }

    /// The answers that were cut off since the server began to drain.
    pub(crate) fn cut_off(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }
}

impl UnansweredRequest {
    pub(crate) fn asked(&self, deliveries: &AnswerDeliveries) {
        *lock(&self.0) = RequestState::Asked(deliveries.open.begin());
    }

    pub(crate) fn answered(&self) {
        let mut state = lock(&self.0);
        *state = match std::mem::take(&mut *state) {
            RequestState::Asked(open) | RequestState::Answered(open) => {
                RequestState::Answered(open)
            }
            RequestState::None => RequestState::None,
        };
    }

    /// Some bytes are to be written. Returns whether they are of a request that has come.
    pub(crate) fn writing(&self, deliveries: &AnswerDeliveries) -> bool {
        let mut state = lock(&self.0);
        let is_none = matches!(*state, RequestState::None);
        if is_none {
            *state = RequestState::Answered(deliveries.open.begin());
        }
        !is_none
    }

    /// All bytes are written.
    pub(crate) fn written(&self) {
        let mut state = lock(&self.0);
        if matches!(*state, RequestState::Answered(_)) {
            *state = RequestState::None;
        }
    }

    /// The connection has ended.
    pub(crate) fn gone(&self) {
        *lock(&self.0) = RequestState::None;
    }
}
