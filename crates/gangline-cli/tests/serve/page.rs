//! The page at `/` in a real browser: on a phone, a tablet and a desk, light and dark.

use serde_json::json;

use crate::browser::{Browser, Screen};
use crate::server::Server;
use crate::support::Place;

const SCREENS: [Screen; 3] = [
    Screen { width: 360, scheme: "light" },
    Screen { width: 768, scheme: "dark" },
    Screen { width: 1280, scheme: "light" },
];

/// Asks for an answer with the form, and reports what is cut off, outside the page, or hard to read.
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
  const light = (color) => {
    const [r, g, b] = color.match(/[\d.]+/g).map(Number).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    const color = getComputedStyle(element).backgroundColor;
    return color.endsWith(", 0)") ? ground(element.parentElement) : color;
  };
  const found = [];
  const say = (what, element) => found.push(`${what}: ${element.outerHTML.slice(0, 100)}`);
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.checkVisibility() || element.tagName === "SCRIPT") continue;
    if (element.clientWidth > 0 && element.scrollWidth > element.clientWidth + 1) say("cut off", element);
    if (element.getBoundingClientRect().right > innerWidth + 1) say("outside the page", element);
    const pair = [getComputedStyle(element).color, ground(element)].map(light).sort((a, b) => a - b);
    if ((pair[1] + 0.05) / (pair[0] + 0.05) < 4.5) say("hard to read", element);
  }
  const names = performance.getEntriesByType("resource").map((entry) => new URL(entry.name).pathname);
  return {
    found,
    dark: light(getComputedStyle(document.body).backgroundColor) < 0.1,
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
    for screen in SCREENS {
        let seen = browser.look(&format!("http://{}/", server.address), screen, LOOK);
        let expected = json!({
            "found": [],
            "dark": screen.scheme == "dark",
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
