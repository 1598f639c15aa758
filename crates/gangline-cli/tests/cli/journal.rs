//! `--journal`: jobs that are done are not repeated, and others are run.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::process::Command;

use rustix::process::{Signal, kill_process};

use crate::support::{Place, Ran};

/// Runs `echo` over these inputs, with a journal.
#[track_caller]
fn echo(place: &Place, options: &str, inputs: &str) -> Ran {
    place.run_typed(&format!("-j1 --journal j {options} -- echo ::: {inputs}"))
}

/// Checks which jobs run after a first run over other inputs.
#[track_caller]
fn resumes(first: &str, then: &str, stdout: &str) {
    let place = Place::new();
    assert_eq!(echo(&place, "", first).code, Some(0));
    echo(&place, "--resume", then).check(0, stdout);
    echo(&place, "--resume", then).check(0, "");
}

#[test]
fn done_jobs_are_recognised_by_their_content() {
    resumes("a b", "a b", "");
    resumes("a b", "a b c", "c\n");
    resumes("a b", "x b y a z", "x\ny\nz\n");
    resumes("a b c", "x y z", "x\ny\nz\n");
    resumes("'a b' a", "a b", "b\n");
    resumes("'' a", "a '' b", "b\n");
}

#[test]
fn records_and_lines_of_a_job_file_are_known_by_their_content() {
    let place = Place::new();
    let run = |options: &str, stdout: &str| {
        place.run_typed(&format!("-j1 {options}")).check(0, stdout);
    };
    place.write("t.csv", "a,b\n1,2\n3,4\n");
    run("--journal j --csv t.csv -- echo {a} {b}", "1 2\n3 4\n");
    place.write("t.csv", "a,b\n3,4\n1,4\n1,2\n");
    run("--resume --journal j --csv t.csv -- echo {a} {b}", "1 4\n");
    place.write("jobs", "echo a\necho b\n");
    run("--journal k --job-file jobs", "a\nb\n");
    place.write("jobs", "echo c\necho b\n# a\n");
    run("--resume --journal k --job-file jobs", "c\n");
}

#[test]
fn a_run_that_is_refused_has_started_no_job() {
    let place = Place::new();
    place.write("jobs", "--no-gpu touch started\necho a\n");
    place.write("j", "no journal\n");
    let ran = place.run_typed("--gpu-list 0 --journal j --job-file jobs");
    ran.check(105, "");
    assert!(!place.path("started").exists());
}

/// The disk is full, and standard input stays open without data: the run must not wait for it.
#[test]
fn a_journal_that_cannot_be_written_ends_the_run() {
    let place = Place::new();
    let (stdin, mut inputs) = std::io::pipe().unwrap();
    let program = env!("CARGO_BIN_EXE_gangline");
    let script = format!("trap '' XFSZ; ulimit -f 8; exec {program} run -j1 --journal j -- true");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(place.directory()).stdin(stdin);
    shell.env("TMPDIR", place.path("tmp"));
    let running = place.start(&mut shell);
    let lines: String = (0..20).map(|line| format!("{line}{}\n", "x".repeat(1_000))).collect();
    inputs.write_all(lines.as_bytes()).unwrap();
    let ran = running.ran();
    assert_eq!(ran.code, Some(105), "{ran:?}");
    drop(inputs);
}

#[test]
fn jobs_without_a_gpu_are_remembered_too() {
    let place = Place::new();
    place.write("jobs", "echo a\n--no-gpu echo b\n");
    let line = "--gpu-list 0 --journal j --job-file jobs";
    place.run_typed(line).check(0, "a\nb\n");
    place.write("jobs", "--no-gpu echo c\necho a\n--no-gpu echo b\necho d\n");
    place.run_typed(&format!("--resume {line}")).check(0, "c\nd\n");
    place.run_typed(&format!("--resume {line}")).check(0, "");
}

#[test]
fn a_journal_that_is_there_is_refused() {
    let place = Place::new();
    echo(&place, "", "a").check(0, "a\n");
    let before = place.read("j");
    let ran = echo(&place, "", "a b");
    ran.check(105, "");
    ran.check_said(105, &["the journal j exists already"]);
    assert_eq!(place.read("j"), before);
}

#[test]
fn a_missing_journal_is_created() {
    echo(&Place::new(), "--resume", "a").check(0, "a\n");
    let place = Place::new();
    place.write("j", "");
    echo(&place, "--resume", "a").check(0, "a\n");
}

#[test]
fn a_file_that_is_not_a_journal_is_refused() {
    for (name, said) in
        [("tmp", "tmp"), ("/dev/full", "/dev/full"), ("missing/j", "missing/j"), ("text", "text")]
    {
        let place = Place::new();
        place.write("text", "not a journal\n");
        let ran = place.run_typed(&format!("--journal {name} --resume -- touch ::: started"));
        ran.check_said(105, &[said]);
        assert!(!place.path("started").exists(), "{name}");
        assert_eq!(place.read("text"), "not a journal\n");
    }
}

#[test]
fn another_command_is_refused() {
    let place = Place::new();
    echo(&place, "", "a").check(0, "a\n");
    for command in ["-- echo -n", "-- printf", "--shell -- echo", "-- echo {}{}"] {
        let ran = place.run_typed(&format!("--journal j --resume {command} ::: a b"));
        ran.check(105, "");
        ran.check_said(105, &["the journal j is of another run: ", "or another --journal"]);
    }
    // Options that do not change outputs may differ.
    let other = "-j4 --timeout 60 --retries 2 --gpu-list '0 1' --no-keep-order";
    place.run_typed(&format!("--journal j --resume {other} -- echo ::: a b")).check(0, "b\n");
}

#[test]
fn a_journal_in_use_is_refused() {
    let place = Place::new();
    let line =
        "--journal j --resume --shell -- 'touch runs; until [ -e go ]; do sleep .02; done' ::: a";
    let running = place.start_typed(line);
    place.wait_for("runs");
    place.start_typed(line).ran().check_said(105, &["the journal j"]);
    place.write("go", "");
    running.ran().check(0, "");
}

/// A job that fails unless a file is named after its input.
const FAILS: &str = "--shell -- 'echo $1; [ -e ok.$1 ]' :::";

#[test]
fn what_failed_is_not_done() {
    let place = Place::new();
    place.write("ok.a", "");
    place.run_typed(&format!("-j1 --journal j {FAILS} a b c")).check(2, "a\nb\nc\n");
    place.write("ok.b", "");
    place.run_typed(&format!("-j1 --journal j --resume-failed {FAILS} a b c d")).check(1, "b\nc\n");
    place.run_typed(&format!("-j1 --journal j --resume-failed {FAILS} a b c d")).check(1, "c\n");
    place.write("ok.d", "");
    place.run_typed(&format!("-j1 --journal j --resume {FAILS} a b c d")).check(1, "c\nd\n");
    place.write("ok.c", "");
    place.run_typed(&format!("-j1 --journal j --resume {FAILS} a b c d")).check(0, "c\n");
}

#[test]
fn the_log_is_continued() {
    let place = Place::new();
    echo(&place, "--joblog log", "a b").check(0, "a\nb\n");
    // As after a power failure.
    place.write("log", place.read("log").trim_end());
    echo(&place, "--joblog log --resume", "a b c").check(0, "c\n");
    let log = place.read("log");
    let commands: Vec<&str> = log.lines().filter_map(|line| line.split('\t').nth(8)).collect();
    assert_eq!(commands, ["Command", "echo a", "echo b", "echo c"]);
}

#[test]
fn a_torn_journal_skips_nothing() {
    let place = Place::new();
    echo(&place, "", "a b").check(0, "a\nb\n");
    let first = place.read("j").len();
    echo(&place, "--resume", "a b c").check(0, "c\n");
    let whole = place.read("j");
    assert!(whole.len() > first && whole[first..].lines().count() == 1, "{whole}");
    for length in first..whole.len() {
        place.write("j", &whole[..length]);
        let ran = echo(&place, "--resume", "a b c");
        // Without its line end, the record may be used or dropped: its job was done.
        let is_whole = length == whole.len() - 1 && ran.stdout.is_empty();
        assert!(ran.code == Some(0) && (ran.stdout == "c\n" || is_whole), "{length}: {ran:?}");
        echo(&place, "--resume", "a b c").check(0, "");
    }
}

#[test]
fn a_torn_first_line_skips_nothing() {
    let place = Place::new();
    echo(&place, "", "a b").check(0, "a\nb\n");
    let whole = place.read("j");
    let header = whole.find('\n').unwrap();
    for length in (1..=header).step_by(17) {
        place.write("j", &whole[..length]);
        let ran = echo(&place, "--resume", "a b");
        let is_refused = ran.code == Some(105) && ran.stdout.is_empty();
        assert!(is_refused || ran.stdout == "a\nb\n", "{length}: {ran:?}");
    }
}

/// Kills a run after these numbers of ended jobs, and resumes it until it finishes.
#[track_caller]
fn survives(moments: &[usize], jobs: usize) {
    let place = Place::new();
    fs::create_dir(place.path("done")).unwrap();
    let list: String = (0..jobs).map(|job| format!("{job}\n")).collect();
    place.write("list", &list);
    let line = "-j2 --journal j --resume --input list --shell -- 'echo $1; echo >> done/$1'";
    let mut outputs: BTreeSet<String> = BTreeSet::new();
    for (kill, moment) in moments.iter().enumerate() {
        let mut running = place.start_typed(line);
        let victim = if kill % 2 == 0 { running.pid() } else { running.engine() };
        let mut line = [0];
        // Each output belongs to a job that was not recorded as done.
        let mut text = String::new();
        while text.lines().count() < *moment || !text.ends_with('\n') {
            running.read_stdout(&mut line);
            text.push(char::from(line[0]));
        }
        kill_process(victim, Signal::KILL).unwrap();
        text.push_str(&running.ran().stdout);
        outputs.extend(text.split_inclusive('\n').map(str::to_owned));
        place.check_no_process_is_left();
    }
    let last = place.run_typed(line);
    assert_eq!(last.code, Some(0), "{last:?}");
    outputs.extend(last.stdout.split_inclusive('\n').map(str::to_owned));
    let expected: BTreeSet<String> = list.split_inclusive('\n').map(str::to_owned).collect();
    assert_eq!(outputs, expected, "every output was given at least once");
    assert_eq!(place.names("done").len(), jobs);
    place.run_typed(line).check(0, "");
}

#[test]
fn a_killed_run_can_be_resumed() {
    survives(&[1, 1, 5, 9], 40);
    survives(&[3, 20, 2], 60);
}

/// Each but the first is so long that its outcome is on the disk before the next begins.
const LONG: &str = "echo x >> ran$1; if [ $1 = a ]; then sh wait go; else sleep .06; fi";

/// Runs four jobs that end while an earlier one runs, and kills the process before their outputs are printed.
fn killed_before_printing(place: &Place, line: &str) {
    place.write("wait", crate::output::WAIT);
    let running = place.start_typed(line);
    crate::support::wait_until("the last is held", || {
        let text: String = held(place).iter().map(|name| place.read(name)).collect();
        text.matches("{\"key\":").count() == 4 && text.ends_with('\n')
    });
    kill_process(running.engine(), Signal::KILL).unwrap();
    assert_eq!(running.ran().code, Some(137));
    place.write("go", "");
}

/// The files with outcomes beside the journal.
fn held(place: &Place) -> Vec<String> {
    let files = fs::read_dir(place.path("j.held")).into_iter().flatten().flatten();
    files.map(|file| format!("j.held/{}", file.file_name().into_string().unwrap())).collect()
}

/// How often each job ran.
fn runs(place: &Place) -> [usize; 4] {
    ["a", "b", "c", "d"].map(|job| place.read(&format!("ran{job}")).lines().count())
}

/// Jobs that ended while an earlier one ran: their outputs are not printed when the process is killed.
fn is_not_done_twice(options: &str, printed: &str) {
    let place = Place::new();
    let script = format!("{LONG}; echo out$1; echo err$1 >&2");
    let line = format!("-j2 {options} --journal j --shell -- '{script}' ::: a b c c d");
    killed_before_printing(&place, &line);
    assert_eq!(held(&place).len(), 1, "a slot has one file");
    let ran = place.run_typed(&format!("--resume {line}"));
    ran.check(0, printed);
    ran.check_said(0, &["4 jobs had ended when the last run was cut off, and did not run again"]);
    assert_eq!(runs(&place), [2, 1, 2, 1], "c is there twice");
    assert!(!place.path("j.held").exists());
    place.run_typed(&format!("--resume {line}")).check(0, "");
}

#[test]
fn a_job_that_has_ended_is_not_done_again() {
    is_not_done_twice("", "outa\noutb\noutc\noutc\noutd\n");
    is_not_done_twice("--results out", "outa\noutb\noutc\noutc\noutd\n");
    is_not_done_twice("--tag", "a\touta\nb\toutb\nc\toutc\nc\toutc\nd\toutd\n");
    is_not_done_twice("-k --line-buffer", "outa\noutb\noutc\noutc\noutd\n");
}

/// Kills a run again and again, also while outcomes of an earlier one wait to be printed.
#[test]
fn a_job_that_has_ended_is_not_done_again_after_two_kills() {
    let place = Place::new();
    let line = format!("-j2 --journal j --shell -- '{LONG}; echo out$1' ::: a b c c d");
    killed_before_printing(&place, &line);
    fs::remove_file(place.path("go")).unwrap();
    let running = place.start_typed(&format!("--resume {line}"));
    crate::support::wait_until("the first runs again", || runs(&place)[0] == 2);
    kill_process(running.engine(), Signal::KILL).unwrap();
    assert_eq!(running.ran().code, Some(137));
    place.write("go", "");
    let ran = place.run_typed(&format!("--resume {line}"));
    ran.check(0, "outa\noutb\noutc\noutc\noutd\n");
    assert_eq!(runs(&place), [3, 1, 2, 1], "c is there twice");
    assert!(!place.path("j.held").exists());
}

/// Jobs that are not in the input of the next run, or that it leaves out, are not done again by a later one.
#[test]
fn what_has_ended_is_kept_for_a_later_run() {
    let place = Place::new();
    let line = format!("-j2 --journal j --shell -- '{LONG}; echo out$1' :::");
    killed_before_printing(&place, &format!("{line} a b c c d"));
    place.run_typed(&format!("--resume-failed {line} a b c c d")).check(0, "");
    place.run_typed(&format!("--resume {line} a c d")).check(0, "outa\noutc\noutd\n");
    place.run_typed(&format!("--resume {line} a b c c d")).check(0, "outb\noutc\n");
    assert_eq!(runs(&place), [2, 1, 2, 1], "c is there twice");
    assert!(!place.path("j.held").exists());
}

/// A file of outcomes that is cut off or changed: the jobs that it no longer has run again, and no output is lost.
#[test]
fn damaged_outcomes_are_not_used() {
    let place = Place::new();
    let line = format!("-j2 --journal j --shell -- '{LONG}; echo out$1' ::: a b c c d");
    killed_before_printing(&place, &line);
    let [name] = &held(&place)[..] else { panic!("a slot has one file") };
    let (file, journal) = (place.read(name), place.read("j"));
    let entry = file.find("outb").unwrap();
    for (damaged, again) in [
        (file[..file.len() - 1].to_owned(), 1),
        (file[..entry].to_owned(), 4),
        (file.replacen("outb", "outx", 1), 4),
        (file.replacen("outd", "outx", 1), 1),
        (String::new(), 4),
        ("\0".repeat(file.len()), 4),
    ] {
        fs::create_dir_all(place.path("j.held")).unwrap();
        place.write("j", &journal);
        place.write(name, &damaged);
        let before: usize = runs(&place).iter().sum();
        let ran = place.run_typed(&format!("--resume {line}"));
        ran.check(0, "outa\noutb\noutc\noutc\noutd\n");
        assert_eq!(runs(&place).iter().sum::<usize>() - before, 1 + again, "{damaged}");
        assert!(!place.path("j.held").exists());
    }
}

/// A file of an earlier version has one outcome, and no checksum.
#[test]
fn outcomes_of_an_earlier_version_are_read() {
    let place = Place::new();
    echo(&place, "", "a").check(0, "a\n");
    fs::create_dir(place.path("j.held")).unwrap();
    let time = r#"{"secs":1,"nanos":0}"#;
    let outcome = |key: &str, length: usize| {
        format!(
            r#"{{"key":"{key}","occurrence":0,"command":"echo {key}","attempts":1,"slot":0,"gpus":[],"started":{time},"took":{time},"received":5,"file":null,"form":"Stream","stdout":{length},"stderr":0}}"#
        ) + "\nheld\n"
    };
    place.write("j.held/.tmpabcdef.job", outcome("b", 5));
    place.write("j.held/.tmpghijkl.job", outcome("c", 6));
    place.write("j.held/.tmpmnopqr", outcome("d", 5));
    let ran = echo(&place, "--resume", "a b c d");
    ran.check(0, "held\nc\nd\n");
    ran.check_said(0, &["1 job had ended when the last run was cut off, and did not run again"]);
    assert!(!place.path("j.held").exists());
}

#[test]
fn outcomes_that_cannot_be_kept_are_an_error_before_the_first_job() {
    for options in ["", "--resume"] {
        let place = Place::new();
        place.write("j.held", "mine");
        let ran = place.run_typed(&format!("--journal j {options} -- touch ::: started"));
        ran.check_said(105, &["the outcomes of jobs cannot be kept in j.held, beside the journal"]);
        assert!(!place.path("started").exists());
        assert_eq!(place.read("j.held"), "mine");
    }
}

/// The disk is full: the outcome of a job is longer than any file may be.
#[test]
fn an_outcome_that_cannot_be_written_ends_the_run() {
    let place = Place::new();
    let program = env!("CARGO_BIN_EXE_gangline");
    let script = "sleep .06; head -c 10000 /dev/zero | tr \"\\0\" x";
    let line = format!("run -j1 --journal j --resume --shell -- '{script}' ::: a b");
    let mut shell = Command::new("bash");
    let limited = format!("trap '' XFSZ; ulimit -f 8; exec {program} {line}");
    shell.args(["-c", &limited]).current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    let ran = place.ran(&mut shell);
    ran.check_said(105, &["the outcomes of jobs cannot be kept in j.held, beside the journal"]);
    let again = place.run_typed(line.trim_start_matches("run "));
    assert_eq!(again.code, Some(0), "{again:?}");
    assert_eq!(ran.stdout.len() + again.stdout.len(), 20_000, "each was printed once");
    assert!(!place.path("j.held").exists());
}

/// The disk is full: the results of the second job are longer than any file may be.
#[test]
fn a_job_whose_results_cannot_be_written_is_not_done() {
    for results in ["out", "out/{}.txt"] {
        let place = Place::new();
        let program = env!("CARGO_BIN_EXE_gangline");
        let script = "[ $1 != b ] || head -c 10000 /dev/zero | tr \"\\0\" x; echo $1";
        let line =
            format!("-j1 --journal j --resume --results {results} --shell -- '{script}' ::: a b c");
        let mut shell = Command::new("bash");
        let limited = format!("trap '' XFSZ; ulimit -f 8; exec {program} run {line}");
        shell
            .args(["-c", &limited])
            .current_dir(place.directory())
            .env("TMPDIR", place.path("tmp"));
        place.ran(&mut shell).check_said(106, &["the results of job 2 cannot be written"]);
        let again = place.run_typed(&line);
        assert_eq!((again.code, again.stdout.len()), (Some(0), 10_000 + 4), "{again:?}");
        let stdout = if results == "out" { "out/2/stdout" } else { "out/b.txt" };
        assert_eq!(place.read(stdout).len(), 10_002);
    }
}

#[test]
fn jobs_held_for_another_journal_are_forgotten() {
    let place = Place::new();
    std::fs::create_dir(place.path("j.held")).unwrap();
    place.write("j.held/x.job", "{}");
    place.run_typed("--journal j -- echo ::: a").check(0, "a\n");
    assert!(!place.path("j.held").exists());
}

#[test]
fn a_folder_of_the_user_beside_the_journal_stays() {
    let place = Place::new();
    std::fs::create_dir_all(place.path("j.held/more")).unwrap();
    for file in ["j.held/notes", "j.held/more/x.job", "j.held/job"] {
        place.write(file, "mine");
    }
    place.write("j.held/x.job", "{}");
    place.run_typed("--journal j -- echo ::: a").check(0, "a\n");
    assert_eq!(place.names("j.held"), ["job", "more", "notes"]);
    assert_eq!(place.read("j.held/more/x.job"), "mine");
}

#[test]
fn a_journal_that_is_gone_ends_the_run() {
    for (script, place_again) in
        [("rm j", false), ("mv j k", false), ("cp j k; mv k j", true), ("mkdir d; mv j d", false)]
    {
        let place = Place::new();
        let line = format!("-j1 --journal j --shell -- '{script}; touch ran$1' ::: 1 2 3");
        let ran = place.run_typed(&line);
        ran.check_said(105, &["the journal j was deleted, moved or replaced during the run"]);
        assert_eq!(place.path("j").exists(), place_again);
    }
}

/// `flock` on a file system without locks, for a process that loads this before the standard library.
const NO_LOCKS: &str =
    "#include <errno.h>\nint flock(int f, int o) { errno = ERROR; return -1; }\n";

#[test]
fn a_journal_on_a_file_system_without_locks_needs_a_switch() {
    for error in ["ENOSYS", "EOPNOTSUPP", "ENOLCK"] {
        let place = Place::new();
        let source = place.write("flock.c", NO_LOCKS);
        let library = place.path("flock.so");
        let mut cc = std::process::Command::new("cc");
        cc.args(["-shared", "-fPIC", &format!("-DERROR={error}"), "-o"]).args([&library, &source]);
        assert!(cc.status().expect("cc compiles C").success());
        let ran = |line: &str| place.ran(place.typed(line).env("LD_PRELOAD", &library));
        let refused = ran("run --journal j -- touch ::: started");
        refused.check_said(105, &["the journal j cannot be locked", "--no-journal-lock"]);
        assert!(!place.path("started").exists());
        ran("run --journal j --no-journal-lock -- echo ::: a").check(0, "a\n");
        ran("run --journal j --no-journal-lock --resume -- echo ::: a b").check(0, "b\n");
    }
    let place = Place::new();
    let ran = place.run_typed("--no-journal-lock -- touch ::: started");
    ran.check_said(102, &["--journal <FILE>"]);
}
