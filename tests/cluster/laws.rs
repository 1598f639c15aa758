//! The laws of a run, with producers in workers.

use gangline::AnyOrderRunner;
use gangline::cluster::Nats;
use gangline::process::Recipe;
use gangline::testing::conformance::{Laws, Probe};

use crate::broker::Broker;
use crate::chores::tests;

tests![workers_keep_the_laws, workers_with_child_processes_keep_the_laws];

pub static PROBE: Recipe<Probe> = Recipe::new("probe", Probe::from_cfg);

fn laws(nats: Nats) -> Laws<Probe> {
    let laws = Laws::new(move |probe| {
        AnyOrderRunner::builder(probe).cluster(&PROBE, nats.clone().max_workers(2))
    });
    laws.limit(std::time::Duration::from_secs(120))
}

fn check(env: &[(&str, &str)]) {
    let broker = Broker::start();
    let _worker = broker.worker_with(3, env);
    // A batch waits for a quarter of it.
    let laws = laws(broker.nats().lease_time(std::time::Duration::from_secs(20)));
    laws.no_hang().unwrap();
    laws.accounted().unwrap();
    laws.named().unwrap();
    laws.bounded().unwrap();
    laws.ordered().unwrap();
    laws.prompt().unwrap();
    laws.cancelled().unwrap();
    laws.clean().unwrap();
    laws.panics().unwrap();
    laws.batched().unwrap();
}

fn workers_keep_the_laws() {
    check(&[]);
}

fn workers_with_child_processes_keep_the_laws() {
    check(&[("GANGLINE_PROCESSES", "1")]);
}
