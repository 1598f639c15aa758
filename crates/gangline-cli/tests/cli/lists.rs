//! Warm workers that take several inputs at once.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Place, Ran};

/// A worker in Python. Each input of a list selects what it does when it comes to it.
const WORKER: &str = r#"
import json, os, signal, sys, time

def say(message):
    print(json.dumps(message), flush=True)

hello = json.loads(sys.stdin.readline())
open("hello", "w").write(json.dumps(hello))
say({"gangline": 2, "batch": True, "ahead": 2})
room = int(os.environ.get("ROOM", 1000))
for line in sys.stdin:
    items = json.loads(line)["items"]
    with open("lists", "a") as lists:
        lists.write(" ".join("%s:%s" % (it["input"], it["attempt"]) for it in items) + "\n")
    if len(items) > room:
        say({"oom": True})
        continue
    if any(it["input"] == "guilty" for it in items):
        say({"error": "it is guilty", "of": "list"})
        continue
    if any(it["input"] == "reverse" for it in items):
        items.reverse()
    for it in items:
        what, answer = it["input"], {"item": it["item"], "output": it["input"]}
        if what == "bad":
            answer = {"item": it["item"], "error": "out of focus"}
        elif what == "nan":
            answer["output"] = [float("nan")]
        elif what == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "once" and not os.path.exists("once"):
            open("once", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        elif what == "hang":
            open("hanging", "w").close()
            time.sleep(1000)
        elif what == "slow":
            open("hanging", "w").close()
            time.sleep(0.5)
        elif what == "nap":
            time.sleep(0.05)
        elif what == "missing":
            continue
        elif what == "garbage":
            print("Loading model...", flush=True)
        elif what == "unknown":
            say({"item": 99, "output": 1})
        elif what == "twice":
            say(answer)
        elif what == "log":
            say({"log": "seen %s" % it["item"], "level": "info"})
        say(answer)
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("worker", WORKER);
    place
}

/// Runs these inputs in lists of up to eight on one slot.
#[track_caller]
fn run(place: &Place, options: &str, inputs: &str) -> Ran {
    let slots = if options.contains("-j") { "" } else { "-j1" };
    let batch = if options.contains("--batch ") { "" } else { "--batch 8" };
    let options = format!("{slots} --warm {batch} --batch-wait 10s {options}");
    place.run_typed(&format!("{options} -- python3 worker ::: {inputs}"))
}

/// The lists that the workers got, each input with its attempt.
fn lists(place: &Place) -> Vec<String> {
    place.read("lists").lines().map(str::to_owned).collect()
}

fn inputs(count: usize) -> String {
    (1..=count).map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

/// What a list prints if each input is its output.
fn outputs(inputs: &str) -> String {
    inputs.split(' ').map(|input| format!("{input}\n")).collect()
}

#[test]
fn a_message_for_the_log_before_a_long_line_was_read_leaves_the_line_whole() {
    let place = Place::new();
    // More than a pipe holds, so that it is half sent when the message comes.
    place.write("input", format!("\"{}\"\n", "x".repeat(300_000)));
    let worker = r#"
import json, os, select
hello = os.read(0, 10_000)
os.write(1, b'{"gangline":2}\n')
select.select([0], [], [])
os.write(1, b'{"log":"a line comes"}\n')
line = b""
while not line.endswith(b"\n"):
    line += os.read(0, 100_000)
item = json.loads(line)
os.write(1, json.dumps({"item": item["item"], "output": len(item["input"])}).encode() + b"\n")
"#;
    place.write("long", worker);
    let ran = place.run_typed("-j1 --warm --jsonl --timeout 20s --input input -- python3 long");
    ran.check(0, "300000\n");
    ran.check_said(0, &["a line comes"]);
}

#[test]
fn the_start_of_a_worker_makes_no_job_a_straggler() {
    let place = Place::new();
    place.write("slow", WORKER.replacen("hello =", "time.sleep(1)\nhello =", 1));
    let inputs = (0..8).map(|_| "nap").collect::<Vec<_>>().join(" ");
    for options in ["--batch 2", "--batch 1"] {
        let line = format!("-j1 --warm {options} --report r.txt -- python3 slow");
        let ran = place.run_typed(&format!("{line} ::: {inputs}"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let text = place.read("r.txt");
        assert!(!text.contains("straggler: job 1 "), "{text}");
    }
}

#[test]
fn one_bad_input_of_eight_fails_alone() {
    let place = place();
    let ran = run(&place, "", "1 2 3 bad 5 6 7 8");
    ran.check(1, "1\n2\n3\n5\n6\n7\n8\n");
    ran.check_said(1, &["job 4 failed: out of focus"]);
    assert_eq!(lists(&place), ["1:1 2:1 3:1 bad:1 5:1 6:1 7:1 8:1"]);
    let hello: Value = serde_json::from_str(&place.read("hello")).unwrap();
    assert_eq!((&hello["gangline"], &hello["batch"]), (&2.into(), &8.into()));
}

#[test]
fn a_worker_of_lists_gets_lists_of_one_too() {
    let place = place();
    run(&place, "--batch 1", "a b").check(0, "a\nb\n");
    assert_eq!(lists(&place), ["a:1", "b:1"]);
    let place = self::place();
    place.run_typed("-j1 --warm -- python3 worker ::: a b").check(0, "a\nb\n");
    assert_eq!(lists(&place), ["a:1", "b:1"]);
}

#[test]
fn answers_come_in_any_order() {
    let place = place();
    run(&place, "", "1 2 reverse 4").check(0, "1\n2\nreverse\n4\n");
    assert_eq!(lists(&place).len(), 1);
}

#[test]
fn a_failed_item_is_tried_again_alone() {
    let place = place();
    run(&place, "--retries 1", "1 bad 3").check(1, "1\n3\n");
    assert_eq!(lists(&place), ["1:1 bad:1 3:1", "bad:2"]);
}

#[test]
fn a_value_that_is_no_json_fails_its_item() {
    let place = place();
    let ran = run(&place, "", "1 nan 3");
    ran.check(1, "1\n3\n");
    ran.check_said(1, &["job 2 failed: its answer cannot be read: NaN is not JSON"]);
    assert_eq!(lists(&place).len(), 1, "the worker stays");
}

/// Those before it are answered, and are not sent again.
#[test]
fn a_worker_that_dies_in_a_list_costs_what_it_has_not_answered() {
    let place = place();
    let ran = run(&place, "", "1 2 crash 4 5 6 7 8");
    ran.check(1, "1\n2\n4\n5\n6\n7\n8\n");
    ran.check_said(1, &["the list of job 3 and 5 more failed with its worker", "SIGKILL"]);
    ran.check_said(1, &["job 3 failed with its worker", "1 of 8 jobs failed"]);
    let lists = lists(&place);
    assert_eq!(lists[..2], ["1:1 2:1 crash:1 4:1 5:1 6:1 7:1 8:1", "crash:2 4:2 5:2"]);
    let sent = |input: &str| lists.iter().filter(|list| list.contains(input)).count();
    assert_eq!((sent("1:"), sent("2:"), sent("8:")), (1, 1, 2), "{lists:?}");
    assert!(lists.iter().any(|list| list.starts_with("crash:3")), "{lists:?}");
}

#[test]
fn an_item_that_kills_once_succeeds() {
    let place = place();
    run(&place, "", "1 once 3 4").check(0, "1\nonce\n3\n4\n");
    run(&place, "--batch 4 -j2", &inputs(20)).check(0, &outputs(&inputs(20)));
}

#[test]
fn a_list_that_is_too_large_for_the_device_is_split() {
    let place = place();
    let options = "ROOM=2 python3 worker";
    let line = format!("-j1 --warm --batch 8 --batch-wait 10s --report r.json -- {options}");
    let ran = place.run_typed(&format!("{line} ::: {}", inputs(40)));
    ran.check(0, &outputs(&inputs(40)));
    let lists = lists(&place);
    let sizes: Vec<usize> = lists.iter().map(|list| list.split(' ').count()).collect();
    assert_eq!(sizes[..3], [8, 4, 2], "{sizes:?}");
    assert!(sizes[3..].iter().all(|size| *size <= 3), "it is remembered: {sizes:?}");
    assert!(lists.iter().all(|list| !list.contains(":2 ")), "no item is blamed: {lists:?}");
    let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
    assert_eq!(report["splits"]["split"], 1, "{}", report["splits"]);
}

#[test]
fn an_item_that_does_not_fit_alone_fails() {
    let place = place();
    let line = "-j1 --warm --batch 8 --batch-wait 10s -- ROOM=0 python3 worker ::: a b";
    let ran = place.run_typed(line);
    ran.check(2, "");
    ran.check_said(2, &["job 1 failed: the device is out of memory", "job 2 failed: the device"]);
}

#[test]
fn a_list_that_fails_as_a_whole_is_split_until_the_guilty_item_stands_alone() {
    let place = place();
    let ran = run(&place, "", "1 2 3 4 5 guilty 7 8");
    ran.check(1, "1\n2\n3\n4\n5\n7\n8\n");
    ran.check_said(1, &["job 6 failed: it is guilty", "1 of 8 jobs failed"]);
    let lists = lists(&place);
    assert!(lists.contains(&"guilty:1".into()), "no attempt is spent: {lists:?}");
    assert_eq!(lists.len(), 7, "{lists:?}");
}

#[test]
fn what_is_no_answer_ends_the_worker() {
    for (input, why) in [
        ("garbage", "use standard output for the protocol only): Loading model..."),
        ("unknown", "answered item 99 instead of 2, 3"),
        ("twice", "answered item 2 twice"),
    ] {
        let place = place();
        let ran = run(&place, "", &format!("1 {input} 3"));
        assert!(ran.stdout.starts_with("1\n") && ran.stdout.ends_with("3\n"), "{ran:?}");
        ran.check_said(ran.code.unwrap(), &[why]);
        let lists = lists(&place);
        assert_eq!(lists[0], format!("1:1 {input}:1 3:1"));
        assert!(lists[1..].iter().all(|list| !list.contains("1:")), "{lists:?}");
    }
    let ran = run(&place(), "", "1 garbage");
    ran.check_said(1, &[r#"allowed are {"item":N,"output":..}"#]);
}

#[test]
fn an_answer_that_is_missing_is_waited_for_until_the_timeout() {
    for input in ["missing", "hang"] {
        let place = place();
        let ran = run(&place, "--timeout 2", &format!("1 {input} 3 4"));
        ran.check(1, "1\n3\n4\n");
        ran.check_said(1, &["job 2 was ended: it took longer than 2 s"]);
        let lists = lists(&place);
        assert_eq!(lists[0], format!("1:1 {input}:1 3:1 4:1"));
    }
}

#[test]
fn a_message_for_the_log_is_shown_with_the_standard_error_of_its_job() {
    let place = place();
    let ran = run(&place, "--results res", "1 log 3");
    ran.check(0, "1\nlog\n3\n");
    ran.check_said(0, &["info: seen 2\n"]);
    assert_eq!(place.read("res/2/stderr"), "info: seen 2\n");
}

#[test]
fn advice_about_split_lists_names_the_option() {
    let place = place();
    let bad = "guilty 2 guilty 4 guilty 6 guilty 8";
    assert_eq!(run(&place, "--batch 2 --report r.txt", bad).code, Some(4));
    let report = place.read("r.txt").replace('\n', " ");
    assert!(report.contains("send smaller lists (`--batch`)"), "{report}");
    let said =
        "with the error \"the command failed for 2 jobs from 1 to 2 on cpu (slot 0, attempt 1)";
    assert!(report.contains(said), "{report}");
}

#[test]
fn a_worker_that_loads_may_say_so() {
    let place = Place::new();
    let loads = r#"print('{"log":"loading"}', flush=True)"#;
    place.write(
        "worker",
        WORKER.replacen("say({\"gangline\"", &format!("{loads}\nsay({{\"gangline\""), 1),
    );
    let ran = run(&place, "", "1 2");
    ran.check(0, "1\n2\n");
    ran.check_said(0, &["loading\n"]);
}

#[test]
fn workers_are_preloaded_for_lists() {
    let place = place();
    let starts = "import os; open('starts', 'a').write('start\\n')\n";
    place.write("worker", format!("{starts}{WORKER}"));
    run(&place, "-j4 --preload --batch 8", &inputs(8)).check(0, &outputs(&inputs(8)));
    // If another slot gets the list, that one loads its own.
    assert!((1..=2).contains(&place.read("starts").lines().count()));
}

#[test]
fn a_run_is_continued_with_another_size() {
    let place = place();
    run(&place, "--journal j", "1 2 bad 4").check(1, "1\n2\n4\n");
    run(&place, "--journal j --resume --batch 3", "1 2 3 4 5 6").check(0, "3\n5\n6\n");
    assert_eq!(lists(&place)[1..], ["3:1 5:1 6:1"]);
}

#[test]
fn a_report_has_the_sizes_of_lists() {
    let place = place();
    run(&place, "--batch 4 --report r.json", &inputs(12)).check(0, &outputs(&inputs(12)));
    let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
    assert_eq!(report["splits"]["batches"], 3, "{}", report["splits"]);
    let conclusion = report["conclusion"].as_str().unwrap();
    let sizes = "Workers got 3 lists, of 4.0 jobs on average and 4 at most.";
    assert!(conclusion.ends_with(sizes), "{conclusion}");
    assert_eq!(lists(&place), ["1:1 2:1 3:1 4:1", "5:1 6:1 7:1 8:1", "9:1 10:1 11:1 12:1"]);
}

/// It takes one input at a time, and is asked for one after the other.
#[test]
fn a_worker_of_version_1_gets_single_items() {
    let place = Place::new();
    let worker = r#"
        read -r hello
        echo '{"gangline":1}'
        while read -r line; do
            item=${line#*\"item\":}; item=${item%%,*}
            input=${line#*\"input\":}; input=${input%\}}
            case $input in
                '"crash"') kill -9 $$ ;;
                *) echo "{\"item\":$item,\"output\":$input}" ;;
            esac
        done"#;
    place.write("worker", worker);
    let ran = place.run_typed("-j1 --warm --batch 4 -- sh worker ::: 1 2 crash 4 5");
    ran.check(1, "1\n2\n4\n5\n");
    ran.check_said(1, &["takes one input at a time, so --batch has no effect", "job 3 failed"]);
    assert_eq!(ran.stderr.matches("--batch").count(), 1, "{ran:?}");
}

#[test]
fn an_interrupt_lets_a_list_end() {
    let place = place();
    let options = "-j1 --warm --batch 4 --batch-wait 10s";
    let mut running = place.start_typed(&format!("{options} -- python3 worker ::: 1 slow 3 4 5 6"));
    place.wait_for("hanging");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.ran().check(130, "1\nslow\n3\n4\n");
    place.check_no_process_is_left();
}

#[test]
fn a_second_interrupt_ends_a_list() {
    let place = place();
    let options = "-j1 --warm --batch 4 --batch-wait 10s";
    let mut running = place.start_typed(&format!("{options} -- python3 worker ::: 1 hang 3 4 5"));
    place.wait_for("hanging");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    running.ran().check(130, "1\n");
    place.check_no_process_is_left();
}

#[test]
fn the_end_of_a_run_splits_no_list() {
    let place = place();
    let ran = run(&place, "--halt now,fail=1", "1 bad 3 4 5 6 7 8 9 10");
    assert!(ran.code == Some(1) && ran.stdout.starts_with("1\n"), "{ran:?}");
    let ran = run(&place, "--halt soon,fail=1 --batch 2", "1 2 bad 4 5 6 7 8 9 10");
    assert!(ran.code == Some(1) && ran.stdout.starts_with("1\n2\n4\n"), "{ran:?}");
}

#[test]
fn many_slots_share_lists_that_kill() {
    let place = place();
    let all: Vec<String> = (1..=60)
        .map(|number| match number % 20 {
            7 => "crash".to_owned(),
            13 => "bad".to_owned(),
            _ => number.to_string(),
        })
        .collect();
    let good: String = all
        .iter()
        .filter(|it| *it != "crash" && *it != "bad")
        .fold(String::new(), |text, it| text + it + "\n");
    run(&place, "-j4 --batch 8", &all.join(" ")).check(6, &good);
    let ran = run(&place, "-j3 --batch 5 --no-keep-order", &all.join(" "));
    assert_eq!((ran.code, ran.stdout.lines().count()), (Some(6), 54), "{ran:?}");
}

#[test]
fn malformed_lines_of_lists_are_refused() {
    let ran = Place::new().run_typed("--batch 4 -- echo ::: a");
    ran.check_said(102, &["--warm"]);
    let ran = Place::new().run_typed("--warm --batch 0 -- echo ::: a");
    ran.check_said(102, &["0"]);
    let place = Place::new();
    place.write("worker", "read -r x; echo '{\"gangline\":2,\"batch\":8}'; cat > /dev/null");
    let ran = place.run_typed("-j1 --warm --max-restarts 0 -- sh worker ::: a b");
    ran.check_said(103, &[r#"{"gangline":2,"batch":8}; allowed are"#, r#""batch":true or false"#]);
}

#[test]
fn the_size_of_lists_is_chosen() {
    let place = place();
    let inputs = inputs(400);
    run(&place, "--batch auto --report r.json", &inputs).check(0, &outputs(&inputs));
    let hello: Value = serde_json::from_str(&place.read("hello")).unwrap();
    assert_eq!(hello["batch"], 256, "the largest list that may come");
    let sizes: Vec<_> = lists(&place).iter().map(|list| list.split(' ').count()).collect();
    assert_eq!(sizes[0], 1, "{sizes:?}");
    assert!(sizes.iter().all(|size| *size <= 256), "{sizes:?}");
    let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
    assert!(report["producers"][0]["batch_size"]["size"].is_u64(), "{report}");
    place.run_typed("--warm --batch many -- cat ::: a").check_said(102, &["or auto"]);
}
