//! Warm workers that do not get ready or end again and again: how often they are started, and what is said.

use crate::support::Place;
use crate::warm::place;

/// Workers that never get ready, on several slots.
#[track_caller]
fn is_given_up(slots: usize) {
    for worker in [
        "sleep 1000",
        "cat > /dev/null",
        "echo hello; sleep 1000",
        "exit 1",
        "exec >&-; sleep 1000",
        "read -r x; echo \"$x\"; echo {}",
    ] {
        let place = Place::new();
        place.write("worker", worker);
        let options = format!("-j{slots} --warm --start-timeout 200ms --max-restarts 1");
        let ran = place.run_typed(&format!("{options} -- sh worker ::: a b c d e f"));
        assert_eq!((ran.code, &*ran.stdout), (Some(103), ""), "{worker}: {ran:?}");
        ran.check_said(103, &["no worker is left"]);
    }
}

#[test]
fn a_program_that_is_not_a_worker_is_announced() {
    let place = Place::new();
    place.write("worker", "cat > /dev/null");
    let options = "-j2 --warm --start-timeout 400ms --max-restarts 1";
    let ran = place.run_typed(&format!("{options} -- sh worker ::: a b c"));
    let told = "still no worker after 100 ms: with --warm a command must answer its first line with {\"gangline\":1}";
    ran.check_said(103, &[told, "was not ready within 400 ms"]);
    assert_eq!(ran.stderr.matches("still no worker").count(), 1, "{ran:?}");
}

#[test]
fn a_worker_that_never_gets_ready_is_given_up() {
    is_given_up(1);
}

#[test]
fn workers_that_never_get_ready_are_given_up() {
    is_given_up(2);
}

#[test]
fn a_worker_that_is_not_there_is_given_up() {
    for line in [
        "-j1 --warm --max-restarts 1 -- ./missing ::: a b c",
        "-j2 --warm --retries 2 -- no-such-program ::: a b c d e",
        "-j3 --warm --preload -- ./missing ::: a",
        "-j2 --warm --max-restarts 0 -- PATH=/missing env ::: a b",
    ] {
        let ran = Place::new().run_typed(line);
        ran.check(103, "");
        let lines = [
            "could not be started: No such file",
            "1 of 1 jobs",
            "not exist, so",
            "no worker is left",
        ];
        ran.check_said(103, &lines);
        assert_eq!(ran.stderr.lines().count(), lines.len(), "{ran:?}");
    }
}

#[test]
fn a_worker_of_another_version_is_given_up() {
    let place = Place::new();
    place.write("worker", "read -r x; echo '{\"gangline\":3}'; cat");
    let ran = place.run_typed("-j1 --warm --max-restarts 0 -- sh worker ::: a b");
    ran.check_said(103, &["speaks another version of the protocol than 1", "no worker is left"]);
}

#[test]
fn a_worker_is_started_anew_so_often() {
    let place = Place::new();
    place.write(
        "worker",
        "echo start >> starts; read -r x; echo '{\"gangline\":1}'; read -r x; exit 1",
    );
    let ran = place.run_typed("-j1 --warm --max-restarts 2 -- sh worker ::: a b c d e f g h");
    ran.check_said(103, &["slot 0 is given up", "exited with 1 before it answered"]);
    // Three for each item that may be at fault, of which there may be two, and one more.
    assert_eq!(place.read("starts").lines().count(), 7);
}

/// As a `load` that raises: its traceback is the same at each start.
#[test]
fn what_each_start_says_is_shown_once() {
    let place = Place::new();
    let padding = "x".repeat(300);
    place.write("worker", format!("echo {padding} >&2; echo 'no model file' >&2; exit 1"));
    let ran = place.run_typed("-j1 --warm --retry-delay 0s -- sh worker ::: a");
    ran.check_said(
        103,
        &["slot 0 is given up: job 1", "it said: no model file", "no worker is left"],
    );
    let lines = ran.stderr.lines().filter(|line| *line == "no model file").count();
    assert_eq!(lines, 1, "{ran:?}");
}

/// All slots but the last are broken in this way.
#[track_caller]
fn one_works(slots: usize, broken: &str) {
    let place = place();
    let good = slots - 1;
    place.write("some", format!("if [ $1 = {good} ]; then . ./worker; else {broken}; fi"));
    let options = format!("-j{slots} --warm --start-timeout 1s");
    let ran = place.run_typed(&format!("{options} -- sh some {{worker}} ::: 1 2 3 4 5 6 7 8 9"));
    ran.check(0, "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
}

#[test]
fn one_good_slot_does_the_work_of_several() {
    one_works(2, "exit 1");
    one_works(2, "sleep 1000");
    one_works(2, "echo no JSON; cat");
    one_works(2, "read -r x; echo '{\"gangline\":1}'; exit 1");
    one_works(3, "exit 1");
}

#[test]
fn one_good_slot_does_the_work_of_many() {
    one_works(7, "exit 1");
}

/// Scripts that note each start, and are no workers.
#[test]
fn what_is_no_worker_is_started_once_in_each_slot_and_named_once() {
    for (worker, said) in [
        ("cat", "answered the first line with {\"gangline\":2,"),
        ("echo hello; cat > /dev/null", "printed a line that is not of the protocol"),
        ("echo '{\"gangline\":9}'; cat > /dev/null", "speaks another version of the protocol"),
        ("printf '\\377\\n'; cat > /dev/null", "printed a line that is not of the protocol"),
    ] {
        for options in ["-j1", "-j1 --preload", "-j3", "-j3 --gpu-list 0,1,2", "-j2 --retries 3"] {
            let place = Place::new();
            place.write("worker", format!("echo start >> starts; {worker}"));
            let options = options.replace("-j3 --gpu-list", "--gpu-list");
            let ran = place.run_typed(&format!("{options} --warm -- sh worker ::: a b c d e"));
            ran.check_said(
                103,
                &["is given up: ", said, "no worker is left that could be started"],
            );
            assert_eq!(ran.stderr.matches(said).count(), 1, "{options}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), 2, "{options}: {ran:?}");
            assert!(place.read("starts").lines().count() <= 3, "{options}: {ran:?}");
        }
    }
}

#[test]
fn what_cannot_be_executed_is_started_once() {
    let place = Place::new();
    place.write("worker", "#!/bin/sh\n");
    let ran = place.run_typed("-j2 --warm -- ./worker ::: a b c");
    ran.check_said(103, &["could not be started: Permission denied", "no worker is left"]);
    assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}");
}

#[test]
fn a_start_that_fails_twice_with_the_same_message_is_not_repeated() {
    for (options, most) in [("-j1", 2), ("-j2", 4), ("--gpu-list 0,1", 4)] {
        let place = Place::new();
        place.write("worker", "echo start >> starts; echo 'no model file' >&2; exit 2");
        let ran = place.run_typed(&format!("{options} --warm -- sh worker ::: a b c"));
        ran.check_said(103, &["exited with 2 before it answered", "no worker is left"]);
        let said = ran.stderr.lines().filter(|line| *line == "no model file").count();
        assert_eq!(said, 1, "{options}: {ran:?}");
        assert_eq!(ran.stderr.matches("exited with 2 before").count(), 1, "{options}: {ran:?}");
        assert!(place.read("starts").lines().count() <= most, "{options}: {ran:?}");
    }
}

/// A start may fail for reasons that pass, such as a GPU that another program still uses.
#[test]
fn a_start_that_fails_in_another_way_is_repeated() {
    let place = Place::new();
    let fails = "n=$(cat n); echo $((n + 1)) > n; test $n -ge 3 || { echo failed $n >&2; exit 1; }";
    place.write("n", "0");
    place.write("worker", format!("{fails}; . ./good"));
    place.write("good", crate::warm::WORKER);
    let ran = place.run_typed("-j1 --warm --retry-delay 0s -- sh worker w ::: 1 2");
    ran.check(0, "1\n2\n");
}
