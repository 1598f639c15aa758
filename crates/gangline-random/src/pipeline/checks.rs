//! What a run of a random pipeline must have come to.

use super::*;

impl Run<'_> {
    pub(super) fn check(&self, plan: &Plan, came: &Came) {
        let laws = self.laws;
        let Came { consumed, account, pulled, .. } = came;
        self.check_items(plan, came);
        let resumes = account.already_done > 0;
        let sum = account.ok + account.failed + account.already_done + account.cancelled;
        let panicked = plan.input_panics_at.is_some_and(|at| at < *pulled);
        laws.check("the account adds up", sum == *pulled || panicked && sum + 1 == *pulled, || {
            format!("{account:?}, {pulled} pulled")
        });
        laws.equal("ok is what was consumed", &account.ok, &(consumed.len() as u64));
        let is_last_skipped = plan.way.gives_outputs();
        match &came.result {
            None => {}
            Some(Err(error))
                if is_last_skipped && plan.used().all(|it| it.skips) && skips(error) =>
            {
                self.check_complete(plan, came, resumes);
            }
            Some(Ok(())) => self.check_complete(plan, came, resumes),
            Some(Err(error)) => {
                let holds = match error {
                    Error::Cancelled { .. } => plan.cancels(),
                    error
                        if error.is_input()
                            && error.is_panic()
                            && !matches!(error, Error::PartFailed { .. }) =>
                    {
                        plan.input_panics_at == error.item()
                    }
                    error => plan.may_stop() && format!("{error:#}").contains("fault of"),
                };
                laws.check("the error is one that the plan has", holds, || format!("{error:#}"));
            }
        }
        if plan.used().all(|stage| stage.retries == 0 && !stage.speculate && !stage.quarantine) {
            let windows: usize = plan.used().map(|stage| stage.window + 1).sum();
            let most = windows + plan.open[0] + plan.open[1];
            laws.check(
                "bounded by windows and open parents",
                self.record.values.most() <= most as i64,
                || format!("{} values lived at once, bound {most}", self.record.values.most()),
            );
        }
    }

    pub(super) fn check_items(&self, plan: &Plan, came: &Came) {
        let laws = self.laws;
        let roots: Vec<u64> = came.consumed.iter().map(|(root, _)| *root).collect();
        let mut sorted = roots.clone();
        sorted.sort_unstable();
        laws.check("each item once", sorted.windows(2).all(|two| two[0] != two[1]), || {
            format!("{roots:?}")
        });
        if plan.is_ordered() {
            laws.equal("ordered", &roots, &sorted);
            let last = roots.last().map_or(0, |root| root + 1);
            let mut missed = (0..last).filter(|root| {
                matches!(plan.expected(*root), Outcome::Value(_)) && !roots.contains(root)
            });
            let resumes = came.account.already_done > 0;
            let missed = missed.next();
            laws.check("ordered without gaps", missed.is_none() || resumes, || {
                format!("{missed:?} of {roots:?}")
            });
        }
        for &(root, x) in &came.consumed {
            let expected = plan.expected(root);
            let holds = expected == Outcome::Value(x) || expected == Outcome::Unknown;
            laws.check("each item as in the plain loop", holds, || {
                format!("{root}: {x}, expected {expected:?}")
            });
        }
    }

    pub(super) fn check_complete(&self, plan: &Plan, came: &Came, resumes: bool) {
        let (laws, Came { account, pulled, .. }) = (self.laws, came);
        if !plan.drains() {
            laws.equal("all is pulled", pulled, &plan.parents);
        }
        laws.equal("nothing is cancelled", &account.cancelled, &0);
        let cancelled = plan.cancels_at.is_some_and(|at| at + 1 < *pulled);
        laws.check("a cancelled run fails", !cancelled, || format!("{account:?}"));
        let expected: Vec<Outcome> = (0..*pulled).map(|root| plan.expected(root)).collect();
        let fails = |outcome| expected.iter().filter(|it| **it == outcome).count() as u64;
        let (least, unknown) = (fails(Outcome::Fails), fails(Outcome::Unknown));
        if !resumes {
            let most = least + unknown;
            laws.check(
                "failed is what fails in the plain loop",
                (least..=most).contains(&account.failed),
                || format!("{account:?}, expected {least} to {most}"),
            );
        }
        laws.check(
            "a failure is skipped only where the policy says so",
            least == 0 || !plan.way.gives_outputs() || account.failed > 0,
            String::new,
        );
    }
}

/// A resumed run does what the first has not done.
pub(super) fn check_resumed(plan: &Plan, laws: &Laws, first: &Came, second: &Came) {
    let done: Vec<u64> = first.consumed.iter().map(|(root, _)| *root).collect();
    let twice: Vec<_> = second.consumed.iter().filter(|(root, _)| done.contains(root)).collect();
    laws.check("a resumed run repeats nothing", twice.is_empty(), || format!("{twice:?} again"));
    if let Some(Ok(())) = second.result {
        laws.equal(
            "already done is what the first run did",
            &second.account.already_done,
            &(done.len() as u64),
        );
        let missed = (0..plan.parents).find(|root| {
            matches!(plan.expected(*root), Outcome::Value(_))
                && !done.contains(root)
                && !second.consumed.iter().any(|(other, _)| other == root)
        });
        laws.equal("a resumed run completes the first", &missed, &None);
    }
}
