//! What is killed, and how often.

use std::time::{Duration, Instant};

use crate::draw::{Draw, times};
use crate::stage::Stage;
use crate::suite::tests;

tests![
    workers_are_killed,
    the_broker_is_killed,
    the_coordinator_is_killed,
    everything_is_killed,
    workers_come_and_go,
    the_store_is_rolled_back,
    the_store_is_damaged,
];

fn workers_are_killed() {
    let mut stage = Stage::new(3, 1);
    for _ in 0..times(3, 30) {
        stage.kill_worker();
        stage.pause(50, 1000);
    }
    stage.finish();
}

fn the_broker_is_killed() {
    let mut stage = Stage::new(3, 2);
    for _ in 0..times(1, 10) {
        stage.kill_broker();
        stage.pause(50, 3000);
    }
    stage.finish();
}

fn the_coordinator_is_killed() {
    let mut stage = Stage::new(3, 3);
    for _ in 0..times(3, 30) {
        stage.kill_coordinator();
        stage.pause(50, 1500);
    }
    stage.finish();
}

fn everything_is_killed() {
    let (mut stage, mut draw) = (Stage::new(3, 4), Draw::of(!4));
    for _ in 0..times(3, 70) {
        match draw.below(7) {
            0..3 => stage.kill_worker(),
            3 => stage.kill_broker(),
            _ => stage.kill_coordinator(),
        }
        stage.pause(50, 1500);
    }
    stage.finish();
}

/// As by a power failure, or by a machine that is restored from a copy.
fn the_store_is_rolled_back() {
    let mut stage = Stage::new(3, 6);
    for _ in 0..times(2, 30) {
        stage.copy_store();
        stage.await_lines(50);
        stage.roll_back_store();
        stage.await_lines(50);
    }
    stage.finish();
}

/// As by a disk with errors, in a night alone: a broker of that age may answer nothing then, so a run may end with that error.
/// The next one goes on where it has ended.
fn the_store_is_damaged() {
    let mut stage = Stage::new(3, 7);
    for _ in 0..times(0, 70) {
        stage.damage_store();
        stage.await_lines(50);
    }
    stage.finish();
}

fn workers_come_and_go() {
    let mut stage = Stage::new(2, 5);
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(times(4, 300)) {
        stage.change_workers();
        stage.pause(900, 1100);
    }
    stage.finish();
}
