//! The terminal display that all runs of the process share.

use std::env;
use std::fmt;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use console::{Term, is_dumb, truncate_str};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};

use crate::observe::progress::progress_log::waiting;
use crate::observe::text_style::{Colors, Ink, wrapped};

/// A terminal with a block of lines at its bottom, in which each run has its own.
///
/// It is one bar of `indicatif` with several lines, not a bar per line. Separate bars are drawn one by one,
/// and dropping one after a panic would lock a poisoned mutex.
#[derive(Clone)]
pub(super) struct Screen {
    terminal: ScreenTerminal,
    resizing: Resizing,
    blocks: Arc<Mutex<ScreenBlocks>>,
}

/// How a terminal treats its lines if its width changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resizing {
    /// The terminal wraps lines again, into more rows or fewer.
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
    /// The width of the terminal when the lines were displayed.
    columns: usize,
    /// `Some` while lines are displayed.
    bar: Option<ProgressBar>,
}

/// A terminal that may go away: its first error is reported, and nothing is written afterwards.
#[derive(Debug, Clone)]
struct ScreenTerminal {
    inner: Arc<dyn TermLike>,
    gone: Arc<AtomicBool>,
}

impl Screen {
    /// The terminal of standard error, if it is one. It is global, so that several runs share it.
    pub(super) fn of_stderr() -> Option<Screen> {
        static SCREEN: LazyLock<Option<Screen>> = LazyLock::new(|| {
            let term = Term::buffered_stderr();
            let resizing = Resizing::of(|name| env::var_os(name).is_some());
            (term.is_term() && !is_dumb()).then(|| Screen::new(Arc::new(term), resizing))
        });
        SCREEN.clone()
    }

    pub(super) fn new(terminal: Arc<dyn TermLike>, resizing: Resizing) -> Screen {
        let terminal = ScreenTerminal { inner: terminal, gone: Arc::default() };
        Screen { terminal, resizing, blocks: Arc::default() }
    }

    /// Adds an empty block for one run.
    pub(super) fn block(&self) -> ScreenBlock {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        ScreenBlock { screen: self.clone(), number: NUMBERS.fetch_add(1, Ordering::Relaxed) }
    }

    /// Calls `write` while no lines are displayed.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        // The lock is not held meanwhile: a suspended bar draws nothing.
        let bar = self.blocks().and_then(|mut blocks| {
            self.follow_width(&mut blocks);
            blocks.bar.clone()
        });
        match bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Returns `None` after a panic during drawing: the bar's state is then unknown.
    fn blocks(&self) -> Option<MutexGuard<'_, ScreenBlocks>> {
        self.blocks.lock().ok()
    }

    fn write_line(&self, blocks: &mut ScreenBlocks, line: &str) {
        self.follow_width(blocks);
        // `ScreenTerminal` reports the error.
        let write = || _ = self.terminal.write_line(line).and_then(|()| self.terminal.flush());
        match &blocks.bar {
            // Not by `println` of the bar: a terminal that wraps would treat the text and the lines below as one line.
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    /// Clears the lines if the terminal has wrapped them again for another width.
    ///
    /// `indicatif` fills each line to the width, so the terminal treats them as one long line. If that has more rows than
    /// before, `indicatif` would leave some behind. If it has fewer, `indicatif` would overwrite rows above the display.
    fn follow_width(&self, blocks: &mut ScreenBlocks) {
        let columns = usize::from(self.terminal.width());
        let before = mem::replace(&mut blocks.columns, columns);
        let rows: usize = blocks.shown.iter().map(|(_, lines)| lines.len()).sum();
        let is_wrapped = self.resizing == Resizing::Wraps && before != columns;
        if is_wrapped && blocks.bar.is_some() && rows > 0 {
            // `ScreenTerminal` reports the error.
            let _ = self.clear_wrapped(rows, (rows * before).div_ceil(columns));
        }
    }

    /// Clears `wrapped` rows, and moves the cursor to the place that it would have below `rows` rows.
    fn clear_wrapped(&self, rows: usize, wrapped: usize) -> io::Result<()> {
        self.terminal.move_cursor_up(wrapped - 1)?;
        for row in 0..wrapped {
            self.terminal.clear_line()?;
            if row + 1 < wrapped {
                self.terminal.move_cursor_down(1)?;
            }
        }
        self.terminal.move_cursor_up(wrapped.saturating_sub(rows))?;
        (wrapped..rows).try_for_each(|_| self.terminal.write_line(""))
    }

    fn new_bar(&self) -> ProgressBar {
        let target = ProgressDrawTarget::term_like(Box::new(self.terminal.clone()));
        let style = ProgressStyle::with_template("{msg}").expect("the template is well formed");
        ProgressBar::with_draw_target(None, target).with_style(style)
    }
}

impl Resizing {
    /// Guesses from environment variables. Asking the terminal for its cursor would mean reading its input, which belongs
    /// to the user's program.
    ///
    /// An unknown terminal counts as one that cuts. If that is wrong, a few rows of old progress stay. The opposite error
    /// would clear text above the display.
    fn of(has: impl Fn(&str) -> bool) -> Resizing {
        const WRAPPING: [&str; 6] = [
            "ALACRITTY_WINDOW_ID",
            "KITTY_WINDOW_ID",
            "KONSOLE_VERSION",
            "TERM_PROGRAM",
            "VTE_VERSION",
            "WT_SESSION",
        ];
        // These three may run inside another terminal, and inherit its variables.
        match (has("TMUX"), has("STY") || has("XTERM_VERSION")) {
            (true, _) => Resizing::Wraps,
            (false, false) if WRAPPING.into_iter().any(has) => Resizing::Wraps,
            (false, _) => Resizing::Cuts,
        }
    }
}

impl ScreenBlock {
    /// Shows the lines. Their maximum number and the width of the terminal are passed to `lines`.
    pub(super) fn show(&self, lines: impl FnOnce(usize, usize) -> Vec<String>) {
        let Some(mut blocks) = self.screen.blocks() else { return };
        self.screen.follow_width(&mut blocks);
        let others: usize = blocks.others(self.number).map(|(_, lines)| lines.len()).sum();
        // The last row is left to the cursor of the next writer.
        let rows = usize::from(self.screen.terminal.height()).saturating_sub(1 + others);
        let columns = usize::from(self.screen.terminal.width());
        let lines = lines(rows.max(1), columns);
        let end = if columns > 3 { "..." } else { "" };
        let lines = lines.iter().map(|line| truncate_str(line, columns, end).into_owned());
        blocks.put(self.number, lines.collect());
        let text = blocks.text();
        blocks.bar.get_or_insert_with(|| self.screen.new_bar()).set_message(text);
    }

    /// Writes a message above the display, in lines of the width of the terminal.
    pub(super) fn tell(&self, message: &str, ink: Ink, colors: Colors) {
        let Some(mut blocks) = self.screen.blocks() else { return };
        let columns = usize::from(self.screen.terminal.width());
        for line in wrapped(message, columns, "", "  ") {
            self.screen.write_line(&mut blocks, &colors.paint(ink, line).to_string());
        }
    }

    /// Replaces the block by one line, which stays.
    pub(super) fn end(&self, line: &str) {
        let Some(mut blocks) = self.screen.blocks() else { return };
        self.screen.follow_width(&mut blocks);
        blocks.remove(self.number);
        self.screen.write_line(&mut blocks, line);
    }
}

impl Drop for ScreenBlock {
    fn drop(&mut self) {
        if let Some(mut blocks) = self.screen.blocks() {
            self.screen.follow_width(&mut blocks);
            blocks.remove(self.number);
        }
    }
}

impl ScreenBlocks {
    fn others(&self, number: u64) -> impl Iterator<Item = &(u64, Vec<String>)> {
        self.shown.iter().filter(move |(other, _)| *other != number)
    }

    fn put(&mut self, number: u64, lines: Vec<String>) {
        match self.shown.iter_mut().find(|(other, _)| *other == number) {
            Some((_, shown)) => *shown = lines,
            None => self.shown.push((number, lines)),
        }
    }

    fn remove(&mut self, number: u64) {
        self.shown.retain(|(other, _)| *other != number);
        match self.bar.take_if(|_| self.shown.is_empty()) {
            Some(bar) => bar.finish_and_clear(),
            None => self.redraw(),
        }
    }

    fn redraw(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.text());
        }
    }

    fn text(&self) -> String {
        let lines: Vec<&str> =
            self.shown.iter().flat_map(|(_, lines)| lines).map(String::as_str).collect();
        lines.join("\n")
    }
}

impl ScreenTerminal {
    /// Calls `what` unless the terminal is gone. Unwritten text stays in the terminal's buffer, which would
    /// grow with every attempt, so none follows the first failure.
    fn attempt(&self, what: impl Fn(&dyn TermLike) -> io::Result<()>) -> io::Result<()> {
        if self.gone.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A frame that was cut off by a full terminal is drawn from its start again.
        if let Err(error) = waiting(|| what(&*self.inner))
            && !self.gone.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(%error, "the terminal cannot be written to; progress is no longer shown");
        }
        Ok(())
    }
}

impl TermLike for ScreenTerminal {
    fn width(&self) -> u16 {
        // `indicatif` underflows if a wide character meets a narrower terminal.
        self.inner.width().max(2)
    }
    fn height(&self) -> u16 {
        self.inner.height()
    }
    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.attempt(|terminal| terminal.move_cursor_up(n))
    }
    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.attempt(|terminal| terminal.move_cursor_down(n))
    }
    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.attempt(|terminal| terminal.move_cursor_right(n))
    }
    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.attempt(|terminal| terminal.move_cursor_left(n))
    }
    fn write_line(&self, s: &str) -> io::Result<()> {
        self.attempt(|terminal| terminal.write_line(s))
    }
    fn write_str(&self, s: &str) -> io::Result<()> {
        self.attempt(|terminal| terminal.write_str(s))
    }
    fn clear_line(&self) -> io::Result<()> {
        self.attempt(|terminal| terminal.clear_line())
    }
    fn flush(&self) -> io::Result<()> {
        self.attempt(|terminal| terminal.flush())
    }
}

impl fmt::Debug for ScreenBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
