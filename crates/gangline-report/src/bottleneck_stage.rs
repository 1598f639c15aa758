//! The stage of a pipeline that limited its run.

use super::advice::Advice;
use super::bottleneck::{
    CLOSE, LEAST_WAIT, MOST, TimeShares, decided_early, has_ended_early, has_few, is_short,
    too_short,
};
use super::conclusion::{Bottleneck, BusyPart, Conclusion, Limit, PartKind, Percent, StagePlace};
use super::run_report::{RunReport, StageReport};

/// A stage, with the shares of its time.
struct StageShares<'a> {
    name: &'a str,
    run: &'a RunReport,
    shares: TimeShares,
}

/// A part of a pipeline that works: its share of the time.
#[derive(Clone, Copy)]
struct WorkingPart {
    stage: usize,
    bottleneck: Bottleneck,
    share: f64,
}

/// Decides which stage limited a run, and what to change there. Returns the number of the stage too, from 1; `None` if no
/// stage stands out. `whole` is the run of all stages as one.
///
/// The part that works all the time sets the pace, as in a single run: the source, the producers of a stage,
/// or the consumer. If there is none, the cause is a stage where producers
/// waited for a reason of its own.
pub(super) fn decide<'a>(
    stages: &'a [StageReport],
    whole: &RunReport,
) -> (Conclusion, Option<usize>) {
    let stage = |StageReport { name, report: run }: &'a StageReport| {
        let shares = TimeShares::of(run).without_neighbours();
        StageShares { name, run, shares }
    };
    let stages: Vec<StageShares<'_>> = stages.iter().map(stage).collect();
    if let Some(conclusion) = decided_early(whole) {
        return (conclusion, None);
    }
    let mut parts = parts(&stages);
    parts.sort_by(|one, other| other.share.total_cmp(&one.share));
    let limiting = match parts[0] {
        _ if is_short(whole) => None,
        busiest if busiest.share >= MOST => {
            let bottleneck = stages[busiest.stage].shares.if_they_wait(busiest.bottleneck);
            Some(WorkingPart { bottleneck, ..busiest })
        }
        _ => own_cause(&stages),
    };
    let limiting = limiting.and_then(|part| in_spite_of_few(part, &stages[part.stage], whole));
    let Some(WorkingPart { stage, bottleneck, .. }) = limiting else {
        let are_few = stages.iter().all(|stage| has_few(stage.run));
        let conclusion = match are_few || is_short(whole) {
            true => too_short(whole),
            false => mixed(&stages, &parts, whole),
        };
        return (conclusion, None);
    };
    let StageShares { run, shares, name } = &stages[stage];
    let Conclusion { earlier, ended, lasted, .. } = Conclusion::begun(whole);
    let (name, number) = ((*name).to_owned(), stage + 1);
    let conclusion = Conclusion {
        earlier,
        ended,
        lasted,
        stage: Some(StagePlace { name, number, all: stages.len() }),
        second: second(&stages, &parts),
        ..Conclusion::of(bottleneck, shares, run)
    };
    (conclusion, Some(number))
}

/// What limited the run, if its stage had few items for its own producers. `None` if that is not known.
fn in_spite_of_few(
    part: WorkingPart,
    stage: &StageShares<'_>,
    whole: &RunReport,
) -> Option<WorkingPart> {
    if !has_few(stage.run) {
        return Some(part);
    }
    let bottleneck = match has_ended_early(whole) {
        true => Bottleneck::Unknown,
        false => stage.shares.limit_of_few(part.bottleneck, stage.run),
    };
    (bottleneck != Bottleneck::Unknown).then_some(WorkingPart { bottleneck, ..part })
}

/// The working parts. Of equals, a stable sort keeps the one downstream first, since the others wait for it.
fn parts(stages: &[StageShares<'_>]) -> Vec<WorkingPart> {
    let part = |stage, bottleneck, share| WorkingPart { stage, bottleneck, share };
    let last = stages.len() - 1;
    let mut parts = vec![part(last, Bottleneck::Consumer, stages[last].shares.consumer)];
    for (number, stage) in stages.iter().enumerate().rev() {
        parts.push(part(number, Bottleneck::Producers, stage.shares.at_work()));
    }
    parts.push(part(0, Bottleneck::Source, stages[0].shares.source));
    parts
}

/// The busiest of the stages that have a reason of their own to wait.
fn own_cause(stages: &[StageShares<'_>]) -> Option<WorkingPart> {
    let cause = |(number, stage): (usize, &StageShares<'_>)| {
        let bottleneck = stage.shares.reason_to_wait()?;
        Some(WorkingPart { stage: number, bottleneck, share: stage.shares.at_work() })
    };
    let causes = stages.iter().enumerate().filter_map(cause);
    causes.max_by(|one, other| one.share.total_cmp(&other.share))
}

/// The second busiest part if it is about as busy.
fn second(stages: &[StageShares<'_>], parts: &[WorkingPart]) -> Option<BusyPart> {
    match parts {
        [first, second, ..] if second.share >= MOST && first.share - second.share <= CLOSE => {
            Some(named(stages, second))
        }
        _ => None,
    }
}

fn named(stages: &[StageShares<'_>], part: &WorkingPart) -> BusyPart {
    let (kind, stage) = match part.bottleneck {
        Bottleneck::Source => (PartKind::Source, None),
        Bottleneck::Consumer => (PartKind::Consumer, None),
        _ => (PartKind::Producers, Some(stages[part.stage].name.to_owned())),
    };
    BusyPart { part: kind, share: Percent(part.share), stage }
}

fn mixed(stages: &[StageShares<'_>], parts: &[WorkingPart], whole: &RunReport) -> Conclusion {
    let is_full = stages.iter().any(|stage| stage.shares.full >= LEAST_WAIT);
    Conclusion {
        limit: Some(Limit::MixedStages {
            parts: parts.iter().map(|it| named(stages, it)).collect(),
        }),
        advice: if is_full { vec![Advice::LargerWindow] } else { vec![] },
        ..Conclusion::begun(whole)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::account::{Account, Ending};
    use crate::account::{Destination, Origin};
    use crate::producer_report::ProducerReport;
    use crate::stages::{self, StagePart};

    /// A stage of a run of 10 s: the share that its two producers worked.
    fn stage(working: f64) -> RunReport {
        let share = |share: f64| Duration::from_secs_f64(10.0 * share);
        let producer = || ProducerReport {
            place: "cpu".to_owned(),
            working: share(working),
            waiting: share(1.0 - working),
            ..ProducerReport::default()
        };
        RunReport {
            account: Account { ok: 1_000, ..Account::default() },
            ending: Ending::Finished,
            lasted: share(1.0),
            window: 64,
            producers: vec![producer(), producer()],
            ..RunReport::default()
        }
    }

    /// Three stages; what lies before and after each is at work all the time, as it is beside a slow stage.
    fn row(working: [f64; 3]) -> [RunReport; 3] {
        let mut row = working.map(stage);
        for later in &mut row[1..] {
            later.origin = Origin::StageBefore;
            later.source_working = Duration::from_secs(10);
        }
        for earlier in &mut row[..2] {
            earlier.destination = Destination::NextStage;
            earlier.consumer_working = Duration::from_secs(10);
        }
        row
    }

    fn decided(row: [RunReport; 3], account: Account) -> RunReport {
        let names = [Some("decode".to_owned()), None, Some("write".to_owned())];
        let part = |(name, report)| StagePart { name, report };
        stages::report(names.into_iter().zip(row).map(part).collect(), account)
    }

    fn of(row: [RunReport; 3]) -> (Option<usize>, Bottleneck, String) {
        let whole = decided(row, Account { ok: 1_000, ..Account::default() });
        (whole.bottleneck_stage, whole.bottleneck, whole.conclusion)
    }

    #[test]
    fn the_stage_that_works_all_the_time_limited_the_run() {
        for slow in 0..3 {
            let mut working = [0.3; 3];
            working[slow] = 0.97;
            let (stage, bottleneck, sentence) = of(row(working));
            assert_eq!((stage, bottleneck), (Some(slow + 1), Bottleneck::Producers));
            let place =
                ["\"decode\" (stage 1 of 3)", "stage 2 of 3", "\"write\" (stage 3 of 3)"][slow];
            let expected =
                format!("In {place} the producers limited the run: the 2 producers worked 97 %");
            assert!(sentence.starts_with(&expected), "{sentence}");
            assert!(sentence.contains("use more producers"), "{sentence}");
        }
    }

    #[test]
    fn the_source_is_that_of_the_first_stage_and_the_consumer_that_of_the_last() {
        let mut slow = row([0.2; 3]);
        slow[0].source_working = Duration::from_secs(9);
        let (stage, bottleneck, sentence) = of(slow);
        assert_eq!((stage, bottleneck), (Some(1), Bottleneck::Source), "{sentence}");
        let mut slow = row([0.2; 3]);
        slow[2].consumer_working = Duration::from_secs(9);
        let (stage, bottleneck, sentence) = of(slow);
        assert_eq!((stage, bottleneck), (Some(3), Bottleneck::Consumer), "{sentence}");
    }

    #[test]
    fn a_stage_that_is_about_as_busy_is_named_too() {
        let (stage, _, sentence) = of(row([0.2, 0.95, 0.9]));
        assert_eq!(stage, Some(2));
        let says =
            "97 % of the time, closely followed by the producers of \"write\" (90 %); use more";
        assert!(sentence.contains(&says.replace("97", "95")), "{sentence}");
    }

    #[test]
    fn a_stage_that_waits_for_its_own_backoff_limited_the_run() {
        let mut row = row([0.2, 0.3, 0.2]);
        row[1]
            .producers
            .iter_mut()
            .for_each(|producer| producer.backing_off = Duration::from_secs(6));
        let (stage, bottleneck, sentence) = of(row);
        assert_eq!((stage, bottleneck), (Some(2), Bottleneck::Backoff));
        assert!(sentence.starts_with("In stage 2 of 3 the backoff before retries"), "{sentence}");
    }

    #[test]
    fn stages_that_are_slow_in_turns_limit_no_run() {
        let (stage, bottleneck, sentence) = of(row([0.5, 0.6, 0.4]));
        assert_eq!((stage, bottleneck), (None, Bottleneck::Mixed));
        assert!(
            sentence.contains("the producers of \"stage 2\" (60 %), the producers of \"decode\""),
            "{sentence}"
        );
    }

    #[test]
    fn items_are_few_or_many_for_the_producers_of_one_stage() {
        let of = |row: [RunReport; 3], ok: [u64; 3]| {
            let mut row = row;
            for (stage, ok) in row.iter_mut().zip(ok) {
                stage.account.ok = ok;
            }
            let whole = decided(row, Account { ok: ok[0], ..Account::default() });
            (whole.bottleneck_stage, whole.bottleneck, whole.conclusion)
        };
        // Four items are enough for two producers, though not for the six of all stages.
        let (stage, bottleneck, sentence) = of(row([0.3, 0.97, 0.3]), [4; 3]);
        assert_eq!((stage, bottleneck), (Some(2), Bottleneck::Producers), "{sentence}");
        let (stage, bottleneck, sentence) = of(row([0.3, 0.97, 0.3]), [3; 3]);
        assert_eq!((stage, bottleneck), (Some(2), Bottleneck::TooFew));
        let says = "In stage 2 of 3 too few items limited the run: it had 3 items for 2 producers";
        assert!(sentence.starts_with(says), "{sentence}");
        // One item had many parts in the second stage.
        let (stage, bottleneck, sentence) = of(row([0.1, 0.97, 0.3]), [1, 500, 500]);
        assert_eq!((stage, bottleneck), (Some(2), Bottleneck::Producers), "{sentence}");
        let (stage, bottleneck, sentence) = of(row([0.3; 3]), [3; 3]);
        assert_eq!((stage, bottleneck), (None, Bottleneck::Unknown));
        assert!(sentence.contains("3 items for 6 producers"), "{sentence}");
    }

    #[test]
    fn what_an_earlier_run_had_done_is_said_first() {
        let account = Account { ok: 900, already_done: 100, ..Account::default() };
        let sentence = decided(row([0.2, 0.97, 0.3]), account).conclusion;
        let says =
            "An earlier run had already done 100 of 1,000 items. In stage 2 of 3 the producers";
        assert!(sentence.starts_with(says), "{sentence}");
    }
}
