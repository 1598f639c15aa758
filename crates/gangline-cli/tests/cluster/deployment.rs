//! The files in docs/deploy that start `gangline worker`, with programs in place of those that reach other machines.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{squared, squares, tests};
use crate::support::{Place, Running};

const SLURM: &str = include_str!("../../../../docs/deploy/slurm.sh");
const SSH: &str = include_str!("../../../../docs/deploy/ssh.sh");

tests![
    the_batch_script_starts_a_worker_that_a_signal_ends,
    workers_behind_ssh_end_with_their_connections,
    the_scripts_are_of_the_shell,
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
    let place = prepared(&broker, "srun", "shift; exec \"$@\"");
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
