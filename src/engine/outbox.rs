//! Results on their way from one party to the collector.
//!
//! What crosses from one core to another costs by the cache line, so an output travels alone. Which
//! item it belongs to is said once for each run of neighbours, and errors, which are rare, go the same
//! way as these labels.

use super::queue::{Receiver, Sender, queue};
use crate::error::Error;

/// What became of one item on its producer. Errors are boxed, since every outcome is moved several
/// times on its way to the consumer and hardly any of them is one.
pub(crate) type Outcome<T> = Result<T, Box<Error>>;

/// Where results go in.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    outputs: Sender<T>,
    labels: Sender<Label>,
    /// How many outputs were pushed.
    pushed: u64,
    /// How many results were pushed: outputs and errors.
    delivered: u64,
    /// The index that the next output has if there is no label for it.
    expected: u64,
}

/// Where results come out.
#[derive(Debug)]
pub(crate) struct Results<T> {
    outputs: Receiver<T>,
    labels: Receiver<Label>,
    /// How many outputs were taken.
    taken: u64,
    /// How many results were taken: outputs and errors.
    collected: u64,
    /// The index of the next output, if there is no label for it.
    expected: u64,
    /// A label for an output that had not arrived when it was read.
    label: Option<Label>,
}

/// Something that is known before the output with the number `at`, counted from 0, is taken.
#[derive(Debug)]
struct Label {
    at: u64,
    seq: u64,
    says: Says,
}

#[derive(Debug)]
enum Says {
    /// From that output on, each belongs to the item after the one before; that one to `seq`.
    From,
    /// The item `seq` failed and has no output.
    Failed(Box<Error>),
}

/// An outbox and its other end.
pub(crate) fn outbox<T>(window: usize) -> (Outbox<T>, Results<T>) {
    let (output_sender, outputs) = queue(window);
    let (label_sender, labels) = queue(window);
    let outbox = Outbox {
        outputs: output_sender,
        labels: label_sender,
        pushed: 0,
        delivered: 0,
        expected: u64::MAX,
    };
    let results =
        Results { outputs, labels, taken: 0, collected: 0, expected: u64::MAX, label: None };
    (outbox, results)
}

impl<T> Outbox<T> {
    /// How many results were pushed.
    #[inline]
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    #[inline]
    pub(crate) fn push(&mut self, seq: u64, outcome: Outcome<T>) {
        self.delivered += 1;
        match outcome {
            Ok(output) => {
                if seq != self.expected {
                    self.label(seq, Says::From);
                }
                self.outputs.push(output);
                self.pushed += 1;
                self.expected = seq + 1;
            }
            Err(error) => self.label(seq, Says::Failed(error)),
        }
    }

    /// A label goes ahead of its output, so that whoever finds the output finds the label too.
    fn label(&mut self, seq: u64, says: Says) {
        self.labels.push(Label { at: self.pushed, seq, says });
    }
}

impl<T> Results<T> {
    /// How many results were taken.
    pub(crate) fn collected(&self) -> u64 {
        self.collected
    }

    /// Whether so many outputs are here, or at least more than a ring had room for. Errors do not
    /// count.
    pub(crate) fn has_many(&mut self, outputs: usize) -> bool {
        self.outputs.len() >= outputs || self.outputs.has_more()
    }

    /// Whether there is something to collect. Never `false` while there is.
    pub(crate) fn has_some(&mut self) -> bool {
        self.outputs.len() > 0 || self.labels.len() > 0
    }

    /// Moves everything that is here to `sink`, in the order in which it was pushed. What comes
    /// meanwhile is left for the next time, so that a quick producer cannot hold the caller up.
    pub(crate) fn collect(&mut self, mut sink: impl FnMut(u64, Outcome<T>)) {
        self.collect_ring(&mut sink);
        while self.outputs.has_more() {
            self.collect_ring(&mut sink);
        }
    }

    fn collect_ring(&mut self, mut sink: impl FnMut(u64, Outcome<T>)) {
        let here = self.outputs.len();
        let end = self.taken + here as u64;
        loop {
            if self.label.is_none() && self.labels.len() > 0 {
                self.label = self.labels.take(1).next();
            }
            let labelled = self.label.as_ref().map_or(u64::MAX, |label| label.at);
            if labelled == self.taken {
                let Label { seq, says, .. } = self.label.take().expect("it was looked at");
                match says {
                    Says::From => self.expected = seq,
                    Says::Failed(error) => {
                        self.collected += 1;
                        sink(seq, Err(error));
                    }
                }
            } else if self.taken < end {
                self.take_until(end.min(labelled), &mut sink);
            } else {
                return;
            }
        }
    }

    fn take_until(&mut self, end: u64, sink: &mut impl FnMut(u64, Outcome<T>)) {
        for output in self.outputs.take((end - self.taken) as usize) {
            sink(self.expected, Ok(output));
            self.expected += 1;
        }
        self.collected += end - self.taken;
        self.taken = end;
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn collected(results: &mut Results<u64>) -> Vec<(u64, Option<u64>)> {
        let mut all = Vec::new();
        results.collect(|seq, outcome| all.push((seq, outcome.ok())));
        all
    }

    proptest! {
        /// `steps`: an index, whether the item failed, and whether the collector looks afterwards.
        #[test]
        fn what_goes_in_comes_out_in_order(
            steps in proptest::collection::vec((0u64..6, any::<bool>(), any::<bool>()), 0..200),
        ) {
            let (mut outbox, mut results) = outbox(8);
            let (mut pushed, mut seen) = (Vec::new(), Vec::new());
            let mut seq = 0;
            for (gap, fails, looks) in steps {
                seq += gap.saturating_sub(3);
                let outcome = if fails { Err(Box::new(Error::Closed {})) } else { Ok(10 * seq) };
                pushed.push((seq, outcome.as_ref().ok().copied()));
                outbox.push(seq, outcome);
                prop_assert!(results.has_some());
                seq += 1;
                if looks {
                    seen.extend(collected(&mut results));
                    prop_assert_eq!(&seen, &pushed);
                    prop_assert!(!results.has_some());
                }
            }
            seen.extend(collected(&mut results));
            prop_assert_eq!(seen, pushed);
        }
    }
}
