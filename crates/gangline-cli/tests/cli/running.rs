//! When jobs start, where they run, and how they are ended.

use crate::output::WAIT;
use crate::support::{Place, wait_until};

#[test]
fn a_number_in_a_file_may_change_during_the_run() {
    let place = Place::new();
    place.write("jobs", "1\n");
    place.write("wait", WAIT);
    let script = "touch began$1; sh wait go$1; echo $1";
    let running = place.start_typed(&format!("-j jobs --shell -- '{script}' ::: 1 2 3 4"));
    place.wait_for("began1");
    assert!(!place.path("began2").exists(), "one job at once");
    place.write("jobs", "3\n");
    place.wait_for("began2");
    place.wait_for("began3");
    place.write("jobs", "1\n");
    for job in ["go1", "go2"] {
        place.write(job, "");
    }
    wait_until("one is left", || place.living().len() <= 4);
    assert!(!place.path("began4").exists(), "the third runs, and one is allowed");
    place.write("go4", "");
    place.write("go3", "");
    running.ran().check(0, "1\n2\n3\n4\n");
}

#[test]
fn a_file_without_a_number_is_refused() {
    let place = Place::new();
    place.write("jobs", "many");
    place.run_typed("-j jobs -- touch ::: started").check_said(102, &["the file jobs must have"]);
    place.run_typed("-j missing -- touch ::: started").check_said(102, &["the path of a file"]);
    assert!(!place.path("started").exists());
}

#[test]
fn starts_have_a_delay_between_them() {
    let place = Place::new();
    let line = "-j4 --delay 1 --joblog log -- true ::: 1 2 3";
    place.run_typed(line).check(0, "");
    let log = place.read("log");
    let mut starts: Vec<f64> =
        log.lines().skip(1).map(|line| line.split('\t').nth(2).unwrap().parse().unwrap()).collect();
    starts.sort_by(f64::total_cmp);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] > 0.5), "{log}");
}

#[test]
fn a_wait_for_memory_says_what_it_waits_for_and_can_be_ended() {
    let place = Place::new();
    let mut running = place.start_typed("--memfree 1000000G -- touch ::: started");
    running.wait_for_stderr("--memfree asks for 1024000000 MiB");
    running.send(rustix::process::Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    assert!(!place.path("started").exists());
    place.run_typed("--memfree 1k -- echo ::: a").check(0, "a\n");
}

#[test]
fn a_wait_for_the_load_says_what_it_waits_for() {
    let place = Place::new();
    place.write("wait", WAIT);
    // A process that runs all the time.
    let busy = place.start(&mut place.gangline([
        "run",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
        ":::",
        "x",
    ]));
    let mut running = place.start_typed("--load 0.01 -- echo ::: a");
    running.wait_for_stderr("processes run, and --load allows fewer than 0.01");
    drop((busy, running));
    place.run_typed("--load 1000% -- echo ::: a").check(0, "a\n");
    place.run_typed("--load much -- echo ::: a").check_said(102, &["80%"]);
}

#[test]
fn jobs_are_as_nice_as_asked() {
    let place = Place::new();
    place.run_typed("--nice 7 --shell -- nice ::: a").check(0, "7\n");
    let ran = place.run_typed("--nice 20 --shell -- nice ::: a");
    ran.check_said(102, &["a number from 0 to 19"]);
}

#[test]
fn jobs_run_in_a_directory() {
    let place = Place::new();
    let line = "-j1 --workdir 'new/{}' --shell -- 'touch here; basename $PWD' ::: a b";
    place.run_typed(line).check(0, "a\nb\n");
    assert!(place.path("new/a/here").exists() && place.path("new/b/here").exists());
    place.write("file", "");
    let ran = place.run_typed("--wd file/x -- true ::: a");
    ran.check_said(1, &["job 1 could not be started: its directory file/x cannot be made"]);
    place.run_typed("--workdir '{foo}' -- true ::: a").check_said(102, &["{foo}"]);
}

#[test]
fn a_job_is_ended_by_the_signals_of_the_sequence() {
    let place = Place::new();
    let script = "trap \"echo int >> got\" INT; trap \"echo term >> got\" TERM; touch on; while :; do sleep .05; done";
    let line = format!("--timeout 2 --termseq INT,1000,TERM,1000,KILL --shell -- '{script}' ::: x");
    place.run_typed(&line).check_said(1, &["it took longer than 2 s"]);
    assert_eq!(place.read("got"), "int\nterm\n");
    let ran = place.run_typed("--termseq TERM,x -- true ::: a");
    ran.check_said(102, &["TERM,200,TERM,100,KILL"]);
}

#[track_caller]
fn halts(options: &str, inputs: &str, status: i32, printed: &str) {
    let line = format!("-j1 {options} --shell -- 'printf %s $1; exit $1' ::: {inputs}");
    Place::new().run_typed(&line).check(status, printed);
}

#[test]
fn successes_and_ends_may_end_a_run() {
    halts("--halt now,success=1", "1 1 0 0", 0, "110");
    halts("--halt soon,success=2", "0 1 0 0", 0, "010");
    halts("--halt soon,success=3", "0 1 0", 1, "010");
    halts("--halt soon,done=2", "1 0 0 0", 1, "10");
    halts("--halt now,done=50%", "0 0 0 0 0 0 0 0", 0, "0000");
    halts("--halt now,success=50%", "1 0 0 0", 0, "100");
    halts("--halt=-1", "1 0 0", 0, "10");
    halts("--halt 2", "0 1 0", 1, "01");
}

#[test]
fn a_share_of_a_file_or_pipe_is_one_of_all_jobs() {
    let place = Place::new();
    let line = "-j1 --halt soon,fail=50% --shell -- 'printf %s $1; exit $1'";
    let ran = place.run_typed_on(line, "1\n1\n1\n1\n0\n0\n0\n0\n");
    ran.check(4, "1111");
}

#[test]
fn a_run_that_left_nothing_out_does_not_say_so() {
    let ran = Place::new().run_typed("-j1 --halt soon,fail=1 --shell -- 'exit $1' ::: 0 1");
    assert!(ran.code == Some(1) && !ran.stderr.contains("had not started"), "{ran:?}");
    let ran = Place::new().run_typed("-j1 --halt soon,fail=1 --shell -- 'exit $1' ::: 1 0");
    ran.check_said(1, &["jobs that had not started were not run"]);
}

#[test]
fn the_youngest_job_makes_room_when_memory_gets_scarce() {
    let place = Place::new();
    let available = |kib: u32| place.write("meminfo", format!("MemAvailable: {kib} kB\n"));
    available(8_192);
    let script = "echo $1 >> started; until test -e go; do sleep 0.05; done; echo $1";
    let options = "-j3 --delay 1 --memfree 8M --meminfo meminfo --retries 0 --joblog log";
    let mut running = place.start_typed(&format!("{options} --shell -- '{script}' ::: a b"));
    let has_started = |lines: usize| {
        let started = std::fs::read_to_string(place.path("started")).unwrap_or_default();
        started.lines().count() == lines
    };
    wait_until("both have started", || has_started(2));
    available(4_095);
    let ended = "job 2 was ended: memory is scarce, and it runs again later";
    let said = running.read_stderr_until(ended);
    // The one that is left goes on, and the other waits. Both lines may have come at once.
    if !said.contains("waiting to start jobs") {
        running.wait_for_stderr("waiting to start jobs");
    }
    available(8_192);
    wait_until("the job has started again", || has_started(3));
    place.write("go", "");
    running.ran().check(0, "a\nb\n");
    assert_eq!(place.read("started").matches('b').count(), 2);
    assert_eq!(place.read("log").lines().count(), 3);
}
