//! Results on their way from one party to the collector.
//!
//! What crosses from one core to another costs by the cache line, so an output travels alone. Which
//! item it belongs to is said once for each run of neighbours, and errors, which are rare, go the same
//! way as these labels.

use std::collections::VecDeque;

use crate::backend::threads::failed_item::FailedItem;
use crate::concurrency::queue::{Receiver, Sender, queue};

/// What became of one item on its producer. Faults are boxed, since every outcome is moved several
/// times on its way to the consumer and hardly any of them is one.
pub(crate) type Outcome<T> = Result<T, Box<FailedItem>>;

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
    /// The index after the greatest one that was pushed before the last label.
    reach: u64,
}

/// Where results come out.
#[derive(Debug)]
pub(crate) struct Results<T> {
    outputs: Receiver<T>,
    labels: Receiver<Label>,
    /// How many outputs were here when it was last looked, less those taken since.
    here: usize,
    /// How many outputs were taken.
    taken: u64,
    /// How many results were taken: outputs and errors.
    collected: u64,
    /// The index of the next output, if there is no label for it.
    expected: u64,
    /// The labels that were seen and not yet obeyed.
    ahead: VecDeque<Label>,
    /// How many of them go back.
    backward: usize,
    /// An item without an output, whose turn it is.
    failed: Option<(u64, Box<FailedItem>)>,
}

/// Something that is known before the output with the number `at`, counted from 0, is taken.
#[derive(Debug)]
struct Label {
    at: u64,
    seq: u64,
    says: Says,
    /// Greater indices came before.
    goes_back: bool,
}

#[derive(Debug)]
enum Says {
    /// From that output on, each belongs to the item after the one before; that one to `seq`.
    From,
    /// The item `seq` failed and has no output. The next output, where no label says otherwise, is
    /// that of the item after it.
    Failed(Box<FailedItem>),
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
        expected: 0,
        reach: 0,
    };
    let results = Results {
        outputs,
        labels,
        here: 0,
        taken: 0,
        collected: 0,
        expected: 0,
        ahead: VecDeque::new(),
        backward: 0,
        failed: None,
    };
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
            Err(error) => {
                self.label(seq, Says::Failed(error));
                self.expected = seq + 1;
            }
        }
    }

    /// Says of the next output, or in its place, which item it is. A label goes ahead of its output, so that whoever finds the output finds the label too.
    fn label(&mut self, seq: u64, says: Says) {
        self.reach = self.reach.max(self.expected);
        let goes_back = seq < self.reach;
        self.labels.push(Label { at: self.pushed, seq, says, goes_back });
    }
}

impl<T> Results<T> {
    /// How many results were taken, or were here when it was last looked.
    pub(crate) fn seen(&self) -> u64 {
        self.collected + self.here as u64 + u64::from(self.failed.is_some())
    }

    /// Whether a result that was here when it was last looked has not been taken.
    pub(crate) fn holds_back(&self) -> bool {
        self.here > 0 || self.failed.is_some()
    }

    /// Whether there is something that was not here when it was last looked. Never `false` when
    /// there is, except outputs behind others, which nobody can take yet.
    pub(crate) fn has_new(&mut self) -> bool {
        self.has_many_new(1) || self.labels.len() > 0
    }

    /// Whether so many outputs are here that were not when it was last looked, or, of a lane that was
    /// empty, at least more than its ring had room for. Errors do not count.
    pub(crate) fn has_many_new(&mut self, outputs: usize) -> bool {
        self.outputs.len() >= self.here + outputs || (self.here == 0 && self.outputs.has_more())
    }

    /// Looks for what came since the last time; whether there is a result now.
    pub(crate) fn look(&mut self) -> bool {
        // A label is pushed before its output: all those of the outputs seen here are seen next.
        self.here = self.outputs.len();
        while let Some(label) = self.labels.pop() {
            self.backward += usize::from(label.goes_back);
            self.ahead.push_back(label);
        }
        self.head().is_some()
    }

    /// The item that the oldest result belongs to, of those that were here when it was last looked.
    pub(crate) fn head(&mut self) -> Option<u64> {
        while self.failed.is_none() && self.next_label_at() == self.taken {
            let label = self.ahead.pop_front().expect("it was looked at");
            self.backward -= usize::from(label.goes_back);
            match label.says {
                Says::From => self.expected = label.seq,
                Says::Failed(error) => {
                    self.failed = Some((label.seq, error));
                    self.expected = label.seq + 1;
                }
            }
        }
        match &self.failed {
            Some((seq, _)) => Some(*seq),
            None => (self.here > 0).then_some(self.expected),
        }
    }

    /// Whether what is here has to be moved aside while it is not its turn: since a result behind the
    /// [`head`](Results::head) may belong to an earlier item, or since it fills the ring, behind which
    /// nobody sees what comes.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.backward > 0 || (self.here > 0 && self.outputs.has_more())
    }

    /// How many results, from the [`head`](Results::head) on, belong to items that follow each other.
    pub(crate) fn in_a_row(&self) -> usize {
        match self.failed {
            Some(_) => 1,
            None => (self.here as u64).min(self.next_label_at() - self.taken) as usize,
        }
    }

    /// Takes the oldest result.
    ///
    /// # Panics
    ///
    /// When there is no [`head`](Results::head).
    #[inline]
    pub(crate) fn pop(&mut self) -> (u64, Outcome<T>) {
        self.collected += 1;
        if let Some((seq, error)) = self.failed.take() {
            return (seq, Err(error));
        }
        let seq = self.expected;
        self.expected += 1;
        self.taken += 1;
        self.here -= 1;
        (seq, Ok(self.outputs.pop().expect("so many outputs are here")))
    }

    fn next_label_at(&self) -> u64 {
        self.ahead.front().map_or(u64::MAX, |label| label.at)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;

    fn collected(results: &mut Results<u64>) -> Vec<(u64, Option<u64>)> {
        let mut all = Vec::new();
        while results.look() {
            let (seq, outcome) = results.pop();
            all.push((seq, outcome.ok()));
        }
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
                let outcome = if fails { Err(FailedItem::ending(Error::Closed {})) } else { Ok(10 * seq) };
                pushed.push((seq, outcome.as_ref().ok().copied()));
                outbox.push(seq, outcome);
                prop_assert!(results.has_new());
                seq += 1;
                if looks {
                    seen.extend(collected(&mut results));
                    prop_assert_eq!(&seen, &pushed);
                    prop_assert!(!results.has_new());
                }
            }
            seen.extend(collected(&mut results));
            prop_assert_eq!(seen, pushed);
        }
    }
}
