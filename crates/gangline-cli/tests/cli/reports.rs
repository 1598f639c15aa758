//! `gangline report`.

use serde_json::Value;

use crate::support::Place;

/// Two reports of three jobs each; another job fails in each.
fn two_runs() -> Place {
    let place = Place::new();
    for (name, fails) in [("a", 2), ("b", 3)] {
        let line = format!("-j1 --report {name}.json --shell -- 'test $1 != {fails}' ::: 1 2 3");
        assert_eq!(place.run_typed(&line).code, Some(1));
    }
    place
}

/// A page whose commands are texts without spans.
fn read_page(place: &Place, name: &str) -> String {
    place.read(name).replace("<span class=\"whole\">", "").replace("</span>", "")
}

#[test]
fn two_reports_are_compared() {
    let place = two_runs();
    let ran = place.ran(&mut place.typed("report --compare a.json b.json"));
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    for part in ["  lasted  ", "failed only after: 1\n  3: ", "failed only before: 1\n  2: "] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\u{1b}'), "it is not a terminal");
    let ran = place.ran(&mut place.typed("report --compare a.json b.json --html c.html"));
    ran.check(0, "");
    assert!(place.read("c.html").contains("Failed only after: 1"));
}

#[test]
fn a_report_is_shown_with_the_command_that_was_typed() {
    let place = two_runs();
    let ran = place.ran(&mut place.typed("report a.json"));
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains(": 2 ok, 1 failed\nstarted "), "{}", ran.stdout);
    place.ran(&mut place.typed("report a.json --html a.html")).check(0, "");
    let page = read_page(&place, "a.html");
    assert!(page.contains(" run -j1 --report a.json ") && !page.contains("--supervisor"), "{page}");
}

#[test]
fn a_page_has_the_command_that_runs_again_what_failed() {
    let place = Place::new();
    let again = |options: &str| {
        let fails = "--shell -- 'test -e done || test $1 != 2' ::: 1 2 3";
        place.run_typed(&format!("-j1 --report r.html {options} {fails}"));
        let page = read_page(&place, "r.html");
        let command = page.split("<dt>runs these again</dt><dd><code>").nth(1)?;
        let command = command.split("</code>").next()?.replace("&#39;", "'");
        Some(command.split_once(' ')?.1.to_owned())
    };
    assert_eq!(again(""), None, "nothing has recorded what failed");
    let by_log = again("--joblog log").unwrap();
    assert_eq!(by_log, "run --joblog log --retry-failed");
    let by_journal = again("--journal journal").unwrap();
    assert!(by_journal.starts_with("run --resume-failed -j1 --report r.html "), "{by_journal}");
    place.write("done", "");
    for command in [by_log, by_journal] {
        place.ran(&mut place.typed(&command)).check(0, "");
    }
    assert_eq!(again("--joblog log-2"), None, "nothing has failed");
}

#[test]
fn a_file_that_is_no_report_is_named() {
    let place = two_runs();
    place.write("c.json", "[]");
    place.write("d.json", r#"{"name": "no report", "version": null}"#);
    for (line, says) in [
        ("report --compare a.json c.json", "c.json is no report that `gangline run --report"),
        ("report d.json", "d.json is no report that `gangline run --report"),
        ("report none.json", "the report none.json cannot be read"),
    ] {
        place.ran(&mut place.typed(line)).check_said(104, &[says]);
    }
    place.ran(&mut place.typed("report --compare a.json")).check_said(102, &["2 values required"]);
}

#[test]
fn a_report_predicts_what_other_settings_would_have_changed() {
    let place = Place::new();
    // So long that the starts of jobs take a small share on a busy machine too.
    let sleeps = "-j1 --report r.json -- sleep ::: 0.5 0.5 0.5";
    place.run_typed(sleeps).check(0, "");
    let report = |options: &str| place.ran(&mut place.typed(&format!("report r.json {options}")));
    let ran = report("--what-if devices=3");
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
    assert!(ran.stdout.starts_with("with `-j 3` this run would have taken "), "{}", ran.stdout);
    let ran = report("--what-if devices=2 --what-if batch=8");
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("\nwhat `--batch 8` would have changed is not known: "));
    report("--what-if batch=8").check_said(104, &["jobs came one by one"]);
    report("--what-if speed=2").check_said(102, &["\"speed\" is no setting: there are jobs"]);
    report("--what-if window").check_said(102, &["write window=VALUE"]);
}

/// A run that goes on with an earlier one, and is ended by the first failure.
#[test]
fn what_an_earlier_run_had_done_and_what_ended_this_one_are_said() {
    let place = Place::new();
    // One slot, and jobs that last longer than a slow disk takes to write a line.
    let job = "--shell -- 'sleep 0.2; test $1 -lt 150'";
    place.run_typed(&format!("-j1 --journal j {job} ::: 1 2 3")).check(0, "");
    let options = "-j1 --journal j --resume --halt now,fail=1 --report r.json";
    let ran = place.run_typed(&format!("{options} {job} ::: 1 2 3 146 147 148 149 150 151 152"));
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let report: serde_json::Value = serde_json::from_str(&place.read("r.json")).unwrap();
    let conclusion = report["conclusion"].as_str().unwrap();
    let parts = [
        "Ended by --halt now,fail=1 after job 8: ",
        " An earlier run had already done 3 of ",
        " jobs. Until it was cancelled after ",
        "s, the jobs limited the run: the slot worked ",
        "; use more slots (the input and the output keep up with `-j ",
    ];
    let mut rest = conclusion;
    for part in parts {
        let (_, after) = rest.split_once(part).unwrap_or_else(|| panic!("{part}: {conclusion}"));
        rest = after;
    }
    assert_eq!(report["advice"][0]["setting"], "-j", "{}", report["advice"]);
    let failure = &report["failures"][0];
    assert_eq!(
        failure["error"],
        format!(
            "the command failed for job 8 (\"150\") on cpu (slot {}, attempt 1)",
            failure["producer"]
        )
    );
}

#[test]
fn a_report_without_an_end_is_refused() {
    let place = Place::new();
    for line in ["/dev/zero", "--compare /dev/zero /dev/zero", "--html r.html /dev/zero"] {
        let ran = place.ran(&mut place.typed(&format!("report {line}")));
        ran.check_said(104, &["/dev/zero is no report: it has more than 256 MiB"]);
    }
}

#[test]
fn a_report_of_no_job_gives_no_advice_for_programs() {
    let place = Place::new();
    place.write("empty", "");
    place.run_typed("--journal j -- true ::: a b").check(0, "");
    for line in [
        "--journal j --resume -- true ::: a b",
        "--input empty -- true",
        "--warm --input empty -- true",
    ] {
        for report in ["r.txt", "r.html", "r.trace"] {
            place.run_typed(&format!("--report {report} {line}")).check(0, "");
            let text = place.read(report);
            assert!(!text.contains("builder"), "{line}: {text}");
        }
    }
}

/// The times of a kind, of all slots together.
fn time_of(report: &Value, kind: &str) -> f64 {
    let slots = report["producers"].as_array().unwrap();
    slots.iter().map(|slot| slot["times"][kind].as_f64().unwrap()).sum()
}

#[test]
fn a_job_that_is_held_back_is_not_at_work() {
    let place = Place::new();
    place.run_typed("-j4 --delay 200ms --report r.json -- true ::: 1 2 3 4").check(0, "");
    let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
    let held_back = report["held_back_by"]["--delay"].as_f64().unwrap();
    assert!(held_back >= 0.55, "three delays: {report}");
    // Both are sums of the same spans, in seconds, added up in another order.
    let rounding = 1e-6;
    assert!((time_of(&report, "held_back") - held_back).abs() < rounding, "{report}");
    assert_eq!(report["bottleneck"], "held_back", "{report}");
    assert!(
        report["conclusion"].as_str().unwrap().starts_with("`--delay` limited the run"),
        "{report}"
    );
    let slowest = report["slowest"][0]["took"].as_f64().unwrap();
    let rest = report["lasted"].as_f64().unwrap() - held_back;
    assert!(slowest <= rest + rounding, "{report}");
}

#[test]
fn the_start_of_a_warm_worker_is_loading() {
    let place = Place::new();
    place.write(
        "worker",
        "read hello; sleep 0.3; echo '{\"gangline\":1}'\n\
         while read line; do\n\
         item=${line#*\\\"item\\\":}; echo \"{\\\"item\\\":${item%%,*},\\\"output\\\":\\\"done\\\"}\"\n\
         done\n",
    );
    let ran = place.run_typed("-j1 --warm --report r.json -- sh worker ::: a b c");
    ran.check(0, "done\ndone\ndone\n");
    let report: Value = serde_json::from_str(&place.read("r.json")).unwrap();
    let loading = time_of(&report, "loading");
    let conclusion = report["conclusion"].as_str().unwrap();
    assert!(conclusion.starts_with("The start of the warm workers limited the run"), "{report}");
    assert!(loading >= 0.3, "{report}");
    let rest = report["lasted"].as_f64().unwrap() - loading;
    assert!(time_of(&report, "work") <= rest, "{report}");
    assert!(report["slowest"][0]["took"].as_f64().unwrap() <= rest, "{report}");
}
