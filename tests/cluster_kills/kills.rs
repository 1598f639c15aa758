//! What is killed, and how often.

use std::time::{Duration, Instant};

use crate::chores::tests;
use crate::stage::Stage;

tests![
    workers_are_killed,
    the_broker_is_killed,
    the_coordinator_is_killed,
    everything_is_killed,
    workers_come_and_go,
];

fn workers_are_killed() {
    let mut stage = Stage::new(3, seed(1));
    for _ in 0..times(3, 30) {
        stage.kill_worker();
        stage.pause(50, 1000);
    }
    stage.finish();
}

fn the_broker_is_killed() {
    let mut stage = Stage::new(3, seed(2));
    for _ in 0..times(1, 10) {
        stage.kill_broker();
        stage.pause(50, 3000);
    }
    stage.finish();
}

fn the_coordinator_is_killed() {
    let mut stage = Stage::new(3, seed(3));
    for _ in 0..times(3, 30) {
        stage.kill_coordinator();
        stage.pause(50, 1500);
    }
    stage.finish();
}

fn everything_is_killed() {
    let seed = seed(4);
    let mut stage = Stage::new(3, seed);
    let mut draw = crate::draw::Draw::new(!seed);
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

fn workers_come_and_go() {
    let mut stage = Stage::new(2, seed(5));
    let since = Instant::now();
    while since.elapsed() < Duration::from_secs(times(4, 300)) {
        stage.change_workers();
        stage.pause(900, 1100);
    }
    stage.finish();
}

fn times(few: u64, full: u64) -> u64 {
    match std::env::var("GANGLINE_KILLS").as_deref() {
        Ok("full") => full,
        _ => few,
    }
}

fn seed(of: u64) -> u64 {
    let drawn = std::env::var("GANGLINE_KILLS_SEED").ok();
    drawn.map_or(0, |seed| seed.parse::<u64>().unwrap()) * 100 + of
}
