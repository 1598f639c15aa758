//! `--retry-failed`: the failed jobs of a log run again.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use crate::support::Place;

#[test]
fn failed_jobs_run_again_with_the_commands_of_the_log() {
    let place = Place::new();
    let script = "printf \"$X|%s|%s\n\" \"$@\"; test -e now -o \"$1\" = ok";
    let line = format!("-j1 --joblog log -- X='a b' sh -c '{script}' sh {{}} {{#}} :::");
    let inputs = [&b"a\nb"[..], b"it's", b"ok", b"", b"{gpu}", b"\xff\t$HOME"];
    let mut command = place.typed(&format!("run {line}"));
    command.args(inputs.map(|input| OsString::from_vec(input.to_vec())));
    let first = place.ran(&mut command);
    assert_eq!(first.code, Some(5), "{first:?}");
    let again = place.run_typed("-j1 --retry-failed --joblog log");
    let of_failed = first.stdout.replace("a b|ok|3\n", "");
    again.check(5, &of_failed);
    again.check_said(5, &["job 2 exited with 1", "5 of 5 jobs failed"]);
    place.write("now", "");
    place.run_typed("-j1 --retry-failed --joblog log").check(0, &of_failed);
    place.run_typed("-j1 --retry-failed --joblog log").check(0, "");
    assert_eq!(place.read("log").lines().count(), 1 + 6 + 5 + 5);
}

#[test]
fn jobs_keep_their_numbers_in_a_report() {
    let place = Place::new();
    place.run_typed("-j1 --joblog log --shell -- 'exit $1' ::: 0 0 4 0");
    let ran = place.run_typed("--retry-failed --joblog log --report r.json");
    ran.check_said(1, &["job 3 exited with 4"]);
    assert!(place.read("r.json").contains("\"item\": 3"), "{}", place.read("r.json"));
}

#[test]
fn another_job_with_the_same_number_hides_no_failure() {
    let place = Place::new();
    place.run_typed("-j1 --joblog log --shell -- 'test $1 = x' ::: a b");
    let other = place.read("log").replace("\t1\t0\tsh", "\t0\t0\tsh").replace("sh a\t", "sh x\t");
    let jobs = other.split_once('\n').unwrap().1.to_owned();
    place.write("log", place.read("log") + &jobs);
    let ran = place.run_typed("-j1 --retry-failed --joblog log");
    ran.check_said(1, &["job 1 exited with 1", "1 of 1 jobs failed"]);
}

#[test]
fn a_line_that_was_cut_off_is_no_job() {
    let place = Place::new();
    place.run_typed("-j1 --joblog log --shell -- 'exit 1' ::: a");
    let log = place.read("log");
    place.write("log", format!("{log}2\t:\t17955"));
    place.run_typed("-j1 --retry-failed --joblog log").check_said(1, &["1 of 1 jobs failed"]);
}

#[test]
fn a_log_without_commands_to_run_again_is_refused() {
    let columns = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand";
    let job = "1\t:\t0.0\t0.0\t0\t0\t1\t0\ttouch started";
    for (log, said) in [
        (format!("{columns}\n{job}\n"), "line 1 of the log log does not have the columns"),
        (format!("{columns}\tSlot\tGpus\nx{job}\t0\t\n"), "line 2 of the log log is not that"),
        (format!("{columns}\tSlot\tGpus\n{job} | wc\t0\t\n"), "warm workers have none"),
        (format!("{columns}\tSlot\tGpus\n{job}\t0\t3\n"), "is of a job on GPU 3"),
    ] {
        let place = Place::new();
        place.write("log", &log);
        let ran = place.run_typed("--retry-failed --joblog log");
        ran.check_said(104, &[said]);
        assert!(!place.path("started").exists() && place.read("log") == log, "{log}");
    }
    Place::new().run_typed("--retry-failed --joblog log").check_said(104, &["cannot be read"]);
}

#[test]
fn what_the_log_has_cannot_be_given_too() {
    for (options, said) in [
        ("--joblog log -- touch started ::: a", "the log has the commands"),
        ("--joblog log --input list", "cannot be used with"),
        ("--joblog log -I ,,", "cannot be used with"),
        ("--joblog log --journal j", "cannot be used with"),
        ("--joblog log --warm", "cannot be used with"),
        ("-- touch started ::: a", "--joblog <FILE>"),
    ] {
        let place = Place::new();
        place.write("log", "");
        let ran = place.run_typed(&format!("--retry-failed {options}"));
        ran.check_said(102, &[said]);
        assert!(!place.path("started").exists(), "{options}");
    }
}
