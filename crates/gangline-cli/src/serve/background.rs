//! `--background`: the values of a file, which workers get where no request waits.
//!
//! One thread reads the file, as far as the stream of the library's service pulls it, and prints a record for each value
//! on standard output, in the order of the file. It stops when the server drains.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use serde::Serialize;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::args::serve::BackgroundArgs;
use crate::error::{CliError, Context};
use crate::exit;
use crate::output::json_text::{checked, without_mark};
use crate::output::stdio;
use crate::serve::answering::{AnswerService, ServedValue};
use crate::serve::app::App;
use crate::serve::memory::ServedAnswer;
use crate::serve::refusal::{ErrorTexts, Refusal, is_of_end};

/// The values of the file, and where they are read.
pub(crate) struct BackgroundFile {
    name: String,
    reader: BufReader<File>,
}

/// The thread that works on the values.
pub(crate) struct BackgroundThread {
    name: String,
    thread: JoinHandle<()>,
    /// The first line without a record, or [`GIVEN_UP`].
    next: Arc<AtomicU64>,
}

/// No further record is printed. Lines have numbers from 1.
const GIVEN_UP: u64 = 0;

/// A line of the file.
struct BackgroundLine {
    /// From 1.
    number: u64,
    /// Its value, or why it has none.
    value: Result<Box<RawValue>, String>,
}

/// What became of a line: a record as `gangline run --records` prints it, without what only a run has.
#[derive(Serialize)]
struct BackgroundRecord<'a> {
    item: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl BackgroundFile {
    /// Opens the file, if there is one.
    pub(crate) fn open(args: &BackgroundArgs) -> Result<Option<BackgroundFile>, CliError> {
        let Some(path) = &args.background else { return Ok(None) };
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Ok(Some(BackgroundFile { name, reader: BufReader::new(file) })),
            Err(error) => {
                Err(CliError::new(exit::INPUT, Context::new(format!("cannot read {name}"), error)))
            }
        }
    }

    /// Starts the thread that works on the values.
    pub(crate) fn start(
        self,
        app: &Arc<App>,
        service: &AnswerService,
    ) -> io::Result<BackgroundThread> {
        service.set_stream_share(app.args.background.background_share);
        let (app, service) = (Arc::clone(app), service.clone());
        let (name, next) = (self.name.clone(), Arc::new(AtomicU64::new(1)));
        let shown = Arc::clone(&next);
        let thread = Builder::new().name("gangline-bg".to_owned());
        let thread = thread.spawn(move || self.work(&app, &service, shown))?;
        Ok(BackgroundThread { name, thread, next })
    }

    fn work(self, app: &App, service: &AnswerService, shown: Arc<AtomicU64>) {
        let name = self.name.clone();
        let (pulled, lines) = channel();
        let values = BackgroundValues { app, reader: self.reader, number: 0, pulled };
        let mut printer =
            RecordPrinter { lines, out: stdio::stdout(), done: 0, failed: 0, next: 1, shown };
        let mut stream = service.stream(values);
        let printed = stream.by_ref().try_for_each(|result| match result {
            Err(error) if is_of_end(&error) => Err(None),
            result => printer.print(result).map_err(Some),
        });
        let printed = printed.and_then(|()| printer.print_rest().map_err(Some));
        let RecordPrinter { done, failed, next, shown, .. } = printer;
        if shown.load(Ordering::Relaxed) == GIVEN_UP {
            return;
        }
        app.workers.lanes.shared.terminal.tell(&match printed {
            Ok(()) => format!("{name} is done: {done} values, of which {failed} failed"),
            Err(None) => format!("{name} is done up to line {next}, which is the next"),
            Err(Some(error)) => {
                format!(
                    "{name} is done up to line {next}: standard output cannot be written: {error}"
                )
            }
        });
    }
}

impl BackgroundThread {
    /// Waits for the end of the thread, at most for this time. The reader of standard output may read no more.
    pub(crate) async fn join(self, most: Duration) -> Result<(), CliError> {
        let BackgroundThread { name, thread, next } = self;
        timeout(most, spawn_blocking(move || thread.join())).await.map(drop).map_err(|_| {
            let next = next.swap(GIVEN_UP, Ordering::Relaxed);
            let text = format!(
                "{name} is done up to line {next}, which is the next: standard output is not read"
            );
            CliError::new(exit::OUTPUT, text)
        })
    }
}

/// Reads the values of the lines. The lines go to the printer, the values to the stream.
struct BackgroundValues<'a> {
    app: &'a App,
    reader: BufReader<File>,
    number: u64,
    pulled: Sender<BackgroundLine>,
}

impl Iterator for BackgroundValues<'_> {
    type Item = ServedValue;

    fn next(&mut self) -> Option<ServedValue> {
        loop {
            let text = self.line()?;
            let text = text
                .as_deref()
                .map(|text| if self.number == 1 { without_mark(text) } else { text });
            if text.is_ok_and(|text| text.trim_ascii().is_empty()) {
                continue;
            }
            let value = text.map_err(String::clone);
            let value = value.and_then(|text| checked(text).map_err(|error| error.to_string()));
            let served = value.as_ref().ok().map(|value| self.app.workers.value(value, None));
            // The printer outlives this iterator.
            let _ = self.pulled.send(BackgroundLine { number: self.number, value });
            if served.is_some() {
                return served;
            }
        }
    }
}

impl BackgroundValues<'_> {
    /// The next line, or why it cannot be read; `None` at the end. After an error of the file there are no more.
    fn line(&mut self) -> Option<Result<Vec<u8>, String>> {
        let most = self.app.args.http.max_body;
        let mut text = Vec::new();
        self.number += 1;
        let read = (&mut self.reader).take(most.saturating_add(1)).read_until(b'\n', &mut text);
        let is_whole = text.last() == Some(&b'\n');
        match read {
            Ok(0) => None,
            Ok(bytes) if bytes as u64 > most && !is_whole => {
                // An error comes again with the next line.
                let _ = self.reader.skip_until(b'\n');
                Some(Err(format!("the line has more than {most} bytes (--max-body)")))
            }
            Ok(_) => Some(Ok(text)),
            Err(error) => {
                let terminal = &self.app.workers.lanes.shared.terminal;
                terminal.tell(&format!("the background ends at line {}: {error}", self.number));
                None
            }
        }
    }
}

/// Prints the records.
struct RecordPrinter<W> {
    lines: Receiver<BackgroundLine>,
    out: W,
    done: u64,
    failed: u64,
    /// The first line without a record.
    next: u64,
    /// The first line without a record, for the thread that waits for the end, or [`GIVEN_UP`].
    shown: Arc<AtomicU64>,
}

impl<W: Write> RecordPrinter<W> {
    /// Prints the record of the next value, and before it those of lines without a value.
    fn print(&mut self, result: Result<ServedAnswer, gangline::Error>) -> io::Result<()> {
        loop {
            let line = self.lines.try_recv().expect("a line was sent before its value");
            let has_value = line.value.is_ok();
            let output = match (&line.value, &result) {
                (Err(text), _) => Err(text.clone()),
                (Ok(_), Ok(ServedAnswer::Kept { text, .. })) => Ok(&**text),
                (Ok(_), Ok(ServedAnswer::Dropped(_))) => {
                    unreachable!("these take no memory of requests")
                }
                (Ok(_), Err(error)) => Err(Refusal::of_failure(error, ErrorTexts::Shown).text),
            };
            self.write(&line, output)?;
            if has_value {
                return Ok(());
            }
        }
    }

    /// Prints the records of lines without a value behind the last value.
    fn print_rest(&mut self) -> io::Result<()> {
        while let Ok(line) = self.lines.try_recv() {
            let text = line.value.as_ref().err().cloned();
            self.write(&line, Err(text.expect("each value has its result")))?;
        }
        Ok(())
    }

    fn write(
        &mut self,
        line: &BackgroundLine,
        output: Result<&RawValue, String>,
    ) -> io::Result<()> {
        self.done += 1;
        self.failed += u64::from(output.is_err());
        let (output, error) = match output {
            Ok(output) => (Some(output), None),
            Err(error) => (None, Some(error)),
        };
        let input = line.value.as_deref().ok();
        let mut text =
            serde_json::to_vec(&BackgroundRecord { item: line.number, input, output, error })?;
        text.push(b'\n');
        self.out.write_all(&text)?;
        self.out.flush()?;
        let before = std::mem::replace(&mut self.next, line.number + 1);
        let shown =
            self.shown.compare_exchange(before, self.next, Ordering::Relaxed, Ordering::Relaxed);
        shown.map(drop).map_err(|_| io::Error::other("the server has ended"))
    }
}
