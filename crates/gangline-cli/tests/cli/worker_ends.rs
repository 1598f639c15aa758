//! The end of a warm worker, after its last input.

use rustix::process::Signal;

use crate::support::Place;

/// A worker that answers, and then has work to do: its last argument.
const WORKER: &str = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    case $line in *hang*) touch hanging; sleep 1000 ;; esac
    echo "{\"item\":$item,\"output\":$item}"
done
: > ending.$1
eval "$2"
: > ended.$1
"#;

/// The work at the end waits for a line.
const GATE: &str = "read -r line < gate.$1";

fn place() -> Place {
    let place = Place::new();
    place.write("worker", WORKER);
    for worker in 0..3 {
        let gate = place.path(&format!("gate.{worker}"));
        assert!(std::process::Command::new("mkfifo").arg(gate).status().unwrap().success());
    }
    place
}

fn line(options: &str, end: &str, inputs: &str) -> String {
    format!("--warm {options} -- sh worker {{worker}} '{end}' ::: {inputs}")
}

#[test]
fn a_worker_has_time_to_end() {
    for workers in [1, 2, 3] {
        let place = place();
        let options = format!("-j{workers} --preload --kill-after 0 --end-timeout 4s");
        let mut running = place.start_typed(&line(&options, GATE, "1 2 3"));
        (0..workers).for_each(|worker| place.wait_for(&format!("ending.{worker}")));
        running.wait_for_stderr(
            "waiting for a worker to end after its last input, for which it has 4 s",
        );
        for worker in 0..workers {
            place.write(&format!("gate.{worker}"), "go\n");
        }
        running.ran().check(0, "1\n2\n3\n");
        (0..workers).for_each(|worker| place.wait_for(&format!("ended.{worker}")));
    }
}

#[test]
fn an_end_that_is_cut_off_is_an_error() {
    let ends = [
        "sleep 1000",
        "trap \"\" TERM; sleep 1000; sleep 1000",
        "exec >&- 2>&-; sleep 1000",
        "kill -STOP $$",
    ];
    for end in ends {
        let place = place();
        let options = "-j1 --kill-after 100ms --end-timeout 200ms";
        let ran = place.run_typed(&line(options, end, "1"));
        ran.check(106, "1\n");
        ran.check_said(106, &["the worker of slot 0 has not ended by itself", "--end-timeout"]);
        assert!(!place.path("ended.0").exists());
    }
}

/// A worker that does not need to be told that its input has ended.
#[test]
fn a_worker_that_has_closed_its_input_has_time_to_end() {
    let place = place();
    let worker = r#"
        read -r hello
        echo '{"gangline":1}'
        read -r line
        exec <&-
        echo '{"item":1,"output":1}'
        : > ending.0
        read -r line < gate.0
        : > ended.0
    "#;
    place.write("worker", worker);
    let line = "--warm -j1 --kill-after 0 --end-timeout";
    let mut running = place.start_typed(&format!("{line} 4s -- sh worker ::: 1"));
    place.wait_for("ending.0");
    running.wait_for_stderr("waiting for a worker to end");
    place.write("gate.0", "go\n");
    running.ran().check(0, "1\n");
    place.wait_for("ended.0");
    let ran = place.run_typed(&format!("{line} 100ms -- sh worker ::: 1"));
    ran.check_said(106, &["has not ended by itself"]);
}

#[test]
fn a_signal_ends_a_worker_that_stops_at_its_end() {
    for (signal, status) in [(Signal::INT, 130), (Signal::HUP, 129), (Signal::TERM, 143)] {
        let place = place();
        let options = "-j1 --grace 1h --end-timeout 1h";
        let mut running = place.start_typed(&line(options, "kill -STOP $$", "1"));
        running.wait_for_stderr("has stopped");
        running.send(signal);
        let ran = running.ran();
        ran.check_said(status, &["the worker of slot 0 had stopped, and was ended"]);
        place.check_no_process_is_left();
    }
    let place = place();
    let mut running =
        place.start_typed(&line("-j1 --end-timeout 1h", "read -r go < gate.0; kill -STOP $$", "1"));
    place.wait_for("ending.0");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    place.write("gate.0", "go\n");
    running.ran().check_said(130, &["had stopped, and was ended"]);
}

#[test]
fn failed_jobs_count_before_an_end_that_is_cut_off() {
    let place = place();
    place.write("worker", WORKER.replace(r#"\"output\":$item"#, r#"\"error\":\"no\""#));
    let options = "-j1 --end-timeout 100ms --kill-after 100ms";
    let ran = place.run_typed(&line(options, "sleep 1000", "1 2"));
    ran.check_said(2, &["has not ended by itself"]);
}

#[test]
fn a_run_that_was_halted_waits_for_the_ends() {
    for halt in ["now,success=1", "soon,success=1", "now,done=1"] {
        let place = place();
        let running = place.start_typed(&line(&format!("-j1 --halt {halt}"), GATE, "1 2 3"));
        place.wait_for("ending.0");
        place.write("gate.0", "go\n");
        running.ran().check(0, "1\n");
        place.wait_for("ended.0");
        let options = format!("-j1 --halt {halt} --kill-after 100ms --end-timeout 200ms");
        let ran = place.run_typed(&line(&options, "sleep 1000", "1 2 3"));
        assert_eq!(ran.code, Some(106), "{halt}: {ran:?}");
    }
}

#[test]
fn a_run_that_was_interrupted_waits_for_the_ends() {
    for (signal, said, status) in
        [(Signal::INT, "press Ctrl-C again", 130), (Signal::TERM, "SIGTERM: the running", 143)]
    {
        let place = place();
        let mut running = place.start_typed(&line("-j1", GATE, "1"));
        place.wait_for("ending.0");
        running.send(signal);
        running.wait_for_stderr(said);
        place.write("gate.0", "go\n");
        running.ran().check(status, "1\n");
        place.wait_for("ended.0");
    }
}

#[test]
fn a_second_interrupt_kills_a_worker_that_ends() {
    let place = place();
    let mut running = place.start_typed(&line("-j1", "sleep 1000", "1"));
    place.wait_for("ending.0");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    place.check_no_process_is_left();
}
