//! The items that a worker has of one run.

mod answering;
mod groups;
pub(super) mod pulling;
mod verdict;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, AckKind};
use async_nats::{Request, Subject};
use futures_util::future::{Either, select};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::MissedTickBehavior;

use self::groups::MessageGroups;
use self::verdict::{FinishedItem, GROUP, SlotVerdict};
use super::connection::{BrokerConnection, REQUEST_TIMEOUT};
use super::hook_times::{HookMeter, HookTimes};
use super::hosting::{ItemTask, LoadedRunner};
use super::objects;
use super::wire::{
    self, ClaimReply, ItemHeader, JoinReply, Notice, RunKey, RunnerLoad, WorkerNews, WorkerOutcome,
};
use crate::base::BoxError;
use crate::concurrency::{Mutex, lock};
use crate::scheduler::batch::Size;

/// A bound for the number of a publication in a message.
const BEGUN_BYTES: usize = 10;

/// The items that a worker has of one run.
///
/// An item is *held* from its delivery until the broker hears what became of it: its message is acknowledged, or handed back
/// to go to another worker. It is *begun* while the service has it. One that is *given up* is still held, and begun until
/// no hook has it.
pub(super) struct Slots {
    connection: BrokerConnection,
    pub(super) key: RunKey,
    /// The id of this worker.
    pub(super) worker: String,
    /// The number of its part.
    part: u64,
    pub(super) service: Arc<dyn LoadedRunner>,
    state: Mutex<SlotsState>,
    room: SlotsRoom,
    /// The items of which the coordinator is to hear that a hook begins them.
    begun: Mutex<MessageGroups<BegunItem>>,
    results: Mutex<MessageGroups<FinishedItem>>,
    /// An item is held or begun no more, or is given up; or `is_closed` was set.
    changed: Notify,
}

#[derive(Default)]
struct SlotsState {
    /// By publication.
    held: BTreeMap<u64, HeldItem>,
    /// The number of begun items, at most the capacity of the service.
    begun: usize,
    meter: HookMeter,
    /// Publications up to this one are given up; `u64::MAX` if all are.
    floor: u64,
    /// No more items are begun.
    is_closed: bool,
    /// When the broker was last told that this worker still has its items.
    extended: Option<Instant>,
    /// This process was stopped for so long that its lease may have ended. Until the coordinator grants a claim, each item
    /// is claimed before it is begun.
    is_doubtful: bool,
    /// The number of groups of results so far.
    groups: u64,
    /// The place of the last result in the stream of results.
    last_result: u64,
}

struct HeldItem {
    /// The subject on which the broker is told that this worker still has the item.
    reply: Subject,
    is_begun: bool,
    /// Gives the item up; `None` once it is.
    cancel: Option<oneshot::Sender<()>>,
}

/// The publication of an item that a hook begins. The hook waits for the end of the channel.
type BegunItem = (u64, crossbeam_channel::Sender<()>);

/// An item that is begun.
struct Accepted {
    header: ItemHeader,
    message: jetstream::Message,
    /// The item is given up.
    cancelled: oneshot::Receiver<()>,
}

/// The next step with an item that was taken.
enum TakenItem {
    Begin,
    /// The coordinator does not want it.
    Unwanted,
    /// Another worker may have it.
    NotHere,
    /// This worker has to join again first.
    NotYet,
    /// This worker begins no more items.
    Closed,
}

/// The room of a worker for items: one permit for each of those that it can have beside those it has, and has not asked for.
pub(super) struct SlotsRoom {
    free: Arc<Semaphore>,
    /// Of the tasks that ask for items, the one that waits for room. So it finds all the room that there is.
    turn: tokio::sync::Mutex<()>,
}

impl Slots {
    pub(super) fn new(
        connection: BrokerConnection,
        key: RunKey,
        (worker, part): (String, u64),
        service: Arc<dyn LoadedRunner>,
    ) -> Self {
        let (state, changed) = (Mutex::default(), Notify::new());
        let room = SlotsRoom::new(service.capacity());
        let most = connection.most_inline();
        let begun = Mutex::new(MessageGroups::new((most / BEGUN_BYTES).max(1)));
        let results = Mutex::new(MessageGroups::new(most.min(GROUP)));
        Slots { connection, key, worker, part, service, state, room, begun, results, changed }
    }

    /// Has the service work on an item, and returns once no hook has it. A task of its own sends the result, before that if a
    /// hook was abandoned.
    async fn work_on(self: Arc<Self>, accepted: Accepted) {
        let Accepted { header, message, mut cancelled } = accepted;
        let read = {
            let reading = std::pin::pin!(self.input_of(&header, &message));
            match select(reading, &mut cancelled).await {
                Either::Left((read, _)) => read,
                Either::Right(_) => Ok(None),
            }
        };
        let (verdict, hook_over) = match read {
            Ok(Some(input)) => self.call(&header, input, cancelled).await,
            // The broker has lost the input, or the item was given up.
            Ok(None) => (SlotVerdict::without_hook(WorkerOutcome::Dropped), None),
            Err(error) => {
                let text = format!("the input cannot be read from the object store: {error}");
                (SlotVerdict::without_hook(WorkerOutcome::error(text)), None)
            }
        };
        // The next item need not wait for the broker, but for a hook that was abandoned: that has the producer.
        tokio::spawn(self.clone().answer(header, message, verdict));
        if let Some(hook_over) = hook_over {
            _ = hook_over.await;
        }
        self.note_end();
        self.changed.notify_waiters();
    }

    /// Reads the encoded input; `None` if the broker has lost it.
    async fn input_of(
        &self,
        header: &ItemHeader,
        message: &jetstream::Message,
    ) -> Result<Option<Vec<u8>>, BoxError> {
        match &header.object {
            None => {
                let (_, input) = wire::split::<ItemHeader>(&message.payload)?;
                Ok(Some(input.to_vec()))
            }
            Some(object) => {
                let subject = self.connection.names.input_object(&self.key.run, &object.name);
                objects::get(&self.connection, &subject, object, || true).await
            }
        }
    }

    /// Has the service work on an item. Returns when it is done, or after it was given up and no hook has it any more, or when
    /// its hook takes too long. Then the channel says when the hook has returned.
    async fn call(
        self: &Arc<Self>,
        header: &ItemHeader,
        input: Vec<u8>,
        cancelled: oneshot::Receiver<()>,
    ) -> (SlotVerdict, Option<oneshot::Receiver<()>>) {
        let (over, mut hook_over) = oneshot::channel::<()>();
        let begun = Arc::new(OnceLock::new());
        let begin = self.beginning(header.publication, begun.clone());
        let over = Box::new(over);
        let ItemHeader { item, attempt, size: (cost, padded), .. } = *header;
        let task = ItemTask { item, attempt, size: Size { cost, padded }, input, begin, over };
        match select(self.service.submit(task), cancelled).await {
            Either::Left((answer, _)) => {
                (SlotVerdict::of(answer, begun.get().copied()), Some(hook_over))
            }
            Either::Right((_, call)) => {
                drop(call);
                let returned = tokio::time::timeout(self.longest_hook(), &mut hook_over).await;
                (
                    SlotVerdict::without_hook(WorkerOutcome::Dropped),
                    returned.is_err().then_some(hook_over),
                )
            }
        }
    }

    /// How long a hook may have an item before it is abandoned.
    fn longest_hook(&self) -> Duration {
        let RunnerLoad { item_nanos, batch, .. } = &self.key.load;
        let items = batch.map_or(1, |batch| batch.most);
        item_nanos.map_or(Duration::MAX, |limit| Duration::from_nanos(limit.saturating_mul(items)))
    }

    /// Makes the function that is called before a hook begins an item: it tells the coordinator. The channel that the
    /// function returns ends once the kernel has the notice, because the hook may end this process. Further calls, for
    /// the parts of a batch that was divided, tell nothing.
    fn beginning(
        self: &Arc<Self>,
        publication: u64,
        begun: Arc<OnceLock<Instant>>,
    ) -> Box<dyn Fn() -> crossbeam_channel::Receiver<()> + Send + Sync> {
        let (slots, runtime) = (self.clone(), tokio::runtime::Handle::current());
        Box::new(move || {
            let (sent, confirmed) = crossbeam_channel::bounded(0);
            if begun.set(Instant::now()).is_ok() && lock(&slots.begun).add((publication, sent), 1) {
                runtime.spawn(slots.clone().announce_begun());
            }
            confirmed
        })
    }

    /// Tells the coordinator which items have begun, until there are no more: those that begin meanwhile go together.
    async fn announce_begun(self: Arc<Self>) {
        loop {
            // Items of one request begin together.
            tokio::task::yield_now().await;
            let Some(group) = lock(&self.begun).take() else { return };
            let (publications, sent): (Vec<_>, Vec<_>) = group.into_iter().unzip();
            self.notify(WorkerNews::Begun(publications)).await;
            let flushed = self.connection.client.flush();
            _ = tokio::time::timeout(REQUEST_TIMEOUT, flushed).await;
            drop(sent);
        }
    }

    /// Holds an item, claims it if another worker may have had it, and waits until a producer is idle.
    async fn admit(
        &self,
        publication: u64,
        message: &jetstream::Message,
        cancel: oneshot::Sender<()>,
    ) -> TakenItem {
        let Some(reply) = message.reply.clone() else { return TakenItem::Unwanted };
        {
            let mut state = lock(&self.state);
            if state.is_closed {
                return TakenItem::Closed;
            }
            if publication <= state.floor {
                return TakenItem::Unwanted;
            }
            state
                .held
                .insert(publication, HeldItem { reply, is_begun: false, cancel: Some(cancel) });
        }
        let is_doubtful = self.note_pause();
        if is_doubtful || message.info().is_ok_and(|info| info.delivered > 1) {
            match self.claim(publication).await {
                ClaimReply::Begin => lock(&self.state).is_doubtful = false,
                ClaimReply::Unknown => return TakenItem::NotYet,
                ClaimReply::Later => return TakenItem::NotHere,
                ClaimReply::Never => return TakenItem::Unwanted,
            }
        }
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            {
                let mut state = lock(&self.state);
                let is_closed = state.is_closed;
                let has_room = state.begun < self.service.capacity();
                match state.held.get_mut(&publication) {
                    Some(HeldItem { cancel: None, .. }) | None => return TakenItem::Unwanted,
                    Some(_) if is_closed => return TakenItem::Closed,
                    Some(held) if has_room => {
                        held.is_begun = true;
                        if state.begun == 0 {
                            state.meter.resume(self.service.hook_times());
                        }
                        state.begun += 1;
                        return TakenItem::Begin;
                    }
                    Some(_) => {}
                }
            }
            changed.await;
        }
    }

    /// Records that a hook has ended its item.
    fn note_end(&self) {
        let mut state = lock(&self.state);
        state.begun -= 1;
        if state.begun == 0 {
            state.meter.pause(self.service.hook_times());
        }
    }

    /// The times of the hooks in this part so far.
    pub(super) fn times(&self) -> HookTimes {
        let state = lock(&self.state);
        state.meter.times(self.service.hook_times())
    }

    /// What the worker says when its part ends.
    pub(super) fn leaving(&self, lost: Option<String>) -> WorkerNews {
        let last_result = lock(&self.state).last_result;
        WorkerNews::Leaving { times: self.times(), lost, last_result }
    }

    /// Notes whether this process was stopped for so long that its lease may have ended; then other workers may have its
    /// items. Returns whether that is in doubt.
    fn note_pause(&self) -> bool {
        let mut state = lock(&self.state);
        let most = self.lease() / 2;
        state.is_doubtful |= state.extended.is_some_and(|since| since.elapsed() > most);
        state.is_doubtful
    }

    /// Asks the coordinator whether this worker may begin an item. Without an answer, it may not.
    async fn claim(&self, publication: u64) -> ClaimReply {
        let subject = self.connection.names.notices(&self.key.run);
        let request = Request::new().payload(self.notice(WorkerNews::Claim(publication)).into());
        let request = request.timeout(Some(self.lease()));
        let answer = self.connection.client.send_request(subject, request).await;
        let reply = answer.ok().and_then(|message| wire::decode(&message.payload).ok());
        reply.unwrap_or(ClaimReply::Later)
    }

    async fn acknowledge(&self, message: &jetstream::Message, kind: AckKind) {
        if let Err(error) = message.ack_with(kind).await {
            tracing::debug!("not acknowledged: {error}");
        }
    }

    /// Holds an item no more.
    fn forget(&self, publication: u64) {
        lock(&self.state).held.remove(&publication);
        self.changed.notify_waiters();
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.key.lease_millis)
    }

    /// Tells the broker every `period` that this worker still has its items, so that others do not get them.
    pub(super) async fn extend(self: Arc<Self>, period: Duration) {
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.note_pause();
            lock(&self.state).extended = Some(Instant::now());
            let replies: Vec<_> =
                lock(&self.state).held.values().map(|it| it.reply.clone()).collect();
            for reply in replies {
                _ = self.connection.client.publish(reply, "+WPI".into()).await;
            }
        }
    }

    /// Gives up one item.
    pub(super) fn cancel(&self, publication: u64) {
        if let Some(held) = lock(&self.state).held.get_mut(&publication) {
            held.cancel.take().into_iter().for_each(|cancel| _ = cancel.send(()));
        }
        self.changed.notify_waiters();
    }

    /// Gives up all items up to a publication, and tells the coordinator when no hook has one.
    pub(super) async fn drain(self: Arc<Self>, upto: u64) {
        self.give_up(upto).await;
        self.notify(WorkerNews::Drained(upto, self.times())).await;
    }

    /// Begins no more items, gives up all, and waits until none is held.
    pub(super) async fn give_up_all(&self) {
        self.close();
        self.give_up(u64::MAX).await;
    }

    /// Gives up all items up to a publication, and waits until none of those is held.
    async fn give_up(&self, upto: u64) {
        {
            let mut state = lock(&self.state);
            state.floor = state.floor.max(upto);
            for (_, held) in state.held.range_mut(..=upto) {
                held.cancel.take().into_iter().for_each(|cancel| _ = cancel.send(()));
            }
        }
        self.changed.notify_waiters();
        self.wait_until(|state| state.held.range(..=upto).next().is_none()).await;
    }

    /// Finishes the items that have begun, and hands the others back.
    pub(super) async fn finish(&self) {
        self.close();
        self.changed.notify_waiters();
        self.wait_until(|state| state.held.is_empty()).await;
        _ = self.connection.client.flush().await;
    }

    /// From now on, no items are begun or asked for.
    fn close(&self) {
        lock(&self.state).is_closed = true;
        self.room.close();
    }

    async fn wait_until(&self, is_so: impl Fn(&SlotsState) -> bool) {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if is_so(&lock(&self.state)) {
                return;
            }
            changed.await;
        }
    }

    /// Asks for a seat again, since the coordinator has forgotten this worker. A part that ends has left its seat.
    pub(super) async fn rejoin(&self, join: WorkerNews) {
        if lock(&self.state).is_closed {
            return;
        }
        let subject = self.connection.names.notices(&self.key.run);
        let answer = self.connection.client.request(subject, self.notice(join).into()).await;
        let reply = answer.ok().and_then(|it| wire::decode::<JoinReply>(&it.payload).ok());
        // Otherwise the next card reminds the coordinator.
        tracing::debug!("joined again: {reply:?}");
    }

    fn notice(&self, news: WorkerNews) -> Vec<u8> {
        wire::encode(&Notice { epoch: self.key.epoch, worker: self.worker.clone(), news })
    }

    async fn notify(&self, news: WorkerNews) {
        let subject = self.connection.names.notices(&self.key.run);
        if let Err(error) = self.connection.client.publish(subject, self.notice(news).into()).await
        {
            tracing::debug!("not sent: {error}");
        }
    }
}

impl SlotsRoom {
    pub(super) fn new(items: usize) -> Self {
        SlotsRoom { free: Arc::new(Semaphore::new(items)), turn: tokio::sync::Mutex::default() }
    }

    /// Takes all the room that there is, once there is any. `None` after `close`.
    pub(super) async fn take(&self) -> Option<OwnedSemaphorePermit> {
        let _turn = self.turn.lock().await;
        let mut taken = self.free.clone().acquire_owned().await.ok()?;
        // Hooks that end together make room for one request.
        tokio::task::yield_now().await;
        let rest = u32::try_from(self.free.available_permits()).unwrap_or(u32::MAX);
        if let Ok(rest) = self.free.clone().try_acquire_many_owned(rest) {
            taken.merge(rest);
        }
        Some(taken)
    }

    /// Ends all waits for room.
    pub(super) fn close(&self) {
        self.free.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_request_takes_all_the_room_that_there_is() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let room = SlotsRoom::new(3);
            let mut taken = room.take().await.unwrap();
            assert_eq!(taken.num_permits(), 3);
            // Two items have ended.
            drop(taken.split(2));
            assert_eq!(room.take().await.unwrap().num_permits(), 2);
            room.close();
            assert!(room.take().await.is_none());
        });
    }
}
