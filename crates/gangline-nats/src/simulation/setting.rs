//! The names and streams at the modelled broker: those of the real one.

use std::sync::Arc;
use std::time::Duration;

use super::jetstream::{Retention, StreamConfig};
use crate::event::Emptied;
use crate::names;
use crate::names::SubjectNames;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The names of a namespace.
pub(super) struct Names {
    names: SubjectNames,
    pub(super) items: Arc<str>,
    pub(super) results: Arc<str>,
    pub(super) objects: Arc<str>,
    /// The limit of the bucket of large values, as a user may have set it before the first run.
    pub(super) object_room: Option<u64>,
}

impl Names {
    pub(super) fn new() -> Self {
        let names = SubjectNames::new("s").expect("it has no character with a meaning");
        let (items, results) = (names.items().into(), names.results().into());
        let objects = format!("OBJ_{}", names.objects()).into();
        Names { names, items, results, objects, object_room: None }
    }

    /// The streams, with the subjects of all of their messages.
    pub(super) fn emptied(&self, emptied: Emptied) -> Vec<(Arc<str>, Arc<str>)> {
        let subject = |stream: &str| match stream.strip_prefix("KV_") {
            Some(bucket) => format!("$KV.{bucket}.>"),
            None => format!("{}.>", stream.replacen('-', ".", 1)),
        };
        let streams = self.names.emptied(emptied).into_iter();
        streams.map(|stream| (stream.as_str().into(), subject(&stream).into())).collect()
    }

    pub(super) fn of_run(&self, run: &str) -> Arc<str> {
        self.names.items_of(run).into()
    }

    pub(super) fn of_epoch(&self, run: &str, epoch: u64) -> Arc<str> {
        self.names.items_of_epoch(run, epoch).into()
    }

    pub(super) fn any(&self, run: &str, epoch: u64) -> Arc<str> {
        self.names.any(run, epoch).into()
    }

    pub(super) fn to(&self, run: &str, epoch: u64, worker: &str) -> Arc<str> {
        self.names.to(run, epoch, worker).into()
    }

    pub(super) fn results_of(&self, run: &str) -> Arc<str> {
        self.names.results_of(run).into()
    }

    pub(super) fn notices(&self, run: &str) -> Arc<str> {
        self.names.notices(run).into()
    }

    pub(super) fn orders(&self, to: &str) -> Arc<str> {
        self.names.orders(to).into()
    }

    pub(super) fn consumer_of_any(&self, run: &str, epoch: u64) -> Arc<str> {
        names::consumer_of_any(run, epoch).into()
    }

    pub(super) fn consumer_of(&self, run: &str, epoch: u64, worker: &str) -> Arc<str> {
        names::consumer_of(run, epoch, worker).into()
    }

    pub(super) fn consumer_of_results(&self, run: &str) -> Arc<str> {
        names::consumer_of_results(run).into()
    }

    /// The stream and the subject of a run's key.
    pub(super) fn key(&self, run: &str) -> (Arc<str>, Arc<str>) {
        self.entry(&self.names.keys(), run)
    }

    pub(super) fn all_keys(&self) -> (Arc<str>, Arc<str>) {
        self.entry(&self.names.keys(), ">")
    }

    /// The stream and the subject of a worker's card.
    pub(super) fn card(&self, worker: &str) -> (Arc<str>, Arc<str>) {
        self.entry(&self.names.workers(), worker)
    }

    pub(super) fn all_cards(&self) -> (Arc<str>, Arc<str>) {
        self.entry(&self.names.workers(), ">")
    }

    /// The last part of the subject of an entry: its key.
    pub(super) fn key_in(&self, subject: &str) -> String {
        subject.rsplit('.').next().unwrap_or_default().to_owned()
    }

    pub(super) fn input_object(&self, run: &str, name: &str) -> Arc<str> {
        self.names.input_object(run, name).into()
    }

    pub(super) fn output_object(&self, run: &str, name: &str) -> Arc<str> {
        self.names.output_object(run, name).into()
    }

    pub(super) fn objects_of(&self, run: &str) -> Arc<str> {
        self.names.objects_of(run).into()
    }

    fn entry(&self, bucket: &str, key: &str) -> (Arc<str>, Arc<str>) {
        (format!("KV_{bucket}").into(), format!("$KV.{bucket}.{key}").into())
    }

    /// The streams that a coordinator makes.
    pub(super) fn streams(&self) -> Vec<StreamConfig> {
        let queue = |name: &str, kind: &str| StreamConfig {
            max_age: Some(DAY),
            ..StreamConfig::new(name, &self.names.all(kind), Retention::WorkQueue)
        };
        let chunks = format!("$O.{}.C.>", self.names.objects());
        let objects = StreamConfig {
            max_age: Some(DAY),
            max_bytes: self.object_room,
            allow_rollup: true,
            ..StreamConfig::new(&self.objects, &chunks, Retention::Limits)
        };
        let results =
            StreamConfig { max_bytes: Some(256 << 20), ..queue(&self.results, "results") };
        let queues = [queue(&self.items, "items"), results, objects];
        queues.into_iter().chain(self.buckets()).collect()
    }

    /// The buckets, which workers make too.
    pub(super) fn buckets(&self) -> Vec<StreamConfig> {
        vec![
            StreamConfig::bucket(&self.names.workers(), Duration::from_secs(60)),
            StreamConfig::bucket(&self.names.keys(), Duration::from_secs(60 * 60)),
        ]
    }
}
