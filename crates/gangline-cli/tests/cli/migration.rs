//! The examples for users of GNU parallel and xargs in docs/command-line.md, run with both programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::support::Place;

/// A row of a table: the cells, as code or as text.
type Row = Vec<String>;

/// The rows of the tables with `there` in their first column, in the page.
fn rows(there: &str) -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    let mut rows = Vec::new();
    let mut is_inside = false;
    for line in page.lines() {
        let Some(line) = line.strip_prefix("| ") else {
            is_inside = is_inside && line.starts_with("|-");
            continue;
        };
        if line.starts_with(there) {
            is_inside = true;
        } else if is_inside {
            let cells = line.replace("\\|", "\0");
            let cells = cells.trim_end_matches('|').split(" | ");
            rows.push(cells.map(|cell| cell.trim().replace('\0', "|")).collect());
        }
    }
    assert!(!rows.is_empty(), "there is no table that begins with {there}");
    rows
}

/// The text of a cell that is code.
fn code(cell: &str) -> &str {
    let code = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'));
    code.unwrap_or_else(|| panic!("{cell} is not code"))
}

/// The printed text of a cell.
fn result(cell: &str) -> &str {
    if cell == "nothing" { "" } else { code(cell) }
}

/// What a command prints, and its exit status, in a directory with the files of the page.
fn ran(line: &str) -> (String, Option<i32>) {
    let place = Place::new();
    place.write("a.txt", "a\n");
    place.write("b.txt", "b\nbb\n");
    place.write("c.txt", "c\ncc\nccc\n");
    place.write("cmds", "echo x | tr x y\necho \"a  b\"\n");
    place.write("t.csv", "name,size\na,1\nb,2\n");
    fs::create_dir_all(place.path("home/.parallel")).unwrap();
    place.write("home/.parallel/will-cite", "");
    fs::create_dir(place.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_gangline"), place.path("bin/gangline")).unwrap();
    let mut path = place.path("bin").into_os_string();
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["-c", line]).current_dir(place.directory()).stdin(std::process::Stdio::null());
    command.env("PATH", path).env("HOME", place.path("home")).env("TMPDIR", place.path("tmp"));
    let output = command.env("SHELL", "/bin/bash").output().unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

/// Calls `check` with each row, on four threads, and returns what it says.
fn check_all(rows: Vec<Row>, check: impl Fn(&Row) -> Result<(), String> + Sync) {
    let wrong = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for rows in rows.chunks(rows.len().div_ceil(4)) {
            scope.spawn(|| {
                let checked = rows.iter().filter_map(|row| check(row).err());
                let checked: Vec<String> = checked.collect();
                wrong.lock().unwrap().extend(checked);
            });
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn check_same(row: &Row) -> Result<(), String> {
    let [there, here] = [code(&row[0]), code(&row[1])];
    let (expected, found) = (ran(there), ran(here));
    match expected == found && !(found.0.is_empty() && expected.1 != Some(0)) {
        true => Ok(()),
        false => Err(format!("{there}\n    {expected:?}\n{here}\n    {found:?}")),
    }
}

/// Whether GNU parallel is installed. Says so if not.
#[expect(clippy::print_stderr, reason = "a check that was left out is mentioned")]
fn has_parallel() -> bool {
    let version = Command::new("parallel").arg("--version").output();
    let is_there = version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel"));
    if !is_there {
        eprintln!("GNU parallel is not installed, so nothing is compared with it");
    }
    is_there
}

/// Compares the examples of one table.
#[track_caller]
fn check_table(topic: &str) {
    let rows = rows(&format!("GNU parallel: {topic} "));
    if has_parallel() {
        check_all(rows, check_same);
    }
}

#[test]
fn inputs_are_those_of_parallel() {
    check_table("inputs");
}

#[test]
fn marks_are_those_of_parallel() {
    check_table("marks");
}

#[test]
fn commands_are_those_of_parallel() {
    check_table("commands");
}

#[test]
fn jobs_run_as_in_parallel() {
    check_table("running");
}

#[test]
fn jobs_are_recorded_as_in_parallel() {
    check_table("record");
}

#[test]
fn examples_of_xargs_print_the_same_here() {
    check_all(rows("xargs "), check_same);
}

#[test]
fn words_with_another_meaning_have_the_results_of_the_page() {
    let has_parallel = has_parallel();
    let joined = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    check_all(rows("after `parallel -k`"), |row| {
        let words = code(&row[0]);
        if has_parallel {
            let (printed, _) = ran(&format!("parallel -k {words}"));
            if joined(&printed) != result(&row[1]) {
                return Err(format!("parallel -k {words}: {printed:?}, not {}", row[1]));
            }
        }
        let (printed, status) = ran(&format!("gangline run {words}"));
        let is_as_told = match &*row[2] {
            "refused" => printed.is_empty() && status == Some(102),
            cell => joined(&printed) == result(cell),
        };
        match is_as_told {
            true => Ok(()),
            false => Err(format!("gangline run {words}: {printed:?}, {status:?}, not {}", row[2])),
        }
    });
}
