//! `--records`: a line of JSON for each job, as `docs/record.schema.json` says.

use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::{Place, Ran};

const WORKER: &str = r#"
import json, sys
hello = json.loads(sys.stdin.readline())
print(json.dumps({"gangline": 2, "batch": True}), flush=True)
for line in sys.stdin:
    for it in json.loads(line)["items"]:
        if it["input"] == "bad":
            print(json.dumps({"item": it["item"], "error": "out of focus"}), flush=True)
        else:
            print(json.dumps({"item": it["item"], "output": it["input"]}), flush=True)
"#;

/// The records of a run, each checked against the schema.
#[track_caller]
fn records(ran: &Ran) -> Vec<Value> {
    let schema =
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/record.schema.json"));
    let schema: Value = serde_json::from_str(schema).unwrap();
    let lines = ran.stdout.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        assert!(is_valid(&record, &schema), "{record}");
        record
    });
    lines.collect()
}

/// Whether a value is of a schema, by the words that our schemas use.
pub(crate) fn is_valid(value: &Value, schema: &Value) -> bool {
    let texts = |list: &Value| -> Vec<String> {
        let list = list.as_array().into_iter().flatten();
        list.map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let is_of_type = match schema["type"].as_str() {
        None => true,
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("boolean") => value.is_boolean(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("{other} is not known here"),
    };
    let is_listed = schema["enum"].as_array().is_none_or(|all| all.contains(value));
    let is_large = schema["minimum"].as_f64().is_none_or(|least| value.as_f64() >= Some(least));
    let has_all = texts(&schema["required"]).iter().all(|key| value.get(key).is_some());
    let properties = schema["properties"].as_object().into_iter().flatten();
    let has_valid = properties
        .filter_map(|(key, schema)| Some((value.get(key)?, schema)))
        .all(|(value, schema)| is_valid(value, schema));
    let items = schema.get("items").zip(value.as_array());
    let items_are_valid =
        items.is_none_or(|(schema, values)| values.iter().all(|value| is_valid(value, schema)));
    let is_one = schema["oneOf"]
        .as_array()
        .is_none_or(|all| all.iter().filter(|one| is_valid(value, one)).count() == 1);
    is_of_type && is_listed && is_large && has_all && has_valid && items_are_valid && is_one
}

#[track_caller]
fn check(ran: &Ran, fields: &[&str], expected: &[Value]) {
    let found: Vec<Value> = records(ran)
        .iter()
        .map(|record| fields.iter().map(|field| record[field].clone()).collect())
        .collect();
    assert_eq!(found, expected, "{ran:?}");
}

#[test]
fn each_job_has_a_record() {
    let place = Place::new();
    let script = "echo $1; echo err >&2; exit $2";
    let inputs = "::: a b :::+ 0 3";
    let ran = place.run_typed(&format!("-j2 --records --retries 1 --shell -- '{script}' {inputs}"));
    let fields = ["item", "key", "input", "output", "error", "causes", "attempts", "gpus"];
    let expected = [
        json!([1, "a 0", ["a", "0"], "a\n", null, null, 1, []]),
        json!([2, "b 3", ["b", "3"], null, "exited with 3", [], 2, []]),
    ];
    check(&ran, &fields, &expected);
    ran.check_said(1, &["err\n", "job 2 exited with 3"]);
}

#[test]
fn a_worker_answers_values() {
    let place = Place::new();
    place.write("worker", WORKER);
    let inputs = "{\"a\": [1, 2.5]}\n\"text\"\nnull\n\"bad\"\n[]\n";
    let line = "-j1 --warm --jsonl --records --batch 4 --gpu-list 3 -- python3 worker";
    let ran = place.run_typed_on(line, inputs);
    let fields = ["item", "input", "output", "error", "gpus"];
    let object = json!({"a": [1, 2.5]});
    let expected = [
        json!([1, object, object, null, ["3"]]),
        json!([2, "text", "text", null, ["3"]]),
        json!([3, null, null, null, ["3"]]),
        json!([4, "bad", null, "out of focus", ["3"]]),
        json!([5, [], [], null, ["3"]]),
    ];
    check(&ran, &fields, &expected);
    assert_eq!(records(&ran)[0]["key"], "'{\"a\": [1, 2.5]}'");
    assert!(records(&ran)[2].get("output").is_some(), "null is an output");
}

#[test]
fn records_have_their_inputs_unless_only_outcomes_are_asked_for() {
    let place = Place::new();
    let line = "-j1 --no-keep-order --shell -- 'exit $1' ::: 0 3";
    for (option, fields) in [("--records", ["key", "input"].as_slice()), ("--records=outcome", &[])]
    {
        let found = records(&place.run_typed(&format!("{option} {line}")));
        let has = |record: &Value, field: &str| record.get(field).is_some();
        for (record, outcome) in found.iter().zip(["output", "error"]) {
            let inputs: Vec<_> =
                ["key", "input"].into_iter().filter(|field| has(record, field)).collect();
            assert_eq!(inputs, fields, "{option}: {record}");
            assert!(has(record, outcome), "{option}: {record}");
        }
        assert_eq!(found.len(), 2);
    }
}

#[test]
fn inputs_with_names_are_objects() {
    let place = Place::new();
    place.write("t.csv", "id,name\n1,x y\n");
    let ran = place.run_typed("--records --csv t.csv -- echo {name}");
    check(&ran, &["input", "output"], &[json!([{"id": "1", "name": "x y"}, "x y\n"])]);
    let ran = place.run_typed("--records -- ./missing ::: a");
    let causes = json!(["No such file or directory (os error 2)"]);
    check(&ran, &["causes"], &[json!([causes])]);
    assert_eq!(ran.code, Some(1));
}

#[test]
fn records_come_in_order_or_as_jobs_end() {
    let place = Place::new();
    let script = "sleep $1; echo $1";
    let line = format!("--records --shell -- '{script}' ::: 1 0");
    let items = |ran: &Ran| records(ran).iter().map(|it| it["item"].clone()).collect::<Vec<_>>();
    assert_eq!(items(&place.run_typed(&format!("-j2 {line}"))), [1, 2]);
    assert_eq!(items(&place.run_typed(&format!("-j2 --no-keep-order {line}"))), [2, 1]);
    for option in ["--tag", "--line-buffer", "-u", "--files"] {
        let ran = place.run_typed(&format!("--records {option} -- echo ::: a"));
        assert_eq!(ran.code, Some(102), "{option}");
    }
}

#[test]
fn a_resumed_run_has_records_of_all_jobs() {
    let place = Place::new();
    place.write("worker", WORKER);
    let line = "-j1 --warm --records --journal j --batch 2 -- python3 worker";
    check(
        &place.run_typed(&format!("{line} ::: a bad")),
        &["key"],
        &[json!(["a"]), json!(["bad"])],
    );
    let resumed = line.replace("--journal", "--resume --journal");
    let ran = place.run_typed(&format!("{resumed} ::: a bad c"));
    let expected = [json!(["a", true]), json!(["bad", null]), json!(["c", null])];
    check(&ran, &["key", "done"], &expected);
}

#[test]
fn json_lines_are_inputs_of_any_command() {
    let place = Place::new();
    let lines = "{\"a\": 1}\n[2]\n";
    place.run_typed_on("-j1 --jsonl -- echo", lines).check(0, "{\"a\": 1}\n[2]\n");
    let line = "-j1 --jsonl --journal j";
    place.run_typed_on(&format!("{line} -- echo"), lines).check(0, lines);
    let more = format!("{lines}3\n");
    place.run_typed_on(&format!("{line} --resume -- echo"), more).check(0, "3\n");
    let ran = place.run_typed_on("-j1 --jsonl -- echo", "1\nNaN\n2\n");
    ran.check(104, "1\n");
    ran.check_said(104, &["input 2 of standard input is not JSON, which --jsonl says it is"]);
    let ran = place.run_typed("--jsonl --csv t.csv -- echo");
    ran.check_said(102, &["--jsonl"]);
    place.run_typed("-j1 --jsonl -- echo ::: 1 '\"x y\"'").check(0, "1\n\"x y\"\n");
}

#[test]
fn jobs_that_are_done_have_their_records_in_their_places() {
    let place = Place::new();
    let run = |more: &str| {
        let script = "case $1 in c) test -e ok;; a) sleep 0.3;; esac";
        place.run_typed(&format!(
            "-j2 --records --journal j {more} --shell -- '{script}' ::: a b c d e"
        ))
    };
    let first = run("");
    check(&first, &["item"], &[1, 2, 3, 4, 5].map(|item| json!([item])));
    place.write("ok", "");
    let input = |ran: &Ran| records(ran).len();
    let again = run("--resume");
    let done = |item: u64, key: &str| json!([item, key, key, true, null]);
    let expected =
        [done(1, "a"), done(2, "b"), json!([3, "c", "c", null, ""]), done(4, "d"), done(5, "e")];
    check(&again, &["item", "key", "input", "done", "output"], &expected);
    assert_eq!(input(&run("--resume")), 5);
    assert_eq!(input(&run("--resume-failed")), 0, "it may leave out what is not done");
    let outcomes = place.run_typed(
        "--records=outcome --no-keep-order --journal j --resume --shell -- 'case $1 in c) test -e ok;; a) sleep 0.3;; \
         esac' ::: a b c",
    );
    let lines: String =
        (1..=3).map(|item| format!("{{\"item\":{item},\"done\":true}}\n")).collect();
    assert_eq!(outcomes.stdout, lines, "{outcomes:?}");
}

#[test]
fn a_record_of_a_done_job_waits_for_a_slow_job_before_it() {
    let place = Place::new();
    let run = |inputs: &str, more: &str| {
        let script = "test $1 = z && sleep 0.3; true";
        place.run_typed(&format!(
            "-j2 --records --journal j {more} --shell -- '{script}' ::: {inputs}"
        ))
    };
    run("a b c", "");
    let again = run("a z b y c", "--resume");
    let expected =
        [(1, "a", true), (2, "z", false), (3, "b", true), (4, "y", false), (5, "c", true)];
    let expected = expected.map(|(item, key, done)| json!([item, key, done.then_some(true)]));
    check(&again, &["item", "key", "done"], &expected);
}

#[test]
fn a_quiet_run_does_not_speak_of_failed_jobs() {
    let place = Place::new();
    let ran = place.run_typed("--quiet --retries 1 --records=outcome --shell -- 'exit $1' ::: 0 3");
    assert_eq!(ran.stderr, "");
    assert_eq!(ran.code, Some(1));
    assert_eq!(records(&ran)[1]["error"], "exited with 3");
}

#[test]
fn a_job_is_known_by_its_key() {
    let place = Place::new();
    let run = |more: &str, lines: &str| {
        place.run_typed_on(
            &format!("-j1 --jsonl --key name --journal j --records {more} -- echo"),
            lines,
        )
    };
    run("", "{\"name\":\"a x\",\"size\":1}\n");
    let again = run("--resume", "{\"name\":\"a x\",\"size\":2}\n{\"name\":3}\n");
    let expected =
        [json!(["'a x'", {"name": "a x", "size": 2}, true]), json!(["3", {"name": 3}, null])];
    check(&again, &["key", "input", "done"], &expected);
    let text = "input 1 is not an object with a value \"name\", which is the --key";
    run("--resume", "[1]\n").check_said(104, &[text]);
    place.write("t.csv", "name,size\na,1\nb,2\n");
    let table = place.run_typed("-j1 --records --csv t.csv --key size -- echo {name}");
    check(&table, &["key"], &[json!(["1"]), json!(["2"])]);
    place
        .run_typed("--key x -- echo ::: a")
        .check_said(102, &["use --csv, --tsv, --header : or --jsonl"]);
    let other = place.run_typed_on("--jsonl --journal j --resume -- echo", "[1]\n");
    other.check_said(105, &["key"]);
}

#[test]
fn inputs_that_are_not_utf_8_have_the_shape_of_others_and_a_mark() {
    let place = Place::new();
    place.write("t.csv", b"name,size\ncaf\xe9,3\nok,4\n");
    place.write("head.csv", b"caf\xe9\tcaf\xe8\n1\t2\n");
    let named = |name: &str, size: &str| json!({"name": name, "size": size});
    let fields = ["key", "input", "lossy"];
    let run = |line: &str| place.run_typed_on(line, b"caf\xe9\ncaf\xe8\nok\n");
    let ran = run("-j1 --records -- true");
    let expected = [
        json!(["$'caf\\xe9'", "caf\u{fffd}", ["input"]]),
        json!(["$'caf\\xe8'", "caf\u{fffd}", ["input"]]),
        json!(["ok", "ok", null]),
    ];
    check(&ran, &fields, &expected);
    let ran = run("-j1 --records -- echo");
    check(
        &ran,
        &["lossy"],
        &[json!([["input", "output"]]), json!([["input", "output"]]), json!([null])],
    );
    let ran = run("-j1 --records --csv t.csv -- true");
    let expected = [
        json!(["$'caf\\xe9' 3", named("caf\u{fffd}", "3"), ["input"]]),
        json!(["ok 4", named("ok", "4"), null]),
    ];
    check(&ran, &fields, &expected);
    let ran = run("-j1 --records --tsv head.csv -- true");
    check(&ran, &["input"], &[json!([{"caf\u{fffd}": "1", "2": "2"}])]);
    let ran = run("-j1 --records --input - -- true ::: a");
    check(
        &ran,
        &["input"],
        &[json!([["caf\u{fffd}", "a"]]), json!([["caf\u{fffd}", "a"]]), json!([["ok", "a"]])],
    );
}

#[test]
fn a_journal_tells_inputs_that_are_not_utf_8_apart() {
    let place = Place::new();
    let inputs = b"caf\xe9\ncaf\xe8\n";
    let line = "-j1 --records --journal j --results r.jsonl -- sh -c 'printf %s \"$1\" > out-$1' x";
    let ran = place.run_typed_on(line, inputs);
    check(&ran, &["item"], &[json!([1]), json!([2])]);
    let mut names: Vec<_> = std::fs::read_dir(place.directory()).unwrap().collect();
    names.retain(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.as_bytes() == b"out-caf\xe9" || name.as_bytes() == b"out-caf\xe8"
    });
    assert_eq!(names.len(), 2, "commands get the bytes");
    let results = place.read("r.jsonl");
    assert_eq!(results.matches("\"Lossy\":[\"V\"]").count(), 2, "{results}");
    let resumed = place.run_typed_on(&line.replace("--results r.jsonl", "--resume"), inputs);
    let expected = [json!([1, true, ["input"]]), json!([2, true, ["input"]])];
    check(&resumed, &["item", "done", "lossy"], &expected);
}
