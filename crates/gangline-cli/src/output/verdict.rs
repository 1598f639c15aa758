//! What the program knows about the limit of a run beside the library: how jobs reach their command.

use gangline::RunReport;
use gangline::report::Vocabulary;
use gangline::report::conclusion::{Advice, Limit, ListSizes};

/// How a job reaches its command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobDelivery {
    /// The command is started for the job.
    Process,
    /// A warm worker gets the job as a line.
    Line,
    /// A warm worker gets the job in a list.
    List,
}

/// What a conclusion depends on beside the report of the library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobFacts {
    pub(crate) delivery: JobDelivery,
    /// The part of the library's window that running jobs take.
    pub(crate) running: usize,
    pub(crate) lists: Option<ListSizes>,
}

/// Gives a report the words of the program, and its conclusion what the program knows.
pub(crate) fn advise(report: &mut RunReport, facts: &JobFacts) {
    report.speak(Vocabulary::Jobs);
    let mut findings = report.findings().clone();
    findings.running = facts.running as u64;
    findings.lists = facts.lists;
    match findings.limit {
        // A slot has no state of its own: what it loads is a worker.
        Some(Limit::Loading { share }) => {
            findings.limit = Some(Limit::WorkerStarts { share });
            findings.advice = vec![Advice::MoreItems, Advice::WhyWorkersEnd];
        }
        Some(Limit::Producers { .. }) if findings.ended.is_none() => {
            findings.advice.extend(match facts.delivery {
                JobDelivery::Process => Some(Advice::WarmWorkers),
                JobDelivery::Line => Some(Advice::JobLists),
                JobDelivery::List => None,
            });
        }
        _ => {}
    }
    report.conclude(findings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline::report::conclusion::{Conclusion, Percent, PlaceKind, Team};

    /// A run of two seconds that this limited.
    fn concluded(delivery: JobDelivery, limit: Limit) -> String {
        let mut report = RunReport::default();
        report.conclude(Conclusion {
            lasted: 2.0,
            team: Team { all: 2, ..Team::default() },
            limit: Some(limit),
            advice: vec![Advice::MoreProducers { to: None, places: PlaceKind::Cpus }],
            ..Conclusion::default()
        });
        advise(&mut report, &JobFacts { delivery, running: 2, lists: None });
        report.conclusion
    }

    #[test]
    fn what_a_run_does_already_is_not_advised() {
        let said = "The jobs limited the run: the 2 slots worked 97 % of the time; use more slots (`-j`, `--per-gpu`) or \
                    faster devices";
        for (delivery, end) in [
            (JobDelivery::Process, ", or use `--warm` if the program takes long to start."),
            (JobDelivery::Line, ", or use `--batch` if the worker takes lists."),
            (JobDelivery::List, "."),
        ] {
            let busy = Limit::Producers { busy: Percent(0.97), rebuilding: Percent(0.0) };
            assert_eq!(concluded(delivery, busy), format!("{said}{end}"));
        }
    }

    #[test]
    fn a_start_of_workers_that_takes_long_is_named() {
        let text = "The start of the warm workers limited the run: it took 52 % of the time of the slots; ";
        let conclusion = concluded(JobDelivery::Line, Limit::Loading { share: Percent(0.52) });
        assert!(conclusion.starts_with(text), "{conclusion}");
    }
}
