//! A worker by hand, and under random events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gangline::backend::Terms;
use proptest::prelude::*;

use super::{LOCKED_OUT, SLOWEST_BEAT, Worker, WorkerAction, WorkerEvent};
use crate::health::BrokerHealth;
use crate::part::PartEnding;
use crate::wire::{Card, RunKey, WorkerNews};

const LEASE: Duration = Duration::from_secs(6);

fn key(run: &str, epoch: u64) -> RunKey {
    let run = run.to_owned();
    RunKey { run, ..RunKey::of_test(epoch, LEASE, Duration::from_secs(60)) }
}

/// A worker, its clock and its broker.
struct Script {
    worker: Worker,
    now: Instant,
    broker: BrokerHealth,
}

impl Script {
    fn new() -> Self {
        let card = Card {
            worker: "worker".to_owned(),
            host: "host".to_owned(),
            pid: 1,
            devices: "cpu".to_owned(),
            recipes: vec![("recipe".to_owned(), Terms::default())],
            started: 0,
            runs: vec![],
            parts: 0,
        };
        let now = Instant::now();
        let broker = BrokerHealth { is_connected: true, ..BrokerHealth::default() };
        Script { worker: Worker::new(card, now), now, broker }
    }

    fn take(&mut self, event: WorkerEvent) -> Vec<WorkerAction> {
        self.worker.handle(event, self.now, &self.broker)
    }

    fn take_key(&mut self, run: &str, epoch: u64) -> Vec<WorkerAction> {
        self.take(WorkerEvent::Key(Box::new(key(run, epoch))))
    }

    /// Lets time pass, with a tick whenever the worker wants one. The broker answers all cards, if `answers`.
    fn wait(&mut self, time: Duration, answers: bool) -> Vec<WorkerAction> {
        let until = self.now + time;
        let mut actions = vec![];
        while self.worker.next_time() <= until {
            self.now = self.now.max(self.worker.next_time());
            actions.extend(self.take(WorkerEvent::Tick));
            if answers {
                actions.extend(self.take(WorkerEvent::CardStored));
            }
        }
        self.now = until;
        actions
    }
}

fn started(actions: &[WorkerAction]) -> Vec<u64> {
    let started = actions.iter().filter_map(|action| match action {
        WorkerAction::StartPart(_, part) => Some(*part),
        _ => None,
    });
    started.collect()
}

fn ended(actions: &[WorkerAction]) -> Vec<(u64, PartEnding)> {
    let ended = actions.iter().filter_map(|action| match action {
        WorkerAction::EndPart(part, ending) => Some((*part, *ending)),
        _ => None,
    });
    ended.collect()
}

fn cards(actions: &[WorkerAction]) -> Vec<&Card> {
    let cards = actions.iter().filter_map(|action| match action {
        WorkerAction::PutCard(card) => Some(card),
        _ => None,
    });
    cards.collect()
}

#[test]
fn a_worker_shows_that_it_lives_three_times_within_the_shortest_lease() {
    let mut script = Script::new();
    assert_eq!(cards(&script.wait(SLOWEST_BEAT * 2, true)).len(), 3, "one at once");
    let actions = script.take_key("run", 1);
    assert_eq!(started(&actions), [1]);
    assert_eq!(cards(&actions)[0].runs, [("run".to_owned(), 1)], "at once");
    assert_eq!(cards(&script.wait(LEASE, true)).len(), 3);
}

#[test]
fn a_run_that_is_over_or_replaced_ends_its_part() {
    let mut script = Script::new();
    script.take_key("run", 1);
    assert!(started(&script.take_key("run", 1)).is_empty(), "its coordinator lives");
    let actions = script.take_key("run", 2);
    assert_eq!((ended(&actions), started(&actions)), (vec![(1, PartEnding::Over)], vec![2]));
    script.take(WorkerEvent::Left(1));
    let actions = script.take(WorkerEvent::Gone("run".to_owned()));
    assert_eq!(ended(&actions), [(2, PartEnding::Over)]);
    assert!(started(&script.take_key("run", 2)).is_empty(), "it has not ended yet");
    script.take(WorkerEvent::Left(2));
    assert_eq!(started(&script.take_key("run", 2)), [3]);
    let mut terms = Terms::default();
    terms.version = "2".to_owned();
    let other = RunKey { terms, ..key("a", 1) };
    assert!(started(&script.take(WorkerEvent::Key(Box::new(other)))).is_empty());
}

#[test]
fn a_part_with_a_silent_coordinator_ends() {
    let mut script = Script::new();
    script.take_key("run", 1);
    assert!(ended(&script.wait(LEASE, true)).is_empty());
    script.take(WorkerEvent::Ordered(1));
    assert!(ended(&script.wait(LEASE, true)).is_empty(), "it has given an order");
    assert_eq!(ended(&script.wait(LEASE, true)), [(1, PartEnding::Over)]);
}

#[test]
fn silence_says_nothing_if_the_worker_could_not_have_heard() {
    type Change = fn(&mut Script) -> Vec<WorkerAction>;
    let changes: [Change; 4] = [
        |script| {
            script.broker.is_connected = false;
            script.wait(LEASE * 3, true)
        },
        |script| script.wait(LEASE * 3, false),
        |script| {
            let mut actions = script.wait(LEASE, true);
            script.take(WorkerEvent::Restored);
            actions.extend(script.wait(LEASE, true));
            actions
        },
        |script| {
            // The process was stopped.
            script.now += LEASE * 3;
            script.take(WorkerEvent::CardStored)
        },
    ];
    for change in changes {
        let mut script = Script::new();
        script.take_key("run", 1);
        assert_eq!(ended(&change(&mut script)), []);
    }
}

#[test]
fn a_broker_that_does_not_store_the_card_is_got_round() {
    let mut script = Script::new();
    script.take_key("run", 1);
    let news = |actions: Vec<WorkerAction>| {
        let news = actions.into_iter().filter_map(|action| match action {
            WorkerAction::Notify(run, notice) if run == "run" => Some(notice.news),
            _ => None,
        });
        news.collect::<Vec<_>>()
    };
    assert_eq!(news(script.wait(LEASE / 3, true)), []);
    assert!(news(script.wait(LEASE, false)).contains(&WorkerNews::Alive(None)));
    script.broker.refusal = Some((script.now, "no space".to_owned()));
    let said = Some("no space".to_owned());
    assert_eq!(news(script.wait(LEASE / 3, true))[0], WorkerNews::Alive(said));
}

#[test]
fn a_worker_without_access_ends() {
    let mut script = Script::new();
    script.broker.locked_out = Some((script.now, "expired".to_owned()));
    let fails = |actions: &[WorkerAction]| {
        actions.iter().any(|it| matches!(it, WorkerAction::EndWithoutAccess(_)))
    };
    assert!(!fails(&script.wait(LOCKED_OUT / 2, false)));
    assert!(fails(&script.wait(LOCKED_OUT, false)));
}

#[test]
fn a_worker_that_is_terminated_drains() {
    let mut script = Script::new();
    script.take_key("a", 1);
    script.take_key("b", 1);
    let actions = script.take(WorkerEvent::Terminate);
    assert_eq!(ended(&actions), [(1, PartEnding::Drain), (2, PartEnding::Drain)]);
    assert!(started(&script.take_key("c", 1)).is_empty());
    let over = script.take(WorkerEvent::Gone("b".to_owned()));
    assert_eq!(ended(&over), [(2, PartEnding::Over)], "nothing is on its way to it any more");
    assert!(
        !cards(&script.wait(LEASE * 2, true)).is_empty(),
        "it lives until its hooks have ended"
    );
    assert!(script.take(WorkerEvent::Left(1)).is_empty());
    let actions = script.take(WorkerEvent::Left(2));
    let shown = format!("{actions:?}");
    assert_eq!(
        shown,
        format!("{:?}", [WorkerAction::DeleteCard, WorkerAction::End(Duration::MAX)])
    );
}

#[test]
fn a_worker_without_a_broker_does_not_drain_for_ever() {
    let mut script = Script::new();
    script.take_key("a", 1);
    script.take(WorkerEvent::Terminate);
    script.broker.is_connected = false;
    assert!(script.wait(LEASE, false).is_empty());
    let actions = script.wait(LEASE, false);
    assert!(matches!(actions[..], [WorkerAction::End(LEASE)]), "{actions:?}");
}

proptest! {
    /// A part that was started is told to end before another one in its run is started, the card names the parts that are
    /// there, and a worker that is terminated ends.
    #[test]
    fn a_worker_keeps_its_laws(
        events in proptest::collection::vec((0_u8..9, 0_u64..4, any::<bool>()), 0..60),
    ) {
        let mut script = Script::new();
        let mut parts: BTreeMap<u64, (String, Option<PartEnding>)> = BTreeMap::new();
        let mut is_over = false;
        let ending = [(8, 0, true), (7, 0, true)].into_iter().chain((0..200).map(|n| (3, n, true)));
        for (kind, pick, is_connected) in events.into_iter().chain(ending) {
            script.broker.is_connected = is_connected;
            let run = ["a", "b"][(pick % 2) as usize];
            let part = parts.keys().nth((pick as usize) % parts.len().max(1)).copied();
            let event = match kind {
                0..=2 => WorkerEvent::Key(Box::new(key(run, pick / 2))),
                3 => {
                    // A part ends only once it was told to.
                    let told = parts.iter().find(|it| it.1.1.is_some());
                    let Some(part) = told.map(|it| *it.0) else { continue };
                    parts.remove(&part);
                    WorkerEvent::Left(part)
                }
                4 => WorkerEvent::Gone(run.to_owned()),
                5 => part.map_or(WorkerEvent::Restored, WorkerEvent::Ordered),
                6 => WorkerEvent::CardStored,
                8 => WorkerEvent::Terminate,
                _ => {
                    script.now += SLOWEST_BEAT * pick as u32;
                    WorkerEvent::Tick
                }
            };
            for action in script.take(event) {
                prop_assert!(!is_over, "{action:?} after the end");
                match action {
                    WorkerAction::StartPart(key, part) => {
                        prop_assert!(parts.values().all(|it| it.0 != key.run || it.1.is_some()));
                        prop_assert!(parts.insert(part, (key.run, None)).is_none());
                    }
                    WorkerAction::EndPart(part, ending) => {
                        prop_assert!(parts.contains_key(&part), "it has ended");
                        parts.get_mut(&part).unwrap().1 = Some(ending);
                    }
                    WorkerAction::PutCard(card) => {
                        prop_assert!(card.runs.iter().all(|(run, part)| parts[part].0 == *run));
                        let missing = parts.iter().find(|(part, (_, ending))| {
                            ending.is_none() && card.runs.iter().all(|it| it.1 != **part)
                        });
                        prop_assert_eq!(missing, None);
                    }
                    WorkerAction::End(_) => is_over = true,
                    _ => {}
                }
            }
        }
        prop_assert!(is_over);
    }
}
