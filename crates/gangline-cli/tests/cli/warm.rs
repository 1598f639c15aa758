//! Warm workers: processes that are started once and receive many inputs.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;

use crate::support::Place;

/// A worker in sh. The first word of an input selects the reaction.
pub(crate) const WORKER: &str = r#"
echo start >> starts.$1
read -r hello
echo "$hello" > hello.$1
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    input=${line#*\"input\":}; input=${input%\}}
    attempt=${line#*\"attempt\":}; attempt=${attempt%%,*}
    case $input in
        '"crash'*) kill -9 $$ ;;
        '"exit'*) echo last words >&2; exit 3 ;;
        '"leave'*) exit 0 ;;
        '"garbage'*) echo Loading model... ;;
        '"other'*) echo "{\"item\":99,\"output\":1}" ;;
        '"hang'*) touch hanging; sleep 1000 ;;
        '"close'*) exec >&-; sleep 1000 ;;
        '"deaf'*) exec <&-; sleep 1000 ;;
        '"half'*) printf '{"item":%s,' $item; kill -9 $$ ;;
        '"error'*) echo "{\"item\":$item,\"error\":\"out of focus\"}" ;;
        '"loud'*) echo "seen $item" >&2; echo "{\"item\":$item,\"output\":$input}" ;;
        '"object'*) echo "{\"item\":$item,\"output\":{\"n\":[1,2.5,null]}}" ;;
        '"nothing'*) echo "{\"item\":$item,\"output\":null}" ;;
        '"third'*) if [ $attempt = 3 ]
            then echo "{\"item\":$item,\"output\":\"attempt $attempt\"}"
            else echo "{\"item\":$item,\"error\":\"not yet\"}"; fi ;;
        '"once'*) if [ -e once ]
            then echo "{\"item\":$item,\"output\":$input}"
            else touch once; kill -9 $$; fi ;;
        *) echo "{\"item\":$item,\"output\":$input}" ;;
    esac
done
echo end >> ends
"#;

pub(crate) fn place() -> Place {
    let place = Place::new();
    place.write("worker", WORKER);
    place
}

/// Runs these inputs on one slot, and checks outputs and messages.
#[track_caller]
fn check(options: &str, inputs: &str, status: i32, stdout: &str, said: &[&str]) {
    let place = place();
    let slots = if options.contains("-j") { "" } else { "-j1" };
    let line = format!("{slots} --warm {options} -- sh worker {{worker}} ::: {inputs}");
    let ran = place.run_typed(&line);
    ran.check(status, stdout);
    ran.check_said(status, said);
    assert_eq!(place.names("tmp"), Vec::<String>::new());
}

#[test]
fn results_come_in_order() {
    let place = place();
    let list: Vec<String> = (0..60).map(|item| format!("{item}")).collect();
    let ran =
        place.run_typed(&format!("-j3 --warm -- sh worker {{worker}} ::: {}", list.join(" ")));
    ran.check(0, &(list.join("\n") + "\n"));
    assert_eq!(ran.stderr, "");
    let starts = |worker: usize| place.path(&format!("starts.{worker}"));
    let started = (0..3).filter(|worker| starts(*worker).exists()).count();
    assert!(started >= 1);
    for worker in (0..3).filter(|worker| starts(*worker).exists()) {
        assert_eq!(place.read(&format!("starts.{worker}")), "start\n", "once");
    }
    assert_eq!(place.read("ends").lines().count(), started, "each came to its own end");
}

#[test]
fn a_worker_is_told_of_its_slot() {
    let place = place();
    let line = "--warm --threads 3 --gpu-list '5 6' -j1 -- sh worker";
    place.run_typed(&format!("{line} {{worker}} ::: a")).check(0, "a\n");
    let hello = r#"{"gangline":2,"worker":0,"gpus":["0","1"],"threads":3,"batch":1}"#;
    assert_eq!(place.read("hello.0").trim(), hello, "the variable shows them from 0");
    place.run_typed(&format!("{line} {{gpu}} ::: a")).check(0, "a\n");
    let hello = r#"{"gangline":2,"worker":0,"gpus":["5","6"],"threads":3,"batch":1}"#;
    assert_eq!(place.read("hello.5").trim(), hello);
}

#[test]
fn results_are_printed_as_they_are() {
    check("", "object nothing 'a b\\\\n'", 0, "{\"n\":[1,2.5,null]}\na b\\n\n", &[]);
}

#[test]
fn records_are_objects() {
    let place = place();
    place.write("t.csv", "id,name\n1,\"x \"\"y\"\"\"\n");
    let ran = place.run_typed("-j1 --warm --csv t.csv -- sh worker w");
    ran.check(0, "{\"id\":\"1\",\"name\":\"x \\\"y\\\"\"}\n");
}

#[test]
fn lines_of_standard_input_are_sent() {
    let place = place();
    let ran = place.run_typed_on("-j1 --warm -- sh worker w", "a\n\nb \"c\"\n");
    ran.check(0, "a\n\nb \"c\"\n");
}

#[test]
fn an_input_that_is_no_text_fails_alone() {
    let place = place();
    let ran = place.run_typed_on("-j1 --warm -- sh worker w", b"a\n\xff\nb\n");
    ran.check(1, "a\nb\n");
    ran.check_said(1, &["job 2 failed: the input is not UTF-8"]);
}

/// What a worker says about an item is shown although it is not Unicode.
#[test]
fn a_reason_that_is_not_unicode_is_told() {
    for (said, shown) in [
        (r#"printf '{"item":1,"error":"caf\351.mrc"}\n'"#, "job 1 failed: caf\u{fffd}.mrc: "),
        (r#"printf '{"item":1,"error":"caf\\udce9.mrc"}\n'"#, "job 1 failed: caf\u{fffd}.mrc: "),
        (
            r#"printf '{"log":"caf\351.mrc","level":"\\ud800"}\n{"item":1,"error":"no"}\n'"#,
            "\u{fffd}: caf\u{fffd}.mrc",
        ),
    ] {
        let place = Place::new();
        place.write(
            "worker",
            format!("read -r x; echo '{{\"gangline\":2}}'; read -r x; {said}; read -r x"),
        );
        let ran = place.run_typed("-j1 --warm -- sh worker ::: a");
        ran.check_said(1, &[shown]);
    }
}

#[test]
fn a_worker_may_begin_with_a_byte_order_mark() {
    let place = Place::new();
    let worker = r#"read -r x; printf '\357\273\277{"gangline":1}\n'; read -r x; echo '{"item":1,"output":"read"}'; read -r x"#;
    place.write("worker", worker);
    place.run_typed("-j1 --warm -- sh worker ::: a").check(0, "read\n");
    place.write("list", "\u{feff}a\n");
    place.run_typed("-j1 --input list -- echo").check(0, "a\n");
    place.run_typed("-j1 -- echo ::: \u{feff}a").check(0, "\u{feff}a\n");
}

#[test]
fn an_error_is_the_items() {
    check("", "a error b", 1, "a\nb\n", &["job 2 failed: out of focus", "1 of 3 jobs failed"]);
    check("--retries 2", "third b", 0, "attempt 3\nb\n", &[]);
    check("--retries 1", "third b", 1, "b\n", &["job 1 failed: not yet"]);
}

/// A worker is asked for a value, and writes one that JSON does not have.
#[test]
fn a_value_that_is_no_json_fails_its_item() {
    let values = ["NaN", "Infinity", "-Infinity", "nan", "1e999", "\"\\ud800\"", "\"\\udc00 \""];
    let whys = ["NaN is not", "Infinity is not", "-Infinity is not", "nan is not"];
    let place = place();
    place.write("values", values.map(|value| format!("{value}\n")).concat() + "1.5\n");
    let worker = r#"
        echo start >> starts
        read -r hello
        echo '{"gangline":1}'
        while read -r line; do
            item=${line#*\"item\":}; item=${item%%,*}
            value=$(sed -n ${item}p values)
            printf '{"output":{"loss":["NaN",%s]},"item":%s}\n' "$value" "$item"
        done"#;
    place.write("worker", worker);
    let ran = place.run_typed("-j1 --warm --report r.json -- sh worker ::: 1 2 3 4 5 6 7 8");
    ran.check(7, "{\"loss\":[\"NaN\",1.5]}\n");
    for (item, why) in (1..).zip(whys) {
        ran.check_said(7, &[&format!("job {item} failed: its answer cannot be read: {why} JSON")]);
    }
    ran.check_said(7, &["job 5 failed: its answer cannot be read: number out of range"]);
    assert!(!ran.stderr.contains("at attempt"), "{ran:?}");
    assert_eq!(place.read("starts"), "start\n");
    let ran = place.run_typed("-j1 --warm --retries 1 -- sh worker ::: a");
    assert_eq!(ran.stderr.matches("NaN is not JSON at attempt 1, and is retried").count(), 1);
    assert_eq!(place.read("starts"), "start\nstart\n");
}

#[test]
fn what_a_worker_says_aside_is_its_items() {
    check("", "a loud b", 0, "a\nloud\nb\n", &["seen 2\n"]);
}

#[test]
fn a_worker_that_fails_is_started_anew() {
    let with = |input: &str, said: &str| {
        check(
            "",
            &format!("a {input} b"),
            1,
            "a\nb\n",
            &["job 2 failed with its worker, which", said],
        );
    };
    with("crash", "was killed by SIGKILL before it answered");
    with("exit", "exited with 3 before it answered");
    with("leave", "exited with 0 before it answered");
    with("half", "was killed by SIGKILL");
    with("garbage", "printed a line that is not of the protocol");
    with("garbage", "Loading model...");
    with("other", " instead of 2");
    with("close", "closed its standard output");
}

#[test]
fn last_words_are_kept() {
    check("", "a exit b", 1, "a\nb\n", &["last words\n"]);
}

#[test]
fn a_worker_that_hangs_is_ended() {
    check("--timeout 1", "a hang b", 1, "a\nb\n", &["job 2 was ended: it took longer than 1 s"]);
}

#[test]
fn an_item_is_tried_again_with_a_new_worker() {
    check("--retries 1", "a once b", 0, "a\nonce\nb\n", &[]);
    check("-j2", "a once b", 0, "a\nonce\nb\n", &[]);
}

#[test]
fn the_words_of_a_worker_have_no_input() {
    for mark in ["{}", "{#}", "{attempt}", "{.}"] {
        let ran = Place::new().run_typed(&format!("--warm -- touch started {mark} ::: a"));
        ran.check(102, "");
        ran.check_said(102, &["with --warm a command is started once for all"]);
    }
    for options in ["--shell", "--line-buffer", "--job-file x"] {
        let ran = Place::new().run_typed(&format!("--warm {options} -- touch ::: a"));
        assert_eq!(ran.code, Some(102), "{options}: {ran:?}");
    }
}

#[test]
fn items_are_written_down() {
    let place = place();
    let line = "-j1 --warm --results res --joblog log --journal j";
    let ran = place.run_typed(&format!("{line} -- sh worker w ::: a error b"));
    ran.check(1, "a\nb\n");
    assert_eq!((place.read("res/1/stdout"), place.names("res").len()), ("a\n".into(), 3));
    assert_eq!(place.read("log").lines().count(), 4);
    let line = line.replace("--results res", "--results later");
    let ran = place.run_typed(&format!("{line} --resume -- sh worker w ::: b c a error"));
    assert_eq!((ran.code, ran.sorted().contains(&"c")), (Some(1), true), "{ran:?}");
    assert!(!ran.stdout.contains('a') && !ran.stdout.contains('b'), "{ran:?}");
}

/// It has closed its standard input before the next item is sent.
#[test]
fn a_worker_that_hears_no_more_is_started_again() {
    let place = Place::new();
    place.write(
        "worker",
        r#"
echo start >> starts
read -r hello
echo '{"gangline":1}'
read -r line
exec <&-
item=${line#*\"item\":}; item=${item%%,*}
echo "{\"item\":$item,\"output\":$item}"
sleep 1000
"#,
    );
    // The last one may have files to write.
    let ran = place.run_typed("-j1 --warm --end-timeout 100ms -- sh worker ::: a b c");
    ran.check(106, "1\n2\n3\n");
    assert!(!ran.stderr.contains("at attempt"), "it is no fault of the item: {}", ran.stderr);
    assert_eq!(place.read("starts").lines().count(), 3);
}

/// The worker neither answers nor exits.
#[test]
fn a_worker_that_closes_its_input_in_the_middle_of_an_item_is_not_waited_for() {
    let long = "x".repeat(300_000);
    let place = Place::new();
    place.write("worker", "read -r hello; echo '{\"gangline\":1}'; exec <&-; sleep 1000");
    let ran = place.run_typed_on("-j1 --warm --max-restarts 1 -- sh worker", format!("{long}\n"));
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("closed its standard input"), "{}", ran.stderr);
}

#[test]
fn the_last_words_of_a_worker_that_ended_between_items_are_given() {
    let place = Place::new();
    place.write(
        "worker",
        r#"
read -r hello
echo '{"gangline":1}'
read -r line
item=${line#*\"item\":}; item=${item%%,*}
echo "{\"item\":$item,\"output\":$item}"
exec >&-
echo "gone after $item" >&2
: > "gone.$item"
"#,
    );
    let made = Command::new("mkfifo").arg(place.path("list")).status().unwrap();
    assert!(made.success());
    let running = place.start_typed("-j1 --warm --input list -- sh worker");
    let mut list = File::options().write(true).open(place.path("list")).unwrap();
    list.write_all(b"a\n").unwrap();
    // A worker that receives an item while it exits counts as ended at that item.
    place.wait_for("gone.1");
    list.write_all(b"b\n").unwrap();
    drop(list);
    let ran = running.ran();
    ran.check(0, "1\n2\n");
    ran.check_said(0, &["gone after 1", "the worker of slot 0 ended, "]);
}

#[test]
fn a_large_input_and_a_large_output_pass() {
    let place = place();
    let long = "x".repeat(300_000);
    place
        .run_typed_on("-j2 --warm -- sh worker w", format!("{long}\nb\n"))
        .check(0, &format!("{long}\nb\n"));
}

#[test]
fn a_worker_that_writes_before_it_reads_does_not_block() {
    let place = Place::new();
    let worker = "head -c 300000 /dev/zero | tr '\\0' x >&2; read -r x; echo '{\"gangline\":1}'; cat > /dev/null";
    place.write("worker", worker);
    let ran = place.run_typed("-j1 --warm --timeout 500ms -- sh worker ::: a");
    assert_eq!(ran.code, Some(1), "{:?}", ran.stderr.len());
    assert!(ran.stderr.len() > 300_000);
}

#[test]
fn a_second_interrupt_kills_workers() {
    let place = place();
    let mut running = place.start_typed("-j1 --warm -- sh worker w ::: a hang b");
    place.wait_for("hanging");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    running.ran().check(130, "a\n");
    place.check_no_process_is_left();
}

#[test]
fn no_worker_outlives_the_program() {
    for victim in [crate::support::Running::pid, crate::support::Running::engine] {
        let place = place();
        let running = place.start_typed("-j1 --warm -- sh worker w ::: a hang b");
        place.wait_for("hanging");
        rustix::process::kill_process(victim(&running), Signal::KILL).unwrap();
        running.ran();
        place.check_no_process_is_left();
    }
}

#[test]
fn loading_a_worker_is_no_part_of_the_first_job() {
    let place = place();
    place.write("slow", format!("sleep 2\n{WORKER}"));
    let begun = Instant::now();
    place
        .run_typed("-j1 --warm --preload --report r.json -- sh slow {worker} ::: a b")
        .check(0, "a\nb\n");
    let report: serde_json::Value = serde_json::from_str(&place.read("r.json")).unwrap();
    assert!(report["producers"][0]["init"].as_f64().unwrap() >= 2.0, "{report}");
    // All of it is in the time of the program, however busy the machine is.
    let rest = |begun: Instant| begun.elapsed().as_secs_f64() - 2.0;
    assert!(report["lasted"].as_f64().unwrap() <= rest(begun), "{report}");
    let begun = Instant::now();
    place.run_typed("-j1 --warm --joblog log -- sh slow {worker} ::: a b").check(0, "a\nb\n");
    let first = place.read("log").lines().nth(1).map(str::to_owned).unwrap();
    let took: f64 = first.split('\t').nth(3).unwrap().trim().parse().unwrap();
    assert!(took <= rest(begun), "{first}");
}

#[test]
fn a_refused_run_loads_no_worker() {
    let place = place();
    let line = "-j1 --warm --journal j -- sh worker {worker} ::: a";
    place.run_typed(line).check(0, "a\n");
    assert_eq!(place.run_typed(line).code, Some(105));
    assert_eq!(place.read("starts.0"), "start\n");
}

/// The number of starts of workers, on up to four slots.
fn starts(place: &Place) -> usize {
    let starts = (0..4).map(|slot| std::fs::read_to_string(place.path(&format!("starts.{slot}"))));
    starts.flatten().map(|starts| starts.lines().count()).sum()
}

#[test]
fn a_worker_is_started_for_its_first_item() {
    let place = place();
    place.run_typed("-j4 --warm --journal j -- sh worker {worker} ::: a").check(0, "a\n");
    assert_eq!(starts(&place), 1);
    place.run_typed("-j4 --warm --journal j --resume -- sh worker {worker} ::: a").check(0, "");
    assert_eq!(starts(&place), 1, "nothing is left");
    place
        .run_typed("-j4 --warm --journal j --resume -- sh worker {worker} ::: a b")
        .check(0, "b\n");
    assert_eq!(starts(&place), 2, "one item is left");
    place.run_typed_on("-j4 --warm -- sh worker {worker}", "").check(0, "");
    assert_eq!(starts(&place), 2, "there was no item");
    place.run_typed_on("-j4 --warm -- sh worker {worker}", "c\n").check(0, "c\n");
    assert_eq!(starts(&place), 3);
    place.run_typed("-j1 --warm -- sh worker {worker} ::: a b c").check(0, "a\nb\nc\n");
    assert_eq!(starts(&place), 4);
    assert_eq!(place.read("ends").lines().count(), 4, "each came to its own end");
}

#[test]
fn workers_are_preloaded_if_that_is_asked_for() {
    let place = place();
    place.run_typed_on("-j3 --warm --preload -- sh worker {worker}", "").check(0, "");
    assert_eq!(starts(&place), 3, "the number of items is not known");
    place.run_typed("-j4 --warm --preload -- sh worker {worker} ::: a").check(0, "a\n");
    // If another slot gets the input, that one loads its own.
    assert!((4..=5).contains(&starts(&place)));
    let ran = place.run_typed("--preload -- echo ::: a");
    ran.check_said(102, &["--warm"]);
}

#[test]
fn a_table_says_why_a_job_failed() {
    for name in ["t.csv", "t.tsv", "t.jsonl"] {
        let place = place();
        let line = format!("-j1 --warm --results {name} -- sh worker 0 ::: a error exit");
        assert_eq!(place.run_typed(&line).code, Some(2));
        let text = place.read(name);
        let errors: Vec<String> = match name {
            "t.jsonl" => text
                .lines()
                .map(|line| {
                    serde_json::from_str::<serde_json::Value>(line).unwrap()["Error"].clone()
                })
                .map(|error| error.as_str().unwrap_or_default().to_owned())
                .collect(),
            _ => {
                let separator = if name == "t.csv" { b',' } else { b'\t' };
                let mut reader = csv::ReaderBuilder::new();
                let mut reader = reader.delimiter(separator).from_reader(text.as_bytes());
                assert_eq!(&reader.headers().unwrap()[12], "Error");
                reader.records().map(|row| row.unwrap()[12].to_owned()).collect()
            }
        };
        assert_eq!((errors[0].as_str(), errors[1].as_str()), ("", "out of focus"));
        assert!(errors[2].contains("exited with 3 before it answered"), "{errors:?}");
    }
}

#[test]
fn a_report_has_the_attempts_at_items() {
    for (input, retries, [attempts, failed]) in
        [("third", "--retries 2", [2, 0]), ("error", "--retries 1", [1, 1]), ("crash", "", [2, 1])]
    {
        let place = place();
        let line =
            format!("-j2 --warm {retries} --report r.json -- sh worker {{worker}} ::: a {input}");
        place.run_typed(&line);
        let report: serde_json::Value = serde_json::from_str(&place.read("r.json")).unwrap();
        let retries = &report["retries"];
        let counts = ["attempts", "items", "failed"].map(|name| retries[name].as_u64().unwrap());
        assert_eq!(counts, [attempts, 1, failed], "{input}: {retries}");
        let failures = report["failures"].as_array().unwrap();
        let at: Vec<_> = failures.iter().map(|failure| failure["attempts"].as_u64()).collect();
        assert_eq!(at, vec![Some(attempts + 1); failed as usize], "{input}");
    }
}
