//! What a pipeline reports of its stages.

use serde_json::Value;

use super::consuming::SkippedItem;
use super::run_journal::as_json;
use super::run_session::Session;
use super::session::Engine;
use crate::base::Order;
use crate::concurrency::lock;
use crate::error::Error;
use crate::observe::account::Account;
use crate::observe::report::RunReport;
use crate::observe::report::stages::{self, StagePart};
use crate::runner::Runner;

/// The engine of a stage, whatever its items are.
pub(super) trait StageEngine {
    fn order(&self) -> Order;
    fn part(&self) -> StagePart;
    /// The name that the builder was given.
    fn name(&self) -> Option<&str>;
    /// The configuration as JSON. Fails if the stage cannot take part in a run.
    fn check(&self) -> Result<Value, Error>;
    /// Fails if the stage has a journal.
    fn check_no_journal(&self) -> Result<(), Error>;
    /// Ends the run of a session that was lent to it, and waits until no producer takes part.
    fn wind_up_lent(&self);
    /// Settles that session.
    fn settle_lent(&mut self, account: Account, pipeline: Option<Account>, error: Option<&Error>);
}

/// What a pipeline keeps of its last run.
#[derive(Debug, Default)]
pub(super) struct PipelineRun {
    has_begun: bool,
    /// Of each stage.
    accounts: Vec<Account>,
    /// The account before the first run, and of a run that was refused.
    idle: Account,
    /// Beside the errors that the last stage keeps.
    skipped: Vec<Origin>,
}

/// Where an item was skipped.
#[derive(Debug, Clone, Copy)]
struct Origin {
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

impl<R: Runner + 'static> StageEngine for Engine<R> {
    fn order(&self) -> Order {
        self.settings().order
    }

    fn part(&self) -> StagePart {
        StagePart {
            name: self.told.description.clone(),
            report: self.report(),
            totals: lock(self.event_log.recorder()).totals(),
        }
    }

    fn name(&self) -> Option<&str> {
        self.told.description.as_deref()
    }

    fn check(&self) -> Result<Value, Error> {
        if self.is_active() { Ok(as_json(&self.cfg)) } else { Err(Error::Closed {}) }
    }

    fn check_no_journal(&self) -> Result<(), Error> {
        Engine::check_no_journal(self)
    }

    fn wind_up_lent(&self) {
        self.lent.iter().for_each(Session::wind_up);
    }

    fn settle_lent(&mut self, account: Account, pipeline: Option<Account>, error: Option<&Error>) {
        if let Some(session) = self.lent.take() {
            self.settle(session, account, pipeline, error);
        }
    }
}

/// Checks that the stages can take part in a run. Returns the configurations of those after the first.
pub(super) fn check(stages: &[&dyn StageEngine]) -> Result<Vec<Value>, Error> {
    let mut cfgs = stages.iter().map(|stage| stage.check()).collect::<Result<Vec<_>, _>>()?;
    stages.iter().skip(1).try_for_each(|stage| stage.check_no_journal())?;
    cfgs.remove(0);
    Ok(cfgs)
}

impl PipelineRun {
    /// A pipeline that read nothing of `unread` items.
    pub(super) fn idle(unread: Option<u64>) -> Self {
        let idle = Account::new(0, 0, 0, 0, unread);
        PipelineRun { has_begun: true, idle, ..PipelineRun::default() }
    }

    pub(super) fn new(accounts: Vec<Account>, skipped: &[SkippedItem]) -> Self {
        let origin = |item: &SkippedItem| Origin { passed_on: item.passed_on, input: item.input };
        let skipped = skipped.iter().map(origin).collect();
        PipelineRun { has_begun: true, accounts, skipped, idle: Account::default() }
    }

    /// The account of the whole pipeline.
    pub(super) fn account(&self) -> Account {
        whole(&self.accounts).unwrap_or(self.idle)
    }

    /// The report of the whole pipeline. Before its first run, its pools may have reports of other runs.
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
        let failure = |(error, origin): (&'a Error, &Origin)| {
            let stage = last.saturating_sub(origin.passed_on);
            let keeps_places = orders[..stage].iter().all(|order| *order == Order::Input);
            let item = if keeps_places { error.item() } else { None };
            SkippedInStage { error, stage, item: item.or(origin.input) }
        };
        errors.iter().zip(&self.skipped).map(failure).collect()
    }
}

/// The items of the input by outcome. Each stage gets the items that are ok in the one before.
pub(super) fn whole(stages: &[Account]) -> Option<Account> {
    let (first, last) = (stages.first()?, stages.last()?);
    let sum = |count: fn(&Account) -> u64| stages.iter().map(count).sum();
    Some(Account {
        ok: last.ok,
        failed: sum(|account| account.failed),
        already_done: sum(|account| account.already_done),
        cancelled: sum(|account| account.cancelled),
        unread: first.unread,
    })
}
