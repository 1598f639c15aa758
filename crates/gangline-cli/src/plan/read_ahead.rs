//! Jobs that are read ahead of the run, so that their number is known.

use std::io;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};

use crate::plan::input_error::InputError;
use crate::plan::job::Job;
use crate::plan::jobs::Jobs;

/// Jobs read by a thread of its own as fast as their source gives them, and kept in memory until they are
/// wanted. Dropping it waits for the thread, which ends when the source does.
pub(crate) struct ReadAhead {
    jobs: Option<Receiver<Result<Job, InputError>>>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    /// Calls `counted` with the number of jobs once all were read.
    pub(crate) fn new(jobs: Jobs, counted: impl FnOnce(u64) + Send + 'static) -> io::Result<Self> {
        let (sender, receiver) = channel();
        let read = move || {
            let mut count = 0;
            for job in jobs {
                let is_job = job.is_ok();
                if sender.send(job).is_err() || !is_job {
                    return;
                }
                count += 1;
            }
            counted(count);
        };
        let thread = thread::Builder::new().name("gangline-ahead".into()).spawn(read)?;
        Ok(ReadAhead { jobs: Some(receiver), thread: Some(thread) })
    }
}

impl Iterator for ReadAhead {
    type Item = Result<Job, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.jobs.as_ref()?.recv().ok()
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        // The thread then ends at its next job.
        self.jobs = None;
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}
