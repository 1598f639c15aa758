//! What the program knows about the limit of a run beside the library: how jobs reach their command.

use std::time::Duration;

use gangline::RunReport;
use gangline::report::Vocabulary;
use gangline::report::conclusion::{Advice, Limit, ListSizes, Percent};

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
    /// The part of the slots' work in which warm workers started.
    pub(crate) starting: Duration,
    pub(crate) lists: Option<ListSizes>,
}

/// The share of the slots' work from which the start of warm workers limits a run.
const LEAST_STARTING: f64 = 0.5;

/// Gives a report the words of the program, and its conclusion what the program knows.
pub(crate) fn advise(report: &mut RunReport, facts: &JobFacts) {
    report.speak(Vocabulary::Jobs);
    let mut findings = report.findings().clone();
    findings.running = facts.running as u64;
    findings.lists = facts.lists;
    if let Some(Limit::Producers { .. }) = findings.limit {
        let busy = report.producers.iter().map(|slot| slot.busy).sum::<f64>();
        let share = facts.starting.as_secs_f64() / (busy * report.lasted.as_secs_f64());
        if share > LEAST_STARTING {
            findings.limit = Some(Limit::WorkerStarts { share: Percent(share.min(1.0)) });
            findings.advice = vec![Advice::MoreItems, Advice::WhyWorkersEnd];
        } else if findings.ended.is_none() {
            findings.advice.extend(match facts.delivery {
                JobDelivery::Process => Some(Advice::WarmWorkers),
                JobDelivery::Line => Some(Advice::JobLists),
                JobDelivery::List => None,
            });
        }
    }
    report.conclude(findings);
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline::report::ProducerReport;
    use gangline::report::conclusion::{Conclusion, PlaceKind, Team};

    /// A run of two seconds that two slots limited.
    fn concluded(delivery: JobDelivery, starting: f64) -> String {
        let mut report = RunReport::default();
        report.lasted = Duration::from_secs(2);
        let mut slot = ProducerReport::default();
        slot.busy = 0.5;
        report.producers = vec![slot.clone(), slot];
        report.conclude(Conclusion {
            lasted: 2.0,
            team: Team { all: 2, ..Team::default() },
            limit: Some(Limit::Producers { busy: Percent(0.97), rebuilding: Percent(0.0) }),
            advice: vec![Advice::MoreProducers { to: None, places: PlaceKind::Cpus }],
            ..Conclusion::default()
        });
        let starting = Duration::from_secs_f64(starting);
        advise(&mut report, &JobFacts { delivery, running: 2, starting, lists: None });
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
            assert_eq!(concluded(delivery, 0.0), format!("{said}{end}"));
        }
    }

    #[test]
    fn a_start_of_workers_that_takes_most_of_the_time_is_named() {
        let text = "The start of the warm workers limited the run: it took 75 % of";
        for (starting, is_named) in [(1.5, true), (0.9, false)] {
            let conclusion = concluded(JobDelivery::Line, starting);
            assert_eq!(conclusion.starts_with(text), is_named, "{conclusion}");
        }
    }
}
