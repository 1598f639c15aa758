//! The tasks that read from the broker for the coordinator, and its clock. Each sends events to the coordinator's thread.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::kv;
use async_nats::jetstream::stream::ConsumerError;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::MissedTickBehavior;

use super::connection::{AGAIN, BrokerConnection};
use super::delivery::Delivered;
use super::event::CoordinatorEvent;
use super::names::consumer_of_results;
use super::wire;

/// How often the broker says that it has no result. Missing that twice, the client asks anew.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// Reads the cards of workers, now and whenever one changes.
pub(super) async fn read_cards(
    connection: BrokerConnection,
    workers: kv::Store,
    events: UnboundedSender<CoordinatorEvent>,
) {
    let take = |entry: kv::Entry| {
        if entry.operation == kv::Operation::Put {
            let card = wire::decode(&entry.value);
            let card = card.map_err(|error| format!("worker {}: {error}", entry.key));
            _ = events.send(CoordinatorEvent::Card(entry.key, card));
        }
    };
    while !events.is_closed() {
        connection.watch(&workers, &take).await;
        tokio::time::sleep(AGAIN).await;
    }
}

/// Reads the results of a run, with each restored connection anew.
pub(super) async fn read_results(
    connection: BrokerConnection,
    run: String,
    events: UnboundedSender<CoordinatorEvent>,
) {
    let mut restored = connection.restored.clone();
    let mut is_new = true;
    while !events.is_closed() {
        // A broker that was killed may have forgotten where its stream ends. Then the consumer is ahead of the stream, and would
        // deliver no result until the stream has caught up. What was delivered and is not acknowledged comes again.
        if std::mem::take(&mut is_new) {
            let (results, consumer) = (connection.names.results(), consumer_of_results(&run));
            _ = connection.context.delete_consumer_from_stream(consumer, results).await;
        }
        restored.mark_unchanged();
        let opened = open_results(&connection, &run).await;
        // Such as without the stream.
        let opened = opened.inspect_err(|_| connection.note_gap());
        if let Ok(mut results) = opened {
            loop {
                let changed = std::pin::pin!(restored.changed());
                match select(results.next(), changed).await {
                    Either::Left((Some(Ok(message)), _)) => {
                        _ = events.send(CoordinatorEvent::Results(Delivered::of(message)));
                    }
                    Either::Left((Some(Err(error)), _)) => {
                        tracing::debug!("results: {error}");
                        break;
                    }
                    Either::Left((None, _)) => break,
                    Either::Right(_) => {
                        is_new = true;
                        break;
                    }
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Makes the consumer of the results of a run, so that a broker that refuses it is noticed.
pub(super) async fn make_results_consumer(
    connection: &BrokerConnection,
    run: &str,
) -> Result<Consumer<pull::Config>, ConsumerError> {
    let config = pull::Config {
        durable_name: Some(consumer_of_results(run)),
        filter_subject: connection.names.results_of(run),
        ack_policy: AckPolicy::Explicit,
        // A result that was delivered and is lost with a connection comes again.
        ack_wait: Duration::from_secs(5),
        max_ack_pending: -1,
        inactive_threshold: Duration::from_secs(10 * 60),
        ..pull::Config::default()
    };
    let stream = connection.names.results();
    connection.context.create_consumer_on_stream(config, stream).await
}

async fn open_results(
    connection: &BrokerConnection,
    run: &str,
) -> Result<pull::Stream, async_nats::Error> {
    let consumer = make_results_consumer(connection, run).await?;
    let results = consumer.stream().max_messages_per_batch(256).heartbeat(HEARTBEAT);
    Ok(results.expires(HEARTBEAT * 5).messages().await?)
}

/// Tells the coordinator that time has passed, and that the connection was restored.
pub(super) async fn tick(
    connection: BrokerConnection,
    period: Duration,
    events: UnboundedSender<CoordinatorEvent>,
) {
    let mut restored = connection.restored.clone();
    restored.mark_unchanged();
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let event = {
            let ticked = std::pin::pin!(ticks.tick());
            let changed = std::pin::pin!(restored.changed());
            match select(ticked, changed).await {
                Either::Left(_) => CoordinatorEvent::Tick,
                Either::Right((Ok(()), _)) => CoordinatorEvent::Restored,
                // The client died of a bug, which `CoordinatorClient::serve` finds too.
                Either::Right((Err(_), _)) => return,
            }
        };
        if events.send(event).is_err() {
            return;
        }
    }
}
