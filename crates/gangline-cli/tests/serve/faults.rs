//! Callers that misbehave, each beside one that does not.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::caller::{Caller, request};
use crate::server::Server;
use crate::support::wait_until;

const HEAD: &str =
    "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[test]
fn half_requests_are_cut_off() {
    let server = Server::start("--idle-timeout 3s");
    let begun = Instant::now();
    let mut silent = server.caller();
    let mut head = server.caller();
    head.write("POST /pred");
    let mut body = server.caller();
    body.write(format!("{HEAD}content-length: 10\r\n\r\n[1,"));
    server.ask("3").check(200, "9");
    assert!(silent.try_reply().is_none());
    assert!(head.try_reply().is_none_or(|reply| reply.status == 408));
    assert_eq!(body.reply().status, 408);
    assert!(begun.elapsed() > Duration::from_millis(2_900), "they had their time");
    let mut kept = server.caller();
    kept.ask("2").check(200, "4");
    assert!(kept.try_reply().is_none(), "a connection is not kept for ever");
    server.end();
}

/// Bodies that are only announced, and those that pause, would take all memory for bodies: 16 times the largest.
#[test]
fn bodies_that_pause_keep_no_other_waiting() {
    let server = Server::start("--max-body 32M");
    let forms =
        ["transfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n", "content-length: 33554432\r\n\r\n[1,"];
    let begin = |form: &str| {
        let mut caller = server.caller();
        caller.write(format!("{HEAD}{form}"));
        caller
    };
    let paused: Vec<_> = forms.iter().cycle().take(40).map(|form| begin(form)).collect();
    let large = format!("\"{}\"", "x".repeat(4 << 20));
    server.ask(&large).check(200, &large);
    let mut chunked = server.caller();
    chunked.write(format!("{HEAD}transfer-encoding: chunked\r\n\r\n1\r\n7\r\n0\r\n\r\n"));
    chunked.reply().check(200, "49");
    drop(paused);
    server.end();
}

#[test]
fn a_body_that_comes_too_slowly_is_given_up() {
    let server = Server::start("--idle-timeout 2s");
    let chunked = "transfer-encoding: chunked\r\n\r\n";
    for (head, part) in
        [(chunked, "1\r\n1\r\n"), (chunked, ""), ("content-length: 1000000\r\n\r\n", "1")]
    {
        let mut caller = server.caller();
        // What was sent at once buys no time for later.
        let first = match head {
            head if head == chunked => format!("10000\r\n{}\r\n", "1".repeat(65_536)),
            _ => "1".repeat(65_536),
        };
        caller.write(format!("{HEAD}{head}{first}"));
        let mut writing = caller.stream.try_clone().unwrap();
        let part = part.to_owned();
        let trickle = std::thread::spawn(move || {
            while writing.write_all(part.as_bytes()).is_ok() && !part.is_empty() {
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let reply = caller.reply();
        assert_eq!(reply.status, 408, "{reply:?}");
        drop(caller);
        trickle.join().unwrap();
    }
    let mut caller = server.caller();
    caller.write(format!("{HEAD}{chunked}"));
    for _ in 0..25 {
        caller.write(format!("1000\r\n{}\r\n", " ".repeat(4_096)));
        std::thread::sleep(Duration::from_millis(100));
    }
    caller.write("1\r\n3\r\n0\r\n\r\n");
    caller.reply().check(200, "9");
    server.end();
}

#[test]
fn requests_that_end_in_the_middle_cost_nothing() {
    let server = Server::start("--idle-timeout 5s");
    for part in ["", "POST", HEAD, &format!("{HEAD}content-length: 10\r\n\r\n12")] {
        let mut caller = server.caller();
        caller.write(part);
        drop(caller);
    }
    for (status, garbage) in [
        (400, "\r\n\r\n\r\n"),
        (400, "GET\r\n\r\n"),
        (400, "\u{0}\u{1}\u{2}\r\n\r\n"),
        (505, "GET / HTTP/9.9\r\n\r\n"),
    ] {
        let mut caller = server.caller();
        caller.write(garbage);
        assert!(caller.try_reply().is_none_or(|reply| reply.status == status), "{garbage:?}");
    }
    let mut caller = server.caller();
    // The server may have answered and closed before all is written.
    let _ = caller
        .stream
        .write_all(format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "x".repeat(1 << 20)).as_bytes());
    server.ask("3").check(200, "9");
    server.end();
}

#[test]
fn a_caller_that_leaves_costs_nothing() {
    let server = Server::start("");
    let mut first = server.post_waiting("go");
    let leaving = server.post("[1001,1002]");
    let mut staying = server.post("7");
    server.wait_for_open(4);
    drop(leaving);
    server.wait_for_open(2);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    staying.reply().check(200, "49");
    assert!(!server.place.read("seen").contains("100"), "no hook has begun");
    assert_eq!(server.stats()["values"]["cancelled"], 2);
    assert!(server.get("/metrics").body.contains("code=\"gone\"} 1"));
    server.end();
}

/// With bytes of a second request in its hands, a server may not notice that the caller has left.
#[test]
fn a_caller_that_leaves_its_second_request_behind_costs_nothing() {
    let server = Server::start("--queue 8");
    let mut first = server.post_waiting("go");
    let json = "content-type: application/json\r\n";
    let post = |body: &str| request("POST /predict", json, body);
    let half = b"POST /predict HTTP/1.1\r\nhost: loc".to_vec();
    let seconds = [post("1002"), post("[1003,1004]"), half, request("GET /stats", "", "")];
    let leaving = seconds.map(|second| {
        let mut caller = server.caller();
        caller.write([post("1001"), second].concat());
        caller
    });
    server.wait_for_open(5);
    drop(leaving);
    server.wait_for_open(1);
    let mut staying = server.caller();
    staying.write([post("7"), post("8")].concat());
    server.wait_for_open(2);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    staying.reply().check(200, "49");
    staying.reply().check(200, "64");
    assert!(!server.place.read("seen").contains("100"), "no hook has begun");
    assert_eq!(server.stats()["values"]["cancelled"], 4);
    server.end();
}

/// `nc -N` does so.
#[test]
fn a_caller_that_sends_no_more_has_answers_that_are_ready() {
    let server = Server::start("");
    let mut caller = server.caller();
    let live = request("GET /health/live", "", "");
    caller.write([live.clone(), live].concat());
    caller.stream.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!([caller.reply().status, caller.reply().status], [200, 200]);
    assert!(caller.try_reply().is_none());
    server.end();
}

#[test]
fn a_caller_may_leave_while_its_value_is_in_work() {
    let server = Server::start("--batch 4 --retries 2");
    drop(server.post_waiting("go"));
    server.wait_for_open(0);
    let mut staying = server.post("7");
    server.wait_for_open(1);
    server.place.write("go", "");
    staying.reply().check(200, "49");
    server.end();
}

#[test]
fn callers_that_read_nothing_keep_no_other_waiting() {
    let mut server = Server::start("--idle-timeout 1s");
    let slow: Vec<_> = (0..8).map(|_| server.post("{\"bytes\":8000000}")).collect();
    wait_until("they are answered", || server.stats()["values"]["ok"] == 8);
    server.ask("3").check(200, "9");
    slow.iter().for_each(Caller::wait_until_reset);
    server.running.wait_for_stderr(
        "an answer was cut off: its caller has read nothing of it for 3 s (3 times --idle-timeout)",
    );
    server.end();
}

#[test]
fn an_answer_that_is_cut_off_while_the_server_ends_is_not_delivered() {
    let server = Server::start("--idle-timeout 1s");
    let slow = server.post("{\"bytes\":8000000}");
    wait_until("it is answered", || server.stats()["values"]["ok"] == 1);
    server.running.send(rustix::process::Signal::TERM);
    server.ended().check_said(143, &["an answer was cut off: its caller has read nothing of it"]);
    drop(slow);
}

/// Bodies take 254 MiB of the 256 until their list is answered, which is before they are.
#[test]
fn an_answer_without_memory_is_a_503() {
    let server = Server::start("--batch 32 --timeout 10m");
    let mut first = server.post_waiting("go");
    let padded = format!("{}3", " ".repeat((16 << 20) - (128 << 10)));
    let mut bodies: Vec<_> = (0..16).map(|_| server.post(&padded)).collect();
    let mut large = server.post("{\"bytes\":4000000}");
    let mut list = server.post("[4,{\"bytes\":4000000}]");
    server.wait_for_open(20);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    bodies.iter_mut().for_each(|body| body.reply().check(200, "9"));
    let dropped = large.reply();
    let full = "{\"error\":\"answers that are not read yet fill the memory\",\"status\":503}";
    assert!(dropped.header("retry-after").is_some());
    dropped.check(503, full);
    list.reply().check(200, &format!("[16,{full}]"));
    assert_eq!(server.ask("{\"bytes\":4000000}").status, 200, "there is room again");
    server.running.send(rustix::process::Signal::TERM);
    server.ended().check_said(0, &["answers that callers do not read fill the memory"]);
}

/// A pipe has room for 64 KiB.
#[test]
fn messages_that_are_not_read_keep_no_answer_waiting() {
    let server = Server::start("--batch 4 --retries 1");
    let error = format!("{{\"error\":\"{}\"}}", "x".repeat(9_000));
    let mut caller = server.caller();
    for _ in 0..10 {
        assert_eq!(caller.ask(&error).status, 500);
        assert_eq!(caller.ask(format!("[1,{error}]")).status, 200);
        caller.ask("3").check(200, "9");
    }
    assert_eq!(caller.ask("{\"crash\":1}").status, 500);
    server.running.send(rustix::process::Signal::TERM);
    let ran = server.ended();
    ran.check_said(0, &["job 1 failed: xxx", "ending: accepted requests have"]);
    assert!(!ran.stderr.contains("were dropped"), "all have been kept");
}

#[test]
fn messages_that_are_never_read_are_dropped() {
    let server = Server::start("--batch 4");
    let error = format!("{{\"error\":\"{}\"}}", "x".repeat(100_000));
    let mut caller = server.caller();
    for _ in 0..60 {
        assert_eq!(caller.ask(&error).status, 500);
    }
    caller.ask("3").check(200, "9");
    server.running.send(rustix::process::Signal::TERM);
    server.ended().check_said(0, &["job 1 failed: xxx", "bytes of messages were dropped"]);
}

/// A server has 80 files for itself and its worker here, and 20 for connections.
#[test]
fn connections_beyond_the_limit_wait_to_be_accepted() {
    let server = Server::with_open_files(100);
    let mut callers: Vec<_> = (0..20).map(|_| server.caller()).collect();
    callers.iter_mut().for_each(|caller| caller.ask("2").check(200, "4"));
    let mut further = server.post("3");
    callers[0].ask("5").check(200, "25");
    drop(callers.pop());
    further.reply().check(200, "9");
    let seen = server.place.read("seen");
    assert!(seen.ends_with("[5]\n[3]\n"), "{seen}");
    server.end();
}

#[test]
fn idle_connections_keep_no_request_waiting() {
    let server = Server::start("");
    let mut idle: Vec<_> = (0..1_000).map(|_| server.caller()).collect();
    server.ask("3").check(200, "9");
    for caller in idle.iter_mut().step_by(100) {
        caller.ask("4").check(200, "16");
    }
    server.end();
}

#[test]
fn half_of_the_callers_leave() {
    let server = Server::start("--batch 8 -j 2");
    let address = server.address;
    let threads = (0..8_u64).map(|thread| {
        std::thread::spawn(move || {
            for x in 0..60 {
                let mut caller = crate::caller::Caller::new(address);
                caller.post((thread * 1_000 + x).to_string());
                if x % 2 == 0 {
                    let square = (thread * 1_000 + x).pow(2);
                    caller.reply().check(200, &square.to_string());
                }
            }
        })
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    server.wait_for_open(0);
    let values = server.stats()["values"].clone();
    assert!(values["ok"].as_u64().unwrap() >= 240, "{values}");
    assert_eq!(values["failed"], 0);
    server.end();
}

#[test]
fn a_request_with_two_lengths_is_refused() {
    let server = Server::start("");
    let mut caller = server.caller();
    caller.write(format!("{HEAD}content-length: 1\r\ncontent-length: 2\r\n\r\n12"));
    assert!(caller.try_reply().is_none_or(|reply| reply.status == 400));
    let mut caller = server.caller();
    caller.write(request(
        "POST /predict",
        "content-type: application/json\r\nexpect: 100-continue\r\n",
        "5",
    ));
    let mut reply = caller.reply();
    if reply.status == 100 {
        reply = caller.reply();
    }
    reply.check(200, "25");
    server.end();
}

/// A caller that still writes when its connection is closed would see no answer.
#[test]
fn a_refusal_reaches_a_caller_that_sends_a_large_body() {
    let server = Server::start("");
    let large = "1".repeat(8 << 20);
    let json = "content-type: application/json\r\n";
    for (line, headers, status) in [
        ("POST /predict", "content-type: none\r\n", 415),
        ("POST /predict/", json, 404),
        ("PUT /predict", json, 405),
    ] {
        let mut caller = server.caller();
        caller.write(request(line, headers, &large));
        assert_eq!(caller.reply().status, status, "{line}");
    }
    server.end();
    let loading = Server::loading("", &[("LOAD", "never")]);
    let mut caller = loading.caller();
    caller.write(request("POST /predict", json, &large));
    assert_eq!(caller.reply().status, 503);
    loading.running.send(rustix::process::Signal::TERM);
    loading.ended().check_said(0, &["ending: "]);
}
