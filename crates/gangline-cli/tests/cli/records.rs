//! Logs, results and reports: where they go, and what they say.

use serde_json::Value;

use crate::support::Place;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn the_log_and_the_results_have_slot_and_gpus() {
    let place = Place::new();
    place.run_typed("--gpu-list 3 --joblog log --results out -- true ::: a").check(0, "");
    let log = place.read("log");
    assert!(log.lines().next().unwrap().ends_with("\tCommand\tSlot\tGpus"), "{log}");
    assert!(log.lines().nth(1).unwrap().ends_with("\ttrue a\t0\t3"), "{log}");
    let job = json(&place.read("out/1/job.json"));
    assert_eq!((&job["slot"], &job["gpus"][0]), (&0.into(), &"3".into()), "{job}");
    let time = |key: &str| job[key].as_f64().unwrap();
    assert!((time("started") + time("seconds") - time("ended")).abs() < 0.001, "{job}");
}

#[test]
fn a_log_is_one_file() {
    let place = Place::new();
    for option in ["--joblog '{#}.log'", "--journal '{}.j'", "--report '{/}.html'"] {
        let ran = place.run_typed(&format!("{option} -- touch ::: started"));
        ran.check_said(102, &["has a mark, and is one file for all jobs"]);
    }
    assert!(!place.path("started").exists());
}

#[test]
fn jobs_with_fewer_inputs_keep_the_columns_of_a_table() {
    let place = Place::new();
    place.run_typed("-n2 --results t.csv --journal j -- echo ::: a b c").check(0, "a b\nc\n");
    let more = place.run_typed("-n1 --results t.csv --journal j --resume -- echo ::: d");
    more.check(0, "d\n");
    let mut reader = csv::Reader::from_path(place.path("t.csv")).unwrap();
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    let ends: Vec<_> = rows.iter().map(|row| row.iter().skip(9).collect::<Vec<_>>()).collect();
    assert_eq!(ends, [["a", "b", "a b\n", ""], ["c", "", "c\n", ""], ["d", "", "d\n", ""]]);
}

#[test]
fn two_records_do_not_overwrite_each_other() {
    let place = Place::new();
    place.write("in", "a\n");
    std::os::unix::fs::symlink("in", place.path("link")).unwrap();
    for line in [
        "--joblog l --journal l -- touch ::: started",
        "--joblog l.csv --results ./l.csv -- touch ::: started",
        "--report l.json --report tmp/../l.json -- touch ::: started",
        "--joblog in -a in -- touch started",
        "--joblog link -- touch started :::: in",
        "--results in.csv --csv in.csv -- touch started",
    ] {
        place.write("in.csv", "n\n1\n");
        place.run_typed(line).check_said(102, &["give each a file of its own"]);
    }
    assert_eq!(place.read("in"), "a\n", "the inputs are still there");
    assert!(!place.path("started").exists());
    place.run_typed("--joblog /dev/null --results o.csv -- true ::: a").check(0, "");
    let ran = place.run_typed("--results one/ --joblog two/log -- true ::: a");
    ran.check_said(106, &["two/log cannot be written"]);
    let ran = place.run_typed("--results one/x.csv --joblog one/x.csv -- true ::: a");
    ran.check_said(102, &["give each a file of its own"]);
}

#[test]
fn results_may_have_names_with_marks() {
    let place = Place::new();
    let script = "echo out$1; echo err$1 >&2";
    let line = format!("-j1 --results 'res/{{}}.out' --shell -- '{script}' ::: a b");
    place.run_typed(&line).check(0, "outa\noutb\n");
    assert_eq!(
        place.names("res"),
        ["a.out", "a.out.err", "a.out.json", "b.out", "b.out.err", "b.out.json"]
    );
    assert_eq!(
        (place.read("res/b.out"), place.read("res/b.out.err")),
        ("outb\n".into(), "errb\n".into())
    );
    assert_eq!(json(&place.read("res/b.out.json"))["number"], 2);
    place.run_typed("--results 'dirs/{}/' -- echo ::: a").check(0, "a\n");
    assert_eq!(place.names("dirs/a"), ["job.json", "stderr", "stdout"]);
    let ran = place.run_typed("-j1 --results 'same-{.}' -- echo ::: a.x a.y");
    ran.check_said(106, &["job 2 and an earlier job have the same name, same-a"]);
}

#[test]
fn results_may_be_a_table() {
    let place = Place::new();
    let script = "printf \"%s,\\\"x\\n\" $1; echo err >&2; exit $1";
    let ran = place.run_typed(&format!("-j2 --results my.csv --shell -- '{script}' ::: 0 3"));
    ran.check(1, "0,\"x\n3,\"x\n");
    let text = place.read("my.csv");
    let mut rows = text.splitn(2, '\n');
    let names =
        "Seq,Host,Starttime,JobRuntime,Send,Receive,Exitval,Signal,Command,V1,Stdout,Stderr";
    assert_eq!(rows.next(), Some(names));
    let rest = rows.next().unwrap();
    assert!(rest.contains(",3,0,") && rest.ends_with(",3,\"3,\"\"x\n\",\"err\n\"\n"), "{rest}");
    place.run_typed("--results t.tsv -- echo ::: a").check(0, "a\n");
    assert!(place.read("t.tsv").starts_with("Seq\tHost\t"));
    place.run_typed("-j2 --results my.json -- echo ::: a b").check(0, "a\nb\n");
    let rows: Vec<Value> = place.read("my.json").lines().map(json).collect();
    assert_eq!((rows.len(), &rows[1]["Seq"], &rows[1]["Stdout"]), (2, &2.into(), &"b\n".into()));
    assert_eq!(rows[1]["V"][0], "b");
    place.run_typed("--results folder.csv/ -- echo ::: a").check(0, "a\n");
    assert_eq!(place.names("folder.csv"), ["1"]);
}

#[test]
fn a_resumed_run_goes_on_with_a_table() {
    let place = Place::new();
    let line = "-j1 --journal j --results my.csv -- echo";
    place.run_typed(&format!("{line} ::: a")).check(0, "a\n");
    let refused = place.run_typed(&format!("{line} ::: a"));
    assert_eq!(refused.code, Some(105));
    let rows = place.read("my.csv");
    assert_eq!(rows.lines().count(), 3, "a refused run replaces nothing: {rows}");
    place.write("my.csv", rows.clone() + "2,:,\"torn");
    place.run_typed(&format!("--resume {line} ::: a b")).check(0, "b\n");
    let more = place.read("my.csv");
    assert!(more.starts_with(&rows) && !more.contains("torn") && more.contains("echo b"), "{more}");
}

fn report(place: &Place, line: &str) -> Value {
    let ran = place.run_typed(&format!("--report r.json {line}"));
    assert!(ran.code.is_some_and(|code| code <= 100), "{ran:?}");
    json(&place.read("r.json"))
}

#[test]
fn a_full_set_of_slots_is_not_a_slow_input() {
    let place = Place::new();
    let list: String = (0..40).map(|job| format!("{job}\n")).collect();
    place.write("in", list);
    let report = report(&place, "-j2 --input in --shell -- 'sleep 0.1'");
    assert_eq!(report["bottleneck"], "producers", "{report}");
    let conclusion = report["conclusion"].as_str().unwrap();
    assert!(conclusion.contains("-j"), "{conclusion}");
    for word in ["batch", "window(", "producer_work", "speculate", "iterator"] {
        assert!(!conclusion.contains(word), "{word}: {conclusion}");
    }
}

#[test]
fn a_job_has_one_number() {
    let place = Place::new();
    let line = "-j1 --shell -- 'exit $1' ::: 0 0 4 0";
    let report = report(&place, line);
    assert_eq!(report["failures"][0]["item"], 3, "{report}");
    assert_eq!(report["spans"][2]["item"], 3, "{report}");
    assert_eq!(
        report["slowest"].as_array().unwrap().iter().filter(|one| one["item"] == 0).count(),
        0
    );
    place.write("jobs", "--no-gpu true\nfalse\n--no-gpu false\n");
    place.run_typed("--gpu-list 0 --report l.json --job-file jobs");
    assert_eq!(json(&place.read("l.json"))["failures"][0]["item"], 2);
    assert_eq!(json(&place.read("l-2.json"))["failures"][0]["item"], 3);
}

#[test]
fn a_report_speaks_of_jobs_and_slots() {
    let place = Place::new();
    let reports = "--report r.txt --report r.html --report r.json --report r.trace";
    place.run_typed(&format!("-j2 {reports} --shell -- 'exit $1' ::: 0 3 0 0"));
    let shown = place.ran(&mut place.typed("report r.json")).stdout;
    assert_eq!(shown.lines().last(), place.read("r.txt").lines().last());
    let compared = place.ran(&mut place.typed("report --compare r.json r.json")).stdout;
    for text in [place.read("r.txt"), shown, compared] {
        for word in ["item", "producer", "consumer", "producer_work", "timeline()"] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    let text = place.read("r.txt");
    for part in ["  #  place  jobs  failed", "job 2 (3) in the command on cpu", "output: worked"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let page = place.read("r.html");
    for part in ["<h2>Slots</h2>", "<h2>Slowest jobs</h2>", "job 2 (3)", "each slot worked"] {
        assert!(page.contains(part), "{part}");
    }
    let body = page.split_once("</style>").unwrap().1;
    for word in ["item 1", "Producers", "producer_work", "Slowest items", "consumer"] {
        assert!(!body.contains(word), "{word}: {body}");
    }
    let trace = place.read("r.trace");
    assert!(trace.contains("slot 0 (cpu)") && !trace.contains("producer"), "{trace}");
}
