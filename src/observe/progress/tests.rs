//! Tests of the display on a terminal and in a log.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread;

use gangline_report::Failure;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::screen::{Resizing, ScreenTerminal};
use super::*;
use crate::base::Order;
use gangline_report::RunReport;

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(super) fn started(items: Option<u64>, producers: &[&str]) -> Event {
    let producers = producers.iter().map(ToString::to_string).collect();
    Event::RunStarted { items, order: Order::Input, producers, fallbacks: vec![] }
}

pub(super) fn starts(item: u64, producer: usize, key: Option<&str>) -> Event {
    Event::ItemStarted { item, key: key.map(Arc::from), producer, attempt: 1 }
}

pub(super) fn finished(item: u64, producer: usize) -> Event {
    Event::ItemFinished { item, producer }
}

pub(super) fn done(items: u64) -> Event {
    Event::ItemsDone { items }
}

pub(super) fn failed(item: u64, cause: &str) -> Event {
    let error = format!("producer_work failed for item {item}");
    let mut failure = Failure::default();
    (failure.item, failure.error, failure.causes) = (Some(item), error, vec![cause.to_owned()]);
    Event::ItemFailed { failure: Arc::new(failure) }
}

pub(super) fn totals(ok: u64, failed: u64, lasted: u64) -> RunReport {
    let mut totals = RunReport::default();
    (totals.account.ok, totals.account.failed, totals.lasted) = (ok, failed, ms(lasted));
    totals
}

pub(super) fn ended(totals: RunReport) -> Event {
    Event::RunEnded { totals: Arc::new(totals), pipeline: None }
}

/// A terminal in memory, which keeps its size.
#[derive(Clone)]
struct MemoryTerminal(Arc<Mutex<vt100::Parser>>);

impl MemoryTerminal {
    fn new(rows: u16, columns: u16) -> Self {
        MemoryTerminal(Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0))))
    }

    /// The rows that are shown, without empty ones at the end.
    fn contents(&self) -> String {
        let parser = self.0.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let rows: Vec<String> = parser.screen().rows(0, columns).collect();
        rows.join("\n").trim_end().to_owned()
    }
}

impl ScreenTerminal for MemoryTerminal {
    fn size(&self) -> (usize, usize) {
        let (rows, columns) = self.0.lock().unwrap().screen().size();
        (rows.into(), columns.into())
    }

    fn write(&self, text: &str) -> io::Result<()> {
        self.0.lock().unwrap().process(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for MemoryTerminal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryTerminal").field(&self.contents()).finish()
    }
}

fn on_screen(screen: &Screen) -> Progress {
    Progress::on(ProgressOutput::Terminal(screen.block()))
}

fn tell(progress: &mut Progress, events: &[(u64, Event)]) {
    for (at, event) in events {
        progress.observe(ms(*at), event);
    }
}

#[test]
fn the_lines_move_along_and_one_is_left() {
    let terminal = MemoryTerminal::new(10, 70);
    let mut progress =
        on_screen(&Screen::new(Arc::new(terminal.clone()), Resizing::Cuts)).desc("Segmenting");
    let events = [
        (0, started(Some(4), &["cuda:0", "cpu"])),
        (10, starts(0, 0, Some("a.tif"))),
        (2_000, starts(1, 1, Some("b.tif"))),
        (2_000, done(0)),
    ];
    tell(&mut progress, &events);
    progress.tick(ms(3_000));
    let screen = "\
Segmenting  [--------------------------------------]  0/4 in 3.0 s
  0  cuda:0  0 items  100 % busy  a.tif, 2.9 s
  1  cpu     0 items   33 % busy  b.tif, 1.0 s";
    assert_eq!(terminal.contents(), screen);

    tell(&mut progress, &[(4_000, finished(0, 0)), (4_000, failed(0, "bad\x1b[2J\n"))]);
    progress.tick(ms(4_100));
    let lines: Vec<String> = terminal.contents().lines().map(str::to_owned).collect();
    assert_eq!(lines[0], r"Segmenting: producer_work failed for item 0: bad\u{1b}[2J\n");
    assert!(lines[1].starts_with("Segmenting  [###-----------]  1/4 in 4.1 s"), "{lines:?}");
    assert_eq!(lines.len(), 4);

    tell(&mut progress, &[(9_000, ended(totals(3, 1, 9_000)))]);
    let result = "Segmenting: 4/4 in 9.0 s, 0.4/s, 1 failed";
    assert_eq!(terminal.contents(), [&lines[0], result].join("\n"));

    tell(&mut progress, &[(0, started(Some(1), &["cpu"])), (200, done(1))]);
    assert_eq!(terminal.contents().lines().count(), 4, "below what the first run left");
    tell(&mut progress, &[(300, ended(totals(1, 0, 300)))]);
    let second = "Segmenting: 1/1 in 0.3 s, 3.3/s";
    assert_eq!(terminal.contents(), [&lines[0], result, second].join("\n"));
}

#[test]
fn a_short_run_leaves_only_its_result_line() {
    let terminal = MemoryTerminal::new(10, 70);
    let mut progress = on_screen(&Screen::new(Arc::new(terminal.clone()), Resizing::Cuts));
    tell(&mut progress, &[(0, started(Some(1), &["cpu"])), (1, done(1))]);
    assert_eq!(terminal.contents(), "");
    tell(&mut progress, &[(2, ended(totals(1, 0, 2)))]);
    assert_eq!(terminal.contents(), "1/1 in 0.0 s, 500/s");
}

#[test]
fn lines_fit_the_terminal_whatever_its_size_and_the_width_of_characters() {
    let sizes =
        [(2, 2, 1), (2, 80, 1), (5, 3, 4), (5, 11, 4), (5, 12, 4), (12, 30, 11), (50, 99, 18)];
    for (rows, columns, lines) in sizes {
        let terminal = MemoryTerminal::new(rows, columns);
        let mut progress = on_screen(&Screen::new(Arc::new(terminal.clone()), Resizing::Cuts))
            .desc("セグメンテーション");
        tell(&mut progress, &[(0, started(Some(9), &["cpu"; 100]))]);
        for producer in 0..100 {
            tell(&mut progress, &[(1, starts(7, producer, Some("日本日本日本日本日本.tif")))]);
        }
        for at in 1..5 {
            progress.tick(ms(1_000 * at));
        }
        let shown = terminal.contents().lines().count();
        assert_eq!(shown, lines, "{rows} rows, {columns} columns: {}", terminal.contents());
    }
}

#[test]
fn two_runs_share_the_terminal() {
    let terminal = MemoryTerminal::new(12, 60);
    let screen = Screen::new(Arc::new(terminal.clone()), Resizing::Cuts);
    let (mut decode, mut infer) =
        (on_screen(&screen).desc("Decode"), on_screen(&screen).desc("Infer"));
    tell(&mut decode, &[(0, started(None, &["cpu"])), (100, done(1))]);
    tell(&mut infer, &[(0, started(None, &["cuda:0"])), (100, done(1))]);
    decode.tick(ms(500));
    let screen = "\
Decode  1 item in 0.5 s  2.0/s
  0  cpu  0 items    0 % busy  starting
Infer  1 item in 0.1 s  10.0/s
  0  cuda:0  0 items    0 % busy  starting";
    assert_eq!(terminal.contents(), screen);
    tell(&mut decode, &[(1_000, ended(totals(1, 0, 1_000)))]);
    let left = terminal.contents();
    assert!(left.starts_with("Decode: 1 item in 1.0 s, 1.0/s\nInfer  1 item"), "{left}");
    drop(infer);
    assert_eq!(terminal.contents(), "Decode: 1 item in 1.0 s, 1.0/s");
}

/// A terminal that fails at everything, and counts the attempts.
#[derive(Debug, Default)]
struct Unplugged(Mutex<u32>);

impl ScreenTerminal for Unplugged {
    fn size(&self) -> (usize, usize) {
        (24, 1)
    }

    fn write(&self, _: &str) -> io::Result<()> {
        *self.0.lock().unwrap() += 1;
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

fn whole_run() -> Vec<(u64, Event)> {
    let mut events = vec![(0, started(Some(60), &["cuda:0", "cpu"]))];
    for item in 0..60 {
        let (producer, at) = (item as usize % 2, 1_000 * item);
        events.push((at, starts(item, producer, None)));
        events.push((at + 900, finished(item, producer)));
        events.push((at + 900, done(1)));
    }
    events.push((60_000, ended(totals(60, 0, 60_000))));
    events
}

#[test]
fn a_terminal_that_went_away_is_left_alone() {
    let terminal = Arc::new(Unplugged::default());
    let mut progress = on_screen(&Screen::new(terminal.clone(), Resizing::Cuts)).desc("日本");
    tell(&mut progress, &whole_run()[..9]);
    tell(&mut progress, &[(3_000, failed(3, "日本"))]);
    tell(&mut progress, &whole_run()[9..]);
    drop(progress);
    // A frame, and the sequence that would end it.
    assert_eq!(*terminal.0.lock().unwrap(), 2);
}

/// Writes what is logged beside the display, and counts it.
struct BesideScreen(Screen, Arc<Mutex<u32>>);

impl<S: Subscriber> Layer<S> for BesideScreen {
    fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.suspend(|| *self.1.lock().unwrap() += 1);
    }
}

/// It would wait for the display, which waits for it.
#[test]
fn a_subscriber_may_write_beside_the_display_that_a_terminal_has_left() {
    let screen = Screen::new(Arc::new(Unplugged::default()), Resizing::Cuts);
    let logged = Arc::default();
    let beside = BesideScreen(screen.clone(), Arc::clone(&logged));
    tracing::subscriber::with_default(tracing_subscriber::registry().with(beside), || {
        screen.block().show(|_, _| vec!["a line".to_owned()]);
    });
    assert_eq!(*logged.lock().unwrap(), 1);
}

/// A terminal that panics when it is drawn on.
#[derive(Debug)]
struct Bomb;

impl ScreenTerminal for Bomb {
    fn size(&self) -> (usize, usize) {
        (24, 80)
    }

    fn write(&self, _: &str) -> io::Result<()> {
        panic!("a terminal panicked")
    }
}

#[test]
fn a_panic_while_drawing_is_the_last_one() {
    let screen = Screen::new(Arc::new(Bomb), Resizing::Cuts);
    let mut first = on_screen(&screen);
    let mut second = on_screen(&screen);
    let panics = thread::scope(|scope| {
        let run = scope.spawn(move || tell(&mut first, &whole_run()));
        run.join().is_err()
    });
    assert!(panics, "the engine catches that, and calls the observer no more");
    tell(&mut second, &whole_run());
    drop(second);
}

#[derive(Clone, Default)]
struct CapturedLines(Arc<Mutex<Vec<u8>>>);

impl Write for CapturedLines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CapturedLines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn off_a_terminal_there_is_a_line_now_and_then() {
    let lines = CapturedLines::default();
    let mut progress = Progress::lines_to(lines.clone()).desc("Segmenting").failures(1);
    tell(&mut progress, &[(0, started(Some(20), &["cpu"]))]);
    for second in 1..=18 {
        tell(&mut progress, &[(1_000 * second, done(1))]);
    }
    tell(&mut progress, &[(18_500, failed(18, "bad")), (18_600, failed(19, "bad"))]);
    tell(&mut progress, &[(20_000, ended(totals(18, 2, 20_000)))]);
    let expected = "\
Segmenting: 5/20 in 5.0 s, 1.0/s, 15 s left
Segmenting: 10/20 in 10 s, 1.0/s, 10 s left
Segmenting: 15/20 in 15 s, 1.0/s, 5.0 s left
Segmenting: producer_work failed for item 18: bad
Segmenting: further failures are counted, not shown
Segmenting: 20/20 in 20 s, 1.0/s, 2 failed
";
    assert_eq!(lines.text(), expected);
    tell(&mut progress, &[(0, started(None, &["cpu"])), (4_000, done(1)), (5_000, done(1))]);
    let text = lines.text();
    assert!(text.ends_with("Segmenting: 2 items in 5.0 s, 0.4/s\n"), "{text}");
}

#[test]
fn time_alone_brings_a_line() {
    let lines = CapturedLines::default();
    let mut progress = Progress::lines_to(lines.clone());
    tell(&mut progress, &[(0, started(Some(2), &["cpu"])), (0, starts(0, 0, None))]);
    for at in 1..=60 {
        progress.tick(ms(100 * at));
    }
    assert_eq!(lines.text(), "0/2 in 5.0 s\n");
}

#[test]
fn fallback_devices_are_shown_at_once() {
    let mut board = ProgressBoard::new("", 3);
    let fallbacks = vec!["cpu is used".to_owned(), "so is\nmetal".to_owned()];
    let producers = vec!["cpu".to_owned()];
    let started = Event::RunStarted { items: None, order: Order::Input, producers, fallbacks };
    assert_eq!(board.observe(ms(0), &started).as_deref(), Some(r"cpu is used; so is\nmetal"));
}

struct FullPipe;

impl Write for FullPipe {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_log_that_cannot_be_written_does_not_affect_the_run() {
    tell(&mut Progress::lines_to(FullPipe), &whole_run());
}

const PART: &str = "CHILD_OF_PROGRESS";

/// The child process: a run with progress on the inherited standard error.
fn run_as_child() {
    let mut progress = Progress::new().desc("Segmenting");
    let mut events = whole_run();
    events.insert(9, (3_000, failed(3, "bad\n")));
    tell(&mut progress, &events);
}

#[test]
#[cfg(unix)]
fn standard_error_without_a_reader_ends_nothing() {
    use std::process::Command;

    if std::env::var_os(PART).is_some() {
        return run_as_child();
    }
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "progress::tests::nobody_reads_standard_error", "--nocapture"])
        .env(PART, "1")
        .stderr(writer)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Runs on a pseudo terminal that `script(1)` makes; skipped if there is no `script`.
#[test]
#[cfg(target_os = "linux")]
fn on_a_terminal_lines_move_along_and_one_is_left() {
    use std::process::{Command, Stdio};

    if std::env::var_os(PART).is_some() {
        return run_as_child();
    }
    let program = std::env::current_exe().unwrap();
    let test = "observe::progress::tests::on_a_terminal_lines_move_along_and_one_is_left";
    let command = format!(
        "stty rows 24 cols 80; exec '{}' --exact {test} --nocapture --color never",
        program.display()
    );
    let child = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env(PART, "1")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output();
    let output = match child {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        child => child.unwrap(),
    };
    let bytes = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{bytes}");
    for shown in ["0/60 in 0.9 s", "  1  cpu     0 items    0 % busy  item 1, 0.0 s", "/60 in 59 s"]
    {
        assert!(bytes.contains(shown), "{shown} in {bytes}");
    }
    let terminal = MemoryTerminal::new(24, 80);
    terminal.write(&bytes).unwrap();
    let contents = terminal.contents();
    let left: Vec<&str> = contents.lines().filter(|line| line.contains("Segmenting")).collect();
    let expected = [
        r"Segmenting: producer_work failed for item 3: bad\n",
        "Segmenting: 60/60 in 1 min 00 s, 1.0/s",
    ];
    assert_eq!(left, expected, "{contents}");
    assert!(!contents.contains("busy"), "{contents}");
}
