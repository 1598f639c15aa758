//! Replaces the workers that run by new ones, one after the other.

use crate::execute::groups::Wish;
use crate::execute::warm::Warm;
use crate::execute::worker_slots::SlotWorker;
use crate::output::capture::Captured;

impl Warm {
    /// Replaces the worker of each slot by a new one, which may have another model.
    ///
    /// A worker first answers the list that it has. Until its successor is ready, workers of other slots take the jobs
    /// of its slot. If there is no other slot, the jobs wait.
    ///
    /// If a new worker does not get ready, the remaining workers stay, since they still answer.
    pub(crate) fn reload(&self) {
        let terminal = &self.lanes.shared.terminal;
        let mut replaced = 0;
        for slot in 0..self.slots.len() {
            let Some(old) = self.workers.send_away(slot) else { continue };
            self.dismiss(slot, old);
            let (mut new, mut said) = (SlotWorker::default(), Captured::default());
            let started = self.start(slot, &mut new, &self.inputs.command, &mut said);
            self.show_said(&said);
            self.workers.come_back(slot, new);
            if let Err(result) = started {
                if self.lanes.groups().wish() == Wish::GoOn {
                    let number = self.number(slot);
                    terminal.tell(&format!(
                        "reload: the new worker of slot {number} {result}; other workers are not replaced"
                    ));
                }
                return;
            }
            replaced += 1;
        }
        let workers = if replaced == 1 { "worker" } else { "workers" };
        terminal.tell(&format!("reloaded: {replaced} {workers}"));
    }
}
