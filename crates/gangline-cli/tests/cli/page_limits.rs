//! Limits that the pages of the program name: options that do not go together, and what is too large.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Place, state, wait_until};

/// Checks that each pair of options is refused before a job starts. The words after the options are a command.
#[track_caller]
fn apart(options: &[&str], others: &[&str], words: &str) {
    for (option, other) in options.iter().flat_map(|a| others.iter().map(move |b| (a, b))) {
        let place = Place::new();
        place.write("table", "name\na\n");
        place.write("jobs", "touch started\n");
        let ran = place.run_typed(&format!("{option} {other} {words}"));
        ran.check(102, "");
        assert!(ran.stderr.contains("cannot be used with"), "{option} {other}: {}", ran.stderr);
        assert!(!place.path("started").exists(), "{option} {other}");
    }
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    let job = "-- touch started";
    let (tables, named) = (["--csv table", "--tsv table"], ["--header :"]);
    let many = ["-X", "-m", "--xargs", "-s 100"];
    apart(&many, &tables, job);
    apart(&many, &named, "-- touch started ::: name a");
    apart(&many, &["--warm"], "-- touch started ::: a");
    apart(&["--jsonl"], &tables, job);
    apart(&["--jsonl"], &["--header :", "--colsep ,", "--trim lr"], "-- touch started ::: 1 2");
    apart(&["--jsonl", "--warm"], &["--job-file jobs"], "");
    let printed = ["--tag", "--tagstring {#}", "--files", "--line-buffer", "-u"];
    apart(&["--records", "--records=outcome"], &printed, "-- touch started ::: a");
    apart(&["--warm"], &["--line-buffer", "-u"], "-- touch started ::: a");
    apart(&["--warm"], &["--shell"], "'touch started' ::: a");
}

/// It is read twice.
#[test]
fn a_job_file_is_a_file() {
    let place = Place::new();
    let made = Command::new("mkfifo").arg(place.path("jobs")).status().unwrap();
    assert!(made.success());
    let ran = place.run_typed("--job-file jobs");
    ran.check_said(102, &["the job file must be a regular file, since it is read twice"]);
}

#[test]
fn a_niceness_is_from_0_to_19() {
    for niceness in ["20", "-1", "+1", "x"] {
        let ran = Place::new().run_typed(&format!("--nice={niceness} -- true ::: a"));
        ran.check_said(102, &["from 0 to 19"]);
    }
}

#[test]
fn of_ungrouped_jobs_the_log_has_no_bytes() {
    let place = Place::new();
    place.run_typed("-u -j1 --joblog log -- echo ::: a").check(0, "a\n");
    place.run_typed("-j1 --joblog grouped -- echo ::: a").check(0, "a\n");
    let bytes = |log: &str| {
        let line = place.read(log).lines().nth(1).unwrap().to_owned();
        line.split('\t').nth(5).unwrap().to_owned()
    };
    assert_eq!((bytes("log"), bytes("grouped")), ("0".to_owned(), "2".to_owned()));
}

/// Only the process that the program has started is watched.
#[test]
fn a_child_of_a_job_that_stops_is_not_noticed() {
    let place = Place::new();
    let script = "sh -c 'echo $$ > child; kill -STOP $$; echo on' & wait $!";
    place.write("job", script);
    let running = place.start_typed("-j1 -- sh job ::: a");
    place.wait_for("child");
    let mut child = None;
    wait_until("the child has stopped", || {
        child = place.read("child").trim().parse().ok().and_then(Pid::from_raw);
        child.and_then(state) == Some('T')
    });
    kill_process(child.unwrap(), Signal::CONT).unwrap();
    let ran = running.ran();
    ran.check(0, "on\n");
    assert_eq!(ran.stderr, "");
}

/// Each of the two would have killed the job after the end of the other one. The first is stopped here, so that it sees
/// nothing before it is killed too.
#[test]
fn a_job_outlives_two_processes_that_are_killed_at_once() {
    let place = Place::new();
    let running = place.start_typed("-j1 --shell -- 'touch started; exec sleep 1000' ::: a");
    place.wait_for("started");
    let (supervisor, engine) = (running.pid(), running.engine());
    let signals = [(supervisor, Signal::STOP), (engine, Signal::KILL), (supervisor, Signal::KILL)];
    signals.into_iter().for_each(|(pid, signal)| kill_process(pid, signal).unwrap());
    running.ran();
    wait_until("both have ended", || !place.living().contains(&engine));
    assert_eq!(place.living().len(), 1, "the job");
}

/// A process without end would fill the memory.
#[test]
fn an_answer_of_a_worker_has_at_most_64_mib() {
    let place = Place::new();
    let worker = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    case $line in
        *long*) printf '{"item":%s,"output":"' "$item"; yes | head -c 70000000 | tr '\n' y; echo '"}' ;;
        *) echo "{\"item\":$item,\"output\":1}" ;;
    esac
done
"#;
    place.write("worker", worker);
    let ran = place.run_typed("-j1 --warm -- sh worker ::: a long b");
    assert!(ran.stdout == "1\n1\n", "{} bytes", ran.stdout.len());
    ran.check_said(1, &["job 2", "printed more than 64 MiB without a line feed"]);
}
