//! What a worker answers for an item.

use std::time::Duration;

use gangline::ProducerContext;
use serde::{Deserialize, Serialize};

use crate::value::Value;

/// The output of one item, with what its hook knows of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) value: Value,
    pub(crate) made: Made,
}

/// What the worker that made an output knows of that. Of an input, nothing.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Made {
    pub(crate) producer: Option<u32>,
    pub(crate) attempt: u32,
    /// How long the calls of the user's functions took, with the pickling of inputs and outputs.
    pub(crate) took: Duration,
}

/// The output of a pool, or of a stage.
pub(crate) trait OfAnswer: Sized {
    fn of_answer(answer: Answer) -> Self;

    /// `None` of several values that become one.
    fn value(&self) -> Option<&Value>;

    fn made(&self) -> Made;
}

impl Made {
    pub(crate) fn by(cx: &ProducerContext<'_>, took: Duration) -> Self {
        Made { producer: u32::try_from(cx.producer()).ok(), attempt: cx.attempt(), took }
    }
}

impl OfAnswer for Answer {
    fn of_answer(answer: Answer) -> Self {
        answer
    }

    fn value(&self) -> Option<&Value> {
        Some(&self.value)
    }

    fn made(&self) -> Made {
        self.made
    }
}
