//! What a parent leaves to the program: ignored and blocked signals, and streams that do not block.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::{Command, Stdio};
use std::thread;

use rustix::process::{Pid, Signal};

use crate::support::{Place, Running, state, wait_until};

/// Starts the program through `env` with an option that changes what it inherits.
fn start_under(place: &Place, option: &str, line: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_gangline");
    let mut command = Command::new("env");
    command.arg(option).arg(program).arg("run");
    command.args(shlex::split(line).unwrap());
    command.current_dir(place.directory()).env("TMPDIR", place.path("tmp")).stdin(Stdio::null());
    place.start(&mut command)
}

/// Jobs that wait for the file `go`.
const WAITING: &str = "-j1 --shell -- 'touch begun; until [ -e go ]; do sleep 0.01; done' ::: a b";

/// Answers one item with its number.
const WORKER: &str = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    echo "{\"item\":$item,\"output\":$item}"
done
"#;

#[test]
fn ignored_ends_of_children_are_seen() {
    let place = Place::new();
    start_under(&place, "--ignore-signal=CHLD", "-- echo ::: a b").ran().check(0, "a\nb\n");
}

#[test]
fn blocked_ends_of_children_are_seen() {
    for signals in ["CHLD", "CHLD,TERM,INT,HUP", "USR1,VTALRM,PROF,CONT,CHLD"] {
        let option = format!("--block-signal={signals}");
        let place = Place::new();
        place.write("worker", WORKER);
        start_under(&place, &option, "-- echo ::: a b").ran().check(0, "a\nb\n");
        let warm = "-j2 --warm -- sh worker ::: a b";
        start_under(&place, &option, warm).ran().check(0, "1\n2\n");
        place.check_no_process_is_left();
    }
}

#[test]
fn blocked_signals_are_acted_on() {
    let signals =
        [(Signal::TERM, "TERM", 143), (Signal::HUP, "HUP", 129), (Signal::QUIT, "QUIT", 131)];
    for (signal, name, status) in signals {
        let place = Place::new();
        let option = format!("--block-signal={name}");
        let line = format!("--grace 0 {WAITING}");
        let running = start_under(&place, &option, &line);
        place.wait_for("begun");
        running.send(signal);
        if signal == Signal::HUP {
            place.write("go", "");
        }
        assert_eq!(running.ran().code, Some(status), "{name}");
        place.check_no_process_is_left();
    }
}

#[test]
fn a_blocked_interrupt_is_acted_on() {
    let place = Place::new();
    let mut running = start_under(&place, "--block-signal=INT,TSTP", WAITING);
    place.wait_for("begun");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    assert_eq!(running.ran().code, Some(130));
    place.check_no_process_is_left();
}

#[test]
fn a_blocked_stop_is_acted_on() {
    let place = Place::new();
    let running = start_under(&place, "--block-signal", WAITING);
    place.wait_for("begun");
    running.send(Signal::TSTP);
    wait_until("it has stopped", || state(running.pid()) == Some('T'));
    running.send(Signal::CONT);
    place.write("go", "");
    running.ran().check(0, "");
}

#[test]
fn jobs_have_no_blocked_signals() {
    let place = Place::new();
    for signals in ["CHLD", "TERM,INT", "USR2,WINCH,ALRM"] {
        let line = "-- grep SigBlk: ::: /proc/self/status";
        let ran = start_under(&place, &format!("--block-signal={signals}"), line).ran();
        ran.check(0, "SigBlk:\t0000000000000000\n");
    }
}

#[test]
fn an_interrupt_counts_whatever_else_is_ignored() {
    let place = Place::new();
    let mut running = start_under(&place, "--ignore-signal=USR1,USR2,VTALRM,PROF", WAITING);
    place.wait_for("begun");
    running.send(Signal::INT);
    running.wait_for_stderr("Ctrl-C");
    place.write("go", "");
    assert_eq!(running.ran().code, Some(130));
}

/// A full pipe with a non-blocking writer.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'#'; 4_096]).is_ok() {}
    (reader, writer)
}

/// Runs the program with both streams full and non-blocking, and checks that it prints what it prints otherwise.
#[track_caller]
fn prints_all(place: &Place, line: &str) {
    let plain = place.start(&mut place.typed(line)).ran();
    let (stdout, stderr) = (full_pipe(), full_pipe());
    let mut command = place.typed(line);
    command.stdout(stdout.1).stderr(stderr.1);
    let mut program = command.spawn().unwrap();
    drop(command);
    let pid = Pid::from_child(&program);
    // A sleeping program waits for its reader, or for something else for a moment.
    wait_until("it waits", || state(pid).is_none_or(|state| "SZ".contains(state)));
    let read = |mut pipe: PipeReader| {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes).map(|_| bytes).unwrap()
    };
    let (stdout, stderr) = thread::scope(|scope| {
        let stderr = scope.spawn(|| read(stderr.0));
        (read(stdout.0), stderr.join().unwrap())
    });
    assert_eq!(program.wait().unwrap().code(), plain.code, "{line}");
    let printed = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace('#', "");
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for (printed, plain) in [(printed(stdout), plain.stdout), (printed(stderr), plain.stderr)] {
        assert!(sorted(&printed) == sorted(&plain.replace('#', "")), "{line}: {printed:.300?}");
    }
}

/// Each job prints more than a pipe holds.
#[test]
fn outputs_wait_for_the_reader_of_a_non_blocking_stream() {
    let place = Place::new();
    let modes = ["", "--no-keep-order", "--line-buffer", "-k --line-buffer", "--tag", "--ungroup"];
    for mode in modes {
        for to in ["", ">&2"] {
            let script = format!("yes $1 | head -c 200000 {to}; exit 1");
            prints_all(&place, &format!("run {mode} -j1 --shell '{script}' ::: abcdefg hijklmn"));
        }
    }
}

#[test]
fn other_texts_wait_for_the_reader_of_a_non_blocking_stream() {
    let place = Place::new();
    let warm = place.write("worker", WORKER);
    let lines: String = (0..200).map(|line| format!("{line}\n")).collect();
    place.write("list", lines);
    place.run_typed("--report r.json --input list -- false");
    let texts = [
        "run --help",
        "run --no-such-option",
        "man run",
        "completions bash",
        "report r.json",
        "report --compare r.json r.json",
        "run --dry-run --input list -- echo",
        "run --input list -- false",
        "run --retries 1 -t --input list -- true",
    ];
    for text in texts {
        prints_all(&place, text);
    }
    prints_all(&place, &format!("run --warm -j1 --input list -- sh {}", warm.display()));
}

#[test]
fn progress_waits_for_the_reader_of_a_non_blocking_stream() {
    let place = Place::new();
    let (mut reader, stderr) = full_pipe();
    let mut command = place.typed("run --eta -- true ::: a b c");
    let mut program = command.stderr(stderr).spawn().unwrap();
    drop(command);
    let mut printed = String::new();
    reader.read_to_string(&mut printed).unwrap();
    assert!(program.wait().unwrap().success());
    assert!(printed.contains("3/3"), "{}", printed.replace('#', ""));
}

#[test]
fn inputs_of_a_non_blocking_stream_are_waited_for() {
    for (options, first) in [("", ""), ("--csv -", "x\n"), ("--header :", "x\n"), ("--input -", "")]
    {
        let place = Place::new();
        let (stdin, mut input) = std::io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&stdin, true).unwrap();
        let mut program = place.typed(&format!("run -j1 {options} -- touch {{}}"));
        let running = place.start(program.stdin(stdin));
        drop(program);
        input.write_all(format!("{first}one\n").as_bytes()).unwrap();
        place.wait_for("one");
        input.write_all(b"two\n").unwrap();
        drop(input);
        running.ran().check(0, "");
        place.wait_for("two");
    }
}
