//! What a run does of naming items and of recording them in a journal.

use std::sync::Arc;

use crate::run::journal_writer::JournalWriter;

/// What a run does of naming items and of recording them. A run of a single pool does all of it; in a
/// pipeline the first stage plans and the last records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recording {
    /// The journal that says which items are already done. `None` without a journal, and in later stages.
    pub(crate) plans: Option<Arc<JournalWriter>>,
    /// The journal that finished items are recorded in. `None` without a journal, and in earlier stages.
    pub(crate) records: Option<Arc<JournalWriter>>,
    /// Whether items keep the names and journal keys that they have in the stage before.
    pub(crate) inherits_names: bool,
}

impl Recording {
    /// Closes the journal, so that other processes can open it.
    pub(crate) fn close(&self) {
        self.plans.iter().chain(&self.records).for_each(|journal_writer| journal_writer.close());
    }
}
