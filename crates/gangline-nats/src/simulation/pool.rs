//! A pool in virtual time: the coordinator, its board, lanes and scheduler are the real ones. A lane takes its next step when
//! its thread would: once it was woken, or when the time has come for which it sleeps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::backend::{ProducerSetup, Run, RunHands};
use gangline::process::Recipe;
use gangline::{ConsumerContext, Error, Hook, ProducerContext, Runner};
use gangline_scheduler::RunTime;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedReceiver;

use super::branches::Handled;
use crate::board::LaneBoard;
use crate::coordinator::Coordinator;
use crate::event::{CoordinatorAction, CoordinatorEvent};
use crate::health::BrokerHealth;
use crate::lane_run::{LaneExit, LaneRun, LaneStep};
use crate::session::ClusterSession;

/// The number of bytes of a large value.
const LARGE: usize = 300;

/// What the hooks of a simulation do: nothing, since they are simulated.
pub(super) struct Simulated;

impl Runner for Simulated {
    type Input = SimulatedValue;
    type Output = SimulatedValue;
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }

    fn producer_work(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        input: SimulatedValue,
    ) -> gangline::Result<SimulatedValue> {
        Ok(SimulatedValue::output(input.number, 0))
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> gangline::Result<()> {
        Ok(())
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        (): &mut (),
        _: SimulatedValue,
    ) -> gangline::Result<()> {
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> gangline::Result<()> {
        Ok(())
    }
}

pub(super) static RECIPE: Recipe<Simulated> = Recipe::new("simulated", |_| Ok(Simulated));

/// An input or an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SimulatedValue {
    pub(super) number: u64,
    padding: Vec<u8>,
}

impl SimulatedValue {
    /// The input of an item. One in `large` has many bytes; none if it is 0.
    pub(super) fn input(item: u64, large: u64) -> Self {
        SimulatedValue::new(item, large > 0 && item.is_multiple_of(large))
    }

    /// The output of an item. Other ones are large than of the inputs.
    pub(super) fn output(item: u64, large: u64) -> Self {
        SimulatedValue::new(item * 10 + 1, large > 0 && item % large == large / 2)
    }

    fn new(number: u64, is_large: bool) -> Self {
        SimulatedValue { number, padding: vec![7; if is_large { LARGE } else { 0 }] }
    }
}

/// A pool, from its build to its close.
pub(super) struct SimulatedPool<'a> {
    pub(super) coordinator: Coordinator,
    pub(super) board: Arc<LaneBoard>,
    session: &'a ClusterSession,
    receiver: UnboundedReceiver<CoordinatorEvent>,
    setups: &'a [ProducerSetup],
    /// One value in this number is large.
    large: u64,
    /// The runs that have not begun yet, the next one last.
    waiting: Vec<(&'a Run<SimulatedValue, SimulatedValue>, u64)>,
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
    pub(super) outcomes: Vec<Result<SimulatedValue, String>>,
    /// The error that ended the run.
    pub(super) error: Option<Error>,
}

/// A run in progress.
struct SimulatedRun<'a> {
    lanes: Vec<LaneThread<'a>>,
    hands: RunHands<'a, SimulatedValue, SimulatedValue>,
    fed: u64,
    items: u64,
    large: u64,
    outcomes: Vec<Result<SimulatedValue, String>>,
}

/// The thread of a lane.
struct LaneThread<'a> {
    lane: SimulatedLane<'a>,
    /// When it looks again without being woken.
    until: Option<RunTime>,
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
        large: u64,
        mut runs: Vec<(&'a Run<SimulatedValue, SimulatedValue>, u64)>,
    ) -> Self {
        runs.reverse();
        SimulatedPool {
            coordinator,
            board: session.board.clone(),
            session,
            receiver,
            setups,
            large,
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
                let (handled, before) = (Handled::new(&event), self.board.fatal());
                let led_to = self.coordinator.handle(event, now, broker.clone());
                handled.note(&led_to, self.board.fatal().filter(|_| before.is_none()));
                actions.extend(led_to);
            }
            let until = self.advance();
            next = self.receiver.try_recv().ok();
            if next.is_none() {
                return (actions, until);
            }
        }
    }

    /// Cancels the run in progress.
    pub(super) fn cancel(&self) {
        self.run.iter().for_each(|it| it.hands.abort());
    }

    /// Whether all runs have ended, and the pool is closed.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed && self.coordinator.is_over()
    }

    /// The number of items that have an outcome, in all runs so far.
    pub(super) fn progress(&self) -> usize {
        let ended: usize = self.ended.iter().map(|run| run.outcomes.len()).sum();
        ended + self.run.as_ref().map_or(0, |run| run.outcomes.len())
    }

    /// Where it stands, for a run that does not end.
    pub(super) fn state(&self) -> String {
        let lanes = self.run.iter().flat_map(|run| &run.lanes).map(|thread| match &thread.lane {
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
            self.run = Some(SimulatedRun::new(run, (items, self.large), self.session, self.setups));
        }
        let run = self.run.as_mut().expect("it has just begun");
        let until = run.advance();
        if run.lanes.iter().all(|thread| matches!(thread.lane, SimulatedLane::Left)) {
            let SimulatedRun { hands, items, outcomes, .. } =
                self.run.take().expect("it is in progress");
            self.ended.push(RunEnd { items, outcomes, error: hands.take_error() });
            return self.advance();
        }
        until
    }
}

impl<'a> SimulatedRun<'a> {
    fn new(
        run: &'a Run<SimulatedValue, SimulatedValue>,
        (items, large): (u64, u64),
        session: &'a ClusterSession,
        setups: &'a [ProducerSetup],
    ) -> Self {
        let lanes = setups.iter().map(|setup| {
            let mut lane = LaneRun::new(run, session, (&RECIPE, Hook::ProducerWork), setup);
            lane.enter();
            LaneThread { lane: SimulatedLane::InRun(Box::new(lane)), until: Some(RunTime::START) }
        });
        SimulatedRun {
            lanes: lanes.collect(),
            hands: RunHands::new(run),
            fed: 0,
            items,
            large,
            outcomes: vec![],
        }
    }

    /// Feeds, lets the woken lanes go on, and takes the results, until all lanes sleep. Returns when the first wants to look
    /// again.
    fn advance(&mut self) -> Option<RunTime> {
        let mut are_asleep = false;
        while !are_asleep {
            self.feed();
            let now = self.hands.now();
            are_asleep = true;
            for (number, thread) in self.lanes.iter_mut().enumerate() {
                let is_due = thread.until.is_some_and(|until| until <= now);
                if self.hands.take_wake_up(number) || is_due {
                    thread.until = thread.lane.advance();
                    are_asleep = false;
                }
            }
            self.consume();
            let is_over = self.outcomes.len() as u64 == self.items || self.hands.has_error();
            if is_over && !self.hands.is_aborted() {
                self.hands.abort();
                are_asleep = false;
            }
        }
        self.lanes.iter().filter_map(|thread| thread.until).min()
    }

    fn feed(&mut self) {
        while self.fed < self.items && self.hands.take_permit() {
            self.hands.give(SimulatedValue::input(self.fed, self.large));
            self.fed += 1;
            if self.fed == self.items {
                self.hands.end_input(self.items);
            }
        }
    }

    fn consume(&mut self) {
        while let Some((seq, outcome)) = self.hands.next_result() {
            assert_eq!(seq, self.outcomes.len() as u64, "results come in input order");
            self.outcomes.push(outcome);
        }
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
