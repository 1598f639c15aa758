//! The page at `/` in a real browser: on phones, a tablet, a desk and paper, light and dark.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::browser::{Browser, Screen};
use crate::server::Server;
use crate::support::Place;

const SCREENS: [Screen; 5] = [
    Screen { width: 360, scheme: "light", medium: "screen" },
    Screen { width: 390, scheme: "dark", medium: "screen" },
    Screen { width: 768, scheme: "dark", medium: "screen" },
    Screen { width: 1440, scheme: "light", medium: "screen" },
    Screen { width: 717, scheme: "light", medium: "print" },
];

/// Asks for an answer with the form, and reports what `findings.js` finds then.
const LOOK: &str = r#"
(async () => {
  const until = async (what, is) => {
    for (let i = 0; i < 500; i++) {
      if (is()) return;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    throw new Error(`never: ${what}: ${document.body.innerText}`);
  };
  const at = (id) => document.getElementById(id);
  await until("ready", () => at("state").textContent === "ready");
  at("value").value = `[2, {"error": "${"x".repeat(300)}"}, "${"y".repeat(300)}"]`;
  at("send").click();
  await until("answered", () => !at("answer").hidden);
  await until("counted", () => at("failed").textContent !== "0");
  const names = performance.getEntriesByType("resource").map((entry) => new URL(entry.name).pathname);
  return {
    found: findings(window, matchMedia("print").matches),
    ground: getComputedStyle(document.body).backgroundColor,
    result: at("result").textContent.split(" after")[0],
    answer: at("answer").textContent.slice(0, 9),
    title: document.title,
    loaded: [...new Set(names)].sort(),
  };
})()
"#;

/// Gives the token that the page asks for.
const ENTER: &str = r#"
(async () => {
  const at = (id) => document.getElementById(id);
  for (let i = 0; i < 500 && at("entry").hidden; i++) await new Promise((done) => setTimeout(done, 20));
  const asked = at("state").textContent;
  at("token").value = "secret";
  at("entry").requestSubmit();
  for (let i = 0; i < 500 && at("state").textContent !== "ready"; i++)
    await new Promise((done) => setTimeout(done, 20));
  return [asked, at("state").textContent, at("entry").hidden];
})()
"#;

#[test]
fn the_page_shows_figures_and_asks_on_every_screen() {
    let Some(mut browser) = Browser::start() else { return skipped() };
    let name = "a-model-with-a-long-name-".repeat(4);
    let server = Server::start(&format!("--batch 8 --name {name}"));
    // What the pages of reports are looked at with.
    let findings =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../gangline-report/tests/findings.js");
    let look = fs::read_to_string(findings).unwrap() + LOOK;
    for screen in SCREENS {
        let seen = browser.look(&format!("http://{}/", server.address), screen, &look);
        let expected = json!({
            "found": [],
            "ground": if screen.scheme == "dark" { "rgb(22, 24, 28)" } else { "rgb(255, 255, 255)" },
            "result": "Status 200",
            "answer": "[\n  4,\n  ",
            "title": name,
            "loaded": ["/predict", "/stats"],
        });
        assert_eq!(seen, expected, "{screen:?}");
    }
    server.end();
}

#[test]
fn the_page_asks_for_the_token() {
    let Some(mut browser) = Browser::start() else { return skipped() };
    let place = Place::new();
    let token = place.write("token", "secret");
    let server = Server::start(&format!("--token {}", token.display()));
    let seen = browser.look(&format!("http://{}/", server.address), SCREENS[0], ENTER);
    assert_eq!(seen, json!(["token needed", "ready", true]));
    server.end();
}

#[expect(clippy::print_stderr, reason = "a test that checked nothing has to say so")]
fn skipped() {
    eprintln!("skipped: there is no chromium to show the page");
}
