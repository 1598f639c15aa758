//! Outputs, results and logs of jobs.

use std::fs::File;
use std::process::Stdio;

use crate::support::Place;

/// Waits until a file exists: `sh wait NAME`.
pub(crate) const WAIT: &str = "until [ -e $1 ]; do sleep .02; done";

#[test]
fn outputs_come_when_jobs_end() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script = "if [ $1 = a ]; then sh wait go; else touch go; fi; echo $1";
    place.run_typed(&format!("-j2 --shell -- '{script}' ::: a b")).check(0, "a\nb\n");
    std::fs::remove_file(place.path("go")).unwrap();
    // The second output arrives while the first job runs.
    let script = "if [ $1 = a ]; then sh wait go; fi; echo $1";
    let line = format!("-j2 --no-keep-order --shell -- '{script}' ::: a b");
    let mut running = place.start_typed(&line);
    let mut first = [0; 2];
    running.read_stdout(&mut first);
    assert_eq!(&first, b"b\n");
    place.write("go", "");
    running.ran().check(0, "a\n");
}

#[test]
fn a_line_is_there_before_the_job_ends() {
    let place = Place::new();
    place.write("wait", WAIT);
    let line = "--line-buffer --shell -- 'echo early; printf la; sh wait go; echo te' ::: x";
    let mut running = place.start_typed(line);
    let mut first = [0; 6];
    running.read_stdout(&mut first);
    assert_eq!(&first, b"early\n");
    place.write("go", "");
    running.ran().check(0, "late\n");
}

#[test]
fn lines_are_never_mixed() {
    let place = Place::new();
    let half = "x".repeat(300);
    let script = format!("for i in 1 2 3 4 5 6 7 8 9; do printf $1{half}; echo {half}$1; done");
    let ran = place.run_typed(&format!("-j4 --line-buffer --shell -- '{script}' ::: a b c d"));
    let mut lines: Vec<String> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|job| vec![format!("{job}{half}{half}{job}"); 9])
        .collect();
    lines.sort();
    assert_eq!((ran.code, ran.sorted()), (Some(0), lines.iter().map(String::as_str).collect()));
}

#[test]
fn a_line_without_end_gets_one_where_lines_are_given() {
    let ran = Place::new().run_typed("-j1 --line-buffer -- printf %s ::: a b");
    ran.check(0, "a\nb\n");
    Place::new().run_typed("-j1 -- printf %s ::: a b").check(0, "ab");
}

/// More than pipes and memory hold.
const MANY: usize = 10_000_000;

#[test]
fn large_outputs_arrive_whole() {
    let line = |job: &str| job.repeat(999) + "\n";
    let expected = ["a", "b", "c"].map(|job| line(job).repeat(MANY / 1_000)).concat();
    for options in ["-j3", "-j3 --no-keep-order", "-j3 --line-buffer"] {
        let place = Place::new();
        let script = format!("yes $(printf %0999d 0 | tr 0 $1) | head -c {MANY}");
        let ran = place.run_typed(&format!("{options} --shell -- '{script}' ::: a b c"));
        let sorted = ran.sorted().join("\n") + "\n";
        assert!(ran.code == Some(0) && sorted == expected, "{options}");
        assert!(ran.stdout == expected || options != "-j3", "in order");
        assert_eq!(place.names("tmp"), Vec::<String>::new(), "{options}");
    }
}

#[test]
fn a_large_output_of_a_later_job_waits() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script =
        format!("if [ $1 = a ]; then sh wait go; else yes | head -c {MANY}; touch go; fi; echo $1");
    let ran = place.run_typed(&format!("-j2 --shell -- '{script}' ::: a b"));
    assert_eq!((ran.code, ran.stdout.len()), (Some(0), MANY + 4));
    assert!(ran.stdout.starts_with("a\ny\n") && ran.stdout.ends_with("y\nb\n"));
}

#[test]
fn streams_are_kept_apart() {
    let place = Place::new();
    let ran = place.run_typed("-j2 --shell -- 'echo out$1; echo err$1 >&2' ::: 1 2");
    assert_eq!((&*ran.stdout, &*ran.stderr), ("out1\nout2\n", "err1\nerr2\n"));
    let script = "yes $1 | head -c 300000 >&2; yes o | head -c 300000";
    let ran = place.run_typed(&format!("-j2 --shell -- '{script}' ::: 1 2"));
    assert_eq!((ran.stdout.len(), ran.stderr.len()), (600_000, 600_000));
    assert_eq!(ran.stderr.trim_end_matches("2\n").trim_end_matches("1\n"), "");
}

#[test]
fn outputs_need_not_be_text() {
    let place = Place::new();
    let mut command = place.typed("run --shell -- 'printf \"\\377\\000\\033[31m\"' ::: x");
    assert_eq!(command.output().unwrap().stdout, b"\xff\0\x1b[31m");
}

#[test]
fn results_are_files() {
    let place = Place::new();
    let script = "echo out$1; echo err$1 >&2; exit $1";
    let ran = place.run_typed(&format!("-j1 --results res --shell -- '{script}' ::: 0 3"));
    ran.check(1, "out0\nout3\n");
    assert_eq!(place.names("res"), ["1", "2"], "nothing that is unfinished");
    assert_eq!(place.names("res/2"), ["job.json", "stderr", "stdout"]);
    assert_eq!(
        (place.read("res/2/stdout"), place.read("res/2/stderr")),
        ("out3\n".into(), "err3\n".into())
    );
    let job: serde_json::Value = serde_json::from_str(&place.read("res/2/job.json")).unwrap();
    assert_eq!(
        (&job["number"], &job["exit_code"], &job["attempts"]),
        (&2.into(), &3.into(), &1.into())
    );
    assert!(job["signal"].is_null() && job["seconds"].is_number(), "{job}");
    assert!(job["command"].as_str().unwrap().starts_with("sh -c"), "{job}");
}

#[test]
fn results_replace_those_of_an_earlier_run() {
    let place = Place::new();
    for text in ["first", "second"] {
        place
            .run_typed(&format!("--results res -- echo ::: {text}"))
            .check(0, &format!("{text}\n"));
        assert_eq!(place.read("res/1/stdout"), format!("{text}\n"));
        assert_eq!(place.names("res"), ["1"]);
    }
}

#[test]
fn results_have_large_outputs_too() {
    let place = Place::new();
    for options in ["", "--line-buffer"] {
        let line = format!("{options} --results res --shell -- 'yes | head -c {MANY}' ::: x");
        assert_eq!(place.run_typed(&line).code, Some(0));
        assert_eq!(place.read("res/1/stdout").len(), MANY);
    }
}

/// The columns of the log without times.
fn log(place: &Place) -> Vec<String> {
    let log = place.read("log");
    let lines = log.lines().map(|line| {
        let columns: Vec<&str> = line.split('\t').collect();
        assert_eq!(columns.len(), 11, "{line:?}");
        [&columns[..2], &columns[4..9]].concat().join("|")
    });
    lines.collect()
}

#[test]
fn the_log_has_a_line_for_each_job() {
    let place = Place::new();
    let script = "case $1 in k) kill -9 $$;; t) sleep 60;; *) printf ab; exit $1;; esac";
    let line = format!("-j1 --timeout 1 --joblog log --shell -- '{script}' ::: 0 3 k t");
    assert_eq!(place.run_typed(&line).code, Some(3));
    let log = log(&place);
    let begins: Vec<String> =
        log.iter().map(|line| line.rsplit_once('|').unwrap().0.into()).collect();
    let expected = [
        "Seq|Host|Send|Receive|Exitval|Signal",
        "1|:|0|2|0|0",
        "2|:|0|2|3|0",
        "3|:|0|0|0|9",
        "4|:|0|0|-1|15",
    ];
    assert_eq!(begins, expected);
    assert!(log[1].ends_with("sh 0"), "{log:?}");
}

#[test]
fn the_log_of_a_later_run_is_a_new_one() {
    let place = Place::new();
    place.write("log", "x".repeat(1_000));
    place.run_typed("--joblog log -- echo ::: a").check(0, "a\n");
    assert_eq!(log(&place).len(), 2);
}

#[test]
fn a_command_in_the_log_is_on_one_line() {
    let place = Place::new();
    place.run(["--joblog", "log", "--", "echo", ":::", "a\nb\tc\x1b"]).check(0, "a\nb\tc\x1b\n");
    assert_eq!(log(&place)[1], "1|:|0|7|0|0|echo $'a\\nb\\tc\\x1b'");
}

#[test]
fn a_job_that_prints_too_much_is_ended() {
    let place = Place::new();
    let ran = place.run_typed(
        "-j1 --max-output 10k --shell -- 'if [ $1 = a ]; then yes; fi; echo $1' ::: a b",
    );
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.stdout.starts_with("y\n") && ran.stdout.ends_with("b\n") && ran.stdout.len() < 1 << 20
    );
    ran.check_said(1, &["job 1 was ended: it printed more than 10240 bytes"]);
    place.run_typed("--max-output 2 --shell -- 'echo a' ::: x").check(0, "a\n");
}

/// The job has ended before it can be killed.
#[test]
fn a_job_that_prints_too_much_has_failed_however_quick_it_is() {
    let place = Place::new();
    let inputs: Vec<String> = (0..40).map(|input| input.to_string()).collect();
    let line =
        format!("-j4 --max-output 10 --shell -- 'head -c 5000 /dev/zero' ::: {}", inputs.join(" "));
    let ran = place.run_typed(&line);
    assert_eq!((ran.code, ran.stdout.len()), (Some(40), 400), "{}", ran.stderr);
}

#[test]
fn results_of_another_input_are_not_replaced() {
    let place = Place::new();
    let line = "-j1 --journal j --results out";
    place.run_typed(&format!("{line} -- echo ::: a b")).check(0, "a\nb\n");
    let ran = place.run_typed(&format!("--resume {line} -- echo ::: c a b"));
    ran.check(106, "");
    ran.check_said(106, &["out/1 has the results of another input, a"]);
    assert_eq!(place.read("out/1/stdout"), "a\n");
    place.run_typed(&format!("--resume {line} -- echo ::: a b d")).check(0, "d\n");
    assert_eq!(place.read("out/3/stdout"), "d\n");
}

/// The job before the bad input has printed output that was held back until then.
#[test]
fn what_ran_before_a_bad_input_is_given_in_any_order() {
    let place = Place::new();
    let line = "-j2 --no-keep-order --shell -- 'echo $1; sleep 0.3; echo $1'";
    let ran = place.run_typed_on(line, b"a\nb\0b\nc\n");
    ran.check(104, "a\na\n");
}

/// Two jobs that wait for each other, with room for one in the window.
#[test]
fn a_narrow_window_keeps_no_slot_idle() {
    let place = Place::new();
    let job = "'touch $1; while ! [ -e a -a -e b ]; do sleep 0.01; done'";
    place.run_typed(&format!("-j2 --window 1 --shell -- {job} ::: a b")).check(0, "");
}

#[test]
fn a_closed_standard_output_ends_the_run() {
    for options in ["", "--no-keep-order", "--line-buffer"] {
        let place = Place::new();
        place.write("wait", WAIT);
        let script = "case $1 in 1) echo 1;; 2) sh wait closed; echo 2;; *) sleep 60;; esac";
        let line = format!("-j3 {options} --shell -- '{script}' ::: 1 2 3 4 5");
        let mut running = place.start_typed(&line);
        let mut first = [0; 2];
        running.read_stdout(&mut first);
        running.close_stdout();
        place.write("closed", "");
        let ran = running.ran();
        assert_eq!(ran.code, Some(141), "{options}: {ran:?}");
        place.check_no_process_is_left();
    }
}

/// A pipe of which only the first line is read, as in a shell.
#[test]
fn the_first_line_of_a_pipe_is_enough() {
    let place = Place::new();
    let script = format!(
        "{} run -j2 -- echo ::: a b c d e f g h | head -n1",
        env!("CARGO_BIN_EXE_gangline")
    );
    let mut command = std::process::Command::new("sh");
    command.arg("-c").arg(script).current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    place.ran(command.stdin(Stdio::null())).check(0, "a\n");
}

#[test]
fn standard_error_that_is_closed_ends_nothing() {
    let place = Place::new();
    let mut command = place.typed("run --shell -- 'echo $1' ::: a b");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stderr(writer).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"a\nb\n"[..]));
}

#[test]
fn a_full_disk_is_reported() {
    let place = Place::new();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.typed("run -- echo ::: a b");
    let output = command.stdout(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(106), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("No space left"));
    for line in ["run --dry-run -- echo ::: a b", "--help", "run -h", "--version"] {
        let output = place.typed(line).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(106), "{line}");
    }
    place.check_no_process_is_left();
}

#[test]
fn a_report_that_cannot_be_written_is_noticed_before_the_first_job() {
    let place = Place::new();
    place.write("file", "");
    std::fs::create_dir(place.path("folder.html")).unwrap();
    for (path, said) in [
        ("missing/r.html", "No such file"),
        ("file/r.json", "Not a directory"),
        ("/proc/r.trace", "No such file"),
        ("folder.html", "is a directory"),
    ] {
        let ran = place.run_typed(&format!("--report r.txt --report {path} -- touch ::: started"));
        ran.check_said(106, &["the report ", path, "cannot be written", said]);
    }
    assert!(!place.path("started").exists() && !place.path("r.txt").exists());
}

#[test]
fn a_log_that_cannot_be_written_is_reported() {
    let place = Place::new();
    let ran = place.run_typed("--joblog /dev/full -- true ::: x");
    ran.check_said(106, &["No space left"]);
    let ran = place.run_typed("--joblog missing/log -- touch ::: started");
    ran.check_said(106, &["missing/log cannot be written", "No such file"]);
    place.write("file", "");
    let ran = place.run_typed("--results file/res -- touch ::: started");
    ran.check_said(106, &["file/res cannot be written"]);
    assert!(!place.path("started").exists());
}

#[test]
fn nothing_is_left_behind() {
    let place = Place::new();
    let line = "-j3 --results res --joblog log --report r.html --report r.json --report r.trace --report r.txt";
    let ran =
        place.run_typed(&format!("{line} --shell -- 'yes | head -c 100000; exit $1' ::: 0 1 0"));
    assert_eq!((ran.code, ran.stdout.len()), (Some(1), 300_000));
    assert_eq!(place.names("tmp"), Vec::<String>::new());
    assert_eq!(place.names("."), ["log", "r.html", "r.json", "r.trace", "r.txt", "res", "tmp"]);
    serde_json::from_str::<serde_json::Value>(&place.read("r.json")).unwrap();
    serde_json::from_str::<serde_json::Value>(&place.read("r.trace")).unwrap();
    assert!(place.read("r.html").contains("</html>"));
}

#[test]
fn a_report_needs_a_known_ending() {
    let ran = Place::new().run_typed("--report r.pdf -- touch ::: started");
    ran.check_said(102, &["r.pdf", ".html, .json, .trace or .txt"]);
}

#[test]
fn a_folder_that_takes_no_results_is_noticed_before_the_first_job() {
    let place = Place::new();
    place
        .run_typed("--results /proc/sys -- touch ::: started")
        .check_said(106, &["/proc/sys cannot be written"]);
    assert!(!place.path("started").exists());
}
