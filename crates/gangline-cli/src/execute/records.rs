//! The records that the consumer of a lane prints, several in one write where that delays none.

use std::io;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::args::printing::RecordFields;
use crate::execute::done_places::DonePlaces;
use crate::execute::process::OutputStream;
use crate::locking::lock;
use crate::output::outcome::{JobOutcome, Printed};
use crate::output::record::{DoneRecord, Record};
use crate::output::terminal::Terminal;
use crate::plan::job::Job;
use crate::plan::value::Shape;
use gangline::Order;

/// How the records of a lane are made.
#[derive(Debug)]
pub(crate) struct Records {
    fields: RecordFields,
    shape: Shape,
    order: Order,
    /// Jobs that have ended, and that the consumer has not written. It takes each of them without waiting, unless an
    /// earlier job's turn comes first.
    ended: AtomicIsize,
    /// Set if jobs that are already done have a record.
    done: Option<Mutex<DonePlaces>>,
}

/// Whether jobs that an earlier run has done have a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DoneJobs {
    Shown,
    None,
}

/// Records that have not been written, of one consumer.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(Vec<u8>);

/// Bytes after which records are written.
const MOST: usize = 64 << 10;

impl Records {
    pub(crate) fn new(
        fields: RecordFields,
        shape: Shape,
        order: Order,
        done: DoneJobs,
    ) -> Arc<Records> {
        let done = (done == DoneJobs::Shown).then(Mutex::default);
        Arc::new(Records { fields, shape, order, ended: AtomicIsize::new(0), done })
    }

    /// Whether jobs that are already done have a record.
    pub(crate) fn show_done(&self) -> bool {
        self.done.is_some()
    }

    /// This number of jobs has ended, and goes to the consumer.
    pub(crate) fn ended(&self, jobs: usize) {
        self.ended.fetch_add(jobs.cast_signed(), Ordering::Relaxed);
    }

    /// Takes the record of a job, and writes it together with others once none is on its way.
    pub(crate) fn print(
        &self,
        unwritten: &mut Unwritten,
        outcome: &JobOutcome,
        printed: &Printed,
        terminal: &Terminal,
    ) -> io::Result<()> {
        Record::of(outcome, printed, self.shape())?.write_line(&mut unwritten.0)?;
        // Held until these records are written: the reader of jobs writes the next ones, under the same lock.
        let mut places = self.places();
        if let Some(places) = &mut places {
            unwritten.0.extend(places.written(outcome.number));
        }
        let others = self.ended.fetch_sub(1, Ordering::Relaxed) - 1;
        match self.order == Order::Input || others <= 0 || unwritten.0.len() > MOST {
            true => unwritten.write(terminal),
            false => Ok(()),
        }
    }

    /// Notes that a job was read.
    pub(crate) fn read(&self, number: u64) {
        if let Some(mut places) = self.places() {
            places.read(number);
        }
    }

    /// Notes that an earlier run has done the job that was read last, and prints its record once its turn comes.
    pub(crate) fn left_out(&self, job: &Job, terminal: &Terminal) -> io::Result<()> {
        let mut line = Vec::new();
        DoneRecord::of(job, self.shape())?.write_line(&mut line)?;
        let mut places = self.places();
        let lines = match &mut places {
            Some(places) => places.left_out(line),
            None => line,
        };
        if lines.is_empty() { Ok(()) } else { terminal.write(None, OutputStream::Stdout, &lines) }
    }

    /// Whether another record may wait for its turn.
    pub(crate) fn has_room(&self) -> bool {
        self.places().is_none_or(|places| places.has_room())
    }

    fn shape(&self) -> Option<&Shape> {
        match self.fields {
            RecordFields::All => Some(&self.shape),
            RecordFields::Outcome => None,
        }
    }

    /// The places of records, if they are printed in input order and include jobs of an earlier run.
    fn places(&self) -> Option<MutexGuard<'_, DonePlaces>> {
        let done = self.done.as_ref().filter(|_| self.order == Order::Input)?;
        Some(lock(done))
    }
}

impl Unwritten {
    pub(crate) fn write(&mut self, terminal: &Terminal) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.0);
        terminal.write(None, OutputStream::Stdout, &lines)
    }
}
