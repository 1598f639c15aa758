//! What `gangline worker --serve` starts, and what it says of it.

use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;

use crate::broker::Broker;
use crate::suite::tests;
use crate::support::Place;

tests![
    a_worker_without_a_kind_says_which_there_are,
    a_worker_says_once_what_it_allows_and_to_whom,
    an_interpreter_gets_the_variables_of_a_worker,
    several_kinds_have_a_process_each,
    wrong_kinds_are_refused,
];

/// A program in the place of Python, which says what it was given.
fn python(place: &Place, script: &str) -> String {
    let path = place.write("python3", format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

fn a_worker_without_a_kind_says_which_there_are() {
    let place = Place::new();
    let ran = place.ran(&mut place.gangline(["worker", "--nats", "nats://127.0.0.1:1"]));
    ran.check_said(102, &["--serve commands", "--serve python", "-- PROGRAM"]);
}

fn a_worker_says_once_what_it_allows_and_to_whom() {
    let place = Place::new();
    let broker = Broker::with_options(&["--user", "alice", "--pass", "secret"]);
    let url = broker.url().replace("nats://", "nats://alice:secret@");
    let mut command = place.gangline(["worker", "--nats", &url, "--serve", "commands"]);
    let mut running = place.start(command.args(["--devices", "cpu"]));
    let said = running.read_stderr_until("with the rights of user");
    let parts = ["namespace gangline-commands", &broker.url(), "its user alice", "run any command"];
    for part in parts {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    assert!(!said.contains("secret"), "{said}");
    // It has joined.
    let ran = place.start(&mut place.gangline(["run", "--nats", &url, "--", "true", ":::", "a"]));
    ran.ran().check(0, "");
    running.send(Signal::TERM);
    running.ran().check(0, "");
}

fn an_interpreter_gets_the_variables_of_a_worker() {
    let place = Place::new();
    let says = "echo $1 $2 $GANGLINE_NATS $GANGLINE_NATS_NAMESPACE $GANGLINE_SERVE $GANGLINE_PROCESSES \
                $GANGLINE_DEVICES $PYTHONPATH; [ $GANGLINE_SUPERVISOR = $PPID ] && exit 78";
    let python = python(&place, says);
    let url = "nats://127.0.0.1:1";
    for (kind, namespace) in [("python", None), ("python:mypackage.tasks", Some("mine"))] {
        let mut command = place.gangline(["worker", "--nats", url, "--serve", kind]);
        command.args([
            "--python",
            &python,
            "--devices",
            "cuda:all",
            "--path",
            "lib",
            "--path",
            "/b",
        ]);
        command.env("PYTHONPATH", "/c");
        namespace.iter().for_each(|name| _ = command.env("GANGLINE_NATS_NAMESPACE", name));
        let ran = place.ran(&mut command);
        let (namespace, lib) = (namespace.unwrap_or("gangline-python"), place.path("lib"));
        let lib = lib.display();
        let said = format!("-m gangline._serve {url} {namespace} {kind} 1 cuda:all {lib}:/b:/c\n");
        ran.check(78, &said);
    }
}

fn several_kinds_have_a_process_each() {
    let (place, broker) = (Place::new(), Broker::start());
    let python = python(&place, "if mkdir once; then exit 3; fi; exec sleep 1000");
    let url = broker.url();
    let mut command = place.gangline(["worker", "--nats", &url, "--serve", "python,commands"]);
    command.args(["--python", &python, "--devices", "cpu", "--restart-delay", "10ms"]);
    let mut running = place.start(&mut command);
    let restarts = "the worker for python has ended with status 3; it starts again in 10.0 ms";
    running.wait_for_stderr(restarts);
    let ran = place.start(&mut place.typed(&format!("run --nats {url} -- echo {{}} ::: served")));
    ran.ran().check(0, "served\n");
    running.send(Signal::TERM);
    // The interpreter ends by the signal, and the worker for commands in order.
    running.ran().check(143, "");
    place.check_no_process_is_left();
}

fn wrong_kinds_are_refused() {
    let place = Place::new();
    for (options, part) in [
        (&["--serve", "shell"][..], "write commands, python, or python:MODULE"),
        (&["--serve", "commands,commands"], "--serve has commands twice"),
        (&["--serve", "commands", "--devices", "tpu:0"], "tpu:0"),
        (&["--serve", "commands", "--", "./app"], "--serve"),
        (&["--path", "lib", "--", "./app"], "--serve"),
    ] {
        let mut command = place.gangline(["worker", "--nats", "nats://127.0.0.1:1"]);
        place.ran(command.args(options)).check_said(102, &[part]);
    }
}
