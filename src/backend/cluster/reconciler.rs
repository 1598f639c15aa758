//! Finds items that the broker has lost, so that they are published again.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::stream::RawMessageErrorKind;

use super::board::LaneBoard;
use super::connection::BrokerConnection;
use super::names::consumer_of_results;
use super::publication::News;

/// The largest number of items that are looked for at a time.
const MOST_LOOKS: usize = 16;

/// Starts a task that looks for publications that were not looked for since `age`. One that the broker lacks has vanished,
/// unless its result is still to be read.
pub(super) fn look_for_lost(
    connection: &BrokerConnection,
    run: &str,
    board: &Arc<LaneBoard>,
    age: Duration,
) {
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

/// Whether all results at the broker were read.
async fn has_read_all(connection: &BrokerConnection, run: &str) -> bool {
    let Ok(results) = connection.context.get_stream_no_info(connection.names.results()).await
    else {
        return false;
    };
    let info = results.consumer_info(consumer_of_results(run)).await;
    info.is_ok_and(|info| info.num_pending == 0 && info.num_ack_pending == 0)
}
