//! Limits of the shell, closed and full outputs, and stops: a clear status, and no output lost without a word.

use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::support::{Place, Ran, state, wait_until};

/// Runs a line of `bash` in which `gangline` is the program.
#[track_caller]
fn shell(place: &Place, line: &str) -> Ran {
    let mut command = Command::new("bash");
    let line = line.replace("gangline", env!("CARGO_BIN_EXE_gangline"));
    command.args(["-c", &line]).current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    place.ran(command.stdin(std::process::Stdio::null()))
}

#[test]
fn outputs_to_a_closed_standard_output_are_not_lost_in_silence() {
    let place = Place::new();
    for line in
        ["gangline run -- echo ::: a", "gangline run --dry-run -- echo ::: a", "gangline devices"]
    {
        let ran = shell(&place, &format!("{line} >&-"));
        ran.check_said(106, &["standard output is closed"]);
    }
    shell(&place, "gangline run -- touch ::: started >&-");
    assert!(!place.path("started").exists());
    shell(&place, "gangline run -- echo ::: a > /dev/null").check(0, "");
    // A caller that wants no output opens it for reading too.
    shell(&place, "gangline run -- echo ::: a 1<> /dev/null").check(0, "");
    shell(&place, "gangline run -- echo ::: a 2>&-").check(0, "a\n");
    shell(&place, "gangline run -- echo ::: a <&-").check(0, "a\n");
}

#[test]
fn inputs_from_a_closed_standard_input_are_an_error() {
    let place = Place::new();
    for line in [
        "gangline run -- touch started",
        "gangline run --dry-run -- touch started",
        "gangline run -- touch started :::: -",
        "gangline run -a - -- touch started ::: a",
        "gangline run --csv - -- touch started",
        "gangline run -a /dev/stdin -- touch started",
        "gangline run --csv /proc/self/fd/0 -- touch started",
        "gangline run -- touch started :::: /dev/fd/0",
    ] {
        shell(&place, &format!("{line} <&-")).check_said(104, &["standard input is closed"]);
    }
    assert!(!place.path("started").exists());
    shell(&place, "gangline run -- touch started").check(0, "");
}

#[test]
fn outputs_that_cannot_be_kept_end_the_run() {
    let place = Place::new();
    let job = "sh -c 'yes $1 | head -c 100000; touch ended$1' sh";
    for (before, said) in [
        ("ulimit -f 8", "File too large"),
        ("export TMPDIR=/missing", "kept in /missing: No such file"),
        ("export TMPDIR=/proc/self/status", "kept in /proc/self/status: Not a directory"),
    ] {
        for options in ["", "--no-keep-order", "--line-buffer --results out"] {
            let line = format!("{before}; gangline run -j1 --retries 3 {options} -- {job} ::: a b");
            let ran = shell(&place, &line);
            ran.check_said(106, &["the output of job 1 cannot be kept in", said]);
            assert!(!ran.stderr.contains("is retried"), "{ran:?}");
            assert!(!place.path("endedb").exists(), "no further job was started");
        }
    }
}

#[test]
fn a_low_limit_on_open_files_is_no_defect() {
    let place = Place::new();
    for limit in [8, 16, 24, 40, 63] {
        let ran = shell(&place, &format!("ulimit -n {limit}; gangline run -- echo ::: a"));
        ran.check_said(102, &["needs 64 open files", &format!("the limit is {limit}")]);
    }
    let ran = shell(&place, "ulimit -n 100; gangline run -j9 -- echo ::: a");
    ran.check_said(102, &["9 jobs at once need 208 open files, and the limit is 100"]);
    shell(&place, "ulimit -n 100; gangline run -j2 -- echo ::: a").check(0, "a\n");
}

#[test]
fn a_log_beyond_the_limit_on_files_ends_the_run_with_a_message() {
    let place = Place::new();
    let ran = shell(
        &place,
        "ulimit -f 8; seq 500 | gangline run -j2 --joblog log -- echo xxxxxxxxxxxxxxxxxxxxxxxxxx",
    );
    ran.check_said(106, &["the log of jobs cannot be written", "File too large"]);
}

#[test]
fn a_journal_beyond_the_limit_on_files_ends_the_run_with_a_message() {
    let place = Place::new();
    let ran = shell(&place, "ulimit -f 8; seq 4000 | gangline run -j2 --journal j -- true");
    ran.check_said(105, &["File too large"]);
}

#[test]
fn a_job_has_the_signal_of_a_large_file_again() {
    let place = Place::new();
    let ran = shell(&place, "ulimit -f 8; gangline run -- sh -c 'yes > big' ::: x");
    ran.check_said(1, &["File size limit exceeded", "job 1 exited with 153"]);
}

#[test]
fn a_stop_at_any_moment_is_a_pause() {
    for millis in 0..24 {
        let place = Place::new();
        let running = place.start_typed("-j2 --shell -- 'sleep 0.02; echo $1' ::: 1 2 3");
        thread::sleep(Duration::from_millis(millis));
        running.send(Signal::TSTP);
        wait_until("it has stopped or ended", || {
            matches!(state(running.pid()), Some('T' | 'Z') | None)
        });
        running.send(Signal::CONT);
        running.ran().check(0, "1\n2\n3\n");
        place.check_no_process_is_left();
    }
}

/// The supervisor waits for the process with the jobs, which cannot stop as it is stopped already.
#[test]
fn a_continue_during_a_stop_is_not_lost() {
    for millis in 0..12 {
        let place = Place::new();
        let running = place.start_typed("-j2 --shell -- 'sleep 0.1; echo $1' ::: 1 2 3");
        running.engine();
        running.send(Signal::TSTP);
        thread::sleep(Duration::from_micros(100 * millis));
        running.send(Signal::CONT);
        // Of a stop and a continue the kernel keeps the later one. If the program stopped itself after the continue, a
        // shell sees it stopped and continues it. Otherwise it goes on, and must not wait for its stopped jobs.
        wait_until("it has stopped or ended", || {
            matches!(state(running.pid()), Some('T' | 'Z') | None)
        });
        running.send(Signal::CONT);
        running.ran().check(0, "1\n2\n3\n");
        place.check_no_process_is_left();
    }
}

/// The limit applies to users other than root only, and counts their threads.
#[test]
fn a_low_limit_on_processes_is_no_defect() {
    let place = Place::new();
    let program = place.path("gangline");
    std::fs::copy(env!("CARGO_BIN_EXE_gangline"), &program).unwrap();
    let line = format!(
        "chmod -R a+rwX .; exec setpriv --reuid=61234 --clear-groups --inh-caps=-all prlimit --nproc=6 {} run -j8 -- echo ::: a",
        program.display()
    );
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let ran = place.ran(command.stdin(std::process::Stdio::null()));
    ran.check_said(102, &["Resource temporarily unavailable"]);
}
