//! Finds items that the broker has lost, so that they are published again.

use async_nats::jetstream::stream::RawMessageErrorKind;

use super::connection::BrokerConnection;
use super::names::consumer_of_results;

/// Those of the publications, with their places in the stream of items, that are not there. None if a result is still to be
/// read: it may be that of one.
pub(super) async fn missing_of(
    publications: Vec<(u64, u64)>,
    connection: &BrokerConnection,
    run: &str,
) -> Vec<u64> {
    let Ok(items) = connection.context.get_stream_no_info(connection.names.items()).await else {
        return vec![];
    };
    let mut missing = vec![];
    for (publication, sequence) in publications {
        let found = items.get_raw_message(sequence).await;
        if found.is_err_and(|error| error.kind() == RawMessageErrorKind::NoMessageFound) {
            missing.push(publication);
        }
    }
    if !missing.is_empty() && !has_read_all(connection, run).await {
        missing.clear();
    }
    missing
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
