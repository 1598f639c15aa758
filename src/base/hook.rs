//! The names of the hooks of a runner.

use std::fmt;

/// One of the hooks of a [`Runner`](crate::Runner).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// [`Runner::producer_init`](crate::Runner::producer_init).
    ProducerInit,
    /// [`Runner::producer_work`](crate::Runner::producer_work).
    ProducerWork,
    /// [`Runner::producer_work_batch`](crate::Runner::producer_work_batch).
    ProducerWorkBatch,
    /// [`Runner::producer_end`](crate::Runner::producer_end).
    ProducerEnd,
    /// [`Runner::consumer_init`](crate::Runner::consumer_init).
    ConsumerInit,
    /// [`Runner::consumer_work`](crate::Runner::consumer_work).
    ConsumerWork,
    /// [`Runner::consumer_skipped`](crate::Runner::consumer_skipped).
    ConsumerSkipped,
    /// [`Runner::consumer_flush`](crate::Runner::consumer_flush).
    ConsumerFlush,
    /// [`Runner::consumer_end`](crate::Runner::consumer_end).
    ConsumerEnd,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::ProducerInit => "producer_init",
            Hook::ProducerWork => "producer_work",
            Hook::ProducerWorkBatch => "producer_work_batch",
            Hook::ProducerEnd => "producer_end",
            Hook::ConsumerInit => "consumer_init",
            Hook::ConsumerWork => "consumer_work",
            Hook::ConsumerSkipped => "consumer_skipped",
            Hook::ConsumerFlush => "consumer_flush",
            Hook::ConsumerEnd => "consumer_end",
        })
    }
}
