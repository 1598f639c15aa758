//! A document as an HTML page.

mod charts;
mod ticks;

use self::charts::{busy_chart, distribution_chart, gpu_chart, throughput_chart};
use super::document::{
    Block, Cell, Column, ColumnKind, Document, Medium, Section, Table, TableRow,
};
use super::formats::{Count, Html, before_traceback, capitalised, push, shortened};
use crate::text_style::Ink;

/// With more columns a table does not fit a tablet, and its rows become blocks there.
const MOST_NARROW: usize = 6;

/// With more names a list is collapsed.
const OPEN_NAMES: usize = 3;

/// Longer errors and commands are collapsed.
const LONGEST_ERROR: usize = 200;

/// Allows only the page's own style: even unescaped text could load and run nothing.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = include_str!("page/page.css");

/// The style of a part of another page. Its colours stand out on light and on dark backgrounds, whichever the page has.
const PART_STYLE: &str = include_str!("page/summary.css");

/// Returns a document as a page.
pub(super) fn page(document: &Document<'_>) -> String {
    let mut body = header(document);
    document.sections.iter().for_each(|it| push_section(&mut body, it));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>gangline: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n",
        Html(&document.title)
    )
}

/// Returns a document as one element of another page, such as a notebook, with its own style.
pub(super) fn page_part(document: &Document<'_>) -> String {
    let mut body = header(document);
    document.sections.iter().for_each(|it| push_section(&mut body, it));
    format!("<div class=\"gangline-report\">\n<style>\n{PART_STYLE}</style>\n{body}</div>\n")
}

fn header(document: &Document<'_>) -> String {
    let Document { kind, heading, status, ink, .. } = document;
    let mut header =
        format!("<header>\n<p class=\"name\">{kind}</p>\n<h1>{}</h1>\n", prose(heading));
    if let Some(status) = status {
        push!(header, "<p{}>{status}</p>\n", class(Some(*ink)));
    }
    for (text, ink) in &document.leads {
        let lead = match ink {
            Some(Ink::Faint) => format!("<p class=\"name\">{}</p>\n", prose(&capitalised(text))),
            // A collapsed text is no content of a paragraph.
            Some(Ink::Bad) => {
                format!("<div class=\"conclusion error\">{}</div>\n", collapsible(text))
            }
            Some(_) => format!("<p class=\"conclusion\">{}</p>\n", with_code(&capitalised(text))),
            None => {
                format!("<p class=\"conclusion\">{}</p>\n", with_code(&text.replace('\n', " ")))
            }
        };
        header.push_str(&lead);
    }
    header + "</header>\n"
}

fn push_section(page: &mut String, section: &Section<'_>) {
    let heading = Html(&section.heading);
    match &section.blocks[..] {
        [(_, Block::Figures(_))] => {
            push!(page, "<section aria-label=\"{heading}\">\n");
        }
        _ => {
            let half = if section.is_narrow() { " class=\"half\"" } else { "" };
            push!(page, "<section{half}>\n<h2>{heading}</h2>\n");
        }
    }
    let blocks = section.blocks.iter().filter(|(medium, _)| *medium != Medium::Text);
    for (_, block) in blocks {
        match block {
            Block::Figures(figures) => push_facts(page, "", figures),
            Block::Facts(facts) => push_facts(page, " class=\"facts\"", facts),
            Block::Table(table) => push_table(page, table),
            Block::List(_, sentences, _) => push_list(page, sentences.iter()),
            Block::Paragraph(text, Some(Ink::Faint)) => push_note(page, text),
            Block::Paragraph(text, _) => push!(page, "<p>{}</p>\n", with_code(text)),
            Block::BusyChart(report, timeline) => page.push_str(&busy_chart(report, timeline)),
            Block::GpuChart(report) => page.push_str(&gpu_chart(report)),
            Block::ThroughputChart(report) => page.push_str(&throughput_chart(report)),
            Block::DistributionChart(it) => page.push_str(&distribution_chart(it)),
        }
    }
    page.push_str("</section>\n");
}

fn push_facts(page: &mut String, class: &str, facts: &[(String, Cell<'_>)]) {
    push!(page, "<dl{class}>\n");
    for (name, value) in facts {
        push!(page, "<div><dt>{}</dt><dd>{}</dd></div>\n", Html(name), cell(value));
    }
    page.push_str("</dl>\n");
}

fn push_list<'a>(page: &mut String, sentences: impl Iterator<Item = &'a String>) {
    let items: String = sentences.map(|it| format!("<li>{}</li>\n", with_code(it))).collect();
    if !items.is_empty() {
        push!(page, "<ul>\n{items}</ul>\n");
    }
}

fn push_note(page: &mut String, note: &str) {
    push!(page, "<p class=\"note\">{}</p>\n", with_code(note));
}

/// Adds a table, the number of its missing rows, and the notes of its rows. Rows that are not open are collapsed.
fn push_table(page: &mut String, table: &Table<'_>) {
    let (open, rest) = table.rows.split_at(table.rows.len().min(table.limits.open));
    if !open.is_empty() {
        push_rows(page, table, open);
    }
    if !rest.is_empty() {
        let more = Count(rest.len() as u64);
        push!(page, "<details class=\"rest\"><summary>{more} more</summary>\n");
        push_rows(page, table, rest);
        page.push_str("</details>\n");
    }
    table.more(table.rows.len()).iter().for_each(|more| push_note(page, more));
    push_list(page, table.rows.iter().flat_map(|row| &row.notes));
}

fn push_rows(page: &mut String, table: &Table<'_>, rows: &[TableRow<'_>]) {
    let Table { title, columns, .. } = table;
    let wide = if columns.len() > MOST_NARROW { " class=\"wide\"" } else { "" };
    push!(page, "<table{wide} aria-label=\"{}\">\n<thead><tr>", Html(title));
    for column in columns {
        let (class, head) = (class_of(column), column.head);
        push!(page, "<th scope=\"col\"{class}>{head}</th>");
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in rows {
        debug_assert_eq!(row.cells.len(), columns.len());
        page.push_str("<tr>");
        for (index, (it, column)) in row.cells.iter().zip(columns).enumerate() {
            let (it, class, head) = (cell(it), class_of(column), column.head);
            // On a narrow screen each cell has its head beside it, and the first cell is the heading of a block.
            match (index, column.noun) {
                (0, "") => push!(page, "<th scope=\"row\"{class}>{it}</th>"),
                (0, noun) => push!(page, "<th scope=\"row\"{class} data-head=\"{noun}\">{it}</th>"),
                _ => push!(page, "<td{class} data-head=\"{head}\">{it}</td>"),
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table>\n");
}

fn class_of(column: &Column) -> &'static str {
    match column.kind {
        ColumnKind::Number => "",
        ColumnKind::Text(_) => " class=\"text\"",
        ColumnKind::LongText => " class=\"text long\"",
    }
}

fn class(ink: Option<Ink>) -> &'static str {
    match ink {
        Some(Ink::Good) => " class=\"good\"",
        Some(Ink::Warning) => " class=\"warn\"",
        Some(Ink::Bad) => " class=\"bad\"",
        Some(Ink::Strong | Ink::Faint) | None => "",
    }
}

fn cell(cell: &Cell<'_>) -> String {
    let text = cell.text();
    let html = prose(&text);
    match cell {
        Cell::Text(_) | Cell::Tagged(_, "") | Cell::Inked(_, None) => html,
        Cell::Tagged(_, tag) => format!("{html} <span class=\"tag\">{tag}</span>"),
        Cell::Share(share) => {
            let percent = (share.clamp(0.0, 1.0) * 100.0).round();
            format!(
                "<span class=\"bar\" aria-hidden=\"true\"><span style=\"width:{percent}%\"></span></span>\
                 <span class=\"share\">{html}</span>"
            )
        }
        Cell::Inked(_, ink) => format!("<span{}>{html}</span>", class(*ink)),
        Cell::Code(text) if text.chars().count() > LONGEST_ERROR => collapsible(text),
        Cell::Code(text) => format!("<code>{}</code>", code(text)),
        Cell::Errors(errors) => {
            let mut errors = errors.iter().map(|error| collapsible(error));
            let mut cell = errors.next().unwrap_or_default();
            errors.for_each(|it| push!(cell, "<div class=\"note\">{it}</div>"));
            cell
        }
        Cell::Names(names, others) => name_list(names, *others),
    }
}

/// Escapes the names of items, a line each; those after the first few are collapsed.
fn name_list(names: &[String], others: u64) -> String {
    let (first, rest) = names.split_at(names.len().min(OPEN_NAMES));
    let lines = |names: &[String]| {
        names.iter().map(|it| format!("<div>{}</div>", prose(it))).collect::<String>()
    };
    let mut list = lines(first);
    if !rest.is_empty() {
        let more = Count(rest.len() as u64 + others);
        push!(list, "<details><summary>{more} more</summary>{}", lines(rest));
        if others > 0 {
            push!(list, "<div>and {} more</div>", Count(others));
        }
        list.push_str("</details>");
    }
    list
}

/// Escapes an error or a command; a long one is collapsed. Its summary lacks the middle: an error of a command begins
/// with the command and ends with what it said.
fn collapsible(text: &str) -> String {
    let short = shortened(before_traceback(text), LONGEST_ERROR);
    if short.len() == text.len() {
        return with_code(text);
    }
    let lines: Vec<_> = text.lines().map(code).collect();
    format!(
        "<details><summary>{}</summary><pre>{}</pre></details>",
        with_code(&short),
        lines.join("\n")
    )
}

/// Escapes a text, and marks what is in backquotes as code.
fn with_code(text: &str) -> String {
    // An error of another program may have one alone.
    if text.matches('`').count() % 2 == 1 {
        return prose(text);
    }
    let mut html = String::new();
    for (index, part) in text.split('`').enumerate() {
        match index % 2 {
            0 => html.push_str(&prose(part)),
            _ => push!(html, "<code>{}</code>", code(part)),
        }
    }
    html
}

/// Escapes a text, and keeps options whole.
fn prose(text: &str) -> String {
    whole_words(text, |word| {
        let word = word.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '-');
        word.starts_with('-') && word.contains(char::is_alphabetic)
    })
}

/// Escapes a part of a command, and keeps its words whole.
fn code(text: &str) -> String {
    whole_words(text, |word| word.contains('-'))
}

/// Escapes a text, and keeps some of its words in one line: a browser breaks lines behind hyphens, so that a part of an
/// option would look like a word of its own. A hyphen that allows no break would be copied as such.
fn whole_words(text: &str, is_whole: impl Fn(&str) -> bool) -> String {
    let mut html = String::new();
    for piece in text.split_inclusive(char::is_whitespace) {
        let (word, space) = piece.split_at(piece.trim_end().len());
        if is_whole(word) {
            push!(html, "<span class=\"whole\">{}</span>{}", Html(word), Html(space));
        } else {
            push!(html, "{}", Html(piece));
        }
    }
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{HOSTILE, PlayedRun, eventful};

    #[test]
    fn a_page_shows_the_whole_report() {
        let page = eventful(2).to_html();
        for text in [
            "<title>gangline: Denoising &lt;micrographs&gt;: finished in 12.0 s",
            "<code>UnorderedRunner</code>",
            "<h2>Timeline</h2>",
            "<h2>Items done over time</h2>",
            "<h2>Times of attempts</h2>",
            "worker 1 (cuda:1) was abandoned with its thread: CUDA_ERROR_ECC_UNCORRECTABLE &lt;b&gt;",
            "item 17",
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
        let mut played = PlayedRun::new(1);
        played.consume(500_000, 10);
        let page = played.end(1_000_000).to_html();
        assert!(page.contains("No item events: call <code>.timeline()</code>"));
        assert!(!page.contains("<h2>Timeline</h2>") && page.contains("done over time"));
    }

    #[test]
    fn many_producers_and_many_failures_make_no_endless_page() {
        let mut report = eventful(300);
        report.failures.extend(report.failures.clone());
        let page = report.to_html();
        assert!(page.contains("and 44 more workers"));
        assert!(page.contains(">1,800 items<") && page.contains("<div>and 800 more</div>"));
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
    fn a_long_error_keeps_its_end() {
        let mut report = eventful(1);
        let command = "--option value ".repeat(40);
        report.failures.truncate(1);
        report.failures[0].causes = vec![format!("sh -c {command} exited with 3: no disk")];
        report.error = Some(report.failures[0].causes[0].clone());
        let (page, text) = (report.to_html(), report.to_string());
        assert_eq!(page.matches(" exited with 3: no disk</summary>").count(), 2, "{page}");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.matches("value exited with 3: no disk").count(), 2, "{text}");
    }

    #[test]
    fn options_and_words_of_commands_are_whole() {
        let whole = |text: &str| format!("<span class=\"whole\">{text}</span>");
        let page =
            with_code("use more slots (-j, --per-gpu), not 3 - 4 or -5; see `a-b c --d-e` of x-y");
        let expected = format!(
            "use more slots {} {} not 3 - 4 or -5; see <code>{} c {}</code> of x-y",
            whole("(-j,"),
            whole("--per-gpu),"),
            whole("a-b"),
            whole("--d-e"),
        );
        assert_eq!(page, expected);
        assert_eq!(
            prose(" --a<b  c\u{202e} "),
            format!(" {}  c{} ", whole("--a&lt;b"), Html("\u{202e}"))
        );
    }

    #[test]
    fn a_summary_is_one_element_that_runs_nothing() {
        let report = eventful(2);
        let summary = report.to_html_summary();
        assert!(summary.starts_with("<div class=\"gangline-report\">"), "{summary}");
        assert!(summary.ends_with("</div>\n"), "{summary}");
        for tag in ["div", "section", "table", "style", "header"] {
            let (open, closed) = (format!("<{tag}"), format!("</{tag}>"));
            let opened = summary.matches(&format!("{open}>")).count()
                + summary.matches(&format!("{open} ")).count();
            assert_eq!(opened, summary.matches(&closed).count(), "{tag}");
        }
        assert!(!summary.contains("<script") && !summary.contains("<html"));
        assert!(!summary.contains(HOSTILE) && summary.contains(&Html(HOSTILE).to_string()));
        for shown in ["Failures", "Workers", "cuda:1", "the file is empty"] {
            assert!(summary.contains(shown), "{shown}");
        }
        for (head, is_shown) in [("busy", true), ("place", true), ("p90", false), ("init", false)] {
            let head = format!("data-head=\"{head}\"");
            assert_eq!(summary.contains(&head), is_shown, "{head}");
        }
        assert!(!summary.contains("<svg") && summary.len() < report.to_html().len());
    }

    #[test]
    fn the_style_of_a_summary_is_for_nothing_else() {
        let rules = PART_STYLE.split_inclusive('}').filter_map(|rule| rule.split_once('{'));
        let selectors: Vec<&str> = rules.flat_map(|(head, _)| head.split(',')).collect();
        assert!(selectors.len() > 20);
        for selector in selectors {
            assert!(selector.trim().starts_with(".gangline-report"), "{selector}");
        }
    }

    #[test]
    fn charts_have_titles_and_tables_have_heads() {
        let page = eventful(2).to_html();
        assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\"").count());
        assert_eq!(page.matches("<svg").count(), page.matches("\"><title>").count());
        assert_eq!(page.matches("<figure class=\"chart\" aria-label=\"").count(), 3);
        assert_eq!(
            page.matches("<table").count(),
            page.matches("<thead><tr><th scope=\"col\"").count()
        );
        assert!(page.matches("<th scope=\"row\"").count() > 20);
    }
}
