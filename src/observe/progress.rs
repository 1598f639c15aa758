//! Progress, as it is shown to who waits for a run.

mod board;
mod log;
mod rate;
mod screen;
mod text;
mod watch;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::time::Duration;

use self::board::Board;
use self::log::Log;
use self::screen::{Block, Screen};
use super::event::{Event, Observer};

/// Shows how a run gets on, on standard error: an [`Observer`].
///
/// On a terminal a block of lines at its bottom moves along with the run:
///
/// ```text
/// Segmenting  [#########-----------]  45/100 in 14 s  3.2/s  17 s left  1 failed
///   0  cuda:0  23 items   98 % busy  tile-0046.tif, 0.3 s
///   1  cuda:1  22 items   97 % busy  tile-0047.tif, 0.2 s
/// ```
///
/// It has how many items are done with, well or not, of how many, where the input's `size_hint` is exact; how
/// many are in a second of late; and for each producer its place, how many items it was done with, the share of
/// the time for which it worked on one, and the item that it is in, with how long it has been. Where events
/// were lost, since items were too fast for observers, the counts of producers are too low, and the share is
/// of the time that is known. The block goes when the run ends, and leaves one line that says what it came to.
///
/// Several runs at once, such as the stages of a pipeline, each have their own lines on the one terminal.
///
/// Elsewhere, in a file or a pipe, there is one plain line every few seconds, less often in a long run, and
/// one at the end. Failures are told in full as they happen, the first ten of each run.
///
/// What cannot be written is left out, with one warning through `tracing`: it never disturbs the run.
#[derive(Debug)]
pub struct Progress {
    desc: String,
    failures: usize,
    producers: usize,
    board: Board,
    output: Output,
    /// When the terminal is drawn again.
    next_frame: Duration,
}

#[derive(Debug)]
enum Output {
    Terminal(Block),
    Log(Log),
}

/// Twenty in a second look smooth, and cost nothing that could be measured.
const FRAME: Duration = Duration::from_millis(50);
/// A run that is over sooner is told of on one line, and does not flicker.
const FIRST_FRAME: Duration = Duration::from_millis(100);
const FAILURES: usize = 10;
const PRODUCERS: usize = 16;

impl Progress {
    /// On standard error: on the terminal, if it is one, and else a plain line every five seconds, less
    /// often in a long run.
    pub fn new() -> Self {
        let output = match Screen::of_stderr() {
            Some(screen) => Output::Terminal(screen.block()),
            None => Output::Log(Log::new(Box::new(io::stderr()))),
        };
        Progress::on(output)
    }

    /// Plain lines to a writer, each with one call of `write_all` and one of `flush`: every five seconds,
    /// less often in a long run.
    pub fn lines_to(writer: impl Write + Send + 'static) -> Self {
        Progress::on(Output::Log(Log::new(Box::new(writer))))
    }

    /// What the run is called. Without, it has no name.
    #[must_use]
    pub fn desc(mut self, desc: impl Into<String>) -> Self {
        self.desc = desc.into();
        self.renewed()
    }

    /// How many failures of a run are told one by one, 10 by default; the others are counted.
    #[must_use]
    pub fn failures(mut self, most: usize) -> Self {
        self.failures = most;
        self.renewed()
    }

    /// How many producers have a line of their own at most, 16 by default; one line sums up the others. On a
    /// small terminal there are fewer. With 0 there is the line of the run alone.
    #[must_use]
    pub fn producers(mut self, most: usize) -> Self {
        self.producers = most;
        self
    }

    /// Does something while no lines are on the terminal of standard error: for what writes to it beside them.
    /// They are back when it returns.
    pub fn suspend<T>(write: impl FnOnce() -> T) -> T {
        match Screen::of_stderr() {
            Some(screen) => screen.suspend(write),
            None => write(),
        }
    }

    fn on(output: Output) -> Self {
        let (desc, next_frame) = (String::new(), FIRST_FRAME);
        let (failures, producers) = (FAILURES, PRODUCERS);
        let board = Board::new(&desc, failures);
        Progress { desc, failures, producers, board, output, next_frame }
    }

    fn renewed(mut self) -> Self {
        self.board = Board::new(&self.desc, self.failures);
        self
    }

    fn tell(&mut self, line: &str) {
        match &mut self.output {
            Output::Terminal(block) => block.tell(line),
            Output::Log(log) => log.tell(line),
        }
    }

    fn show(&mut self, at: Duration) {
        match &mut self.output {
            Output::Terminal(block) if at >= self.next_frame => {
                // The run, its producers, and the line that sums up those without one.
                let most = match self.producers {
                    0 => 1,
                    producers => producers.saturating_add(2),
                };
                block.show(|rows| self.board.lines(rows.min(most)));
                self.next_frame = at + FRAME;
            }
            Output::Terminal(_) => {}
            Output::Log(log) => log.show(at, || self.board.line()),
        }
    }

    fn begin(&mut self) {
        self.next_frame = FIRST_FRAME;
        if let Output::Log(log) = &mut self.output {
            log.begin();
        }
    }

    fn end(&mut self, line: &str) {
        match &mut self.output {
            Output::Terminal(block) => block.end(line),
            Output::Log(log) => log.tell(line),
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
            self.tell(&line);
        }
        match event {
            Event::RunEnded { totals } => self.end(&self.board.result(totals)),
            _ => self.show(at),
        }
    }

    fn tick(&mut self, at: Duration) {
        self.board.pass(at);
        self.show(at);
    }
}
