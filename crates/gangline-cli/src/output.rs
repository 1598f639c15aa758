//! Writes what jobs print, and what is recorded about them.

pub(crate) mod capture;
pub(crate) mod cut_off;
pub(crate) mod early_end;
pub(crate) mod joblog;
pub(crate) mod json_text;
pub(crate) mod lines;
pub(crate) mod lists;
pub(crate) mod message_queue;
pub(crate) mod misplaced;
pub(crate) mod names;
pub(crate) mod outcome;
pub(crate) mod place;
pub(crate) mod record;
pub(crate) mod report;
pub(crate) mod results;
pub(crate) mod stdio;
pub(crate) mod summary;
pub(crate) mod table;
pub(crate) mod tagged;
pub(crate) mod terminal;
pub(crate) mod verdict;
