//! Spans and events of runs, as a subscriber of `tracing` sees them.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::fmt;
use std::sync::{Mutex, OnceLock};

use gangline::{Batch, OnError, OrderedRunner, Runner, map};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber, info_span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

#[path = "it/log.rs"]
#[expect(unreachable_pub, reason = "other test programs share it")]
mod log;

use log::Log;

/// The spans from the outermost in, and the event in them, if it is one.
type Record = (Vec<String>, Option<String>);

static RECORDS: Mutex<Vec<Record>> = Mutex::new(vec![]);

/// What was written into spans once they had begun, behind the text of the span.
static OUTCOMES: Mutex<Vec<String>> = Mutex::new(vec![]);

struct Recording;

/// A span, and the fields of its outcome.
struct Outcome(String);

impl Visit for Outcome {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

/// A name or message, with the fields that do not differ from run to run.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            name @ ("item" | "key" | "device" | "attempt" | "items") => {
                self.0.push_str(&format!(" {name}={value:?}"));
            }
            _ => {}
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recording {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let span = cx.span(id).unwrap();
        let mut text = Text(span.name().to_owned());
        attributes.record(&mut text);
        span.extensions_mut().insert(text);
        let path = cx.span_scope(id).unwrap().from_root();
        let path = path.map(|span| span.extensions().get::<Text>().unwrap().0.clone()).collect();
        RECORDS.lock().unwrap().push((path, None));
    }

    fn on_record(&self, id: &Id, values: &tracing::span::Record<'_>, cx: Context<'_, S>) {
        let mut outcome =
            Outcome(cx.span(id).unwrap().extensions().get::<Text>().unwrap().0.clone());
        values.record(&mut outcome);
        OUTCOMES.lock().unwrap().push(outcome.0);
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let path = cx.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let path = path.map(|span| span.extensions().get::<Text>().unwrap().0.clone()).collect();
        RECORDS.lock().unwrap().push((path, Some(text.0)));
    }
}

fn subscribe() {
    static SUBSCRIBER: OnceLock<()> = OnceLock::new();
    SUBSCRIBER.get_or_init(|| {
        let subscriber = tracing_subscriber::registry().with(Recording);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// What is recorded in a span that `root` makes.
fn recorded(root: impl FnOnce() -> tracing::Span, f: impl FnOnce()) -> Vec<Record> {
    subscribe();
    let root = root();
    let name = root.metadata().unwrap().name();
    root.in_scope(f);
    let records = RECORDS.lock().unwrap();
    records.iter().filter(|(path, _)| path.first().is_some_and(|it| it == name)).cloned().collect()
}

#[track_caller]
fn assert_has(records: &[Record], path: &[&str], event: Option<&str>) {
    let has = records.iter().any(|(spans, text)| spans == path && text.as_deref() == event);
    assert!(has, "{path:?} {event:?} is not in {records:#?}");
}

fn flaky() -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> {
    map(
        |_| Ok(()),
        |cx, _, x: u64| {
            tracing::info!("in the hook");
            if x == 1 && cx.attempt() < 3 { Err("not yet".into()) } else { Ok(x) }
        },
    )
}

#[test]
fn attempts_and_events_of_hooks_are_in_the_span_of_the_caller() {
    let records = recorded(
        || info_span!("a run's caller"),
        || {
            let builder = OrderedRunner::builder(flaky()).devices(1).key(|x| format!("k{x}"));
            let mut pool = builder.retries(1).on_error(OnError::Skip).build().unwrap();
            assert_eq!(pool.run([0, 1]).unwrap(), [0]);
        },
    );
    let path = |attempt| ["a run's caller", "run", attempt];
    let first = "attempt item=0 key=\"k0\" device=\"cpu\" attempt=1";
    let retry = "attempt item=1 key=\"k1\" device=\"cpu\" attempt=2";
    assert_has(&records, &path(first), None);
    assert_has(&records, &path(first), Some("in the hook"));
    assert_has(&records, &path(retry), Some("in the hook"));
    let retried = "an item is retried item=1 key=\"k1\" device=\"cpu\" attempt=1";
    assert_has(&records, &path(first)[..2], Some(retried));
    let failed = "an item failed item=1 key=\"k1\" device=\"cpu\" attempt=2";
    assert_has(&records, &path(first)[..2], Some(failed));
}

#[test]
fn each_call_of_a_service_has_a_span_of_its_own_as_parent() {
    subscribe();
    let service = OrderedRunner::new(flaky(), 1).unwrap().into_service();
    for (root, x) in [(info_span!("first caller"), 5), (info_span!("second caller"), 6)] {
        let name = root.metadata().unwrap().name();
        let records = recorded(|| root, || assert_eq!(service.call(x).unwrap(), x));
        let attempt = format!("attempt item={} device=\"cpu\" attempt=1", x - 5);
        assert_has(&records, &[name, &attempt], Some("in the hook"));
    }
}

fn run<R>(pool: &mut OrderedRunner<R>)
where
    R: Runner<Input = u64, Output = u64, Summary = Vec<u64>> + 'static,
{
    assert_eq!(pool.run([0, 1]).unwrap(), [0]);
}

/// The subscriber that is not the caller's has nothing of the run.
#[test]
fn a_caller_with_a_subscriber_of_its_own_has_the_run_in_it() {
    let log = Log::new();
    let build = || OrderedRunner::builder(flaky()).devices(1).on_error(OnError::Skip).build();
    subscribe();
    let mut built_here = build().unwrap();
    let mut built_there = log.scope(build).unwrap();
    let records = recorded(
        || info_span!("another's caller"),
        || {
            for pool in [&mut built_here, &mut built_there] {
                log.scope(|| info_span!("own").in_scope(|| run(pool)));
                let none = tracing::subscriber::NoSubscriber::default();
                tracing::subscriber::with_default(none, || run(pool));
            }
        },
    );
    assert_eq!(records, [(vec!["another's caller".to_owned()], None)]);
    for (line, count) in [
        ("own", 2),
        ("own>run", 2),
        ("own>run>attempt", 4),
        ("own>run>attempt: in the hook", 4),
        ("own>run: an item failed", 2),
    ] {
        assert_eq!(log.count(line), count, "{line} in {:#?}", log.others(&[]));
    }
    let records = recorded(
        || info_span!("own caller"),
        || [&mut built_here, &mut built_there].into_iter().for_each(run),
    );
    let attempt = "attempt item=0 device=\"cpu\" attempt=1";
    let count = records
        .iter()
        .filter(|(path, event)| path.len() == 3 && path[2] == attempt && event.is_some());
    assert_eq!(count.count(), 2, "{records:#?}");
}

/// A span of another subscriber is no parent: its id may be that of any span of the service's.
#[test]
fn a_call_from_another_subscriber_is_in_the_run_of_the_service() {
    subscribe();
    let (own, other) = (Log::new(), Log::new());
    let single = || OrderedRunner::new(flaky(), 2).unwrap();
    let batches = || {
        let work = gangline::map_batches(
            |_| Ok(()),
            |_, (), xs: &mut Vec<u64>| {
                tracing::info!("in the hook");
                Ok(xs.drain(..).map(Ok).collect())
            },
        );
        let full = Batch::of(2).within(std::time::Duration::from_secs(60));
        OrderedRunner::builder(work).devices(1).batch(full).build().unwrap()
    };
    let make = || (single().into_service(), batches().into_service());
    let (single, batches) = own.scope(|| info_span!("makes it").in_scope(make));
    let call = || {
        assert_eq!(single.call(5).unwrap(), 5);
        let tickets = batches.try_submit_all(vec![6, 7]).unwrap();
        assert_eq!(tickets.into_iter().map(|it| it.wait().unwrap()).collect::<Vec<_>>(), [6, 7]);
    };
    own.scope(|| info_span!("calls").in_scope(call));
    let alone = own.others(&[]);
    assert_eq!(own.count("calls>attempt: in the hook"), 1, "{alone:#?}");
    assert_eq!(own.count("makes it>run>batch: in the hook"), 1, "{alone:#?}");
    // Spans of the other with the ids of spans of the service's, one in each other.
    other.scope(|| {
        let spans: Vec<_> = (0..8).map(|_| info_span!("other").entered()).collect();
        call();
        spans.into_iter().rev().for_each(drop);
    });
    let records = recorded(|| info_span!("calls from outside"), call);
    let none = tracing::subscriber::NoSubscriber::default();
    tracing::subscriber::with_default(none, call);
    call();
    std::thread::scope(|scope| _ = scope.spawn(|| other.scope(call)));
    assert_eq!(own.count("calls>attempt: in the hook"), 1);
    assert_eq!(own.count("makes it>run>attempt: in the hook"), 5, "{:#?}", own.others(&[]));
    assert_eq!(own.count("makes it>run>batch: in the hook"), 6, "{:#?}", own.others(&[]));
    assert!(other.others(&["other"]).iter().all(|it| it.starts_with("other>other")), "{other:#?}");
    assert_eq!(records, [(vec!["calls from outside".to_owned()], None)]);
}

/// A library may set a default for its thread, and keep it in its state.
#[test]
fn a_hook_that_sets_a_subscriber_for_its_thread_does_not_disturb_the_run() {
    subscribe();
    let (log, library) = (Log::new(), Log::new());
    let of_library = library.clone();
    let work = map(
        move |_| Ok(of_library.enter()),
        |_, _, x: u64| {
            tracing::info!("in the hook");
            assert_ne!(x, 1, "its state is made again, in the run");
            Ok(x)
        },
    );
    let builder = OrderedRunner::builder(work).devices(1).on_error(OnError::Skip);
    let mut pool = builder.build().unwrap();
    for _ in 0..2 {
        let ran = log.scope(|| info_span!("caller").in_scope(|| pool.run(0..4)));
        assert_eq!(ran.unwrap(), [0, 2, 3]);
    }
    assert_eq!(log.count("caller>run>attempt"), 8, "{:#?}", log.others(&[]));
    drop(pool);
    assert!(
        library.others(&[": in the hook"]).iter().all(|it| !it.contains("run")),
        "{library:#?}"
    );
}

#[test]
fn a_batch_has_one_span() {
    let records = recorded(
        || info_span!("a batch's caller"),
        || {
            let builder = OrderedRunner::builder(gangline::map_batches(
                |_| Ok(()),
                |_, (), xs: &mut Vec<u64>| {
                    tracing::info!("in the hook");
                    Ok(xs.iter().map(|&x| Ok(x)).collect())
                },
            ));
            let mut pool = builder.devices(1).batch(Batch::of(2)).build().unwrap();
            assert_eq!(pool.run([0, 1]).unwrap(), [0, 1]);
        },
    );
    let batch = "batch items=[0, 1] device=\"cpu\" attempt=1";
    assert_has(&records, &["a batch's caller", "run", batch], Some("in the hook"));
}

/// Exporters to OpenTelemetry know these names.
#[test]
fn an_attempt_has_its_outcome() {
    recorded(
        || info_span!("an outcome's caller"),
        || {
            let work = map(
                |_| Ok(()),
                |_, (), x: u64| match x {
                    2_000 => Ok(x),
                    2_001 => Err("bad".into()),
                    _ => panic!("worse"),
                },
            );
            let builder = OrderedRunner::builder(work).devices(1).key(|x| x.to_string());
            let mut pool = builder.on_error(OnError::Skip).build().unwrap();
            assert_eq!(pool.run(2_000..2_003).unwrap(), [2_000]);
            let batches = gangline::map_batches(
                |_| Ok(()),
                |_, (), xs: &mut Vec<u64>| {
                    xs.clear();
                    gangline::Result::<Vec<gangline::Result<u64>>>::Err("all of it".into())
                },
            );
            let builder = OrderedRunner::builder(batches);
            let mut pool = builder.devices(1).batch(Batch::of(3)).build().unwrap();
            pool.run(0..3).unwrap_err();
        },
    );
    let outcomes = OUTCOMES.lock().unwrap();
    let has = |span: &str, fields: &[&str]| {
        let of_span = outcomes.iter().filter(|it| it.starts_with(span));
        let of_span: Vec<_> = of_span.map(|it| &it[span.len()..]).collect();
        let text = of_span.concat();
        assert!(!of_span.is_empty() && fields.iter().all(|it| text.contains(it)), "{outcomes:#?}");
        text
    };
    let attempt = |item: u64, key: &str| {
        format!("attempt item={item} key=\"{key}\" device=\"cpu\" attempt=1")
    };
    let text = has(&attempt(0, "2000"), &["otel.status_code=\"OK\""]);
    assert!(!text.contains("error"), "{text}");
    has(&attempt(1, "2001"), &["otel.status_code=\"ERROR\"", "error=", ": bad"]);
    has(&attempt(2, "2002"), &["otel.status_code=\"ERROR\"", "panicked", "worse"]);
    let batch = "batch items=[0, 1, 2] device=\"cpu\" attempt=1";
    has(batch, &["otel.status_code=\"ERROR\"", "all of it"]);
    // Runs of all tests have the same text.
    assert!(outcomes.iter().any(|it| it == "run otel.status_code=\"OK\""), "{outcomes:#?}");
    let failed = |it: &String| it.starts_with("run error=") && it.contains("all of it");
    assert!(outcomes.iter().any(failed), "{outcomes:#?}");
}
