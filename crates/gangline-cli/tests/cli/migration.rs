//! The examples for users of other programs in docs/from-parallel.md and docs/from-scipion.md, run with both programs
//! where they can be installed.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use crate::support::Place;

/// A row of a table: the cells, as code or as text.
type Row = Vec<String>;

const PARALLEL: &str = "from-parallel.md";

fn page(name: &str) -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    fs::read_to_string(docs.join(name)).unwrap()
}

/// The rows of the table below the heading of a program.
fn rows_about(name: &str, program: &str) -> Vec<Row> {
    let page = page(name);
    let (_, section) = page.split_once(&format!("\n## {program}\n")).unwrap();
    rows_in(section.split("\n#").next().unwrap(), "there")
}

/// The rows of the tables with `there` in their first column, in the page on GNU parallel.
fn rows(there: &str) -> Vec<Row> {
    rows_in(&page(PARALLEL), there)
}

fn rows_in(page: &str, there: &str) -> Vec<Row> {
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
    place.write("list", "d/a\nb c\n");
    place.write("commands.txt", "echo 'a  b' | tr a x\necho $((1 + 1))\n");
    fs::create_dir_all(place.path("home/.parallel")).unwrap();
    place.write("home/.parallel/will-cite", "");
    fs::create_dir(place.path("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_gangline"), place.path("bin/gangline")).unwrap();
    for name in ["bin/cmd", "bin/prog", "bin/mpirun"] {
        let program = place.write(name, "#!/bin/sh\necho \"$@\"\n");
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
    }
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
fn has_parallel() -> bool {
    let version = Command::new("parallel").arg("--version").output();
    mentioned(
        "GNU parallel",
        version.is_ok_and(|output| output.stdout.starts_with(b"GNU parallel")),
    )
}

#[expect(clippy::print_stderr, reason = "a check that was left out is mentioned")]
fn mentioned(program: &str, is_there: bool) -> bool {
    if !is_there {
        eprintln!("{program} is not installed, so nothing is compared with it");
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

/// The number that a cell begins with.
fn number(cell: &str) -> Option<i32> {
    cell.split(',').next()?.parse().ok()
}

#[test]
fn a_run_that_halts_has_the_status_of_the_page() {
    let has_parallel = has_parallel();
    check_all(rows("`-j1 --halt`"), |row| {
        let (when, inputs) = code(&row[0]).split_once(" ::: ").unwrap();
        let ours = ran(&format!("gangline run -j1 --halt {when} --shell 'exit $1' ::: {inputs}")).1;
        let theirs = match has_parallel {
            true => ran(&format!("parallel -j1 --halt {when} 'exit {{}}' ::: {inputs}")).1,
            false => number(&row[1]),
        };
        match [theirs, ours] == [number(&row[1]), number(&row[2])] && ours.is_some() {
            true => Ok(()),
            false => Err(format!("{}: {theirs:?}, {ours:?}", row[0])),
        }
    });
}

/// The pieces of code in a cell.
fn codes(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Runs what a row has for gangline: a command, an option with its value, or the name of an option.
fn check_ours(row: &Row, help: &str) -> Result<(), String> {
    for code in codes(&row[1]) {
        let line = match code {
            code if code.starts_with("gangline run") => code.to_owned(),
            code if !code.starts_with('-') => continue,
            code if !code.contains(' ') => match help.contains(code) {
                true => continue,
                false => return Err(format!("{code} is not in the help")),
            },
            code if code.contains("--gpu-list") => format!("gangline run {code} -- cmd ::: a"),
            code => format!("gangline run --gpu-list 0 {code} -- cmd ::: a"),
        };
        let (printed, status) = ran(&line);
        if printed.is_empty() || status != Some(0) {
            return Err(format!("{line}: {printed:?}, {status:?}"));
        }
    }
    Ok(())
}

#[test]
fn what_is_said_to_users_of_other_programs_runs() {
    let (help, _) = ran("gangline run --help");
    let scipion = ("from-scipion.md", "Scipion's GPU standard");
    for (page, program) in [(PARALLEL, "HyperQueue"), (PARALLEL, "simple_gpu_scheduler"), scipion] {
        check_all(rows_about(page, program), |row| check_ours(row, &help));
    }
}

#[test]
fn commands_of_simple_gpu_scheduler_print_the_same_here() {
    let help = Command::new("simple_gpu_scheduler").arg("--help").output();
    if !mentioned("simple_gpu_scheduler", help.is_ok()) {
        return;
    }
    let mut rows = rows_about(PARALLEL, "simple_gpu_scheduler");
    rows.retain(|row| row[0].starts_with("`simple") && row[1].starts_with('`'));
    assert_eq!(rows.len(), 2);
    check_all(rows, |row| {
        let [there, here] = [code(&row[0]), code(&row[1])].map(ran);
        let announces = |line: &&str| line.starts_with("Processing command");
        let printed = |text: &str| {
            let lines = text.lines().filter(|line| !announces(line)).map(str::to_owned);
            lines.collect::<BTreeSet<_>>()
        };
        match printed(&there.0) == printed(&here.0) && !here.0.is_empty() {
            true => Ok(()),
            false => Err(format!("{}\n    {there:?}\n    {here:?}", row[0])),
        }
    });
}
