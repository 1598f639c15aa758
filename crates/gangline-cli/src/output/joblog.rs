//! `--joblog`: a line for each job, in GNU parallel's columns.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::SystemTime;

use crate::output::outcome::JobOutcome;

/// The log. Each slot writes a line when a job has ended, so a killed run has a log too.
#[derive(Debug)]
pub(crate) struct JobLog(Mutex<JobLogFile>);

#[derive(Debug)]
struct JobLogFile {
    file: File,
    /// What to do before the first line, until it is done.
    beginning: Option<Existing>,
}

/// Whether an existing log is continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Existing {
    Replace,
    GoOn,
}

/// Whether the run may still be refused; a refused run must not replace a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogStart {
    Sure,
    MayBeRefused,
}

/// Two more follow GNU parallel's, so that a program that reads those finds them where it expects them.
const COLUMNS: &str =
    "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\tSlot\tGpus\n";

impl JobLog {
    pub(crate) fn open(path: &Path, existing: Existing, start: LogStart) -> io::Result<JobLog> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let beginning = match start {
            LogStart::Sure => {
                begin(&mut file, existing)?;
                None
            }
            LogStart::MayBeRefused => Some(existing),
        };
        Ok(JobLog(Mutex::new(JobLogFile { file, beginning })))
    }

    pub(crate) fn write(&self, outcome: &JobOutcome, received: u64) -> io::Result<()> {
        let started = outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let (exit, signal) = outcome.result.codes();
        let line = format!(
            "{}\t{}\t{:.3}\t{:10.3}\t0\t{received}\t{exit}\t{signal}\t{}\t{}\t{}\n",
            outcome.number,
            outcome.host.as_deref().unwrap_or(":"),
            started.as_secs_f64(),
            outcome.took.as_secs_f64(),
            outcome.command,
            outcome.slot,
            outcome.gpu_list(),
        );
        let mut log = self.0.lock().expect("nothing panics with the lock held");
        if let Some(existing) = log.beginning.take() {
            begin(&mut log.file, existing)?;
        }
        log.file.write_all(line.as_bytes())
    }
}

fn begin(file: &mut File, existing: Existing) -> io::Result<()> {
    // A pipe or a device has no end to inspect, and nothing to replace.
    let is_file = file.metadata()?.is_file();
    if is_file && existing == Existing::Replace {
        file.set_len(0)?;
    }
    match is_file.then(|| last_byte(file)).transpose()?.flatten() {
        None => file.write_all(COLUMNS.as_bytes()),
        Some(b'\n') => Ok(()),
        // A line cut off by a power failure must not swallow the next one.
        Some(_) => file.write_all(b"\n"),
    }
}

fn last_byte(file: &mut File) -> io::Result<Option<u8>> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(None);
    }
    let mut byte = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut byte)?;
    Ok(Some(byte[0]))
}
