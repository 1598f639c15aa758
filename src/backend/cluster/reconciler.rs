//! What the coordinator reads from the broker, and how it finds items that the broker has lost.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::kv;
use async_nats::jetstream::stream::RawMessageErrorKind;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::MissedTickBehavior;

use super::board::Board;
use super::connection::{AGAIN, Connection};
use super::event::CoordinatorEvent;
use super::names::consumer_of_results;
use super::news::News;
use super::wire;

/// The largest number of items that are looked for at a time.
const MOST_LOOKS: usize = 16;
/// How often the broker says that it has no result. Missing that twice, the client asks anew.
const HEARTBEAT: Duration = Duration::from_secs(2);

pub(super) async fn read_notices(
    mut notices: Subscriber,
    events: UnboundedSender<CoordinatorEvent>,
) {
    while let Some(message) = notices.next().await {
        if events.send(CoordinatorEvent::Notice(message)).is_err() {
            return;
        }
    }
}

/// Reads the cards of workers, now and whenever one changes.
pub(super) async fn read_cards(
    connection: Connection,
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

/// Reads the results of a run.
pub(super) async fn read_results(
    connection: Connection,
    run: String,
    events: UnboundedSender<CoordinatorEvent>,
) {
    let mut restored = connection.restored.clone();
    while !events.is_closed() {
        restored.mark_unchanged();
        if let Ok(mut results) = open_results(&connection, &run).await {
            loop {
                let changed = std::pin::pin!(restored.changed());
                match select(results.next(), changed).await {
                    Either::Left((Some(Ok(message)), _)) => {
                        _ = events.send(CoordinatorEvent::Result(Box::new(message)));
                    }
                    Either::Left((Some(Err(error)), _)) => {
                        tracing::debug!("results: {error}");
                        break;
                    }
                    Either::Left((None, _)) | Either::Right(_) => break,
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn open_results(
    connection: &Connection,
    run: &str,
) -> Result<pull::Stream, async_nats::Error> {
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
    let consumer = connection.context.create_consumer_on_stream(config, stream).await?;
    let results = consumer.stream().max_messages_per_batch(256).heartbeat(HEARTBEAT);
    Ok(results.expires(HEARTBEAT * 5).messages().await?)
}

/// Tells the coordinator that time has passed, and that the connection was restored.
pub(super) async fn tick(
    connection: Connection,
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
                Either::Right((Err(_), _)) => return,
            }
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Looks for items of which nothing was heard for `age`. One that the broker lacks has vanished, unless its result
/// is still to be read.
pub(super) fn look(connection: &Connection, run: &str, board: &Arc<Board>, age: Duration) {
    let old = board.unseen(age, MOST_LOOKS);
    if old.is_empty() {
        return;
    }
    let (connection, run, board) = (connection.clone(), run.to_owned(), board.clone());
    tokio::spawn(async move {
        let Ok(items) = connection.context.get_stream_no_info(connection.names.items()).await
        else {
            return;
        };
        let mut missing = vec![];
        for (publication, sequence) in old {
            let found = items.get_raw_message(sequence).await;
            if found.is_err_and(|error| error.kind() == RawMessageErrorKind::NoMessageFound) {
                missing.push(publication);
            }
        }
        if missing.is_empty() || !has_read_all(&connection, &run).await {
            return;
        }
        for publication in missing {
            if board.tell(publication, News::Vanished(publication)) {
                tracing::warn!(
                    "publication {publication} has vanished; its item is published again"
                );
            }
        }
    });
}

/// Whether all results that the broker has were read.
async fn has_read_all(connection: &Connection, run: &str) -> bool {
    let Ok(results) = connection.context.get_stream_no_info(connection.names.results()).await
    else {
        return false;
    };
    let info = results.consumer_info(consumer_of_results(run)).await;
    info.is_ok_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
}
