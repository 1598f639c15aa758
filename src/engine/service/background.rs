//! A stream of a service whose items are pulled by the thread that takes the results.

use super::Calls;
use super::streams::{ItemSender, StreamResults, StreamSettings, open};
use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::error::Error;

/// A stream of items that a service works on where no call waits.
///
/// The thread that takes the results also pulls the items. So nothing is pulled while no result is taken.
pub(crate) struct BackgroundStream<I, T, S> {
    /// `None` once no more is pulled.
    source: Option<S>,
    pulled: u64,
    sender: ItemSender<I, T>,
    results: StreamResults<I, T>,
}

impl<I, T, S> BackgroundStream<I, T, S> {
    /// Begins a stream, and pulls nothing yet. At most `window` items are open at a time.
    pub(crate) fn new(
        calls: &Calls<I, T>,
        window: usize,
        items: impl IntoIterator<IntoIter = S>,
    ) -> Self {
        let settings = StreamSettings { order: Order::Input, window, memory: None };
        let (sender, results) = open(calls, settings);
        let source = match catch(|| items.into_iter()) {
            Ok(source) => Some(source),
            Err(source) => {
                sender.end(Some(Error::InputPanicked { item: 0, source }));
                None
            }
        };
        BackgroundStream { source, pulled: 0, sender, results }
    }

    /// Pulls no more.
    fn stop(&mut self, error: Option<Error>) {
        self.sender.end(error);
        self.source.take().into_iter().for_each(drop_quietly);
    }
}

impl<I, T, S: Iterator<Item = I>> BackgroundStream<I, T, S> {
    /// Pulls items, and waits for the next result.
    pub(crate) fn next(&mut self) -> Option<Result<T, Error>> {
        if !self.results.is_own_thread() {
            self.pull();
        }
        let next = self.results.next();
        if self.results.is_over() {
            self.stop(None);
        }
        next.map(|(_, result)| result)
    }

    /// Pulls one item in place of the last result, and further ones while there is room and no result is ready.
    fn pull(&mut self) {
        let before = self.pulled;
        while self.source.is_some() {
            match self.sender.room_now() {
                None => return self.stop(None),
                Some(0) => return,
                Some(_) if self.pulled > before && self.results.has_next() => return,
                Some(_) => self.pull_one(),
            }
        }
    }

    /// Pulls an item and offers it.
    fn pull_one(&mut self) {
        let Some(source) = &mut self.source else { return };
        match catch(|| source.next()) {
            Ok(Some(item)) => {
                self.pulled += 1;
                if let Err(refused) = self.sender.send([item]) {
                    drop_quietly(refused);
                }
            }
            Ok(None) => self.stop(None),
            // The source is not pulled again, but may panic once more when it is dropped.
            Err(source) => self.stop(Some(Error::InputPanicked { item: self.pulled, source })),
        }
    }
}

/// Drops the source as a value of the user.
impl<I, T, S> Drop for BackgroundStream<I, T, S> {
    fn drop(&mut self) {
        self.source.take().into_iter().for_each(drop_quietly);
    }
}
