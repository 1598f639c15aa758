//! Signals to the program; no process outlives the run.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};

use crate::output::WAIT;
use crate::slots::UUID;
use crate::support::{Place, Running, state, wait_until};

/// Two of several jobs, which run until the file `go` exists; the files `1` and `2` show that they run.
const JOBS: &str =
    "-j2 --shell -- 'echo begin $1; touch $1; sh wait go; echo end $1' ::: 1 2 3 4 5 6";

const ENDED: &str = "begin 1\nend 1\nbegin 2\nend 2\n";

/// A run with two jobs that wait.
fn started(line: &str) -> (Place, Running) {
    let place = Place::new();
    place.write("wait", WAIT);
    let running = place.start_typed(line);
    place.wait_for("1");
    place.wait_for("2");
    (place, running)
}

/// Checks that no job was started after the first two, and that no process is left.
#[track_caller]
fn check_rest(place: &Place) {
    assert!(!place.path("3").exists(), "a job was started after the signal");
    place.check_no_process_is_left();
    assert_eq!(place.names("tmp"), Vec::<String>::new());
}

#[track_caller]
fn ends_softly(signal: Signal, to_group: bool, said: &str, status: i32) {
    let (place, mut running) = started(JOBS);
    match to_group {
        true => running.send_to_group(signal),
        false => running.send(signal),
    }
    running.wait_for_stderr(said);
    place.write("go", "");
    running.ran().check(status, ENDED);
    check_rest(&place);
}

#[test]
fn the_first_interrupt_lets_jobs_end() {
    let said = "waiting for the running jobs; press Ctrl-C again to kill them";
    ends_softly(Signal::INT, false, said, 130);
    ends_softly(Signal::INT, true, said, 130);
}

#[test]
fn the_second_interrupt_kills() {
    for to_group in [false, true] {
        let (place, mut running) = started(JOBS);
        let send = |running: &Running| match to_group {
            true => running.send_to_group(Signal::INT),
            false => running.send(Signal::INT),
        };
        send(&running);
        running.wait_for_stderr("press Ctrl-C again");
        send(&running);
        let ran = running.ran();
        assert_eq!(ran.code, Some(130), "{ran:?}");
        assert!(ran.stderr.contains("job 1 was ended with the run"), "{ran:?}");
        check_rest(&place);
    }
}

#[test]
fn a_job_that_ignores_signals_is_killed_too() {
    let job = "trap \"\" INT TERM HUP; echo begin $1; touch $1; while :; do sleep 1; done";
    let (place, mut running) = started(&format!("-j2 --shell -- '{job}' ::: 1 2 3"));
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    check_rest(&place);
}

/// Sends a signal that prints no message; it was handled once the input is no longer read.
#[track_caller]
fn ends_reading(signal: Signal, status: i32) {
    let place = Place::new();
    place.write("wait", WAIT);
    let (reader, writer) = std::io::pipe().unwrap();
    let job = "echo begin $1; touch $1; sh wait go; echo end $1";
    let mut command = place.typed(&format!("run -j2 --shell -- '{job}'"));
    let running = place.start(command.stdin(reader));
    drop(command);
    std::io::Write::write_all(&mut &writer, b"1\n2\n").unwrap();
    place.wait_for("1");
    place.wait_for("2");
    running.send(signal);
    // The program waits for a line and for the signal; the pipe stays open.
    place.write("go", "");
    running.ran().check(status, ENDED);
    check_rest(&place);
    drop(writer);
}

#[test]
fn a_signal_ends_the_reading_of_a_pipe() {
    ends_reading(Signal::INT, 130);
    ends_reading(Signal::TERM, 143);
    ends_reading(Signal::HUP, 129);
}

/// Enough jobs that the signal arrives before the last: all that began must end.
#[track_caller]
fn ends_in_time(options: &str, signal: Signal, status: i32) {
    let place = Place::new();
    let list: String = (0..4_000).map(|job| format!("{job}\n")).collect();
    place.write("list", list);
    let job = "echo begin $1; touch begun; echo end $1";
    let line = format!("-j2 {options} --input list --shell -- '{job}'");
    let running = place.start_typed(&line);
    place.wait_for("begun");
    running.send(signal);
    let ran = running.ran();
    assert_eq!(ran.code, Some(status), "{:?}", ran.stderr);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() < 8_000, "it came to its end");
    for (job, lines) in lines.chunks(2).enumerate() {
        assert_eq!(lines, [format!("begin {job}"), format!("end {job}")]);
    }
    place.check_no_process_is_left();
}

#[test]
fn every_job_that_began_ends() {
    ends_in_time("", Signal::HUP, 129);
    ends_in_time("", Signal::INT, 130);
    ends_in_time("--grace 30s", Signal::TERM, 143);
}

#[test]
fn a_request_to_end_does_not_wait_for_ever() {
    let (place, running) = started(&format!("--grace 100ms {JOBS}"));
    running.send(Signal::TERM);
    let ran = running.ran();
    ran.check(143, "begin 1\nbegin 2\n");
    ran.check_said(143, &["job 1 was ended with the run", "ended by a signal, with 0 jobs done"]);
    check_rest(&place);
}

#[test]
fn a_request_to_quit_kills_the_jobs() {
    let (place, running) = started(&format!("--grace 1h {JOBS}"));
    rustix::process::kill_process(running.pid(), Signal::QUIT).unwrap();
    running.ran().check(131, "begin 1\nbegin 2\n");
    check_rest(&place);
}

#[test]
fn a_signal_ends_the_wait_for_another_attempt() {
    let place = Place::new();
    let line = "--retries 5 --retry-delay 1h --shell -- 'touch tried; exit 1' ::: x";
    let running = place.start_typed(line);
    place.wait_for("tried");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    place.check_no_process_is_left();
}

#[test]
fn a_signal_before_anything_was_started_ends_the_run() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = place.typed("run -- touch started");
    let running = place.start(command.stdin(reader));
    drop(command);
    // Signals are handled once their thread exists.
    let engine = running.engine();
    wait_until("signals are handled", || has_thread(engine, "gangline-signal"));
    running.send(Signal::INT);
    running.ran().check(130, "");
    drop(writer);
    assert!(!place.path("started").exists());
}

fn has_thread(pid: Pid, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
    let names = tasks.into_iter().flatten().flatten().map(|task| task.path().join("comm"));
    names.filter_map(|path| std::fs::read_to_string(path).ok()).any(|comm| comm.trim() == name)
}

/// Whether a process has a file open in that directory.
fn has_open(pid: Pid, directory: &Path) -> bool {
    let files = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_pid()));
    let targets = files.into_iter().flatten().flatten().map(|file| std::fs::read_link(file.path()));
    targets.flatten().any(|target| target.starts_with(directory))
}

#[test]
fn all_stop_together_and_go_on() {
    // A shell that starts a program cannot stop before the program has begun, which a stopped program never
    // does. So the shell waits without one.
    let job = "mkfifo fifo.$1; echo $$ > pid.$1; : > $1; read line < fifo.$1; echo end $1 $line";
    let (place, running) = started(&format!("-j2 --timeout 1h --shell -- '{job}' ::: 1 2"));
    let jobs =
        ["pid.1", "pid.2"].map(|name| Pid::from_raw(place.read(name).trim().parse().unwrap()));
    let all: Vec<Pid> =
        jobs.into_iter().flatten().chain([running.pid(), running.engine()]).collect();
    let are = |letters: &str| {
        all.iter().all(|pid| state(*pid).is_some_and(|state| letters.contains(state)))
    };
    for _ in 0..2 {
        running.send(Signal::TSTP);
        wait_until("all have stopped", || are("T"));
        running.send(Signal::CONT);
        wait_until("all go on", || are("SRD"));
    }
    place.write("fifo.1", "a\n");
    place.write("fifo.2", "b\n");
    running.ran().check(0, "end 1 a\nend 2 b\n");
    place.check_no_process_is_left();
}

#[test]
fn jobs_that_were_stopped_can_be_ended() {
    let (place, running) = started(&format!("--grace 0 {JOBS}"));
    running.send(Signal::TSTP);
    let pid = running.pid();
    wait_until("it has stopped", || state(pid) == Some('T'));
    running.send(Signal::TERM);
    running.send(Signal::CONT);
    assert_eq!(running.ran().code, Some(143));
    check_rest(&place);
}

/// Ways in which jobs may try to escape.
const HIDING: [&str; 5] = [
    "sleep 1000",
    "trap \"\" HUP INT TERM; while :; do sleep 1000; done",
    "sleep 1000 & sleep 1000 & wait",
    "(sleep 1000 &) ; sleep 1000",
    "exec >&- 2>&- <&-; sleep 1000",
];

/// Kills a process of the run without warning, and checks that no other survives.
#[track_caller]
fn kill_leaves_nothing(job: &str, victim: fn(&Running) -> Pid, status: Option<i32>) {
    let place = Place::new();
    let line = format!("-j2 --shell -- 'touch $1; {job}' ::: 1 2 3");
    let running = place.start_typed(&line);
    place.wait_for("1");
    place.wait_for("2");
    rustix::process::kill_process(victim(&running), Signal::KILL).unwrap();
    let ran = running.ran();
    assert_eq!(ran.code, status, "{job}: {ran:?}");
    assert_eq!(ran.signal, status.is_none().then_some(9), "{job}: {ran:?}");
    place.check_no_process_is_left();
    assert!(!place.path("3").exists(), "{job}");
    assert_eq!(place.names("tmp"), Vec::<String>::new());
}

#[test]
fn nothing_outlives_the_process_that_is_seen() {
    for job in HIDING {
        kill_leaves_nothing(job, Running::pid, None);
    }
}

#[test]
fn nothing_outlives_the_process_that_has_the_jobs() {
    for job in HIDING {
        kill_leaves_nothing(job, Running::engine, Some(137));
    }
}

#[test]
fn not_even_a_daemon_outlives_the_process_that_has_the_jobs() {
    let daemon = "setsid sh -c \"touch daemon.$1; sleep 1000\" & sh wait daemon.$1; sleep 1000";
    for job in
        [daemon, "setsid -f sleep 1000; sleep 1000", "setsid -f setsid -f sleep 1000; exit 0"]
    {
        let place = Place::new();
        place.write("wait", WAIT);
        let line = format!("-j2 --shell -- '{job}' ::: 1 2");
        let running = place.start_typed(&line);
        wait_until("there is a daemon", || place.living().len() > 3);
        rustix::process::kill_process(running.engine(), Signal::KILL).unwrap();
        running.ran();
        place.check_no_process_is_left();
    }
}

#[test]
fn a_session_of_its_own_does_not_outlive_the_process_that_is_seen() {
    let place = Place::new();
    let job = "setsid sh -c \"touch $1; sleep 1000\" & sleep 1000";
    let running = place.start_typed(&format!("-j2 --shell -- '{job}' ::: 1 2"));
    place.wait_for("1");
    place.wait_for("2");
    running.send(Signal::KILL);
    running.ran();
    place.check_no_process_is_left();
}

/// A job inherits the program's own files, and none that the program has opened.
#[test]
fn jobs_inherit_nothing() {
    const FILES: &str = "cd /proc/$$/fd; echo *";
    let place = Place::new();
    let mut direct = std::process::Command::new("sh");
    let direct = place.start(direct.args(["-c", FILES]).stdin(std::process::Stdio::null())).ran();
    let line = format!("-j2 --joblog log --journal j --shell -- '{FILES}' ::: a b c");
    place.run_typed(&line).check(0, &direct.stdout.repeat(3));
}

#[test]
fn a_job_reads_nothing_and_is_in_a_group_of_its_own() {
    let place = Place::new();
    let script = "cat; [ $(ps -o pgid= -p $$) = $$ ] && echo own";
    place.run_typed(&format!("--shell -- '{script}' ::: x")).check(0, "own\n");
}

#[test]
fn a_run_that_was_interrupted_is_written_down() {
    let records = "--joblog log --journal j --results res --report r.json";
    let (place, mut running) = started(&format!("{records} {JOBS}"));
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    place.write("go", "");
    running.ran().check(130, ENDED);
    assert_eq!(place.read("log").lines().count(), 3);
    assert_eq!(place.names("res"), ["1", "2"]);
    serde_json::from_str::<serde_json::Value>(&place.read("r.json")).unwrap();
    check_rest(&place);
    // And can be resumed.
    let rest = "begin 3\nend 3\nbegin 4\nend 4\nbegin 5\nend 5\nbegin 6\nend 6\n";
    place.run_typed(&format!("--resume {records} {JOBS}")).check(0, rest);
}

/// At any time: while it begins, works, ends, or writes its records.
#[test]
fn whenever_an_interrupt_comes_nothing_is_lost_and_nothing_is_torn() {
    let line = "--joblog log --journal j --report r.json -j2 -- echo ::: 1 2 3 4 5 6 7 8";
    for moment in 0..40 {
        let place = Place::new();
        let running = place.start_typed(line);
        thread::sleep(Duration::from_millis(3) * moment);
        running.send(Signal::INT);
        let first = running.ran();
        let is_known =
            matches!((first.code, first.signal), (Some(0 | 130), None) | (None, Some(2)));
        assert!(is_known, "{moment}: {first:?}");
        if place.path("r.json").exists() {
            serde_json::from_str::<serde_json::Value>(&place.read("r.json")).unwrap();
        }
        place.check_no_process_is_left();
        let rest = place.run_typed(&format!("--resume {line}"));
        let all = first.stdout + &rest.stdout;
        assert_eq!((rest.code, &*all), (Some(0), "1\n2\n3\n4\n5\n6\n7\n8\n"), "{moment}");
        let left: Vec<_> = place.names(".").into_iter().filter(|name| name != "tmp").collect();
        assert_eq!(left, ["j", "log", "r.json"], "{moment}");
    }
}

/// The output exceeds the capacity of a pipe without a reader, so no message can be printed either.
#[test]
fn a_run_without_a_reader_can_be_killed() {
    let place = Place::new();
    let mut running = place.start_typed("-j1 --shell -- 'head -c 1000000 /dev/zero' ::: a b");
    let engine = running.engine();
    let mut first = [0];
    running.read_stdout(&mut first);
    wait_until("it has ended", || {
        running.send(Signal::INT);
        state(engine).is_none_or(|state| state == 'Z')
    });
    place.check_no_process_is_left();
    assert_eq!(running.ran().code, Some(130));
}

#[test]
fn a_run_without_a_reader_can_be_terminated() {
    let place = Place::new();
    let job = "'head -c 1000000 /dev/zero'";
    let mut running =
        place.start_typed(&format!("-j1 --grace 0.1s --kill-after 0.1s --shell -- {job} ::: a b"));
    let engine = running.engine();
    let mut first = [0];
    running.read_stdout(&mut first);
    running.send(Signal::TERM);
    wait_until("it has ended", || state(engine).is_none_or(|state| state == 'Z'));
    assert_eq!(running.ran().code, Some(143));
    place.check_no_process_is_left();
}

/// The thread of the job is blocked on its output.
#[test]
fn a_job_without_a_reader_ends_with_the_run() {
    let place = Place::new();
    let job = "'trap \"\" PIPE TERM; yes; sleep 1000'";
    let options = "-j1 --line-buffer --grace 0.1s --kill-after 0.1s --shell";
    let mut running = place.start_typed(&format!("{options} -- {job} ::: a"));
    let mut first = [0];
    running.read_stdout(&mut first);
    let engine = running.engine();
    running.send(Signal::TERM);
    wait_until("it has ended", || state(engine).is_none_or(|state| state == 'Z'));
    assert_eq!(running.ran().code, Some(143));
    place.check_no_process_is_left();
}

/// Opening it waits for a writer.
#[test]
fn a_named_pipe_without_a_writer_is_not_waited_for() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("list")).status().unwrap();
    assert!(made.success());
    let running = place.start_typed("--input list -- echo");
    let engine = running.engine();
    wait_until("signals are handled", || has_thread(engine, "gangline-signal"));
    running.send(Signal::TERM);
    assert_eq!(running.ran().code, Some(143));
    place.check_no_process_is_left();
}

#[test]
fn a_signal_ends_the_wait_for_a_gpu() {
    let place = Place::new();
    std::fs::create_dir(place.path("locks")).unwrap();
    let start = |script: &str| {
        let options = "run --lock-gpus=wait --lock-dir locks --gpu-list 0 --shell";
        let mut command = place.typed(&format!("{options} -- '{script}' ::: x"));
        place.start(command.env("CUDA_VISIBLE_DEVICES", UUID))
    };
    let first = start("touch held; until [ -e go ]; do sleep 0.02; done");
    place.wait_for("held");
    let second = start("touch started");
    let engine = second.engine();
    wait_until("it tries the lock", || has_open(engine, &place.path("locks")));
    second.send(Signal::INT);
    let second = second.ran();
    assert_eq!(second.code, Some(130), "{second:?}");
    place.write("go", "");
    first.ran().check(0, "");
    assert!(!place.path("started").exists());
}
