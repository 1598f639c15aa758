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

/// Takes the run's key by compare-and-set. Returns its revision.
pub(super) async fn take(keys: &kv::Store, key: &RunKey) -> Result<u64, ClusterError> {
    let (run, value) = (&key.run, wire::encode(key));
    for _ in 0..MOST_TRIES {
        let entry = keys.entry(run).await.map_err(|it| refused("the run's key", it))?;
        let put = match entry.filter(|entry| entry.operation == kv::Operation::Put) {
            Some(entry) => keys.update(run, value.clone().into(), entry.revision).await.ok(),
            None => keys.create(run, value.clone().into()).await.ok(),
        };
        // The coordinator before may have refreshed its key meanwhile.
        if let Some(revision) = put {
            return Ok(revision);
        }
    }
    Err(ClusterError::Superseded { run: run.clone() })
}

/// Puts the key once more, if this coordinator still has it.
pub(super) async fn refresh(
    connection: &BrokerConnection,
    keys: &kv::Store,
    key: &RunKey,
    revision: u64,
) -> KeyState {
    let refreshed =
        tokio::time::timeout(REQUEST_TIMEOUT, put_again(connection, keys, key, revision));
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
    revision: u64,
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
        Ok(_) => KeyState::OfAnother,
        // It is damaged, and names no other coordinator.
        Err(_) => {
            let put = keys.update(&key.run, value.into(), entry.revision).await;
            let revision = put.map_err(|source| refused("the run's key", source))?;
            KeyState::Own { revision }
        }
    })
}
