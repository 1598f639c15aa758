//! The examples of docs/command-line.md print what the page says.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Place;

/// The blocks of the page that begin with this line, without the lines of backquotes.
pub(crate) fn blocks<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    let begin = format!("\n```{begin}\n");
    page.split(&*begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The commands of a block, each with what it prints.
fn commands(block: &str) -> Vec<(&str, &str)> {
    let parts = block.strip_prefix("$ ").unwrap().split("\n$ ");
    parts.map(|part| part.split_once('\n').unwrap_or((part, ""))).collect()
}

/// Runs the commands of a block in a place, compares what they print, and returns how many there are.
#[track_caller]
pub(crate) fn check_commands(place: &Place, block: &str) -> usize {
    if !place.path("bin/gangline").exists() {
        fs::create_dir_all(place.path("bin")).unwrap();
        symlink(env!("CARGO_BIN_EXE_gangline"), place.path("bin/gangline")).unwrap();
    }
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let (mut checked, mut status) = (0, None);
    for (typed, printed) in commands(block) {
        checked += 1;
        if typed == "echo $?" {
            let expected = printed.trim().parse().unwrap();
            assert_eq!(status, Some(expected), "the status of the command before: {block}");
            continue;
        }
        let mut command = Command::new("bash");
        command.args(["-c", &format!("exec 2>&1\nPATH=$PWD/bin:$PATH\n{typed}")]);
        command.current_dir(place.directory()).stdin(Stdio::null());
        command.env("TMPDIR", place.path("tmp")).env_remove("CUDA_VISIBLE_DEVICES");
        let output = command.env("PYTHONPATH", &python).output().unwrap();
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.trim_end(), printed.trim_end(), "{typed}");
        status = output.status.code();
    }
    checked
}

#[test]
fn examples_print_what_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/command-line.md");
    let page = fs::read_to_string(page).unwrap();
    let place = Place::new();
    fs::create_dir(place.path("photos")).unwrap();
    for number in 1..=3 {
        place.write(&format!("photos/p {number}.raw"), vec![0; 1_000 * number]);
    }
    place.write("sizes.csv", "name,size\na x,3\n\"b,c\",4\n");
    place.write("a b\"c", "");
    place.write("cmds", [b'x'; 59]);
    place.write("run.yaml", blocks(&page, "yaml")[0]);
    // Others have times, or the devices of a machine.
    let is_the_same = |block: &&str| {
        !["report --compare", "gangline devices", "job.json", "--nats"]
            .iter()
            .any(|part| block.contains(part))
    };
    let blocks = blocks(&page, "console").into_iter().filter(is_the_same);
    let checked: usize = blocks.map(|block| check_commands(&place, block)).sum();
    assert!(checked >= 15, "{checked}");
}
