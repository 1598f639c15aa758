//! A held outcome, as bytes in a file.

use std::borrow::Cow;
use std::io::{self, BufRead, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use crc32fast::Hasher;
use serde::{Deserialize, Serialize};

use crate::execute::process::ProcessEnd;
use crate::locking::lock;
use crate::output::capture::{Captured, Spill};
use crate::output::outcome::{JobOutcome, JobResult, Printed, StdoutForm};
use crate::plan::job::Job;
use crate::plan::rules::Output;

/// The first line of an entry. The output that is not printed yet follows, standard output before standard error, and a
/// line with the checksum of all that.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HeldHeader<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) occurrence: u64,
    command: Cow<'a, str>,
    attempts: u32,
    #[serde(default)]
    host: Option<Cow<'a, str>>,
    slot: usize,
    gpus: Cow<'a, [usize]>,
    started: Duration,
    took: Duration,
    received: u64,
    file: Option<Cow<'a, Path>>,
    #[serde(default)]
    form: StdoutForm,
    stdout: u64,
    stderr: u64,
}

/// What ends an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryEnd {
    Checksum,
    /// The end of a file that has one entry, as earlier versions wrote it.
    File,
}

/// The number of bytes of a job's output that are not printed yet.
pub(super) fn output_length(outcome: &JobOutcome, showing: Output) -> u64 {
    let printed = lock(&outcome.printed);
    unprinted(&printed, showing).iter().map(|captured| captured.len()).sum()
}

fn unprinted(printed: &Printed, showing: Output) -> [&Captured; 2] {
    match showing {
        Output::Whole => [&printed.stdout, &printed.stderr],
        _ => printed.unshown.each_ref(),
    }
}

/// Writes the outcome of a job.
pub(super) fn write(
    out: &mut dyn Write,
    occurrence: u64,
    outcome: &JobOutcome,
    showing: Output,
) -> io::Result<()> {
    let printed = lock(&outcome.printed);
    let [stdout, stderr] = unprinted(&printed, showing);
    let header = HeldHeader {
        key: Cow::Borrowed(&outcome.key),
        occurrence,
        command: Cow::Borrowed(&outcome.command),
        attempts: outcome.attempts,
        host: outcome.host.as_deref().map(Cow::Borrowed),
        slot: outcome.slot,
        gpus: Cow::Borrowed(&outcome.gpus),
        started: outcome.started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default(),
        took: outcome.took,
        received: printed.received,
        file: printed.file.as_deref().map(Cow::Borrowed),
        form: printed.form,
        stdout: stdout.len(),
        stderr: stderr.len(),
    };
    let mut line = serde_json::to_vec(&header)?;
    line.push(b'\n');
    let mut summed = Summed { inner: out, sum: Hasher::new() };
    summed.write_all(&line)?;
    stdout.write_to(&mut summed)?;
    stderr.write_to(&mut summed)?;
    let Summed { inner, sum } = summed;
    inner.write_all(&checksum(sum))
}

/// Reads the next entry but for its output. `None` is the end of the file, or of what was written whole.
pub(super) fn pass(file: &mut impl BufRead, end: EntryEnd) -> Option<HeldHeader<'static>> {
    let (header, line) = header(file).ok()?;
    let mut summed = Summed { inner: io::sink(), sum: Hasher::new() };
    summed.write_all(&line).ok()?;
    let output = header.stdout.checked_add(header.stderr)?;
    let passed = io::copy(&mut file.by_ref().take(output), &mut summed).ok()?;
    let is_whole = match end {
        EntryEnd::Checksum => {
            let mut found = [0; CHECKSUM];
            file.read_exact(&mut found).ok()?;
            found[..] == checksum(summed.sum)
        }
        EntryEnd::File => file.fill_buf().ok()?.is_empty(),
    };
    (is_whole && passed == output).then_some(header)
}

/// Reads the outcome of a job, which [`write`] wrote for it.
pub(super) fn read(file: &mut impl BufRead, job: &Job, showing: Output) -> io::Result<JobOutcome> {
    let (header, _) = header(file)?;
    let spill = Arc::new(Spill::default());
    let stdout = captured(file, header.stdout, &spill)?;
    let stderr = captured(file, header.stderr, &spill)?;
    let mut printed = Printed {
        received: header.received,
        file: header.file.map(Cow::into_owned),
        form: header.form,
        ..Printed::default()
    };
    match showing {
        Output::Whole => (printed.stdout, printed.stderr) = (stdout, stderr),
        _ => printed.unshown = [stdout, stderr],
    }
    Ok(JobOutcome {
        number: job.number,
        key: header.key.into_owned(),
        fields: Arc::clone(&job.fields),
        command: header.command.into_owned(),
        attempts: header.attempts,
        host: header.host.map(|host| host.into_owned().into()),
        slot: header.slot,
        gpus: header.gpus.into_owned().into(),
        tag: None,
        results: None,
        result: JobResult::Ended(ProcessEnd::Exited(0)),
        started: SystemTime::UNIX_EPOCH + header.started,
        took: header.took,
        printed: Mutex::new(printed),
        commit: Arc::default(),
    })
}

fn header(file: &mut impl BufRead) -> io::Result<(HeldHeader<'static>, Vec<u8>)> {
    let mut line = Vec::new();
    file.read_until(b'\n', &mut line)?;
    Ok((serde_json::from_slice(&line)?, line))
}

fn captured(file: &mut impl Read, length: u64, spill: &Arc<Spill>) -> io::Result<Captured> {
    let mut captured = Captured::default();
    let mut buffer = [0; 64 * 1_024];
    let mut left = length;
    while left > 0 {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.read_exact(&mut buffer[..most])?;
        captured.push(spill, &buffer[..most])?;
        left -= most as u64;
    }
    Ok(captured)
}

/// The length of the line with the checksum.
const CHECKSUM: usize = 9;

fn checksum(sum: Hasher) -> Vec<u8> {
    format!("{:08x}\n", sum.finalize()).into_bytes()
}

/// Sums up what is written.
struct Summed<W> {
    inner: W,
    sum: Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
