//! The answers to requests.

use serde_json::json;

use crate::caller::{Reply, request};
use crate::server::Server;

#[test]
fn a_value_has_an_answer_and_an_array_has_one_for_each() {
    let server = Server::start("--batch 4");
    let mut caller = server.caller();
    caller.ask("12").check(200, "144");
    caller.ask(" [1, 2, 3] ").check(200, "[1,4,9]");
    caller.ask("[]").check(200, "[]");
    caller.ask("[[1, 2]]").check(200, "[[1,2]]");
    caller.ask("{\"a\": [null, \"ä\"]}").check(200, "{\"a\":[null,\"ä\"]}");
    caller.ask("\"text\\n\"").check(200, "\"text\\n\"");
    caller.ask("null").check(200, "null");
    caller.ask("18446744073709551617").check(200, "340282366920938463500268095579187314689");
    for key in ["RawValue", "Number"] {
        let odd = format!("{{\"$serde_json::private::{key}\":\"[1,\"}}");
        caller.ask(&odd).check(200, &odd);
        caller.ask(format!("[{odd}]")).check(200, &format!("[{odd}]"));
    }
    let large = "x".repeat(100_000);
    caller.ask(format!("\"{large}\"")).check(200, &format!("\"{large}\""));
    server.end();
}

#[test]
fn a_worker_without_lists_serves_too() {
    let server = Server::loading("--batch 4", &[("LISTS", "0")]);
    server.wait_until_ready();
    server
        .ask("[1,{\"error\":\"no\"},3]")
        .check(200, "[1,{\"error\":\"the model failed for this value\",\"status\":500},9]");
    server.end();
}

#[test]
fn a_failure_is_in_its_place_and_its_text_is_for_the_operator() {
    let mut server = Server::start("--batch 8");
    let hidden = "{\"error\":\"the model failed for this value\",\"status\":500}";
    server.ask("{\"error\":\"no such file: /secret\"}").check(500, hidden);
    let said = server.running.read_stderr_until("no such file: /secret");
    assert!(said.contains("Traceback: aside"), "{said}");
    let reply = server.ask("[1,{\"error\":\"x\"},{\"nan\":1},4]");
    reply.check(200, &format!("[1,{hidden},{hidden},16]"));
    assert_eq!(reply.header("gangline-failed"), Some("2"));
    assert_eq!(server.ask("[1]").header("gangline-failed"), None);
    let reply = server.ask("[{\"error\":\"x\"}]");
    reply.check(500, &format!("[{hidden}]"));
    server.end();
}

#[test]
fn texts_of_failures_are_shown_on_demand() {
    let server = Server::start("--show-errors");
    server
        .ask("{\"error\":\"out of focus\"}")
        .check(500, "{\"error\":\"out of focus\",\"status\":500}");
    assert!(server.ask("{\"nan\":1}").body.contains("NaN is not JSON"));
    let crashed = server.ask("{\"crash\":1}");
    assert_eq!(crashed.status, 500);
    assert!(crashed.body.contains("exited with 3 before it answered"), "{crashed:?}");
    server.end();
}

#[test]
fn a_mistake_in_a_body_has_its_place() {
    let server = Server::start("");
    let reply = server.ask("{\n \"a\": }");
    let expected = json!({
        "error": "the body is not JSON: expected value at line 2 column 7",
        "status": 400, "line": 2, "column": 7,
    });
    assert_eq!((reply.status, reply.json()), (400, expected));
    for body in [&b"\"\xff\""[..], b"", b"[1,", b"1 2", b"NaN", b"\"\\ud800\"", b"1e999"] {
        assert_eq!(server.ask(body).status, 400, "{body:?}");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(server.ask(deep).status, 400);
    server.ask("2").check(200, "4");
    assert!(!server.place.read("seen").contains("NaN"), "workers see only what they can read");
    server.end();
}

#[test]
fn bytes_are_handed_over_as_base64() {
    let server = Server::start("");
    let mut caller = server.caller();
    caller.write(request(
        "POST /predict",
        "content-type: application/octet-stream\r\n",
        b"\x00\xff",
    ));
    caller.reply().check(200, "{\"base64\":\"AP8=\"}");
    server.end();
}

#[test]
fn bytes_of_any_type_have_it_beside_them() {
    let server = Server::start("");
    let ask = |form: &str, headers: &str, body: &[u8]| {
        let mut caller = server.caller();
        let headers = format!("content-type: {form}\r\n{headers}");
        caller.write(request("POST /predict", &headers, body));
        caller.reply()
    };
    for form in ["image/png", "audio/wav", "text/plain; charset=utf-8", "application/x-npy"] {
        let expected = format!("{{\"base64\":\"AP8=\",\"type\":\"{form}\"}}");
        ask(form, "", b"\x00\xff").check(200, &expected);
    }
    let form = "multipart/form-data; boundary=b";
    let file = "--b\r\ncontent-disposition: form-data; name=\"f\"; filename=\"a\"\r\n\
                content-type: image/png\r\n\r\n1\r\n--b--\r\n";
    let expected = "{\"base64\":\"MQ==\",\"type\":\"image/png\"}";
    ask(form, "", file.as_bytes()).check(200, expected);
    let two = [&file[..file.len() - 4], "\r\n\r\n2\r\n--b--"].concat();
    // An input field of a form, a file input of which no file was chosen, and a part that is none of a form.
    let field = file.replace("; filename=\"a\"", "");
    let chosen = file.replace("\"a\"", "\"\"");
    let other = file.replace("form-data", "attachment");
    let within = file.replace("name=\"f\"; filename=\"a\"", "name=\"f; filename=a\"");
    let nameless = [&*field, &chosen, &other, &within, "--b\r\n\r\n1\r\n--b--"];
    for (broken, text) in
        [(&*two, "one part"), ("--b--", "one part"), ("", "boundary"), ("1", "boundary")]
            .into_iter()
            .chain(nameless.map(|form| (form, "no file name")))
    {
        let reply = ask(form, "", broken.as_bytes());
        assert_eq!((reply.status, &reply.json()["status"]), (400, &json!(400)), "{reply:?}");
        assert!(reply.body.contains(text), "{broken}: {}", reply.body);
    }
    for (form, body) in [("text/plain", &b"1"[..]), (form, file.as_bytes())] {
        for origin in ["http://evil.com", "null"] {
            assert_eq!(ask(form, &format!("origin: {origin}\r\n"), body).status, 403, "{origin}");
        }
        assert_eq!(ask(form, "origin: http://localhost\r\n", body).status, 200);
    }
    server.end();
}

#[test]
fn what_is_no_type_of_a_file_is_refused() {
    let server = Server::start("");
    let status = |line: &str, headers: &str| {
        let mut caller = server.caller();
        caller.write(request(line, headers, "1"));
        caller.reply().status
    };
    let post = "POST /predict";
    for form in ["application/x-www-form-urlencoded", "png", "image/", ""] {
        assert_eq!(status(post, &format!("content-type: {form}\r\n")), 415, "{form}");
    }
    assert_eq!(status(post, ""), 415);
    assert_eq!(status(post, "content-type: Application/JSON; charset=utf-8\r\n"), 200);
    assert_eq!(status(post, "content-type: application/ld+json\r\n"), 200);
    assert_eq!(status(post, "content-type: application/json\r\ncontent-encoding: gzip\r\n"), 415);
    assert_eq!(status("GET /predict", ""), 405);
    assert_eq!(status("POST /nothing", ""), 404);
    server.end();
}

#[test]
fn a_bad_request_is_told_by_the_worker() {
    let server = Server::start("--batch 4 --retries 2");
    server.ask("{\"bad\":\"no <image>\"}").check(400, "{\"error\":\"no <image>\",\"status\":400}");
    server.ask("[1,{\"bad\":\"no\"},3]").check(200, "[1,{\"error\":\"no\",\"status\":400},9]");
    server.ask("[{\"bad\":\"a\"},{\"error\":\"b\"}]").check(
        400,
        "[{\"error\":\"a\",\"status\":400},{\"error\":\"the model failed for this value\",\"status\":500}]",
    );
    let asked = server.place.read("seen").matches("no <image>").count();
    assert_eq!(asked, 1, "no further attempt could succeed");
    server.running.send(rustix::process::Signal::TERM);
    let ran = server.ended();
    assert!(ran.stderr.contains("aside") && !ran.stderr.contains("job 1 "), "{ran:?}");
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let server = Server::start("");
    server.ask("\u{feff}[1, 2]").check(200, "[1,4]");
    server.ask("\u{feff}3").check(200, "9");
    server.ask("\u{feff}{\"a\":\"\u{feff}\"}").check(200, "{\"a\":\"\u{feff}\"}");
    assert_eq!(server.ask("\u{feff}").status, 400);
    server.end();
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let server = Server::start("--max-body 1k --queue 3");
    let text = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    assert_eq!(server.ask(text(1_024)).status, 200);
    let reply = server.ask(text(1_025));
    assert_eq!(reply.status, 413);
    assert!(reply.body.contains("more than 1024 bytes"), "{reply:?}");
    assert_eq!(server.ask(text(8 << 20)).status, 413, "it can be written to its end");
    let head = "POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let mut caller = server.caller();
    caller.write(format!("{head}transfer-encoding: chunked\r\n\r\n"));
    caller.write(format!("800\r\n{}\r\n0\r\n\r\n", text(2_048)));
    assert_eq!(caller.reply().status, 413);
    let mut caller = server.caller();
    caller.write(format!("{head}expect: 100-continue\r\ncontent-length: 2048\r\n\r\n"));
    assert_eq!(caller.reply().status, 413, "before the body is sent");
    assert_eq!(server.ask("[1,2,3,4]").status, 413, "an array that never fits");
    assert_eq!(server.ask("[1,2,3]").status, 200);
    server.end();
}

#[test]
fn a_token_is_asked_for() {
    let place = crate::support::Place::new();
    let token = place.write("token", "abc123\n");
    let server = Server::start(&format!("--token {}", token.display()));
    let ask = |headers: &str| {
        let headers = format!("content-type: application/json\r\n{headers}");
        let mut caller = server.caller();
        caller.write(request("POST /predict", &headers, "3"));
        caller.reply()
    };
    let refused = ask("");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("bearer")));
    assert_eq!(ask("authorization: Bearer abc12\r\n").status, 401);
    ask("authorization: Bearer abc123\r\n").check(200, "9");
    for (path, status) in [
        ("/metrics", 401),
        ("/stats", 401),
        ("/", 200),
        ("/health/live", 200),
        ("/health/ready", 200),
    ] {
        assert_eq!(server.get(path).status, status, "{path}");
    }
    server.end();
}

/// The answer to a request of these lines.
fn ask_lines(server: &Server, lines: &[&str]) -> Reply {
    let mut caller = server.caller();
    caller.write(format!("{}\r\n\r\n", lines.join("\r\n")));
    caller.reply()
}

#[test]
fn a_name_of_another_site_is_refused_without_a_token() {
    let server = Server::start("");
    let get = "GET /stats HTTP/1.1";
    for host in ["example.com", "127.0.0.1.evil", "", "localhost.evil:80"] {
        let reply = ask_lines(&server, &[get, &format!("host: {host}")]);
        assert_eq!((reply.status, &reply.json()["status"]), (403, &json!(403)), "{host}");
    }
    for host in ["[::1].evil", "[::1", "evil@localhost", "a b", "localhost:x", "[127.0.0.1]"] {
        let reply = ask_lines(&server, &[get, &format!("host: {host}")]);
        assert_eq!((reply.status, &reply.json()["status"]), (400, &json!(400)), "{host}");
    }
    for host in ["localhost", "127.0.0.1:80", "[::1]:80", "[::1]"] {
        assert_eq!(ask_lines(&server, &[get, &format!("host: {host}")]).status, 200, "{host}");
    }
    let url = "GET http://evil.com/stats HTTP/1.1";
    assert_eq!(ask_lines(&server, &[url, "host: localhost"]).status, 403, "the URL goes first");
    server.end();
}

#[test]
fn a_request_has_one_host() {
    let server = Server::start("");
    for path in ["/health/live", "/stats", "/nothing"] {
        let get = format!("GET {path} HTTP/1.1");
        for hosts in [&[][..], &["host: localhost", "host: localhost"], &["host: a", "host: b"]] {
            let reply = ask_lines(&server, &[&[&*get], hosts].concat());
            assert_eq!((reply.status, &reply.json()["status"]), (400, &json!(400)), "{hosts:?}");
        }
    }
    assert_eq!(ask_lines(&server, &["GET /stats HTTP/1.0"]).status, 200);
    server.end();
}

#[test]
fn a_coding_that_is_not_decoded_is_refused() {
    let server = Server::start("");
    let post = ["POST /predict HTTP/1.1", "host: localhost", "content-type: application/json"];
    let ask = |codings: &[&str]| {
        let mut caller = server.caller();
        let head = [&post[..], codings].concat().join("\r\n");
        caller.write(format!("{head}\r\n\r\n1\r\n3\r\n0\r\n\r\n"));
        caller.reply()
    };
    ask(&["transfer-encoding: Chunked"]).check(200, "9");
    for (status, codings) in [
        (501, &["transfer-encoding: gzip, chunked"][..]),
        (501, &["transfer-encoding: gzip", "transfer-encoding: chunked"]),
        (501, &["transfer-encoding: identity, chunked"]),
        (400, &["transfer-encoding: chunked, chunked"]),
        (400, &["transfer-encoding: gzip"]),
    ] {
        let reply = ask(codings);
        assert_eq!(
            (reply.status, &reply.json()["status"]),
            (status, &json!(status)),
            "{codings:?}"
        );
    }
    server.end();
}

#[test]
fn a_head_that_cannot_be_read_has_a_reason() {
    let server = Server::start("");
    let long = "x".repeat(60 << 10);
    let fields: Vec<_> = (0..101).map(|at| format!("x{at}: 1\r\n")).collect();
    for (status, head) in [
        (400, "GET\r\n\r\n".to_owned()),
        (400, "GET / HTTP/1.2\r\n\r\n".to_owned()),
        (400, "GET / HTTP/2\r\n\r\n".to_owned()),
        // The beginning of TLS, which a proxy has to add.
        (400, "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03".to_owned()),
        (400, "GET / HTTP/1.1\r\nhost localhost\r\n\r\n".to_owned()),
        (
            400,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n"
                .to_owned(),
        ),
        (431, format!("GET / HTTP/1.1\r\nhost: a\r\nx: {long}{long}\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\n{}\r\n", fields.concat())),
    ] {
        let mut caller = server.caller();
        caller.write(&head);
        let reply = caller.reply();
        let shown = &head[..head.len().min(60)];
        assert_eq!((reply.status, &reply.json()["status"]), (status, &json!(status)), "{shown}");
        assert_eq!(reply.header("content-type"), Some("application/json"), "{shown}");
        assert!(reply.json()["error"].as_str().is_some_and(|it| !it.is_empty()), "{shown}");
    }
    server.end();
}

#[test]
fn a_full_queue_takes_all_of_an_array_or_nothing() {
    let server = Server::start("--queue 3");
    let mut first = server.post_waiting("go");
    let mut second = server.post("5");
    server.wait_for_open(2);
    let refused = server.ask("[1,2]");
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    let mut third = server.post("[6]");
    server.wait_for_open(3);
    assert_eq!(server.ask("7").status, 429);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    second.reply().check(200, "25");
    third.reply().check(200, "[36]");
    server.ask("7").check(200, "49");
    assert!(!server.place.read("seen").contains("[1]"), "no value of a refused array is worked on");
    server.end();
}

#[test]
fn an_answer_that_is_late_is_a_504_and_the_worker_starts_again() {
    let server = Server::start("--timeout 300ms");
    let mut caller = server.post_waiting("never");
    let mut queued = server.post("5");
    assert_eq!(caller.reply().status, 504);
    let late = queued.reply();
    assert!([200, 504].contains(&late.status), "{late:?}");
    crate::support::wait_until("it works again", || server.ask("2").status == 200);
    server.end();
}

#[test]
fn a_value_that_hangs_costs_no_other_its_answer() {
    let server = Server::start("--batch 8 --list-timeout 500ms");
    let mut first = server.post_waiting("go");
    let mut alone = server.post("5");
    let mut list = server.post("[1,2,{\"wait\":\"never\"},4]");
    server.wait_for_open(6);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    alone.reply().check(200, "25");
    let late = "{\"error\":\"there was no answer in time\",\"status\":504}";
    list.reply().check(200, &format!("[1,4,{late},16]"));
    server.ask("3").check(200, "9");
    server.end();
}

#[test]
fn a_worker_that_crashes_in_a_list_costs_the_guilty_value_its_answer() {
    let server = Server::start("--batch 8");
    let mut first = server.post_waiting("go");
    let mut list = server.post("[1,2,{\"crash\":1},4]");
    server.wait_for_open(5);
    server.place.write("go", "");
    first.reply().check(200, "{\"wait\":\"go\"}");
    let failed = "{\"error\":\"the model failed for this value\",\"status\":500}";
    list.reply().check(200, &format!("[1,4,{failed},16]"));
    server.end();
}

/// A caller of HTTP/2 begins with a text that is none of HTTP/1.1, so that it finds out.
#[test]
fn http_2_without_an_upgrade_is_refused() {
    let server = Server::start("");
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let settings = "\0\0\0\x04\0\0\0\0\0";
    let get = "GET /stats HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for (before, pieces) in [
        ("", &[&*format!("{preface}{settings}")][..]),
        ("", &["PRI * HTT", "P/2.0\r\n\r\nSM\r\n\r\n", settings]),
        ("", &["PRI * HTTP/2.0\r\n\r\n"]),
        ("", &["GET /stats HTTP/2.0\r\nhost: localhost\r\n\r\n"]),
        ("", &["\r\nPOST /predict HTTP/3.0\r\nhost: localhost\r\n\r\n"]),
        ("", &["GET / HTTP/0.9\r\n\r\n"]),
        (get, &[preface]),
    ] {
        let mut caller = server.caller();
        if !before.is_empty() {
            caller.write(before);
            assert_eq!(caller.reply().status, 200);
        }
        pieces.iter().for_each(|piece| caller.write(piece));
        let reply = caller.reply();
        assert_eq!((reply.status, &reply.json()["status"]), (505, &json!(505)), "{pieces:?}");
        assert!(reply.json()["error"].as_str().unwrap().contains("HTTP/1.1 only"), "{reply:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{pieces:?}");
        assert!(caller.try_reply().is_none(), "{pieces:?}");
    }
    // An upgrade is an offer, which a server may leave.
    let upgrade = "connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAAP__\r\n";
    let mut caller = server.caller();
    caller.write(request("GET /health/live", upgrade, ""));
    assert_eq!(caller.reply().status, 200);
    server.end();
}

#[test]
fn each_refusal_is_an_object() {
    let server = Server::start("");
    for (line, status, text) in [
        ("GET /predict", 405, "/predict takes no GET"),
        ("PUT /stats", 405, "/stats takes no PUT"),
        ("POST /", 405, "/ takes no POST"),
        ("POST /nothing", 404, "there is no /nothing"),
    ] {
        let mut caller = server.caller();
        caller.write(request(line, "", ""));
        let reply = caller.reply();
        assert_eq!(
            (reply.status, reply.json()),
            (status, json!({"error": text, "status": status}))
        );
        assert_eq!(reply.header("allow").is_some(), status == 405, "{reply:?}");
    }
    server.end();
}
