//! What a random run must have come to.

use super::*;

pub(super) fn check(
    plan: &Plan,
    laws: &Laws,
    record: &Record,
    outcome: &Outcome,
    has_journal: bool,
) {
    let Outcome { seen, result, account } = outcome;
    let pulled = record.pulled.load(Ordering::Acquire);
    let resumes = has_journal && account.already_done > 0;
    check_items(plan, laws, seen, resumes);
    let sum = account.ok + account.failed + account.already_done + account.cancelled;
    let panicked = plan.inputs.panics_at.is_some_and(|at| at < pulled);
    // A feeder of its own may still be in `next` when the outputs have ended.
    let pulls =
        plan.consume == Consume::IntoOutputs && (plan.cancels() || !matches!(result, Some(Ok(()))));
    laws.check(
        "the account adds up",
        sum == pulled || (panicked || pulls) && sum + 1 == pulled,
        || format!("{account:?}, {pulled} pulled"),
    );
    let consumed = seen.iter().filter(|it| matches!(it, Seen::Consumed { .. })).count() as u64;
    let failed = seen.len() as u64 - consumed;
    laws.equal("ok is what was consumed", &account.ok, &consumed);
    laws.check("failed is at least what was skipped", account.failed >= failed, || {
        format!("{account:?}, {failed} skipped")
    });
    if plan.inputs.has_size && !panicked && !pulls {
        let unread = plan.items.len() as u64 - pulled;
        laws.equal("unread is what was not pulled", &account.unread, &Some(unread));
    }
    if let Some(window) = plan.settings.window
        && !has_journal
    {
        let most = record.most_in_flight.load(Ordering::Acquire);
        laws.check("bounded by the window", most <= window as u64, || {
            format!("{most} in flight, window {window}")
        });
    }
    let ends = record.consumer_ends.load(Ordering::Acquire);
    match result {
        None => {}
        Some(Ok(())) => {
            check_complete(plan, laws, outcome, pulled);
            if plan.consume.has_consumer() {
                laws.equal("consumer_end is called once", &ends, &1);
            }
        }
        Some(Err(error)) => {
            check_error(plan, laws, outcome, error, has_journal);
            let called =
                plan.settings.hooks.consumer_end && error.hook() == Some(Hook::ConsumerEnd);
            laws.equal("consumer_end is not called in a failed run", &ends, &u64::from(called));
        }
    }
}

/// Each item once, right, in order, and as its fault says.
pub(super) fn check_items(plan: &Plan, laws: &Laws, seen: &[Seen], resumes: bool) {
    let settings = &plan.settings;
    let xs: Vec<u64> = seen.iter().map(|it| it.x()).collect();
    let mut sorted = xs.clone();
    sorted.sort_unstable();
    let twice = sorted.windows(2).any(|two| two[0] == two[1]);
    laws.check("each item once", !twice, || format!("{xs:?}"));
    if settings.ordered && !resumes {
        laws.equal("ordered without gaps", &xs, &(0..xs.len() as u64).collect());
    }
    laws.check("ordered", !settings.ordered || xs == sorted, || format!("{xs:?}"));
    for it in seen {
        let Some(&fault) = plan.items.get(it.x() as usize) else {
            laws.check("each item is one of the input", false, || format!("{it:?}"));
            continue;
        };
        let fails = plan.inputs.fails_at == Some(it.x());
        let expected = if fails { Expected::Failed } else { settings.expected(fault) };
        let holds = match it {
            Seen::Consumed { right, .. } => *right && expected != Expected::Failed,
            Seen::Skipped { timeout, .. } => {
                expected != Expected::Ok || *timeout && settings.timeout == Timeout::Short
            }
        };
        laws.check("each item as in the plain loop", holds, || {
            format!("{it:?} of {fault:?}, expected {expected:?}")
        });
    }
}

/// A run that succeeded did all.
pub(super) fn check_complete(plan: &Plan, laws: &Laws, outcome: &Outcome, pulled: u64) {
    let Outcome { seen, account, .. } = outcome;
    let stopped = plan.consume.has_consumer()
        && seen.last().is_some_and(|it| {
            plan.items[it.x() as usize] == Fault::Stop && matches!(it, Seen::Consumed { .. })
        });
    let asked = matches!(plan.asks, Some(Ask::Drain(_)));
    let drained = asked || plan.inputs.drains_at.is_some_and(|at| at < pulled);
    let done = seen.len() as u64 + account.already_done;
    if !stopped {
        laws.equal("all that was pulled is done", &done, &pulled);
        laws.equal("nothing is cancelled", &account.cancelled, &0);
        let failed = seen.iter().filter(|it| matches!(it, Seen::Skipped { .. })).count() as u64;
        laws.equal("failed is what was skipped", &account.failed, &failed);
    }
    if !stopped && !drained {
        laws.equal("all is pulled", &pulled, &(plan.items.len() as u64));
    }
    if let Some(most) = plan.settings.max_failures {
        laws.check("max_failures", account.failed <= most, || format!("{account:?}, {most}"));
    }
    let cancelled = plan.inputs.cancels_at.is_some_and(|at| at + 1 < pulled);
    laws.check("a cancelled run fails", !cancelled || stopped, || format!("{account:?}"));
    let hooks = plan.settings.hooks;
    let hook = plan.consume.has_consumer() && (hooks.consumer_init || hooks.consumer_end);
    laws.check("a consumer's failure fails the run", !hook, String::new);
}

/// An error names an item and a cause that the plan has.
pub(super) fn check_error(
    plan: &Plan,
    laws: &Laws,
    outcome: &Outcome,
    error: &Error,
    has_journal: bool,
) {
    let settings = &plan.settings;
    let items = error.items();
    let consumes = plan.consume.has_consumer();
    let fault_of = |item: &u64| plan.items.get(*item as usize).copied();
    let can_fail = |item: &u64| {
        plan.inputs.fails_at == Some(*item)
            || fault_of(item).is_some_and(|fault| settings.expected(fault) != Expected::Ok)
            || error.is_timeout() && settings.timeout == Timeout::Short
    };
    let consumer_fails =
        |item: &u64| matches!(fault_of(item), Some(Fault::Consumer | Fault::ConsumerPanic));
    let holds = match error {
        Error::Cancelled { .. } => plan.cancels(),
        Error::InputPanicked { item, .. } => plan.inputs.panics_at == Some(*item),
        Error::InputFailed { item, .. } => plan.inputs.fails_at == Some(*item) && !settings.skips,
        Error::TooManyFailures { failed, .. } => {
            settings.max_failures.is_some_and(|most| *failed > most)
        }
        Error::TooFewProducers { .. } => settings.may_lose_too_many(),
        Error::HookFailed { hook, .. }
        | Error::HookPanicked { hook, .. }
        | Error::TimedOut { hook, .. } => match hook {
            Hook::ConsumerInit => settings.hooks.consumer_init,
            Hook::ConsumerEnd => settings.hooks.consumer_end,
            Hook::ConsumerWork => consumes && items.iter().all(consumer_fails),
            Hook::ProducerInit => settings.hooks.init > 0,
            Hook::ProducerEnd => false,
            _ => !settings.skips && !items.is_empty() && items.iter().any(can_fail),
        },
        _ => false,
    };
    laws.check("the error is one that the plan has", holds, || format!("{error:?}"));
    let has_place = !matches!(error, Error::TooManyFailures { .. } | Error::TooFewProducers { .. });
    if let (true, true, false, &[first, ..]) = (settings.ordered, has_place, has_journal, items) {
        let seen = outcome.seen.len() as u64;
        laws.equal("all before the failure is consumed, and no more", &seen, &first);
        laws.check("the failed item is counted", outcome.account.failed > 0, || {
            format!("{:?}", outcome.account)
        });
    }
}

/// A resumed run does what the first has not done.
pub(super) fn check_resumed(plan: &Plan, laws: &Laws, first: &Outcome, second: &Outcome) {
    let consumed = |outcome: &Outcome| -> Vec<u64> {
        let consumed = outcome.seen.iter().filter(|it| matches!(it, Seen::Consumed { .. }));
        consumed.map(|it| it.x()).collect()
    };
    let (done, again) = (consumed(first), consumed(second));
    let panicked = matches!(&first.result, Some(Err(error)) if error.is_panic());
    let twice: Vec<_> = again.iter().filter(|x| done.contains(x)).collect();
    laws.check("a resumed run repeats nothing", twice.is_empty() || panicked, || {
        format!("{twice:?} again")
    });
    if !panicked && second.account.already_done > 0 && matches!(second.result, Some(Ok(()))) {
        laws.equal(
            "already done is what the first run did",
            &second.account.already_done,
            &(done.len() as u64),
        );
    }
    if let Some(Ok(())) = second.result
        && !plan.items.contains(&Fault::Stop)
    {
        let all = second.seen.len() as u64 + second.account.already_done;
        laws.equal("a resumed run completes the first", &all, &(plan.items.len() as u64));
    }
}
