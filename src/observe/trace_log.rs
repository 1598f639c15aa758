//! Events of a run, for subscribers of `tracing`.

use super::event::Event;

/// Passes an event on to `tracing`: failures as warnings, retries and rebuilt states at the level `info`, the
/// beginning and the end of a run at `debug`. Lost producers are logged where they are noted.
pub(super) fn write(event: &Event) {
    match event {
        Event::ItemFailed { failure } => {
            let (item, key, producer) = (failure.item, failure.key.as_deref(), failure.producer);
            let (device, attempt) = (failure.device.as_deref(), failure.attempts);
            tracing::warn!(item, key, producer, device, attempt, error = %failure, "an item failed");
        }
        Event::ItemRetried { failure } => {
            let (item, key, producer) = (failure.item, failure.key.as_deref(), failure.producer);
            let (device, attempt) = (failure.device.as_deref(), failure.attempts);
            tracing::info!(
                item, key, producer, device, attempt, error = %failure, "an item is retried"
            );
        }
        Event::ProducerReady { producer, took, is_rebuilt: true } => {
            tracing::info!(producer = producer, took = ?took, "a producer rebuilt its state");
        }
        Event::ProducerReplaced { producer } => {
            tracing::info!(producer = producer, "another producer takes the place of a lost one");
        }
        Event::RunStarted { items, producers, .. } => {
            tracing::debug!(items = *items, producers = producers.len(), "a run starts");
        }
        Event::RunEnded { totals } => {
            let account = totals.account;
            tracing::debug!(
                ok = account.ok,
                failed = account.failed,
                lasted = ?totals.lasted,
                error = totals.error.as_deref(),
                "a run has ended"
            );
        }
        _ => {}
    }
}
