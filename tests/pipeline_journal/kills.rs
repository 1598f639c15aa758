//! Pipelines that are killed at random moments, and resumed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gangline::order::RuntimeOrder;
use gangline::{AnyOrderRunner, Builder, Journal, Order, Runner, map, sink};

use crate::support::no_hang;

/// Set in a child: the folder that it works in.
const CHILD: &str = "GANGLINE_TEST_PIPELINE";
const KILLS: u64 = 30;
const ITEMS: u64 = 1_600;

/// Runs the test `name` in child processes: kills thirty at random moments, checks what the journal has as
/// done after each, and lets the last one finish. In the child itself it calls `part`.
fn kill_and_resume(name: &str, part: fn(&Path)) -> Option<tempfile::TempDir> {
    if let Some(folder) = std::env::var_os(CHILD) {
        part(Path::new(&folder));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("parts")).unwrap();
    let mut random = 0x2545_f491_u64;
    let mut done = 0;
    for round in 0..=KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([&format!("kills::{name}"), "--exact", "--nocapture"]);
        let mut child = child.env(CHILD, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut did = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap)
            .filter(|line| line.starts_with("did "));
        if round < KILLS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            did.nth((random >> 33) as usize % 40).expect("it goes on until it is killed");
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            done = check_done(folder.path(), done);
        } else {
            assert!(did.count() > 0, "something is left to do");
            assert!(child.wait().unwrap().success());
        }
    }
    Some(folder)
}

/// Checks that what the journal has as done is whole on the disk. Returns how many items it has, at least
/// `before`.
fn check_done(folder: &Path, before: usize) -> usize {
    let done = done_in(&folder.join("journal"));
    assert!(done.len() >= before, "the journal never loses an item");
    for item in &done {
        let part = fs::read_to_string(folder.join("parts").join(item.to_string())).unwrap();
        assert_eq!(part, part_of(*item), "it was called done when it was half-written");
    }
    done.len()
}

/// The positions that whole lines of a journal have as done.
fn done_in(journal: &Path) -> BTreeSet<u64> {
    let Ok(text) = fs::read_to_string(journal) else { return BTreeSet::new() };
    let mut done = BTreeSet::new();
    // A killed process leaves an incomplete last line.
    for line in text.split_inclusive('\n').skip(1).filter(|line| line.ends_with('\n')) {
        let commit: serde_json::Value = serde_json::from_str(&line[9..]).unwrap();
        for range in commit["done"].as_array().into_iter().flatten() {
            let (first, last) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
            for item in first..=last {
                assert!(done.insert(item), "item {item} is done twice");
            }
        }
    }
    done
}

fn part_of(item: u64) -> String {
    format!("{item} ").repeat(500)
}

fn stage<R: Runner + 'static>(runner: R, order: Order) -> Builder<R, RuntimeOrder> {
    AnyOrderRunner::builder(runner).devices(2).order(order)
}

/// Squares, writes a file for each item in the second stage, and a line for each in the order of the consumer.
fn run(folder: &Path, orders: &[Order]) {
    let journal = Journal::at(folder.join("journal")).resume().commit_items(7);
    let first = map(
        |_| Ok(()),
        |_, (), x: u64| {
            // No more than about sixty items are said ahead of the reader: a pipe has 64 KiB.
            writeln!(std::io::stdout(), "did {x}{:1000}", "")?;
            Ok((x, x * x))
        },
    );
    let place: PathBuf = folder.join("parts");
    let write = map(
        |_| Ok(()),
        move |_, (), (x, square): (u64, u64)| {
            let mut file = sink::atomic_file(place.join(x.to_string()))?;
            file.write_all(part_of(x).as_bytes())?;
            file.commit()?;
            Ok(format!("{x} {square}"))
        },
    );
    let lines = sink::lines(folder.join("out"));
    let first = stage(first, orders[0]).journal(journal).build().unwrap();
    match orders {
        [_, last] => {
            let mut last = stage(write.sink(lines), *last).build().unwrap();
            first.then(&mut last).run(0..ITEMS).unwrap();
        }
        [_, second, last] => {
            let same = map(|_| Ok(()), |_, (), line: String| Ok(line));
            let mut second = stage(write, *second).build().unwrap();
            let mut last = stage(same.sink(lines), *last).build().unwrap();
            first.then(&mut second).then(&mut last).run(0..ITEMS).unwrap();
        }
        _ => panic!("two or three stages"),
    }
}

/// Each item has its file and one line; in input order the lines are those of an uninterrupted run.
fn check_all(folder: &Path, is_ordered: bool) {
    let expected: Vec<String> = (0..ITEMS).map(|x| format!("{x} {}", x * x)).collect();
    let text = fs::read_to_string(folder.join("out")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let mut counts = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(*line).or_insert(0) += 1);
    assert!(counts.values().all(|count| *count == 1), "no line is there twice");
    assert!(expected.iter().all(|line| counts.contains_key(line.as_str())), "no item is lost");
    assert_eq!(lines.len(), expected.len());
    if is_ordered {
        assert!(lines == expected, "in the order of the input");
    }
    assert_eq!(check_done(folder, 0), ITEMS as usize);
}

macro_rules! killed {
    ($($name:ident: $orders:expr;)*) => {$(
        #[test]
        fn $name() {
            let part = |folder: &Path| run(folder, &$orders);
            no_hang(move || {
                let Some(folder) = kill_and_resume(stringify!($name), part) else { return };
                let is_ordered = $orders.iter().all(|order| *order == Order::Input);
                check_all(folder.path(), is_ordered);
            });
        }
    )*};
}

killed! {
    two_ordered_stages: [Order::Input, Order::Input];
    two_unordered_stages: [Order::Completion, Order::Completion];
    three_ordered_stages: [Order::Input, Order::Input, Order::Input];
    three_unordered_stages: [Order::Completion, Order::Completion, Order::Completion];
    an_unordered_stage_before_ordered_ones: [Order::Completion, Order::Input, Order::Input];
    an_unordered_stage_between_ordered_ones: [Order::Input, Order::Completion, Order::Input];
}
