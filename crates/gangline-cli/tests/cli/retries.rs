//! `--retries`: when and where a failed job is tried again, and what is recorded about it.

use rustix::process::Signal;
use serde_json::Value;

use crate::output::WAIT;
use crate::support::Place;

fn json(place: &Place, name: &str) -> Value {
    serde_json::from_str(&place.read(name)).unwrap()
}

/// Runs a job that succeeds at its third attempt, and one that never does, and checks what each record says.
#[track_caller]
fn records_agree(options: &str, job: &str) {
    let place = Place::new();
    place.write("job", job);
    let records = "--report r.json --report r.txt --joblog log --results res";
    let line = format!("-j2 --retries 2 {options} {records} -- sh job {{}} {{attempt}} ::: a b c");
    let ran = place.run_typed(&line);
    ran.check_said(1, &["at attempt 1, and is retried", "at attempt 2", "1 of 3 jobs failed"]);
    assert!(!ran.stderr.contains("at attempt 3"), "{ran:?}");
    let report = json(&place, "r.json");
    let retries = &report["retries"];
    let counts = ["attempts", "items", "succeeded", "failed"].map(|name| retries[name].as_u64());
    assert_eq!(counts, [4, 2, 1, 1].map(Some), "{options}: {retries}");
    let of_jobs: Vec<_> =
        retries["list"].as_array().unwrap().iter().map(|it| &it["item"]).collect();
    assert_eq!(of_jobs, [2, 3], "{retries}");
    assert_eq!(report["failures"][0]["attempts"], 3, "{report}");
    assert_eq!((&report["account"]["ok"], &report["account"]["failed"]), (&2.into(), &1.into()));
    assert!(place.read("r.txt").contains("retried"), "{}", place.read("r.txt"));
    let attempts =
        [1, 2, 3].map(|job| json(&place, &format!("res/{job}/job.json"))["attempts"].clone());
    assert_eq!(attempts, [1, 3, 3]);
    let log = place.read("log");
    assert_eq!(log.lines().count(), 4, "a line for each job: {log}");
    let slots = report["producers"].as_array().unwrap();
    let failed: u64 = slots.iter().filter_map(|slot| slot["failed"].as_u64()).sum();
    assert_eq!(failed, 5, "each attempt is counted: {slots:?}");
}

#[test]
fn a_report_has_the_attempts() {
    let status = "case $1$2 in b1|b2|c?) exit 1;; esac";
    records_agree("", status);
    records_agree("--no-keep-order", status);
    records_agree("--retry-delay 1ms --line-buffer", status);
    records_agree("--gpu-list '0 1'", status);
    records_agree("", "case $1$2 in b1|b2|c?) kill -9 $$;; esac");
    records_agree("--timeout 2s", "case $1$2 in b1|b2|c?) sleep 60;; esac");
    records_agree("--max-output 9", "case $1$2 in b1|b2|c?) yes;; esac");
}

/// The slot has other jobs meanwhile, and the wait is no work.
#[test]
fn a_job_that_waits_for_another_attempt_keeps_no_slot() {
    let place = Place::new();
    let script = "touch $1; test $1 != a";
    let line = format!("--retries 1 --retry-delay 1h --shell -- '{script}' ::: a b c");
    for slots in ["-j1", "-j1 --gpu-list 0", "-j1 --no-keep-order"] {
        let running = place.start_typed(&format!("{slots} {line}"));
        place.wait_for("c");
        running.send(Signal::INT);
        let ran = running.ran();
        ran.check_said(
            130,
            &["job 1 exited with 1 at attempt 1, and is retried", "1 of 3 jobs failed"],
        );
        assert!(ran.stderr.contains("job 1 exited with 1: "), "{ran:?}");
        std::fs::remove_file(place.path("c")).unwrap();
    }
}

/// A job that waits when the run ends has the outcome of its last attempt.
#[test]
fn the_end_of_a_run_ends_the_wait_for_another_attempt() {
    for halt in ["soon,success=1", "now,success=1", "soon,done=1", "now,success=30%"] {
        let place = Place::new();
        let line = format!(
            "-j1 --halt {halt} --retries 5 --retry-delay 1h --joblog log --results res --report r.json"
        );
        let ran = place.run_typed(&format!("{line} --shell -- 'echo $1; test $1 = b' ::: a b c"));
        assert_eq!((&*ran.stdout, ran.stderr.matches("retried").count()), ("a\nb\n", 1), "{ran:?}");
        assert!(ran.stderr.contains("job 1 exited with 1: "), "{ran:?}");
        assert_eq!(place.read("log").lines().count(), 3, "{halt}");
        assert_eq!(json(&place, "res/1/job.json")["attempts"], 1);
        let report = json(&place, "r.json");
        assert_eq!(report["failures"][0]["attempts"], 1, "{report}");
        assert!(!report.to_string().contains("attempt 2"), "{report}");
        assert_eq!(
            (&report["retries"]["attempts"], &report["retries"]["items"]),
            (&0.into(), &0.into())
        );
        assert_eq!(report["producers"][0]["failed"], 1, "{report}");
        let slowest = report["slowest"].as_array().unwrap();
        assert!(slowest.iter().all(|slow| slow["attempt"] == 1), "{slowest:?}");
    }
}

#[test]
fn advice_about_waits_for_another_attempt_names_the_option() {
    let place = Place::new();
    let line =
        "-j1 --retries 1 --retry-delay 1s --report r.txt --shell -- 'test {attempt} = 2' ::: a b c";
    place.run_typed(line).check(0, "");
    let report = place.read("r.txt").replace('\n', " ");
    assert!(
        report.contains("make `--retry-delay` shorter") && !report.contains("backoff"),
        "{report}"
    );
}

#[test]
fn a_job_that_fails_while_the_run_ends_is_not_tried_again() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script =
        "case $1 in a) touch runs; sh wait done; exit 1;; b) sh wait runs; touch done;; esac";
    let line = "-j2 --halt soon,success=1 --retries 3 --retry-delay 1h";
    let ran = place.run_typed(&format!("{line} --shell -- '{script}' ::: a b c"));
    ran.check_said(0, &["job 1 exited with 1: "]);
}

#[test]
fn a_resumed_run_does_what_has_failed_at_all_attempts_again() {
    let place = Place::new();
    let script = "echo $1 >> tried; case $1 in a) test -e now;; b) test {attempt} = 2;; esac";
    let line = "-j1 --retries 1 --journal j";
    let job = format!("--shell -- '{script}' ::: a b c");
    place.run_typed(&format!("{line} {job}")).check_said(1, &["1 of 3 jobs failed"]);
    let sorted = |text: String| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.concat()
    };
    assert_eq!(sorted(place.read("tried")), "aabbc");
    place.write("now", "");
    place.run_typed(&format!("{line} --resume {job}")).check(0, "");
    assert_eq!(sorted(place.read("tried")), "aaabbc");
}

#[test]
fn a_retry_counts_among_the_jobs_at_once() {
    let place = Place::new();
    place.write("most", "1");
    let script = "mkdir alone || touch met; sleep 0.05; rmdir alone; test {attempt} = 3";
    let line = format!("-j most --retries 2 --shell -- '{script}' ::: 1 2 3 4 5");
    place.run_typed(&line).check(0, "");
    assert!(!place.path("met").exists(), "two jobs ran at once");
}

#[test]
fn with_line_buffer_the_lines_of_all_attempts_appear() {
    let script = "echo $1 {attempt}; test {attempt} = 2";
    for (options, is_sorted) in [("-j1 --line-buffer", false), ("-j3 -k --line-buffer", true)] {
        let line = format!("{options} --retries 1 --shell -- '{script}' ::: a b c");
        let ran = Place::new().run_typed(&line);
        assert_eq!((ran.code, ran.sorted().join(",")), (Some(0), "a 1,a 2,b 1,b 2,c 1,c 2".into()));
        assert!(!is_sorted || ran.stdout.lines().is_sorted(), "{ran:?}");
    }
}

#[test]
fn outputs_come_in_order_whatever_is_retried() {
    let script = "test {attempt} = 3 -o $(($1 % 3)) != 0 && echo $1";
    let line = format!("-j4 --retries 2 --shell -- '{script}' ::: $LIST");
    let list: Vec<String> = (1..=40).map(|job| job.to_string()).collect();
    let ran = Place::new().run_typed(&line.replace("$LIST", &list.join(" ")));
    ran.check(0, &(list.join("\n") + "\n"));
}

/// It has a slot, and waits for memory when the signal comes.
#[test]
fn a_report_has_no_attempt_of_a_job_that_never_started() {
    for (signal, end) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let place = Place::new();
        let line = "-j1 --memfree 1000000G --joblog log --report r.json -- echo ::: a b";
        let mut running = place.start_typed(line);
        running.wait_for_stderr("memory");
        running.send(signal);
        assert_eq!(running.ran().code, Some(end));
        let report = json(&place, "r.json");
        for attempts in ["spans", "slowest"] {
            let attempts = report[attempts].as_array();
            assert!(attempts.is_none_or(Vec::is_empty), "{attempts:?}");
        }
        assert_eq!(place.read("log").lines().count(), 1);
    }
}
