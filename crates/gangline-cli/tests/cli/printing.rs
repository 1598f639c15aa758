//! Tags, lines in order, files, and what is printed beside outputs.

use crate::output::WAIT;
use crate::support::Place;

#[test]
fn lines_have_a_tag() {
    let place = Place::new();
    let script = "echo one; printf two; echo err >&2";
    let ran = place.run_typed(&format!("-j1 --tag --shell -- '{script}' ::: a b"));
    assert_eq!((&*ran.stdout, &*ran.stderr), ("a\tone\na\ttwob\tone\nb\ttwo", "a\terr\nb\terr\n"));
    let ran = place.run_typed("-j1 --tag --line-buffer --shell -- 'echo 1; printf 2' ::: a b");
    ran.check(0, "a\t1\na\t2\nb\t1\nb\t2\n");
    place.run_typed("-j1 --tagstring '{#}: {/.}' -- echo ::: x/y.z").check(0, "1: y\tx/y.z\n");
    place.write("t.csv", "a,b\n1,2\n");
    place.run_typed("--tag --csv t.csv -- echo {b}").check(0, "1 2\t2\n");
    place.run_typed("--tagstring '{a}' --csv t.csv -- echo {b}").check(0, "1\t2\n");
    place.run_typed("--tagstring '{gpu}' -- echo ::: a").check_said(102, &["--tagstring", "{gpu}"]);
}

/// A text beside the command shows the inputs of a job, wherever the command takes them.
#[test]
fn texts_have_the_marks_of_the_command() {
    let place = Place::new();
    place.run_typed("--tagstring '{1}{-1}' -n2 -- echo ::: a b c").check(0, "ab\ta b\ncc\tc\n");
    place.run_typed("-I ,, --tagstring ',,{#}' -- echo ,, ::: a").check(0, "a1\ta\n");
    place.run_typed("--plus --tagstring '{%.gz}' -- echo ::: a.gz").check(0, "a\ta.gz\n");
    let line = "--header : --tagstring '{x}{y}' --shell -- 'echo \"$1\"' ::: x a ::: y b";
    place.run_typed(line).check(0, "ab\ta\n");
    place.run_typed("--results 'out/{2}-{1}' -- true ::: a ::: b").check(0, "");
    assert!(place.path("out/b-a").exists());
    for text in ["{##}", "{3}", "{foo}"] {
        let line = format!("--tagstring '{text}' -- echo ::: a");
        place.run_typed(&line).check_said(102, &["--tagstring", text]);
    }
}

#[test]
fn an_ungrouped_job_prints_itself() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script = "printf $1; touch begun$1; sh wait go; printf $1";
    let running = place.start_typed(&format!("-j2 -u --shell -- '{script}' ::: a b"));
    place.wait_for("beguna");
    place.wait_for("begunb");
    place.write("go", "");
    let ran = running.ran();
    let mut letters: Vec<char> = ran.stdout.chars().collect();
    assert!(ran.stdout.starts_with("ab") || ran.stdout.starts_with("ba"), "{ran:?}");
    letters.sort_unstable();
    assert_eq!((ran.code, letters), (Some(0), vec!['a', 'a', 'b', 'b']));
    place.run_typed("-u --tag -- echo ::: a").check_said(102, &["--ungroup", "--tag"]);
}

/// The second job prints before the first has ended, and its lines wait.
#[test]
fn lines_in_order_come_while_the_first_job_runs() {
    let place = Place::new();
    place.write("wait", WAIT);
    let script = "case $1 in \
        a) echo a1; sh wait b1; echo a2; sh wait go; echo a3;; \
        b) echo b1; touch b1; sh wait went; echo b2; sh wait end; printf b3;; esac";
    let line = format!("-j2 -k --line-buffer --shell -- '{script}' ::: a b");
    let mut running = place.start_typed(&line);
    let mut first = [0; 6];
    running.read_stdout(&mut first);
    assert_eq!(&first, b"a1\na2\n");
    place.write("go", "");
    let mut second = [0; 6];
    running.read_stdout(&mut second);
    assert_eq!(&second, b"a3\nb1\n", "the line that waited comes when the first job has ended");
    place.write("went", "");
    let mut third = [0; 3];
    running.read_stdout(&mut third);
    assert_eq!(&third, b"b2\n", "a line of the job that is first now comes at once");
    place.write("end", "");
    running.ran().check(0, "b3\n");
}

#[test]
fn lines_in_order_of_many_jobs_are_whole() {
    let place = Place::new();
    let inputs: Vec<String> = (0..200).map(|job| job.to_string()).collect();
    let line = format!(
        "-j8 -k --line-buffer --shell -- 'echo $1; echo $1 >&2; printf $1' ::: {}",
        inputs.join(" ")
    );
    let ran = place.run_typed(&line);
    let expected: String = inputs.iter().map(|job| format!("{job}\n{job}\n")).collect();
    ran.check(0, &expected);
}

#[test]
fn commands_are_announced() {
    let place = Place::new();
    let ran = place.run_typed("-j1 -t -- echo {} 'x y' ::: a b");
    ran.check(0, "a x y\nb x y\n");
    assert_eq!(ran.stderr, "echo a 'x y'\necho b 'x y'\n");
    let ran = place.run_typed("-j1 --verbose -- echo ::: a");
    assert_eq!(ran.stderr, "echo a\n");
}

#[test]
fn names_of_files_are_printed_instead_of_outputs() {
    let place = Place::new();
    let ran = place.run_typed("-j1 --files --shell -- 'echo $1; echo e$1 >&2' ::: a b");
    assert_eq!((ran.code, &*ran.stderr), (Some(0), "ea\neb\n"));
    let texts: Vec<String> =
        ran.stdout.lines().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert_eq!(texts, ["a\n", "b\n"]);
    let ran = place.run_typed("-j1 --files --results out -- echo ::: a b");
    ran.check(0, "out/1/stdout\nout/2/stdout\n");
}

/// The program is on a terminal of 80 columns.
fn on_terminal(place: &Place, line: &str) -> String {
    let program = env!("CARGO_BIN_EXE_gangline");
    let script = format!("stty cols 80 rows 24; {}", line.replace("gangline", program));
    let mut command = std::process::Command::new("script");
    command.args(["-qec", &format!("sh -c '{script}'"), "/dev/null"]);
    command.current_dir(place.directory()).env("TMPDIR", place.path("tmp"));
    command.env("TERM", "xterm-256color").stdin(std::process::Stdio::null());
    let ran = place.ran(&mut command);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
}

#[test]
fn a_bar_knows_the_total_of_files_and_pipes() {
    let place = Place::new();
    // Added to the time to sleep.
    place.write("in", "0.01\n0.02\n0.03\n0.04\n");
    for option in ["--eta", "--bar", "--progress"] {
        for source in [
            "gangline run -j2 OPTION --input in -- sleep 0.2",
            "seq 0.01 0.01 0.04 | gangline run -j2 OPTION -- sleep 0.2",
        ] {
            let shown = on_terminal(&place, &source.replace("OPTION", option));
            assert!(shown.contains("2/4") && shown.contains("4/4 in"), "{option} {shown:?}");
        }
    }
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let place = Place::new();
    let line = "gangline run -j2 --eta -- sleep 0.2 ::: 0.01 0.02 0.03 0.04";
    let green = "\u{1b}[32m#";
    assert!(on_terminal(&place, line).contains(green));
    assert!(!on_terminal(&place, &format!("NO_COLOR=1 {line}")).contains(green));
    let ran = place.run_typed("-j2 --eta -- sleep 0.2 ::: 0.01 0.02 0.03 0.04");
    assert!(ran.code == Some(0) && !ran.stderr.contains('\u{1b}'), "{ran:?}");
}

#[test]
fn a_display_does_not_speak_of_failures_that_each_have_a_message() {
    let place = Place::new();
    let ran = place.run_typed("-j2 --eta -- sh -c 'exit $1' sh ::: 1 1 1");
    ran.check_said(3, &["job 3 exited with 1"]);
    assert!(!ran.stderr.contains("further failures"), "{ran:?}");
}
