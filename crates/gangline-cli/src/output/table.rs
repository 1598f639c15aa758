//! `--results` as one file with a row for each job.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use serde_json::json;

use crate::output::capture::Captured;
use crate::output::joblog::Existing;
use crate::output::outcome::{JobOutcome, Printed};

/// The form of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableForm {
    /// Values between this character, with a first line of names.
    Separated(u8),
    /// A line of JSON for each job.
    Json,
}

/// A file with a row for each job, in the columns of GNU parallel, in the order of the outputs.
#[derive(Debug)]
pub(crate) struct ResultTable {
    form: TableForm,
    errors: Errors,
    state: Mutex<TableState>,
}

#[derive(Debug)]
struct TableState {
    file: File,
    /// What to do before the first row: a run that is refused must not replace a table.
    beginning: Option<Existing>,
    /// The number of columns, once their names are written.
    columns: Option<usize>,
}

/// Whether a table has a column with the reason of a failure. Only warm workers give one; other jobs have a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    Column,
    None,
}

/// The columns before the inputs; those of the outputs follow after them.
const COLUMNS: [&str; 9] =
    ["Seq", "Host", "Starttime", "JobRuntime", "Send", "Receive", "Exitval", "Signal", "Command"];

impl Errors {
    /// The columns after the inputs.
    fn last_columns(self) -> &'static [&'static str] {
        match self {
            Errors::Column => &["Stdout", "Stderr", "Error"],
            Errors::None => &["Stdout", "Stderr"],
        }
    }
}

impl TableForm {
    /// The form that the extension of a path stands for. A directory ends with a slash.
    pub(crate) fn of(path: &Path) -> Option<TableForm> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return None;
        }
        match path.extension()?.to_str()? {
            "csv" => Some(TableForm::Separated(b',')),
            "tsv" => Some(TableForm::Separated(b'\t')),
            "json" | "jsonl" => Some(TableForm::Json),
            _ => None,
        }
    }

    /// Whether a file begins like a table of results. A file that was cut off may be shorter than that beginning.
    fn begins(self, file: &mut File) -> io::Result<bool> {
        let beginnings = match self {
            // The order of the keys depends on how serde_json was built.
            TableForm::Json => vec!["{\"Command\":".to_owned(), "{\"Seq\":".to_owned()],
            TableForm::Separated(separator) => {
                vec![COLUMNS.join(&*char::from(separator).to_string())]
            }
        };
        let mut read = Vec::new();
        file.rewind()?;
        file.take(256).read_to_end(&mut read)?;
        Ok(beginnings.iter().any(|beginning| {
            let beginning = beginning.as_bytes();
            read.starts_with(beginning) || beginning.starts_with(&read)
        }))
    }
}

const NO_TABLE: &str = "it exists and is no table of results: choose another name, or remove it";

impl ResultTable {
    pub(crate) fn open(
        path: &Path,
        form: TableForm,
        existing: Existing,
        errors: Errors,
    ) -> io::Result<ResultTable> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        if file.metadata()?.is_file() && !form.begins(&mut file)? {
            return Err(io::Error::other(NO_TABLE));
        }
        let state = TableState { file, beginning: Some(existing), columns: None };
        Ok(ResultTable { form, errors, state: Mutex::new(state) })
    }

    pub(crate) fn append(&self, outcome: &JobOutcome, printed: &Printed) -> io::Result<()> {
        let (stdout, stderr) = (bytes(&printed.stdout)?, bytes(&printed.stderr)?);
        let mut state = self.state.lock().expect("nothing panics with the lock held");
        if let Some(existing) = state.beginning.take() {
            state.begin(existing, self.form)?;
        }
        let text = match self.form {
            TableForm::Json => json_row(outcome, printed, &stdout, &stderr)?,
            TableForm::Separated(separator) => {
                let mut writer = csv::WriterBuilder::new()
                    .delimiter(separator)
                    .flexible(true)
                    .from_writer(vec![]);
                let count = outcome.fields.len();
                let last = self.errors.last_columns();
                let others = COLUMNS.len() + last.len();
                if state.columns.is_none() {
                    let inputs = (1..=count).map(|number| format!("V{number}"));
                    let columns = COLUMNS.map(str::to_owned).into_iter().chain(inputs);
                    let columns = columns.chain(last.iter().map(|&name| name.to_owned()));
                    writer.write_record(columns)?;
                }
                let columns = *state.columns.get_or_insert(others + count);
                let figures = figures(outcome, printed);
                let inputs = outcome.fields.iter().map(|field| field.as_bytes().to_vec());
                // A job with fewer inputs gets empty fields, so that its outputs are in their columns too.
                let missing = vec![vec![]; columns.saturating_sub(others + count)];
                let error = outcome.result.error().unwrap_or_default();
                let outputs = [stdout, stderr, error.into_bytes()].into_iter().take(last.len());
                let values = figures.into_iter().map(String::into_bytes);
                writer.write_record(values.chain(inputs).chain(missing).chain(outputs))?;
                writer.into_inner().map_err(|error| error.into_error())?
            }
        };
        state.file.write_all(&text)
    }

    pub(crate) fn sync(&self) -> io::Result<()> {
        self.state.lock().expect("nothing panics with the lock held").file.sync_data()
    }
}

impl TableState {
    fn begin(&mut self, existing: Existing, form: TableForm) -> io::Result<()> {
        // A pipe or a device has no rows to keep or to replace.
        if !self.file.metadata()?.is_file() {
            return Ok(());
        }
        let whole = match existing {
            Existing::Replace => 0,
            Existing::GoOn => whole_rows(&mut self.file, form)?,
        };
        if let TableForm::Separated(separator) = form
            && whole > 0
        {
            self.columns = Some(columns_of(&mut self.file, separator)?);
        }
        self.file.set_len(whole)
    }
}

/// The number of columns that a file begins with.
fn columns_of(file: &mut File, separator: u8) -> io::Result<usize> {
    file.rewind()?;
    let mut reader =
        csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(file);
    Ok(reader.byte_headers()?.len())
}

fn figures(outcome: &JobOutcome, printed: &Printed) -> [String; 9] {
    let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (exit, signal) = outcome.result.codes();
    [
        outcome.number.to_string(),
        ":".to_owned(),
        format!("{:.3}", started.as_secs_f64()),
        format!("{:.3}", outcome.took.as_secs_f64()),
        "0".to_owned(),
        printed.received.to_string(),
        exit.to_string(),
        signal.to_string(),
        outcome.command.clone(),
    ]
}

fn json_row(
    outcome: &JobOutcome,
    printed: &Printed,
    stdout: &[u8],
    stderr: &[u8],
) -> io::Result<Vec<u8>> {
    let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (exit, signal) = outcome.result.codes();
    let inputs: Vec<_> = outcome.fields.iter().map(|field| field.to_string_lossy()).collect();
    let mut row = json!({
        "Seq": outcome.number,
        "Host": ":",
        "Starttime": started.as_secs_f64(),
        "JobRuntime": outcome.took.as_secs_f64(),
        "Send": 0,
        "Receive": printed.received,
        "Exitval": exit,
        "Signal": signal,
        "Command": outcome.command,
        "Slot": outcome.slot,
        "Gpus": outcome.gpu_ids(),
        "V": inputs,
        "Stdout": String::from_utf8_lossy(stdout),
        "Stderr": String::from_utf8_lossy(stderr),
        "Error": outcome.result.error(),
    });
    let is_replaced = |bytes: &[u8]| str::from_utf8(bytes).is_err();
    let is_input_replaced = outcome.fields.iter().any(|field| is_replaced(field.as_bytes()));
    let lossy = [
        ("V", is_input_replaced),
        ("Stdout", is_replaced(stdout)),
        ("Stderr", is_replaced(stderr)),
    ];
    let lossy = lossy.into_iter().filter(|(_, is_lossy)| *is_lossy).map(|(name, _)| name);
    let lossy: Vec<_> = lossy.collect();
    if outcome.result.is_ended_with_run() {
        row["EndedWithRun"] = json!(true);
    }
    if !lossy.is_empty() {
        row["Lossy"] = json!(lossy);
    }
    let mut text = serde_json::to_vec(&row)?;
    text.push(b'\n');
    Ok(text)
}

fn bytes(captured: &Captured) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    captured.write_to(&mut bytes)?;
    Ok(bytes)
}

/// The length of the rows that are complete: a power failure may have cut off the last.
fn whole_rows(file: &mut File, form: TableForm) -> io::Result<u64> {
    file.rewind()?;
    let (mut whole, mut is_quoted, mut at) = (0, false, 0);
    let mut buffer = [0; 64 * 1_024];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(whole);
        }
        for byte in &buffer[..read] {
            at += 1;
            match byte {
                b'"' if form != TableForm::Json => is_quoted = !is_quoted,
                b'\n' if !is_quoted => whole = at,
                _ => {}
            }
        }
    }
}
