//! The workers of docs/warm-workers.md do what the page says.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::Place;

/// The only block of the page in this language.
#[track_caller]
fn block(language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/warm-workers.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = format!("\n```{language}\n");
    let mut blocks = page.split(&*begin).skip(1);
    let block = blocks.next().unwrap().split("```").next().unwrap().to_owned();
    assert!(blocks.next().is_none(), "{language}");
    block
}

/// Its model has room for four, and knows no negative numbers.
const MODEL: &str = r#"
import math
def load_model():
    def model(numbers):
        print("a greeting of a library")
        if len(numbers) > 4:
            raise MemoryError
        return [float("nan") if number == "nan" else math.sqrt(number) for number in numbers]
    return model
"#;

#[test]
fn the_loop_in_python_takes_lists() {
    let place = Place::new();
    place.write("worker", format!("{MODEL}{}", block("python")));
    let line = "-j1 --warm --jsonl --batch 8 --batch-wait 10s -- python3 worker";
    let ran = place.run_typed(&format!("{line} ::: 1 4 9 -1 25 36 '\"nan\"' 64"));
    ran.check(2, "1.0\n2.0\n3.0\n5.0\n6.0\n8.0\n");
    ran.check_said(2, &["job 4 failed: ValueError", "job 7 failed: Out of range float values"]);
    ran.check_said(2, &["the list of job 1 and 7 others", "out of memory", "a greeting"]);
    place.run_typed("-j2 --warm --jsonl -- python3 worker ::: 1 4").check(0, "1.0\n2.0\n");
}

#[test]
fn the_worker_in_the_shell_takes_files() {
    let place = Place::new();
    place.write("worker", block("sh"));
    place.write("a", "abc");
    let ran = place.run_typed("-j1 --warm --batch 2 -- sh worker ::: a missing worker");
    assert!(ran.stdout.starts_with("3\n") && ran.stdout.lines().count() == 2, "{ran:?}");
    ran.check_said(1, &["job 2 failed: it cannot be read", "--batch has no effect"]);
}

#[test]
fn the_worker_in_c_takes_numbers() {
    let place = Place::new();
    place.write("worker.c", block("c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-o", "worker", "worker.c", "-lm"]);
    assert!(gcc.current_dir(place.directory()).status().unwrap().success());
    let ran = place.run_typed("-j2 --warm --jsonl -- ./worker ::: 4 -1 6.25");
    ran.check(1, "2\n2.5\n");
    ran.check_said(1, &["job 2 failed: it is negative"]);
}
