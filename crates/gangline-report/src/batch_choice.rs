//! The part of a report about the batch size that was chosen for one producer.

use std::time::Duration;

use gangline_scheduler::HumanDuration;
use gangline_scheduler::batch::{BatchTime, ChosenSize, SizeBound};
use serde::{Deserialize, Serialize};

use super::seconds;

/// The batch size that [`Batch::auto`](gangline_scheduler::batch::Batch::auto) has chosen for one producer, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BatchChoice {
    /// The number of items; the cost or the padded size if that is bounded.
    pub size: u64,
    /// The time that each batch takes, whatever its size. 0 until batches of two sizes have been measured.
    #[serde(with = "seconds")]
    pub fixed: Duration,
    /// The time that one more item adds, or one more unit of the cost or padded size.
    #[serde(with = "seconds")]
    pub each: Duration,
    /// What keeps the size from being larger.
    pub bound: SizeBound,
}

impl BatchChoice {
    /// The size that a producer has, and why.
    #[doc(hidden)]
    pub fn new(ChosenSize { size, time, bound }: ChosenSize) -> Self {
        let BatchTime { fixed, each } = time.unwrap_or_default();
        BatchChoice { size, fixed, each, bound }
    }

    /// The size, with the times that led to it or the limit that it has met. `one` is an item in words, with its
    /// article.
    pub(crate) fn text(&self, one: &str) -> String {
        let why = match self.bound {
            SizeBound::Memory => "memory".to_owned(),
            SizeBound::Limit => "limit".to_owned(),
            SizeBound::Latency => "latency".to_owned(),
            SizeBound::Rate => {
                format!("{} + {} {one}", HumanDuration(self.fixed), HumanDuration(self.each))
            }
        };
        format!("{} ({why})", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_told_with_its_reason() {
        let micros = Duration::from_micros;
        let time = Some(BatchTime { fixed: micros(3_100), each: micros(110) });
        let text = |size, bound| BatchChoice::new(ChosenSize { size, time, bound }).text("an item");
        assert_eq!(text(768, SizeBound::Rate), "768 (3.10 ms + 110 µs an item)");
        assert_eq!(text(41, SizeBound::Memory), "41 (memory)");
        assert_eq!(text(62, SizeBound::Latency), "62 (latency)");
        assert_eq!(text(4_096, SizeBound::Limit), "4096 (limit)");
    }

    #[test]
    fn times_are_in_seconds() {
        let choice =
            BatchChoice { size: 8, fixed: Duration::from_millis(250), ..BatchChoice::default() };
        let json = serde_json::to_value(&choice).unwrap();
        let expected =
            serde_json::json!({ "size": 8, "fixed": 0.25, "each": 0.0, "bound": "rate" });
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_value::<BatchChoice>(json).unwrap(), choice);
    }
}
