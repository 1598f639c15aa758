//! Whole clusters in virtual time, each from one seed: the coordinator, its lanes and its scheduler, the workers and their
//! parts are the real values; the broker is a [model](jetstream), and hooks only take time.
//!
//! `cargo test --features nats --lib simulation` runs `GANGLINE_SEEDS` seeds, 100 by default, from `GANGLINE_SEED` on, on all
//! cores. A failure names its seeds. With one seed alone, the messages are printed. Without optimisation, a seed takes about
//! 48 ms of a core: no function has more than a few percent of that time, and 6 % are moves of messages.

mod branches;
mod client;
mod coordinator_host;
mod hooks;
mod jetstream;
mod many_workers;
mod objects;
mod outages;
mod pool;
mod publishing;
mod random;
mod seeds;
mod setting;
mod worker_host;
mod world;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::backend::{HandRules, ProducerSetup, Run, run_by_hand, set_time_of_test};
use gangline::error::WorkerError;
use gangline::{Devices, Error};
use gangline_scheduler::Backoff;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use self::coordinator_host::CoordinatorHost;
use self::hooks::{HookAccount, HookFailure, HookSettings, Hooks};
use self::jetstream::{AnswerFault, Delays, Files};
use self::pool::{RECIPE, RunEnd, SimulatedPool, SimulatedValue};
use self::random::Random;
use self::worker_host::WorkerHost;
use self::world::{Happening, MakeWorker, Process, World};
use super::board::LaneBoard;
use super::coordinator::Coordinator;
use super::event::CoordinatorEvent;
use super::nats::Nats;
use super::session::ClusterSession;
use super::wire::RunKey;
use crate::ClusterError;

/// The largest output of most plans, as `Nats` has it.
const LARGEST_OUTPUT: u64 = 1 << 30;

/// What a seed stands for.
#[derive(Debug, Clone)]
struct Plan {
    /// The capacities of the workers.
    workers: Vec<usize>,
    seats: usize,
    /// The items of the runs of each coordinator.
    runs: Vec<Vec<u64>>,
    /// The run name of each coordinator. If two have one name, the later coordinator takes over.
    names: Vec<&'static str>,
    window: usize,
    retries: u32,
    /// The number of failures in a row that end the part of a worker.
    quarantine_after: Option<usize>,
    /// Whether idle workers get copies of slow items.
    speculates: bool,
    lease: Duration,
    wait_for: Duration,
    hooks: HookSettings,
    /// The largest number of bytes of a value in a message.
    most_inline: usize,
    largest_output: u64,
    /// The number of bytes that the object store has room for; `None` for any.
    object_room: Option<u64>,
    delay: Duration,
    happenings: Vec<(Duration, Happening)>,
}

impl Plan {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let count = match random.below(100) {
            0 => 100,
            1..6 => 10 + random.below(30),
            _ => 1 + random.below(5),
        } as usize;
        let workers: Vec<_> = (0..count).map(|_| 1 + random.below(4) as usize).collect();
        let capacity: usize = workers.iter().sum();
        let lease = Duration::from_millis(500 + random.below(4_500));
        // From 100 workers on, a few items each.
        let items_each = if count < 100 { 40 } else { 4 };
        // Values in messages are smaller than the large ones.
        let (large, most_inline) = match random.one_in(4) {
            true => (2 + random.below(8), 20 + random.below(100) as usize),
            false => (0, 1 << 19),
        };
        let coordinators = 1 + usize::from(random.one_in(12));
        let runs: Vec<Vec<_>> = (0..coordinators)
            .map(|_| {
                (0..1 + random.below(2))
                    .map(|_| 1 + random.below(items_each * count as u64))
                    .collect()
            })
            .collect();
        let mut names = vec!["run"];
        if coordinators > 1 {
            names.push(if random.one_in(2) { "run" } else { "other" });
        }
        let mut plan = Plan {
            seats: (count + random.below(3) as usize).max(1),
            runs,
            names,
            window: 1 + random.below(4 * capacity as u64) as usize,
            retries: 3 + random.below(3) as u32,
            quarantine_after: None,
            speculates: Random::new(seed.rotate_left(40)).one_in(4),
            lease,
            wait_for: lease * 12,
            hooks: HookSettings {
                most: Duration::from_millis(1 + random.below(400)),
                slow: if random.one_in(3) { 20 } else { 0 },
                failing: if random.one_in(4) { 10 } else { 0 },
                failure: HookFailure::Error,
                large,
            },
            most_inline,
            largest_output: LARGEST_OUTPUT,
            object_room: None,
            delay: Duration::from_micros(random.below(3_000)),
            happenings: vec![],
            workers,
        };
        // A worker that is told to end has no seat until its hook ends.
        let longest = plan.hooks.most * if plan.hooks.slow > 0 { 120 } else { 2 };
        plan.wait_for = plan.wait_for.max(longest);
        if !random.one_in(4) {
            plan.add_happenings(&mut random);
            plan.add_rare_happening(&mut Random::new(seed.rotate_left(20)));
        }
        plan
    }

    /// Adds one of what happens seldom, to one plan in two.
    fn add_rare_happening(&mut self, random: &mut Random) {
        const STREAMS: [&str; 5] =
            ["s-items", "s-results", "OBJ_s-objects", "KV_s-keys", "KV_s-workers"];
        let at = self.lease / 2 + random.time(self.lease * 4);
        let any = random.below((self.runs.len() + self.workers.len()) as u64) as usize;
        // Clients notice after 10 s that a bucket is another one.
        let streams = if self.wait_for < Duration::from_secs(20) { 3 } else { STREAMS.len() };
        let stream = STREAMS[random.below(streams as u64) as usize];
        let (short, long) = (random.time(self.lease * 3), random.time(self.lease * 8));
        let happenings = match random.below(16) {
            // Several, since most messages do not stay for long.
            8 => {
                let count = if random.one_in(2) { 1 } else { 20 };
                (0..20).map(|_| Happening::LoseMessages(stream, count)).collect()
            }
            9 if stream != "OBJ_s-objects" => {
                (0..20).map(|_| Happening::DamageMessage(stream)).collect()
            }
            0 => vec![Happening::Stop(0, long)],
            1 => vec![Happening::Stop(any, long)],
            2 => vec![Happening::Stop(0, long), Happening::PauseBroker(long)],
            3 => vec![Happening::DeleteStream(stream)],
            4 => vec![Happening::DeleteConsumers(stream)],
            5 => vec![Happening::KillBroker(Files::Without(stream), short)],
            6 => vec![Happening::Stick(stream, short)],
            // Connections that are too short for heartbeats and leases, for at most half of `wait_for`.
            7 => {
                for cut in 0..5 + random.below(7) as u32 {
                    let at = at + random.time(self.lease) + self.lease * cut / 2;
                    self.happenings.push((at, Happening::Cut(any, random.time(self.lease / 4))));
                }
                return;
            }
            // The power fails some time after the broker has written its files.
            10 => {
                self.happenings.push((random.time(at), Happening::CopyFiles));
                vec![Happening::KillBroker(Files::Copied, short)]
            }
            _ => return,
        };
        for (number, happening) in (0..).zip(happenings) {
            let is_of_many =
                matches!(happening, Happening::LoseMessages(..) | Happening::DamageMessage(_));
            let at = if is_of_many { at + self.lease * number / 10 } else { at };
            self.happenings.push((at, happening));
        }
    }

    /// Adds things that happen in the first seconds. No outage is longer than half of `wait_for`.
    fn add_happenings(&mut self, random: &mut Random) {
        let (coordinators, count) = (self.runs.len(), self.workers.len());
        let begin = self.lease / 2;
        for _ in 0..1 + random.below(6) {
            let at = begin + random.time(self.lease * 4);
            let worker = coordinators + random.below(count as u64) as usize;
            let any = random.below((coordinators + count) as u64) as usize;
            let short = random.time(self.lease * 3);
            let happening = match random.below(16) {
                0..4 => Happening::Kill(worker),
                4 => Happening::Terminate(worker),
                5 | 6 => Happening::Stop(any, short),
                7 | 8 => Happening::Cut(any, short),
                9 | 10 => Happening::Answer(any, AnswerFault::Lost),
                11 => Happening::Answer(any, AnswerFault::Twice),
                12 => Happening::Answer(any, AnswerFault::Late(short)),
                13 => Happening::KillBroker(
                    match random.below(3) {
                        0 => Files::Kept,
                        1 => Files::Behind { messages: random.below(4) },
                        _ => Files::Lost,
                    },
                    short,
                ),
                14 => Happening::PauseBroker(short),
                _ => Happening::Refuse(short),
            };
            if matches!(happening, Happening::Kill(_) | Happening::Terminate(_)) {
                let later = at + self.lease / 4 + random.time(self.lease * 2);
                self.happenings.push((later, Happening::Replace(worker)));
            }
            self.happenings.push((at, happening));
        }
    }

    /// Whether nothing happens that repeats an attempt or costs an item's way.
    fn is_calm(&self) -> bool {
        self.happenings.is_empty() && !self.has_rivals() && !self.speculates
    }

    /// Whether two coordinators have one run name.
    fn has_rivals(&self) -> bool {
        self.names.iter().filter(|it| **it == self.names[0]).count() > 1
    }
}

/// Runs a seed, and checks the laws. The error says which is broken.
fn simulate(plan: &Plan, seed: u64, trace: Option<&mut Vec<String>>) -> Result<(), String> {
    simulate_with(plan, seed, trace, |world, account| check(plan, world, account))
}

/// Runs a seed, and looks at the cluster once all runs have ended.
fn simulate_with<T>(
    plan: &Plan,
    seed: u64,
    trace: Option<&mut Vec<String>>,
    look: impl FnOnce(&mut World<'_>, &HookAccount) -> Result<T, String>,
) -> Result<T, String> {
    let base = Instant::now();
    set_time_of_test(base);
    let devices = format!("cpu*{}", plan.seats).parse::<Devices>().expect("a list of producers");
    let setups: Vec<_> = (0..plan.seats).map(|seat| ProducerSetup::plain(seat, &devices)).collect();
    let (sessions, receivers): (Vec<_>, Vec<_>) =
        plan.names.iter().map(|name| session(plan, name)).unzip();
    let of_coordinator = |runs: &Vec<u64>| {
        runs.iter().map(|_| run(plan)).collect::<Vec<Arc<Run<SimulatedValue, SimulatedValue>>>>()
    };
    let runs: Vec<_> = plan.runs.iter().map(of_coordinator).collect();
    let account = Rc::new(RefCell::new(HookAccount::default()));
    let mut random = Random::new(!seed);
    let make_worker = worker_maker(plan, random.split(), account.clone());
    let mut world = World::new(base, random, make_worker);
    world.trace = trace.is_some().then(Vec::new);
    for (number, receiver) in receivers.into_iter().enumerate() {
        let (key, session, setups) = (key(plan, number), &sessions[number], &setups);
        let runs = runs[number].iter().map(|run| &**run);
        let runs: Vec<_> = runs.zip(plan.runs[number].iter().copied()).collect();
        let (of_pool, nats, large) = (key.clone(), nats(plan), plan.hooks.large);
        let make = move |revision, now| {
            let board = session.board.clone();
            let coordinator = Coordinator::new(board, nats, of_pool, revision, now);
            SimulatedPool::new(coordinator, session, receiver, setups, large, runs)
        };
        let connection = world.broker.connect();
        world.broker.set_delays(connection, delays(plan));
        let mut host = CoordinatorHost::new(connection, key, plan.most_inline, Box::new(make));
        host.names.object_room = plan.object_room;
        world.add(Process::Coordinator(Box::new(host)));
        world.later(plan.lease * 2 * number as u32, Happening::Begin(number));
    }
    for number in 0..plan.workers.len() {
        world.add_place();
        world.later(Duration::ZERO, Happening::Replace(plan.runs.len() + number));
    }
    for (at, happening) in plan.happenings.clone() {
        world.later(at, happening);
    }
    let items: u64 = plan.runs.iter().flatten().sum();
    let work = plan.hooks.most * 20 * u32::try_from(items).expect("a few hundred");
    let ended = world.run(plan.wait_for * 3 + Duration::from_secs(600) + work);
    // A hook may begin while the cluster is looked at.
    let until_then = account.borrow().clone();
    let ended = ended.and_then(|()| look(&mut world, &until_then));
    if let (Some(kept), Some(lines)) = (trace, world.trace.take()) {
        *kept = lines;
    }
    ended
}

/// The laws: each run ends, with one outcome for each item; calm ones begin each item once, and nothing is left.
fn check(plan: &Plan, world: &mut World<'_>, account: &HookAccount) -> Result<(), String> {
    let mut has_kept_its_run = false;
    for (number, process) in world.processes().enumerate() {
        let Process::Coordinator(host) = process else { continue };
        let pool = host.pool.as_ref().expect("it is done");
        for (of_pool, run) in pool.ended.iter().enumerate() {
            check_run(plan, run).map_err(|it| format!("run {number}.{of_pool}: {it}"))?;
        }
        let keeps_its_run = pool.ended.iter().all(|run| run.error.is_none());
        has_kept_its_run |= keeps_its_run;
        // What nothing loses is not published again.
        let (items, published) = (plan.runs[number].iter().sum::<u64>(), pool.board.last());
        let is_lossless = plan.happenings.is_empty() && plan.hooks.failing == 0 && !plan.speculates;
        if is_lossless && keeps_its_run && published > items {
            return Err(format!("run {number}: {published} publications of {items} items"));
        }
    }
    if !has_kept_its_run {
        return Err("no coordinator has kept its run".to_owned());
    }
    if !plan.is_calm() {
        return Ok(());
    }
    for (epoch, runs) in (1..).zip(&plan.runs) {
        for item in 0..runs.iter().copied().max().unwrap_or(0) {
            let wanted = runs.iter().filter(|&&items| item < items).count() as u64;
            let begun = account.begun.get(&(epoch, item)).copied().unwrap_or(0);
            let most =
                if plan.hooks.failing > 0 { wanted * u64::from(plan.retries + 1) } else { wanted };
            if begun < wanted || begun > most {
                return Err(format!("item {item} has begun {begun} times in {wanted} runs"));
            }
        }
    }
    world.run_for(Duration::from_secs(1));
    for process in world.processes() {
        if let Process::Worker(worker) = process
            && worker.hooks.count() > 0
        {
            return Err(format!("{} still has items in hooks", worker.id));
        }
    }
    match world.left_at_broker() {
        left if left.is_empty() => Ok(()),
        left => Err(format!("the broker still has {left:?}")),
    }
}

fn check_run(plan: &Plan, run: &RunEnd) -> Result<(), String> {
    let RunEnd { items, outcomes, error } = run;
    match error {
        Some(error) if is_superseded(error) && plan.has_rivals() => return Ok(()),
        Some(error) => return Err(format!("it has failed: {error}")),
        None if outcomes.len() as u64 != *items => {
            return Err(format!("{} outcomes of {items} items", outcomes.len()));
        }
        None => {}
    }
    for (item, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(output) if *output == SimulatedValue::output(item as u64, plan.hooks.large) => {}
            Ok(output) => return Err(format!("item {item} has the output {output:?}")),
            Err(error) if plan.is_calm() && plan.hooks.failing == 0 => {
                return Err(format!("item {item} has failed: {error}"));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Whether another coordinator has taken over the run.
fn is_superseded(error: &Error) -> bool {
    let Error::Worker { source, .. } = error else { return false };
    let WorkerError::Backend { source, .. } = &**source else { return false };
    matches!(source.downcast_ref(), Some(ClusterError::Superseded { .. }))
}

/// Makes workers, each with a life of its own.
fn worker_maker(
    plan: &Plan,
    mut random: Random,
    account: Rc<RefCell<HookAccount>>,
) -> MakeWorker<'static> {
    let (plan, mut lives) = (plan.clone(), 0);
    Box::new(move |broker, now, number| {
        lives += 1;
        let connection = broker.connect();
        broker.set_delays(connection, delays(&plan));
        let hooks = Hooks::new(plan.hooks, random.split(), account.clone());
        let room = (plan.workers[number - plan.runs.len()], plan.most_inline);
        WorkerHost::new(connection, &format!("w{number}-{lives}"), room, hooks, now)
    })
}

fn delays(plan: &Plan) -> Delays {
    Delays { to_broker: plan.delay, to_client: plan.delay }
}

fn nats(plan: &Plan) -> Nats {
    let nats = Nats::connect("nats://127.0.0.1").largest_output(plan.largest_output);
    nats.lease_time(plan.lease).wait_for(plan.wait_for)
}

/// The key of the coordinator with this number.
fn key(plan: &Plan, number: usize) -> RunKey {
    let (run, epoch) = (plan.names[number].to_owned(), number as u64 + 1);
    let (recipe, terms) = (RECIPE.items().name().to_owned(), RECIPE.items().terms());
    RunKey { run, recipe, terms, ..RunKey::of_test(epoch, plan.lease, plan.wait_for) }
}

fn session(plan: &Plan, name: &str) -> (ClusterSession, UnboundedReceiver<CoordinatorEvent>) {
    let (events, receiver) = unbounded_channel();
    let board = LaneBoard::new(plan.seats);
    let (nats, run) = (nats(plan), name.to_owned());
    (ClusterSession::new(board, nats, run, plan.most_inline, events), receiver)
}

fn run(plan: &Plan) -> Arc<Run<SimulatedValue, SimulatedValue>> {
    let backoff = Backoff { first: Duration::from_millis(10), most: Duration::from_secs(1) };
    let Plan { retries, quarantine_after, speculates, .. } = *plan;
    run_by_hand(
        plan.seats,
        plan.window,
        HandRules { retries, backoff, quarantine_after, speculates },
    )
}

/// A plan of one worker, in which nothing happens.
fn small_plan(items: u64) -> Plan {
    Plan {
        workers: vec![2],
        seats: 2,
        runs: vec![vec![items]],
        names: vec!["run"],
        window: 8,
        retries: 3,
        quarantine_after: None,
        speculates: false,
        lease: Duration::from_secs(2),
        wait_for: Duration::from_secs(60),
        hooks: HookSettings {
            most: Duration::from_millis(100),
            slow: 0,
            failing: 0,
            failure: HookFailure::Error,
            large: 0,
        },
        most_inline: 1 << 19,
        largest_output: LARGEST_OUTPUT,
        object_room: None,
        delay: Duration::from_millis(1),
        happenings: vec![],
    }
}

/// The broker removes consumers that were not used for ten minutes.
#[test]
fn workers_that_come_after_a_long_time_find_the_items() {
    let mut plan = small_plan(200);
    plan.wait_for = Duration::from_secs(2 * 60 * 60);
    let gone = Duration::from_secs(1);
    plan.happenings = vec![
        (gone, Happening::Kill(1)),
        (gone + Duration::from_secs(60 * 60), Happening::Replace(1)),
    ];
    simulate(&plan, 1, None).unwrap();
}
