//! docs/metrics.md and the dashboard, held against what a server exports: all metrics of the library, and its own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::server::Server;
use crate::support::wait_until;

/// Metrics that no panel shows, each with the reason.
const NOT_ON_THE_DASHBOARD: &[(&str, &str)] = &[];

/// The metrics by name.
type Metrics = BTreeMap<String, Metric>;

#[derive(Debug, Default)]
struct Metric {
    kind: String,
    /// Those that all have are among them.
    labels: BTreeSet<String>,
}

#[test]
fn the_table_has_each_metric_with_its_type_unit_and_labels() {
    let (exported, page) = (exported(), read("docs/metrics.md"));
    let rows = page.lines().filter(|line| line.starts_with("| `gangline_"));
    let mut listed = BTreeSet::new();
    for row in rows {
        let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, unit, labels, _] = cells[..] else { panic!("{row}") };
        let name = name.trim_matches('`');
        let metric = exported.get(name).unwrap_or_else(|| panic!("no {name} in {exported:#?}"));
        assert_eq!(kind, metric.kind, "{name}");
        let labels = labels.split(", ").filter(|it| !it.is_empty()).map(|it| it.trim_matches('`'));
        let labels: BTreeSet<_> = labels.chain(["runner"]).map(str::to_owned).collect();
        assert_eq!(labels, metric.labels, "{name}");
        assert_eq!(unit == "seconds", name.ends_with("_seconds"), "{name}: {unit}");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}: {kind}");
        listed.insert(name.to_owned());
    }
    assert_eq!(listed, exported.keys().cloned().collect());
}

#[test]
fn the_dashboard_asks_for_metrics_and_labels_that_exist() {
    let exported = exported();
    let dashboard: Value = serde_json::from_str(&read("docs/deploy/grafana.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap().iter();
    let variables: BTreeSet<_> = variables.map(|it| it["name"].as_str().unwrap()).collect();
    let (mut shown, mut ids) = (BTreeSet::new(), BTreeSet::new());
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            shown.extend(check(query, &exported));
            for word in query.split('$').skip(1).map(word_at) {
                assert!(word == "__rate_interval" || variables.contains(word), "${word}: {query}");
            }
            let by = query.split(" by (").nth(1).unwrap().split(')').next().unwrap();
            let legend = target["legendFormat"].as_str().unwrap();
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(by.split(", ").any(|it| it == label), "{label} in {legend}: {query}");
            }
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        if let Some(query) = variable["query"]["query"].as_str() {
            let asked = query.strip_prefix("label_values(").unwrap().trim_end_matches(')');
            let (name, label) = asked.split_once(", ").unwrap();
            assert!(exported[name].labels.contains(label), "{query}");
        }
    }
    let excepted = NOT_ON_THE_DASHBOARD.iter().map(|(name, _)| (*name).to_owned());
    let missing: Vec<_> = exported.keys().filter(|name| !shown.contains(*name)).cloned().collect();
    assert_eq!(missing, excepted.collect::<Vec<_>>(), "add a panel, or a reason above");
    are_apart(panels);
}

#[test]
fn the_queries_of_the_page_exist() {
    let (exported, page) = (exported(), read("docs/metrics.md"));
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("? | `"));
    let queries: Vec<_> = rows.map(|row| row.split('`').nth(1).unwrap()).collect();
    assert_eq!(queries.len(), 3);
    for query in queries {
        assert!(!check(query, &exported).is_empty(), "{query}");
    }
}

#[test]
fn a_query_of_another_name_or_label_is_found() {
    let metric = |kind: &str, labels: &[&str]| Metric {
        kind: kind.to_owned(),
        labels: labels.iter().map(|label| (*label).to_owned()).collect(),
    };
    let exported = Metrics::from([
        ("gangline_a_total".to_owned(), metric("counter", &["runner"])),
        ("gangline_b_seconds".to_owned(), metric("histogram", &["runner", "device"])),
    ]);
    let fails = |query: &str| std::panic::catch_unwind(|| check(query, &exported)).is_err();
    assert!(!fails("sum by (runner) (rate(gangline_a_total{runner=~\"x\"}[5m]))"));
    assert!(!fails("histogram_quantile(0.9, sum by (le, device) (gangline_b_seconds_bucket))"));
    assert!(fails("gangline_b_total"));
    assert!(fails("gangline_b_seconds"), "a histogram has no sample of its own name");
    assert!(fails("gangline_a_total_sum"));
    assert!(fails("gangline_a_total{device=\"x\"}"));
    assert!(fails("sum by (device) (rate(gangline_a_total[5m]))"));
    assert!(fails("sum by (le) (gangline_b_seconds_sum)"));
}

/// Checks the names and labels of a query. Returns the metrics that it asks for.
fn check(query: &str, exported: &Metrics) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (sample, selector) in samples(query) {
        let (name, metric) = metric_of(sample, exported);
        for matcher in selector.split(", ").filter(|it| !it.is_empty()) {
            let label = word_at(matcher);
            assert!(metric.labels.contains(label), "{label} of {sample} in {query}");
        }
        names.insert(name.to_owned());
    }
    for (i, _) in query.match_indices(" by (") {
        let (labels, rest) = query[i + 5..].split_once(')').unwrap();
        for (sample, _) in samples(in_parentheses(rest.trim_start())) {
            let (_, metric) = metric_of(sample, exported);
            for label in labels.split(", ") {
                let is_bound = label == "le" && sample.ends_with("_bucket");
                assert!(is_bound || metric.labels.contains(label), "{label} in {query}");
            }
        }
    }
    names
}

/// The samples that a query asks for, each with what stands in braces behind it.
fn samples(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.match_indices("gangline_").map(|(i, _)| {
        let sample = word_at(&query[i..]);
        let rest = query[i + sample.len()..].strip_prefix('{');
        (sample, rest.map_or("", |rest| rest.split('}').next().unwrap()))
    })
}

fn metric_of<'a>(sample: &str, exported: &'a Metrics) -> (&'a str, &'a Metric) {
    let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| sample.strip_suffix(part));
    let (name, metric) = exported
        .get_key_value(parts.unwrap_or(sample))
        .unwrap_or_else(|| panic!("{sample} is not exported"));
    assert_eq!(parts.is_some(), metric.kind == "histogram", "{sample}");
    (name, metric)
}

fn word_at(text: &str) -> &str {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().unwrap()
}

/// The text up to the bracket that closes the first.
fn in_parentheses(text: &str) -> &str {
    assert!(text.starts_with('('), "{text}");
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[1..end.unwrap()]
}

/// Panels that overlap would be moved by Grafana.
fn are_apart(panels: &[Value]) {
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (x, y) in (at("y")..at("y") + at("h"))
            .flat_map(|y| (at("x")..at("x") + at("w")).map(move |x| (x, y)))
        {
            assert!(taken.insert((x, y)), "{} overlaps another", panel["title"]);
        }
    }
}

/// What a server exports once it has answered a request.
fn exported() -> Metrics {
    let server = Server::start("--batch 2 --retries 1");
    server.ask("[1,2]");
    let mut text = String::new();
    // The time of a call is there once the observer has seen its end.
    wait_until("a call is counted", || {
        text = server.get("/metrics").body;
        text.contains("gangline_device_busy_seconds_count")
    });
    server.end();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut metrics: Metrics = types
        .map(|line| {
            let (name, kind) = line.split_once(' ').unwrap();
            (name.to_owned(), Metric { kind: kind.to_owned(), ..Metric::default() })
        })
        .collect();
    for line in text.lines().filter(|line| line.starts_with("gangline_")) {
        let (sample, labels) = line.split_once('{').unwrap();
        let parts = ["_bucket", "_sum", "_count"].iter().find_map(|part| sample.strip_suffix(part));
        let name = parts.filter(|name| metrics.contains_key(*name)).unwrap_or(sample);
        let labels = labels.rsplit_once('}').unwrap().0.split("\",");
        let labels = labels.map(word_at).filter(|label| *label != "le").map(str::to_owned);
        metrics.get_mut(name).unwrap().labels.extend(labels);
    }
    assert!(metrics.len() > 20, "{text}");
    metrics
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}
