//! The files in docs/deploy that start `gangline worker`, with programs in place of those that reach other machines.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use gangline_nats::ClusterBuilder;
use rustix::process::Signal;
use serde_json::Value;

use crate::broker::Broker;
use crate::chores::{squared, squares};
use crate::suite::tests;
use crate::support::{Place, Running};

const KUBERNETES: &str = include_str!("../../../../docs/deploy/kubernetes.yaml");
const SLURM: &str = include_str!("../../../../docs/deploy/slurm.sh");
const SSH: &str = include_str!("../../../../docs/deploy/ssh.sh");

tests![
    the_batch_script_starts_a_worker_that_a_signal_ends,
    workers_behind_ssh_end_with_their_connections,
    the_scripts_are_of_the_shell,
    kubernetes_has_each_field_of_the_deployment,
    keda_has_each_field_of_the_scaled_object,
];

/// A place with the variables of a worker, and with programs that are found before those of the system.
fn prepared(broker: &Broker, name: &str, script: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path("bin")).unwrap();
    let programs = format!("bin/{name}");
    let path = place.write(&programs, format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_gangline");
    std::os::unix::fs::symlink(program, place.path("bin/gangline")).unwrap();
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), place.path("app")).unwrap();
    let variables = format!("GANGLINE_NATS={}\nGANGLINE_DEVICES=cpu*2\n", broker.url());
    place.write("worker.env", variables);
    place
}

fn start(place: &Place, script: &str, arguments: &[&str]) -> Running {
    let script = place.write("script.sh", script);
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("bash");
    command.arg(script).args(arguments).current_dir(place.directory());
    command.env("PATH", format!("{}:{path}", place.path("bin").display()));
    command.env("TMPDIR", place.path("tmp"));
    command.env("WORKER_ENV", place.path("worker.env")).env("APP", place.path("app"));
    place.start(&mut command)
}

/// `srun` is a program here that starts one task.
fn the_batch_script_starts_a_worker_that_a_signal_ends() {
    let broker = Broker::start();
    let place = prepared(&broker, "srun", "[ \"$SRUN_CPUS_PER_TASK\" ] && shift && exec \"$@\"");
    let running = start(&place, SLURM, &[]);
    let mut pool = broker.builder().build().unwrap();
    assert_eq!(pool.run(squares(0..20)).unwrap(), squared(0..20));
    running.send(Signal::TERM);
    running.ran().check(0, "");
    place.check_no_process_is_left();
}

/// `ssh` is a program here that ends what it has started by SIGHUP, as the end of a terminal does.
fn workers_behind_ssh_end_with_their_connections() {
    let broker = Broker::start();
    let ssh = "sh -c \"$3\" & trap 'kill -HUP $!' TERM; wait; wait";
    let place = prepared(&broker, "ssh", ssh);
    let running = start(&place, SSH, &["node1", "node2"]);
    let builder = broker.builder();
    let mut pool =
        builder.cluster(&crate::chores::CHORES, broker.nats().min_workers(2)).build().unwrap();
    assert_eq!(pool.run(squares(0..20)).unwrap(), squared(0..20));
    running.send(Signal::INT);
    running.ran().check(0, "");
    place.check_no_process_is_left();
}

fn the_scripts_are_of_the_shell() {
    let place = Place::new();
    for (name, text) in [("slurm.sh", SLURM), ("ssh.sh", SSH)] {
        let checked = Command::new("bash").arg("-n").arg(place.write(name, text)).output().unwrap();
        assert!(checked.status.success() && checked.stderr.is_empty(), "{name}: {checked:?}");
    }
}

/// kubectl knows the types of Kubernetes, and leaves out what they lack.
fn kubernetes_has_each_field_of_the_deployment() {
    let place = Place::new();
    let (deployment, _) = KUBERNETES.split_once("\n---\n").unwrap();
    let image = |text: &str| text.replace("registry.example/app:1", "registry.example/app:2");
    let path = place.write("deployment.yaml", deployment);
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["set", "image", "--local", "-o", "json", "worker=registry.example/app:2", "-f"]);
    // Not every machine has it.
    let Ok(read) = kubectl.arg(path).output() else { return };
    assert!(read.status.success(), "{read:?}");
    let known: Value = serde_json::from_slice(&read.stdout).unwrap();
    let wanted: Value = serde_saphyr::from_str(&image(deployment)).unwrap();
    check_part("", &wanted, &known);
}

/// Checks that a value is part of another. Kubernetes reads numbers of resources as text.
#[track_caller]
fn check_part(path: &str, part: &Value, whole: &Value) {
    match part {
        Value::Object(fields) => fields
            .iter()
            .for_each(|(name, value)| check_part(&format!("{path}.{name}"), value, &whole[name])),
        Value::Array(values) => {
            assert_eq!(Some(values.len()), whole.as_array().map(Vec::len), "{path}");
            let each = values.iter().enumerate();
            each.for_each(|(at, value)| check_part(&format!("{path}[]"), value, &whole[at]));
        }
        _ if whole.as_str() == Some(&part.to_string()) => {}
        _ => assert_eq!(part, whole, "{path}"),
    }
}

/// The fields of KEDA's resource and of its scaler for JetStream that make sense here, with their types.
const FIELDS: &[(&str, &str)] = &[
    ("apiVersion", "text"),
    ("kind", "text"),
    ("metadata.name", "text"),
    ("spec.scaleTargetRef.name", "text"),
    ("spec.pollingInterval", "number"),
    ("spec.cooldownPeriod", "number"),
    ("spec.minReplicaCount", "number"),
    ("spec.maxReplicaCount", "number"),
    ("spec.advanced.scalingModifiers.formula", "text"),
    ("spec.advanced.scalingModifiers.target", "text"),
    ("spec.triggers.type", "text"),
    ("spec.triggers.name", "text"),
    ("spec.triggers.metadata.natsServerMonitoringEndpoint", "text"),
    ("spec.triggers.metadata.account", "text"),
    ("spec.triggers.metadata.stream", "text"),
    ("spec.triggers.metadata.consumer", "text"),
    ("spec.triggers.metadata.lagThreshold", "text"),
];

fn keda_has_each_field_of_the_scaled_object() {
    let (_, scaled) = KUBERNETES.split_once("\n---\n").unwrap();
    let scaled: Value = serde_saphyr::from_str(scaled).unwrap();
    let mut found = vec![];
    leaves("", &scaled, &mut found);
    for field in &found {
        assert!(FIELDS.iter().any(|it| it.0 == field.0 && it.1 == field.1), "{field:?}");
    }
    assert_eq!(scaled["apiVersion"], "keda.sh/v1alpha1");
    assert_eq!(scaled["kind"], "ScaledObject");
    // A formula computes with the names of triggers.
    let spec = &scaled["spec"];
    let formula = spec["advanced"]["scalingModifiers"]["formula"].as_str().unwrap();
    let name = spec["triggers"][0]["name"].as_str().unwrap();
    assert!(formula.split(' ').any(|word| word == name), "{formula}");
}

/// The paths of all values that hold no others, with their types.
fn leaves(path: &str, value: &Value, found: &mut Vec<(String, &'static str)>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            leaves(&path, value, found);
        }),
        Value::Array(values) => values.iter().for_each(|value| leaves(path, value, found)),
        Value::Number(_) => found.push((path.to_owned(), "number")),
        Value::String(_) => found.push((path.to_owned(), "text")),
        Value::Bool(_) | Value::Null => found.push((path.to_owned(), "other")),
    }
}
