//! The sentence about what limited a run, with advice that names options of the program.

use std::time::Duration;

use gangline::RunReport;
use gangline::report::{Bottleneck, HumanDuration, Vocabulary};

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

/// Gives a report the words of the program. Advice that names options replaces the advice of the report, which
/// names calls of the library. The bottleneck stays the same. `starting` is the part of the slots' work in which
/// warm workers started.
pub(crate) fn advise(report: &mut RunReport, delivery: JobDelivery, starting: Duration) {
    report.vocabulary = Vocabulary::Jobs;
    let clause = of_starts(report, starting)
        .or_else(|| of_part(report, delivery))
        .or_else(|| of_waits(report))
        .or_else(|| of_jobs(report));
    let Some(clause) = clause else {
        // It gives no advice.
        report.conclusion = in_jobs(&report.conclusion);
        return;
    };
    // The report says first whether the run failed or was cancelled.
    let opening = match report.conclusion.split_once(", ") {
        Some((opening, _)) if opening.starts_with("Until it ") => format!("{opening}, {clause}."),
        _ => capitalised(&clause) + ".",
    };
    report.conclusion = opening;
}

/// The clause about a run whose slots spent most of their work on the start of warm workers.
fn of_starts(report: &RunReport, starting: Duration) -> Option<String> {
    let busy = report.producers.iter().map(|slot| slot.busy).sum::<f64>();
    let part = starting.as_secs_f64() / (busy * report.lasted.as_secs_f64());
    (report.bottleneck == Bottleneck::Producers && part > 0.5).then(|| {
        format!(
            "the start of the warm workers limited the run: it took {} of the time that the slots worked; put more \
             jobs into one run, or find out why workers end if they were started again",
            percent(part),
        )
    })
}

/// The clause about a run that its source, its jobs or its outputs limited.
fn of_part(report: &RunReport, delivery: JobDelivery) -> Option<String> {
    Some(match report.bottleneck {
        Bottleneck::Source => format!(
            "reading the inputs limited the run: it took {} of the time, and the slots had no job for {} of \
             it; read them from a file, or make the program before the pipe faster, since more slots would \
             only wait",
            share(report.source_working, report.lasted),
            waiting(report),
        ),
        Bottleneck::Producers => format!(
            "the jobs limited the run: the slots were busy {} of the time; use more slots (-j, --per-gpu) or \
             a faster device{}",
            busy(report),
            match delivery {
                JobDelivery::Process => ", and --warm if the program takes long to start",
                JobDelivery::Line => ", and --batch if the worker takes lists",
                JobDelivery::List => "",
            },
        ),
        Bottleneck::Consumer => format!(
            "writing the outputs limited the run: it took {} of the time; write them to a file, or keep them \
             with --results and send standard output to /dev/null, since more slots would only wait",
            share(report.consumer_working, report.lasted),
        ),
        Bottleneck::Mixed => format!(
            "no single part limited the run: reading the inputs took {} of the time, writing the outputs {}, \
             and the slots were busy {}",
            share(report.source_working, report.lasted),
            share(report.consumer_working, report.lasted),
            busy(report),
        ),
        _ => return None,
    })
}

/// The clause about a run that waits limited: for slow jobs, for retries, or for the last slot.
fn of_waits(report: &RunReport) -> Option<String> {
    Some(match report.bottleneck {
        Bottleneck::Window | Bottleneck::Head => format!(
            "the order of the outputs limited the run: they waited {} of the time for single slow jobs, and the \
             slots had no job for {} of it; print outputs as jobs end (--no-keep-order), or let more of them \
             wait (--window)",
            share(report.head_stalled, report.lasted),
            waiting(report),
        ),
        Bottleneck::Backoff => format!(
            "the waits before retries limited the run: the slots had no other jobs for {} of the time; find out \
             why jobs fail, or let retries wait for less time (--retry-delay)",
            waiting(report),
        ),
        Bottleneck::Uneven => format!(
            "uneven jobs limited the run: one slot worked to the end while the others were busy {} of the time \
             on average; put long jobs first",
            busy_of_others(report),
        ),
        _ => return None,
    })
}

/// The clause about a run that the number or the lists of its jobs limited, or its start.
fn of_jobs(report: &RunReport) -> Option<String> {
    Some(match report.bottleneck {
        Bottleneck::Splits => format!(
            "split lists limited the run: {} of {} failed as a whole, and took {} messages; send smaller lists \
             (--batch), or have the worker answer a bad input with an error of its own",
            report.splits.split, report.splits.batches, report.splits.calls,
        ),
        Bottleneck::TooFew => format!(
            "too few jobs limited the run: it had {} for {} slots, which were busy {} of the time; {}split them",
            report.account.ok + report.account.failed,
            report.producers.len(),
            busy(report),
            match report.account.ok + report.account.failed > report.producers.len() as u64 {
                true => "put long jobs first, or ",
                // All of them begin at once.
                false => "",
            },
        ),
        Bottleneck::StartUp => format!(
            "start-up limited the run: it took longer than the run of {}; put more jobs into one run",
            HumanDuration(report.lasted),
        ),
        _ => return None,
    })
}

fn in_jobs(text: &str) -> String {
    text.replace("item", "job").replace("producer", "slot")
}

fn capitalised(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(characters).collect()
}

fn busy(report: &RunReport) -> String {
    mean(report, |slot| slot.busy)
}

/// The mean of all slots but the busiest.
fn busy_of_others(report: &RunReport) -> String {
    let shares = report.producers.iter().map(|slot| slot.busy);
    let most = shares.clone().fold(0.0, f64::max);
    let others = report.producers.len().saturating_sub(1).max(1);
    percent((shares.sum::<f64>() - most) / others as f64)
}

fn waiting(report: &RunReport) -> String {
    let lasted = report.lasted.as_secs_f64().max(f64::MIN_POSITIVE);
    mean(report, |slot| slot.waiting.as_secs_f64() / lasted)
}

fn mean(report: &RunReport, of: impl Fn(&gangline::report::ProducerReport) -> f64) -> String {
    let sum: f64 = report.producers.iter().map(of).sum();
    percent(sum / report.producers.len().max(1) as f64)
}

fn share(of: Duration, whole: Duration) -> String {
    percent(of.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE))
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gangline::report::ProducerReport;

    fn report(bottleneck: Bottleneck, busy: &[f64]) -> RunReport {
        let mut report = RunReport::default();
        report.bottleneck = bottleneck;
        report.producers = busy
            .iter()
            .map(|&busy| {
                let mut slot = ProducerReport::default();
                slot.busy = busy;
                slot
            })
            .collect();
        report
    }

    #[test]
    fn the_busiest_slot_is_none_of_the_others() {
        for (busy, others) in [(&[0.5, 0.99, 0.3][..], "40 %"), (&[0.71, 0.75, 0.77, 0.95], "74 %")]
        {
            let mut report = report(Bottleneck::Uneven, busy);
            advise(&mut report, JobDelivery::Process, Duration::ZERO);
            assert!(
                report.conclusion.contains(&format!("busy {others} of")),
                "{}",
                report.conclusion
            );
        }
    }

    #[test]
    fn what_a_run_does_already_is_not_advised() {
        for (delivery, end) in [
            (JobDelivery::Process, "--warm if the program takes long to start."),
            (JobDelivery::Line, "--batch if the worker takes lists."),
            (JobDelivery::List, "or a faster device."),
        ] {
            let mut report = report(Bottleneck::Producers, &[1.0, 1.0]);
            advise(&mut report, delivery, Duration::ZERO);
            assert!(report.conclusion.ends_with(end), "{}", report.conclusion);
        }
    }

    #[test]
    fn a_start_of_workers_that_takes_most_of_the_time_is_named() {
        for (starting, is_named) in [(1.5, true), (0.9, false)] {
            let mut report = report(Bottleneck::Producers, &[0.5, 0.5]);
            report.lasted = Duration::from_secs(2);
            advise(&mut report, JobDelivery::Line, Duration::from_secs_f64(starting));
            let text = "The start of the warm workers limited the run: it took 75 % of";
            assert_eq!(report.conclusion.starts_with(text), is_named, "{}", report.conclusion);
        }
    }
}
