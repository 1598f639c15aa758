//! The example `tiles`.

#[path = "../../examples/tiles.rs"]
#[expect(dead_code, reason = "the tests call what `main` calls, with folders of their own")]
mod example;

use crate::support::no_hang;

#[test]
fn the_tiles_of_images_make_the_files_of_a_loop() {
    no_hang(|| {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(example::run(folder.path(), 3).unwrap(), (3, 0));
        assert_eq!(example::run(folder.path(), 4).unwrap(), (1, 3), "it goes on where it was");
    });
}

#[cfg(unix)]
mod kills {
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::{BufRead, BufReader};
    use std::os::unix::process::ExitStatusExt;
    use std::path::{Path, PathBuf};
    use std::process::{Child, ChildStdout, Command, Stdio};
    use std::time::Duration;

    use super::{example, no_hang};

    /// Set in a child: the folder that it writes to.
    const CHILD: &str = "GANGLINE_TEST_TILES";
    const KILLS: u64 = 6;
    const IMAGES: u64 = 24;

    /// A run of the example in a process of its own, and the lines that it prints.
    fn start(folder: &Path) -> (Child, BufReader<ChildStdout>) {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "tiles::kills::a_killed_run_goes_on_to_the_files_of_a_loop";
        child.args([name, "--exact", "--nocapture"]).env(CHILD, folder).stdout(Stdio::piped());
        let mut child = child.spawn().unwrap();

        let output = BufReader::new(child.stdout.take().unwrap());
        (child, output)
    }

    /// The images that a run says it has written.
    fn written(output: impl BufRead) -> impl Iterator<Item = u64> {
        let lines = output.lines().map(Result::unwrap);
        lines.filter_map(|line| number_of(Path::new(line.strip_prefix("wrote ")?)))
    }

    fn number_of(path: &Path) -> Option<u64> {
        path.to_str()?.rsplit('/').next()?.strip_suffix(".pgm")?.parse().ok()
    }

    /// The images that have their names in `folder`. All of them are those of the loop.
    fn whole_images(folder: &Path, expected: &[Vec<u8>]) -> BTreeSet<u64> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let images: Vec<(u64, PathBuf)> =
            names.filter_map(|path| Some((number_of(&path)?, path))).collect();
        for (number, path) in &images {
            assert!(
                fs::read(path).unwrap() == expected[*number as usize],
                "{number} is half-written"
            );
        }
        images.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn a_killed_run_goes_on_to_the_files_of_a_loop() {
        if let Some(folder) = std::env::var_os(CHILD) {
            example::in_parallel(Path::new(&folder), IMAGES).unwrap();
            return;
        }
        no_hang(kill_and_resume);
    }

    fn kill_and_resume() {
        let (looped, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        example::in_sequence(looped.path(), IMAGES).unwrap();
        let read = |number| fs::read(example::path_of(number, looped.path())).unwrap();
        let expected: Vec<Vec<u8>> = (0..IMAGES).map(read).collect();

        let mut random = 0x2545_f491_u64;
        let mut done = BTreeSet::new();
        for _ in 0..KILLS {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (mut child, mut output) = start(folder.path());
            // The second image is printed when the first is in the journal.
            let images = written(&mut output).take(2 + (random >> 33) as usize % 2);
            let images: Vec<u64> = images.collect();
            assert!(images.len() >= 2, "it goes on until it is killed");
            // Somewhere in the work on the images that follow.
            std::thread::sleep(Duration::from_micros((random >> 40) % 50_000));
            child.kill().unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(9));
            assert!(images.iter().all(|image| !done.contains(image)), "{images:?} again, {done:?}");
            done.extend(&images[..images.len() - 1]);
            let whole = whole_images(folder.path(), &expected);
            assert!(whole.is_superset(&done), "an image that is done is on the disk");
        }

        let (mut child, output) = start(folder.path());
        let images: BTreeSet<u64> = written(output).collect();
        assert!(child.wait().unwrap().success());
        assert!(images.is_disjoint(&done), "{images:?} again, {done:?}");
        assert!(!images.is_empty(), "something was left to do");
        assert_eq!(whole_images(folder.path(), &expected).len() as u64, IMAGES);
    }
}
