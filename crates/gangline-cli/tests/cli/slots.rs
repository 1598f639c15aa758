//! The GPUs of slots, and how jobs are given them.

use std::process::Command;

use crate::nvml::{FIRST, Machine, SECOND, gpu};
use crate::support::{Place, Ran};

/// Waits until COUNT jobs run at once: `sh meet COUNT`.
const MEET: &str =
    r#"touch "here.$$"; until [ "$(ls here.* | wc -l)" -ge "$1" ]; do sleep .02; done"#;

/// The words that `count` jobs print, which all run at once.
#[track_caller]
fn met(options: &str, count: usize, says: &str) -> Vec<String> {
    met_on(&|_| {}, options, count, says)
}

/// The same on a machine.
#[track_caller]
fn met_on(machine: &dyn Fn(&mut Command), options: &str, count: usize, says: &str) -> Vec<String> {
    let place = Place::new();
    place.write("meet", MEET);
    let jobs = vec!["x"; count].join(" ");
    let script = format!("sh meet {count}; echo {says}");
    let mut command = place.typed(&format!("run {options} --shell -- '{script}' ::: {jobs}"));
    machine(&mut command);
    let ran = place.ran(&mut command);
    assert_eq!(ran.code, Some(0), "{options}: {ran:?}");
    ran.sorted().into_iter().map(str::to_owned).collect()
}

/// Checks that all of these slots run jobs at once, each with its own GPUs, by a mark and by the variable.
#[track_caller]
fn have(options: &str, slots: &[&str]) {
    have_on(&|_| {}, options, slots);
}

/// The same for a list of devices, which needs a driver that reports them.
#[track_caller]
fn have_devices(options: &str, slots: &[&str]) {
    let machine = Machine::with([gpu(FIRST, 1), gpu(SECOND, 2), gpu(SECOND, 3), gpu(SECOND, 4)]);
    have_on(&|command| machine.drive(command), options, slots);
}

#[track_caller]
fn have_on(machine: &dyn Fn(&mut Command), options: &str, slots: &[&str]) {
    let numbered = |slots: &[String]| -> Vec<String> {
        slots.iter().enumerate().map(|(slot, gpus)| format!("{slot} {gpus}")).collect()
    };
    let by_mark: Vec<String> = slots.iter().map(|gpus| (*gpus).to_owned()).collect();
    let shown = met_on(machine, options, slots.len(), "{worker} {gpu}");
    assert_eq!(shown, numbered(&by_mark), "{options}");
    let by_variable: Vec<String> = slots.iter().map(|gpus| gpus.replace(' ', ",")).collect();
    let shown = met_on(machine, options, slots.len(), "{worker} $CUDA_VISIBLE_DEVICES");
    assert_eq!(shown, numbered(&by_variable), "{options}");
    // There are no further slots.
    let again =
        format!("run {options} --dry-run -- echo {{worker}} {{gpu}} ::: {}", "x ".repeat(9));
    let ran = Place::new().typed(&again).output().unwrap();
    let last = String::from_utf8(ran.stdout).unwrap().lines().max().unwrap().to_owned();
    assert!(last.starts_with(&format!("echo {} ", slots.len() - 1)), "{options}: {last}");
}

/// A row of the table: workers and a list; the GPUs of each worker if they share, and the slots.
#[track_caller]
fn row(workers: usize, list: &str, share: &[&str], slots: &[&str]) {
    have(&format!("-j{workers} --gpu-list '{list}' --share"), share);
    have(&format!("-j{workers} --gpu-list '{list}' --slots"), slots);
}

#[test]
fn one_worker_has_all_gpus() {
    row(1, "0 1", &["0 1"], &["0 1"]);
    row(1, "0", &["0"], &["0"]);
    row(1, "3 1", &["3 1"], &["3 1"]);
}

#[test]
fn as_many_workers_as_gpus_have_one_each() {
    row(2, "0 1", &["0", "1"], &["0", "1"]);
    row(4, "0 0 1 1", &["0", "0", "1", "1"], &["0", "0", "1", "1"]);
}

#[test]
fn more_workers_than_gpus_share_them_or_wait() {
    row(2, "0", &["0", "0"], &["0"]);
    row(3, "0 1", &["0", "1", "0"], &["0", "1"]);
    row(4, "0 1", &["0", "1", "0", "1"], &["0", "1"]);
    row(5, "0 1 2", &["0", "1", "2", "0", "1"], &["0", "1", "2"]);
}

#[test]
fn fewer_workers_than_gpus_have_several() {
    // A worker would get the same GPU twice, and owns it.
    row(2, "0 0 1 1", &["0", "1"], &["0", "1"]);
    row(2, "0 1 2 3", &["0 1", "2 3"], &["0 1", "2 3"]);
    row(2, "0 1 2", &["0", "1"], &["0 1", "2"]);
}

#[test]
fn what_is_left_over_goes_to_the_first_slots() {
    row(3, "0 1 2 3 4", &["0", "1", "2"], &["0 1", "2 3", "4"]);
    row(3, "0-7", &["0 1", "2 3", "4 5"], &["0 1 2", "3 4 5", "6 7"]);
    row(4, "0-6", &["0", "1", "2", "3"], &["0 1", "2 3", "4 5", "6"]);
}

#[test]
fn void_entries_are_kept_by_jobs_that_share() {
    row(2, "0 1 2 99", &["0 1", "2 99"], &["0 1", "2"]);
    row(2, "0 99 1 2", &["0 99", "1 2"], &["0", "1 2"]);
    row(2, "99 99 1 2", &["99", "1 2"], &["1 2"]);
    row(4, "0 99 2", &["0", "99", "2", "0"], &["0", "2"]);
}

#[test]
fn without_options_slots_are_the_devices() {
    have("--gpu-list '0 1 2'", &["0", "1", "2"]);
    have("-j2 --gpu-list '0 1 2'", &["0 1", "2"]);
    have("-j3 --gpu-list '2,4'", &["2", "4"]);
    have_devices("--devices cuda:0-2", &["0", "1", "2"]);
    have_devices("--devices cuda:0+cuda:1,cuda:2", &["0 1", "2"]);
}

#[test]
fn several_jobs_may_have_one_gpu() {
    have("--gpu-list '0 1' --per-gpu 2", &["0", "0", "1", "1"]);
    have_devices("--devices cuda:3 --per-gpu 3", &["3", "3", "3"]);
}

#[test]
fn a_list_without_gpus_starts_nothing() {
    for mode in ["--share", "--slots", ""] {
        let place = Place::new();
        let ran = place.run_typed(&format!("-j2 --gpu-list '99 99' {mode} -- touch ::: started"));
        ran.check_said(103, &["99,99"]);
        assert!(!place.path("started").exists());
    }
}

#[test]
fn a_text_that_is_no_list_is_refused() {
    for list in ["3-0", "0-1-2", "0;1", "0 - 3", "a", "-1", "1.0"] {
        let ran = Place::new().run(["--gpu-list", list, "--", "echo", ":::", "x"]);
        assert_eq!((ran.code, &*ran.stdout), (Some(102), ""), "{list}: {ran:?}");
    }
}

#[test]
fn one_slot_runs_one_job_at_a_time() {
    let place = Place::new();
    place.write("alone", "mkdir held || exit 1; sleep .02; rmdir held; echo $1 on $2");
    let ran = place.run_typed("-j4 --gpu-list 5 -- sh alone {} {gpu} ::: a b c d e");
    ran.check(0, "a on 5\nb on 5\nc on 5\nd on 5\ne on 5\n");
}

#[test]
fn six_jobs_share_two_workers() {
    let place = Place::new();
    let line = "-j2 --gpu-list '0 1' -- sh -c 'sleep .05; echo $1 $2' sh {} {gpu} ::: 1 2 3 4 5 6";
    let ran = place.run_typed(line);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.lines().zip(1..).all(|(line, job)| line.starts_with(&format!("{job} "))));
    assert_eq!(ran.stdout.lines().count(), 6);
}

/// Two jobs that repeatedly take and return a slot lose none.
#[test]
fn no_slot_is_ever_lost() {
    let place = Place::new();
    let jobs: Vec<String> = (0..150).map(|job| format!("sh job {}\n", job % 3)).collect();
    let mixed: String = jobs
        .iter()
        .enumerate()
        .map(|(i, job)| if i % 3 == 1 { format!("--no-gpu {job}") } else { job.clone() })
        .collect();
    place.write("jobs", format!("{mixed}sh meet 2\nsh meet 2\n"));
    place.write("meet", MEET.replace("$1", "2") + "; echo $CUDA_VISIBLE_DEVICES");
    place.write("job", "exit 0");
    let ran = place.run_typed("-j2 --gpu-list '0 1' --job-file jobs");
    assert_eq!((ran.code, ran.sorted()), (Some(0), vec!["0", "1"]), "{ran:?}");
}

/// However jobs end, no two share a slot at the same time, and in the end every slot is free.
#[test]
fn a_thousand_jobs_leave_every_slot_in_its_place() {
    let place = Place::new();
    // One in five fails both times; one in five is killed the first time.
    place.write(
        "job",
        "mkdir slot.$2 || { touch met; exit 0; }; rmdir slot.$2; case $(($1 % 5))$3 in 1*) exit 3;; \
         21) kill -9 $$;; esac",
    );
    place.write("meet", MEET.replace("$1", "4") + "; echo $CUDA_VISIBLE_DEVICES");
    let mut jobs: String =
        (0..1_000).map(|job| format!("sh job {job} {{worker}} {{attempt}}\n")).collect();
    jobs.push_str(&"sh meet 4\n".repeat(4));
    place.write("jobs", jobs);
    let ran =
        place.run_typed("-j4 --retries 1 --retry-delay 0s --gpu-list '3 1 1 7' --job-file jobs");
    assert_eq!(ran.code, Some(101), "200 have failed: {}", ran.stderr);
    assert!(ran.stderr.contains("200 of 1004 jobs failed"), "{}", ran.stderr);
    assert!(!place.path("met").exists(), "two jobs had one slot");
    assert_eq!(ran.sorted(), ["1", "1", "3", "7"]);
}

#[test]
fn a_job_without_a_gpu_overtakes() {
    let place = Place::new();
    place.write("jobs", "sh -c 'until [ -e go ]; do sleep .02; done; echo gpu'\n--no-gpu sh -c 'touch go; echo cpu'\n");
    place.run_typed("--gpu-list 0 --job-file jobs").check(0, "gpu\ncpu\n");
}

#[test]
fn a_job_without_a_gpu_sees_none() {
    let place = Place::new();
    let job = "sh -c 'echo ${{CUDA_VISIBLE_DEVICES-unset}}.'\n";
    place.write(
        "jobs",
        format!("# a remark\n\n{job}--no-gpu {job}--no-gpu sh -c 'echo $1' sh {{worker}}\n"),
    );
    place.run_typed("--gpu-list 3 --job-file jobs").check(0, "3.\n.\n1\n");
    place.run_typed("-j1 --job-file jobs").check(0, "unset.\nunset.\n0\n");
}

#[test]
fn a_job_without_a_gpu_has_no_mark_for_one() {
    let place = Place::new();
    place.write("jobs", "touch started\necho {gpu}\n--no-gpu echo {gpu}\n");
    let ran = place.run_typed("--gpu-list 3 --job-file jobs");
    ran.check_said(102, &["line 3 of jobs is not a command", "{gpu}"]);
    assert!(!place.path("started").exists());
}

#[test]
fn a_job_file_is_checked_before_anything_starts() {
    for (line, part) in
        [("echo 'open", "a quote is not closed"), ("echo {}", "{}"), ("A=1", "no command")]
    {
        let place = Place::new();
        place.write("jobs", format!("touch started\n{line}\n"));
        place
            .run_typed("--job-file jobs")
            .check_said(102, &["line 2 of jobs is not a command", part]);
        assert!(!place.path("started").exists());
    }
}

/// Checks what a job sees in a run with these variables.
#[track_caller]
fn sees(variables: &[(&str, &str)], options: &str, says: &str, stdout: &str) {
    let place = Place::new();
    let mut command = place
        .typed(&format!("run -j1 {options} --gpu-separator comma --shell -- 'echo {says}' ::: x"));
    place.ran(command.envs(variables.iter().copied())).check(0, stdout);
}

const VISIBLE: &str = "${CUDA_VISIBLE_DEVICES-unset} ${CUDA_DEVICE_ORDER-unset}";

#[test]
fn without_a_mark_the_variable_shows_the_gpus() {
    sees(&[], "--gpu-list '2 1'", VISIBLE, "2,1 PCI_BUS_ID\n");
    sees(&[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")], "--gpu-list 2", VISIBLE, "2 FASTEST_FIRST\n");
    sees(&[], "", VISIBLE, "unset unset\n");
}

#[test]
fn with_a_mark_the_variable_is_left_alone() {
    let says = format!("{{gpu}} {VISIBLE}");
    sees(&[], "--gpu-list '2 1'", &says, "2,1 unset unset\n");
    sees(&[("CUDA_VISIBLE_DEVICES", "4,5,6,7")], "--gpu-list '2 1'", &says, "2,1 4,5,6,7 unset\n");
}

#[test]
fn visible_forces_both() {
    let says = format!("{{gpu}} {VISIBLE}");
    sees(&[], "--visible --gpu-list '2 1'", &says, "0,1 2,1 PCI_BUS_ID\n");
    sees(
        &[("CUDA_VISIBLE_DEVICES", "4,5,6,7")],
        "--visible --gpu-list '2 1'",
        &says,
        "0,1 6,5 PCI_BUS_ID\n",
    );
}

#[test]
fn ids_count_what_is_visible() {
    let visible = [("CUDA_VISIBLE_DEVICES", "4,5,6,7")];
    sees(&visible, "--gpu-list 0", VISIBLE, "4 PCI_BUS_ID\n");
    sees(&visible, "--gpu-list '3 1'", VISIBLE, "7,5 PCI_BUS_ID\n");
    let uuid = [("CUDA_VISIBLE_DEVICES", "GPU-11111111-2222-3333-4444-555555555555,5")];
    sees(&uuid, "--gpu-list 0", VISIBLE, "GPU-11111111-2222-3333-4444-555555555555 PCI_BUS_ID\n");
}

#[test]
fn a_hidden_gpu_starts_nothing() {
    for (visible, list) in [("4,5", "0 3"), ("", "0"), ("4,5,6,7", "4")] {
        let place = Place::new();
        let mut command = place.typed(&format!("run --gpu-list '{list}' -- touch ::: started"));
        let ran: Ran = place.ran(command.env("CUDA_VISIBLE_DEVICES", visible));
        ran.check_said(103, &["CUDA_VISIBLE_DEVICES"]);
        assert!(!place.path("started").exists());
    }
}

#[test]
fn a_list_need_not_be_used() {
    sees(&[], "--use-gpu=false --gpu-list '0 1'", VISIBLE, "unset unset\n");
    let workers = met("-j3 --use-gpu=false --gpu-list 0", 3, "{worker}");
    assert_eq!(workers, ["0", "1", "2"], "the list is no limit either");
}

pub(crate) const UUID: &str = "GPU-11111111-2222-3333-4444-555555555555";

#[test]
fn two_runs_do_not_meet_on_one_gpu() {
    let place = Place::new();
    std::fs::create_dir(place.path("locks")).unwrap();
    let locked = |rest: &str| {
        let options = "run --lock-gpus --lock-dir locks --gpu-list 0";
        let mut command = place.typed(&format!("{options} {rest}"));
        command.env("CUDA_VISIBLE_DEVICES", UUID);
        command
    };
    let wait = "touch held; until [ -e go ]; do sleep .02; done";
    let first = place.start(&mut locked(&format!("--shell -- '{wait}' ::: x")));
    place.wait_for("held");
    let second = place.start(&mut locked("-- touch ::: started")).ran();
    second.check_said(103, &["in use"]);
    assert!(!place.path("started").exists());
    place.write("go", "");
    first.ran().check(0, "");
    place.ran(&mut locked("-- echo ::: x")).check(0, "x\n");
}
