//! The laws of a run, with producers in workers.

use gangline::AnyOrderRunner;
use gangline::process::Recipe;
use gangline::testing::conformance::{Laws, Probe};
use gangline_nats::{ClusterBuilder, Nats};

use crate::broker::Broker;
use crate::suite::tests;

tests![
    workers_keep_the_laws,
    several_workers_keep_the_laws,
    workers_with_child_processes_keep_the_laws,
];

pub static PROBE: Recipe<Probe> = Recipe::new("probe", Probe::from_cfg);

fn laws(nats: Nats) -> Laws<Probe> {
    let laws = Laws::new(move |probe| AnyOrderRunner::builder(probe).cluster(&PROBE, nats.clone()));
    laws.limit(std::time::Duration::from_secs(300))
}

/// With workers of these numbers of producers, which are all there when a run begins.
fn check(workers: &[usize], env: &[(&str, &str)]) {
    let broker = Broker::start();
    let _workers: Vec<_> = workers.iter().map(|it| broker.worker_with(*it, env)).collect();
    // A batch waits for a quarter of it.
    let nats = broker.nats().lease_time(std::time::Duration::from_secs(20));
    let laws = laws(nats.max_workers(workers.len() + 1).min_workers(workers.len()));
    laws.no_hang().unwrap();
    laws.accounted().unwrap();
    laws.named().unwrap();
    laws.bounded().unwrap();
    laws.ordered().unwrap();
    laws.prompt().unwrap();
    laws.cancelled().unwrap();
    laws.clean().unwrap();
    laws.panics().unwrap();
    // Of several workers, each may have an incomplete batch at the end.
    if workers.len() == 1 {
        laws.batched().unwrap();
    }
}

fn workers_keep_the_laws() {
    check(&[3], &[]);
}

fn several_workers_keep_the_laws() {
    check(&[1, 2, 1], &[]);
}

fn workers_with_child_processes_keep_the_laws() {
    check(&[3], &[("GANGLINE_PROCESSES", "1")]);
}
