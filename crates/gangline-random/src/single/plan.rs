//! The random composition of one pool and its run.

use super::*;

impl Plan {
    pub(super) fn random(random: &mut fastrand::Rng) -> Self {
        let settings = Settings::random(random);
        let items = match random.u8(0..10) {
            0 => random.u64(0..3),
            1 => random.u64(100..800),
            _ => random.u64(1..60),
        };
        let (one_in, kinds) = (random.u64(1..60), random.u16(0..256));
        let mut faults: Vec<Fault> = (0..items)
            .map(|_| match random.u64(0..one_in) {
                0 => random_fault(random, kinds),
                _ => Fault::None,
            })
            .collect();
        if settings.timeout == Timeout::Short && items > 0 {
            for _ in 0..random.u8(1..4) {
                faults[random.usize(0..items as usize)] = Fault::Slow;
            }
        }
        let mut inputs = InputFaults { has_size: random.bool(), ..InputFaults::default() };
        let at = Some(random.u64(0..items + 2));
        match random.u8(0..20) {
            0 => inputs.fails_at = at,
            1 => inputs.panics_at = at,
            2 | 3 => inputs.cancels_at = at,
            4 => inputs.drains_at = at,
            _ => {}
        }
        let journal = random.u8(0..12) == 0;
        let consume = match random.u8(0..8) {
            0 if !journal => Consume::Outputs,
            1 if !journal => Consume::IntoOutputs,
            2 if !journal => Consume::OutputsStream,
            3 => Consume::RunStream,
            _ => Consume::Run,
        };
        // A stream says nothing of its length.
        inputs.has_size &= !matches!(consume, Consume::RunStream | Consume::OutputsStream);
        Plan {
            settings,
            order_type: random.u8(0..2),
            consume,
            take: (random.u8(0..3) == 0).then(|| random.usize(0..items as usize + 2)),
            journal,
            runs_again: random.bool(),
            closes: random.bool(),
            inputs,
            asks: Ask::random(random),
            items: faults.into(),
        }
    }

    /// Whether the run may be cancelled.
    pub(super) fn cancels(&self) -> bool {
        self.inputs.cancels_at.is_some() || matches!(self.asks, Some(Ask::Cancel(_)))
    }

    /// Copies the items and settings, without faults of the run itself.
    pub(super) fn clone_for_resume(&self) -> Plan {
        let mut settings = self.settings.clone();
        settings.hooks =
            HookFaults { takes_out: settings.hooks.takes_out, ..HookFaults::default() };
        settings.min_producers = None;
        Plan {
            settings,
            order_type: self.order_type,
            consume: Consume::Run,
            take: None,
            journal: true,
            runs_again: false,
            closes: self.closes,
            inputs: InputFaults::default(),
            asks: None,
            items: self.items.clone(),
        }
    }
}
