//! `testing::check_batches`: runners whose lists are wrong, each in a way of its own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gangline::error::OutOfMemory;
use gangline::testing::{
    AnsweredList, BatchCheck, BatchFault, BatchFaultKind, BatchLaw, BatchReport, LawState, ListEnd,
    check_batches,
};
use gangline::{ConsumerContext, ProducerContext, Result, Runner, map_batches};

/// Doubles numbers. 0 fails.
fn double(x: u64) -> Result<u64> {
    if x == 0 { Err("it is zero".into()) } else { Ok(2 * x) }
}

/// What a list becomes, if it becomes anything.
type List = Result<Vec<Result<u64>>>;

fn runner(list: impl Fn(&[u64]) -> List + Send + Sync) -> impl Runner<Input = u64, Output = u64> {
    map_batches(|_| Ok(()), move |_, (), inputs: &mut Vec<u64>| list(inputs))
}

#[track_caller]
fn held(list: impl Fn(&[u64]) -> List + Send + Sync, samples: &[u64]) -> BatchReport {
    check_batches(&runner(list), samples.iter().copied()).unwrap()
}

#[track_caller]
fn broken(list: impl Fn(&[u64]) -> List + Send + Sync, samples: &[u64]) -> BatchReport {
    check_batches(&runner(list), samples.iter().copied()).unwrap_err().report
}

/// What is broken, and the first fault.
fn first(report: &BatchReport) -> (Vec<BatchLaw>, &BatchFault) {
    let is_broken = |law: &BatchLaw| report.law(*law) == LawState::Broken;
    (BatchLaw::ALL.iter().copied().filter(is_broken).collect(), &report.faults[0])
}

#[test]
fn lists_with_the_answers_of_single_samples_hold() {
    let report = held(|list| Ok(list.iter().copied().map(double).collect()), &[1, 2, 0, 3]);
    for law in BatchLaw::ALL {
        assert_eq!(report.law(*law), LawState::Held, "{law:?}");
    }
    assert_eq!(report.failing, [(2, "it is zero".to_owned())]);
    let sizes: Vec<usize> = report.sizes.iter().map(|size| size.size).collect();
    assert_eq!(sizes, [1, 2, 4, 8, 16, 32]);
    assert!(report.sizes.iter().all(|size| size.lists >= 3 && size.least.is_some()));
}

#[test]
fn what_the_samples_cannot_show_is_not_checked() {
    let report = held(|list| Ok(list.iter().copied().map(double).collect()), &[1, 1]);
    assert_eq!(report.law(BatchLaw::Ordered), LawState::Unchecked);
    assert_eq!(report.law(BatchLaw::Contained), LawState::Unchecked);
    assert_eq!(report.law(BatchLaw::Equal), LawState::Held);
}

#[test]
fn another_answer_in_a_list_is_found() {
    let off_by_one = |list: &[u64]| {
        let more = u64::from(list.len() > 2);
        Ok(list.iter().map(|x| Ok(2 * x + 1_000 * more)).collect())
    };
    let report = broken(off_by_one, &[1, 2, 3]);
    let (laws, fault) = first(&report);
    assert_eq!((laws, fault.kind), (vec![BatchLaw::Equal], BatchFaultKind::Differs));
    assert_eq!((fault.sample, fault.size, &*fault.text), (0, 4, "2, then 1002"));
    assert!(report.advised() <= 2);
    let text = fault.to_string();
    assert_eq!(text, "sample 0 has another answer in a list of 4: 2, then 1002");
}

#[test]
fn a_lost_order_is_found() {
    let backwards = |list: &[u64]| Ok(list.iter().rev().copied().map(double).collect());
    let report = broken(backwards, &[1, 2, 0]);
    let (laws, fault) = first(&report);
    assert_eq!((laws, fault.kind), (vec![BatchLaw::Ordered], BatchFaultKind::Swapped { other: 1 }));
    assert_eq!(
        report.law(BatchLaw::Contained),
        LawState::Unchecked,
        "lists do not hold without it"
    );
    assert_eq!(report.advised(), 1);
}

#[test]
fn a_failing_sample_that_shifts_the_others_is_found() {
    let compacting = |list: &[u64]| {
        let (good, bad): (Vec<_>, Vec<_>) = list.iter().copied().partition(|x| *x > 0);
        Ok(good.into_iter().chain(bad).map(double).collect())
    };
    let report = broken(compacting, &[1, 2, 3, 0]);
    let (laws, fault) = first(&report);
    assert_eq!((laws, fault.beside), (vec![BatchLaw::Contained], Some(3)));
    assert_eq!((fault.sample, fault.kind), (3, BatchFaultKind::Passes));
    assert_eq!(report.advised(), 1, "the size does not matter");
}

#[test]
fn a_list_that_a_failing_sample_rejects_is_split() {
    let all_or_none =
        |list: &[u64]| list.iter().copied().map(double).map(|it| Ok(Ok(it?))).collect::<List>();
    assert_eq!(held(all_or_none, &[1, 0, 2]).law(BatchLaw::Contained), LawState::Held);
    let panicking = |list: &[u64]| {
        assert!(!list.contains(&0), "it is zero");
        Ok(list.iter().copied().map(double).collect())
    };
    assert_eq!(held(panicking, &[1, 0, 2]).law(BatchLaw::Contained), LawState::Held);
}

#[test]
fn a_list_that_fails_although_its_samples_do_not_is_found() {
    let small = |list: &[u64]| match list.len() {
        0..=4 => Ok(list.iter().copied().map(double).collect()),
        _ => Err("a shape of 4 is built in".into()),
    };
    let report = broken(small, &[1, 2]);
    let (laws, fault) = first(&report);
    assert_eq!((laws, fault.kind), (vec![BatchLaw::Equal], BatchFaultKind::ListFails));
    assert_eq!((fault.size, &*fault.text), (8, "a shape of 4 is built in"));
    let short = |list: &[u64]| Ok(list.iter().copied().take(3).map(double).collect());
    let report = broken(short, &[1, 2]);
    let fault = first(&report).1;
    assert_eq!((fault.kind, fault.size), (BatchFaultKind::Fails, 4));
    assert_eq!(fault.text, "3 outputs were given for 4 inputs");
}

#[test]
fn a_device_without_memory_ends_the_table() {
    let full = |list: &[u64]| match list.len() {
        0..=4 => Ok(list.iter().copied().map(double).collect()),
        _ => Err(OutOfMemory::new("no room").into()),
    };
    let report = held(full, &[1, 2]);
    let sizes: Vec<(usize, bool)> =
        report.sizes.iter().map(|size| (size.size, size.fits)).collect();
    assert_eq!(sizes, [(1, true), (2, true), (4, true), (8, false)]);
    assert!(report.advised() <= 4);
}

#[test]
fn answers_that_cannot_be_repeated_are_found() {
    let calls = AtomicU64::new(0);
    let count = move |list: &[u64]| {
        Ok(list.iter().map(|_| Ok(calls.fetch_add(1, Ordering::Relaxed))).collect())
    };
    let report = broken(count, &[1, 2]);
    assert_eq!(first(&report).0, [BatchLaw::Repeatable]);
    assert_eq!((report.sizes.len(), report.advised()), (0, 1));
}

#[test]
fn without_an_answer_nothing_holds() {
    let report = broken(|list| Ok(list.iter().copied().map(double).collect()), &[0, 0]);
    let (laws, fault) = first(&report);
    assert_eq!((laws, fault.kind), (vec![BatchLaw::Answered], BatchFaultKind::NoAnswer));
    assert_eq!(fault.text, "it is zero");
    let report = broken(|list| Ok(list.iter().copied().map(double).collect()), &[]);
    assert_eq!(first(&report).1.text, "there are no samples");
    let unready = map_batches(
        |_| Err::<(), _>("there is no model".into()),
        |_, (), xs: &mut Vec<u64>| Ok(xs.iter().map(|x| Ok(*x)).collect()),
    );
    let error = check_batches(&unready, [1]).unwrap_err();
    assert_eq!(error.report.faults[0].kind, BatchFaultKind::NotReady);
    assert!(error.to_string().contains("there is no model"), "{error}");
}

#[test]
fn numbers_are_compared_as_the_caller_says() {
    let noisy = map_batches(
        |_| Ok(()),
        |_, (), xs: &mut Vec<f64>| Ok(xs.iter().map(|x| Ok(x + 1e-9 * xs.len() as f64)).collect()),
    );
    assert!(check_batches(&noisy, [1.0]).is_err());
    let near = |a: &f64, b: &f64| ((a - b).abs() > 1e-6).then(|| format!("{a}, then {b}"));
    let report = BatchCheck::differing(near).up_to(6).run(&noisy, [1.0]).unwrap();
    assert_eq!(report.sizes.iter().map(|size| size.size).collect::<Vec<_>>(), [1, 2, 4, 6]);
}

#[test]
fn answers_from_elsewhere_have_to_be_as_many_as_the_samples() {
    let one = |list: &[usize]| {
        let end = ListEnd::Whole(Duration::from_millis(50));
        Ok(AnsweredList { answers: vec![Ok(list[0])], end })
    };
    let error = BatchCheck::new().ask(2, one).unwrap_err();
    assert_eq!(error.to_string(), "1 outputs were given for 2 inputs");
    let lost = |_: &[usize]| Err::<AnsweredList<u64>, _>("the server is gone".into());
    let error = BatchCheck::new().ask(2, lost).unwrap_err();
    assert_eq!(error.to_string(), "the server is gone");
}

/// A runner whose hook for one input is another than the one for lists.
struct Two {
    ended: AtomicU64,
}

impl Runner for Two {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), x: u64) -> Result<u64> {
        Ok(x)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        (): &mut (),
        inputs: &mut Vec<u64>,
    ) -> Result<Vec<Result<u64>>> {
        assert_eq!(cx.items().len(), inputs.len());
        Ok(inputs.drain(..).map(|x| Ok(x + 1)).collect())
    }

    fn producer_end(&self, _: &ProducerContext<'_>, (): ()) -> Result<()> {
        self.ended.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: u64) -> Result<()> {
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

#[test]
fn both_hooks_are_asked_and_the_state_is_ended() {
    let two = Two { ended: AtomicU64::new(0) };
    let report = check_batches(&two, [1, 5]).unwrap_err().report;
    assert_eq!((report.faults[0].kind, report.faults[0].size), (BatchFaultKind::Differs, 1));
    assert_eq!(two.ended.load(Ordering::Relaxed), 1);
}
