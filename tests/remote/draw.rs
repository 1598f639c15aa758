//! Numbers that a seed draws, and how often something is tried.

use std::time::Duration;

/// The next number of a sequence, and its next state: splitmix64.
pub struct Draw(u64);

impl Draw {
    /// `GANGLINE_KILLS_SEED` draws others.
    pub fn of(which: u64) -> Self {
        let seed = std::env::var("GANGLINE_KILLS_SEED").ok();
        let seed = seed.map_or(0, |seed| seed.parse::<u64>().unwrap());
        Draw(mixed(seed).wrapping_add(which))
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    /// From one number of milliseconds to another.
    pub fn pause(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(1000 * from + self.number() % (1000 * (to - from)))
    }
}

pub fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// `GANGLINE_KILLS=full` does as much as a night allows.
pub fn times(few: u64, full: u64) -> u64 {
    match std::env::var("GANGLINE_KILLS").as_deref() {
        Ok("full") => full,
        _ => few,
    }
}
