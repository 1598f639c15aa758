//! Sinks: files that hold each output once, and files and folders that are there whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gangline::sink::{self, Format, JsonLines, Lines, Sink, SinkError, ToSink, Writer, Written};
use gangline::testing::Simulated;
use gangline::{
    ConsumerContext, Devices, Error, Hook, Journal, OnError, OrderedRunner, ProducerContext,
    Result, Runner, UnorderedRunner, Verdict,
};

use crate::support::{Tasks, map, no_hang};

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    (folder, path)
}

fn squares() -> Tasks<'static, u64, u64> {
    map(|_| Ok(()), |_, (), x: u64| if x == 1_000 { Err("bad".into()) } else { Ok(x * x) })
}

fn to_lines(path: &Path) -> ToSink<Tasks<'static, u64, u64>, Lines> {
    squares().sink(sink::lines(path))
}

/// A pool that goes on with the journal beside `path`.
fn resumed(path: &Path) -> OrderedRunner<ToSink<Tasks<'static, u64, u64>, Lines>> {
    let journal = Journal::at(path.with_extension("journal")).resume();
    OrderedRunner::builder(to_lines(path)).devices(2).journal(journal).build().unwrap()
}

fn lines_of(path: &Path) -> Vec<u64> {
    fs::read_to_string(path).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The error of the sink that failed the run.
#[track_caller]
fn cause(error: &Error) -> &SinkError {
    let source = std::error::Error::source(error).expect("it has a cause");
    source.downcast_ref().unwrap_or_else(|| panic!("{error:#}"))
}

#[test]
fn without_a_journal_the_file_is_replaced_by_a_whole_one() {
    let (folder, path) = folder();
    fs::write(&path, "old").unwrap();
    let mut pool = OrderedRunner::new(to_lines(&path), 2).unwrap();
    assert_eq!(pool.run([3, 1_000, 4]).unwrap_err().item(), Some(1));
    assert_eq!(fs::read_to_string(&path).unwrap(), "old", "a failed run changes nothing");
    let written = pool.run([3, 4]).unwrap();
    assert_eq!((written.outputs, written.length), (2, 5));
    assert_eq!(written.path, path);
    assert_eq!(lines_of(&path), [9, 16]);
    assert_eq!(names(folder.path()), BTreeSet::from(["out".to_owned()]), "nothing is left aside");
    pool.run([]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

#[test]
fn with_a_journal_the_file_goes_on_behind_the_last_commit() {
    let (_folder, path) = folder();
    let items = |last| (0..20).chain([last]);
    assert_eq!(resumed(&path).run(items(1_000)).unwrap_err().item(), Some(20));
    let mut torn = fs::File::options().append(true).open(&path).unwrap();
    torn.write_all(b"of a process that was killed").unwrap();
    let written = resumed(&path).run(items(7)).unwrap();
    assert_eq!(written.outputs, 1);
    assert_eq!(written.length, fs::metadata(&path).unwrap().len());
    assert_eq!(lines_of(&path), (0..20).map(|x| x * x).chain([49]).collect::<Vec<_>>());
    assert_eq!(resumed(&path).run(items(7)).unwrap().outputs, 0);
    assert_eq!(lines_of(&path).len(), 21, "nothing is done twice");
}

#[test]
fn in_completion_order_every_output_is_there_once_too() {
    let (_folder, path) = folder();
    UnorderedRunner::new(to_lines(&path), 3).unwrap().run(0..200).unwrap();
    let mut lines = lines_of(&path);
    lines.sort_unstable();
    assert!(lines.into_iter().eq((0..200).map(|x| x * x)));
}

/// Set in a child: the folder that it writes to.
#[cfg(unix)]
const CHILD: &str = "GANGLINE_TEST_SINK";

/// Runs the test `name` of this module in child processes: kills twelve at random moments, and lets the last
/// one finish. In the child itself it calls `part`.
#[cfg(unix)]
fn kill_and_resume(name: &str, part: fn(&Path)) -> Option<tempfile::TempDir> {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    if let Some(folder) = std::env::var_os(CHILD) {
        part(Path::new(&folder));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut random = 0x2545_f491_u64;
    for round in 0..=12 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([&format!("sinks::{name}"), "--exact", "--nocapture"]);
        let mut child = child.env(CHILD, folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let mut did = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map(Result::unwrap)
            .filter(|line| line.starts_with("did "));
        if round < 12 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            did.nth((random >> 33) as usize % 60).expect("it goes on until it is killed");
            child.kill().unwrap();
            assert!(!child.wait().unwrap().success());
        } else {
            assert!(did.count() > 0, "something is left to do");
            assert!(child.wait().unwrap().success());
        }
    }
    Some(folder)
}

const ITEMS: u64 = 4_000;

/// Writes to `said` what it does. No more than about sixty items are ahead of a reader: a pipe has 64 KiB.
#[cfg(unix)]
fn slow_work<W: Write + 'static>(said: fn() -> W) -> Tasks<'static, u64, (u64, String)> {
    let work = |x: u64| (x, format!("{}, \"{}\"\n", "y".repeat((x % 50) as usize), x * x));
    map(
        |_| Ok(()),
        move |_, (), x: u64| {
            writeln!(said(), "did {x}{:1000}", "")?;
            Ok(work(x))
        },
    )
}

#[cfg(unix)]
fn run_until_killed<F: Format<(u64, String)> + 'static>(folder: &Path, sink: Sink<F>) {
    let journal = Journal::at(folder.join("journal")).resume().commit_items(7);
    let builder =
        OrderedRunner::builder(slow_work(std::io::stdout).sink(sink)).devices(2).journal(journal);
    builder.build().unwrap().run(0..ITEMS).unwrap();
}

/// The file is that of an uninterrupted run.
#[cfg(unix)]
#[track_caller]
fn same<F: Format<(u64, String)> + 'static>(folder: &Path, undisturbed: Sink<F>) {
    let path = undisturbed.path().to_owned();
    OrderedRunner::new(slow_work(std::io::sink).sink(undisturbed), 2)
        .unwrap()
        .run(0..ITEMS)
        .unwrap();
    assert!(fs::read(folder.join("out")).unwrap() == fs::read(path).unwrap());
}

#[cfg(unix)]
#[test]
fn a_run_that_is_killed_again_and_again_writes_each_line_of_json_once() {
    let name = "a_run_that_is_killed_again_and_again_writes_each_line_of_json_once";
    let part = |folder: &Path| run_until_killed(folder, sink::jsonl(folder.join("out")));
    let Some(folder) = kill_and_resume(name, part) else { return };
    same(folder.path(), sink::jsonl(folder.path().join("undisturbed")));
}

#[cfg(all(unix, feature = "csv"))]
#[test]
fn a_run_that_is_killed_again_and_again_writes_each_row_once() {
    let name = "a_run_that_is_killed_again_and_again_writes_each_row_once";
    let part = |folder: &Path| run_until_killed(folder, sink::csv(folder.join("out"), ["x", "y"]));
    let Some(folder) = kill_and_resume(name, part) else { return };
    same(folder.path(), sink::csv(folder.path().join("undisturbed"), ["x", "y"]));
}

#[test]
fn an_output_that_cannot_be_written_can_be_skipped() {
    let (_folder, path) = folder();
    let texts = map(|_| Ok(()), |_, (), text: &'static str| Ok(text));
    let builder = OrderedRunner::builder(texts.sink(sink::lines(&path))).devices(2);
    let mut pool = builder.classify(|_| Verdict::Skip).build().unwrap();
    pool.run(["one", "two\nthree", "four"]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one\nfour\n");
    let error = &pool.failures()[0];
    assert_eq!((error.item(), error.hook()), (Some(1), Some(Hook::ConsumerWork)));
    assert!(matches!(cause(error), SinkError::LineBreak { .. }), "{error:#}");

    // Half of it is written before the key that is no text.
    let pairs = map(
        |_| Ok(()),
        |_, (), x: u64| Ok(("first", BTreeMap::from([(if x == 1 { vec![x] } else { vec![] }, x)]))),
    );
    let builder = OrderedRunner::builder(pairs.sink(sink::jsonl(&path))).devices(1);
    let mut pool = builder.classify(|_| Verdict::Skip).build().unwrap();
    pool.run([1]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
    let error = &pool.failures()[0];
    assert!(matches!(cause(error), SinkError::Encode { format: "JSON", .. }), "{error:#}");
}

#[test]
fn a_number_that_json_does_not_have_fails_its_item() {
    type Output = (Option<f64>, Vec<(f32, BTreeMap<u8, [f64; 2]>)>);
    let (_folder, path) = folder();
    let outputs = || {
        map(
            |_| Ok(()),
            |_, (), (a, b, c): (f64, f32, f64)| -> Result<Output> {
                Ok((Some(a), vec![(1.0, BTreeMap::new()), (b, BTreeMap::from([(7, [0.5, c])]))]))
            },
        )
    };
    let inputs = [
        (1.0, 1.0, 1.0),
        (f64::NAN, 1.0, 1.0),
        (1.0, f32::INFINITY, 1.0),
        (1.0, 1.0, f64::NEG_INFINITY),
        (2.0, 2.0, f64::MAX),
    ];
    let builder = OrderedRunner::builder(outputs().sink(sink::jsonl(&path))).devices(2);
    let mut pool = builder.classify(|_| Verdict::Skip).build().unwrap();
    assert_eq!(pool.run(inputs).unwrap().outputs, 2);
    let failed: Vec<_> = pool.failures().iter().map(Error::item).collect();
    assert_eq!(failed, [Some(1), Some(2), Some(3)]);
    let texts: Vec<_> = pool.failures().iter().map(|error| format!("{error:#}")).collect();
    for (text, number) in texts.iter().zip(["NaN", "inf", "-inf"]) {
        assert!(text.contains(&format!("JSON has no {number};")), "{text}");
    }
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept.lines().next(), Some("[1.0,[[1.0,{}],[1.0,{\"7\":[0.5,1.0]}]]]"));

    let file = sink::jsonl(&path).header("# pairs\n").non_finite_as_null();
    OrderedRunner::new(outputs().sink(file), 1).unwrap().run([inputs[1]]).unwrap();
    let kept = fs::read_to_string(&path).unwrap();
    assert_eq!(kept, "# pairs\n[null,[[1.0,{}],[1.0,{\"7\":[0.5,1.0]}]]]\n");
}

#[test]
fn a_row_with_other_fields_than_the_header_fails_its_item() {
    let (_folder, path) = folder();
    let rows = map(|_| Ok(()), |_, (), n: usize| Ok(vec!["a b"; n]));
    let table = rows.sink(sink::csv(&path, ["x", "y, z"]));
    let builder = OrderedRunner::builder(table).devices(2).classify(|_| Verdict::Skip);
    let mut pool = builder.build().unwrap();
    pool.run([2, 3, 1, 2]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x,\"y, z\"\na b,a b\na b,a b\n");
    assert_eq!(pool.failures().len(), 2);
    assert!(matches!(cause(&pool.failures()[0]), SinkError::Encode { format: "CSV", .. }));
    pool.run([]).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "x,\"y, z\"\n");
}

#[test]
fn a_file_that_is_not_that_of_the_journal_is_refused_and_left_alone() {
    let (_folder, path) = folder();
    resumed(&path).run(0..20).unwrap();
    fs::write(&path, "0\n1\n").unwrap();
    let error = resumed(&path).run(0..21).unwrap_err();
    assert_eq!(error.hook(), Some(Hook::ConsumerInit));
    assert!(matches!(cause(&error), SinkError::TooShort { length: 4, .. }), "{error:#}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "0\n1\n");
}

#[test]
fn another_header_than_that_of_the_file_is_refused() {
    let (_folder, path) = folder();
    let open = |header: &str, length| sink::lines(&path).header(header).open_at(length);
    let length = open("# a\n", 0).unwrap().finish().unwrap().length;
    assert_eq!(open("# a\n", length).unwrap().length(), 4);
    for header in ["# b\n", "# a\n\n"] {
        let error = open(header, length).unwrap_err();
        assert!(matches!(error, SinkError::Header { .. }), "{error}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "# a\n");
}

#[test]
fn a_file_has_one_writer_at_a_time() {
    let (_folder, path) = folder();
    let first = sink::lines(&path).open_at(0).unwrap();
    let error = sink::lines(&path).open_at(0).unwrap_err();
    assert!(matches!(error, SinkError::InUse { .. }), "{error}");
    drop(first);
    sink::lines(&path).open_at(0).unwrap();
}

#[test]
fn what_is_no_file_is_never_replaced() {
    let (folder, _) = folder();
    for path in [folder.path(), Path::new("/dev/null"), Path::new("/dev/full")] {
        if path.exists() {
            let error = OrderedRunner::new(to_lines(path), 1).unwrap().run([1]).unwrap_err();
            assert!(matches!(cause(&error), SinkError::NotAFile { .. }), "{error:#}");
            let error = sink::lines(path).open_at(0).unwrap_err();
            assert!(matches!(error, SinkError::NotAFile { .. }), "{error}");
        }
    }
    let missing = folder.path().join("no/such/folder/out");
    let error = OrderedRunner::new(to_lines(&missing), 1).unwrap().run([1]).unwrap_err();
    assert!(matches!(cause(&error), SinkError::Io { operation: "created", .. }), "{error:#}");
}

/// Two files of one consumer, and a note of its own.
struct TwoFiles {
    even: Sink<Lines>,
    odd: Sink<JsonLines>,
}

impl Runner for TwoFiles {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = (Writer<Lines>, Writer<JsonLines>);
    type Summary = (Written, Written);

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }
    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        if x == 1_000 { Err("bad".into()) } else { Ok(x) }
    }
    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Self::ConsumerState> {
        let note = cx.last_note().unwrap_or(b"0 0");
        let (even, odd) = str::from_utf8(note)?.split_once(' ').unwrap();
        Ok((self.even.open_at(even.parse()?)?, self.odd.open_at(odd.parse()?)?))
    }
    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        (even, odd): &mut Self::ConsumerState,
        x: u64,
    ) -> Result<()> {
        if x.is_multiple_of(2) { even.append(&x) } else { odd.append(&x) }?;
        cx.note(format!("{} {}", even.length(), odd.length()))
    }
    fn consumer_flush(
        &self,
        _: &ConsumerContext<'_>,
        (even, odd): &mut Self::ConsumerState,
    ) -> Result<()> {
        even.flush()?;
        Ok(odd.flush()?)
    }
    fn consumer_end(
        &self,
        _: &ConsumerContext<'_>,
        (even, odd): Self::ConsumerState,
    ) -> Result<Self::Summary> {
        Ok((even.finish()?, odd.finish()?))
    }
}

#[test]
fn a_consumer_of_its_own_writes_two_files_and_goes_on_with_both() {
    let (_folder, path) = folder();
    let (even, odd) = (path.with_extension("even"), path.with_extension("odd"));
    let run = |items: Vec<u64>| {
        let runner = TwoFiles { even: sink::lines(&even), odd: sink::jsonl(&odd) };
        let journal = Journal::at(path.with_extension("journal")).resume();
        let builder = OrderedRunner::builder(Simulated::new(runner)).devices(2).journal(journal);
        builder.build().unwrap().run(items)
    };
    run((0..10).chain([1_000]).collect()).unwrap_err();
    fs::File::options().append(true).open(&odd).unwrap().write_all(b"torn").unwrap();
    let (evens, odds) = run((0..12).collect()).unwrap();
    assert_eq!((evens.outputs, odds.outputs), (1, 1));
    assert_eq!(lines_of(&even), [0, 2, 4, 6, 8, 10]);
    assert_eq!(lines_of(&odd), [1, 3, 5, 7, 9, 11]);
}

#[test]
fn a_note_of_another_consumer_is_not_taken_for_a_length() {
    let (_folder, path) = folder();
    let journal = || Journal::at(path.with_extension("journal")).resume();
    let runner = TwoFiles { even: sink::lines(&path), odd: sink::jsonl(path.with_extension("b")) };
    let builder = OrderedRunner::builder(runner).devices(1).journal(journal());
    builder.build().unwrap().run(0..3).unwrap();
    let error = resumed(&path).run(0..4).unwrap_err();
    assert!(matches!(cause(&error), SinkError::Note { .. }), "{error:#}");
}

#[test]
fn a_runner_of_ones_own_gets_a_sink_as_its_consumer() {
    let (_folder, path) = folder();
    let runner = TwoFiles { even: sink::lines("unused"), odd: sink::jsonl("unused") };
    let mut pool = OrderedRunner::new(ToSink::new(runner, sink::lines(&path)), 2).unwrap();
    pool.run(0..5).unwrap();
    assert_eq!(lines_of(&path), [0, 1, 2, 3, 4]);
}

#[test]
fn a_file_in_the_making_is_not_seen_until_it_is_committed() {
    let (folder, path) = folder();
    let mut file = sink::atomic_file(&path).unwrap();
    file.write_all(b"new").unwrap();
    assert!(!path.exists());
    drop(file);
    assert!(names(folder.path()).is_empty(), "what is not committed is removed");

    fs::write(&path, "old").unwrap();
    let (mut one, mut two) = (sink::atomic_file(&path).unwrap(), sink::atomic_file(&path).unwrap());
    one.write_all(b"one").unwrap();
    two.write_all(b"two").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    two.commit().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "two");
    one.commit().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "one", "the last one stays");
    assert_eq!(names(folder.path()).len(), 1);
}

#[cfg(unix)]
#[test]
fn a_file_that_is_replaced_keeps_its_rights_and_links_to_it() {
    use std::os::unix::fs::PermissionsExt;

    let (folder, path) = folder();
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink("out", &link).unwrap();
    sink::atomic_file(&link).unwrap().commit().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "", "the file that the link names");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn a_folder_is_there_whole_or_not_at_all() {
    let (folder, path) = folder();
    let unfinished = sink::atomic_dir(&path).unwrap();
    fs::create_dir(unfinished.path().join("inner")).unwrap();
    fs::write(unfinished.path().join("inner/file"), "one").unwrap();
    assert!(!path.exists());
    drop(unfinished);
    assert!(names(folder.path()).is_empty(), "what is not committed is removed");

    let (first, second) = (sink::atomic_dir(&path).unwrap(), sink::atomic_dir(&path).unwrap());
    fs::create_dir(first.path().join("inner")).unwrap();
    fs::write(first.path().join("inner/file"), "one").unwrap();
    fs::write(second.path().join("file"), "two").unwrap();
    first.commit().unwrap();
    assert_eq!(fs::read_to_string(path.join("inner/file")).unwrap(), "one");
    let error = second.commit().unwrap_err();
    assert!(matches!(error, SinkError::Io { operation: "renamed", .. }), "{error}");
    let error = sink::atomic_dir(&path).unwrap_err();
    assert!(matches!(error, SinkError::Exists { .. }), "{error}");
    assert_eq!(names(folder.path()), BTreeSet::from(["out".to_owned()]));
}

#[test]
fn producers_write_a_file_for_each_item() {
    let (folder, _) = folder();
    let place = folder.path().to_owned();
    no_hang(move || {
        let each = map(
            |_| Ok(()),
            move |_, (), x: u64| {
                let mut file = sink::atomic_file(place.join(x.to_string()))?;
                write!(file, "{}", x * x)?;
                Ok(file.commit()?)
            },
        );
        OrderedRunner::new(each, 3).unwrap().run(0..20).unwrap();
    });
    assert_eq!(names(folder.path()).len(), 20);
    assert_eq!(fs::read_to_string(folder.path().join("9")).unwrap(), "81");
}

#[test]
fn a_result_says_where_and_how_long_it_was_worked_on() {
    no_hang(|| {
        let work = map(
            |_| Ok(()),
            |_, (), x: u64| {
                std::thread::sleep(Duration::from_millis(x));
                if x == 2 { Err("bad".into()) } else { Ok(x) }
            },
        );
        let devices: Devices = "cuda:1".parse().unwrap();
        let builder = OrderedRunner::builder(work.results()).devices(devices.names_only());
        let results = builder.on_error(OnError::Skip).build().unwrap().run([3, 2]).unwrap();
        for result in &results {
            assert_eq!(result.producer, Some(0));
            assert_eq!(result.device.unwrap().to_string(), "cuda:1");
        }
        assert!(results[0].took.unwrap() >= Duration::from_millis(3));
        assert_eq!(results[1].took, None);
    });
}
