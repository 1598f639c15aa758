//! The files in docs/deploy that start `gangline worker`, with programs in place of those that reach other machines.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::suite::tests;
use crate::support::{Place, Running};

const KUBERNETES: &str = include_str!("../../../../docs/deploy/kubernetes.yaml");
const SLURM: &str = include_str!("../../../../docs/deploy/slurm.sh");
const SSH: &str = include_str!("../../../../docs/deploy/ssh.sh");

tests![
    the_batch_script_runs_the_commands_of_a_file,
    the_batch_script_goes_on_where_it_was_ended,
    workers_behind_ssh_run_commands_and_end_with_the_run,
    a_broker_that_is_not_there_is_named,
    without_a_starter_the_run_says_where_the_address_is,
    the_scripts_are_of_the_shell,
    kubernetes_has_each_field_of_the_deployment,
    keda_has_each_field_of_the_scaled_object,
];

/// A place with programs that are found before those of the system, one of which is a script.
fn prepared(name: &str, script: &str) -> Place {
    let place = Place::new();
    std::fs::create_dir_all(place.path("bin")).unwrap();
    let path = place.write(&format!("bin/{name}"), format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_gangline");
    std::os::unix::fs::symlink(program, place.path("bin/gangline")).unwrap();
    place
}

fn start(place: &Place, mut command: Command) -> Running {
    let path = std::env::var("PATH").unwrap();
    command.current_dir(place.directory()).env("HOME", place.directory());
    command.env("PATH", format!("{}:{path}:/usr/sbin", place.path("bin").display()));
    command.env("TMPDIR", place.path("tmp")).env("GANGLINE_DEVICES", "cpu*2");
    place.start(&mut command)
}

/// `srun` is a program here that starts a task on each of two nodes.
fn batch(place: &Place) -> Running {
    place.write("slurm.sh", SLURM.replace("--broker auto", "--broker auto:127.0.0.1"));
    let mut command = Command::new("bash");
    command.args(["slurm.sh", "commands.txt"]);
    start(place, command)
}

fn slurm() -> Place {
    let both =
        "for node in 1 2; do NODE=$node \"$@\" & done; trap 'kill $(jobs -p)' TERM; wait; wait";
    prepared("srun", &format!("[ \"$SRUN_CPUS_PER_TASK\" ] && shift\n{both}"))
}

fn the_batch_script_runs_the_commands_of_a_file() {
    let place = slurm();
    let commands: String = (0..40).map(|n| format!("echo {n}\n")).collect();
    place.write("commands.txt", commands);
    let ran = batch(&place).ran();
    let expected: String = (0..40).map(|n| format!("{n}\n")).collect();
    ran.check(0, &expected);
    place.check_no_process_is_left();
}

fn the_batch_script_goes_on_where_it_was_ended() {
    let place = slurm();
    place
        .write("commands.txt", "touch first\nsh -c 'touch begun; test -e go || exec sleep 1000'\n");
    let running = batch(&place);
    place.wait_for("begun");
    running.send(Signal::KILL);
    _ = running.ran();
    place.check_no_process_is_left();
    place.write("go", "");
    batch(&place).ran().check(0, "");
    place.check_no_process_is_left();
}

/// `ssh` is a program here that runs its command on this machine.
fn workers_behind_ssh_run_commands_and_end_with_the_run() {
    let place = prepared("ssh", "shift; exec sh -c \"$1\"");
    place.write("ssh.sh", SSH);
    let mut command = Command::new(place.path("bin/gangline"));
    command.args([
        "run",
        "--broker",
        "auto:127.0.0.1",
        "--start-workers",
        "bash ssh.sh node1 node2",
    ]);
    command.args(["--", "echo", "{}", ":::", "a", "b", "c"]);
    start(&place, command).ran().check(0, "a\nb\nc\n");
    place.check_no_process_is_left();
}

fn a_broker_that_is_not_there_is_named() {
    let place = Place::new();
    let mut command = place.gangline(["run", "--broker", "auto", "--", "true", ":::", "1"]);
    command.env("PATH", place.path("tmp"));
    let ran = place.start(&mut command).ran();
    if !std::path::Path::new("/usr/sbin/nats-server").exists() {
        ran.check_said(104, &["nats-server is not here", "pip"]);
    }
}

fn without_a_starter_the_run_says_where_the_address_is() {
    let place = prepared("unused", "");
    let mut command = Command::new(place.path("bin/gangline"));
    command.args([
        "run",
        "--broker",
        "auto:127.0.0.1",
        "--wait-for",
        "1s",
        "--",
        "true",
        ":::",
        "1",
    ]);
    let ran = start(&place, command).ran();
    ran.check_said(104, &["start workers by: env $(cat ", "gangline worker --serve commands"]);
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
