//! The terminal display that all runs of the process share.

use std::collections::VecDeque;
use std::env;
use std::fmt;
use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use console::{Term, is_dumb, measure_text_width, truncate_str};
use gangline_report::{Colors, Ink, wrapped};

use crate::observe::progress::progress_log::Stderr;

/// A terminal with a block of lines at its bottom, in which each run has its own.
#[derive(Clone)]
pub(super) struct Screen {
    terminal: Arc<dyn ScreenTerminal>,
    resizing: Resizing,
    blocks: Arc<Mutex<ScreenBlocks>>,
}

/// What a display needs of a terminal.
pub(super) trait ScreenTerminal: fmt::Debug + Send + Sync {
    /// The numbers of rows and columns, at least 1.
    fn size(&self) -> (usize, usize);

    /// Writes text and escape sequences.
    fn write(&self, text: &str) -> io::Result<()>;
}

/// How a terminal treats lines that are longer than its new width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resizing {
    /// The terminal breaks the lines into more rows.
    Wraps,
    /// The terminal keeps its rows, and may cut them off.
    Cuts,
}

/// The lines of one run; dropping this removes them.
pub(super) struct ScreenBlock {
    screen: Screen,
    number: u64,
}

#[derive(Default)]
struct ScreenBlocks {
    shown: Vec<(u64, Vec<String>)>,
    /// The last frames, of which the last is on the terminal. None while nothing is.
    drawn: VecDeque<ScreenFrame>,
    /// Text to write above the lines, while others write.
    above: String,
    /// The writers for which the lines are hidden.
    suspensions: usize,
    reach: Reach,
}

/// Lines as they were drawn.
struct ScreenFrame {
    /// The width that the terminal was thought to have.
    columns: usize,
    /// The widths of the lines.
    widths: Vec<usize>,
}

/// Whether a terminal can be written to: after its first error it is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Reach {
    #[default]
    Open,
    Gone,
}

/// Hides the lines until it is dropped.
struct Suspension<'a>(&'a Screen);

/// A line that is longer than the terminal is wide ends at its edge. A new width comes to the program later than to the
/// terminal, so frames of the old width are drawn meanwhile. Each line must have one row in them too.
const CUT_LINES: &str = "\x1b[?7l";
const WRAP_LINES: &str = "\x1b[?7h";
/// The number of frames of the old width that may be drawn after a change: tmux reports a new width to programs after
/// up to 250 ms.
const LATE_FRAMES: usize = 6;
const CLEAR_ROW: &str = "\r\x1b[2K";
const CLEAR_ROW_ABOVE: &str = "\x1b[A\x1b[2K";
/// This moves to the start of the next row whether or not the terminal translates line ends.
const NEXT_ROW: &str = "\r\n";

impl Screen {
    /// The terminal of standard error, if it is one. It is global, so that several runs share it.
    pub(super) fn of_stderr() -> Option<Screen> {
        static SCREEN: LazyLock<Option<Screen>> = LazyLock::new(|| {
            let term = Term::stderr();
            let resizing = Resizing::of(|name| env::var(name).ok());
            (term.is_term() && !is_dumb() && obeys_escapes(&term))
                .then(|| Screen::new(Arc::new(term), resizing))
        });
        SCREEN.clone()
    }

    pub(super) fn new(terminal: Arc<dyn ScreenTerminal>, resizing: Resizing) -> Screen {
        Screen { terminal, resizing, blocks: Arc::default() }
    }

    /// Adds an empty block for one run.
    pub(super) fn block(&self) -> ScreenBlock {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        ScreenBlock { screen: self.clone(), number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Calls `write` while no lines are displayed.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        // The lock is not held meanwhile, so that no run waits for the writer.
        let _suspension = Suspension::new(self);
        write()
    }

    /// Returns `None` after a panic during drawing: what the terminal shows is then unknown.
    fn blocks(&self) -> Option<MutexGuard<'_, ScreenBlocks>> {
        self.blocks.lock().ok()
    }

    /// Replaces the rows on the terminal by the text above and the lines.
    ///
    /// Each line ends with a line end, and the cursor waits on the row below. So a terminal that becomes wider changes
    /// nothing, and what others write begins on a row of its own.
    fn draw(&self, blocks: &mut ScreenBlocks) -> io::Result<()> {
        let (rows, columns) = self.terminal.size();
        let mut frame = blocks.clearing(columns, self.resizing);
        if blocks.suspensions == 0 {
            frame.push_str(&mem::take(&mut blocks.above));
            let end = if columns > 3 { "..." } else { "" };
            // The last row is left to the cursor.
            let lines = blocks.lines().take(rows.saturating_sub(1).max(1));
            let lines: Vec<_> = lines.map(|line| truncate_str(line, columns, end)).collect();
            if lines.is_empty() {
                blocks.drawn.clear();
            } else {
                frame.push_str(CUT_LINES);
                frame.extend(lines.iter().flat_map(|line| [line, NEXT_ROW]));
                frame.push_str(WRAP_LINES);
                let widths = lines.iter().map(|line| measure_text_width(line)).collect();
                blocks.record(ScreenFrame { columns, widths });
            }
        } else {
            blocks.drawn.clear();
        }
        if frame.is_empty() || blocks.reach == Reach::Gone {
            return Ok(());
        }
        self.terminal.write(&frame).inspect_err(|_| {
            blocks.reach = Reach::Gone;
            // A frame that was written in part may have left the terminal without.
            let _ = self.terminal.write(WRAP_LINES);
        })
    }

    /// Changes what is shown, and draws it.
    fn update(&self, change: impl FnOnce(&mut ScreenBlocks)) {
        let Some(mut blocks) = self.blocks() else { return };
        change(&mut blocks);
        let drawn = self.draw(&mut blocks);
        drop(blocks);
        // Not under the lock: a subscriber may write through [`suspend`](Self::suspend).
        if let Err(error) = drawn {
            tracing::warn!(%error, "the terminal cannot be written to; progress is no longer shown");
        }
    }
}

impl ScreenBlock {
    /// Shows the lines. Their maximum number and the width of the terminal are passed to `lines`.
    pub(super) fn show(&self, lines: impl FnOnce(usize, usize) -> Vec<String>) {
        let (rows, columns) = self.screen.terminal.size();
        self.screen.update(|blocks| {
            let rows = rows.saturating_sub(1 + blocks.others(self.number).count());
            blocks.put(self.number, lines(rows.max(1), columns));
        });
    }

    /// Writes a message above the display, in lines of the width of the terminal.
    pub(super) fn tell(&self, message: &str, ink: Ink, colors: Colors) {
        let (_, columns) = self.screen.terminal.size();
        self.screen.update(|blocks| {
            for line in wrapped(message, columns, "", "  ") {
                blocks.add_above(&colors.paint(ink, line).to_string());
            }
        });
    }

    /// Replaces the block by one line, which stays.
    pub(super) fn end(&self, line: &str) {
        self.screen.update(|blocks| {
            blocks.remove(self.number);
            blocks.add_above(line);
        });
    }
}

impl Drop for ScreenBlock {
    fn drop(&mut self) {
        self.screen.update(|blocks| blocks.remove(self.number));
    }
}

impl ScreenBlocks {
    fn lines(&self) -> impl Iterator<Item = &str> {
        self.shown.iter().flat_map(|(_, lines)| lines).map(String::as_str)
    }

    /// The lines of other runs.
    fn others(&self, number: u64) -> impl Iterator<Item = &String> {
        self.shown.iter().filter(move |(other, _)| *other != number).flat_map(|(_, lines)| lines)
    }

    fn put(&mut self, number: u64, lines: Vec<String>) {
        match self.shown.iter_mut().find(|(other, _)| *other == number) {
            Some((_, shown)) => *shown = lines,
            None => self.shown.push((number, lines)),
        }
    }

    fn remove(&mut self, number: u64) {
        self.shown.retain(|(other, _)| *other != number);
    }

    fn add_above(&mut self, line: &str) {
        self.above.extend([line, NEXT_ROW]);
    }

    /// What clears the rows on a terminal of this width, and leaves the cursor in the first of them.
    ///
    /// It clears row by row: some terminals move all that they show into their history when it is cleared at once.
    fn clearing(&self, columns: usize, resizing: Resizing) -> String {
        let Some(last) = self.drawn.back() else { return String::new() };
        let further = match resizing {
            // The terminal may have broken the lines of an earlier frame. The least leaves text above the display alone.
            Resizing::Wraps => {
                self.drawn.iter().map(|frame| frame.further_rows(columns)).min().unwrap_or(0)
            }
            Resizing::Cuts => 0,
        };
        // The row below may have an echo of the keyboard.
        format!("{CLEAR_ROW}{}", CLEAR_ROW_ABOVE.repeat(last.widths.len() + further))
    }

    /// Adds a frame. Those of another width are gone from the terminal.
    fn record(&mut self, frame: ScreenFrame) {
        self.drawn.retain(|earlier| earlier.columns == frame.columns);
        if self.drawn.len() > LATE_FRAMES {
            self.drawn.pop_front();
        }
        self.drawn.push_back(frame);
    }
}

impl ScreenFrame {
    /// The rows that its lines take beyond one each, in a terminal of this width that breaks lines.
    fn further_rows(&self, columns: usize) -> usize {
        self.widths.iter().map(|width| width.div_ceil(columns).max(1) - 1).sum()
    }
}

impl<'a> Suspension<'a> {
    fn new(screen: &'a Screen) -> Self {
        screen.update(|blocks| blocks.suspensions += 1);
        Suspension(screen)
    }
}

impl Drop for Suspension<'_> {
    fn drop(&mut self) {
        self.0.update(|blocks| blocks.suspensions -= 1);
    }
}

impl Resizing {
    /// Guesses from environment variables. Asking the terminal for its cursor would mean reading its input, which belongs
    /// to the user's program.
    ///
    /// An unknown terminal counts as one that cuts. If that is wrong, a few rows of old progress stay. The opposite error
    /// would clear text above the display.
    fn of(variable: impl Fn(&str) -> Option<String>) -> Resizing {
        // The name of the terminal is passed on by `ssh`, unlike other variables.
        const WRAPPING: [&str; 5] = ["alacritty", "foot", "tmux", "xterm-ghostty", "xterm-kitty"];
        const VARIABLES: [&str; 6] = [
            "ALACRITTY_WINDOW_ID",
            "KITTY_WINDOW_ID",
            "KONSOLE_VERSION",
            "TERM_PROGRAM",
            "VTE_VERSION",
            "WT_SESSION",
        ];
        let has = |name| variable(name).is_some();
        let term = variable("TERM").unwrap_or_default();
        // These three may run inside another terminal, and inherit its variables.
        let (is_tmux, is_other) = (has("TMUX"), has("STY") || has("XTERM_VERSION"));
        match WRAPPING.into_iter().any(|name| term.starts_with(name)) || is_tmux {
            true => Resizing::Wraps,
            false if !is_other && VARIABLES.into_iter().any(has) => Resizing::Wraps,
            false => Resizing::Cuts,
        }
    }
}

impl ScreenTerminal for Term {
    fn size(&self) -> (usize, usize) {
        let (rows, columns) = Term::size(self);
        (usize::from(rows), usize::from(columns))
    }

    fn write(&self, text: &str) -> io::Result<()> {
        // `Term` would begin anew after a part of the text has found no room.
        Stderr.write_all(text.as_bytes())
    }
}

/// A Windows console obeys escape sequences once it has been told to.
fn obeys_escapes(term: &Term) -> bool {
    !cfg!(windows) || term.features().colors_supported()
}

impl fmt::Debug for ScreenBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
