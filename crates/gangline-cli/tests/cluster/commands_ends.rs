//! How the jobs of `gangline run --nats` end: by a limit, by the run, or with a process that is killed.

use rustix::process::Signal;

use crate::shell_cluster::ShellCluster;
use crate::suite::tests;
use crate::support::{Place, wait_until};

tests![
    a_job_that_takes_too_long_is_ended_where_it_runs,
    a_halt_now_ends_jobs_where_they_run,
    a_halt_soon_starts_no_job_that_waits,
    no_more_jobs_run_than_asked_for,
    a_killed_worker_costs_an_attempt,
    a_job_that_ends_three_workers_has_failed,
    a_killed_coordinator_leaves_no_job_behind,
    an_interrupt_lets_jobs_end_and_a_second_kills_them,
    a_worker_that_comes_later_takes_part,
    a_worker_finishes_its_job_before_it_ends,
    without_a_worker_the_run_says_so,
    an_interrupt_ends_the_wait_for_a_worker,
];

/// Says that it has begun, and runs for ever.
const HANGS: &str = "touch begun.$1; exec sleep 1000";

fn a_job_that_takes_too_long_is_ended_where_it_runs() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster.run("--timeout 200ms --joblog log -- sleep {} ::: 1000 0");
    ran.check_said(1, &["job 1 was ended: it took longer than 200 ms"]);
    assert_eq!(cluster.log("log")[0][6..8], ["-1", "15"]);
    wait_until("no job is left", || hanging_in(&cluster.worker(0).place) == 0);
    cluster.end();
}

fn a_halt_now_ends_jobs_where_they_run() {
    let cluster = ShellCluster::start(&["cpu*3"]);
    let script = "until [ -e begun.b ] && [ -e begun.c ]; do [ $1 = a ] || break; sleep 0.01; done; \
                  [ $1 = a ] && exit 3; touch begun.$1; exec sleep 1000";
    let ran = cluster.run(&format!("--halt now,fail=1 -- sh -c '{script}' sh {{}} ::: a b c"));
    ran.check_said(1, &["job 1 exited with 3"]);
    assert_eq!(hanging_in(&cluster.worker(0).place), 0, "the run ends after its jobs");
    cluster.end();
}

fn a_halt_soon_starts_no_job_that_waits() {
    let cluster = ShellCluster::start(&["cpu*2"]);
    let script = "touch begun.$1; if [ $1 = 1 ]; then until [ -e begun.2 ]; do sleep 0.01; done; exit 3; fi; \
                  until [ -e go ]; do sleep 0.01; done; echo $1";
    let inputs: Vec<String> = (1..100).map(|n| n.to_string()).collect();
    let line = format!("--halt soon,fail=1 -- sh -c '{script}' sh {{}} ::: {}", inputs.join(" "));
    let mut running = cluster.start_run(&line);
    running.wait_for_stderr("job 1 exited with 3");
    cluster.place.write("go", "");
    let ran = running.ran();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let begun = cluster.place.names(".").into_iter().filter(|name| name.starts_with("begun"));
    assert!(begun.count() <= 4, "{:?}", cluster.place.names("."));
    cluster.end();
}

fn no_more_jobs_run_than_asked_for() {
    let cluster = ShellCluster::start(&["cpu*4"]);
    let script = "mkdir running || { echo two; exit; }; sleep 0.05; rmdir running; echo one";
    let ran = cluster.run(&format!("-j 1 -- sh -c '{script}' sh {{}} ::: 1 2 3 4 5"));
    ran.check(0, &"one\n".repeat(5));
    cluster.end();
}

fn a_killed_worker_costs_an_attempt() {
    let cluster = ShellCluster::start(&["cpu", "cpu"]);
    let script =
        "[ $1 = b ] && mkdir once 2>/dev/null && kill -9 $PPID && sleep 1000; echo $1 {attempt}";
    let ran = cluster.run(&format!("-- sh -c '{script}' sh {{}} ::: a b c"));
    ran.check(0, "a 1\nb 2\nc 1\n");
    ran.check_said(0, &["job 2 failed with its worker, which was lost on ", "and is retried"]);
    cluster.end();
}

fn a_job_that_ends_three_workers_has_failed() {
    let cluster = ShellCluster::start(&["cpu"]);
    let ran = cluster
        .run("--retries 0 -- sh -c 'echo x >> deaths; kill -9 $PPID; sleep 1000' sh {} ::: a");
    ran.check_said(1, &["job 1 failed with its worker"]);
    assert_eq!(cluster.place.read("deaths").lines().count(), 3);
    cluster.end();
}

fn a_killed_coordinator_leaves_no_job_behind() {
    let cluster = ShellCluster::start(&["cpu"]);
    let running = cluster.start_run(&format!("-- sh -c '{HANGS}' sh {{}} ::: a"));
    cluster.place.wait_for("begun.a");
    running.send(Signal::KILL);
    assert_eq!(running.ran().signal, Some(9));
    wait_until("the job has ended", || hanging_in(&cluster.worker(0).place) == 0);
    // The worker serves the next run.
    cluster.run("-- echo {} ::: next").check(0, "next\n");
    cluster.end();
}

fn an_interrupt_lets_jobs_end_and_a_second_kills_them() {
    let cluster = ShellCluster::start(&["cpu"]);
    let script = "touch begun.$1; until [ -e go ]; do sleep 0.01; done; echo $1";
    let mut running = cluster.start_run(&format!("-- sh -c '{script}' sh {{}} ::: a b"));
    cluster.place.wait_for("begun.a");
    running.send(Signal::INT);
    running.wait_for_stderr("Ctrl-C");
    cluster.place.write("go", "");
    running.ran().check(130, "a\n");
    let mut running = cluster.start_run(&format!("-- sh -c '{HANGS}' sh {{}} ::: c"));
    cluster.place.wait_for("begun.c");
    running.send(Signal::INT);
    running.wait_for_stderr("Ctrl-C");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    wait_until("the job has ended", || hanging_in(&cluster.worker(0).place) == 0);
    cluster.end();
}

fn a_worker_that_comes_later_takes_part() {
    let cluster = ShellCluster::start(&["cpu"]);
    let script =
        "touch begun.$1; until [ -e begun.a ] && [ -e begun.b ]; do sleep 0.01; done; echo $1";
    let running = cluster.start_run(&format!("-- sh -c '{script}' sh {{}} ::: a b"));
    cluster.place.wait_for("begun.a");
    let place = Place::new();
    let url = cluster.broker.url();
    let mut command = place.gangline(["worker", "--nats", &url, "--serve", "commands"]);
    let later = place.start(command.args(["--devices", "cpu"]));
    running.ran().check(0, "a\nb\n");
    later.send(Signal::TERM);
    later.ran().check(0, "");
    cluster.end();
}

fn a_worker_finishes_its_job_before_it_ends() {
    let cluster = ShellCluster::start(&["cpu"]);
    let script = "touch begun.$1; until [ -e go ]; do sleep 0.01; done; echo $1";
    let running = cluster.start_run(&format!("-- sh -c '{script}' sh {{}} ::: a"));
    cluster.place.wait_for("begun.a");
    cluster.worker(0).running.send(Signal::TERM);
    cluster.place.write("go", "");
    running.ran().check(0, "a\n");
    cluster.place.check_no_process_is_left();
    wait_until("the worker has ended", || cluster.worker(0).place.living().is_empty());
}

fn without_a_worker_the_run_says_so() {
    let cluster = ShellCluster::start(&[]);
    let ran = cluster.run("--wait-for 100ms --joblog log -- echo {} ::: a");
    ran.check_said(104, &["no worker was there for 100 ms"]);
    let nowhere = "--nats nats://127.0.0.1:1 --wait-for 100ms -- echo {} ::: a";
    let ran = cluster.place.run_typed(nowhere);
    ran.check_said(104, &["no connection to the broker at nats://127.0.0.1:1"]);
}

fn an_interrupt_ends_the_wait_for_a_worker() {
    let cluster = ShellCluster::start(&[]);
    let mut running = cluster.start_run("-- echo {} ::: a");
    running.wait_for_stderr("waiting for a worker");
    running.send(Signal::INT);
    running.ran().check(130, "");
}

/// The number of `sleep 1000` that were started here.
fn hanging_in(place: &Place) -> usize {
    let is_hanging = |pid: &rustix::process::Pid| {
        let options = std::fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_pid()));
        options.is_ok_and(|options| options == "sleep\x001000\0")
    };
    place.living().iter().filter(|pid| is_hanging(pid)).count()
}
