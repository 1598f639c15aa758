//! Jobs, made of inputs and a command.

use std::iter;
use std::sync::Arc;

use crate::plan::input_error::InputError;
use crate::plan::job::{Job, Needs};
use crate::plan::job_key::JobKey;
use crate::plan::rows::{Counted, Row, Rows};
use crate::plan::template::Template;

/// The jobs of a run, in order.
pub(crate) type Jobs = Box<dyn Iterator<Item = Result<Job, InputError>> + Send>;

/// A job for each row.
///
/// If the command has a mark for the number of jobs, all rows are read when the first job is wanted.
pub(crate) fn jobs(rows: Rows, command: Arc<Template>, key: JobKey) -> Jobs {
    if !command.has_total() {
        return numbered(rows, command, key);
    }
    let hint = rows.size_hint();
    let all = iter::once_with(move || {
        let rows: Vec<Result<Row, InputError>> = rows.collect();
        let total = rows.iter().filter(|row| row.is_ok()).count();
        let command = Template::clone(&command).with_total(total as u64);
        numbered(Box::new(rows.into_iter()), Arc::new(command), key)
    });
    Box::new(Counted::new(all.flatten(), hint))
}

fn numbered(rows: Rows, command: Arc<Template>, key: JobKey) -> Jobs {
    Box::new((1..).zip(rows).map(move |(number, row)| {
        let (fields, command): (Arc<[_]>, _) = (Arc::from(row?), Arc::clone(&command));
        let name = key.of(&fields).map_err(|name| InputError::without_key(number, name))?;
        Ok(Job { number, fields, name, command, needs: Needs::Slot, turn: None })
    }))
}
