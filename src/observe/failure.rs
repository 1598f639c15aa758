//! An error as a failure: as text, so that it can be kept, sent and written down.

use std::error::Error as _;

use gangline_report::{BatchRange, Ending, Failure, RunReport, bounded};

use crate::base::panic::catch;
use crate::error::{Error, text_of};

const MOST_CAUSES: usize = 16;

/// Takes the texts of an error. The texts of causes come from the user's code.
pub(crate) fn failure_of(error: &Error) -> Failure {
    let mut failure = Failure::default();
    failure.item = error.item();
    if let Error::PartFailed { part, .. } = error {
        failure.parts = part.iter().copied().collect();
    }
    failure.key = error.key().map(str::to_owned);
    failure.producer = error.producer();
    failure.device = error.device().map(ToString::to_string);
    failure.host = error.host().map(str::to_owned);
    if let [first, .., last] = *error.items() {
        let mut batch = BatchRange::default();
        (batch.items, batch.first, batch.last) = (error.items().len() as u64, first, last);
        failure.batch = Some(batch);
    }
    failure.hook = error.hook().map(|hook| hook.to_string());
    failure.attempts = error.attempt().unwrap_or(1);
    failure.is_panic = error.is_panic();
    failure.happened = error.happened();
    failure.error = bounded(error.to_string());
    failure.causes = causes(error);
    failure.reason = error.reason().map(bounded);
    failure
}

/// States in a report how its run has ended. The text of the error is user code, which may panic.
pub(crate) fn end_with(report: &mut RunReport, error: Option<&Error>) {
    report.ending = match error {
        None => Ending::Finished,
        Some(error) if error.is_cancelled() => Ending::Cancelled,
        Some(_) => Ending::Failed,
    };
    report.error = error.map(|error| text_of(error).to_string());
    report.ended_by = error.map(|error| catch(|| failure_of(error)).unwrap_or_default());
}

fn causes(error: &Error) -> Vec<String> {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause.filter(|_| texts.len() < MOST_CAUSES) {
        texts.push(bounded(error.to_string()));
        cause = error.source();
    }
    texts
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::base::{Hook, Measure, PanicMessage};
    use crate::device::Device;
    use crate::error::Site;
    use gangline_report::{Ending, RunReport, TextStyle};

    #[test]
    fn a_text_without_end_is_cut_between_characters() {
        let source = "ä".repeat(100_000).into();
        let site = Box::new(Site { items: vec![7], ..Site::default() });
        let error = Error::HookFailed { hook: Hook::ProducerWork, site, source };
        let failure = failure_of(&error);
        assert_eq!(failure.item, Some(7));
        assert_eq!(failure.causes.len(), 1);
        assert!(failure.causes[0].len() <= 8 * 1_024, "{}", failure.causes[0].len());
        assert!(failure.causes[0].ends_with(" more bytes)"));
    }

    #[test]
    fn what_happened_is_said_once() {
        let site = |item| Box::new(Site { items: vec![item], ..at() });
        let limit = Duration::from_secs(1);
        let (work, key) = (Hook::ProducerWork, None);
        let timed_out = |item| Error::TimedOut { hook: work, site: site(item), limit };
        let panic = || PanicMessage::new("boom".to_owned());
        let part = |source| Error::PartFailed {
            item: 6,
            key: None,
            part: Some(2),
            source: Box::new(source),
        };
        let failed = Error::HookFailed { hook: work, site: site(6), source: "no disk".into() };
        let in_input = Error::InputFailed { item: 6, source: "no disk".into() };
        for (error, expected) in [
            (timed_out(6), "item 6 in producer_work on cpu: took longer than 1 s"),
            (
                Error::TimedOut { hook: Hook::ProducerInit, site: Box::new(at()), limit },
                "the run in producer_init on cpu: took longer than 1 s",
            ),
            (Error::RunTimedOut { limit }, "the run: took longer than 1 s"),
            (
                Error::DeadlineExceeded { limit, site: site(6) },
                "item 6 on cpu: was not answered within 1 s",
            ),
            (
                Error::DeadlineExceeded {
                    limit,
                    site: Box::new(Site { items: vec![6], ..Site::default() }),
                },
                "item 6: was not answered within 1 s",
            ),
            (part(timed_out(20)), "item 6, part 2 in producer_work on cpu: took longer than 1 s"),
            (
                Error::TooFewProducers { here: 0, least: 1, source: Some(Box::new(timed_out(6))) },
                "item 6 in producer_work on cpu: took longer than 1 s",
            ),
            (
                Error::BatchFailed { item: 6, first: 4, key: None, source: None },
                "item 6: failed in a batch with item 4",
            ),
            (
                Error::BatchFailed { item: 6, first: 6, key: None, source: Some(Arc::new(failed)) },
                "item 6 in producer_work on cpu: no disk",
            ),
            (
                Error::TooLarge { item: 6, measure: Measure::Cost, amount: 9, most: 5, key: None },
                "item 6: has a cost of 9; a batch may have 5 at most",
            ),
            (
                Error::MeasurePanicked { item: 6, measure: Measure::Cost, key, source: panic() },
                "item 6: measuring its cost panicked: boom",
            ),
            (Error::KeyPanicked { item: 6, source: panic() }, "item 6: its key panicked: boom"),
            (
                part(Error::GatherPanicked { source: panic() }),
                "item 6, part 2: gathering the parts panicked: boom",
            ),
            (in_input, "item 6 in input: no disk"),
        ] {
            assert_eq!(shown([failure_of(&error)]), [expected]);
        }
        let several = [6, 13].map(|item| failure_of(&timed_out(item)));
        assert_eq!(shown(several)[0], "2 items in producer_work on cpu: took longer than 1 s");
    }

    /// Returns the causes of failures as the text of a report shows them.
    fn shown(failures: impl Into<Vec<Failure>>) -> Vec<String> {
        let mut report = RunReport::default();
        (report.ending, report.failures) = (Ending::Finished, failures.into());
        let text = report.styled(TextStyle::plain().columns(200)).to_string();
        let lines = text.lines().skip_while(|line| *line != "failures:").skip(1);
        lines.take_while(|line| line.starts_with(' ')).map(|line| line.trim().to_owned()).collect()
    }

    /// A place on the CPU.
    fn at() -> Site {
        Site { device: Some(Device::Cpu), producer: Some(0), attempt: Some(1), ..Site::default() }
    }
}
