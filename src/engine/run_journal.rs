//! Opens the journal of a run.

use std::sync::Arc;

use serde_json::Value;

use crate::backend::threads::journal_writer::JournalWriter;
use crate::backend::threads::run_settings::RunSettings;
use crate::cfg::CfgNode;
use crate::error::Error;

/// Opens the journal for a run with this configuration, if there is one. In a pipeline, `later_stages` are
/// the configurations of the stages after the first.
pub(super) fn open<I>(
    settings: &RunSettings<I>,
    cfg: &CfgNode,
    later_stages: Vec<Value>,
) -> Result<Option<Arc<JournalWriter>>, Error> {
    let Some(journal) = &settings.journal else { return Ok(None) };
    let keys = settings.key_kind();
    let journal_writer = JournalWriter::open(journal, as_json(cfg), later_stages, keys)?;
    Ok(Some(Arc::new(journal_writer)))
}

pub(super) fn as_json(cfg: &CfgNode) -> Value {
    cfg.to_json()
}
