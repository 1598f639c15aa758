//! The tasks that read from the broker for the coordinator, and its clock. Each sends events to the coordinator's thread.

use std::ops::ControlFlow;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Consumer, pull};
use async_nats::jetstream::stream::ConsumerError;
use async_nats::jetstream::{self, kv};
use async_nats::{Message, PublishError, StatusCode, Subscriber};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{MissedTickBehavior, timeout};

use super::connection::{AGAIN, BrokerConnection};
use super::delivery::Delivered;
use super::event::CoordinatorEvent;
use super::names::consumer_of_results;
use super::wire;

/// How often the broker says that it has no result. Missing that twice, the client asks anew.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// How long the broker keeps a request for results. It would send heartbeats for one although it takes no other.
const EXPIRES: Duration = Duration::from_secs(4);
/// The most messages with results for one request.
const MOST_RESULTS: usize = 256;

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
        let opened = ResultsReading::open(&connection, &run).await;
        // Such as without the stream.
        let opened = opened.inspect_err(|_| connection.note_gap());
        if let Ok(mut reading) = opened {
            loop {
                let next = std::pin::pin!(timeout(HEARTBEAT * 2, reading.inbox.next()));
                let changed = std::pin::pin!(restored.changed());
                let event = match select(next, changed).await {
                    Either::Left((Ok(Some(message)), _)) => reading.take(message).await,
                    Either::Left((Ok(None) | Err(_), _)) => ControlFlow::Break(()),
                    Either::Right(_) => {
                        is_new = true;
                        ControlFlow::Break(())
                    }
                };
                match event {
                    ControlFlow::Continue(event) => _ = events.send(event),
                    ControlFlow::Break(()) => break,
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The requests for results, one after the other.
///
/// The client's own stream of messages keeps the heartbeats to itself, which show that the broker would deliver a result.
struct ResultsReading {
    connection: BrokerConnection,
    /// The subject of the requests.
    next: String,
    inbox: Subscriber,
    /// The subject of the answers.
    to: String,
    /// The results that the last request may still bring.
    left: usize,
}

impl ResultsReading {
    async fn open(connection: &BrokerConnection, run: &str) -> Result<Self, async_nats::Error> {
        make_results_consumer(connection, run).await?;
        let (stream, consumer) = (connection.names.results(), consumer_of_results(run));
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
        let to = connection.client.new_inbox();
        let inbox = connection.client.subscribe(to.clone()).await?;
        let connection = connection.clone();
        let mut reading = ResultsReading { connection, next, inbox, to, left: 0 };
        reading.pull().await?;
        Ok(reading)
    }

    async fn pull(&mut self) -> Result<(), PublishError> {
        self.left = MOST_RESULTS;
        let (expires, heartbeat) = (EXPIRES.as_nanos(), HEARTBEAT.as_nanos());
        let pull = format!(
            "{{\"batch\":{MOST_RESULTS},\"expires\":{expires},\"idle_heartbeat\":{heartbeat}}}"
        );
        let (next, to) = (self.next.clone(), self.to.clone());
        self.connection.client.publish_with_reply(next, to, pull.into()).await
    }

    /// What the coordinator is to know of a message; `Break` if the request has failed.
    async fn take(&mut self, message: Message) -> ControlFlow<(), CoordinatorEvent> {
        let event = match message.status {
            None => {
                self.left = self.left.saturating_sub(1);
                let context = self.connection.context.clone();
                let message = jetstream::Message { message, context };
                CoordinatorEvent::Results(Delivered::of(message))
            }
            Some(StatusCode::IDLE_HEARTBEAT) => CoordinatorEvent::NoResult,
            // The broker has kept the request for as long as it was to.
            Some(StatusCode::TIMEOUT | StatusCode::NOT_FOUND) => {
                self.left = 0;
                CoordinatorEvent::NoResult
            }
            Some(status) => {
                tracing::debug!("results: {status}");
                return ControlFlow::Break(());
            }
        };
        if self.left == 0
            && let Err(error) = self.pull().await
        {
            tracing::debug!("results: {error}");
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(event)
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
