//! The room of a worker for further items.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room of a worker for items: one permit for each of those that it can have beside those it has, and has not asked for.
pub(super) struct SlotsRoom {
    free: Arc<Semaphore>,
    /// Of the tasks that ask for items, the one that waits for room. So it finds all the room that there is.
    turn: tokio::sync::Mutex<()>,
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
