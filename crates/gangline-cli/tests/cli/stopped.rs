//! Jobs that stop: of themselves, or since they touch the terminal.

use std::io::{Read, Write};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::{Place, state, wait_until};

/// Jobs that stop themselves by this signal, once.
fn stopping(signal: &str) -> String {
    format!("-j2 --shell -- 'echo $$ > pid.$1; touch $1; kill -{signal} $$; echo on $1' ::: 1 2 3")
}

#[test]
fn a_job_that_stops_itself_is_named() {
    for (signal, said) in [
        ("STOP", "job 1 has stopped (SIGSTOP): `kill -CONT -"),
        ("TSTP", "job 1 has stopped (SIGTSTP): `kill -CONT -"),
        ("TTIN", "job 1 has stopped (SIGTTIN), since it reads from the terminal"),
        ("TTOU", "job 1 has stopped (SIGTTOU), since it changes the terminal"),
    ] {
        let place = Place::new();
        let mut running = place.start_typed(&stopping(signal).replace("-j2", "-j1"));
        running.wait_for_stderr(said);
        running.send(Signal::INT);
        let ran = running.ran();
        assert_eq!(ran.code, Some(130), "{signal}: {ran:?}");
        assert!(ran.stderr.contains("job 1 was ended with the run"), "{signal}: {ran:?}");
        place.check_no_process_is_left();
    }
}

#[test]
fn each_signal_ends_jobs_that_have_stopped() {
    for (signal, status) in [(Signal::INT, 130), (Signal::HUP, 129), (Signal::TERM, 143)] {
        let place = Place::new();
        let mut running = place.start_typed(&format!("--grace 1h {}", stopping("STOP")));
        running.wait_for_stderr("has stopped");
        running.send(signal);
        assert_eq!(running.ran().code, Some(status));
        assert!(!place.path("3").exists());
        place.check_no_process_is_left();
    }
}

/// The second job is in the middle of its work when the signal comes.
#[test]
fn a_job_that_stops_after_the_signal_is_ended_too() {
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        let place = Place::new();
        let job = "touch begun; read x < fifo; kill -STOP $$; echo on";
        place.write("job", job);
        let made = std::process::Command::new("mkfifo").arg(place.path("fifo")).status().unwrap();
        assert!(made.success());
        let list = std::process::Command::new("mkfifo").arg(place.path("list")).status().unwrap();
        assert!(list.success());
        let running = place.start_typed("--grace 1h -j1 --input list -- sh job");
        let mut list = std::fs::File::options().write(true).open(place.path("list")).unwrap();
        list.write_all(b"a\n").unwrap();
        place.wait_for("begun");
        running.send(signal);
        place.write("fifo", "go\n");
        let ran = running.ran();
        assert!(ran.stderr.contains("job 1 was ended with the run"), "{ran:?}");
        place.check_no_process_is_left();
    }
}

#[test]
fn a_job_that_is_continued_ends_by_itself() {
    let place = Place::new();
    let mut running = place.start_typed(&stopping("STOP").replace("1 2 3", "1"));
    running.wait_for_stderr("job 1 has stopped");
    let job = Pid::from_raw(place.read("pid.1").trim().parse().unwrap()).unwrap();
    kill_process_group(job, Signal::CONT).unwrap();
    running.ran().check(0, "on 1\n");
}

/// A job that has gone on is not ended by a later signal.
#[test]
fn a_job_that_was_continued_may_end_after_a_signal() {
    let place = Place::new();
    let job =
        "echo $$ > pid; kill -STOP $$; touch on; until [ -e go ]; do sleep 0.01; done; echo end";
    let mut running = place.start_typed(&format!("-j1 --shell -- '{job}' ::: 1 2"));
    running.wait_for_stderr("job 1 has stopped");
    let job = Pid::from_raw(place.read("pid").trim().parse().unwrap()).unwrap();
    kill_process_group(job, Signal::CONT).unwrap();
    place.wait_for("on");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    place.write("go", "");
    running.ran().check(130, "end\n");
}

#[test]
fn a_job_that_has_stopped_runs_into_its_time_limit() {
    let place = Place::new();
    let ran = place.run_typed(&format!("--timeout 1 {}", stopping("STOP")));
    assert_eq!(ran.code, Some(3), "{ran:?}");
    ran.check_said(3, &["job 2 has stopped (SIGSTOP)", "job 2 was ended: it took longer than"]);
}

#[test]
fn jobs_that_stop_with_all_are_not_named() {
    let place = Place::new();
    let line = "-j1 --shell -- 'touch begun; until [ -e go ]; do sleep 0.01; done' ::: a";
    let running = place.start_typed(line);
    place.wait_for("begun");
    for _ in 0..3 {
        running.send(Signal::TSTP);
        wait_until("it has stopped", || state(running.pid()) == Some('T'));
        running.send(Signal::CONT);
        let engine = running.engine();
        let go_on = |pid| state(pid).is_some_and(|state| "SRD".contains(state));
        wait_until("all go on", || go_on(running.pid()) && go_on(engine));
    }
    place.write("go", "");
    let ran = running.ran();
    ran.check(0, "");
    assert_eq!(ran.stderr, "");
}

#[test]
fn a_worker_that_has_stopped_is_named_and_ended() {
    let place = Place::new();
    let ready = "read -r hello; echo '{\"gangline\":1}'; read -r item; kill -STOP $$; cat";
    for (worker, status) in [(ready, 130), ("kill -STOP $$; cat", 130)] {
        place.write("worker", worker);
        let mut running = place.start_typed("-j1 --warm -- sh worker ::: a b");
        running.wait_for_stderr("the worker of slot 0 has stopped (SIGSTOP)");
        running.send(Signal::INT);
        assert_eq!(running.ran().code, Some(status));
        place.check_no_process_is_left();
    }
}

/// Runs the job on a terminal of its own, with a pipe as its keyboard.
#[track_caller]
fn on_a_terminal(job: &str, said: &str) {
    let place = Place::new();
    place.write("job", job);
    let program = env!("CARGO_BIN_EXE_gangline");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("{program} run -- sh job ::: a"), "typescript"]);
    script.current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut shown = String::new();
    let mut buffer = [0; 4_096];
    let mut has_pressed = false;
    loop {
        match screen.read(&mut buffer).unwrap() {
            0 => break,
            read => shown += &String::from_utf8_lossy(&buffer[..read]),
        }
        if shown.contains(said) && !has_pressed {
            keys.write_all(b"\x03").unwrap();
            has_pressed = true;
        }
    }
    assert!(has_pressed, "{shown}");
    assert_eq!(script.wait().unwrap().code(), Some(130), "{shown}");
    place.check_no_process_is_left();
}

#[test]
fn a_job_that_touches_the_terminal_is_named_and_ended_by_a_key() {
    on_a_terminal("read x < /dev/tty", "job 1 has stopped (SIGTTIN)");
    on_a_terminal("stty -echo < /dev/tty", "job 1 has stopped (SIGTTOU)");
    on_a_terminal("cat /dev/tty | cat; true", "job 1 has stopped (SIGTTIN)");
}

/// A container that is paused, or SIGSTOP to all: no key was pressed that the program could see.
#[test]
fn time_in_which_all_was_stopped_from_outside_does_not_count() {
    let worker = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    touch begun; until test -e go; do sleep 0.05; done
    item=${line#*\"item\":}; echo "{\"item\":${item%%,*},\"output\":\"on\"}"
done
"#;
    let job = "touch begun; until test -e go; do sleep 0.05; done; echo on";
    for line in ["-- sh job ::: a", "--warm -- sh worker ::: a"] {
        let place = Place::new();
        place.write("job", job);
        place.write("worker", worker);
        let running = place.start_typed(&format!("-j1 --timeout 5s {line}"));
        place.wait_for("begun");
        let all = place.living();
        all.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
        // What is tested is that time goes by.
        std::thread::sleep(Duration::from_secs(6));
        place.write("go", "");
        for pid in all {
            // A child of the job may have ended since.
            let _ = kill_process(pid, Signal::CONT);
        }
        let ran = running.ran();
        ran.check(0, "on\n");
        assert_eq!(ran.stderr, "", "{line}");
    }
}
