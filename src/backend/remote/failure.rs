//! Errors on their way from a worker to its coordinator.

use std::error::Error as StdError;

use super::recipe::Recipe;
use crate::backend::process::message::{CallFailure, RemoteFailure};
use crate::base::panic::{catch, drop_quietly};
use crate::base::{BoxError, Hook, PanicMessage};
use crate::error::{
    Error, OutOfMemory, OutputCount, RemoteError, Site, WorkerError, is_out_of_memory,
};
use crate::runner::Runner;

/// The failure of a hook, as it is sent.
pub(crate) fn failure<R: Runner>(recipe: &Recipe<R>, error: Error) -> CallFailure {
    let failure = shared_failure(recipe, &error);
    drop_quietly(error);
    failure
}

/// The failure of a hook for several items, as it is sent for one of them.
pub(crate) fn shared_failure<R: Runner>(recipe: &Recipe<R>, error: &Error) -> CallFailure {
    let source: &(dyn StdError + 'static) = match error {
        Error::HookPanicked { source, .. } => return CallFailure::Panic(source.to_string()),
        Error::HookFailed { source, .. } => source.as_ref(),
        other => other,
    };
    match source.downcast_ref() {
        Some(OutputCount { inputs, outputs }) => {
            CallFailure::Outputs { inputs: *inputs as u64, outputs: *outputs as u64 }
        }
        None => CallFailure::Error(describe_ref(recipe, source)),
    }
}

/// An error, as it is sent. Its texts come from the user's code, which may panic.
pub(crate) fn describe<R: Runner>(recipe: &Recipe<R>, error: BoxError) -> RemoteFailure {
    let described = describe_ref(recipe, error.as_ref());
    drop_quietly(error);
    described
}

fn describe_ref<R: Runner>(recipe: &Recipe<R>, error: &(dyn StdError + 'static)) -> RemoteFailure {
    let described = catch(|| {
        let chain = std::iter::successors(Some(error), |&error| error.source());
        RemoteFailure {
            texts: chain.map(ToString::to_string).collect(),
            typed: recipe.encode_error(error),
            is_out_of_memory: is_out_of_memory(error),
        }
    });
    described.unwrap_or_else(|message| RemoteFailure {
        texts: vec![format!("an error whose text panics: {message}")],
        typed: None,
        is_out_of_memory: false,
    })
}

/// The error of a call that failed in a worker.
pub(crate) fn error_of<R: Runner>(
    recipe: &Recipe<R>,
    (hook, site): (Hook, Site),
    failure: CallFailure,
) -> Error {
    let site = Box::new(site);
    match failure {
        CallFailure::Error(failure) => {
            Error::HookFailed { hook, site, source: restore(recipe, failure) }
        }
        CallFailure::Panic(text) => {
            Error::HookPanicked { hook, site, source: PanicMessage::new(text) }
        }
        CallFailure::Outputs { inputs, outputs } => {
            let count = |n| usize::try_from(n).unwrap_or(usize::MAX);
            let source = OutputCount { inputs: count(inputs), outputs: count(outputs) };
            Error::HookFailed { hook, site, source: Box::new(source) }
        }
        CallFailure::Make(failure) => WorkerError::Make { source: restore(recipe, failure) }.into(),
        CallFailure::Cfg(failure) => WorkerError::Cfg { source: restore(recipe, failure) }.into(),
    }
}

/// An error that was sent: of its own type if the recipe names it, else its texts.
pub(crate) fn restore<R: Runner>(recipe: &Recipe<R>, failure: RemoteFailure) -> BoxError {
    let RemoteFailure { texts, typed, is_out_of_memory: is_short } = failure;
    let typed = typed
        .and_then(|(number, bytes)| catch(|| recipe.decode_error(number, &bytes)).ok().flatten());
    let error = match (typed, RemoteError::new(texts)) {
        (Some(error), _) => error,
        (None, Some(error)) => error.into(),
        (None, None) => "an error without a text".into(),
    };
    // A mark of the user's is a type, which the texts lack.
    match is_short && !is_out_of_memory(error.as_ref()) {
        true => OutOfMemory::new(error).into(),
        false => error,
    }
}
