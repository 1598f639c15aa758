//! The sources of a command's inputs, opened and combined.

use std::ffi::OsString;
use std::iter;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use regex::bytes::Regex;
use serde_json::value::RawValue;

use crate::args::inputs::{InputArgs, Trim};
use crate::args::typed::{Kind, Pairing, Typed};
use crate::plan::gate::Gate;
use crate::plan::input_error::{InputError, Problem, name_of};
use crate::plan::lines::{BYTE_ORDER_MARK, LineReader, Separator};
use crate::plan::rows::{self, Row, Rows};
use crate::plan::table::InputTable;

/// The inputs of a run, before they are divided into jobs.
pub(crate) struct Sources {
    pub(crate) rows: Rows,
    /// The names of the inputs of a row; an empty name is none.
    pub(crate) names: Vec<OsString>,
    /// The number of inputs of a row, if all rows have the same.
    pub(crate) width: Option<usize>,
}

/// Whether files are counted before they are read, where they can be read twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileCounting {
    Ahead,
    No,
}

/// One source, as the options name it.
enum Named {
    Given(Vec<OsString>),
    Lines(PathBuf),
    Table(PathBuf, u8),
}

impl Sources {
    pub(crate) fn open(
        inputs: &InputArgs,
        typed: &Typed<'_>,
        count: FileCounting,
        gate: &Arc<Gate>,
    ) -> Result<Sources, InputError> {
        let opening = Opening { inputs, count, gate };
        let mut all = Sources { rows: Box::new(iter::empty()), names: Vec::new(), width: Some(0) };
        // Sources in step with each other, and the product of such groups.
        let mut groups: Vec<Vec<Rows>> = Vec::new();
        for (pairing, named) in named(inputs, typed) {
            let name = named.name();
            let source = opening.open(named)?;
            all.add_names(source.names, source.width, name)?;
            let is_in_step = inputs.link || pairing == Pairing::InStep;
            match groups.last_mut().filter(|_| is_in_step) {
                Some(group) => group.push(source.rows),
                None => groups.push(vec![source.rows]),
            }
        }
        let groups = groups.into_iter().map(|mut group| match (group.len(), inputs.link) {
            (1, _) => group.remove(0),
            (_, true) => rows::recycled(group),
            (_, false) => rows::in_step(group),
        });
        all.rows = groups.reduce(rows::product).unwrap_or(all.rows);
        if inputs.shuf {
            all.rows = rows::shuffled(all.rows);
        }
        Ok(all)
    }

    fn add_names(
        &mut self,
        names: Vec<OsString>,
        width: Option<usize>,
        source: String,
    ) -> Result<(), InputError> {
        for name in names {
            if !name.is_empty() && self.names.contains(&name) {
                let problem = Problem::ColumnTwice(name.to_string_lossy().into_owned());
                return Err(InputError { source, problem });
            }
            self.names.push(name);
        }
        self.width = self.width.and_then(|before| Some(before + width?));
        Ok(())
    }
}

/// The sources in the order of their inputs. Standard input is the default.
fn named(inputs: &InputArgs, typed: &Typed<'_>) -> Vec<(Pairing, Named)> {
    let tables = [(&inputs.csv, b','), (&inputs.tsv, b'\t')].into_iter();
    let tables =
        tables.filter_map(|(path, delimiter)| Some(Named::Table(path.clone()?, delimiter)));
    let lines = inputs.input.iter().cloned().map(Named::Lines);
    let mut all: Vec<_> = tables.chain(lines).map(|named| (Pairing::Product, named)).collect();
    for source in &typed.sources {
        match source.kind {
            Kind::Inputs => all.push((source.pairing, Named::Given(source.words.to_vec()))),
            Kind::Files => all.extend(
                source.words.iter().map(|path| (source.pairing, Named::Lines(path.into()))),
            ),
        }
    }
    match all.is_empty() && typed.sources.is_empty() {
        true => vec![(Pairing::Product, Named::Lines("-".into()))],
        false => all,
    }
}

impl Named {
    fn name(&self) -> String {
        match self {
            Named::Given(_) => "the inputs after :::".into(),
            Named::Lines(path) | Named::Table(path, _) => name_of(path),
        }
    }
}

type Values = Box<dyn Iterator<Item = Result<OsString, InputError>> + Send>;

struct Opening<'a> {
    inputs: &'a InputArgs,
    count: FileCounting,
    gate: &'a Arc<Gate>,
}

impl Opening<'_> {
    fn open(&self, named: Named) -> Result<Sources, InputError> {
        let name = named.name();
        let values: Values = match named {
            Named::Given(words) => Box::new(words.into_iter().map(Ok)),
            Named::Lines(path) => Box::new(self.lines(&path)?),
            Named::Table(path, delimiter) => {
                let mut table = InputTable::open(&path, delimiter, self.gate)?;
                if self.count == FileCounting::Ahead {
                    table = table.counted(&path, delimiter);
                }
                let names = checked(table.names()?, &name)?;
                let width = Some(names.len());
                return Ok(Sources { rows: self.trimmed(table.rows()), names, width });
            }
        };
        let values = self.limited(values);
        let values = if self.inputs.jsonl { json_alone(values, name.clone()) } else { values };
        let rows = self.columns(values);
        let width = self.inputs.colsep.is_none().then_some(1);
        match self.inputs.header {
            None => Ok(Sources { rows, names: vec![OsString::new(); width.unwrap_or(0)], width }),
            Some(_) => {
                let mut rows = rows;
                let names = checked(rows.next().transpose()?.unwrap_or_default(), &name)?;
                Ok(Sources { rows, names, width })
            }
        }
    }

    fn lines(&self, path: &Path) -> Result<LineReader, InputError> {
        let separator = match self.inputs.null {
            true => Separator::Byte(0),
            false => self.inputs.delimiter.map_or(Separator::LineEnd, Separator::Byte),
        };
        let lines = LineReader::open(path, separator, self.gate)?;
        Ok(match self.count {
            FileCounting::Ahead => lines.counted(path),
            FileCounting::No => lines,
        })
    }

    fn trimmed(&self, rows: Rows) -> Rows {
        let Some(trim) = self.inputs.trim else { return rows };
        let fields =
            move |row: Row| row.iter().map(|field| trimmed(field.as_bytes(), trim)).collect();
        Box::new(rows.map(move |row| row.map(fields)))
    }

    /// The values that are used.
    fn limited(&self, values: Values) -> Values {
        let values: Values = match self.inputs.end.clone() {
            None => values,
            Some(end) => Box::new(
                values.take_while(move |value| value.as_ref().map_or(true, |value| *value != end)),
            ),
        };
        match self.inputs.no_run_if_empty {
            false => values,
            true => Box::new(
                values.filter(|value| value.as_ref().map_or(true, |value| !value.is_empty())),
            ),
        }
    }

    fn columns(&self, values: Values) -> Rows {
        let default = if self.inputs.colsep.is_some() { Trim::Both } else { Trim::None };
        let trim = self.inputs.trim.unwrap_or(default);
        let Some(colsep) = self.inputs.colsep.clone() else {
            return Box::new(values.map(move |value| Ok(vec![trimmed(value?.as_bytes(), trim)])));
        };
        Box::new(values.map(move |value| Ok(split(&colsep, &value?, trim))))
    }
}

/// The values until one is not JSON.
fn json_alone(values: Values, source: String) -> Values {
    Box::new((1..).zip(values).map(move |(number, value)| {
        let value = value?;
        match serde_json::from_slice::<&RawValue>(value.as_bytes()) {
            Ok(_) => Ok(value),
            Err(error) => {
                let problem = Problem::Json(number, error);
                Err(InputError { source: source.clone(), problem })
            }
        }
    }))
}

fn split(colsep: &Regex, value: &OsString, trim: Trim) -> Row {
    colsep.split(value.as_bytes()).map(|column| trimmed(column, trim)).collect()
}

fn trimmed(value: &[u8], trim: Trim) -> OsString {
    let value = match trim {
        Trim::None => value,
        Trim::Left => value.trim_ascii_start(),
        Trim::Right => value.trim_ascii_end(),
        Trim::Both => value.trim_ascii(),
    };
    OsString::from_vec(value.to_vec())
}

/// The names in a first line.
fn checked(names: Row, source: &str) -> Result<Vec<OsString>, InputError> {
    let failed = |problem| Err(InputError { source: source.to_owned(), problem });
    let names: Vec<OsString> = names
        .into_iter()
        .map(|name| {
            let bytes = name.as_bytes();
            let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
            OsString::from_vec(bytes.to_vec())
        })
        .collect();
    match names.iter().position(|name| name.is_empty()) {
        _ if names.is_empty() => failed(Problem::NoColumns),
        Some(at) => failed(Problem::ColumnWithoutName(at + 1)),
        None => Ok(names),
    }
}
