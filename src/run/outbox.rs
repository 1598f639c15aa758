//! Results on their way from one producer to the collector.
//!
//! Moving data between cores costs per cache line, so an output is sent without its index. A label announces
//! the index once per run of consecutive items. Errors are rare and travel with the labels.

use std::collections::VecDeque;

use crate::concurrency::queue::{Receiver, Sender, queue};
use crate::run::no_output::NoOutput;
use crate::runner::OpenItems;

/// The outcome of one item. Failures are boxed: outcomes are moved several times, and few of them are
/// failures.
pub(crate) type Outcome<T> = Result<T, Box<NoOutput>>;

/// The producer's end.
#[derive(Debug)]
pub(crate) struct Outbox<T> {
    outputs: Sender<T>,
    labels: Sender<Label>,
    /// The number of outputs pushed.
    pushed: u64,
    /// The number of results pushed: outputs and errors.
    delivered: u64,
    /// The index of the next output, unless a label changes it.
    expected: u64,
    /// One more than the greatest index pushed before the last label.
    reach: u64,
}

/// The collector's end.
#[derive(Debug)]
pub(crate) struct OutboxReader<T> {
    outputs: Receiver<T>,
    labels: Receiver<Label>,
    /// The number of outputs available at the last look, minus those taken since.
    here: usize,
    /// The number of outputs taken.
    taken: u64,
    /// The number of results taken: outputs and errors.
    collected: u64,
    /// The index of the next output, unless a label changes it.
    expected: u64,
    /// Labels that have arrived and not yet been applied.
    ahead: VecDeque<Label>,
    /// How many of those labels go back to a smaller index.
    backward: usize,
    /// A failed item that is next in order of this outbox.
    failed: Option<(u64, Box<NoOutput>)>,
}

/// Takes effect before the output number `at`, counted from 0, is taken.
#[derive(Debug)]
struct Label {
    at: u64,
    seq: u64,
    says: Says,
    /// Whether greater indices were pushed before.
    goes_back: bool,
}

#[derive(Debug)]
enum Says {
    /// The output at `at` belongs to item `seq`, the following ones to consecutive items.
    From,
    /// Item `seq` failed and has no output. The following output belongs to the next item.
    Failed(Box<NoOutput>),
}

/// Creates both ends of an outbox.
pub(crate) fn outbox<T>(window: usize) -> (Outbox<T>, OutboxReader<T>) {
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
    let results = OutboxReader {
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

    /// Pushes a label for the next output, or for an item without one. It is pushed before the output, so a
    /// reader that sees the output also sees the label.
    fn label(&mut self, seq: u64, says: Says) {
        self.reach = self.reach.max(self.expected);
        let goes_back = seq < self.reach;
        self.labels.push(Label { at: self.pushed, seq, says, goes_back });
    }
}

impl<T> OutboxReader<T> {
    /// The number of results that were taken or available at the last look.
    pub(crate) fn seen(&self) -> u64 {
        self.collected + self.here as u64 + u64::from(self.failed.is_some())
    }

    /// Whether a result that was available at the last look has not been taken.
    pub(crate) fn holds_back(&self) -> bool {
        self.here > 0 || self.failed.is_some()
    }

    /// Whether a result has arrived since the last look. `true` whenever one has.
    pub(crate) fn has_new(&mut self) -> bool {
        self.has_many_new(1) || self.labels.len() > 0
    }

    /// Whether at least `outputs` outputs have arrived since the last look; errors do not count. Also `true` if the ring
    /// has overflowed: the outputs in it must then be [moved](Results::is_in_the_way), since they hide those behind them.
    pub(crate) fn has_many_new(&mut self, outputs: usize) -> bool {
        self.outputs.len() >= self.here + outputs || self.outputs.has_more()
    }

    /// Looks for new results. Returns whether there is a result now.
    pub(crate) fn look(&mut self) -> bool {
        // A label is pushed before its output, so the labels of all outputs counted here are visible next.
        self.here = self.outputs.len();
        while let Some(label) = self.labels.pop() {
            self.backward += usize::from(label.goes_back);
            self.ahead.push_back(label);
        }
        self.head().is_some()
    }

    /// The item of the oldest result that was available at the last look.
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

    /// Whether the results here must be moved aside while they wait for their turn. This is so if one behind
    /// the [`head`](Results::head) may belong to an earlier item, or if they fill the ring and hide later
    /// ones.
    pub(crate) fn is_in_the_way(&self) -> bool {
        self.backward > 0 || (self.here > 0 && self.outputs.has_more())
    }

    /// The number of results, from the [`head`](Results::head) on, that belong to consecutive items.
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
    /// If there is no [`head`](Results::head).
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
        (seq, Ok(self.outputs.pop().expect("the last look found this many outputs")))
    }

    fn next_label_at(&self) -> u64 {
        self.ahead.front().map_or(u64::MAX, |label| label.at)
    }
}

/// Takes the results of a run in the place of a collector, on the thread that has them.
pub(crate) trait ResultSink<T>: OpenItems {
    /// Answers the call whose item this is, unless it is no longer open.
    fn answer(&self, item: u64, outcome: Outcome<T>);

    /// Notes that the run takes no more items, or is over. Runs no user code, since the caller may hold locks.
    fn note_end(&self, end: End);
}

/// How far a run has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// It takes no more items, and finishes those that it has.
    Halted,
    /// No item is worked on any more.
    Aborted,
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::Error;

    fn collected(results: &mut OutboxReader<u64>) -> Vec<(u64, Option<u64>)> {
        let mut all = Vec::new();
        while results.look() {
            let (seq, outcome) = results.pop();
            all.push((seq, outcome.ok()));
        }
        all
    }

    /// Without this, a collector that found a full ring would sleep until the item it waits for is done.
    #[test]
    fn what_comes_behind_a_full_ring_is_new() {
        let (mut outbox, mut results) = outbox(3);
        (1..4).for_each(|seq| outbox.push(seq, Ok(seq)));
        assert!(results.look() && !results.has_new() && !results.is_in_the_way());
        outbox.push(4, Ok(4));
        assert!(results.has_new() && results.is_in_the_way());
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
                let outcome = if fails { Err(NoOutput::ending(Error::Closed {})) } else { Ok(10 * seq) };
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
