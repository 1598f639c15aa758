//! The accounts of a line's stages, and what the line reports of its last run.

use super::consume::SkippedItem;
use super::stage::StageEngine;
use crate::base::Order;
use crate::engine::link::{FeedCounts, LinkKind, Relayed};
use crate::error::Error;
use crate::observe::account::Account;
use crate::observe::report::RunReport;
use crate::observe::report::stages;
use crate::run::taken::Taken;

/// What a line keeps of its last run.
#[derive(Debug, Default)]
pub(crate) struct LineRun {
    has_begun: bool,
    account: Account,
    /// Beside the errors that the last stage keeps.
    skipped: Vec<SkipOrigin>,
}

/// The items of a run by outcome.
pub(super) struct Accounts {
    /// Of each stage.
    pub(super) stages: Vec<Account>,
    /// Of the input. Each stage gets the items that are ok in the one before; those between an expansion and its
    /// gathering get parts.
    pub(super) whole: Account,
}

/// Where an item was skipped.
#[derive(Debug, Clone, Copy)]
struct SkipOrigin {
    passed_on: usize,
    input: Option<u64>,
}

/// An item that a stage has skipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SkippedInStage<'a> {
    pub(crate) error: &'a Error,
    /// The number of the stage, from 0.
    pub(crate) stage: usize,
    /// The item's index in the input, if it is known.
    pub(crate) item: Option<u64>,
}

impl LineRun {
    pub(super) fn new(account: Account, skipped: &[SkippedItem]) -> Self {
        let origin =
            |item: &SkippedItem| SkipOrigin { passed_on: item.passed_on, input: item.input };
        let skipped = skipped.iter().map(origin).collect();
        LineRun { has_begun: true, account, skipped }
    }

    /// The account of the whole line.
    pub(super) fn account(&self) -> Account {
        self.account
    }

    /// The report of the whole line. Before its first run, its pools may have reports of other runs.
    pub(super) fn report(&self, engines: &[&dyn StageEngine]) -> RunReport {
        match self.has_begun {
            true => {
                stages::report(engines.iter().map(|stage| stage.part()).collect(), self.account())
            }
            false => RunReport::default(),
        }
    }

    /// The skipped items: `errors` are those of the last stage, and `orders` of all stages.
    pub(super) fn failures<'a>(
        &self,
        errors: &'a [Error],
        orders: &[Order],
    ) -> Vec<SkippedInStage<'a>> {
        let last = orders.len() - 1;
        let failure = |(error, origin): (&'a Error, &SkipOrigin)| {
            let stage = last.saturating_sub(origin.passed_on);
            let keeps_places = orders[..stage].iter().all(|order| *order == Order::Input);
            let item = if keeps_places { error.item() } else { None };
            SkippedInStage { error, stage, item: item.or(origin.input) }
        };
        errors.iter().zip(&self.skipped).map(failure).collect()
    }
}

/// The accounts of all stages. `given` is the input of the first, and `taken` the results of the last. Of
/// several failures, only the one that ended the run counts, in its own stage. Later stages received it as
/// passed on; other failures before it had no effect.
pub(super) fn accounts(given: FeedCounts, relayed: &[Relayed], taken: Taken) -> Accounts {
    let input = given;
    let given = [given].into_iter().chain(relayed.iter().map(|relayed| relayed.given));
    let taken = relayed.iter().map(|relayed| relayed.taken).chain([taken]);
    let flows: Vec<_> = given.zip(taken).collect();
    let depths = depths(relayed);
    let mut stands = true;
    // Of a failure among parts, the input has one item that failed.
    let mut parts_failure = false;
    let mut stages = Vec::with_capacity(flows.len());
    for (&(given, taken), &depth) in flows.iter().zip(&depths).rev() {
        let failure = taken.failure.filter(|_| stands);
        let own = failure.filter(|failure| given.passed_on != Some(failure.seq));
        stands = failure.is_some() && own.is_none();
        parts_failure |= depth > 0 && own.is_some_and(|failure| failure.items > 0);
        let failed = taken.skipped + own.map_or(0, |failure| failure.items);
        stages.push(Account::new(given.items, taken.ok, failed, taken.already_done, given.unread));
    }
    stages.reverse();
    let outside = || stages.iter().zip(&depths).filter(|(_, depth)| **depth == 0);
    let gathered = relayed.iter().zip(&depths[1..]).filter(|(_, depth)| **depth == 0);
    let failed = outside().map(|(stage, _)| stage.failed).sum::<u64>()
        + gathered.map(|(relayed, _)| relayed.parents_failed).sum::<u64>()
        + u64::from(parts_failure);
    let done = outside().map(|(stage, _)| stage.already_done).sum();
    let ok = stages.last().map_or(0, |last| last.ok);
    let whole = Account::new(input.items, ok, failed, done, input.unread);
    Accounts { stages, whole }
}

/// For each stage, how many expansions are open there.
fn depths(relayed: &[Relayed]) -> Vec<usize> {
    let mut depths = vec![0];
    let mut depth = 0;
    for relayed in relayed {
        match relayed.kind {
            LinkKind::Direct => {}
            LinkKind::Expands => depth += 1,
            LinkKind::Gathers => depth -= 1,
        }
        depths.push(depth);
    }
    depths
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::run::taken::RunFailure;

    fn given(items: u64, passed_on: Option<u64>) -> FeedCounts {
        FeedCounts { items, unread: None, passed_on }
    }

    fn taken(ok: u64, failure: Option<(u64, u64)>) -> Taken {
        let failure = failure.map(|(seq, items)| RunFailure { seq, items });
        Taken { ok, failure, ..Taken::default() }
    }

    fn direct(taken: Taken, given: FeedCounts) -> Relayed {
        Relayed { taken, given, ..Relayed::default() }
    }

    /// For each stage: ok, failed, cancelled.
    fn counts(first: FeedCounts, relayed: &[Relayed], last: Taken) -> Vec<(u64, u64, u64)> {
        let accounts = accounts(first, relayed, last);
        accounts
            .stages
            .iter()
            .map(|account| (account.ok, account.failed, account.cancelled))
            .collect()
    }

    #[test]
    fn all_that_was_given_was_taken() {
        let relayed = [direct(taken(5, None), given(5, None)); 2];
        let counts = counts(given(5, None), &relayed, taken(5, None));
        assert_eq!(counts, [(5, 0, 0); 3]);
    }

    /// A batch of three items fails in the first stage.
    #[test]
    fn a_failure_counts_in_its_own_stage() {
        let relayed = [
            direct(taken(4, Some((4, 3))), given(4, Some(4))),
            direct(taken(4, Some((4, 1))), given(4, Some(4))),
        ];
        let counts = counts(given(9, None), &relayed, taken(4, Some((4, 1))));
        assert_eq!(counts, [(4, 3, 2), (4, 0, 0), (4, 0, 0)]);
    }

    #[test]
    fn a_failure_that_another_came_before_is_of_no_effect() {
        let relayed = [
            direct(taken(6, Some((6, 1))), given(6, Some(6))),
            direct(taken(2, Some((2, 1))), given(2, Some(2))),
        ];
        let counts = counts(given(8, None), &relayed, taken(2, Some((2, 1))));
        assert_eq!(counts, [(6, 0, 2), (2, 1, 3), (2, 0, 0)]);
    }

    #[test]
    fn a_run_that_was_stopped_has_no_failure() {
        let relayed = [direct(taken(6, Some((6, 1))), given(6, Some(6)))];
        let counts = counts(given(8, None), &relayed, taken(3, None));
        assert_eq!(counts, [(6, 0, 2), (3, 0, 3)]);
    }

    /// Three images of ten tiles. A tile of the second is skipped, and that image with it.
    #[test]
    fn the_input_is_counted_in_parents() {
        let expands =
            Relayed { kind: LinkKind::Expands, ..direct(taken(3, None), given(30, None)) };
        let gathered = Taken { skipped: 1, ..taken(29, None) };
        let gathers = Relayed {
            kind: LinkKind::Gathers,
            parents_failed: 1,
            ..direct(gathered, given(2, None))
        };
        let whole = accounts(given(3, None), &[expands, gathers], taken(2, None)).whole;
        assert_eq!((whole.ok, whole.failed, whole.cancelled), (2, 1, 0));
    }

    /// A batch of four tiles ends the run in the second image.
    #[test]
    fn a_failure_among_parts_is_one_of_the_input() {
        let expands =
            Relayed { kind: LinkKind::Expands, ..direct(taken(3, None), given(30, None)) };
        let gathers = Relayed {
            kind: LinkKind::Gathers,
            ..direct(taken(12, Some((12, 4))), given(1, Some(1)))
        };
        let whole = accounts(given(3, None), &[expands, gathers], taken(1, Some((1, 1)))).whole;
        assert_eq!((whole.ok, whole.failed, whole.cancelled), (1, 1, 1));
    }
}
