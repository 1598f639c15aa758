//! Jobs that fail, are retried, time out, or end the run.

use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::output::WAIT;
use crate::support::{Place, Ran};

/// Runs one failing job, and checks its messages.
#[track_caller]
fn fails(options: &str, job: &str, said: &str) {
    let place = Place::new();
    place.write("job", format!("{job}\n"));
    let ran = place.run_typed(&format!("-j1 {options} -- sh -c '. ./job' {{}} ::: x"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    ran.check_said(1, &[said, "1 of 1 jobs failed"]);
}

#[test]
fn a_failed_job_is_reported() {
    fails("", "exit 7", "job 1 exited with 7: sh -c '. ./job' x");
    fails("", "kill -9 $$", "job 1 was killed by SIGKILL");
    fails("", "kill -SEGV $$", "job 1 was killed by SIGSEGV");
    fails("--timeout 0.1", "sleep 60", "job 1 was ended: it took longer than 100 ms");
    fails("--timeout 0.00001", "sleep 60", "job 1 was ended: it took longer than 10 µs");
    fails("--max-output 10", "yes", "job 1 was ended: it printed more than 10 bytes");
    fails("", "echo why >&2; exit 1", "why\n");
}

#[test]
fn a_program_that_cannot_be_started_fails_its_jobs() {
    let place = Place::new();
    place.write("data", "no program");
    for (program, said) in [("./data", "Permission denied"), ("./tmp", "Permission denied")] {
        let ran = place.run_typed(&format!("-- {program} ::: a b"));
        ran.check(2, "");
        ran.check_said(2, &["job 1 could not be started", said, "2 of 2 jobs failed"]);
    }
}

#[test]
fn a_program_that_is_not_there_ends_the_run() {
    let place = Place::new();
    let script = place.write("script", "#!/no/such/shell\n");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    for line in
        ["-j2 -- no-such-program ::: 1 2", "-j9 -- ./script ::: 1 2 3 4", "-u -- ./missing ::: 1"]
    {
        let ran = place.run_typed(line);
        ran.check(1, "");
        let said = ["could not be started", "or the interpreter that it names, does not exist"];
        ran.check_said(1, &said);
    }
    let inputs = (1..=50).map(|input| input.to_string()).collect::<Vec<_>>().join(" ");
    for command in [
        "-j4 -- no-such-program",
        "-j1 --retries 2 -- ./missing {}",
        "-j2 --joblog log -k --line-buffer -- ./script",
        "--workdir w/{} -- no-such-program",
        "--workdir w -- ./missing",
        "-- PATH=/missing env",
    ] {
        let ran = place.run_typed(&format!("{command} ::: {inputs}"));
        ran.check(1, "");
        assert_eq!(ran.stderr.lines().count(), 3, "{ran:?}");
        let said =
            ["could not be started: No such file", "1 of 1 jobs failed", "does not exist, so"];
        ran.check_said(1, &said);
    }
    assert!(place.read("log").lines().skip(1).all(|line| line.contains("\t127\t0\t./script ")));
}

#[test]
fn a_program_that_some_jobs_have_is_looked_for_by_each() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("w/b")).unwrap();
    let step = place.write("w/b/step", "#!/bin/sh\necho hi\n");
    std::fs::set_permissions(&step, std::fs::Permissions::from_mode(0o755)).unwrap();
    place.write("jobs", "no-such-program\necho hi\n");
    let path = place.path("w").display().to_string();
    for line in [
        "--workdir w/{} -- ./step ::: a b".to_owned(),
        format!("-- PATH={path}/{{}} step ::: a b"),
        "--job-file jobs".to_owned(),
    ] {
        let ran = place.run_typed(&format!("-j1 {line}"));
        ran.check(1, "hi\n");
        ran.check_said(1, &["job 1 could not be started: No such file", "1 of 2 jobs failed"]);
    }
}

#[test]
fn the_status_is_the_number_of_failed_jobs() {
    for (failed, status) in [(0, 0), (1, 1), (100, 100), (101, 101), (130, 101)] {
        let place = Place::new();
        let inputs: String = (0..failed).map(|_| "false\n").chain(["true\n"]).collect();
        place.write("jobs", inputs);
        let ran = place.run_typed("-j4 --job-file jobs");
        assert_eq!(ran.code, Some(status), "{failed}: {:?}", ran.stderr.lines().last());
    }
}

#[test]
fn invalid_options_are_refused() {
    for line in [
        "--no-such-option -- echo ::: x",
        "::: x",
        "",
        "-- '' ::: x",
        "--retries many -- echo ::: x",
        "-j++1 -- echo ::: x",
        "-jmany -- echo ::: x",
        "--retries +1 -- echo ::: x",
        "--timeout +1 -- echo ::: x",
        "--window +1 -- echo ::: x",
        "--max-output +1 -- echo ::: x",
        "--per-gpu +1 --gpu-list 0 -- echo ::: x",
        "--halt now,fail=+1 -- echo ::: x",
        "-n +1 -- echo ::: x",
        "--delimiter ab -- echo ::: x",
        "--colsep '|' -- echo ::: x",
        "--colsep '(' -- echo ::: x",
        "--header 2 -- echo ::: x",
        "--timeout soon -- echo ::: x",
        "--halt later -- echo ::: x",
        "--resume -- echo ::: x",
        "--share --slots --gpu-list 0 -- echo ::: x",
        "--share -- echo ::: x",
        "--max-output lots -- echo ::: x",
        "--devices rocm:0 -- echo ::: x",
        "--devices cuda:0 -j2 -- echo ::: x",
    ] {
        let ran = Place::new().run_typed(line);
        assert_eq!((ran.code, &*ran.stdout), (Some(102), ""), "{line}: {ran:?}");
        assert!(!ran.stderr.is_empty(), "{line}");
    }
}

#[test]
fn a_job_is_retried() {
    let place = Place::new();
    let line = "-j1 --retries 3 -- sh -c 'echo $1 >> tried; [ $1 = 3 ]' sh {attempt} ::: x";
    place.run_typed(line).check(0, "");
    assert_eq!(place.read("tried"), "1\n2\n3\n");
}

#[test]
fn a_job_is_tried_as_often_as_is_said() {
    let place = Place::new();
    let line = "-j1 --retries 2 --results res -- sh -c 'echo $1; exit $1' sh {attempt} ::: x";
    let ran = place.run_typed(line);
    ran.check(1, "3\n");
    ran.check_said(1, &["exited with 3"]);
    let job: serde_json::Value = serde_json::from_str(&place.read("res/1/job.json")).unwrap();
    assert_eq!(job["attempts"], 3);
}

#[test]
fn a_retried_job_keeps_its_slot() {
    let place = Place::new();
    let job = "echo $1 $2 $3 >> tried.$1; [ $4 = 4 ] && cat tried.$1 && rm tried.$1";
    let line = format!(
        "--gpu-list '5 6 7' --retries 3 -- sh -c '{job}' sh {{}} {{worker}} {{gpu}} {{attempt}} ::: a b c d e"
    );
    let ran = place.run_typed(&line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines.len(), 20);
    for tried in lines.chunks(4) {
        assert!(tried.iter().all(|line| *line == tried[0]), "{tried:?}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_retried() {
    let place = Place::new();
    let ran = place.run_typed("--retries 2 --retry-delay 10ms --joblog log -- ./missing ::: x");
    ran.check(1, "");
    assert!(place.read("log").contains("\t127\t0\t./missing x\t"));
    let ran = place.run_typed("--retries 2 --joblog log -- ./tmp ::: x");
    ran.check_said(1, &["at attempt 2, and is retried"]);
    assert!(place.read("log").contains("\t126\t0\t./tmp x\t"));
}

/// Runs jobs `a` to `f` one after the other, of which `fail` fail, and checks which ran.
#[track_caller]
fn halts(halt: &str, fail: &str, status: i32, stdout: &str) {
    let place = Place::new();
    let script = format!("printf $1; case $1 in {fail}) exit 1;; esac");
    let line = format!("-j1 {halt} --shell -- '{script}' ::: a b c d e f");
    place.run_typed(&line).check(status, stdout);
}

#[test]
fn failures_may_end_a_run() {
    halts("", "a|b|c", 3, "abcdef");
    halts("--halt never", "a|b|c", 3, "abcdef");
    halts("--halt soon,fail=1", "b", 1, "ab");
    halts("--halt now,fail=1", "b", 1, "ab");
    halts("--halt soon,fail=2", "b|d", 2, "abcd");
    halts("--halt soon,fail=50%", "a|b|d", 3, "abcd");
    halts("--halt soon,fail=100%", "a|b|d", 3, "abcdef");
    halts("--halt soon,fail=1", "x", 0, "abcdef");
    halts("--halt soon,fail=1 --retries 1", "b", 1, "ab");
}

#[test]
fn soon_lets_the_others_end() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script = "case $1 in 1) sh wait failing; sleep .3; echo done;; 2) touch failing; exit 1;; *) echo $1;; esac";
    let ran = place.run_typed(&format!("-j2 --halt soon,fail=1 --shell -- '{script}' ::: 1 2 3 4"));
    ran.check(1, "done\n");
}

#[test]
fn now_ends_the_others() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script = "case $1 in 1) touch runs; sleep 60;; 2) sh wait runs; exit 1;; *) echo $1;; esac";
    let ran = place.run_typed(&format!("-j2 --halt now,fail=1 --shell -- '{script}' ::: 1 2 3 4"));
    ran.check(1, "");
    ran.check_said(
        1,
        &["job 1 was ended with the run", "job 2 exited with 1", "1 of 1 jobs failed"],
    );
}

/// Job 3 fails while the jobs before and after it run, each of which says that it does.
fn ended_by_job_3(options: &str) -> (Place, Ran) {
    let place = Place::new();
    place.write("wait", WAIT);
    let waits = "for n in 1 2 4; do sh wait runs.$n; done";
    let script = format!("case $1 in 3) {waits}; exit 1;; *) touch runs.$1; sleep 60;; esac");
    let records = "--report r.json --report r.txt --results res --records";
    let line = format!("-j4 {records} {options} --shell -- '{script}' ::: 1 2 3 4 5 6");
    let ran = place.run_typed(&line);
    (place, ran)
}

#[test]
fn a_halt_has_one_account_everywhere() {
    for options in ["--halt now,fail=1", "--halt now,done=1", "--halt 2 --retries 0"] {
        let (place, ran) = ended_by_job_3(options);
        let halt = if options.contains("done") { "now,done=1" } else { "now,fail=1" };
        let ended = format!("ended by --halt {halt} after job 3; jobs that had not started");
        ran.check_said(1, &["1 of 1 jobs failed, and 3 were ended with the run", &ended]);
        let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
        assert_eq!(report["account"]["failed"], 1, "{report}");
        let jobs = |list: &str| -> Vec<u64> {
            let list = report[list].as_array().into_iter().flatten();
            list.map(|it| it["item"].as_u64().unwrap()).collect()
        };
        assert_eq!((jobs("failures"), jobs("failures_undelivered")), (vec![3], vec![1, 2, 4]));
        let said = format!("Ended by --halt {halt} after job 3: 1 failed, 3 ended with the run.");
        assert!(report["conclusion"].as_str().unwrap().starts_with(&said), "{report}");
        assert_eq!(report["provenance"]["settings"]["halted_after"], "3");
        let text = place.read("r.txt");
        assert!(text.replace('\n', " ").contains("after job 3: 1 failed,"), "{text}");
        let records: Vec<Value> =
            ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let is_ended = |record: &Value| record["ended_with_run"] == true;
        let ended = records.iter().filter(|it| is_ended(it)).map(|it| it["item"].as_u64().unwrap());
        assert_eq!(ended.collect::<Vec<_>>(), [1, 2, 4]);
        let job: Value = serde_json::from_str(&place.read("res/4/job.json")).unwrap();
        assert!(is_ended(&job) && job["result"] == "was ended with the run", "{job}");
    }
}

#[test]
fn a_run_that_ends_soon_names_the_job_and_ends_none() {
    for (options, failed, job) in [
        ("--halt soon,fail=2", 2, 4),
        ("--halt soon,fail=2 --retries 1", 2, 4),
        ("--halt soon,success=2", 1, 3),
        ("--halt soon,fail=50%", 3, 5),
    ] {
        let place = Place::new();
        let line = format!("-j1 {options} --retry-delay 0s --report r.json");
        let jobs = "0 1 0 1 1 0";
        let ran = place.run_typed(&format!("{line} --shell -- 'exit $1' ::: {jobs}"));
        let halt = options.split(' ').nth(1).unwrap();
        assert!(ran.stderr.contains(&format!("ended by --halt {halt} after job {job}")), "{ran:?}");
        let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
        assert_eq!(report["account"]["failed"], failed, "{report}");
        let said = format!(
            "Ended by --halt {halt} after job {job}: {failed} failed, 0 ended with the run."
        );
        assert!(report["conclusion"].as_str().unwrap().starts_with(&said), "{report}");
    }
}

#[test]
fn a_halt_that_left_nothing_out_is_not_named() {
    let place = Place::new();
    let line = "-j1 --halt soon,fail=1 --report r.json --shell -- 'exit $1' ::: 0 1";
    let ran = place.run_typed(line);
    assert!(!ran.stderr.contains("--halt"), "{ran:?}");
    assert!(!place.read("r.json").contains("Ended by"), "{ran:?}");
}

#[test]
fn a_job_that_takes_too_long_is_ended() {
    let place = Place::new();
    let ran =
        place.run_typed("-j1 --timeout 1 --shell -- '[ $1 = a ] && sleep 60; echo $1' ::: a b");
    ran.check(1, "b\n");
    ran.check_said(1, &["job 1 was ended: it took longer than 1 s"]);
}

#[test]
fn what_a_job_printed_before_it_was_ended_is_given() {
    let ran =
        Place::new().run_typed("--timeout 1 --shell -- 'echo early; sleep 60; echo late' ::: x");
    ran.check(1, "early\n");
}

#[test]
fn a_job_may_take_a_multiple_of_the_median() {
    let place = Place::new();
    // Job a, which began before there was a median, is ended too.
    let script = "case $1 in a|e) sleep 60;; *) sleep .1; echo $1;; esac";
    let ran = place.run_typed(&format!("-j2 --timeout 20x --shell -- '{script}' ::: a b c d e"));
    ran.check(2, "b\nc\nd\n");
    ran.check_said(2, &["job 1 was ended: it took longer", "job 5 was ended: it took longer"]);
}

#[test]
fn a_job_that_does_not_want_to_end_is_killed() {
    let place = Place::new();
    let script = "trap \"\" TERM; echo asked; while :; do sleep 1; done";
    let line = format!("--timeout 1 --kill-after 100ms --shell -- '{script}' ::: x");
    let ran = place.run_typed(&line);
    ran.check(1, "asked\n");
    ran.check_said(1, &["it took longer than 1 s"]);
}

#[test]
fn a_job_may_end_as_it_is_asked_to() {
    let place = Place::new();
    let script = "trap \"echo cleaned up; exit 0\" TERM; touch ready; while :; do sleep .05; done";
    let line = format!("--timeout 1 --kill-after 30s --shell -- '{script}' ::: x");
    place.run_typed(&line).check(1, "cleaned up\n");
}

#[test]
fn a_grandchild_that_holds_the_streams_is_not_waited_for() {
    let place = Place::new();
    for grandchild in ["sleep 60 &", "(trap \"\" HUP TERM; sleep 60) &"] {
        let ran = place.run_typed(&format!("-j1 --shell -- '{grandchild} echo $1' ::: a b"));
        ran.check(0, "a\nb\n");
    }
}

/// It has left the job's group, so it is neither killed nor waited for.
#[test]
fn a_daemon_that_holds_the_streams_is_not_waited_for() {
    let place = Place::new();
    let line = "-j1 --shell -- 'setsid sleep 60 & echo $1' ::: a";
    place.start_typed(line).ran().check(0, "a\n");
    assert_eq!(place.living().len(), 1, "the daemon");
}

#[test]
fn a_job_that_closes_its_streams_is_waited_for() {
    let place = Place::new();
    let line = "-j1 --shell -- 'exec >&- 2>&-; sleep .3; touch ended' ::: x";
    place.run_typed(line).check(0, "");
    assert!(place.path("ended").exists());
}

#[test]
fn a_worker_has_jobs_after_one_that_failed() {
    let place = Place::new();
    let script = "case $1 in 1) kill -9 $$;; 2) exit 3;; 3) sleep 60;; *) echo $1;; esac";
    let ran = place.run_typed(&format!("-j1 --timeout 1 --shell -- '{script}' ::: 1 2 3 4 5"));
    ran.check(3, "4\n5\n");
}

#[test]
fn control_characters_of_a_job_are_shown_in_messages() {
    let ran = Place::new().run(["--", "sh", "-c", "exit 1", "{}", ":::", "a\x1b[31m\n"]);
    ran.check_said(1, &["job 1 exited with 1: sh -c 'exit 1' $'a\\x1b[31m\\n'"]);
}
