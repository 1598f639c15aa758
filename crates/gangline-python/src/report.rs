//! Reports of the library, in the words of the package.

use gangline::RunReport;
use gangline::report::Vocabulary;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What happened, at the time when it was asked for.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativeReport(RunReport);

impl NativeReport {
    pub(crate) fn new(mut report: RunReport) -> Self {
        if report.vocabulary() == Vocabulary::Items {
            report.speak(Vocabulary::Workers);
        }
        NativeReport(report)
    }
}

#[pymethods]
impl NativeReport {
    /// Reads what `json` has returned.
    #[staticmethod]
    fn of_json(text: &str) -> PyResult<Self> {
        let report = RunReport::from_json(text);
        report.map(NativeReport::new).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The report for a terminal.
    fn text(&self) -> String {
        self.0.to_string()
    }

    /// The report as a page.
    fn html(&self) -> String {
        self.0.to_html()
    }

    /// The main parts of the page as one element.
    fn html_summary(&self) -> String {
        self.0.to_html_summary()
    }

    fn json(&self) -> String {
        self.0.to_json()
    }

    /// The names and the reports of the stages of a pipeline.
    fn stages(&self) -> Vec<(String, NativeReport)> {
        let stages = self.0.stages.iter();
        stages.map(|stage| (stage.name.clone(), NativeReport(stage.report.clone()))).collect()
    }
}
