//! The report as an HTML page.

mod busy;
mod failures;
mod markup;
mod plot;
mod provenance;
mod stages;
mod table;
mod throughput;
mod workers;

use self::markup::{MOST_PRODUCERS, more, with_code};
pub(super) use self::markup::{list, push, section};
pub(super) use self::plot::rate;
pub(super) use self::table::Table;
use super::latency::Latencies;
use super::producer::ProducerReport;
use super::run_report::{Ending, RunReport};
use super::splits::splits;
use super::terminal::{headline, item, lack_of_events, lack_of_keys, losses, retries, waits};
use super::text::{Count, Html, Percent, Time, capitalised, left_out, part};
use crate::observe::worker_report::WorkerReport;

/// Rows beyond these are only counted.
const MOST_RETRIED: usize = 1_000;

/// Rows of long lists beyond these are collapsed.
const SHOWN: usize = 5;

/// Allows only the page's own style: even unescaped text could load and run nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("html/page.css");

pub(super) fn page(report: &RunReport) -> String {
    let mut body = String::new();
    for section in [
        top,
        account,
        stages::section,
        failures::section,
        busy::section,
        throughput::section,
        producers,
        workers::section,
        window,
        slowest,
        tried_again,
        split_batches,
        provenance::section,
    ] {
        body.push_str(&section(report));
    }
    document(&headline(report), &body)
}

/// Returns a page with this title and content.
pub(super) fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>gangline: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n",
        Html(title)
    )
}

fn top(report: &RunReport) -> String {
    let mut top = "<header>\n<p class=\"name\">gangline run report</p>\n".to_owned();
    let (ended, class) = match report.ending {
        Ending::InProgress if !report.has_begun() => ("No run yet", ""),
        Ending::InProgress => ("Run in progress", ""),
        Ending::Finished => ("Run finished", ""),
        Ending::Failed => ("Run failed", " class=\"bad\""),
        Ending::Cancelled => ("Run cancelled", " class=\"warn\""),
    };
    push(
        &mut top,
        format_args!("<h1>{}</h1>\n", Html(report.description.as_deref().unwrap_or(ended))),
    );
    if report.description.is_some() {
        push(&mut top, format_args!("<p{class}>{ended}</p>\n"));
    }
    if let Some(line) = report.provenance.line().filter(|_| report.has_begun()) {
        push(&mut top, format_args!("<p class=\"name\">{}</p>\n", Html(&capitalised(&line))));
    }
    if !report.conclusion.is_empty() {
        let conclusion = with_code(&Html(&report.conclusion).to_string());
        push(&mut top, format_args!("<p class=\"conclusion\">{conclusion}</p>\n"));
    }
    for fallback in &report.fallbacks {
        let fallback = with_code(&Html(fallback).to_string());
        push(&mut top, format_args!("<p class=\"conclusion\">Devices: {fallback}</p>\n"));
    }
    if let Some(error) = &report.error {
        push(
            &mut top,
            format_args!("<div class=\"conclusion error\">{}</div>\n", failures::text(error)),
        );
    }
    top.push_str("</header>\n");
    top
}

fn account(report: &RunReport) -> String {
    let account = report.account;
    let mut list = "<section aria-label=\"Account\">\n<dl>\n".to_owned();
    let mut figure = |name: &str, class: &str, value: &str| {
        push(&mut list, format_args!("<div><dt>{name}</dt><dd{class}>{value}</dd></div>\n"));
    };
    figure("lasted", "", &Time(report.lasted).to_string());
    let rate = account.ok as f64 / report.lasted.as_secs_f64();
    figure(
        "ok",
        if account.ok > 0 { " class=\"good\"" } else { "" },
        &Count(account.ok).to_string(),
    );
    let bad = if account.failed > 0 { " class=\"bad\"" } else { "" };
    figure("failed", bad, &Count(account.failed).to_string());
    for (name, class, count) in [
        ("already done", "", account.already_done),
        ("cancelled", " class=\"warn\"", account.cancelled),
        ("unread", "", account.unread.unwrap_or(0)),
        ("retried", "", report.retries.items),
    ] {
        if count > 0 {
            figure(name, class, &Count(count).to_string());
        }
    }
    if rate.is_finite() {
        figure("ok per second", "", &self::rate(rate));
    }
    if let Some(latency) = report.latency {
        for (name, time) in
            [("median", latency.p50), ("99th percentile", latency.p99), ("slowest", latency.max)]
        {
            figure(name, "", &Time(time).to_string());
        }
    }
    if report.threads_abandoned() > 0 {
        figure("threads abandoned", " class=\"bad\"", &report.threads_abandoned().to_string());
    }
    list.push_str("</dl>\n</section>\n");
    list
}

fn producers(report: &RunReport) -> String {
    if report.producers.is_empty() {
        return String::new();
    }
    let words = report.words();
    let mut heads = vec!["#"];
    if !report.stages.is_empty() {
        heads.push("<stage");
    }
    heads.extend(["<place", "busy", words.items, "failed", "working", "waiting", "init"]);
    if report.has_item_events() {
        heads.extend(["p50", "p90", "p99", "max"]);
    }
    let title = format!("{} and times of each {}", capitalised(words.items), words.producer);
    let mut table = Table::new(&title, &heads);
    for (index, producer) in report.producers.iter().enumerate().take(MOST_PRODUCERS) {
        table.row(producer_row(index, producer, report.has_item_events()));
    }
    let mut section = section(&capitalised(words.producers), &table.end());
    more(&mut section, left_out(MOST_PRODUCERS, report.producers.len(), 0), words.producers);
    let losses = losses(report, MOST_PRODUCERS);
    section.push_str(&list(losses.iter().map(String::as_str)));
    if let Some(lack) = lack_of_events(report) {
        push(&mut section, format_args!("<p class=\"note\">{}</p>\n", with_code(&lack)));
    }
    push(
        &mut section,
        format_args!(
            "<p class=\"note\">Failed: failed attempts. Waiting: the time without {} {}, for the source or for \
             room in the {}.</p>\n</section>\n",
            words.article, words.item, words.window
        ),
    );
    section
}

fn producer_row(index: usize, producer: &ProducerReport, has_item_events: bool) -> Vec<String> {
    let percent = (producer.busy.clamp(0.0, 1.0) * 100.0).round();
    let bar = format!(
        "<span class=\"bar\" aria-hidden=\"true\"><span style=\"width:{percent}%\"></span></span>{}",
        Html(&Percent(producer.busy).to_string())
    );
    let mut row = vec![index.to_string()];
    row.extend(producer.stage.as_deref().map(|stage| Html(stage).to_string()));
    row.extend([
        format!("{}{}", Html(&producer.place), tag(producer)),
        bar,
        Count(producer.items).to_string(),
        Count(producer.failed).to_string(),
        Time(producer.working).to_string(),
        Time(producer.waiting).to_string(),
        Time(producer.init).to_string(),
    ]);
    if has_item_events {
        row.extend(latencies(producer.latency));
    }
    row
}

fn latencies(latency: Option<Latencies>) -> [String; 4] {
    match latency {
        Some(Latencies { p50, p90, p99, max, .. }) => {
            [p50, p90, p99, max].map(|time| Time(time).to_string())
        }
        None => [const { String::new() }; 4],
    }
}

/// The tag of a lost producer; a sentence below the table has the reason.
fn tag(producer: &ProducerReport) -> &'static str {
    match producer {
        ProducerReport { abandoned: true, .. } => " <span class=\"tag\">abandoned</span>",
        ProducerReport { quarantined: Some(_), .. } => " <span class=\"tag\">out of service</span>",
        ProducerReport { worker: Some(WorkerReport { lost: Some(_), .. }), .. } => {
            " <span class=\"tag\">lost</span>"
        }
        _ => "",
    }
}

fn window(report: &RunReport) -> String {
    if report.ending == Ending::InProgress && report.stalls.is_empty() {
        return String::new();
    }
    let waits = if report.ending == Ending::InProgress { Vec::new() } else { waits(report) };
    let list = list(waits.iter().map(String::as_str));
    let words = report.words();
    let title = format!("Source, {} and {}", words.window, words.consumer);
    let mut window = section(&title, &list);
    if !report.stalls.is_empty() {
        let title = format!("The {} that blocked the head of line for the longest", words.items);
        let item_head = format!("<{}", words.item);
        let mut table = Table::new(&title, &[&*item_head, "waited"]);
        for stall in &report.stalls {
            let item = Html(&item(words, stall.item, stall.key.as_deref())).to_string();
            table.row(vec![item, Time(stall.lasted).to_string()]);
        }
        window.push_str(&table.end_after(SHOWN));
    }
    if let Some(lack) = lack_of_keys(report) {
        push(&mut window, format_args!("<p class=\"note\">{lack}</p>\n"));
    }
    window.push_str("</section>\n");
    window
}

fn slowest(report: &RunReport) -> String {
    if report.slowest.is_empty() {
        return String::new();
    }
    let words = report.words();
    let item_head = format!("<{}", words.item);
    let heads = [&*item_head, "took", words.producer, "attempt", "batch of"];
    let mut table = Table::new("The attempts that took the longest", &heads);
    for slow in &report.slowest {
        table.row(vec![
            Html(&item(words, slow.item, slow.key.as_deref())).to_string(),
            Time(slow.took).to_string(),
            slow.producer.to_string(),
            slow.attempt.to_string(),
            Count(slow.together).to_string(),
        ]);
    }
    section(&format!("Slowest {}", words.items), &table.end_after(SHOWN)) + "</section>\n"
}

fn split_batches(report: &RunReport) -> String {
    splits(&report.splits).map_or(String::new(), |splits| {
        section("Split batches", &format!("<p>{}</p>\n", Html(&splits))) + "</section>\n"
    })
}

fn tried_again(report: &RunReport) -> String {
    let Some(summary) = retries(report) else { return String::new() };
    let words = report.words();
    let item_head = format!("<{}", words.item);
    let heads = [&*item_head, "failed attempts", "<outcome", "<<last error"];
    let title = format!("{} that were retried", capitalised(words.items));
    let mut table = Table::new(&title, &heads);
    let list = &report.retries.list;
    for retried in list.iter().take(MOST_RETRIED) {
        table.row(vec![
            Html(&part(words, retried.item, retried.key.as_deref(), &retried.parts)).to_string(),
            retried.failed_attempts.to_string(),
            retried.outcome.text().to_owned(),
            failures::text(&retried.error),
        ]);
    }
    let mut section = section("Retries", &format!("<p>{summary}</p>\n{}", table.end_after(SHOWN)));
    more(&mut section, left_out(MOST_RETRIED, list.len(), report.retries.left_out), words.items);
    section + "</section>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::report::samples::{HOSTILE, Told, eventful};

    #[test]
    fn a_page_shows_the_whole_report() {
        let page = eventful(2).to_html();
        for text in [
            "<title>gangline: Denoising &lt;micrographs&gt;: finished in 12.0 s",
            "<code>window(n)</code>",
            "<h2>Timeline</h2>",
            "<h2>Items done over time</h2>",
            "producer 1 (cuda:1) was abandoned with its thread: CUDA_ERROR_ECC_UNCORRECTABLE &lt;b&gt;",
            "item 17 (key 17)",
            "threads abandoned",
            "<h2>Slowest items</h2>",
            "<h2>How it was run</h2>",
            "<h2>Retries</h2>",
            "the file is empty",
            "<details><summary>long long",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert!(!page.contains(HOSTILE) && page.contains(&Html(HOSTILE).to_string()));
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = eventful(2).to_html();
        for other in
            ["<script", "http:", "https:", "src=x ", "@import", "url(", "<link", "javascript:"]
        {
            let is_text = |at: usize| page[..at].ends_with("img ") || page[..at].ends_with("&lt;");
            assert!(page.match_indices(other).all(|(at, _)| is_text(at)), "{other}");
        }
    }

    #[test]
    fn a_page_of_a_run_without_item_events_says_how_to_have_them() {
        let mut played = Told::new(1);
        played.consume(500_000, 10);
        let page = played.end(1_000_000).to_html();
        assert!(page.contains("No item events: call <code>.timeline()</code>"));
        assert!(!page.contains("<h2>Timeline</h2>") && page.contains("done over time"));
    }

    #[test]
    fn many_producers_and_many_failures_make_no_endless_page() {
        let report = eventful(300);
        let page = report.to_html();
        assert!(page.contains("and 44 more producers"));
        assert!(page.contains("and 1,700 more failures"));
        let timeline = page.split("<h2>Timeline</h2>").nth(1).unwrap();
        let timeline = timeline.split("</section>").next().unwrap();
        assert!(timeline.len() < 2 * 1_024 * 1_024, "{} bytes", timeline.len());
    }

    #[test]
    fn a_share_below_one_per_cent_is_escaped() {
        let mut report = eventful(1);
        report.producers[0].busy = 0.001;
        let page = report.to_html();
        assert!(page.contains("&lt;1 %") && !page.contains("<1 %"));
    }

    #[test]
    fn charts_have_titles_and_tables_have_heads() {
        let page = eventful(2).to_html();
        assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\"").count());
        assert_eq!(page.matches("<desc").count(), 2);
        assert_eq!(
            page.matches("<table").count(),
            page.matches("<thead><tr><th scope=\"col\"").count()
        );
        assert!(page.matches("<th scope=\"row\"").count() > 20);
    }
}
