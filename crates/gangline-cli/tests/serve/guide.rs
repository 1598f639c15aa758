//! docs/serving.md: its programs run, and its statements hold.

use std::fs;
use std::path::Path;

use crate::server::Server;
use crate::support::Place;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/serving.md")).unwrap()
}

/// The first block of the page in this language.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let begin = format!("\n```{language}\n");
    page.split(&*begin).nth(1).unwrap().split("```").next().unwrap()
}

#[test]
fn its_script_has_its_answers() {
    let page = page();
    let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let variables = [("PYTHONPATH", module.to_str().unwrap())];
    let server = Server::of(block(&page, "python"), "--batch 8", &variables);
    server.wait_until_ready();
    let reply = server.ask("[1, 2, 3]");
    assert_eq!(reply.status, 200);
    assert!(page.contains(&format!("The answer is `{}`", reply.body)), "{reply:?}");
    let reply = server.ask("[1, \"x\", 3]");
    assert_eq!(reply.header("gangline-failed"), Some("1"));
    let example = block(&page, "console");
    assert!(example.ends_with(&format!("\n\n{}\n", reply.body)), "{reply:?}");
    server.end();
}

#[test]
fn its_options_and_figures_exist() {
    let page = page();
    let place = Place::new();
    let help = place.ran(&mut place.typed("serve --help")).stdout;
    // Blocks of code have options of other programs too.
    let text: String = page.split("\n```").step_by(2).collect();
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let others = ["--warm", "--path", "--serve", "--gpus"];
    for option in words.clone().filter(|word| word.starts_with("--")) {
        let is_known = help.contains(&format!("{option} ")) || others.contains(&option);
        let is_rule = option.trim_matches('-').is_empty();
        assert!(is_known || is_rule, "{option}");
    }
    let server = Server::start("--batch 2 --retries 1");
    server.ask("[1,2]");
    crate::support::wait_until("all are there", || {
        let text = server.get("/metrics").body;
        words.clone().filter(|word| word.starts_with("gangline_")).all(|name| text.contains(name))
    });
    server.end();
}
