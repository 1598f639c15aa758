//! The spans of a run, for subscribers of `tracing`.

use std::sync::Arc;

use gangline_scheduler::IndexMap;
use tracing::field::Empty;
use tracing::span::EnteredSpan;
use tracing::{Level, Span};

use crate::concurrency::spawn::{CallerSubscriber, SubscriberGuard};
use crate::concurrency::{Mutex, lock};
use crate::device::Device;
use crate::error::{Error, text_of};
use crate::run::run_shape::{RunKind, RunShape};

/// The target of all spans, by which subscribers select them.
const TARGET: &str = "gangline";

/// The spans of a run. Whether attempts have spans is asked once, so that an item costs a comparison if not.
#[derive(Debug)]
pub(crate) struct TraceSpans {
    /// A child of the span in which the run began. All spans are of its subscriber, the caller's: an id means nothing to
    /// another one.
    run: SubscribedSpan,
    attempts: AttemptSpans,
}

/// A span that is dropped with its own subscriber as the default: the registry of `tracing-subscriber` closes the parents
/// of a span in the default one, which may have other spans of their ids.
#[derive(Debug)]
pub(crate) struct SubscribedSpan {
    span: Span,
    subscriber: CallerSubscriber,
}

impl Drop for SubscribedSpan {
    fn drop(&mut self) {
        let _default = self.subscriber.enter();
        self.span = Span::none();
    }
}

/// A span that is entered until it is dropped, with its own subscriber as the default: a hook may have set another one for
/// its thread, in which the registry would close the span that is left.
#[derive(Debug)]
#[must_use = "dropping it leaves the span"]
pub(crate) struct EnteredOwnSpan {
    /// `None` only while this is dropped.
    span: Option<EnteredSpan>,
    subscriber: CallerSubscriber,
}

impl Drop for EnteredOwnSpan {
    fn drop(&mut self) {
        let _default = self.subscriber.enter();
        self.span = None;
    }
}

/// Keeps the current thread in the span of a run, with the subscriber of its caller, until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it leaves the run"]
pub(crate) struct InRun {
    // Dropped before the subscriber.
    _span: EnteredOwnSpan,
    _subscriber: SubscriberGuard,
}

#[derive(Debug)]
enum AttemptSpans {
    /// No subscriber wants them.
    Unwanted,
    /// Children of the run.
    OfRun,
    /// Children of the spans in which the calls were made, by item; of the run if there is none. In an `Arc`, since to
    /// clone or drop a span calls the subscriber, and that is not done under the lock.
    OfCalls(Mutex<IndexMap<Arc<SubscribedSpan>>>),
}

impl TraceSpans {
    /// Creates the span of a run, and asks whether a subscriber wants those of attempts.
    pub(crate) fn new(shape: &RunShape) -> Self {
        let RunShape { order, producers, kind, .. } = *shape;
        let subscriber = CallerSubscriber::current();
        let run = tracing::info_span!(
            target: TARGET, "run", ?order, producers, error = Empty, otel.status_code = Empty,
        );
        let attempts = match (tracing::span_enabled!(target: TARGET, Level::DEBUG), kind) {
            (false, _) => AttemptSpans::Unwanted,
            (true, RunKind::Service) => AttemptSpans::OfCalls(Mutex::default()),
            (true, _) => AttemptSpans::OfRun,
        };
        TraceSpans { run: SubscribedSpan { span: run, subscriber }, attempts }
    }

    /// Enters the run, on a thread that takes part in it.
    pub(crate) fn enter(&self) -> InRun {
        let subscriber = self.run.subscriber.enter();
        InRun { _span: self.entered(self.run.span.clone()), _subscriber: subscriber }
    }

    /// Writes the outcome of the run into its span: `OK`, or `ERROR` with the text of the error.
    pub(crate) fn end_run(&self, error: Option<&Error>) {
        note_outcome(&self.run.span, error);
    }

    /// The span that a call is made in, if it will be asked for. It is one of the run's subscriber: a caller with another
    /// subscriber mostly has none.
    pub(crate) fn caller(&self) -> Option<SubscribedSpan> {
        let AttemptSpans::OfCalls(_) = self.attempts else { return None };
        let _default = self.run.subscriber.enter();
        let span = Some(Span::current()).filter(|span| !span.is_none())?;
        Some(SubscribedSpan { span, subscriber: self.run.subscriber.clone() })
    }

    /// Keeps the span in which a call was made.
    pub(crate) fn note_caller(&self, item: u64, caller: Option<SubscribedSpan>) {
        if let (AttemptSpans::OfCalls(callers), Some(caller)) = (&self.attempts, caller) {
            lock(callers).insert(item, Arc::new(caller));
        }
    }

    /// Forgets the call of an item that is settled.
    #[inline]
    pub(crate) fn forget_caller(&self, item: u64) {
        if let AttemptSpans::OfCalls(callers) = &self.attempts {
            let caller = lock(callers).remove(&item);
            // Closing a span calls the subscriber, so the lock goes first.
            drop(caller);
        }
    }

    /// Enters the span of an attempt at these items, if a subscriber wants it. A retry is one with a higher
    /// number.
    #[inline]
    pub(crate) fn attempt(
        &self,
        items: &[u64],
        attempt: u32,
        device: Option<&Device>,
        key: impl FnOnce() -> Option<Arc<str>>,
    ) -> Option<EnteredOwnSpan> {
        match self.attempts {
            AttemptSpans::Unwanted => None,
            _ => Some(self.enter_attempt(items, attempt, device, key())),
        }
    }

    #[cold]
    fn enter_attempt(
        &self,
        items: &[u64],
        attempt: u32,
        device: Option<&Device>,
        key: Option<Arc<str>>,
    ) -> EnteredOwnSpan {
        // A hook may have set another default for its thread.
        let _default = self.run.subscriber.enter();
        let device = device.map(ToString::to_string);
        let (device, key) = (device.as_deref(), key.as_deref());
        let callers = self.callers_of(items);
        if let &[item] = items {
            let parent = &callers.first().map_or(&self.run, |caller| &**caller).span;
            return self.entered(tracing::debug_span!(
                target: TARGET, parent: parent, "attempt", item, key, device, attempt,
                error = Empty, otel.status_code = Empty,
            ));
        }
        let span = tracing::debug_span!(
            target: TARGET, parent: &self.run.span, "batch", ?items, device, attempt,
            error = Empty, otel.status_code = Empty,
        );
        callers.iter().for_each(|caller| _ = span.follows_from(&caller.span));
        self.entered(span)
    }

    /// Enters a span of the run's subscriber, which is the default now.
    fn entered(&self, span: Span) -> EnteredOwnSpan {
        EnteredOwnSpan { span: Some(span.entered()), subscriber: self.run.subscriber.clone() }
    }

    /// Writes the outcome of an attempt into its span, if it has one: `OK`, or `ERROR` with the text of the error.
    #[inline]
    pub(crate) fn end_attempt<T>(span: Option<&EnteredOwnSpan>, outcome: Result<&T, &Error>) {
        if let Some(span) = span.and_then(|span| span.span.as_ref()) {
            note_outcome(span, outcome.err());
        }
    }

    fn callers_of(&self, items: &[u64]) -> Vec<Arc<SubscribedSpan>> {
        let AttemptSpans::OfCalls(callers) = &self.attempts else { return vec![] };
        let callers = lock(callers);
        items.iter().filter_map(|item| callers.get(item).cloned()).collect()
    }
}

/// The names of the fields are those that exporters to OpenTelemetry know.
#[cold]
fn note_outcome(span: &Span, error: Option<&Error>) {
    match error {
        None => _ = span.record("otel.status_code", "OK"),
        Some(error) => {
            span.record("otel.status_code", "ERROR");
            span.record("error", &*text_of(error));
        }
    }
}
