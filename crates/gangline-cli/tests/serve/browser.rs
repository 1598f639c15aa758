//! A real browser, driven over its pipe for debugging.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Chromium without a window. Dropping it ends it.
pub(crate) struct Browser {
    child: Child,
    commands: File,
    answers: BufReader<File>,
    sent: u64,
    _directory: TempDir,
}

/// What a page is shown in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) width: u32,
    pub(crate) scheme: &'static str,
    /// `screen` or `print`.
    pub(crate) medium: &'static str,
}

impl Browser {
    /// `None` if there is no browser.
    pub(crate) fn start() -> Option<Browser> {
        let name = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
            Command::new(name).arg("--version").output().is_ok_and(|it| it.status.success())
        })?;
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let made =
            Command::new("mkfifo").args([path("commands"), path("answers")]).status().unwrap();
        assert!(made.success());
        // It has its commands on descriptor 3, and answers on 4.
        let line = format!(
            "exec timeout 120 {name} --headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
             --disable-background-networking --disable-component-update --disable-sync --hide-scrollbars \
             --user-data-dir={} --remote-debugging-pipe 3<{} 4>{}",
            path("profile"),
            path("commands"),
            path("answers")
        );
        let child = Command::new("sh")
            .args(["-c", &line])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = File::options().write(true).open(path("commands")).unwrap();
        let answers = BufReader::new(File::open(path("answers")).unwrap());
        Some(Browser { child, commands, answers, sent: 0, _directory: directory })
    }

    /// Opens a page, and returns what a script finds in it: its last expression, or the value of its promise.
    pub(crate) fn look(&mut self, url: &str, screen: Screen, script: &str) -> Value {
        let target = self.ask(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.ask(None, "Target.attachToTarget", target)["sessionId"].clone();
        let session = Some(session.as_str().unwrap());
        let Screen { width, scheme, medium } = screen;
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500});
        self.ask(session, "Emulation.setDeviceMetricsOverride", metrics);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        let media = json!({"media": medium, "features": features});
        self.ask(session, "Emulation.setEmulatedMedia", media);
        self.ask(session, "Page.navigate", json!({"url": url}));
        // Until the page is loaded, the script runs in an empty one.
        let loaded = format!("location.href === '{url}' && document.readyState === 'complete'");
        crate::support::wait_until("the page is loaded", || {
            let state = self.ask(session, "Runtime.evaluate", json!({"expression": loaded}));
            state["result"]["value"] == true
        });
        let script = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let found = self.ask(session, "Runtime.evaluate", script);
        assert!(found["exceptionDetails"].is_null(), "{found:#}");
        found["result"]["value"].clone()
    }

    fn ask(&mut self, session: Option<&str>, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.commands.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended");
            let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.commands.write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.child.wait();
    }
}
