//! Rows G4, G6 and G7 of the catalogue of faults: files, their kinds and rights, locks, and processes that
//! are killed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use super::fake_disk::{commit, done, line_ends, sample};
use super::{Fingerprint, ItemPlan, Journal, JournalError, JournalFile, JournalKey, KeyKind, Past};

fn open(journal: &Journal) -> Result<(JournalFile, Past), JournalError> {
    JournalFile::open(journal, Fingerprint::new(journal, json!({"seed": 1}), KeyKind::Position))
}

/// A journal about five items, in a directory of its own.
fn with_five() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.journal");
    let (mut journal, _) = open(&Journal::at(&*path)).unwrap();
    commit(&mut journal, (0..5).map(done), Some(b"five")).unwrap();
    (dir, path)
}

fn refusal(journal: &Journal) -> JournalError {
    open(journal).unwrap_err()
}

#[test]
fn a_journal_is_gone_on_with_only_where_that_is_asked_for() {
    let (_dir, path) = with_five();
    let error = refusal(&Journal::at(&*path));
    assert!(matches!(error, JournalError::Exists { .. }), "{error}");
    let (_, past) = open(&Journal::at(&*path).resume()).unwrap();
    assert_eq!((past.done(), past.last_note()), (5, Some(&b"five"[..])));
}

#[test]
fn a_new_one_is_begun_where_there_is_none_or_an_empty_file() {
    let dir = tempfile::tempdir().unwrap();
    for (name, journal) in [
        ("a", Journal::at(dir.path().join("a"))),
        ("b", Journal::at(dir.path().join("b")).resume()),
    ] {
        open(&journal).unwrap();
        assert!(fs::metadata(dir.path().join(name)).unwrap().len() > 0);
    }
    let empty = dir.path().join("empty");
    fs::write(&empty, "").unwrap();
    open(&Journal::at(&*empty)).unwrap();
}

#[test]
fn what_failed_is_not_known_without_a_journal() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("none");
    let error = refusal(&Journal::at(&*path).rerun_failed());
    assert!(matches!(error, JournalError::Missing { .. }), "{error}");
    assert!(!path.exists());
    for torn in [0, 7, 40] {
        fs::write(&path, &sample()[..torn]).unwrap();
        let error = refusal(&Journal::at(&*path).rerun_failed());
        assert!(matches!(error, JournalError::Missing { .. }), "{error}");
    }
}

/// G11: the hooks of the consumer are for the engine to call.
#[test]
fn g11_of_a_finished_run_nothing_is_left() {
    let (_dir, path) = with_five();
    let (mut file, mut past) = open(&Journal::at(&*path).resume()).unwrap();
    let before = fs::read(&path).unwrap();
    assert!(
        (0..5).all(|position| past.decide(&JournalKey::Position(position)).unwrap()
            == ItemPlan::AlreadyDone)
    );
    past.check_length(5).unwrap();
    file.commit(None).unwrap();
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn g6_a_directory_or_a_device_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path(), Path::new("/dev/full"), Path::new("/dev/null")] {
        if path.exists() {
            let error = refusal(&Journal::at(path).resume());
            assert!(matches!(error, JournalError::NotAFile { .. }), "{error}");
            let error = Journal::at(path).repair().unwrap_err();
            assert!(matches!(error, JournalError::NotAFile { .. }), "{error}");
        }
    }
}

#[test]
fn g6_where_nothing_can_be_made_the_path_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(&Journal::at(dir.path().join("no/such/dir")));
    assert!(matches!(error, JournalError::Io { operation: "opened", .. }), "{error}");
    assert!(error.to_string().contains("no/such/dir"), "{error}");
}

#[cfg(unix)]
#[test]
fn g6_a_link_is_followed_also_to_a_file_that_is_not_there_yet() {
    let dir = tempfile::tempdir().unwrap();
    let (file, link) = (dir.path().join("file"), dir.path().join("link"));
    std::os::unix::fs::symlink(&file, &link).unwrap();
    let (mut journal, _) = open(&Journal::at(&*link)).unwrap();
    commit(&mut journal, [done(0)], None).unwrap();
    drop(journal);
    assert_eq!(open(&Journal::at(&*file).resume()).unwrap().1.done(), 1);
}

#[cfg(unix)]
#[test]
fn g6_it_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let (_dir, path) = with_five();
    assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// The super-user may write what is read-only.
#[cfg(unix)]
#[test]
fn g6_a_file_that_may_not_be_written_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let (_dir, path) = with_five();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
    if fs::File::options().write(true).open(&path).is_err() {
        let error = refusal(&Journal::at(&*path).resume());
        assert!(matches!(error, JournalError::Io { operation: "opened", .. }), "{error}");
    }
}

#[test]
fn g6_there_is_one_writer_at_a_time() {
    let (_dir, path) = with_five();
    let journal = Journal::at(&*path).resume();
    let first = open(&journal).unwrap();
    for error in [refusal(&journal), refusal(&Journal::at(&*path)), journal.repair().unwrap_err()] {
        assert!(matches!(error, JournalError::Locked { .. }), "{error}");
    }
    drop(first);
    open(&journal).unwrap();
}

#[test]
fn g7_a_changed_run_is_refused_and_told_how() {
    let (_dir, path) = with_five();
    let journal = Journal::at(&*path).resume().runner("digits", "2");
    let run = Fingerprint::new(&journal, json!({"seed": 2}), KeyKind::Name);
    let error = JournalFile::open(&journal, run).unwrap_err().to_string();
    let expected = "is of another run: the runner's name was not given and is \"digits\", \
                    the runner's version was not given and is \"2\", \
                    items were known by position and are by name, \
                    seed was 1 and is 2; undo that, or begin a new journal";
    assert!(error.ends_with(expected), "{error}");
}

#[test]
fn g7_what_is_ignored_now_may_have_been_written_down() {
    let (_dir, path) = with_five();
    let journal = Journal::at(&*path).resume().ignore_cfg("seed");
    let run = Fingerprint::new(&journal, json!({"seed": 2}), KeyKind::Position);
    assert!(JournalFile::open(&journal, run).is_ok());
}

#[test]
fn repairing_keeps_what_is_before_the_damage_and_says_what_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut bytes = sample();
    let ends = line_ends(&bytes);
    bytes[ends[1] + 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let journal = Journal::at(&*path).resume();
    let error = refusal(&journal).to_string();
    assert!(error.contains(&format!("damaged at byte {}: `Journal::repair`", ends[1])), "{error}");

    let repair = journal.repair().unwrap();
    assert_eq!((repair.kept_bytes, repair.kept_commits), (ends[1] as u64, 1));
    assert_eq!((repair.done, repair.failed), (5, 0));
    assert_eq!(repair.lost_bytes, (bytes.len() - ends[1]) as u64);
    assert_eq!((repair.lost_commits, repair.lost_items), (2, 4));
    let told = format!(
        "kept {} bytes with 1 commits: 5 items done, 0 failed; cut off {} bytes, in which 2 commits \
         about 4 items could still be read",
        repair.kept_bytes, repair.lost_bytes
    );
    assert_eq!(repair.to_string(), told);
    let again = journal.repair().unwrap();
    assert_eq!((again.kept_bytes, again.lost_bytes), (repair.kept_bytes, 0));
    assert!(again.to_string().ends_with("nothing was damaged"));
    assert_eq!(open(&journal).unwrap().1.done(), 5);
}

#[test]
fn of_a_journal_without_its_header_nothing_can_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let mut bytes = sample();
    bytes[30] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let error = Journal::at(&*path).repair().unwrap_err();
    assert!(matches!(error, JournalError::Header { .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
    let error = Journal::at(dir.path().join("none")).repair().unwrap_err();
    assert!(matches!(error, JournalError::Missing { .. }), "{error}");
}

/// Set in a child: the journal that it writes.
#[cfg(unix)]
const CHILD: &str = "GANGLINE_TEST_JOURNAL";

/// Runs the test `name` of this module as a child process, which writes to `path`.
#[cfg(unix)]
fn child(name: &str, path: &Path) -> std::process::Child {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args([&format!("journal::file_faults::{name}"), "--exact", "--nocapture"]);
    child.env(CHILD, path).stdout(Stdio::piped()).spawn().unwrap()
}

/// In a child: goes on with the journal, three items a commit, and says after each how many are done.
#[cfg(unix)]
fn write_until_killed(path: &Path) {
    let (mut journal, past) = open(&Journal::at(path).resume()).unwrap();
    for position in (past.done()..).step_by(3) {
        let now = Instant::now();
        (position..position + 3).for_each(|position| journal.record(done(position), now));
        journal.commit(Some((position + 3).to_string().as_bytes())).unwrap();
        println!("done: {}", position + 3);
    }
}

/// No time is in it: a child is killed when it has said a number of times that it committed, wherever it
/// is by then.
#[cfg(unix)]
#[test]
fn g4_a_process_that_is_killed_leaves_what_it_committed() {
    let name = "g4_a_process_that_is_killed_leaves_what_it_committed";
    if let Some(path) = std::env::var_os(CHILD) {
        return write_until_killed(Path::new(&path));
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.journal");
    let mut before = 0;
    for kill in 0..30 {
        let mut child = child(name, &path);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told =
            lines.map(Result::unwrap).filter_map(|line| line.rsplit_once("done: ")?.1.parse().ok());
        let told: u64 = told.nth(kill % 7).expect("it goes on until it is killed");
        if kill % 10 == 0 {
            let error = refusal(&Journal::at(&*path).resume());
            assert!(matches!(error, JournalError::Locked { .. }), "by another process: {error}");
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let (_, past) = open(&Journal::at(&*path).resume()).unwrap();
        assert!(past.done() >= told.max(before), "{told} and {before} were done");
        assert!((0..past.done()).all(|position| past.is_done(&JournalKey::Position(position))));
        assert_eq!(past.last_note().unwrap(), past.done().to_string().as_bytes());
        before = past.done();
    }
}
