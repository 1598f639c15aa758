//! `gangline check`: workers whose lists are right, or wrong in a way of their own.

use rustix::process::Signal;
use serde_json::Value;

use crate::nvml::{FIRST, Gpu, Machine, gpu};
use crate::record_lines::is_valid;
use crate::support::{Place, Ran};

/// A worker that measures texts, and is wrong in the way that its argument names.
const WORKER: &str = r#"
import json, sys, time

def say(message):
    print(json.dumps(message), flush=True)

fault = sys.argv[1] if len(sys.argv) > 1 else ""
hello = json.loads(sys.stdin.readline())
say({"gangline": 2, "batch": fault != "one-at-a-time"})
asked = 0

def answer(text, size):
    global asked
    asked += 1
    if text == "bad":
        return "error", "it cannot be measured"
    length = float(len(text))
    if fault == "differs" and size > 2:
        length += 0.1
    if fault == "nan" and size > 1:
        length = float("nan")
    if fault == "random":
        length += asked
    return "output", {"text": text, "lengths": [1, length]}

for line in sys.stdin:
    message = json.loads(line)
    items = message.get("items", [message])
    texts = [item["input"] for item in items]
    if fault == "memory" and len(items) > 4:
        say({"oom": True})
        continue
    if fault == "rejects" and "bad" in texts:
        say({"error": "one of them is bad", "of": "list"})
        continue
    if fault == "small" and len(items) > 4:
        say({"error": "a shape of 4 is built in", "of": "list"})
        continue
    if fault == "dies" and "bad" in texts:
        sys.exit("no way to measure it")
    if fault == "hangs" and "bad" in texts:
        open("hanging", "w").close()
        time.sleep(1000)
    if fault == "slow" and len(items) == 8:
        time.sleep(0.5)
    answers = [answer(text, len(items)) for text in texts]
    if fault == "swaps" and len(items) > 1:
        answers[0], answers[1] = answers[1], answers[0]
    if fault == "shifts":
        answers.sort(key=lambda it: it[0], reverse=True)
    for item, (key, value) in zip(items, answers):
        say({"item": item["item"], key: value})
"#;

fn place() -> Place {
    let place = Place::new();
    place.write("worker", WORKER);
    place
}

#[track_caller]
fn ran(place: &Place, options: &str, fault: &str, samples: &str) -> Ran {
    let line = format!("check {options} -- python3 worker {fault} ::: {samples}");
    let ran = place.ran(&mut place.typed(&line));
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80 || options.contains("--json"), "{}", ran.stdout);
    ran
}

/// Checks a worker with this fault in lists of up to 8. Returns the exit status, and the laws that are broken or
/// unchecked, each with the text below it.
#[track_caller]
fn found(fault: &str, samples: &str) -> (Option<i32>, Vec<String>) {
    let ran = ran(&place(), "--batch 8", fault, samples);
    let (laws, _) = ran.stdout.split_once("\n\ncpu, ready after ").unwrap();
    let laws = laws.split_once("\n\n").unwrap().1;
    let mut found: Vec<String> = Vec::new();
    for line in laws.lines() {
        match line.strip_prefix("             ") {
            Some(text) => found.last_mut().unwrap().push_str(&format!(" {text}")),
            None => found.push(line.split_whitespace().collect::<Vec<_>>().join(" ")),
        }
    }
    found.retain(|law| !law.starts_with("holds"));
    (ran.code, found)
}

/// Returns the findings as JSON, checked against the schema.
#[track_caller]
fn json_of(ran: &Ran) -> Value {
    let schema = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/check.schema.json"));
    let schema: Value = serde_json::from_str(schema).unwrap();
    let value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(is_valid(&value, &schema), "{value:#}");
    value
}

const SAMPLES: &str = "a bb bad dddd";

#[test]
fn a_worker_whose_lists_are_right_holds() {
    let ran = ran(&place(), "--batch 8", "", SAMPLES);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    let laws = "\
python3 worker
4 samples, of which 1 fails; lists of up to 8; tolerance 0.0001

holds      the worker takes lists
holds      samples have answers
holds      a sample asked twice has the same answer
holds      a sample has the same answer in a list as alone
holds      each answer belongs to its own sample
holds      a bad sample fails alone
holds      no sample ends the worker

cpu, ready after ";
    assert!(ran.stdout.starts_with(laws), "{}", ran.stdout);
    let heads = "     size  lists  seconds a list  samples a second       memory\n";
    let (_, table) = ran.stdout.split_once(heads).unwrap();
    let (table, advice) = table.split_once("\n\n").unwrap();
    let sizes: Vec<&str> =
        table.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(sizes, ["1", "2", "4", "8"], "{table}");
    assert!(table.lines().all(|line| line.ends_with("MiB")), "{table}");
    assert!(advice.starts_with("advice: "), "{advice}");
}

#[test]
fn json_has_all_of_it() {
    let place = place();
    let value = json_of(&ran(&place, "--json --batch 6", "", SAMPLES));
    assert_eq!((&value["held"], &value["samples"]), (&true.into(), &4.into()));
    assert_eq!(value["failing"][0]["error"], "it cannot be measured");
    let laws = value["laws"].as_object().unwrap();
    assert!(laws.values().all(|state| state == "held"), "{laws:?}");
    let sizes = value["devices"][0]["sizes"].as_array().unwrap();
    let sizes: Vec<u64> = sizes.iter().map(|size| size["size"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [1, 2, 4, 6]);
    let ran = ran(&place, "--json --batch 4", "swaps", "a bb");
    assert_eq!(ran.code, Some(1));
    let value = json_of(&ran);
    assert_eq!((&value["held"], &value["laws"]["ordered"]), (&false.into(), &"broken".into()));
    let fault = &value["faults"][0];
    assert_eq!((&fault["law"], &fault["size"]), (&"ordered".into(), &2.into()));
}

#[test]
fn another_answer_in_a_list_is_shown_with_its_place() {
    let (code, found) = found("differs", SAMPLES);
    assert_eq!(code, Some(1));
    let [law] = &found[..] else { panic!("{found:#?}") };
    let start = "BROKEN a sample has the same answer in a list as alone \
                 sample 1, alone and in a list of 4: $.lengths[1]: 1.0, then 1.1 ";
    assert!(law.starts_with(start), "{law}");
    assert!(law.contains(" and ") && law.ends_with(" more"), "{law}");
}

#[test]
fn numbers_may_differ_within_the_tolerance() {
    let place = place();
    assert_eq!(ran(&place, "--batch 4 --tolerance 0.2", "differs", SAMPLES).code, Some(0));
    assert_eq!(ran(&place, "--batch 4 --tolerance 0.01", "differs", SAMPLES).code, Some(1));
    let refused = ran(&place, "--tolerance nan", "", "a");
    refused.check_said(102, &["write a number from 0"]);
}

#[test]
fn a_lost_order_is_told_from_another_answer() {
    let (code, found) = found("swaps", "a bb ccc");
    assert_eq!(code, Some(1));
    let [order, bad] = &found[..] else { panic!("{found:#?}") };
    let start = "BROKEN each answer belongs to its own sample \
                 sample 1 has the answer of sample 2 in a list of 2: $.text: \"a\", then \"bb\" ";
    assert!(order.starts_with(start), "{order}");
    assert_eq!(bad, "unchecked a bad sample fails alone add a sample that has to fail");
}

#[test]
fn a_bad_sample_that_shifts_the_others_is_found() {
    let (code, found) = found("shifts", SAMPLES);
    assert_eq!(code, Some(1));
    let [law] = &found[..] else { panic!("{found:#?}") };
    let start =
        "BROKEN a bad sample fails alone sample 3 has an answer in a list of 4, and fails alone: ";
    assert!(law.starts_with(start), "{law}");
    assert!(
        law.contains("sample 1 has the answer of sample 2 in a list of 4 with sample 3, which"),
        "{law}"
    );
}

#[test]
fn a_list_that_a_bad_sample_rejects_is_split() {
    assert_eq!(found("rejects", SAMPLES), (Some(0), vec![]));
}

#[test]
fn a_list_that_is_rejected_without_a_bad_sample_does_not_hold() {
    let (code, found) = found("small", SAMPLES);
    assert_eq!(code, Some(1));
    let [law] = &found[..] else { panic!("{found:#?}") };
    assert!(law.contains("fail as a whole in a list of 8: a shape of 4 is built in"), "{law}");
}

#[test]
fn a_bad_sample_that_ends_the_worker_harms_no_other_and_is_named() {
    let (code, found) = found("dies", SAMPLES);
    assert_eq!(code, Some(1));
    let expected = "BROKEN no sample ends the worker \
                    sample 3 failed with its worker, which exited with 1 before it answered";
    assert_eq!(found, [expected]);
}

#[test]
fn a_worker_that_hangs_is_ended_by_the_time_limit() {
    let ran = ran(&place(), "--batch 2 --timeout 2s", "hangs", "a bad");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let text = "BROKEN     no sample ends the worker\n             sample 2 was ended: it took longer than 2 s\n";
    assert!(ran.stdout.contains(text), "{}", ran.stdout);
    assert!(ran.stdout.contains("holds      a bad sample fails alone\n"), "{}", ran.stdout);
}

#[test]
fn a_worker_without_lists_holds_unless_lists_are_asked_for() {
    let place = place();
    let free = ran(&place, "", "one-at-a-time", SAMPLES);
    assert_eq!(free.code, Some(0), "{free:?}");
    let text = "unchecked  the worker takes lists\n             it takes one sample at a time\n";
    assert!(free.stdout.contains(text), "{}", free.stdout);
    assert!(free.stdout.ends_with("\nadvice: no --batch\n"), "{}", free.stdout);
    let asked = ran(&place, "--batch 8", "one-at-a-time", SAMPLES);
    assert_eq!(asked.code, Some(1), "{asked:?}");
    assert!(asked.stdout.contains("BROKEN     the worker takes lists\n"), "{}", asked.stdout);
}

#[test]
fn a_worker_of_the_shell_is_checked() {
    let place = Place::new();
    let script = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*'"item":'} item=${item%%,*}
    input=${line#*'"input":"'} input=${input%'"}'}
    if size=$(wc -c < "$input"); then
        echo "{\"item\":$item,\"output\":$size}"
    else
        echo "{\"item\":$item,\"error\":\"it cannot be read\"}"
    fi
done
"#;
    place.write("worker.sh", script);
    place.write("file", "12345");
    let ran = place.ran(&mut place.typed("check -- sh worker.sh ::: file missing"));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("2 samples, of which 1 fails; "), "{}", ran.stdout);
    ran.check_said(0, &["worker.sh", "missing"]);
}

#[test]
fn an_answer_that_is_no_json_fails_its_sample() {
    let (code, found) = found("nan", "a bb");
    assert_eq!(code, Some(1));
    let text = "sample 1 fails in a list of 2: its answer cannot be read: NaN is not JSON";
    assert!(found[0].contains(text), "{found:#?}");
}

#[test]
fn a_size_that_is_slow_is_not_advised() {
    let value = json_of(&ran(&place(), "--json --batch 8", "slow", "a bb"));
    assert_eq!(value["held"], true);
    let advised = value["devices"][0]["advised_batch"].as_u64().unwrap();
    assert!(advised < 8, "{value:#}");
}

#[test]
fn a_size_without_memory_ends_the_table() {
    let ran = ran(&place(), "--batch 32", "memory", SAMPLES);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let (_, table) = ran.stdout.split_once("       4 ").unwrap();
    let lines: Vec<&str> = table.lines().skip(1).take(2).collect();
    assert_eq!(lines, ["        8      0   out of memory", ""], "{table}");
}

#[test]
fn answers_that_change_are_told_from_lists_that_differ() {
    let (code, found) = found("random", "a bb");
    assert_eq!(code, Some(1));
    let start =
        "BROKEN a sample asked twice has the same answer sample 1, alone and again: $.lengths[1]: ";
    assert!(found[0].starts_with(start), "{found:#?}");
    assert!(found[1..].iter().all(|law| law.starts_with("unchecked ")), "{found:#?}");
}

#[test]
fn samples_come_from_where_the_inputs_of_a_run_come_from() {
    let place = place();
    place.write("list", "a\nbb\nbad\n");
    for options in ["-- python3 worker :::: list", "-a list -- python3 worker"] {
        let ran = place.ran(&mut place.typed(&format!("check --batch 2 {options}")));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("3 samples, of which 1 fails; lists of up to 2;"), "{ran:?}");
    }
    place.write("values", "\"a\"\n\"bb\"\n");
    let ran = place.ran(&mut place.typed("check --jsonl --batch 2 -- python3 worker :::: values"));
    assert!(ran.stdout.contains("2 samples; "), "{ran:?}");
    place.write("empty", "");
    let ran = place.ran(&mut place.typed("check -- python3 worker :::: empty"));
    ran.check_said(104, &["there are no samples"]);
    let ran = place.ran(&mut place.typed("check -- python3 worker :::: missing"));
    ran.check_said(104, &["missing cannot be read"]);
}

#[test]
fn a_worker_that_does_not_start_has_a_status_of_its_own() {
    let place = Place::new();
    let ran = place.ran(&mut place.typed("check -- ./nothing ::: a"));
    ran.check_said(103, &["./nothing, or the interpreter that it names, does not exist"]);
    let ran = place.ran(&mut place.typed("check -- false ::: a"));
    ran.check_said(103, &["exited with 1 before it answered", "no worker is left"]);
    assert_eq!(ran.stdout, "");
    place.ran(&mut place.typed("check ::: a")).check_said(102, &[]);
}

#[test]
fn each_device_has_a_worker_and_the_same_answers() {
    let place = place();
    let held = ran(&place, "--devices cpu*2 --batch 2", "", "a bb");
    assert_eq!(held.code, Some(0), "{held:?}");
    assert_eq!(held.stdout.matches("\ncpu, ready after ").count(), 2, "{}", held.stdout);
    assert!(held.stdout.contains("holds      all devices give the same answers\n"), "{held:?}");
    place.write("place", WORKER.replace("length = float(len(text))", "length = hello[\"worker\"]"));
    let line = "check --devices cpu*2 --batch 2 -- python3 place ::: a";
    let ran = place.ran(&mut place.typed(line));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let text = "BROKEN     all devices give the same answers\n             \
                cpu: sample 1 on cpu: $.lengths[1]: 0, then 1\n";
    assert!(ran.stdout.contains(text), "{}", ran.stdout);
}

#[test]
fn the_memory_of_a_gpu_is_what_the_driver_tells() {
    let gib = 1 << 30;
    let machine = Machine::with([Gpu { used: 3 * gib, ..gpu(FIRST, 1) }]);
    machine.place.write("worker", WORKER);
    let line = "check --devices cuda:0 --batch 2 -- python3 worker ::: a bb";
    let ran = machine.ran(&mut machine.typed(line));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\ncuda:0, ready after "), "{}", ran.stdout);
    assert!(ran.stdout.contains("   GPU memory\n"), "{}", ran.stdout);
    assert_eq!(ran.stdout.matches(" 3.0 GiB\n").count(), 2, "{}", ran.stdout);
    let line = "check --json --gpu-list 7 --batch 2 -- python3 worker ::: a bb";
    let value = json_of(&machine.ran(&mut machine.typed(line)));
    let slot = &value["devices"][0];
    assert_eq!((&slot["memory_of"], slot["sizes"][0].get("memory_bytes")), (&"gpus".into(), None));
}

#[test]
fn a_signal_ends_it_without_a_verdict() {
    let place = place();
    let mut running = place.start(&mut place.typed("check -- python3 worker hangs ::: bad"));
    place.wait_for("hanging");
    running.send(Signal::INT);
    running.wait_for_stderr("press Ctrl-C again");
    running.send(Signal::INT);
    let ran = running.ran();
    assert_eq!((ran.code, &*ran.stdout), (Some(130), ""), "{ran:?}");
    place.check_no_process_is_left();
}
