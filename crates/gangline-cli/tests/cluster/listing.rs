//! What `gangline workers` lists.

use rustix::process::Signal;
use serde_json::Value;

use crate::broker::Broker;
use crate::suite::tests;
use crate::support::{Place, wait_until};

tests![
    workers_are_listed,
    the_list_of_no_workers_says_so,
    a_list_without_a_broker_is_an_error,
    a_password_is_asked_for_and_not_shown,
];

fn list(place: &Place, broker: &Broker, options: &[&str]) -> String {
    let mut command = place.gangline(["workers", "--nats", &broker.url()]);
    let ran = place.ran(command.args(options));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    ran.stdout
}

fn json(place: &Place, broker: &Broker) -> Vec<Value> {
    let text = list(place, broker, &["--json"]);
    serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().clone()
}

fn workers_are_listed() {
    let (place, broker) = (Place::new(), Broker::start());
    let mut workers = [broker.worker(2), broker.worker(1)];
    wait_until("both are there", || json(&place, &broker).len() == 2);
    let pool = broker.builder().build().unwrap();
    wait_until("they take part", || json(&place, &broker).iter().all(|it| it["runs"] == 1));
    let all = json(&place, &broker);
    let pids: Vec<_> = all.iter().map(|it| it["pid"].as_u64().unwrap() as u32).collect();
    assert!(workers.iter().all(|worker| pids.contains(&worker.pid())), "{all:?}");
    let of_first = all.iter().find(|it| it["pid"] == workers[0].pid()).unwrap();
    assert_eq!(of_first["devices"], "cpu*2");
    assert_eq!(of_first["recipes"][0]["name"], "chores");
    assert_eq!(of_first["recipes"][0]["version"], "1");
    let moment = |name: &str| humantime::parse_rfc3339(of_first[name].as_str().unwrap()).unwrap();
    assert!(moment("started") <= moment("last_seen"));
    drop(pool);

    let table = list(&place, &broker, &[]);
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    let words = |line: &str| line.split_ascii_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let columns = ["HOST", "PID", "DEVICES", "RECIPE", "VERSION", "RUNS", "STARTED"];
    assert_eq!(words(lines[0]), columns);
    for line in &lines {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let of_second = lines.iter().find(|it| it.contains(&workers[1].pid().to_string())).unwrap();
    assert_eq!(words(of_second)[2..5], ["cpu", "chores", "1"]);

    // One that drains is gone at once.
    workers[0].signal(Signal::TERM);
    assert!(workers[0].wait().success());
    assert_eq!(json(&place, &broker).len(), 1);
}

fn the_list_of_no_workers_says_so() {
    let (place, broker) = (Place::new(), Broker::start());
    assert_eq!(list(&place, &broker, &[]), "no worker is there\n");
    assert_eq!(list(&place, &broker, &["--json"]), "[]\n");
    let mut worker = broker.worker(1);
    wait_until("it is there", || json(&place, &broker).len() == 1);
    worker.signal(Signal::TERM);
    worker.wait();
    assert_eq!(list(&place, &broker, &[]), "no worker is there\n");
}

fn a_list_without_a_broker_is_an_error() {
    let place = Place::new();
    let mut command = place.gangline(["workers", "--nats", "nats://127.0.0.1:1"]);
    place.ran(&mut command).check_said(104, &["no connection to the broker at nats://127.0.0.1:1"]);
}

fn a_password_is_asked_for_and_not_shown() {
    let place = Place::new();
    let broker = Broker::with_options(&["--user", "a", "--pass", "secret"]);
    let with = |password: &str| {
        let url = broker.url().replace("nats://", &format!("nats://a:{password}@"));
        let mut command = place.gangline(["workers"]);
        place.ran(command.env("GANGLINE_NATS", url))
    };
    with("secret").check(0, "no worker is there\n");
    let ran = with("guessed");
    ran.check_said(104, &["authorization"]);
    assert!(!ran.stderr.contains("guessed"), "{ran:?}");
}
