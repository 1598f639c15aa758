//! Runs with a journal that end anyhow, processes that are killed, files that cannot grow. What the consumer has at
//! the end is what a run that was never disturbed would have given it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gangline::journal::{JournalError, KeyKind};
use gangline::{
    AnyOrderRunner, Batch, CancelToken, ConsumerContext, Error, Journal, Order, ProducerContext,
    Result, Runner,
};
use proptest::prelude::*;

use crate::hooks::{Hooks, sorted};
use crate::journal::builder;
use crate::journal_file::Place;
use crate::support::no_hang;

/// What a run comes to.
#[derive(Debug, Clone, Copy)]
enum End {
    Complete,
    /// By the consumer, after this number of items.
    Cancel(u64),
    Stop(u64),
    Finish(u64),
    ConsumerFails(u64),
    ConsumerPanics(u64),
    /// At that flush.
    FlushFails(u64),
    FlushPanics(u64),
    /// At that item.
    ProducerFails(u64),
    InputFails(u64),
    InputPanics(u64),
}

fn end() -> impl Strategy<Value = End> {
    let at = || 0u64..ITEMS;
    prop_oneof![
        Just(End::Complete),
        at().prop_map(End::Cancel),
        at().prop_map(End::Stop),
        at().prop_map(End::Finish),
        at().prop_map(End::ConsumerFails),
        at().prop_map(End::ConsumerPanics),
        (0u64..4).prop_map(End::FlushFails),
        (0u64..4).prop_map(End::FlushPanics),
        at().prop_map(End::ProducerFails),
        at().prop_map(End::InputFails),
        at().prop_map(End::InputPanics),
    ]
}

const ITEMS: u64 = 60;

/// One run of several.
#[derive(Debug, Clone)]
struct Leg {
    end: End,
    /// Items that fail and are skipped: one in this many.
    bad: Option<u64>,
    batch: Option<Batch>,
    group: usize,
    /// Names may come in another order.
    rotation: usize,
}

fn leg() -> impl Strategy<Value = Leg> {
    let bad = prop_oneof![3 => Just(None), 1 => (2u64..9).prop_map(Some)];
    let batch = prop_oneof![
        Just(None),
        (1usize..6).prop_map(|most| Some(Batch::up_to(most))),
        (1usize..6).prop_map(|most| Some(Batch::of(most))),
    ];
    (end(), bad, batch, 1usize..30, 0usize..ITEMS as usize)
        .prop_map(|(end, bad, batch, group, rotation)| Leg { end, bad, batch, group, rotation })
}

/// What the consumer writes on: what is behind the last note is cut off when a run begins.
type Paper = Arc<Mutex<Vec<u64>>>;

fn hooks(leg: &Leg, paper: &Paper, token: &CancelToken) -> Hooks {
    let (end, bad, token) = (leg.end, leg.bad, token.clone());
    let (consumed, flushed) = (AtomicU64::new(0), AtomicU64::new(0));
    let (cut, written) = (paper.clone(), paper.clone());
    Hooks::new()
        .work(move |cx, x| match end {
            End::ProducerFails(item) if item == x => Err("the producer fails".into()),
            _ if x % 11 == 5 && cx.attempt() == 1 => Err("try again".into()),
            _ if bad.is_some_and(|bad| x % bad == 0) => Err("left out".into()),
            _ => Ok(x),
        })
        .consumer_init(move |cx| {
            let length = cx.last_note().map_or("0", |note| str::from_utf8(note).unwrap());
            let length: usize = length.parse()?;
            let mut paper = cut.lock().unwrap();
            assert!(paper.len() >= length, "what was noted is there");
            paper.truncate(length);
            Ok(())
        })
        .consume(move |cx, x| {
            let count = consumed.fetch_add(1, SeqCst);
            // The note of a hook that fails must not count, nor must what it has written.
            let length = {
                let mut paper = written.lock().unwrap();
                paper.push(x);
                paper.len()
            };
            cx.note(length.to_string())?;
            match end {
                End::Cancel(at) if at == count => token.cancel(),
                End::Stop(at) if at == count => cx.stop(),
                End::Finish(at) if at == count => token.drain(),
                End::ConsumerFails(at) if at == count => return Err("the consumer fails".into()),
                End::ConsumerPanics(at) if at == count => panic!("the consumer panics"),
                _ => {}
            }
            Ok(())
        })
        .flush(move |_| match (end, flushed.fetch_add(1, SeqCst)) {
            (End::FlushFails(at), flush) if at == flush => Err("the flush fails".into()),
            (End::FlushPanics(at), flush) if at == flush => panic!("the flush panics"),
            _ => Ok(()),
        })
}

/// Runs a leg. Items that are bad are skipped, all other errors end the run.
fn run(leg: &Leg, order: Order, kind: KeyKind, place: &Place, paper: &Paper) {
    let token = CancelToken::new();
    let journal = place.resume().commit_items(leg.group).commit_every(Duration::MAX);
    let mut builder = builder(hooks(leg, paper, &token), order, kind)
        .classify(|error| match std::error::Error::source(error) {
            Some(cause) if cause.to_string() == "left out" => gangline::Verdict::Skip,
            Some(cause) if cause.to_string() == "try again" => gangline::Verdict::Retry,
            _ => gangline::Verdict::Stop,
        })
        .retries(1)
        .backoff(Duration::ZERO, Duration::ZERO)
        .cancel_token(token)
        .journal(journal);
    if let Some(batch) = leg.batch {
        builder = builder.batch(batch);
    }
    let mut items: Vec<u64> = (0..ITEMS).collect();
    if kind == KeyKind::Name {
        items.rotate_left(leg.rotation);
    }
    let mut pool = builder.build().unwrap();
    let end = leg.end;
    let input = items.into_iter().map(|x| match end {
        End::InputFails(item) if item == x => Err("the input fails"),
        End::InputPanics(item) if item == x => panic!("the input panics"),
        _ => Ok(x),
    });
    let outcome = pool.try_run(input);
    if let End::Complete | End::Stop(_) | End::Finish(_) = end {
        outcome.unwrap();
    }
    let account = pool.account();
    let pulled = account.ok + account.failed + account.already_done + account.cancelled;
    assert_eq!(pulled + account.unread.unwrap(), ITEMS, "{account:?}");
    place.counts();
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn however_runs_end_each_output_is_there_once(
        order in prop_oneof![Just(Order::Input), Just(Order::Completion)],
        kind in prop_oneof![Just(KeyKind::Position), Just(KeyKind::HashedPosition), Just(KeyKind::Name)],
        legs in proptest::collection::vec(leg(), 1..6),
    ) {
        no_hang(move || {
            let (place, paper) = (Place::new(), Paper::default());
            legs.iter().for_each(|leg| run(leg, order, kind, &place, &paper));
            let last = Leg { end: End::Complete, bad: None, batch: None, group: 1_000, rotation: 0 };
            run(&last, order, kind, &place, &paper);
            let paper = paper.lock().unwrap();
            let is_in_order = kind != KeyKind::Name && legs.iter().all(|leg| leg.bad.is_none());
            assert!(order == Order::Completion || !is_in_order || paper.is_sorted(), "{paper:?}");
            assert_eq!(sorted(paper.clone()), (0..ITEMS).collect::<Vec<_>>());
        });
    }
}

/// Writes a line for each number, as the page on resuming has it, and a dot to standard output for the
/// parent to count.
struct Lines {
    path: PathBuf,
}

struct Written {
    file: BufWriter<File>,
    length: u64,
}

impl Lines {
    fn at(dir: &Path) -> Self {
        Lines { path: dir.join("lines") }
    }
}

fn dot() -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(b".")?;
    Ok(out.flush()?)
}

impl Runner for Lines {
    type Input = u64;
    type Output = String;
    type ProducerState = ();
    type ConsumerState = Written;
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, cx: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<String> {
        if x % 97 == 50 && cx.attempt() == 1 {
            return Err("try again".into());
        }
        Ok(format!("{x} {}", x * x))
    }

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Written> {
        let mut options = File::options();
        let mut file = options.create(true).truncate(false).write(true).open(&self.path)?;
        let length = match cx.last_note() {
            Some(note) => str::from_utf8(note)?.parse()?,
            None => 0,
        };
        assert!(file.metadata()?.len() >= length, "what was noted is there");
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        Ok(Written { file: BufWriter::with_capacity(256, file), length })
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        lines: &mut Written,
        line: String,
    ) -> Result<()> {
        writeln!(lines.file, "{line}")?;
        lines.length += line.len() as u64 + 1;
        cx.note(lines.length.to_string())?;
        dot()
    }

    fn consumer_flush(&self, _: &ConsumerContext<'_>, lines: &mut Written) -> Result<()> {
        dot()?;
        lines.file.flush()?;
        lines.file.get_ref().sync_data()?;
        dot()
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, _: Written) -> Result<()> {
        Ok(())
    }
}

fn write_lines(dir: &Path, order: Order, items: u64, journal: Journal) -> Result<(), Error> {
    let builder = AnyOrderRunner::builder(Lines::at(dir)).order(order).devices(3).journal(journal);
    // Long names, so that the journal grows more quickly than the lines.
    let builder = builder.key(|x| format!("{x:0100}"));
    let builder = builder.retries(1).backoff(Duration::ZERO, Duration::ZERO);
    builder.build()?.run(0..items)
}

fn journal_in(dir: &Path) -> Journal {
    Journal::at(dir.join("journal"))
        .resume()
        .commit_items(40)
        .commit_every(Duration::from_millis(2))
}

fn lines_in(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("lines")).unwrap()
}

fn expected(items: u64) -> String {
    (0..items).map(|x| format!("{x} {}\n", x * x)).collect()
}

/// In a child: the directory to work in.
const DIRECTORY: &str = "GANGLINE_TEST_DIRECTORY";

fn directory_of_child() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Starts the test `name` once more, as a child that `limit`, a command of the shell, is said before.
fn start(name: &str, dir: &Path, limit: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let name = format!("journal_faults::{name}");
    let mut child = Command::new("sh");
    child.arg("-c").arg(format!("{limit}; exec \"$0\" \"$@\"")).arg(program);
    child.args([&name, "--exact", "--nocapture"]).env(DIRECTORY, dir);
    child.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
}

/// Kills a child once it has printed this number of dots. `None` if it ended before.
fn kill_after(mut child: Child, dots: u64) -> Option<ExitStatus> {
    let out = BufReader::with_capacity(64, child.stdout.take().unwrap());
    let dots = out.bytes().map_while(Result::ok).filter(|byte| *byte == b'.').take(dots as usize);
    dots.for_each(drop);
    // It may be anywhere by now: between items, in a commit, or at its end.
    child.kill().unwrap();
    let status = child.wait().unwrap();
    (!status.success()).then_some(status)
}

/// Kills a run this number of times, then lets it end.
fn kill_again_and_again(name: &str, dir: &Path, kills: usize) {
    let mut dots = 0;
    for kill in 0..kills {
        // Moments all over a commit, of which there are about 45 for each.
        dots = (dots * 61 + 17) % 151;
        let status = kill_after(start(name, dir, "true"), dots);
        assert!(status.is_some(), "it has ended before kill {kill}");
        #[cfg(unix)]
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status.unwrap()), Some(9));
    }
    let output = start(name, dir, "true").wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

const MANY: u64 = 8_000;

#[test]
fn a_run_that_is_killed_again_and_again_writes_what_one_does_that_is_not() {
    let name = "a_run_that_is_killed_again_and_again_writes_what_one_does_that_is_not";
    if let Some(dir) = directory_of_child() {
        return write_lines(&dir, Order::Input, MANY, journal_in(&dir)).unwrap();
    }
    no_hang(move || {
        let dir = tempfile::tempdir().unwrap();
        kill_again_and_again(name, dir.path(), 30);
        assert!(lines_in(dir.path()) == expected(MANY), "byte for byte");
    });
}

#[test]
fn in_order_of_completion_each_line_is_there_once() {
    let name = "in_order_of_completion_each_line_is_there_once";
    if let Some(dir) = directory_of_child() {
        return write_lines(&dir, Order::Completion, MANY, journal_in(&dir)).unwrap();
    }
    no_hang(move || {
        let dir = tempfile::tempdir().unwrap();
        kill_again_and_again(name, dir.path(), 12);
        let lines = lines_in(dir.path());
        let mut lines: Vec<&str> = lines.lines().collect();
        let number = |line: &&str| line.split(' ').next().unwrap().parse::<u64>().unwrap();
        lines.sort_by_key(number);
        assert!(lines == expected(MANY).lines().collect::<Vec<_>>(), "all, and none twice");
    });
}

/// As many as take a journal of 40 KB.
const SOME: u64 = 400;

/// Journals may have a few KiB, which their lines do not need.
#[test]
#[cfg(unix)]
fn a_journal_that_cannot_grow_ends_the_run_and_is_whole() {
    let name = "a_journal_that_cannot_grow_ends_the_run_and_is_whole";
    if let Some(dir) = directory_of_child() {
        for _ in 0..2 {
            let error = write_lines(&dir, Order::Input, SOME, journal_in(&dir)).unwrap_err();
            let Error::Journal { source, .. } = &error else { panic!("{error:#}") };
            assert!(matches!(source, JournalError::Io { operation: "written", .. }), "{error:#}");
            assert!(format!("{error:#}").contains("could not be written"), "{error:#}");
        }
        return;
    }
    no_hang(move || {
        let dir = tempfile::tempdir().unwrap();
        // 16 blocks of 512 bytes; without the signal writing fails as on a full disk.
        let limit = "trap '' XFSZ; ulimit -f 16";
        let output = start(name, dir.path(), limit).wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let found = Journal::at(dir.path().join("journal")).repair().unwrap();
        assert_eq!(found.lost_commits, 0, "{found}");
        assert!((1..SOME).contains(&found.done), "{found}");
        write_lines(dir.path(), Order::Input, SOME, journal_in(dir.path())).unwrap();
        assert!(lines_in(dir.path()) == expected(SOME), "byte for byte");
    });
}
