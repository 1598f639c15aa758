//! The random composition of a pipeline, and the outcomes of its items in a plain loop.

use super::*;

impl Plan {
    pub(super) fn random(random: &mut fastrand::Rng) -> Self {
        let shape = match random.u8(0..8) {
            0 | 1 => Shape::Flat(random.usize(2..=4)),
            2 | 3 => Shape::Expand,
            4 | 5 => Shape::ExpandLong,
            _ => Shape::Twice,
        };
        let faults = random.u8(0..4) > 0;
        let all_ordered = random.bool();
        let memory = (random.u8(0..5) == 0).then(|| random.u64(1..60));
        let mut stages = [(); 5].map(|()| Stage::random(random, faults));
        for stage in &mut stages {
            stage.ordered |= all_ordered;
            stage.memory = memory;
        }
        let parents = random.u64(0..25);
        let at = Some(random.u64(0..parents + 2));
        let mut plan = Plan {
            shape,
            stages,
            parents,
            most_parts: [0, 1, 4, 12, 40][random.usize(0..5)],
            open: [random.usize(1..5), random.usize(1..5)],
            folds: [Folds::Whole, Folds::WholeUnordered, Folds::Results, Folds::ResultsUnordered]
                [random.usize(0..4)],
            way: match random.u8(0..8) {
                0 => Way::Outputs,
                1 => Way::OutputsStream,
                2 => Way::RunStream,
                _ => Way::Run,
            },
            take: (random.u8(0..3) == 0).then(|| random.usize(0..parents as usize + 1)),
            cancels_at: None,
            token_of: random.usize(0..2),
            drains_at: None,
            asks: Ask::random(random),
            input_fails_at: None,
            input_panics_at: None,
            parts_panic: if faults && random.u8(0..4) == 0 { random.u64(0..40) } else { 0 },
            parts_fail: if faults && random.u8(0..4) == 0 { random.u64(0..20) } else { 0 },
            journal: random.u8(0..8) == 0,
            runs_again: random.bool(),
        };
        match random.u8(0..14) {
            0 | 1 => plan.cancels_at = at,
            2 => plan.drains_at = at,
            3 => plan.input_fails_at = at,
            4 => plan.input_panics_at = at,
            _ => {}
        }
        if plan.journal && plan.way.gives_outputs() {
            plan.way = Way::Run;
        }
        plan
    }

    pub(super) fn is_used(&self, stage: usize) -> bool {
        stage
            < match self.shape {
                Shape::Flat(stages) => stages,
                Shape::Expand => 3,
                Shape::ExpandLong => 4,
                Shape::Twice => 5,
            }
    }

    pub(super) fn used(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().enumerate().filter(|(i, _)| self.is_used(*i)).map(|(_, stage)| stage)
    }

    /// The parts of a value: their x, or an error of the iterator. `None`: it panics.
    pub(super) fn parts(
        self,
        parent: u64,
    ) -> impl Iterator<Item = Option<Result<u64, String>>> + Send {
        let count = hash(parent, 1) % (self.most_parts + 1);
        let panics_at =
            (hash(parent, 2) % 256 < self.parts_panic).then(|| hash(parent, 3) % (count + 1));
        (0..=count).filter_map(move |i| match () {
            () if Some(i) == panics_at => Some(None),
            () if i == count => None,
            () if hash(parent, 4 + i) % 256 < self.parts_fail => {
                Some(Some(Err(format!("fault of part {i}"))))
            }
            () => Some(Some(Ok(hash(parent, 1000 + i)))),
        })
    }

    pub(super) fn holes(&self) -> bool {
        matches!(self.folds, Folds::Results | Folds::ResultsUnordered)
    }

    /// The outcome of a value, if `part` gives those of its parts.
    pub(super) fn fold(&self, x: u64, part: impl Fn(u64) -> Outcome) -> Outcome {
        let (mut sum, mut came) = (0, Outcome::Value(0));
        for (one, i) in self.parts(x).zip(0..) {
            let one = match one {
                None => return Outcome::Fails,
                Some(Err(_)) => Outcome::Fails,
                Some(Ok(x)) => part(x),
            };
            match one {
                Outcome::Value(x) => add(&mut sum, i, Some(x)),
                Outcome::Fails if self.holes() => add(&mut sum, i, None),
                Outcome::Fails => came = Outcome::Fails,
                Outcome::Unknown if came != Outcome::Fails => came = Outcome::Unknown,
                Outcome::Unknown => {}
            }
        }
        // A part of a parent that fails anyway may or may not be missed by a panic behind it.
        match came {
            Outcome::Value(_) => Outcome::Value(hash(x, sum)),
            other => other,
        }
    }

    /// What an item of the input becomes in the plain loop.
    pub(super) fn expected(&self, root: u64) -> Outcome {
        if self.input_fails_at == Some(root) {
            return Outcome::Fails;
        }
        let [a, b, c, d, e] = &self.stages;
        let then = |came: Outcome, next: &dyn Fn(u64) -> Outcome| match came {
            Outcome::Value(x) => next(x),
            other => other,
        };
        let x = hash(a.seed, root);
        let first = a.expected(x);
        match self.shape {
            Shape::Flat(stages) => self.stages[1..stages]
                .iter()
                .fold(first, |came, stage| then(came, &|x| stage.expected(x))),
            Shape::Expand => {
                then(then(first, &|x| self.fold(x, |x| b.expected(x))), &|x| c.expected(x))
            }
            Shape::ExpandLong => {
                let part = |x| then(b.expected(x), &|x| c.expected(x));
                then(then(first, &|x| self.fold(x, part)), &|x| d.expected(x))
            }
            Shape::Twice => {
                let whole = then(first, &|x| self.fold(x, |x| b.expected(x)));
                let parts =
                    then(then(whole, &|x| c.expected(x)), &|x| self.fold(x, |x| d.expected(x)));
                then(parts, &|x| e.expected(x))
            }
        }
    }

    /// Whether some stage ends the run at a failure.
    pub(super) fn may_stop(&self) -> bool {
        self.used().any(|stage| !stage.skips)
    }

    /// Whether the run may be cancelled.
    pub(super) fn cancels(&self) -> bool {
        self.cancels_at.is_some() || matches!(self.asks, Some(Ask::Cancel(_)))
    }

    /// Whether the input may end early.
    pub(super) fn drains(&self) -> bool {
        self.drains_at.is_some() || matches!(self.asks, Some(Ask::Drain(_)))
    }

    pub(super) fn is_ordered(&self) -> bool {
        // A gathering in completion order still keeps the order of parents.
        self.used().all(|stage| stage.ordered)
    }
}
