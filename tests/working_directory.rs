//! A change of the current directory between `build` and `run`. A binary with one test: the directory is that of the
//! whole process.

use std::fs;
use std::io::Write;

use gangline::{Journal, OrderedRunner, map, sink};

#[test]
fn relative_paths_name_the_same_files_after_a_change_of_directory() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    fs::create_dir_all(first.join("inner")).unwrap();
    fs::create_dir(&second).unwrap();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let squares = |name: &str| {
        let done = done.clone();
        let work = move |_: &gangline::ProducerContext<'_>, (): &mut (), x: u64| {
            done.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            Ok(x * x)
        };
        map(|_| Ok(()), work).sink(sink::lines(name))
    };
    for (journal, output) in
        [("a.journal", "a.txt"), ("./b.journal", "inner/b.txt"), ("inner/../c.journal", "./c.txt")]
    {
        std::env::set_current_dir(&first).unwrap();
        done.store(0, std::sync::atomic::Ordering::Relaxed);
        let build = || {
            let journal = Journal::at(journal).resume();
            OrderedRunner::builder(squares(output)).devices(1).journal(journal).build().unwrap()
        };
        let (mut pool, mut again) = (build(), build());
        std::env::set_current_dir(&second).unwrap();
        pool.run(0..4).unwrap();
        std::env::set_current_dir(folder.path()).unwrap();
        assert_eq!(again.run(0..4).unwrap().outputs, 0, "all are done");
        assert_eq!(done.load(std::sync::atomic::Ordering::Relaxed), 4);
        assert_eq!(fs::read_to_string(first.join(output)).unwrap(), "0\n1\n4\n9\n");
        assert!(first.join(journal).exists());
    }

    std::env::set_current_dir(&first).unwrap();
    let mut plain = OrderedRunner::new(squares("plain.txt"), 1).unwrap();
    let mut file = sink::atomic_file("atomic.txt").unwrap();
    let part = sink::atomic_dir("atomic").unwrap();
    std::env::set_current_dir(&second).unwrap();
    plain.run(0..2).unwrap();
    file.write_all(b"whole").unwrap();
    file.commit().unwrap();
    part.commit().unwrap();
    assert!(fs::read_dir(&second).unwrap().next().is_none(), "nothing is written elsewhere");
    assert_eq!(fs::read_to_string(first.join("plain.txt")).unwrap(), "0\n1\n");
    assert!(first.join("atomic.txt").exists() && first.join("atomic").is_dir());
}
