//! The key of a run at the broker: of two coordinators, one has its last revision.

use async_nats::jetstream::kv;
use gangline_scheduler::causes::WithCauses;

use crate::ClusterError;
use crate::connection::{BrokerConnection, REQUEST_TIMEOUT, refused};
use crate::event::KeyState;
use crate::wire;
use crate::wire::RunKey;

/// How often a coordinator tries to take the key of a run that another one refreshes.
const MOST_TRIES: usize = 10;

/// A key that was taken.
pub(super) struct TakenKey {
    pub(super) revision: u64,
    /// The epoch of the coordinator that had it before. A broker that is back with an older copy of the key names that one.
    pub(super) before: Option<u64>,
}

/// Takes the run's key by compare-and-set.
pub(super) async fn take(keys: &kv::Store, key: &RunKey) -> Result<TakenKey, ClusterError> {
    let (run, value) = (&key.run, wire::encode(key));
    for _ in 0..MOST_TRIES {
        let entry = keys.entry(run).await.map_err(|it| refused("the run's key", it))?;
        let entry = entry.filter(|entry| entry.operation == kv::Operation::Put);
        let earlier = entry.as_ref().and_then(|entry| wire::decode::<RunKey>(&entry.value).ok());
        let put = match entry {
            Some(entry) => keys.update(run, value.clone().into(), entry.revision).await.ok(),
            None => keys.create(run, value.clone().into()).await.ok(),
        };
        // The coordinator before may have refreshed its key meanwhile.
        if let Some(revision) = put {
            return Ok(TakenKey { revision, before: earlier.map(|it| it.epoch) });
        }
    }
    Err(ClusterError::Superseded { run: run.clone() })
}

/// Puts the key once more, if this coordinator still has it.
pub(super) async fn refresh(
    connection: &BrokerConnection,
    keys: &kv::Store,
    key: &RunKey,
    taken: TakenKey,
) -> KeyState {
    let refreshed = tokio::time::timeout(REQUEST_TIMEOUT, put_again(connection, keys, key, taken));
    match refreshed.await {
        Ok(Ok(state)) => state,
        Ok(Err(ClusterError::Refused { source, .. })) => {
            KeyState::Refused(WithCauses(&*source).to_string().into())
        }
        Ok(Err(_)) | Err(_) => KeyState::Unanswered,
    }
}

async fn put_again(
    connection: &BrokerConnection,
    keys: &kv::Store,
    key: &RunKey,
    TakenKey { revision, before }: TakenKey,
) -> Result<KeyState, ClusterError> {
    let value = wire::encode(key);
    if let Ok(revision) = keys.update(&key.run, value.clone().into(), revision).await {
        return Ok(KeyState::Own { revision });
    }
    // The answer to the last update may be lost, or the broker has lost the key or its bucket.
    let entry = match keys.entry(&key.run).await {
        Ok(entry) => entry,
        Err(_) => connection.keys().await.map(|_| None)?,
    };
    let Some(entry) = entry.filter(|entry| entry.operation == kv::Operation::Put) else {
        let created = keys.create(&key.run, value.into()).await;
        let revision = created.map_err(|source| refused("the run's key", source))?;
        return Ok(KeyState::Own { revision });
    };
    Ok(match wire::decode::<RunKey>(&entry.value) {
        Ok(other) if other.epoch == key.epoch => KeyState::Own { revision: entry.revision },
        Ok(other) if Some(other.epoch) != before => KeyState::OfAnother,
        // It names the coordinator before, or is damaged and names none.
        Ok(_) | Err(_) => {
            let put = keys.update(&key.run, value.into(), entry.revision).await;
            let revision = put.map_err(|source| refused("the run's key", source))?;
            KeyState::Own { revision }
        }
    })
}
