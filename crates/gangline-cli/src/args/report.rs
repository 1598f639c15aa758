//! The options of `gangline report`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use gangline::report::Settings;
use gangline::{Batch, Order};

/// Show a report that was written as JSON, or what changed between two
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The report, as --report FILE.json wrote it
    #[arg(value_name = "FILE", required_unless_present = "compare", conflicts_with = "compare")]
    pub(crate) file: Option<PathBuf>,
    /// Show what changed between two reports
    #[arg(long, num_args = 2, value_names = ["BEFORE", "AFTER"])]
    pub(crate) compare: Vec<PathBuf>,
    /// Write a page to FILE instead of text to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Say how long the run would have taken with jobs=N, window=N, batch=N, retries=N or
    /// order=input|completion; several go together
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["compare", "html"])]
    pub(crate) what_if: Vec<WhatIf>,
}

/// One setting that a run might have had: `devices=8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhatIf {
    Devices(usize),
    Window(usize),
    Batch(usize),
    Retries(u32),
    Order(Order),
}

impl WhatIf {
    pub(crate) fn added_to(self, settings: Settings) -> Settings {
        match self {
            WhatIf::Devices(producers) => settings.producers(producers),
            WhatIf::Window(items) => settings.window(items),
            WhatIf::Batch(items) => settings.batch(Batch::up_to(items)),
            WhatIf::Retries(retries) => settings.retries(retries),
            WhatIf::Order(order) => settings.order(order),
        }
    }
}

impl FromStr for WhatIf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((key, value)) = text.split_once('=') else {
            return Err(format!("{text:?} has no value: write {text}=VALUE"));
        };
        let number = || value.parse().map_err(|_| format!("{value:?} is no number"));
        match (key, value) {
            ("jobs" | "devices", _) => number().map(WhatIf::Devices),
            ("window", _) => number().map(WhatIf::Window),
            ("batch", _) => number().map(WhatIf::Batch),
            ("retries", _) => match value.parse() {
                Ok(retries) => Ok(WhatIf::Retries(retries)),
                Err(_) => Err(format!("{value:?} is no number")),
            },
            ("order", "input") => Ok(WhatIf::Order(Order::Input)),
            ("order", "completion") => Ok(WhatIf::Order(Order::Completion)),
            ("order", _) => Err(format!("{value:?} is no order: there are input and completion")),
            _ => Err(format!(
                "{key:?} is no setting: there are jobs, window, batch, retries and order"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_keys_with_values() {
        let read = |text: &str| text.parse::<WhatIf>();
        assert_eq!(read("jobs=8"), Ok(WhatIf::Devices(8)));
        assert_eq!(read("devices=8"), read("jobs=8"), "the word of the library");
        assert_eq!(read("order=completion"), Ok(WhatIf::Order(Order::Completion)));
        for (text, why) in [
            ("window", "has no value"),
            ("window=many", "is no number"),
            ("retries=-1", "is no number"),
            ("order=any", "there are input and completion"),
            ("speed=2", "there are jobs, window, batch"),
        ] {
            assert!(read(text).unwrap_err().contains(why), "{text}");
        }
    }
}
