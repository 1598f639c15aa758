//! The work on an item: chains of multiply-adds, each dependent on the one before.

use std::hint::black_box;
use std::ops::Range;
use std::str::FromStr;
use std::time::{Duration, Instant};

use gangline::BoxError;

/// This number of parallel chains saturates the processor's multiplier. With one chain, the plain loop would
/// overlap several items, and its time per item would not be the time of an item.
const LANES: usize = 4;

/// The duration of the work on an item.
#[derive(Clone, Copy, PartialEq)]
pub struct Amount {
    pub name: &'static str,
    pub time: Duration,
}

impl Amount {
    pub const NONE: Self = Self::new("none", 0);
    pub const NS_60: Self = Self::new("60 ns", 60);
    pub const US_1: Self = Self::new("1 µs", 1_000);
    pub const US_10: Self = Self::new("10 µs", 10_000);
    pub const US_100: Self = Self::new("100 µs", 100_000);
    /// The amounts with promises, and further points of the plot.
    pub const ALL: [Self; 8] = [
        Self::NONE,
        Self::NS_60,
        Self::US_1,
        Self::US_10,
        Self::new("10 ns", 10),
        Self::new("200 ns", 200),
        Self::new("5 µs", 5_000),
        Self::US_100,
    ];

    const fn new(name: &'static str, nanoseconds: u64) -> Self {
        Self { name, time: Duration::from_nanos(nanoseconds) }
    }
}

impl FromStr for Amount {
    type Err = BoxError;

    /// Parses a name as printed, or in a form without special characters: `1us`.
    fn from_str(text: &str) -> Result<Self, BoxError> {
        let typed = |amount: &Self| amount.name.replace(' ', "").replace('µ', "u");
        let named =
            Self::ALL.into_iter().find(|amount| amount.name == text || typed(amount) == text);
        named.ok_or_else(|| {
            let all: Vec<_> = Self::ALL.iter().map(typed).collect();
            format!("no row is called {text:?}; there are {}", all.join(", ")).into()
        })
    }
}

#[derive(Clone, Copy, PartialEq)]
pub struct Work {
    steps: u64,
    factor: u64,
    addend: u64,
    time: Duration,
}

impl Work {
    /// Returns work that takes the plain loop this long, on this machine at this time.
    pub fn calibrated(time: Duration) -> Self {
        if time.is_zero() {
            return Self::of_steps(0);
        }
        let seconds = time.as_secs_f64();
        let mut steps = (seconds * 1e9).max(1.0);
        // The chains are not the whole cost of an item, so the second guess is not exact either.
        for _ in 0..4 {
            let measured = Self::of_steps(steps as u64).seconds_in_a_loop(1e-3 / seconds);
            steps = (steps * seconds / measured).max(1.0);
        }
        Self { time, ..Self::of_steps(steps.round() as u64) }
    }

    pub fn of_steps(steps: u64) -> Self {
        // Opaque, or the compiler would merge the steps into fewer.
        let (factor, addend) = black_box((6_364_136_223_846_793_005, 1_442_695_040_888_963_407));
        Self { steps, factor, addend, time: Duration::ZERO }
    }

    pub fn steps(self) -> u64 {
        self.steps
    }

    /// The duration it was calibrated for.
    pub fn time(self) -> Duration {
        self.time
    }

    #[inline]
    pub fn on(self, x: u64) -> u64 {
        let step = |x: u64| x.wrapping_mul(self.factor).wrapping_add(self.addend);
        let lanes = (0..self.steps).fold([x; LANES], |lanes, _| lanes.map(step));
        black_box(lanes.into_iter().fold(0, u64::wrapping_add))
    }

    /// The plain loop. All other subjects must have the same sum.
    pub fn sum_in_a_loop(self, items: u64) -> u64 {
        self.sum_of(0..black_box(items))
    }

    pub fn sum_of(self, items: Range<u64>) -> u64 {
        items.fold(0, |sum: u64, x| sum.wrapping_add(self.on(x)))
    }

    /// The same sum in closed form: a chain as a whole is `factor * x + addend`.
    pub fn sum(self, items: u64) -> u64 {
        let (factor, addend) = self.as_one_step();
        let below = u128::from(items) * u128::from(items.saturating_sub(1)) / 2;
        factor.wrapping_mul(below as u64).wrapping_add(addend.wrapping_mul(items))
    }

    pub fn as_one_step(self) -> (u64, u64) {
        let (factor, addend) = (0..self.steps).fold((1, 0), |(factor, addend): (u64, u64), _| {
            let scaled = addend.wrapping_mul(self.factor);
            (factor.wrapping_mul(self.factor), scaled.wrapping_add(self.addend))
        });
        (factor.wrapping_mul(LANES as u64), addend.wrapping_mul(LANES as u64))
    }

    /// The time per item: the least of many short measurements, some of which are undisturbed.
    fn seconds_in_a_loop(self, items: f64) -> f64 {
        let items = items.max(1.0) as u64;
        let measure = |_| {
            let start = Instant::now();
            black_box(self.sum_in_a_loop(items));
            start.elapsed().as_secs_f64() / items as f64
        };
        (0..20).map(measure).fold(f64::INFINITY, f64::min)
    }
}
