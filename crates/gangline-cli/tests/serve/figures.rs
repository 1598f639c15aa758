//! What the server says about itself.

use crate::server::Server;

#[test]
fn figures_are_counted() {
    let server = Server::start("--batch 4 --name squares");
    server.ask("[1,2,3,{\"error\":\"no\"}]");
    server.ask("5");
    server.ask("{");
    let stats = server.stats();
    let expected = serde_json::json!({"ok": 4, "failed": 1, "cancelled": 0});
    assert_eq!((&stats["name"], &stats["state"]), (&"squares".into(), &"ready".into()));
    assert_eq!(stats["values"], expected);
    assert_eq!(stats["workers"], serde_json::json!({"left": 1, "all": 1}));
    assert_eq!(stats["queue"], serde_json::json!({"open": 0, "most": 1_024}));
    assert_eq!(stats["batches"]["values"], 5);
    assert_eq!(stats["latency"]["count"], 2);
    assert!(stats["latency"]["p99"].as_f64().unwrap() > 0.0, "{stats}");

    let reply = server.get("/metrics");
    assert_eq!(reply.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    let line =
        |line: &str| assert!(reply.body.lines().any(|it| it == line), "{line}: {}", reply.body);
    line("gangline_http_requests_total{runner=\"squares\",code=\"200\"} 2");
    line("gangline_http_requests_total{runner=\"squares\",code=\"400\"} 1");
    line("gangline_http_request_duration_seconds_count{runner=\"squares\"} 2");
    line("gangline_http_values_limit{runner=\"squares\"} 1024");
    line("# TYPE gangline_items_total counter");
    line("gangline_http_values_in_flight{runner=\"squares\"} 0");
    let mut waiting = server.post_waiting("go");
    let mut queued = server.post("[5,6,7]");
    server.wait_for_open(4);
    assert!(
        server
            .get("/metrics")
            .body
            .contains("gangline_http_values_in_flight{runner=\"squares\"} 4")
    );
    server.place.write("go", "");
    assert_eq!([waiting.reply().status, queued.reply().status], [200, 200]);
    server.end();
}

#[test]
fn the_name_of_a_server_has_no_key() {
    let place = crate::support::Place::new();
    let line = "serve --listen 127.0.0.1:0 -- sh -c 'read x; echo \"{\\\"gangline\\\":1}\"; cat' sh --key hunter2";
    let server = Server::typed(place, line, &[]);
    server.wait_until_ready();
    assert_eq!(server.stats()["name"], "sh");
    let metrics = server.get("/metrics").body;
    assert!(metrics.contains("runner=\"sh\"") && !metrics.contains("hunter2"), "{metrics}");
    server.end();
}
