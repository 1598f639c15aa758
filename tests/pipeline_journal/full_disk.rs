//! A journal that cannot grow, as on a full disk.

use std::path::Path;
use std::process::Command;

use gangline::journal::{JournalError, KeyKind};
use gangline::{Error, Journal, Order};

use crate::rows::{Row, plain};
use crate::support::no_hang;

/// Set in a child: the journal that it writes.
const CHILD: &str = "GANGLINE_TEST_FULL_DISK";

/// As many as take a journal of 40 KB.
const ITEMS: u64 = 400;

fn run(path: &Path, orders: &[Order]) -> Result<Vec<u64>, Error> {
    let journal = Journal::at(path).resume().commit_items(1);
    Row { orders, kind: KeyKind::Position, hooks: &plain }.try_run(journal, 0..ITEMS).0
}

/// Journals may have a few KiB, which their lines do not need.
#[test]
fn the_run_fails_and_the_journal_stays_as_of_the_last_commit() {
    let orders = [Order::Completion, Order::Input, Order::Input];
    if let Some(path) = std::env::var_os(CHILD) {
        for _ in 0..2 {
            let error = run(Path::new(&path), &orders).unwrap_err();
            let Error::Journal { source, .. } = &error else { panic!("{error:#}") };
            assert!(matches!(source, JournalError::Io { operation: "written", .. }), "{error:#}");
        }
        return;
    }
    no_hang(move || {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        // 16 blocks of 512 bytes; without the signal writing fails as on a full disk.
        let limit = "trap '' XFSZ; ulimit -f 16; exec \"$0\" \"$@\"";
        let mut child = Command::new("sh");
        child.arg("-c").arg(limit).arg(std::env::current_exe().unwrap());
        let name = "full_disk::the_run_fails_and_the_journal_stays_as_of_the_last_commit";
        let child = child.args([name, "--exact", "--nocapture"]).env(CHILD, &path);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let found = Journal::at(&path).repair().unwrap();
        assert_eq!(found.lost_commits, 0, "{found}");
        assert!((1..ITEMS).contains(&found.done), "{found}");
        let rest = run(&path, &orders).unwrap();
        assert_eq!(rest.len() as u64, ITEMS - found.done);
    });
}
