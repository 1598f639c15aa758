//! What a parent leaves to the program: ignored and blocked signals.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::support::{Place, Running, wait_until};

/// Starts the program through `env` with an option that changes what it inherits.
fn start_under(place: &Place, option: &str, line: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_gangline");
    let mut command = Command::new("env");
    command.arg(option).arg(program).arg("run");
    command.args(shlex::split(line).unwrap());
    command.current_dir(place.directory()).env("TMPDIR", place.path("tmp")).stdin(Stdio::null());
    place.start(&mut command)
}

/// Jobs that wait for the file `go`.
const WAITING: &str = "-j1 --shell -- 'touch begun; until [ -e go ]; do sleep 0.01; done' ::: a b";

/// Answers one item with its number.
const WORKER: &str = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    echo "{\"item\":$item,\"output\":$item}"
done
"#;

#[test]
fn ignored_ends_of_children_are_seen() {
    let place = Place::new();
    start_under(&place, "--ignore-signal=CHLD", "-- echo ::: a b").ran().check(0, "a\nb\n");
}

#[test]
fn blocked_ends_of_children_are_seen() {
    for signals in ["CHLD", "CHLD,TERM,INT,HUP", "USR1,VTALRM,PROF,CONT,CHLD"] {
        let option = format!("--block-signal={signals}");
        let place = Place::new();
        place.write("worker", WORKER);
        start_under(&place, &option, "-- echo ::: a b").ran().check(0, "a\nb\n");
        let warm = "-j2 --warm -- sh worker ::: a b";
        start_under(&place, &option, warm).ran().check(0, "1\n2\n");
        place.check_no_process_is_left();
    }
}

#[test]
fn blocked_signals_are_acted_on() {
    let signals =
        [(Signal::TERM, "TERM", 143), (Signal::HUP, "HUP", 129), (Signal::QUIT, "QUIT", 131)];
    for (signal, name, status) in signals {
        let place = Place::new();
        let option = format!("--block-signal={name}");
        let line = format!("--grace 0 {WAITING}");
        let running = start_under(&place, &option, &line);
        place.wait_for("begun");
        running.send(signal);
        if signal == Signal::HUP {
            place.write("go", "");
        }
        assert_eq!(running.ran().code, Some(status), "{name}");
        place.check_no_process_is_left();
    }
}

#[test]
fn a_blocked_interrupt_is_acted_on() {
    let place = Place::new();
    let mut running = start_under(&place, "--block-signal=INT,TSTP", WAITING);
    place.wait_for("begun");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    place.check_no_process_is_left();
}

#[test]
fn a_blocked_stop_is_acted_on() {
    let place = Place::new();
    let running = start_under(&place, "--block-signal", WAITING);
    place.wait_for("begun");
    running.send(Signal::TSTP);
    wait_until("it has stopped", || crate::support::state(running.pid()) == Some('T'));
    running.send(Signal::CONT);
    place.write("go", "");
    running.ran().check(0, "");
}

#[test]
fn jobs_have_no_blocked_signals() {
    let place = Place::new();
    for signals in ["CHLD", "TERM,INT", "USR2,WINCH,ALRM"] {
        let line = "-- sh -c 'grep SigBlk: /proc/$$/status' ::: a";
        let ran = start_under(&place, &format!("--block-signal={signals}"), line).ran();
        ran.check(0, "SigBlk:\t0000000000000000\n");
    }
}

#[test]
fn an_interrupt_counts_whatever_else_is_ignored() {
    let place = Place::new();
    let mut running = start_under(&place, "--ignore-signal=USR1,USR2,VTALRM,PROF", WAITING);
    place.wait_for("begun");
    running.send(Signal::INT);
    running.wait_for_stderr("Ctrl-C");
    place.write("go", "");
    assert_eq!(running.ran().code, Some(130));
}
