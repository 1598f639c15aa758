//! Workers that are started, started again, and ended by `gangline worker`.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::broker::Broker;
use crate::chores::{Chore, squared, squares, text_in};
use crate::suite::tests;
use crate::support::{Place, wait_until};

tests![
    a_worker_finishes_what_it_has_begun,
    a_second_signal_kills_the_worker,
    a_crashed_worker_is_started_again,
    the_pause_before_a_restart_grows,
    a_worker_that_waits_for_its_restart_can_be_ended,
    a_wrong_setup_is_not_started_again,
    a_broker_that_is_not_there_yet_is_no_wrong_setup,
    a_program_that_cannot_be_started_has_a_status_of_its_own,
    without_a_broker_there_is_nothing_to_start,
    a_worker_ends_with_its_supervisor,
    what_a_crashed_worker_leaves_is_killed,
    a_worker_finds_its_variables,
];

/// `gangline worker` for this program.
fn worker(place: &Place, broker: &Broker, options: &[&str]) -> Command {
    let url = broker.url();
    let mut command = place.gangline(["worker", "--nats", &url, "--devices", "cpu"]);
    command.args(options).arg("--").arg(std::env::current_exe().unwrap());
    command
}

/// `gangline worker` for a script.
fn script(place: &Place, options: &[&str], script: &str) -> Command {
    let mut command = place.gangline(["worker", "--nats", "nats://127.0.0.1:1"]);
    command.args(options).args(["--", "sh", "-c", script]);
    command
}

fn a_worker_finishes_what_it_has_begun() {
    let (place, broker) = (Place::new(), Broker::start());
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (begun, go) = (place.path("begun"), place.path("go"));
        let running = place.start(&mut worker(&place, &broker, &[]));
        let mut pool = broker.builder().build().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                text_in(&begun);
                // As a terminal does.
                running.send_to_group(signal);
                // It takes no more items: the one behind this needs another worker.
                std::thread::sleep(Duration::from_millis(50));
                std::fs::write(&go, "").unwrap();
                running.ran().check(0, "");
            });
            let outputs = pool.run([Chore::Await(begun.clone(), go.clone())]).unwrap();
            assert_eq!(outputs, [text_in(&begun)], "no attempt was lost, since there was but one");
        });
        place.check_no_process_is_left();
        std::fs::remove_file(begun).unwrap();
        std::fs::remove_file(go).unwrap();
    }
}

fn a_second_signal_kills_the_worker() {
    let (place, broker) = (Place::new(), Broker::start());
    let begun = place.path("begun");
    let running = place.start(&mut worker(&place, &broker, &[]));
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&begun);
            running.send(Signal::TERM);
            running.send(Signal::INT);
            running.ran().check(137, "");
            place.check_no_process_is_left();
        });
        pool.run([Chore::Await(begun.clone(), place.path("never"))]).unwrap_err();
    });
}

fn a_crashed_worker_is_started_again() {
    let (place, broker) = (Place::new(), Broker::start());
    let mut running = place.start(&mut worker(&place, &broker, &["--restart-delay", "10ms"]));
    let mut pool = broker.builder().retries(1).build().unwrap();
    let mut items = squares(0..20);
    items.push(Chore::KillOnce(place.path("killed")));
    items.extend(squares(20..40));
    let outputs = pool.run(items).unwrap();
    assert_ne!(outputs[20], place.read("killed"), "it was done by the next one");
    assert_eq!(outputs[21..], squared(20..40));
    running.wait_for_stderr("was killed by signal 9; it starts again in 10.0 ms\n");
    running.send(Signal::TERM);
    running.ran().check(0, "");
    place.check_no_process_is_left();
}

fn the_pause_before_a_restart_grows() {
    let place = Place::new();
    let mut running =
        place.start(&mut script(&place, &["--restart-delay", "20ms"], "echo >> starts; exit 3"));
    let said = ["20.0 ms", "40.0 ms", "80.0 ms", "160 ms"].map(|pause| {
        format!("gangline: the worker has ended with status 3; it starts again in {pause}\n")
    });
    running.wait_for_stderr(&said.concat());
    assert!(place.read("starts").lines().count() >= 4);
    running.send(Signal::TERM);
    running.ran().check(0, "");
}

fn a_worker_that_waits_for_its_restart_can_be_ended() {
    let place = Place::new();
    let mut running = place.start(&mut script(&place, &["--restart-delay", "1m"], "exit 3"));
    running.wait_for_stderr("it starts again in 1 min 00 s");
    running.send(Signal::INT);
    running.ran().check(0, "");
}

fn a_wrong_setup_is_not_started_again() {
    let place = Place::new();
    let broker = Broker::with_options(&["--user", "a", "--pass", "b"]);
    let wrong_password = broker.url().replace("nats://", "nats://a:guessed@");
    let right_password = broker.url().replace("nats://", "nats://a:b@");
    let cases = [
        (&*wrong_password, "cpu", "authorization violation"),
        (&right_password, "cpu:x", "cpu:x"),
        ("nats://192.0.2.1:4222", "cpu", "insecure()"),
    ];
    for (url, devices, reason) in cases {
        let mut command = place.gangline(["worker", "--nats", url, "--devices", devices, "--"]);
        command.arg(std::env::current_exe().unwrap());
        let ran = place.ran(&mut command);
        ran.check_said(78, &[reason, "its setup is wrong, so the worker is not started again"]);
        assert!(!ran.stderr.contains("guessed"), "{ran:?}");
    }
    let mut command = place.gangline(["worker", "--nats", &right_password, "--"]);
    command.arg(std::env::current_exe().unwrap());
    command.env("GANGLINE_NATS_CREDENTIALS", place.path("missing.creds"));
    place.ran(&mut command).check_said(78, &["its setup is wrong"]);
}

fn a_broker_that_is_not_there_yet_is_no_wrong_setup() {
    let (place, mut broker) = (Place::new(), Broker::start());
    broker.kill();
    let mut running = place.start(&mut worker(&place, &broker, &["--restart-delay", "10ms"]));
    running.wait_for_stderr("has ended with status 1; it starts again in 10.0 ms");
    broker.restart();
    let mut pool = broker.builder().build().unwrap();
    assert_eq!(pool.run(squares(0..5)).unwrap(), squared(0..5));
    running.send(Signal::TERM);
    running.ran().check(0, "");
}

fn a_program_that_cannot_be_started_has_a_status_of_its_own() {
    let place = Place::new();
    place.write("no-program", "");
    for (program, status) in [("./missing", 127), ("./no-program", 126)] {
        let mut command = place.gangline(["worker", "--nats", "nats://127.0.0.1:1", "--", program]);
        place.ran(&mut command).check_said(status, &[&format!("{program} cannot be started: ")]);
    }
}

fn without_a_broker_there_is_nothing_to_start() {
    let place = Place::new();
    let mut command = place.gangline(["worker", "--", "true"]);
    place.ran(&mut command).check_said(102, &["--nats nats://HOST:4222", "GANGLINE_NATS"]);
    let mut command = place.gangline(["workers"]);
    place.ran(&mut command).check_said(102, &["GANGLINE_NATS"]);
}

fn a_worker_ends_with_its_supervisor() {
    let (place, broker) = (Place::new(), Broker::start());
    let (begun, go) = (place.path("begun"), place.path("go"));
    let running = place.start(&mut worker(&place, &broker, &[]));
    let mut pool = broker.builder().build().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            text_in(&begun);
            running.send(Signal::KILL);
            // Its output is open for as long as the worker lives.
            std::fs::write(&go, "").unwrap();
            assert_eq!(running.ran().signal, Some(9));
            place.check_no_process_is_left();
        });
        pool.run([Chore::Await(begun.clone(), go.clone())]).unwrap();
    });
}

fn what_a_crashed_worker_leaves_is_killed() {
    let place = Place::new();
    let leaves = "sleep 1000 & setsid sleep 1000 & exit 3";
    let mut running = place.start(&mut script(&place, &["--restart-delay", "1m"], leaves));
    running.wait_for_stderr("has ended with status 3");
    wait_until("only the supervisor is left", || place.living().len() == 1);
    running.send(Signal::TERM);
    running.ran().check(0, "");
}

fn a_worker_finds_its_variables() {
    let place = Place::new();
    let says = "echo $GANGLINE_NATS $GANGLINE_DEVICES $GANGLINE_PROCESSES; exit 78";
    let options = ["--devices", "cuda:0,cpu*2", "--processes"];
    place.ran(&mut script(&place, &options, says)).check(78, "nats://127.0.0.1:1 cuda:0,cpu*2 1\n");
    let mut command = script(&place, &[], says);
    command.env("GANGLINE_DEVICES", "cpu");
    place.ran(&mut command).check(78, "nats://127.0.0.1:1 cpu\n");
}
