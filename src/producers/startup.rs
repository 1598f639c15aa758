//! How producers get their first states, and the wait for those that are being built.

use std::time::Duration;

use crate::error::{Error, Hook, Site};
use crate::producers::ready::{NoReport, ReadyReceiver};
use crate::run::lost_producer::Abandoned;
use crate::run::time_limits::{tick_of, ticks_in};

/// When the first `producer_init` of a producer is called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum FirstInit {
    /// While the pool is built, which waits for it.
    #[default]
    InBuild,
    /// In the first run, which begins without waiting for it.
    InRun,
}

/// The producers that have not reported yet.
pub(super) struct Startup {
    pub(super) outcomes: ReadyReceiver,
    /// The sites of those producers.
    pub(super) waiting: Vec<Site>,
    pub(super) limit: Option<Duration>,
    pub(super) ticks: u64,
}

impl Startup {
    /// Waits for the next producer to be ready, to fail, or to exceed the limit.
    pub(super) fn next(&mut self) -> Option<(usize, Result<(), Error>, Abandoned)> {
        loop {
            let Some(limit) = self.limit else {
                let (producer, outcome) = self.outcomes.next()?;
                return Some((producer, outcome, Abandoned::No));
            };
            if let Some(late) = self.late(limit) {
                return Some(late);
            }
            // The abandoned producers still hold their senders, so the channel does not disconnect.
            if self.waiting.is_empty() {
                return None;
            }
            // Counts ticks instead of reading a clock, since no ticks pass while the process is stopped.
            match self.outcomes.next_within(tick_of(limit)) {
                Ok((producer, outcome)) => {
                    self.waiting.retain(|site| site.producer != Some(producer));
                    return Some((producer, outcome, Abandoned::No));
                }
                Err(NoReport::Yet) => self.ticks += 1,
                Err(NoReport::Ever) => return None,
            }
        }
    }

    fn late(&mut self, limit: Duration) -> Option<(usize, Result<(), Error>, Abandoned)> {
        if self.ticks <= ticks_in(limit, tick_of(limit)) {
            return None;
        }
        let site = Box::new(self.waiting.pop()?);
        let producer = site.producer.expect("a producer has a number");
        let error = Error::TimedOut { hook: Hook::ProducerInit, site, limit };
        Some((producer, Err(error), Abandoned::Yes))
    }
}
