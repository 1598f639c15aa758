//! Divides rows of inputs into jobs: one, several, or as many as a command line has room for.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::sync::Arc;

use crate::args::inputs::{InputGrouping, Spread};
use crate::plan::input_error::InputError;
use crate::plan::rows::{Row, Rows};
use crate::plan::template::{Template, Values};

/// The inputs of each job.
pub(crate) fn grouped(
    rows: Rows,
    grouping: InputGrouping,
    slots: usize,
    command: &Arc<Template>,
) -> Rows {
    match grouping {
        InputGrouping::One | InputGrouping::CountOnly | InputGrouping::Several(1) => rows,
        InputGrouping::Several(number) => Box::new(SeveralInputs { rows, number }),
        InputGrouping::Fitting { most, bytes, spread } => Box::new(Fitting {
            rows,
            most,
            bytes,
            parts: if spread == Spread::OverSlots { slots } else { 1 },
            size: size(command, &[]),
            command: Arc::clone(command),
            pending: Vec::new(),
            last: VecDeque::new(),
            error: None,
        }),
    }
}

struct SeveralInputs {
    rows: Rows,
    number: usize,
}

impl Iterator for SeveralInputs {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rows: Result<Vec<Row>, InputError> = self.rows.by_ref().take(self.number).collect();
        match rows {
            Ok(rows) => (!rows.is_empty()).then(|| Ok(rows.concat())),
            Err(error) => Some(Err(error)),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.rows.size_hint();
        (least.div_ceil(self.number), most.map(|most| most.div_ceil(self.number)))
    }
}

struct Fitting {
    rows: Rows,
    most: usize,
    bytes: u64,
    /// The number of jobs that share the rows of the last command line.
    parts: usize,
    command: Arc<Template>,
    pending: Vec<Row>,
    /// The size of a command with the rows that are pending.
    size: u64,
    last: VecDeque<Row>,
    error: Option<InputError>,
}

impl Fitting {
    /// The size that the row adds to a command.
    fn cost(&self, row: &Row) -> u64 {
        size(&self.command, &[&row[..], row].concat()) - size(&self.command, row)
    }

    fn take(&mut self) -> Vec<Row> {
        self.size = size(&self.command, &[]);
        std::mem::take(&mut self.pending)
    }

    /// Reads until a command is full. `None` is the end of the rows.
    fn full(&mut self) -> Option<Row> {
        while self.error.is_none() {
            match self.rows.next()? {
                Err(error) => self.error = Some(error),
                Ok(row) => {
                    let cost = self.cost(&row);
                    let is_full = self.pending.len() >= self.most || self.size + cost > self.bytes;
                    let full = (is_full && !self.pending.is_empty()).then(|| self.take().concat());
                    self.size += cost;
                    self.pending.push(row);
                    if full.is_some() {
                        return full;
                    }
                }
            }
        }
        None
    }
}

impl Iterator for Fitting {
    type Item = Result<Row, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.last.is_empty() {
            if let Some(full) = self.full() {
                return Some(Ok(full));
            }
            let rest = self.take();
            let each = rest.len().div_ceil(self.parts).max(1);
            self.last = rest.chunks(each).map(|rows| rows.concat()).collect();
        }
        match self.last.pop_front() {
            Some(row) => Some(Ok(row)),
            None => self.error.take().map(Err),
        }
    }
}

/// The bytes of a command's words, with the ends of the words.
fn size(command: &Template, fields: &[OsString]) -> u64 {
    let words = command.fill(&Values { fields, number: 1, gpus: &[], worker: 0, attempt: 1 });
    let arguments = words.arguments.iter().chain([&words.program]);
    let variables = words.variables.iter().map(|(name, value)| name.len() + value.len() + 2);
    arguments.map(|word| word.len() + 1).chain(variables).sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::mark::{Edits, GpuMark, InputMarks, Marks};

    /// Checks the groups of inputs, each separated by spaces, and the groups by bars.
    #[track_caller]
    fn check(inputs: &str, grouping: InputGrouping, slots: usize, expected: &str) {
        let marks = Marks {
            input: InputMarks::Words,
            names: &[],
            most: None,
            renamed: &[],
            edits: Edits::Refused,
            gpus: GpuMark::None,
        };
        let command = Arc::new(Template::new(&["p".into()], &marks).unwrap());
        let inputs: Vec<OsString> = inputs.split_terminator(' ').map(OsString::from).collect();
        let rows = inputs.into_iter().map(|input| Ok(vec![input]));
        let groups = grouped(Box::new(rows), grouping, slots, &command);
        let groups: Vec<OsString> =
            groups.map(|group| group.unwrap().join(std::ffi::OsStr::new(" "))).collect();
        assert_eq!(groups.join(std::ffi::OsStr::new("|")), expected);
    }

    fn fitting(most: usize, bytes: u64, spread: Spread) -> InputGrouping {
        InputGrouping::Fitting { most, bytes, spread }
    }

    #[test]
    fn a_job_has_several_inputs() {
        check("a b c d e", InputGrouping::Several(2), 1, "a b|c d|e");
        check("", InputGrouping::Several(2), 1, "");
    }

    #[test]
    fn a_command_line_is_filled() {
        // `p` and its end are 2 bytes, and each input with its end 2.
        check("a b c d e", fitting(9, 6, Spread::No), 2, "a b|c d|e");
        check("a b c d e", fitting(1, 100, Spread::No), 2, "a|b|c|d|e");
        check("a longer b", fitting(9, 6, Spread::No), 2, "a|longer|b");
        check("", fitting(9, 6, Spread::OverSlots), 2, "");
    }

    #[test]
    fn the_rest_is_spread_over_the_slots() {
        check(
            "1 2 3 4 5 6 7 8 9 10",
            fitting(99, 100, Spread::OverSlots),
            4,
            "1 2 3|4 5 6|7 8 9|10",
        );
        check("a b", fitting(99, 100, Spread::OverSlots), 4, "a|b");
        check("a b c d e f", fitting(99, 10, Spread::OverSlots), 2, "a b c d|e|f");
    }
}
