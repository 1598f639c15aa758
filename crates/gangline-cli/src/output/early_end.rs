//! The jobs that were ended with a run, and the job after which `--halt` ended it.

use std::collections::BTreeSet;

use gangline::RunReport;
use gangline::report::conclusion::Halted;
use gangline::report::{IncidentKind, RetryOutcome};

/// Why a run ended early, and which jobs it ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct EarlyEnd {
    /// The value of `--halt`, and the job whose outcome has met it.
    pub(crate) halt: Option<(String, u64)>,
    /// The jobs that were ended with the run. None of them has failed.
    pub(crate) ended: BTreeSet<u64>,
}

impl EarlyEnd {
    /// Returns a report, whose jobs have their numbers, without the jobs that were ended with the run among its failures,
    /// and with what ended it. The account counts these jobs as cancelled.
    pub(crate) fn described(&self, mut report: RunReport) -> RunReport {
        let is_ended = |item: Option<u64>| item.is_some_and(|job| self.ended.contains(&job));
        let failures = std::mem::take(&mut report.failures);
        let (ended, failed): (Vec<_>, Vec<_>) =
            failures.into_iter().partition(|failure| is_ended(failure.item));
        report.failures = failed;
        let count = ended.len() as u64;
        report.account.failed = report.account.failed.saturating_sub(count);
        report.account.cancelled += count;
        for failure in &ended {
            let slot = failure.producer.and_then(|slot| report.producers.get_mut(slot));
            slot.into_iter().for_each(|slot| slot.failed = slot.failed.saturating_sub(1));
        }
        report.failures_undelivered.extend(ended);
        report.failures_undelivered.sort_by_key(|failure| failure.item);
        report.incidents.retain(|it| it.kind != IncidentKind::Failed || !is_ended(it.item));
        let retries = &mut report.retries;
        for retried in &mut retries.list {
            if is_ended(Some(retried.item)) && retried.outcome == RetryOutcome::Failed {
                retried.outcome = RetryOutcome::Unknown;
                retries.failed = retries.failed.saturating_sub(1);
            }
        }
        if let Some((halt, job)) = &self.halt {
            let (rule, failed) = (halt.clone(), report.account.failed);
            let mut findings = report.findings().clone();
            findings.halted = Some(Halted { rule, job: *job, failed, ended: count });
            report.conclude(findings);
            let settings = &mut report.provenance.settings;
            settings.insert("halt".to_owned(), halt.clone());
            settings.insert("halted_after".to_owned(), job.to_string());
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline::report::conclusion::{Conclusion, Limit};
    use gangline::report::{Failure, ProducerReport, Vocabulary};

    fn failure(job: u64) -> Failure {
        let mut failure = Failure::default();
        (failure.item, failure.producer) = (Some(job), Some(0));
        failure
    }

    #[test]
    fn a_job_that_was_ended_with_the_run_has_not_failed() {
        let mut report = RunReport::default();
        report.failures = vec![failure(16), failure(17), failure(18)];
        (report.account.ok, report.account.failed) = (15, 3);
        let mut slot = ProducerReport::default();
        slot.failed = 3;
        report.producers.push(slot);
        report.speak(Vocabulary::Jobs);
        let limit = Some(Limit::TooShort { items: 18 });
        report.conclude(Conclusion { limit, ..Conclusion::default() });
        let before = report.conclusion.clone();
        let halt = Some(("now,fail=1".to_owned(), 17));
        let report = EarlyEnd { halt, ended: [16, 18].into() }.described(report);
        let jobs = |failures: &[Failure]| failures.iter().map(|it| it.item).collect::<Vec<_>>();
        assert_eq!(jobs(&report.failures), [Some(17)]);
        assert_eq!(jobs(&report.failures_undelivered), [Some(16), Some(18)]);
        assert_eq!((report.account.failed, report.account.cancelled), (1, 2));
        assert_eq!(report.producers[0].failed, 1);
        let said = "Ended by --halt now,fail=1 after job 17: 1 failed, 2 ended with the run.";
        assert_eq!(report.conclusion, format!("{said} {before}"));
    }

    #[test]
    fn a_run_that_had_all_its_jobs_stays_as_it_is() {
        let mut report = RunReport::default();
        report.failures = vec![failure(1)];
        assert_eq!(EarlyEnd::default().described(report.clone()), report);
    }
}
