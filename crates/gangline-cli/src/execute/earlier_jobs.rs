//! Learns which jobs an earlier run has done.

use std::sync::Arc;

use crate::execute::held::HeldOutputs;
use crate::execute::lane::Lanes;
use crate::execute::records::Records;
use crate::plan::gated::Watch;
use crate::plan::job::Job;

/// Prints a record for each job of a lane that an earlier run has done, if there are records, and no longer holds its
/// outcome.
pub(crate) struct EarlierJobs {
    pub(crate) lanes: Lanes,
    pub(crate) records: Option<Arc<Records>>,
    pub(crate) held: Option<Arc<HeldOutputs>>,
}

impl Watch for EarlierJobs {
    fn read(&self, number: u64) {
        if let Some(records) = &self.records {
            records.read(number);
        }
    }

    fn left_out(&self, job: &Job, occurrence: u64) {
        if let Some(held) = &self.held {
            held.note_done(job, occurrence);
        }
        let Some(records) = &self.records else { return };
        let shared = &self.lanes.shared;
        if let Err(error) = records.left_out(job, &shared.terminal) {
            shared.fail_output("the records of jobs cannot be written", error);
            self.lanes.give_up();
        }
    }

    fn has_room(&self) -> bool {
        self.records.as_ref().is_none_or(|records| records.has_room())
    }
}
