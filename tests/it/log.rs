//! A subscriber of `tracing` that keeps what it is told.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex, OnceLock};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Dispatch, Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// A subscriber, and what it was told: the names of the spans from the outermost in, joined by `>`; of an event, its
/// message behind them.
#[derive(Debug, Clone)]
pub struct Log {
    dispatch: Dispatch,
    lines: Lines,
}

type Lines = Arc<Mutex<Vec<String>>>;

struct Keeping(Lines);

struct Message(String);

impl Log {
    pub fn new() -> Self {
        keep_callsites();
        let lines = Lines::default();
        let subscriber = tracing_subscriber::registry().with(Keeping(lines.clone()));
        Log { dispatch: Dispatch::new(subscriber), lines }
    }

    /// Makes this subscriber the default of the thread.
    pub fn enter(&self) -> tracing::dispatcher::DefaultGuard {
        tracing::dispatcher::set_default(&self.dispatch)
    }

    /// Calls `f` with this subscriber as the default of the thread.
    pub fn scope<T>(&self, f: impl FnOnce() -> T) -> T {
        tracing::dispatcher::with_default(&self.dispatch, f)
    }

    /// The number of spans and events with this text.
    pub fn count(&self, line: &str) -> usize {
        self.lines.lock().unwrap().iter().filter(|it| *it == line).count()
    }

    /// The spans and events that are of none of these texts.
    pub fn others(&self, lines: &[&str]) -> Vec<String> {
        let all = self.lines.lock().unwrap();
        all.iter().filter(|it| !lines.contains(&it.as_str())).cloned().collect()
    }
}

fn path<S: Subscriber + for<'a> LookupSpan<'a>>(cx: &Context<'_, S>, id: Option<&Id>) -> String {
    let scope = id.and_then(|id| cx.span_scope(id));
    let names = scope.into_iter().flat_map(|scope| scope.from_root()).map(|span| span.name());
    names.collect::<Vec<_>>().join(">")
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Keeping {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        self.0.lock().unwrap().push(path(&cx, Some(id)));
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let current = cx.event_span(event).map(|span| span.id());
        let line = format!("{}: {}", path(&cx, current.as_ref()), message.0);
        self.0.lock().unwrap().push(line);
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            write!(self.0, "{value:?}").unwrap();
        }
    }
}

/// Keeps a subscriber for the rest of the program. While there is just one, `tracing` asks the thread that comes to a place
/// in the code first whether it has that one, and leaves the place out for all threads if not.
fn keep_callsites() {
    static KEPT: OnceLock<Dispatch> = OnceLock::new();
    KEPT.get_or_init(|| Dispatch::new(tracing_subscriber::registry()));
}
