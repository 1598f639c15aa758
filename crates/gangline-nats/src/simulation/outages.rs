//! What goes wrong with a cluster, and what follows: each row of the table in docs/cluster.md is a run of the model.

use std::time::Duration;

use super::branches::reached_by;
use super::hooks::{HookAccount, HookFailure, HookSettings};
use super::jetstream::{Files, Keeping};
use super::pool::RunEnd;
use super::world::{Happening, Process, World};
use super::{Plan, check_run, simulate, simulate_with, small_plan};
use crate::connection::check_payload;

/// What is wrong with a run; `Ok` if it is as the page says.
type Checked = Result<(), String>;

/// The beginning of the event on the page, a part of what the page says of it, and the runs that show it.
type PageRow = (&'static str, &'static str, fn() -> Checked);

const ROWS: [PageRow; 29] = [
    ("a worker is killed, stopped or cut off", "fail with `WorkerLost`", lost_workers),
    (
        "an item has ended three workers",
        "it fails, whatever `retries` says",
        item_that_ends_workers,
    ),
    ("a worker comes back after its lease", "its old results do not count", worker_that_comes_back),
    ("a hook returns an error or panics", "the error names the host", failing_hooks),
    ("a hook crashes", "`HookCrashed`", crashing_hooks),
    ("a hook exceeds `item_timeout`", "`TimedOut`", slow_hooks),
    ("the broker is restarted", "goes on by itself", restarted_broker),
    ("the broker has lost what it had stored", "are published again", broker_without_files),
    ("the broker is back with an older copy of what it had stored", "nothing else", older_copy),
    ("the broker loses or damages messages", "published once more", holes_and_damage),
    ("the broker confirms items and does not keep them", "is emptied", forgetful_stream),
    ("the broker is gone for `wait_for`", "`BrokerGone`", broker_that_is_gone),
    ("the broker is connected but does not answer", "`NoAnswer`", broker_that_is_stopped),
    ("the broker refuses the password of a user", "`Connect`", changed_password),
    ("a user loses a right", "`Denied`", lost_right),
    ("a bucket of keys or workers is deleted", "it is made again", deleted_buckets),
    ("a stream or a consumer is deleted", "published once more", deleted_streams),
    ("a stream of the broker answers nothing", "`NoAnswer`", stuck_streams),
    ("connections live for seconds", "from the last answer", short_connections),
    ("a process is suspended for longer than a lease", "goes on", suspended_parties),
    ("the broker's `max_payload` is too small", "`SmallMessages`", small_messages),
    ("no worker is there for `wait_for`", "`NoWorkers`", missing_workers),
    ("a run is cancelled or fails", "`is_cancelled` is true", cancelled_run),
    (
        "the coordinator is killed",
        "after one lease the workers give its items up",
        lost_coordinator,
    ),
    ("two coordinators have one `run_name`", "`Superseded`", two_coordinators),
    ("an output is larger than `largest_output`", "its item fails", too_large_outputs),
    ("an input or output has more than 512 KiB", "object store", large_values),
    ("the object store has no room for an input", "`TooLarge`, before any hook", full_object_store),
    ("the broker has no room for an item or a result", "`Refused`", full_broker),
];

/// When most things happen.
const SOON: Duration = Duration::from_secs(1);
/// An outage that the run does not wait for.
const FOR_GOOD: Duration = Duration::from_secs(60);

#[test]
fn each_row_of_the_page_is_a_run_of_the_model() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cluster.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, table) = page.split_once("| event | result |\n|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    for row in &rows {
        let is_of = |event: &str| row.starts_with(&format!("| {event}"));
        let cases = ROWS.iter().filter(|(event, said, _)| is_of(event) && row.contains(said));
        assert_eq!(cases.count(), 1, "the row has no case in this file, or several: {row}");
    }
    assert_eq!(rows.len(), ROWS.len(), "a case has no row");
    let wrong = ROWS.iter().filter_map(|(event, _, case)| Some((event, case().err()?)));
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Makes the runs of all rows, and one in which workers are quarantined.
pub(super) fn run_all() {
    ROWS.iter().for_each(|(_, _, case)| _ = case());
    _ = quarantined_workers();
}

#[test]
fn quarantined_workers_leave_and_the_run_goes_on() {
    let reached = reached_by(|| quarantined_workers().unwrap());
    assert!(reached.contains("coordinator: Ban -> Order Leave"), "{reached:#?}");
}

/// One hook in three fails. An item that has failed with one worker, and not with another, blames the first.
fn quarantined_workers() -> Checked {
    let hooks = HookSettings { failing: 3, ..small_plan(0).hooks };
    let plan = Plan { quarantine_after: Some(1), retries: 9, hooks, ..plan_with(100, &[]) };
    completes(&Plan { workers: vec![1; 4], seats: 6, ..plan }).map(drop)
}

/// A run of one worker, and what happens to it soon. No attempt is repeated.
fn plan_with(items: u64, happenings: &[Happening]) -> Plan {
    let happenings = happenings.iter().map(|it| (SOON, it.clone())).collect();
    Plan { wait_for: Duration::from_secs(10), retries: 0, happenings, ..small_plan(items) }
}

fn lost_workers() -> Checked {
    let lease = small_plan(0).lease;
    let lost: [&[Happening]; 3] = [
        &[Happening::Kill(1), Happening::Replace(1)],
        &[Happening::Stop(1, lease * 3)],
        &[Happening::Cut(1, lease * 3)],
    ];
    for happenings in lost {
        let plan = plan_with(50, happenings);
        items_fail(&plan, "the worker on w1-1 is gone: its lease has ended")?;
        completes(&Plan { retries: 1, ..plan })?;
    }
    Ok(())
}

fn item_that_ends_workers() -> Checked {
    let hooks = HookSettings { most: Duration::from_secs(600), ..small_plan(1).hooks };
    let mut plan = Plan { retries: 9, hooks, ..plan_with(1, &[]) };
    for kill in 0..5 {
        let at = SOON + plan.lease * 3 * kill;
        plan.happenings.extend([(at, Happening::Kill(1)), (at, Happening::Replace(1))]);
    }
    match items_fail(&plan, "is gone: its lease has ended")? {
        3 => Ok(()),
        begun => Err(format!("{begun} hooks have begun the item")),
    }
}

fn worker_that_comes_back() -> Checked {
    let lease = small_plan(0).lease;
    let plan = plan_with(1_000, &[Happening::Stop(1, lease * 2)]);
    let plan = Plan { workers: vec![2, 2], seats: 2, retries: 1, ..plan };
    match completes(&plan)? {
        0..=1_000 => Err("no hook has begun an item that another had".to_owned()),
        _ => Ok(()),
    }
}

fn failing_hooks() -> Checked {
    let text = "of w1-1 (producer 0, attempt 1): it fails";
    items_fail(&plan_of_hooks(HookFailure::Error), text).map(drop)
}

fn crashing_hooks() -> Checked {
    items_fail(&plan_of_hooks(HookFailure::Crash), "producer_work crashed").map(drop)
}

fn slow_hooks() -> Checked {
    items_fail(&plan_of_hooks(HookFailure::TimedOut), "producer_work took longer than 100 ms")?;
    let plan = plan_of_hooks(HookFailure::LastTimedOut);
    items_fail(&Plan { runs: vec![vec![1]], ..plan.clone() }, "producer_work took longer than")?;
    // The results of a worker that ends are read, although that takes a moment.
    let happenings = vec![(SOON / 100, Happening::DeleteConsumers("s-results"))];
    let last = Plan { runs: vec![vec![1]], happenings, ..plan.clone() };
    items_fail(&last, "producer_work took longer than")?;
    // Without another worker, the next item finds none.
    let workers = Plan { workers: vec![1; 3], seats: 3, retries: 3, ..plan.clone() };
    run_fails(&workers, "0 of at least 1 workers take part")?;
    run_fails(&plan, "0 of at least 1 workers take part")
}

/// A run whose hooks all fail.
fn plan_of_hooks(failure: HookFailure) -> Plan {
    let hooks = HookSettings { failing: 1, failure, ..small_plan(0).hooks };
    Plan { hooks, ..plan_with(9, &[]) }
}

fn restarted_broker() -> Checked {
    for files in [Files::Kept, Files::Behind { messages: 2 }] {
        let plan = plan_with(200, &[Happening::KillBroker(files, SOON)]);
        completes(&Plan { retries: 1, ..plan })?;
    }
    Ok(())
}

fn broker_without_files() -> Checked {
    let lost = Happening::KillBroker(Files::Lost, SOON);
    completes(&Plan { retries: 1, ..plan_with(200, std::slice::from_ref(&lost)) })?;
    // More items than are looked for at once are missing.
    let hooks = HookSettings { most: SOON * 4, ..small_plan(0).hooks };
    let plan = plan_with(200, std::slice::from_ref(&lost));
    let plan = Plan { retries: 3, workers: vec![20, 20], window: 100, hooks, ..plan };
    completes(&Plan { wait_for: FOR_GOOD, ..plan })?;
    // The broker refuses at first what is to be made again, or a worker is replaced meanwhile.
    let (refused, replaced) = (Happening::Refuse(SOON * 4), Happening::Replace(1));
    for beside in [vec![refused.clone()], vec![Happening::Kill(1), replaced.clone()]] {
        let plan = plan_with(200, &[std::slice::from_ref(&lost), &beside[..]].concat());
        let plan = Plan { retries: 3, wait_for: FOR_GOOD, ..plan };
        completes(&plan).map_err(|error| format!("{beside:?}: {error}"))?;
    }
    Ok(())
}

/// A power failure: what was stored since the last copy is gone, and what was removed since then is back.
fn older_copy() -> Checked {
    for after in [SOON / 10, SOON, SOON * 5] {
        let happenings = [
            (SOON, Happening::CopyFiles),
            (SOON + after, Happening::KillBroker(Files::Copied, SOON)),
        ];
        let plan = Plan { retries: 3, wait_for: FOR_GOOD, ..plan_of_large_values(400) };
        completes(&Plan { happenings: happenings.to_vec(), ..plan })
            .map_err(|error| format!("{after:?}: {error}"))?;
    }
    // The results that the worker has sent in between were not read.
    let plan = plan_with(200, &[Happening::CopyFiles, Happening::Cut(0, SOON * 2)]);
    let mut plan = Plan { retries: 3, wait_for: FOR_GOOD, ..plan };
    plan.happenings.push((SOON * 2, Happening::KillBroker(Files::Copied, SOON)));
    completes(&plan)?;
    // The copy names the coordinator before, whose run was taken over.
    let (runs, names) = (vec![vec![2_000], vec![200]], vec!["run", "run"]);
    plan.happenings = vec![
        (SOON, Happening::CopyFiles),
        (plan.lease * 3, Happening::KillBroker(Files::Copied, SOON)),
    ];
    simulate(&Plan { runs, names, ..plan }, 1, None)
}

/// Messages pile up while their reader is cut off.
fn holes_and_damage() -> Checked {
    let streams = [("s-items", 1), ("s-results", 0), ("KV_s-keys", 1), ("KV_s-workers", 0)];
    for (stream, reader) in streams {
        let hole = Happening::LoseMessages(stream, 20);
        let mut damage = vec![Happening::DamageMessage(stream); 20];
        damage.push(Happening::KillBroker(Files::Kept, SOON));
        for lost in [vec![hole], damage] {
            let lost = lost.into_iter().map(|it| (SOON * 5 / 4, it));
            let cut = (SOON, Happening::Cut(reader, SOON / 2));
            let happenings = std::iter::once(cut).chain(lost).collect();
            let plan = Plan { retries: 3, wait_for: FOR_GOOD, happenings, ..plan_with(400, &[]) };
            completes(&plan).map_err(|error| format!("{:?}: {error}", plan.happenings))?;
        }
    }
    Ok(())
}

fn broker_that_is_gone() -> Checked {
    let plan = plan_with(2_000, &[Happening::KillBroker(Files::Kept, FOR_GOOD)]);
    run_fails(&plan, "has been gone for 10 s")
}

fn broker_that_is_stopped() -> Checked {
    let plan = plan_with(2_000, &[Happening::PauseBroker(FOR_GOOD)]);
    run_fails(&plan, "is connected, and does not answer")
}

fn changed_password() -> Checked {
    let text = "no connection to the broker at nats://127.0.0.1: authorization violation";
    run_fails(&plan_with(2_000, &[Happening::LockOut(0)]), text)?;
    run_fails(&plan_with(2_000, &[Happening::LockOut(1)]), "0 of at least 1 workers take part")
}

fn lost_right() -> Checked {
    let plan = plan_with(2_000, &[Happening::Deny(0, "s.items.>")]);
    run_fails(&plan, "the broker denies this user a right: ")?;
    // Results still come.
    let hooks = HookSettings { most: SOON * 8, ..plan.hooks };
    run_fails(&Plan { hooks, ..plan }, "the broker denies this user a right: ")
}

fn deleted_buckets() -> Checked {
    for bucket in ["KV_s-keys", "KV_s-workers"] {
        let plan = plan_with(1_000, &[Happening::DeleteStream(bucket)]);
        let plan = Plan { wait_for: FOR_GOOD, ..plan };
        completes(&Plan { retries: 1, ..plan.clone() })?;
        let plan = Plan { lease: Duration::from_secs(15), ..plan };
        let is_there = |world: &mut World<'_>, _: &_| {
            let mut names = world.broker.streams().map(|it| it.0);
            names.any(|name| name == bucket).then_some(()).ok_or(format!("{bucket} is not there"))
        };
        completes_with(&plan, is_there)?;
    }
    Ok(())
}

fn deleted_streams() -> Checked {
    let deleted = ["s-items", "s-results", "OBJ_s-objects"].map(Happening::DeleteStream);
    let missing =
        ["s-items", "s-results"].map(|it| Happening::KillBroker(Files::Without(it), SOON));
    let consumers = ["s-items", "s-results"].map(Happening::DeleteConsumers);
    for happening in deleted.into_iter().chain(missing).chain(consumers) {
        let plan = Plan { retries: 3, wait_for: FOR_GOOD, ..plan_of_large_values(400) };
        completes(&Plan { happenings: vec![(SOON, happening.clone())], ..plan })
            .map_err(|error| format!("{happening:?}: {error}"))?;
    }
    Ok(())
}

fn forgetful_stream() -> Checked {
    for (stream, for_good) in [
        ("s-items", Some("the broker refuses to keep what was sent to it: it has confirmed items")),
        (
            "s-results",
            Some("the broker refuses to keep what was sent to it: it has confirmed results"),
        ),
        ("KV_s-keys", Some("0 of at least 1 workers take part")),
        // Workers ask for their seats again.
        ("KV_s-workers", None),
    ] {
        let forget = |keeping| [Happening::Forget(stream, keeping)];
        let plan = plan_with(1_000, &forget(Keeping::OnceEmptied));
        completes(&Plan { retries: 3, wait_for: FOR_GOOD, ..plan })
            .map_err(|error| format!("{stream}: {error}"))?;
        let plan = Plan { retries: 3, ..plan_with(1_000, &forget(Keeping::Nothing)) };
        let ended = for_good.map_or(Ok(()), |said| run_fails(&plan, said));
        ended.map_err(|error| format!("{stream} for good: {error}"))?;
    }
    Ok(())
}

/// The run ends in time though connections come and go, which answer for other streams.
fn stuck_streams() -> Checked {
    for (stream, answered, text) in [
        ("s-items", SOON, "is connected, and does not answer"),
        // With cuts, it may be away at that moment.
        ("KV_s-keys", SOON, "the broker at nats://127.0.0.1 "),
        // It keeps the last request for results.
        ("s-results", SOON * 5, "the broker "),
    ] {
        let cuts = (1..40).map(|n| (SOON * 3 * n, Happening::Cut(0, SOON / 10)));
        let stuck = [(SOON, Happening::Stick(stream, FOR_GOOD * 60))];
        for happenings in [stuck.to_vec(), stuck.iter().cloned().chain(cuts).collect()] {
            let count = happenings.len();
            // Two leases are longer than `wait_for` too.
            for lease in [2, 10] {
                let (happenings, lease) = (happenings.clone(), Duration::from_secs(lease));
                let plan = Plan { happenings, lease, ..plan_with(2_000, &[]) };
                let said = |it| format!("{stream}, {count}, a lease of {lease:?}: {it}");
                ends_in_time(&plan, answered, text).map_err(said)?;
            }
        }
    }
    stuck_object_store()
}

/// Large values cannot be read or written meanwhile.
fn stuck_object_store() -> Checked {
    let happenings = vec![
        (SOON, Happening::Cut(0, SOON / 2)),
        (SOON * 5 / 4, Happening::Stick("OBJ_s-objects", SOON * 30)),
    ];
    let plan = Plan { retries: 9, wait_for: FOR_GOOD, ..plan_of_large_values(400) };
    completes(&Plan { happenings, ..plan }).map(drop)
}

/// Checks that the run fails with this text, at most a ping after `wait_for`. The broker has answered to all for so long.
fn ends_in_time(plan: &Plan, answered: Duration, text: &str) -> Checked {
    simulate_with(plan, 1, None, |world, _| {
        let error = first_run(world)?.error.as_ref().map(|error| format!("{error:#}"));
        let limit = answered + plan.wait_for + Duration::from_secs(10);
        match error {
            Some(error) if error.contains(text) && world.now <= limit => Ok(()),
            other => Err(format!("{other:?} at {:?}", world.now)),
        }
    })
}

fn short_connections() -> Checked {
    // The client finds out after two pings that nothing comes.
    let cuts = (1..40).map(|n| (SOON * 20 * n, Happening::Cut(0, SOON / 10)));
    for most in 1..8 {
        let narrow = (SOON, Happening::Narrow(0, most));
        let happenings = std::iter::once(narrow).chain(cuts.clone()).collect();
        let (wait_for, lease) = (Duration::from_secs(60), Duration::from_secs(10));
        let plan = Plan { wait_for, lease, happenings, ..plan_with(2_000, &[]) };
        // The first connection has them used up within two heartbeats.
        let said = |it| format!("{most} messages: {it}");
        ends_in_time(&plan, SOON * 5, "the broker ").map_err(said)?;
    }
    // Wider ones carry the run further, and the time counts from the last answer that they have carried.
    for most in [12, 24, 40, 44, 48] {
        let narrow = (SOON, Happening::Narrow(0, most));
        let happenings = std::iter::once(narrow).chain(cuts.clone()).collect();
        let (wait_for, lease) = (Duration::from_secs(60), Duration::from_secs(10));
        let plan = Plan { wait_for, lease, happenings, ..plan_with(2_000, &[]) };
        fails_after_silence(&plan).map_err(|it| format!("{most} messages: {it}"))?;
    }
    for party in [0, 1] {
        let cuts = (0..200).map(|n| (SOON * n, Happening::Cut(party, SOON / 3)));
        let plan = Plan { retries: 3, wait_for: FOR_GOOD, ..plan_with(500, &[]) };
        completes(&Plan { happenings: cuts.collect(), ..plan })?;
    }
    Ok(())
}

/// Checks that the run fails, and that neither the key nor the results had no answer for longer than `wait_for` and 10 s
/// before.
fn fails_after_silence(plan: &Plan) -> Checked {
    simulate_with(plan, 1, None, |world, _| {
        let error = first_run(world)?.error.as_ref().map(|error| format!("{error:#}"));
        let silences: Vec<_> = world
            .processes()
            .filter_map(|it| match it {
                Process::Coordinator(host) => Some(host.silences.longest(world.now)),
                Process::Worker(_) => None,
            })
            .collect();
        let limit = plan.wait_for + Duration::from_secs(10);
        match error {
            Some(_) if silences.iter().flatten().all(|silence| *silence <= limit) => Ok(()),
            other => Err(format!("{other:?} at {:?}: {silences:?}", world.now)),
        }
    })
}

fn suspended_parties() -> Checked {
    for leases in [2, 5] {
        let plan = plan_with(400, &[]);
        let time = plan.lease * leases;
        let (coordinator, worker) = (Happening::Stop(0, time), Happening::Stop(1, time));
        let broker = Happening::PauseBroker(time);
        for suspended in [
            vec![coordinator.clone()],
            vec![worker.clone()],
            vec![broker.clone()],
            vec![coordinator.clone(), broker.clone()],
            vec![coordinator, worker, broker],
        ] {
            let happenings = suspended.iter().map(|it| (SOON, it.clone())).collect();
            let plan = Plan { retries: 3, wait_for: FOR_GOOD, happenings, ..plan.clone() };
            completes(&plan).map_err(|error| format!("{suspended:?}: {error}"))?;
        }
    }
    Ok(())
}

/// A pool looks at that while it is built, before there is a run.
fn small_messages() -> Checked {
    check_payload(2_048, "the configuration", 500).map_err(|error| error.to_string())?;
    for (most, bytes, least) in [(1_000, 500, "2048"), (5_000, 4_500, "5524")] {
        let text = check_payload(most, "the configuration", bytes).map_err(|it| it.to_string());
        let is_named = text.as_ref().is_err_and(|it| {
            it.contains(&format!("at most {most} bytes")) && it.contains(&format!("needs {least}"))
        });
        is_named.then_some(()).ok_or(format!("{text:?}"))?;
    }
    Ok(())
}

fn missing_workers() -> Checked {
    let text = "0 of at least 1 workers take part";
    run_fails(&plan_with(2_000, &[Happening::Kill(1)]), text)?;
    let plan = plan_with(2_000, &[Happening::MissWorkers(0)]);
    run_fails(&Plan { workers: vec![0], ..plan.clone() }, text)?;
    // It is decided whether the workers or the broker are to blame.
    let happenings =
        vec![(SOON, Happening::PauseBroker(FOR_GOOD)), (SOON * 2, Happening::MissWorkers(0))];
    run_fails(&Plan { happenings, ..plan.clone() }, "is connected, and does not answer")?;
    let key = Happening::LoseMessages("KV_s-keys", 1);
    let happenings = [key, Happening::Refuse(FOR_GOOD), Happening::MissWorkers(0)];
    let happenings = happenings.into_iter().map(|it| (SOON, it)).collect();
    run_fails(&Plan { happenings, ..plan }, "the broker refuses the run's key")
}

fn cancelled_run() -> Checked {
    let hooks = HookSettings { most: Duration::from_secs(20), ..small_plan(0).hooks };
    let plan = Plan { hooks, ..plan_with(1_000, &[Happening::Cancel(0)]) };
    simulate_with(&plan, 1, None, |world, account| {
        let run = first_run(world)?;
        let hooks = workers_hooks(world);
        match (&run.error, run.outcomes.len(), account.given_up) {
            (None, 0..1_000, 1..) if hooks == 0 => Ok(()),
            seen => Err(format!("error, outcomes, items given up: {seen:?}; hooks: {hooks}")),
        }
    })
}

fn lost_coordinator() -> Checked {
    let hooks = HookSettings { most: Duration::from_secs(600), ..small_plan(0).hooks };
    let plan = Plan { hooks, ..plan_with(1_000, &[Happening::Kill(0)]) };
    simulate_with(&plan, 1, None, |world, account| {
        let begun = account.begun.len();
        world.run_for(plan.lease * 2);
        let wanted = workers_hooks(world);
        world.later(world.now, Happening::Terminate(1));
        world.run_for(Duration::from_secs(25 * 60 * 60));
        match (begun, wanted, world.left_at_broker()) {
            (1.., 0, left) if left.is_empty() => Ok(()),
            seen => Err(format!("begun, hooks that go on, left at the broker: {seen:?}")),
        }
    })
}

fn two_coordinators() -> Checked {
    let (runs, names) = (vec![vec![2_000], vec![1]], vec!["run", "run"]);
    let plan = Plan { runs, names, ..plan_with(0, &[]) };
    run_fails(&plan, "has taken over the run")?;
    // It finds that out while it looks why it has no workers.
    let happenings = vec![(plan.lease * 2 + SOON / 4, Happening::MissWorkers(0))];
    let runs = vec![vec![2_000], vec![200]];
    run_fails(&Plan { runs, happenings, ..plan }, "has taken over the run")
}

/// Every other input is large, and so are the outputs of the rest.
fn plan_of_large_values(items: u64) -> Plan {
    let hooks = HookSettings { large: 2, ..small_plan(0).hooks };
    Plan { hooks, most_inline: 200, ..plan_with(items, &[]) }
}

fn too_large_outputs() -> Checked {
    let plan = Plan { largest_output: 100, ..plan_of_large_values(8) };
    items_fail(&plan, "`Nats::largest_output` allows 100").map(drop)
}

fn large_values() -> Checked {
    completes_with(&plan_of_large_values(50), |world, _| {
        world.run_for(SOON);
        let mut stores = world.broker.streams().filter(|it| it.0 == "OBJ_s-objects");
        let store = stores.next().map(|it| it.1);
        let is_used = store.is_some_and(|it| it.messages == 0 && it.last_sequence >= 50);
        is_used.then_some(()).ok_or(format!("{store:?}"))
    })
    .map(drop)
}

fn full_object_store() -> Checked {
    let plan = Plan { object_room: Some(100), ..plan_of_large_values(8) };
    match items_fail(&plan, "the broker's object store refuses it")? {
        4 => Ok(()),
        begun => Err(format!("{begun} hooks have begun; four inputs fit into messages")),
    }
}

fn full_broker() -> Checked {
    let plan = plan_with(2_000, &[Happening::Refuse(FOR_GOOD)]);
    run_fails(&plan, "the broker refuses an item or a result: ")?;
    let replaced = [Happening::Kill(1), Happening::Replace(1), Happening::Refuse(FOR_GOOD)];
    run_fails(&plan_with(2_000, &replaced), "the broker refuses")
}

/// Checks that the run fails with this text.
fn run_fails(plan: &Plan, text: &str) -> Checked {
    simulate_with(plan, 1, None, |world, _| {
        let error = first_run(world)?.error.as_ref().map(|error| format!("{error:#}"));
        match error {
            Some(error) if error.contains(text) => Ok(()),
            other => Err(format!("the run fails with {other:?}")),
        }
    })
}

/// Checks that items fail with this text, and none with another, and that the run goes on. Returns how often a hook has
/// begun an item.
fn items_fail(plan: &Plan, text: &str) -> Result<u64, String> {
    simulate_with(plan, 1, None, |world, account| {
        let run = first_run(world)?;
        let failed = run.outcomes.iter().filter_map(|outcome| outcome.as_ref().err());
        let failed: Vec<_> = failed.collect();
        let is_whole = run.error.is_none() && run.outcomes.len() as u64 == run.items;
        match is_whole && !failed.is_empty() && failed.iter().all(|error| error.contains(text)) {
            true => Ok(account.begun.values().sum()),
            false => Err(format!("run: {:?}; items: {failed:?}", run.error)),
        }
    })
}

/// Checks that each item has its output. Returns how often a hook has begun an item.
fn completes(plan: &Plan) -> Result<u64, String> {
    completes_with(plan, |_, account| Ok(account.begun.values().sum()))
}

/// Checks that each item has its output, and then looks at the cluster.
fn completes_with<T>(
    plan: &Plan,
    look: impl FnOnce(&mut World<'_>, &HookAccount) -> Result<T, String>,
) -> Result<T, String> {
    simulate_with(plan, 1, None, |world, account| {
        let run = first_run(world)?;
        check_run(plan, run)?;
        let failed = run.outcomes.iter().find_map(|outcome| outcome.as_ref().err());
        failed.map_or(Ok(()), |error| Err(error.clone()))?;
        look(world, account)
    })
}

/// The first run of the first coordinator.
fn first_run<'a>(world: &'a World<'_>) -> Result<&'a RunEnd, String> {
    let mut pools = world.processes().filter_map(|process| match process {
        Process::Coordinator(host) => host.pool.as_ref(),
        Process::Worker(_) => None,
    });
    let run = pools.next().and_then(|pool| pool.ended.first());
    run.ok_or_else(|| "no run has ended".to_owned())
}

/// The number of items that are in hooks of workers, and were not given up.
fn workers_hooks(world: &World<'_>) -> usize {
    let hooks = world.processes().map(|process| match process {
        Process::Coordinator(_) => 0,
        Process::Worker(host) => host.hooks.wanted(),
    });
    hooks.sum()
}
