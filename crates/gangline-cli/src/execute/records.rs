//! The records that the consumer of a lane prints, several in one write where that delays none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use crate::args::printing::RecordFields;
use crate::execute::process::Channel;
use crate::output::outcome::{Outcome, Printed};
use crate::output::record::Record;
use crate::output::terminal::Terminal;
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
}

/// Records that have not been written, of one consumer.
#[derive(Debug, Default)]
pub(crate) struct Unwritten(Vec<u8>);

/// Bytes after which records are written.
const MOST: usize = 64 << 10;

impl Records {
    pub(crate) fn new(fields: RecordFields, shape: Shape, order: Order) -> Arc<Records> {
        Arc::new(Records { fields, shape, order, ended: AtomicIsize::new(0) })
    }

    /// This number of jobs has ended, and goes to the consumer.
    pub(crate) fn ended(&self, jobs: usize) {
        self.ended.fetch_add(jobs.cast_signed(), Ordering::Relaxed);
    }

    /// Takes the record of a job, and writes it together with others once none is on its way.
    pub(crate) fn print(
        &self,
        unwritten: &mut Unwritten,
        outcome: &Outcome,
        printed: &Printed,
        terminal: &Terminal,
    ) -> io::Result<()> {
        let shape = match self.fields {
            RecordFields::All => Some(&self.shape),
            RecordFields::Outcome => None,
        };
        Record::of(outcome, printed, shape)?.write_line(&mut unwritten.0)?;
        let others = self.ended.fetch_sub(1, Ordering::Relaxed) - 1;
        match self.order == Order::Input || others <= 0 || unwritten.0.len() > MOST {
            true => unwritten.write(terminal),
            false => Ok(()),
        }
    }
}

impl Unwritten {
    pub(crate) fn write(&mut self, terminal: &Terminal) -> io::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let lines = std::mem::take(&mut self.0);
        terminal.write(None, Channel::Stdout, &lines)
    }
}
