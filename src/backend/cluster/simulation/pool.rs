//! A pool in virtual time: the coordinator, its board, lanes and scheduler are the real ones. Instead of threads, each lane
//! takes its next step whenever something has happened.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;

use crate::backend::cluster::board::LaneBoard;
use crate::backend::cluster::coordinator::Coordinator;
use crate::backend::cluster::event::{CoordinatorAction, CoordinatorEvent};
use crate::backend::cluster::health::BrokerHealth;
use crate::backend::cluster::lane_run::{LaneExit, LaneRun, LaneStep};
use crate::backend::cluster::session::ClusterSession;
use crate::backend::remote::recipe::Recipe;
use crate::base::{Hook, Order};
use crate::error::Error;
use crate::run::Run;
use crate::run::handover::feeder::Feeder;
use crate::run::no_output::NoOutput;
use crate::run::ordered_merge::OrderedMerge;
use crate::runner::{ConsumerContext, ProducerContext, ProducerSetup, Runner};
use crate::scheduler::RunTime;

/// What the hooks of a simulation do: nothing, since they are simulated.
pub(super) struct Simulated;

impl Runner for Simulated {
    type Input = u64;
    type Output = u64;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> crate::Result<()> {
        Ok(())
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        input: u64,
    ) -> crate::Result<u64> {
        Ok(output_of(input))
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> crate::Result<()> {
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: u64) -> crate::Result<()> {
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> crate::Result<()> {
        Ok(())
    }
}

pub(super) static RECIPE: Recipe<Simulated> = Recipe::new("simulated", |_| Ok(Simulated));

/// The output of an item.
pub(super) fn output_of(input: u64) -> u64 {
    input * 10 + 1
}

/// A pool, from its build to its close.
pub(super) struct SimulatedPool<'a> {
    pub(super) coordinator: Coordinator,
    pub(super) board: Arc<LaneBoard>,
    session: &'a ClusterSession,
    receiver: UnboundedReceiver<CoordinatorEvent>,
    setups: &'a [ProducerSetup],
    /// The runs that have not begun yet, the next one last.
    waiting: Vec<(&'a Run<u64, u64>, u64)>,
    run: Option<SimulatedRun<'a>>,
    /// What each run has given, from the first on.
    pub(super) ended: Vec<RunEnd>,
    is_closed: bool,
}

/// What a run has given.
#[derive(Debug)]
pub(super) struct RunEnd {
    pub(super) items: u64,
    /// In input order.
    pub(super) outcomes: Vec<Result<u64, String>>,
    /// The error that ended the run.
    pub(super) error: Option<Error>,
}

/// A run in progress.
struct SimulatedRun<'a> {
    run: &'a Run<u64, u64>,
    lanes: Vec<SimulatedLane<'a>>,
    feeder: Feeder<u64, u64>,
    merge: OrderedMerge<u64>,
    fed: u64,
    items: u64,
    outcomes: Vec<Result<u64, String>>,
}

/// A lane, where its thread would be.
enum SimulatedLane<'a> {
    InRun(Box<LaneRun<'a, Simulated>>),
    Draining(Box<LaneRun<'a, Simulated>>, LaneExit),
    Left,
}

impl<'a> SimulatedPool<'a> {
    /// A pool that has just put its key. It makes these runs, with their numbers of items, one after the other.
    pub(super) fn new(
        coordinator: Coordinator,
        session: &'a ClusterSession,
        receiver: UnboundedReceiver<CoordinatorEvent>,
        setups: &'a [ProducerSetup],
        mut runs: Vec<(&'a Run<u64, u64>, u64)>,
    ) -> Self {
        runs.reverse();
        SimulatedPool {
            coordinator,
            board: session.board.clone(),
            session,
            receiver,
            setups,
            waiting: runs,
            run: None,
            ended: vec![],
            is_closed: false,
        }
    }

    /// Handles an event, and lets the lanes go on as far as they come. Returns what is to be done, and when a lane wants to
    /// look again.
    pub(super) fn handle(
        &mut self,
        event: Option<CoordinatorEvent>,
        now: Instant,
        broker: &BrokerHealth,
    ) -> (Vec<CoordinatorAction>, Option<RunTime>) {
        let mut actions = vec![];
        let mut next = event;
        loop {
            while let Some(event) = next.take().or_else(|| self.receiver.try_recv().ok()) {
                actions.extend(self.coordinator.handle(event, now, broker.clone()));
            }
            // One lane may leave what another, which has looked already, can take. That causes no event.
            self.advance();
            let until = self.advance();
            next = self.receiver.try_recv().ok();
            if next.is_none() {
                return (actions, until);
            }
        }
    }

    /// Whether all runs have ended, and the pool is closed.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && self.coordinator.is_over()
    }

    /// Where it stands, for a run that does not end.
    pub(super) fn state(&self) -> String {
        let lanes = self.run.iter().flat_map(|run| &run.lanes).map(|lane| match lane {
            SimulatedLane::InRun(_) => "in run".to_owned(),
            SimulatedLane::Draining(_, ending) => format!("{ending:?}"),
            SimulatedLane::Left => "left".to_owned(),
        });
        let lanes: Vec<_> = lanes.collect();
        let run = self.run.as_ref().map(|run| (run.fed, run.outcomes.len(), run.items));
        let (ended, board) = (self.ended.len(), &self.board);
        format!(
            "{ended} runs have ended; fed, outcomes, items: {run:?}; lanes: {lanes:?}; {board:#?}"
        )
    }

    /// The time since the start of the simulation, which is that of all runs.
    pub(super) fn time_of(time: RunTime) -> Duration {
        time.since(RunTime::START)
    }

    /// Lets the run in progress go on, begins the next one, or closes the pool.
    fn advance(&mut self) -> Option<RunTime> {
        if self.is_closed {
            return None;
        }
        if self.run.is_none() {
            let Some((run, items)) = self.waiting.pop() else {
                self.is_closed = true;
                self.session.send(CoordinatorEvent::Close);
                return None;
            };
            self.run = Some(SimulatedRun::new(run, items, self.session, self.setups));
        }
        let run = self.run.as_mut().expect("it has just begun");
        let until = run.advance();
        if run.lanes.iter().all(|lane| matches!(lane, SimulatedLane::Left)) {
            let SimulatedRun { run, items, outcomes, .. } =
                self.run.take().expect("it is in progress");
            self.ended.push(RunEnd { items, outcomes, error: run.take_fatal_error() });
            return self.advance();
        }
        until
    }
}

impl<'a> SimulatedRun<'a> {
    fn new(
        run: &'a Run<u64, u64>,
        items: u64,
        session: &'a ClusterSession,
        setups: &'a [ProducerSetup],
    ) -> Self {
        let lanes = setups.iter().map(|setup| {
            let mut lane = LaneRun::new(run, session, (&RECIPE, Hook::ProducerWork), setup);
            lane.enter();
            SimulatedLane::InRun(Box::new(lane))
        });
        SimulatedRun {
            run,
            lanes: lanes.collect(),
            feeder: Feeder::new(&run.handover),
            merge: run.handover.merge(Order::Input),
            fed: 0,
            items,
            outcomes: vec![],
        }
    }

    /// Feeds, has each lane take a step, and takes the results. Returns when a lane wants to look again.
    fn advance(&mut self) -> Option<RunTime> {
        let handover = &self.run.handover;
        while self.fed < self.items
            && self.feeder.has_permit(handover)
            && self.feeder.spend(handover)
        {
            self.feeder.push(handover, self.fed);
            self.fed += 1;
            if self.fed == self.items {
                handover.end(self.items);
            }
        }
        let mut earliest = None;
        for lane in &mut self.lanes {
            let until = lane.advance();
            earliest = [earliest, until].into_iter().flatten().min();
        }
        while let Some((seq, outcome)) = self.merge.pop() {
            assert_eq!(seq, self.outcomes.len() as u64, "results come in input order");
            self.outcomes.push(outcome.map_err(|it| match *it {
                NoOutput::Failed(failed) => failed.error.to_string(),
                other => format!("{other:?}"),
            }));
            handover.permits.give_back(1);
        }
        let is_over = self.outcomes.len() as u64 == self.items || self.run.has_fatal_error();
        if is_over && !handover.is_aborted() {
            self.run.abort();
            return self.advance();
        }
        earliest
    }
}

impl SimulatedLane<'_> {
    fn advance(&mut self) -> Option<RunTime> {
        loop {
            *self = match std::mem::replace(self, SimulatedLane::Left) {
                SimulatedLane::InRun(mut lane) => match lane.step() {
                    LaneStep::Sleep(until) => {
                        *self = SimulatedLane::InRun(lane);
                        return until;
                    }
                    LaneStep::Leave => {
                        let ending = lane.begin_to_drain();
                        SimulatedLane::Draining(lane, ending)
                    }
                },
                SimulatedLane::Draining(mut lane, ending) => match lane.is_drained(ending) {
                    true => {
                        lane.leave();
                        SimulatedLane::Left
                    }
                    false => {
                        *self = SimulatedLane::Draining(lane, ending);
                        return None;
                    }
                },
                SimulatedLane::Left => return None,
            };
        }
    }
}
