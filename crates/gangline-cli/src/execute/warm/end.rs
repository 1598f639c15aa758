//! The end of a warm worker after its last input.

use std::time::Duration;

use crate::execute::conversation::{Aside, Conversation};
use crate::execute::process::ProcessEnd;
use crate::execute::warm::Warm;
use crate::execute::worker_slots::SlotWorker;
use crate::output::capture::Captured;
use gangline::report::HumanDuration;

/// After this time, a slow end is reported.
const LONG_END: Duration = Duration::from_secs(5);

impl Warm {
    /// Ends a worker after its last input, and reports its failure. The worker may still have files to write.
    pub(super) fn dismiss(&self, slot: usize, worker: SlotWorker) {
        let SlotWorker { conversation: Some(mut conversation), spill, .. } = worker else { return };
        let (slot, shared) = (self.number(slot), &self.lanes.shared);
        let kill_after = shared.rules.ending.lasts();
        let mut said = Captured::default();
        let mut aside = Aside { stderr: &mut said, spill: &spill };
        let end = self.await_end(&mut conversation, &mut aside);
        self.show_said(&said);
        let text = match end {
            Some(ProcessEnd::Exited(0)) => return,
            Some(end) => format!("the worker of slot {slot} {end} when its input ended"),
            None => {
                let is_stuck = conversation.is_stuck();
                self.show_said(&conversation.end(kill_after));
                match is_stuck {
                    true => self.cut_off(slot, "had stopped"),
                    false => self.cut_off(slot, &self.too_long()),
                }
            }
        };
        shared.terminal.tell(&text);
    }

    /// Waits for the end of a worker. A slow end is reported, since the run waits for it.
    fn await_end(
        &self,
        conversation: &mut Conversation,
        aside: &mut Aside<'_>,
    ) -> Option<ProcessEnd> {
        let soon = LONG_END.min(self.end_timeout / 4);
        let ended = conversation.finish(soon, aside);
        if ended.is_some() || conversation.is_stuck() {
            return ended;
        }
        let limit = HumanDuration(self.end_timeout);
        let text = format!(
            "waiting for a worker to end after its last input, for which it has {limit:#} (--end-timeout)"
        );
        self.tell_once(&self.reported.slow_end, &text);
        conversation.finish(self.end_timeout.saturating_sub(soon), aside)
    }

    fn too_long(&self) -> String {
        let limit = HumanDuration(self.end_timeout);
        format!("has not ended by itself, for which it has {limit:#} (--end-timeout)")
    }

    /// Counts an end that was cut off, and returns a message about it.
    fn cut_off(&self, slot: usize, why: &str) -> String {
        self.lanes.shared.cut_off_end();
        format!(
            "the worker of slot {slot} {why}, and was ended: files that it writes at its end may be incomplete"
        )
    }

    pub(super) fn show_said(&self, said: &Captured) {
        let shared = &self.lanes.shared;
        if let Err(error) = shared.terminal.write_captured(None, &Captured::default(), said) {
            shared.fail_output("the messages of workers cannot be written", error);
        }
    }
}
