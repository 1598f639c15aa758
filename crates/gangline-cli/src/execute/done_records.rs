//! Prints the records of jobs that an earlier run has done.

use std::sync::Arc;

use crate::execute::lane::Lanes;
use crate::execute::records::Records;
use crate::plan::gated::Watch;
use crate::plan::job::Job;

/// Prints a record for each job of a lane that an earlier run has done.
pub(crate) struct DoneRecords {
    pub(crate) lanes: Lanes,
    pub(crate) records: Arc<Records>,
}

impl Watch for DoneRecords {
    fn read(&self, number: u64) {
        self.records.read(number);
    }

    fn left_out(&self, job: &Job) {
        let shared = &self.lanes.shared;
        if let Err(error) = self.records.left_out(job, &shared.terminal) {
            shared.fail_output("the records of jobs cannot be written", error);
            self.lanes.give_up();
        }
    }

    fn has_room(&self) -> bool {
        self.records.has_room()
    }
}
