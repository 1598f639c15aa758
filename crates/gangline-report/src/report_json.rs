//! The JSON of a report: its version, a layout with one line per field and per element of a list, and the error of a text
//! that is none.

use std::io::{self, Write};

use gangline_scheduler::causes::debug_with_causes;
use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// The version of the JSON's form.
pub(super) const VERSION: u64 = 1;

/// A report with the version of its form.
#[derive(Serialize)]
pub(super) struct Versioned<'a, R> {
    version: u64,
    #[serde(flatten)]
    report: &'a R,
}

impl<'a, R> Versioned<'a, R> {
    pub(super) fn new(report: &'a R) -> Self {
        Versioned { version: VERSION, report }
    }
}

/// Writes a report with its version.
pub(super) fn versioned<R: Serialize, S: Serializer>(report: &R, to: S) -> Result<S::Ok, S::Error> {
    Versioned::new(report).serialize(to)
}

/// Deeper values stay on one line: a list of ten thousand numbers would otherwise take as many lines.
const DEEPEST: usize = 2;

/// Returns a value as JSON text.
pub(super) fn to_text(value: &impl Serialize) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, JsonLayout::default());
    value.serialize(&mut serializer).expect("keys are texts, and writing to memory does not fail");
    String::from_utf8(text).expect("JSON is UTF-8")
}

#[derive(Default)]
struct JsonLayout {
    depth: usize,
    has_elements: bool,
}

impl JsonLayout {
    fn begin(&mut self, to: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_elements = false;
        to.write_all(bracket)
    }

    fn end(&mut self, to: &mut (impl Write + ?Sized), bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.has_elements && self.depth < DEEPEST {
            self.indent(to)?;
        }
        self.has_elements = true;
        to.write_all(bracket)
    }

    fn separate(&mut self, to: &mut (impl Write + ?Sized), is_first: bool) -> io::Result<()> {
        self.has_elements = true;
        match (is_first, self.depth <= DEEPEST) {
            (true, true) => self.indent(to),
            (true, false) => Ok(()),
            (false, true) => to.write_all(b",").and_then(|()| self.indent(to)),
            (false, false) => to.write_all(b", "),
        }
    }

    fn indent(&self, to: &mut (impl Write + ?Sized)) -> io::Result<()> {
        to.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| to.write_all(b"  "))
    }
}

impl Formatter for JsonLayout {
    fn begin_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.separate(to, first)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.begin(to, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        self.end(to, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
        self.separate(to, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

/// What the error says, whatever the cause is.
pub const NOT_A_REPORT: &str = "not a run report; give the JSON that `RunReport::to_json` writes";

/// A text is not a report as [`RunReport::to_json`](super::RunReport::to_json) writes it.
#[derive(thiserror::Error)]
#[error("{NOT_A_REPORT}")]
#[non_exhaustive]
pub struct ReportError {
    /// Where the text is wrong, and why.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

impl ReportError {
    pub(super) fn new(source: impl std::error::Error + Send + Sync + 'static) -> Self {
        ReportError { source: source.into() }
    }
}

debug_with_causes!(ReportError);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_are_a_line_for_each_element_and_what_is_deeper_stays_on_it() {
        let value = json!({
            "ok": 1,
            "none": [],
            "empty": {},
            "failures": [{"item": 3, "causes": ["a", "b"]}, {}],
            "timeline": {"bin": 0.5, "busy": [[1, 2], []]},
        });
        let text = to_text(&value);
        let expected = "\
{
  \"ok\": 1,
  \"none\": [],
  \"empty\": {},
  \"failures\": [
    {\"item\": 3, \"causes\": [\"a\", \"b\"]},
    {}
  ],
  \"timeline\": {
    \"bin\": 0.5,
    \"busy\": [[1, 2], []]
  }
}";
        assert_eq!(text, expected);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}
