//! What goes wrong with a cluster, and the error that names it: the rows of a table in docs/cluster.md.

use std::time::Duration;

use super::world::{Happening, Process, World};
use super::{Plan, simulate_with, small_plan};
use crate::backend::cluster::simulation::jetstream::Files;

/// The event on the page, the name of its error there, and a part of the error's text.
const OUTAGES: [(&str, &str, &str); 7] = [
    ("the broker is gone for `wait_for`", "BrokerGone", "has been gone for"),
    (
        "the broker is connected but does not answer",
        "NoAnswer",
        "is connected, and does not answer",
    ),
    (
        "the broker refuses the password of a user that was connected",
        "Connect",
        "no connection to the broker at nats://127.0.0.1: authorization violation",
    ),
    ("a user loses a right", "Denied", "the broker denies this user a right: "),
    ("no worker is there for `wait_for`", "NoWorkers", "0 of at least 1 workers take part"),
    ("two coordinators have one `run_name`", "Superseded", "has taken over the run"),
    (
        "the broker has no room for an item or a result",
        "Refused",
        "the broker refuses an item or a result: ",
    ),
];

/// A plan in which an outage begins during a run.
fn plan_of(error: &str) -> Plan {
    let (soon, long) = (Duration::from_secs(1), Duration::from_secs(60));
    let mut plan = Plan { wait_for: Duration::from_secs(10), retries: 0, ..small_plan(2_000) };
    plan.happenings = match error {
        "BrokerGone" => vec![(soon, Happening::KillBroker(Files::Kept, long))],
        "NoAnswer" => vec![(soon, Happening::PauseBroker(long))],
        "Connect" => vec![(soon, Happening::LockOut(0))],
        "Denied" => vec![(soon, Happening::Deny(0, "s.items.>"))],
        "NoWorkers" => vec![(soon, Happening::Kill(1))],
        "Superseded" => vec![],
        "Refused" => vec![(soon, Happening::Refuse(long))],
        other => unreachable!("no row has {other}"),
    };
    if error == "Superseded" {
        plan.runs.push(vec![1]);
    }
    plan
}

#[test]
fn each_outage_has_the_error_that_the_page_names() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (event, name, text) in OUTAGES {
        let row = page.lines().find(|line| line.starts_with(&format!("| {event}")));
        assert!(row.is_some_and(|row| row.contains(&format!("`{name}`"))), "{event}: {row:?}");
        let look = |world: &mut World<'_>, _: &_| {
            let first = world.processes().find_map(|process| match process {
                Process::Coordinator(host) => host.pool.as_ref(),
                Process::Worker(_) => None,
            });
            Ok(first.and_then(|pool| {
                pool.ended.first()?.error.as_ref().map(|error| format!("{error:#}"))
            }))
        };
        let error = simulate_with(&plan_of(name), 1, None, look).unwrap();
        assert!(error.as_ref().is_some_and(|error| error.contains(text)), "{event}: {error:?}");
    }
}
