//! How the server begins and ends.

use std::io::Write;
use std::net::TcpListener;

use rustix::process::Signal;

use crate::caller::{Caller, request};
use crate::server::Server;
use crate::support::{Place, wait_until};

#[test]
fn it_is_live_while_workers_load_and_ready_after_that() {
    let server = Server::loading("", &[("LOAD", "go")]);
    server.place.wait_for("loading");
    assert_eq!(server.get("/health/live").status, 200);
    let reply = server.ask("1");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    assert_eq!(server.get("/health/ready").status, 503);
    assert_eq!(server.stats()["state"], "loading");
    server.place.write("go", "");
    server.wait_until_ready();
    server.ask("3").check(200, "9");
    server.end();
}

#[test]
fn a_signal_while_workers_load_ends_it() {
    let server = Server::loading("", &[("LOAD", "never")]);
    server.place.wait_for("loading");
    server.running.send(Signal::TERM);
    server.ended().check_said(0, &["ending: "]);
}

#[test]
fn accepted_requests_are_answered_before_the_end() {
    let server = Server::start("");
    let mut idle = server.caller();
    idle.ask("1").check(200, "1");
    let mut first = server.post_waiting("go");
    let mut second = server.post("[5,6]");
    server.wait_for_open(3);
    server.running.send(Signal::TERM);
    wait_until("it is not ready", || server.get("/health/ready").status == 503);
    assert_eq!(server.get("/health/live").status, 200);
    assert!(idle.try_reply().is_none(), "connections that are kept are closed");
    let late = server.ask("7");
    assert_eq!((late.status, late.header("connection")), (503, Some("close")));
    server.place.write("go", "");
    let reply = first.reply();
    reply.check(200, "{\"wait\":\"go\"}");
    second.reply().check(200, "[25,36]");
    assert!(first.try_reply().is_none() && second.try_reply().is_none(), "they are closed");
    server.ended().check_said(0, &["ending: accepted requests have 25 s"]);
}

/// Bodies in the forms in which they come: with their length, in chunks, and only announced.
const UPLOADS: [(&str, &str, &str); 3] = [
    ("content-length: 3\r\n\r\n[", "5", "]"),
    ("transfer-encoding: chunked\r\n\r\n1\r\n[\r\n", "1\r\n5\r\n", "1\r\n]\r\n0\r\n\r\n"),
    ("content-length: 3\r\n\r\n", "[5", "]"),
];

fn begin_upload(server: &Server, first: &str) -> Caller {
    let mut caller = server.caller();
    let head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    caller.write(format!("{head}{first}"));
    caller
}

#[test]
fn an_upload_in_progress_is_answered_before_the_end() {
    let server = Server::start("");
    let mut uploads = UPLOADS.map(|(first, ..)| begin_upload(&server, first));
    // Its head has been read, since that of a later connection has.
    wait_until("all have begun", || server.stats()["uploads"] == 3);
    let mut half = server.caller();
    half.write("POST /predict HT");
    server.running.send(Signal::TERM);
    wait_until("it is not ready", || server.get("/health/ready").status == 503);
    for (caller, (_, second, _)) in uploads.iter_mut().zip(UPLOADS) {
        caller.write(second);
    }
    // Longer than connections without a request are waited for.
    std::thread::sleep(std::time::Duration::from_secs(6));
    for (caller, (_, _, third)) in uploads.iter_mut().zip(UPLOADS) {
        caller.write(third);
        let reply = caller.reply();
        reply.check(200, "[25]");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    server.ended().check_said(0, &["ending: accepted requests have 25 s"]);
}

#[test]
fn an_upload_that_takes_longer_than_the_grace_is_told_so() {
    let server = Server::start("--grace 1s");
    let mut uploads = UPLOADS.map(|(first, ..)| begin_upload(&server, first));
    wait_until("all have begun", || server.stats()["uploads"] == 3);
    server.running.send(Signal::TERM);
    for caller in &mut uploads {
        let reply = caller.reply();
        reply.check(503, "{\"error\":\"the server is ending\",\"status\":503}");
    }
    server.ended().check_said(143, &["requests that were not answered in time"]);
}

#[test]
fn a_connection_without_a_request_gets_an_answer_while_the_server_drains() {
    let server = Server::start("");
    let mut connected = server.caller();
    let mut first = server.post_waiting("go");
    server.wait_for_open(1);
    server.running.send(Signal::TERM);
    wait_until("it is not ready", || server.get("/health/ready").status == 503);
    let late = connected.ask("7");
    assert_eq!((late.status, late.header("connection")), (503, Some("close")));
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    server.ended().check_said(0, &[]);
}

#[test]
fn ctrl_c_ends_it_as_sigterm_does() {
    let server = Server::start("");
    server.running.send_to_group(Signal::INT);
    server.ended().check_said(0, &["ending: "]);
}

/// The process of the worker that answers.
#[track_caller]
fn worker_of(server: &Server) -> u64 {
    server.ask("{\"pid\":1}").json().as_u64().unwrap()
}

#[test]
fn workers_are_replaced_while_requests_are_in_flight() {
    let mut server = Server::start("");
    let before = worker_of(&server);
    let mut first = server.post_waiting("go");
    let mut second = server.post("[5,6]");
    server.wait_for_open(3);
    server.running.send(Signal::HUP);
    let mut third = server.post("7");
    server.wait_for_open(4);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    second.reply().check(200, "[25,36]");
    third.reply().check(200, "49");
    server.running.wait_for_stderr("reloaded: 1 worker");
    assert_ne!(worker_of(&server), before);
    assert_eq!(server.get("/health/ready").status, 200);
    server.end();
}

#[test]
fn other_workers_answer_while_one_is_replaced() {
    let mut server = Server::start("-j 2");
    server.place.write("slow", "");
    server.running.send(Signal::HUP);
    server.place.wait_for("loading");
    for x in 0..20_u64 {
        server.ask(x.to_string()).check(200, &(x * x).to_string());
    }
    std::fs::remove_file(server.place.path("slow")).unwrap();
    server.running.wait_for_stderr("reloaded: 2 workers");
    server.end();
}

#[test]
fn a_new_worker_that_does_not_start_leaves_the_others() {
    let mut server = Server::start("-j 2");
    server.place.write("broken", "");
    server.running.send(Signal::HUP);
    server.running.wait_for_stderr("other workers are not replaced");
    for x in 0..20_u64 {
        server.ask(x.to_string()).check(200, &(x * x).to_string());
    }
    server.end();
}

#[test]
fn a_signal_while_a_worker_is_replaced_ends_it() {
    let server = Server::start("-j 2");
    server.place.write("slow", "");
    server.running.send(Signal::HUP);
    server.place.wait_for("loading");
    server.running.send(Signal::TERM);
    server.ended().check_said(0, &["ending: "]);
}

#[test]
fn a_second_signal_gives_up() {
    let mut server = Server::start("");
    let mut caller = server.post_waiting("never");
    server.running.send(Signal::TERM);
    server.running.wait_for_stderr("ending: ");
    // Within half a second it would be a copy of the first.
    std::thread::sleep(std::time::Duration::from_millis(700));
    server.running.send(Signal::TERM);
    let ran = server.ended();
    assert_eq!(ran.code, Some(143), "{ran:?}");
    let reply = caller.try_reply();
    assert!(reply.is_none_or(|reply| reply.status == 503));
}

#[test]
fn requests_that_take_longer_than_the_grace_are_told_so() {
    let server = Server::start("--grace 300ms");
    let mut caller = server.post_waiting("never");
    let mut queued = server.post("5");
    server.wait_for_open(2);
    server.running.send(Signal::TERM);
    assert_eq!(caller.reply().status, 503);
    assert_eq!(queued.reply().status, 503);
    server.ended().check_said(143, &["requests that were not answered in time"]);
}

#[test]
fn answers_that_are_not_read_before_the_end_are_counted() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let server = Server::start("--grace 1s -j 2");
        let slow = [0, 1].map(|_| server.post("{\"bytes\":8000000}"));
        let gone = server.post("{\"bytes\":8000000}");
        wait_until("they are answered", || server.stats()["values"]["ok"] == 3);
        drop(gone);
        // Half a request is no answer.
        let mut half = server.caller();
        half.write("POST /predict HT");
        server.running.send(signal);
        let said = "2 answers were not delivered: their callers read too slowly (--grace)";
        server.ended().check_said(code, &[said]);
        drop(slow);
    }
}

#[test]
fn a_caller_that_reads_slowly_gets_all_of_its_answer_before_the_end() {
    let server = Server::start("");
    let mut slow = server.post("{\"bytes\":8000000}");
    wait_until("it is answered", || server.stats()["values"]["ok"] == 1);
    server.running.send(Signal::TERM);
    wait_until("it closes", || std::net::TcpStream::connect(server.address).is_err());
    // Longer than connections without an answer are waited for.
    std::thread::sleep(std::time::Duration::from_secs(6));
    assert_eq!(slow.reply().body.len(), 8_000_000 + 2);
    server.ended().check_said(0, &[]);
}

#[test]
fn a_killed_server_leaves_no_worker() {
    let server = Server::start("-j 2");
    server.running.send(Signal::KILL);
    server.place.check_no_process_is_left();
}

#[test]
fn workers_that_cannot_start_end_it() {
    let place = Place::new();
    let listen = "serve --listen 127.0.0.1:0";
    let ran = place.ran(&mut place.typed(&format!("{listen} --max-restarts 1 -- false")));
    ran.check_said(
        103,
        &["slot 0 is given up: its start", "no worker is left that could be started"],
    );
    let ran = place.ran(&mut place.typed(&format!("{listen} -- ./nothing")));
    ran.check_said(103, &["./nothing, or the interpreter that it names, does not exist"]);
    place.write(
        "half",
        "if [ $1 = 0 ]; then exit 1; fi; read line; echo '{\"gangline\":1}'; cat >&2",
    );
    let line = format!("{listen} -j 2 --max-restarts 0 --min-workers 2 -- sh half {{worker}}");
    place.ran(&mut place.typed(&line)).check_said(103, &["fewer than 2 workers are left"]);
}

#[test]
fn what_is_no_worker_is_named_once() {
    for (worker, said) in [
        ("cat", "answered the first line with"),
        ("echo 'no model file' >&2; exit 2", "exited with 2 before it answered"),
    ] {
        let place = Place::new();
        place.write("worker", format!("echo start >> starts; {worker}"));
        let line = "serve --listen 127.0.0.1:0 -j 2 --retry-delay 0s -- sh worker";
        let ran = place.ran(&mut place.typed(line));
        ran.check_said(103, &[said, "no worker is left that could be started"]);
        assert_eq!(ran.stderr.matches(said).count(), 1, "{ran:?}");
        assert!(ran.stderr.matches("no model file").count() <= 1, "{ran:?}");
        assert!(place.read("starts").lines().count() <= 4, "{ran:?}");
    }
}

#[test]
fn a_server_without_workers_ends() {
    let server = Server::start("--max-restarts 0");
    let mut queued = server.caller();
    let crashed = server.ask("{\"crash\":1}");
    assert!([500, 503].contains(&crashed.status), "{crashed:?}");
    // It may have been closed by then.
    let _ = queued.stream.write_all(&request(
        "POST /predict",
        "content-type: application/json\r\n",
        "1",
    ));
    assert!(queued.try_reply().is_none_or(|reply| reply.status == 503));
    server
        .ended()
        .check_said(103, &["slot 0 is given up", "no worker is left that could be started"]);
}

#[test]
fn what_cannot_be_listened_on_is_refused() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let ran = place.ran(&mut place.typed(&format!("serve --listen {address} -- cat")));
    ran.check_said(102, &[&format!("cannot listen on {address}: "), "in use"]);
    let ran = place.ran(&mut place.typed("serve --listen nowhere -- cat"));
    ran.check_said(102, &["write an address such as 127.0.0.1:8080"]);
    let ran = place.ran(&mut place.typed("serve --token missing -- cat"));
    ran.check_said(102, &["the token cannot be read from missing"]);
    let ran = place.ran(&mut place.typed("serve --min-workers 2 -- cat"));
    ran.check_said(102, &["--min-workers 2 is more than there are workers: 1"]);
    let ran = place.ran(&mut place.typed("serve --queue 2 --batch 3 -- cat"));
    ran.check_said(102, &["--queue 2 has no room for a list of --batch 3"]);
    place.ran(&mut place.typed("serve -j 0 -- cat")).check_said(102, &["write at least 1"]);
}

#[test]
fn an_address_that_others_reach_is_warned_about() {
    let place = Place::new();
    let token = place.write("token", "secret");
    for (token, is_warned) in
        [(String::new(), true), (format!("--token {}", token.display()), false)]
    {
        let mut running = place.start(
            &mut place
                .typed(&format!("serve --listen 0.0.0.0:0 {token} -- sh -c 'read x; read y'")),
        );
        let said = running.read_stderr_until("listening on http://0.0.0.0:");
        running.send(Signal::TERM);
        let ran = running.ran();
        let stderr = said + &ran.stderr;
        assert_eq!(stderr.contains("warning: every program that reaches"), is_warned, "{ran:?}");
    }
}

#[test]
fn a_connection_is_kept_for_several_requests() {
    let server = Server::start("");
    let mut caller = server.caller();
    let both = [request("GET /health/live", "", ""), request("GET /health/ready", "", "")].concat();
    caller.write(both);
    assert_eq!([caller.reply().status, caller.reply().status], [200, 200]);
    for x in 0..50_u64 {
        caller.ask(x.to_string()).check(200, &(x * x).to_string());
    }
    server.end();
}
