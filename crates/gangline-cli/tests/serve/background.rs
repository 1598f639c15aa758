//! `--background`: values of a file beside requests.

use std::fmt::Write;

use rustix::process::Signal;

use crate::server::Server;
use crate::support::{Place, wait_until};

/// A server with this file as its background.
#[track_caller]
fn beside(lines: &str, options: &str) -> (Server, Place) {
    let place = Place::new();
    let file = place.write("values.jsonl", lines);
    (Server::start(&format!("{options} --background {}", file.display())), place)
}

#[test]
fn each_line_has_a_record_in_the_order_of_the_file() {
    let lines = "2\n\nnone\n{\"error\":\"bad\"}\n3\n[1, 2]\n\"\\ud800\"";
    let (server, _place) = beside(lines, "--batch 2");
    wait_until("all are done", || server.stats()["values"]["ok"] == 3);
    server.ask("[5,6]").check(200, "[25,36]");
    assert_eq!(server.stats()["queue"]["open"], 0);
    server.running.send(Signal::TERM);
    let ran = server.ended();
    ran.check_said(0, &["is done: 6 values, of which 3 failed\n"]);
    let records: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(records[0], r#"{"item":1,"input":2,"output":4}"#);
    assert!(records[1].starts_with(r#"{"item":3,"error":"expected ident"#), "{records:?}");
    assert_eq!(records[2], r#"{"item":4,"input":{"error":"bad"},"error":"bad"}"#);
    assert_eq!(records[3], r#"{"item":5,"input":3,"output":9}"#);
    assert_eq!(records[4], r#"{"item":6,"input":[1, 2],"output":[1,2]}"#);
    assert!(records[5].starts_with(r#"{"item":7,"error":"#), "{records:?}");
    assert_eq!(records.len(), 6);
}

#[test]
fn a_byte_order_mark_before_the_first_value_is_skipped() {
    let (server, _place) = beside("\u{feff}2\n\u{feff}3\n\"\u{feff}\"\n", "");
    wait_until("all are done", || server.stats()["values"]["ok"] == 2);
    server.running.send(Signal::TERM);
    let ran = server.ended();
    let records: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(records[0], r#"{"item":1,"input":2,"output":4}"#);
    assert!(records[1].starts_with(r#"{"item":2,"error":"#), "{records:?}");
    assert_eq!(records[2], "{\"item\":3,\"input\":\"\u{feff}\",\"output\":\"\u{feff}\"}");
}

#[test]
fn a_request_goes_before_what_no_worker_has() {
    let lines = (1..=50).fold("{\"wait\":\"go\"}\n".to_owned(), |mut lines, n| {
        writeln!(lines, "{n}").unwrap();
        lines
    });
    let (server, _place) = beside(&lines, "");
    server.place.wait_for("waiting");
    let mut caller = server.post("1000");
    server.wait_for_open(1);
    server.place.write("go", "");
    caller.reply().check(200, "1000000");
    wait_until("all are done", || server.stats()["values"]["ok"] == 52);
    let seen = std::fs::read_to_string(server.place.path("seen")).unwrap();
    let second = seen.lines().nth(1).unwrap();
    assert_eq!(second, "[1000]", "{seen}");
    server.end();
}

#[test]
fn the_end_says_where_to_go_on() {
    let (server, _place) = beside("1\n2\n{\"wait\":\"never\"}\n4\n", "--grace 100ms");
    server.place.wait_for("waiting");
    server.running.send(Signal::TERM);
    let ran = server.ended();
    assert!(ran.stderr.contains("values.jsonl is done up to line 3, which is the next"), "{ran:?}");
    assert_eq!(ran.stdout.lines().count(), 2, "{ran:?}");
}

#[test]
fn a_line_that_is_too_long_fails_alone() {
    let (server, _place) = beside(&format!("1\n\"{}\"\n3\n", "x".repeat(5_000)), "--max-body 1k");
    wait_until("all are done", || server.stats()["values"]["ok"] == 2);
    server.running.send(Signal::TERM);
    let ran = server.ended();
    let second = ran.stdout.lines().nth(1).unwrap();
    let text = "the line has more than 1024 bytes (--max-body)";
    assert_eq!(second, format!(r#"{{"item":2,"error":"{text}"}}"#));
    assert_eq!(ran.stdout.lines().nth(2), Some(r#"{"item":3,"input":3,"output":9}"#));
}

#[test]
fn requests_are_answered_after_the_reader_of_the_records_has_gone() {
    let (mut server, _place) = beside("{\"wait\":\"go\"}\n2\n3\n", "");
    server.place.wait_for("waiting");
    server.running.close_stdout();
    server.place.write("go", "");
    server.running.wait_for_stderr("is done up to line 1: standard output cannot be written: ");
    server.ask("7").check(200, "49");
    server.end();
}

#[test]
fn records_that_are_not_read_keep_no_request_waiting() {
    let line = format!("\"{}\"\n", "x".repeat(1_000));
    let (mut server, _place) = beside(&line.repeat(400), "--batch 4");
    // A pipe has room for 64 KiB.
    wait_until("some are done", || server.stats()["values"]["ok"].as_u64() >= Some(60));
    server.ask("7").check(200, "49");
    server.running.send(Signal::TERM);
    let said = server.running.read_stderr_until("standard output is not read");
    assert!(said.contains("values.jsonl is done up to line "), "{said}");
    let ran = server.ended();
    assert_eq!(ran.code, Some(106), "{ran:?}");
    let records = ran.stdout.lines().filter(|line| line.ends_with('}')).count();
    let next: usize =
        said.split("up to line ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
    // One was being written.
    assert!([next - 1, next].contains(&records), "{records} of {next}");
}

#[test]
fn what_cannot_be_done_is_refused_before_workers_start() {
    let place = Place::new();
    let missing = "serve --listen 0 --background missing.jsonl -- python3 worker";
    place.ran(&mut place.typed(missing)).check_said(104, &["cannot read missing.jsonl: "]);
    let alone = "serve --listen 0 --background-share 20 -- python3 worker";
    place.ran(&mut place.typed(alone)).check_said(102, &["--background <FILE>"]);
    let most = "serve --listen 0 --background-share 91 --background x -- python3 worker";
    place.ran(&mut place.typed(most)).check_said(102, &["0..=90"]);
}
