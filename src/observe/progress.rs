//! A live progress display for a run.

mod display_text;
mod producer_watch;
mod progress_board;
mod progress_log;
mod rate;
mod screen;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::Write;
use std::time::Duration;

use gangline_report::{Colors, Ink, TextStyle};

use self::progress_board::ProgressBoard;
use self::progress_log::{ProgressLog, Stderr};
use self::screen::{Screen, ScreenBlock};
use super::event::{Event, Observer};

/// Shows the progress of a run on standard error: an [`Observer`].
///
/// On a terminal, it redraws a block of lines at the bottom during the run, as wide as the terminal, with
/// failures in red:
///
/// ```text
/// Segmenting  [############--------------]  45/100 in 14 s  3.2/s  17 s left  1 failed
///   0  cuda:0  23 items   98 % busy  tile-0046.tif, 0.3 s
///   1  cuda:1  22 items   97 % busy  tile-0047.tif, 0.2 s
/// ```
///
/// The first line has the finished items, succeeded or failed, and the total if the input's `size_hint` is
/// exact. Then follow the recent rate and an estimate of the time left. Each producer has its place, its
/// finished items, the share of the time that it worked, and its current item with the time on it. If items
/// are too fast for observers, events are lost. The counts of producers are then too low, and the share
/// covers only the known time. When the run ends, one line with the result replaces the block.
///
/// Several concurrent runs, such as the stages of a pipeline, each have their own lines on the same terminal.
///
/// In a file or a pipe, it writes one plain line every few seconds, less often in a long run, and one at the
/// end. The first ten failures of each run are written in full as they happen.
///
/// If writing fails, output stops with one warning through `tracing`; the run continues.
#[derive(Debug)]
pub struct Progress {
    desc: String,
    failures: usize,
    producers: usize,
    colors: Colors,
    board: ProgressBoard,
    total: Total,
    /// Where the output goes.
    output: ProgressOutput,
    next_frame: Duration,
}

/// Knows the number of items, perhaps only later.
struct Total(Option<Box<dyn Fn() -> Option<u64> + Send>>);

impl fmt::Debug for Total {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Total").field(&self.0.is_some()).finish()
    }
}

#[derive(Debug)]
enum ProgressOutput {
    Terminal(ScreenBlock),
    Log(ProgressLog),
}

/// 20 frames per second look smooth, at no measurable cost.
const FRAME: Duration = Duration::from_millis(50);
/// A shorter run gets only its result line, without flicker.
const FIRST_FRAME: Duration = Duration::from_millis(100);
const FAILURES: usize = 10;
const PRODUCERS: usize = 16;

impl Progress {
    /// Writes to standard error: a live display on a terminal; elsewhere a plain line every five seconds,
    /// less often in a long run.
    pub fn new() -> Self {
        match Screen::of_stderr() {
            Some(screen) => Progress::on(ProgressOutput::Terminal(screen.block()))
                .colors(TextStyle::of_stderr().chosen_colors()),
            None => Progress::on(ProgressOutput::Log(ProgressLog::new(Box::new(Stderr)))),
        }
    }

    /// Writes plain lines to `writer`, each with one call of `write_all` and one of `flush`. A line is
    /// written every five seconds, less often in a long run.
    pub fn lines_to(writer: impl Write + Send + 'static) -> Self {
        Progress::on(ProgressOutput::Log(ProgressLog::new(Box::new(writer))))
    }

    /// Sets the name of the run that the display shows. By default there is none.
    #[must_use]
    pub fn desc(mut self, desc: impl Into<String>) -> Self {
        self.desc = desc.into();
        self.renewed()
    }

    /// Sets how many failures of a run are shown, 10 by default; others are only counted.
    #[must_use]
    pub fn failures(mut self, most: usize) -> Self {
        self.failures = most;
        self.renewed()
    }

    /// Sets how many producers have lines of their own, 16 by default; one line summarises the others. A
    /// small terminal shows fewer. With 0, only the line of the run is shown.
    #[must_use]
    pub fn producers(mut self, most: usize) -> Self {
        self.producers = most;
        self
    }

    /// Sets whether the output has colours. By default it has them on a terminal, unless the variable
    /// `NO_COLOR` is set.
    #[must_use]
    pub fn colors(mut self, colors: Colors) -> Self {
        self.colors = colors;
        self.renewed()
    }

    /// Asks `total` for the number of items while the input has not announced it. An input that is read ahead
    /// on a thread of its own may know it only during the run. `total` is called for every frame.
    ///
    /// ```
    /// use std::sync::{Arc, OnceLock};
    /// use gangline::Progress;
    ///
    /// let total = Arc::new(OnceLock::new());
    /// let known = Arc::clone(&total);
    /// let progress = Progress::new().total(move || known.get().copied());
    /// // The thread that reads the input to its end:
    /// total.set(1_000).unwrap();
    /// # drop(progress);
    /// ```
    #[must_use]
    pub fn total(mut self, total: impl Fn() -> Option<u64> + Send + 'static) -> Self {
        self.total = Total(Some(Box::new(total)));
        self
    }

    /// Calls `write` while the display is hidden, for other output to the same terminal. The display returns
    /// afterwards.
    pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
        match Screen::of_stderr() {
            Some(screen) => screen.suspend(write),
            None => write(),
        }
    }

    fn on(output: ProgressOutput) -> Self {
        let (desc, next_frame) = (String::new(), FIRST_FRAME);
        let (failures, producers) = (FAILURES, PRODUCERS);
        let board = ProgressBoard::new(&desc, failures);
        let (colors, total) = (Colors::Off, Total(None));
        Progress { desc, failures, producers, colors, board, total, output, next_frame }
    }

    fn renewed(mut self) -> Self {
        self.board = ProgressBoard::new(&self.desc, self.failures).colors(self.colors);
        self
    }

    fn tell(&mut self, line: &str, ink: Ink) {
        match &mut self.output {
            ProgressOutput::Terminal(block) => block.tell(line, ink, self.colors),
            ProgressOutput::Log(log) => log.tell(&self.colors.paint(ink, line).to_string()),
        }
    }

    fn show(&mut self, at: Duration) {
        self.ask_for_total();
        match &mut self.output {
            ProgressOutput::Terminal(block) if at >= self.next_frame => {
                // The run, its producers, and the line that summarises other producers.
                let most = match self.producers {
                    0 => 1,
                    producers => producers.saturating_add(2),
                };
                block.show(|rows, columns| self.board.lines(rows.min(most), columns));
                self.next_frame = at + FRAME;
            }
            ProgressOutput::Terminal(_) => {}
            ProgressOutput::Log(log) => log.show(at, || self.board.line()),
        }
    }

    fn ask_for_total(&mut self) {
        if let Some(total) = &self.total.0 {
            self.board.expect(total);
        }
    }

    fn begin(&mut self) {
        self.next_frame = FIRST_FRAME;
        if let ProgressOutput::Log(log) = &mut self.output {
            log.begin();
        }
    }

    fn end(&mut self, line: &str) {
        match &mut self.output {
            ProgressOutput::Terminal(block) => block.end(line),
            ProgressOutput::Log(log) => log.tell(line),
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Progress::new()
    }
}

impl Observer for Progress {
    fn observe(&mut self, at: Duration, event: &Event) {
        if matches!(event, Event::RunStarted { .. }) {
            self.begin();
        }
        if let Some(line) = self.board.observe(at, event) {
            let ink = match event {
                Event::RunStarted { .. } => Ink::Warning,
                _ => Ink::Bad,
            };
            self.tell(&line, ink);
        }
        match event {
            Event::RunEnded { totals, pipeline } => {
                self.ask_for_total();
                self.end(&self.board.result(totals, pipeline.unwrap_or(totals.account)));
            }
            _ => self.show(at),
        }
    }

    fn tick(&mut self, at: Duration) {
        self.board.pass(at);
        self.show(at);
    }
}
