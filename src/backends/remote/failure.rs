//! Failures of hooks on their way from a worker to its coordinator.

use std::error::Error as StdError;

use serde::{Deserialize, Serialize};

use crate::base::panic::{catch, drop_quietly};
use crate::base::{BoxError, Hook, PanicMessage};
use crate::error::{
    DeviceLost, Error, OutOfMemory, OutputCount, RemoteError, Site, Untried, WorkerError,
    is_device_lost, is_out_of_memory, is_untried,
};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CallFailure {
    /// The hook returned an error.
    Error(RemoteFailure),
    /// The hook panicked, and the state is gone.
    Panic(String),
    /// A batch of these inputs had another number of outputs.
    Outputs {
        /// The number of inputs.
        inputs: u64,
        /// The number of outputs.
        outputs: u64,
    },
    /// The runner could not be made.
    Make(RemoteFailure),
    /// The configuration could not be read.
    Cfg(RemoteFailure),
}

/// An error of a hook, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteFailure {
    /// The text of the error and those of its causes.
    pub texts: Vec<String>,
    /// The error itself, in the codec, with the number of its type in the recipe.
    pub(crate) typed: Option<(u32, Vec<u8>)>,
    pub(crate) is_out_of_memory: bool,
    pub(crate) is_device_lost: bool,
    is_untried: bool,
}

/// Writes and reads the errors whose types a recipe names.
pub trait ErrorCodec {
    /// Encodes an error of a named type, with the number of the type.
    fn encode_error(&self, error: &(dyn StdError + 'static)) -> Option<(u32, Vec<u8>)>;

    /// Decodes an error of the type with this number.
    fn decode_error(&self, number: u32, bytes: &[u8]) -> Option<BoxError>;
}

impl CallFailure {
    /// Whether the process can work on no further call.
    #[cfg(feature = "processes")]
    pub(crate) fn is_device_lost(&self) -> bool {
        matches!(self, CallFailure::Error(failure) if failure.is_device_lost)
    }

    /// The failure of a hook.
    pub fn of(codec: &dyn ErrorCodec, error: Error) -> Self {
        let failure = CallFailure::of_shared(codec, &error);
        drop_quietly(error);
        failure
    }

    /// The failure of a hook for several items, for one of them.
    pub fn of_shared(codec: &dyn ErrorCodec, error: &Error) -> Self {
        let source: &(dyn StdError + 'static) = match error {
            Error::HookPanicked { source, .. } => return CallFailure::Panic(source.to_string()),
            Error::HookFailed { source, .. } => source.as_ref(),
            other => other,
        };
        match source.downcast_ref() {
            Some(OutputCount { inputs, outputs }) => {
                CallFailure::Outputs { inputs: *inputs as u64, outputs: *outputs as u64 }
            }
            None => CallFailure::Error(RemoteFailure::of_ref(codec, source)),
        }
    }

    /// The error of the call.
    pub fn into_error(self, codec: &dyn ErrorCodec, (hook, site): (Hook, Site)) -> Error {
        let site = Box::new(site);
        match self {
            CallFailure::Error(failure) => {
                Error::HookFailed { hook, site, source: failure.restore(codec) }
            }
            CallFailure::Panic(text) => {
                Error::HookPanicked { hook, site, source: PanicMessage::new(text) }
            }
            CallFailure::Outputs { inputs, outputs } => {
                let count = |n| usize::try_from(n).unwrap_or(usize::MAX);
                let source = OutputCount { inputs: count(inputs), outputs: count(outputs) };
                Error::HookFailed { hook, site, source: Box::new(source) }
            }
            CallFailure::Make(failure) => {
                WorkerError::Make { source: failure.restore(codec) }.into()
            }
            CallFailure::Cfg(failure) => WorkerError::Cfg { source: failure.restore(codec) }.into(),
        }
    }
}

impl RemoteFailure {
    /// A failure without an error.
    pub fn text(text: String) -> Self {
        RemoteFailure {
            texts: vec![text],
            typed: None,
            is_out_of_memory: false,
            is_device_lost: false,
            is_untried: false,
        }
    }

    /// An error. Its texts come from the user's code, which may panic.
    pub fn of(codec: &dyn ErrorCodec, error: BoxError) -> Self {
        let failure = RemoteFailure::of_ref(codec, error.as_ref());
        drop_quietly(error);
        failure
    }

    fn of_ref(codec: &dyn ErrorCodec, error: &(dyn StdError + 'static)) -> Self {
        let described = catch(|| {
            let chain = std::iter::successors(Some(error), |&error| error.source());
            RemoteFailure {
                texts: chain.map(ToString::to_string).collect(),
                typed: codec.encode_error(unmarked(error)),
                is_out_of_memory: is_out_of_memory(error),
                is_device_lost: is_device_lost(error),
                is_untried: is_untried(error),
            }
        });
        described.unwrap_or_else(|message| {
            RemoteFailure::text(format!("an error whose text panics: {message}"))
        })
    }

    /// The error that was sent: of its own type if the recipe names it, else its texts.
    pub(crate) fn restore(self, codec: &dyn ErrorCodec) -> BoxError {
        let RemoteFailure { mut texts, typed, .. } = self;
        for (is_marked, mark) in
            [(self.is_untried, Untried::TEXT), (self.is_device_lost, DeviceLost::TEXT)]
        {
            if is_marked && texts.first().is_some_and(|text| text == mark) {
                // The mark that is put back below says it.
                texts.remove(0);
            }
        }
        let typed = typed.and_then(|(number, bytes)| {
            catch(|| codec.decode_error(number, &bytes)).ok().flatten()
        });
        let error = match (typed, RemoteError::new(texts)) {
            (Some(error), _) => error,
            (None, Some(error)) => error.into(),
            (None, None) => "an error without a text".into(),
        };
        // A mark of the user's is a type, which the texts lack.
        let error = match self.is_out_of_memory && !is_out_of_memory(error.as_ref()) {
            true => OutOfMemory::new(error).into(),
            false => error,
        };
        let error = match self.is_device_lost && !is_device_lost(error.as_ref()) {
            true => DeviceLost::new(error).into(),
            false => error,
        };
        match self.is_untried && !is_untried(error.as_ref()) {
            true => Untried::new(error).into(),
            false => error,
        }
    }
}

/// The error within marks, which are put back where it is restored.
fn unmarked<'a>(mut error: &'a (dyn StdError + 'static)) -> &'a (dyn StdError + 'static) {
    while (error.is::<OutOfMemory>() || error.is::<DeviceLost>() || error.is::<Untried>())
        && let Some(source) = error.source()
    {
        error = source;
    }
    error
}
