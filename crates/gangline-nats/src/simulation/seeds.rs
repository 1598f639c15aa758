//! Many clusters, each from a seed: they keep the laws, a seed is the same run twice, and together they reach the protocol.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use gangline::backend::{Mutex, catch, lock};

use super::branches::{listed, reached_by};
use super::{Plan, outages, simulate};

/// After this number of failures, no more seeds are run.
const MOST_FAILURES: usize = 20;
/// How many seeds are run twice.
const SEEDS_TWICE: u64 = 30;
/// How many seeds are run to see what they reach.
const SEEDS_TO_REACH: u64 = 500;

#[test]
fn clusters_keep_their_laws() {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse().expect(name));
    let first = number("GANGLINE_SEED").unwrap_or(1);
    let count = number("GANGLINE_SEEDS").unwrap_or(100);
    let failed = Mutex::new(vec![]);
    each_on_all_cores(first..first + count, |seed| {
        let error = simulate_caught(seed, None).err();
        lock(&failed).extend(error.map(|error| (seed, error)));
        lock(&failed).len() < MOST_FAILURES
    });
    let failed = std::mem::take(&mut *lock(&failed));
    let Some((seed, error)) = failed.first() else { return };
    if count == 1 {
        logged(*seed).0.iter().for_each(|line| eprintln!("{line}"));
    }
    let short = |error: &str| error.chars().take(200).collect::<String>();
    failed.iter().for_each(|(seed, error)| eprintln!("seed {seed}: {}", short(error)));
    panic!("{} seeds fail. Seed {seed}: {error}\n{:#?}", failed.len(), Plan::new(*seed));
}

#[test]
fn a_seed_is_the_same_run_twice() {
    each_on_all_cores(1..1 + SEEDS_TWICE, |seed| {
        let (one, other) = (logged(seed), logged(seed));
        let same = one.0.iter().zip(&other.0).take_while(|(one, other)| one == other).count();
        let next = |log: &[String]| log.get(same).cloned();
        assert_eq!(next(&one.0), next(&other.0), "seed {seed}, after {same} equal lines");
        assert_eq!(one.1, other.1, "seed {seed}");
        true
    });
}

#[test]
fn seeds_reach_the_branches_of_the_protocol() {
    let reached = Mutex::new(BTreeSet::new());
    each_on_all_cores(1..1 + SEEDS_TO_REACH, |seed| {
        let branches = reached_by(|| _ = simulate_caught(seed, None));
        lock(&reached).extend(branches);
        true
    });
    let mut reached = std::mem::take(&mut *lock(&reached));
    // What ends a run is no plan of a seed.
    reached.extend(reached_by(outages::run_all));
    let listed = listed();
    let unlisted: Vec<_> = reached.difference(&listed).collect();
    assert!(unlisted.is_empty(), "reached, and not listed: {unlisted:#?}");
    let missed: Vec<_> = listed.difference(&reached).collect();
    let (count, all) = (listed.len() - missed.len(), listed.len());
    println!("{count} of {all} branches are reached; not {missed:#?}");
    assert!(count * 100 >= all * 95, "{count} of {all} branches are reached; not {missed:#?}");
}

/// Calls `work` with each seed, on all cores, until it returns false.
fn each_on_all_cores(seeds: Range<u64>, work: impl Fn(u64) -> bool + Sync) {
    let next = AtomicU64::new(seeds.start);
    let some = || {
        let seeds = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|it| seeds.contains(it));
        while seeds().is_some_and(&work) {}
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(some)));
}

/// Runs a seed, and returns its messages with its outcome.
fn logged(seed: u64) -> (Vec<String>, Result<(), String>) {
    let mut log = vec![];
    let outcome = simulate_caught(seed, Some(&mut log));
    (log, outcome)
}

/// Runs a seed. A panic is an error too, so that it names its seed.
fn simulate_caught(seed: u64, trace: Option<&mut Vec<String>>) -> Result<(), String> {
    let run = || simulate(&Plan::new(seed), seed, trace);
    catch(run).unwrap_or_else(|panic| Err(format!("it panics: {panic}")))
}
