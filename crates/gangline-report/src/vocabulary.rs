//! The words of a report.

use serde::{Deserialize, Serialize};

/// The words that the texts of a report use for items, producers and the other parts of a run.
///
/// Set it with [`RunReport::speak`](crate::RunReport::speak) before you show or write the report, for users that know
/// jobs and slots. The fields of JSON keep their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Vocabulary {
    /// Items, producers, the consumer, the window, and hooks by their names: the words of the library.
    #[default]
    Items,
    /// Jobs, slots, the output, the output window, and the command: the words of the program `gangline`.
    Jobs,
    /// Items, workers, the caller, lists, and the functions `load`, `work` and `end`: the words of the Python package.
    Workers,
}

/// Declares the nouns of each vocabulary: of the library, of the program, and of the package.
macro_rules! words {
    ($($(#[$doc:meta])* $noun:ident: $items:literal, $jobs:literal, $workers:literal;)*) => {
        /// The nouns of a vocabulary.
        #[derive(Debug, Clone, Copy, PartialEq)]
        pub(super) struct Words {
            $($(#[$doc])* pub $noun: &'static str,)*
        }

        const ITEMS: Words = Words { $($noun: $items,)* };
        const JOBS: Words = Words { $($noun: $jobs,)* };
        const WORKERS: Words = Words { $($noun: $workers,)* };

        impl Words {
            /// The noun of a name in a sentence.
            pub(super) fn noun(&self, name: &str) -> Option<&'static str> {
                match name {
                    $(stringify!($noun) => Some(self.$noun),)*
                    _ => None,
                }
            }
        }
    };
}

words! {
    /// The indefinite article of an item.
    article: "an", "a", "an";
    item: "item", "job", "item";
    items: "items", "jobs", "items";
    item_event: "item event", "job event", "item event";
    producer: "producer", "slot", "worker";
    producers: "producers", "slots", "workers";
    producers_busy: "producers busy", "slots busy", "workers busy";
    producers_waiting: "producers waiting", "slots waiting", "workers waiting";
    source: "source", "input", "source";
    /// The source, the producers and the consumer as what limited a run.
    reading: "the source", "reading the inputs", "the source";
    working: "producers", "jobs", "workers";
    taking: "the consumer", "writing the outputs", "the caller";
    /// The verb between one of them and its share of the time.
    took: "was at work", "took", "was at work";
    consumer: "consumer", "output", "caller";
    consumer_working: "consumer working", "output working", "caller working";
    window: "window", "output window", "window";
    batches: "batches", "lists", "lists";
    /// What works on a batch.
    hook: "hook", "command", "function";
    backoff: "backoff", "waits", "backoff";
    /// What makes the state of a producer.
    init: "`producer_init`", "the start", "`load`";
    /// How a batch comes to the hook.
    batch_call: "call", "message", "call";
}

/// The words of the library about a run in a cluster, and those of the program.
const IN_CLUSTER: Words =
    Words { producer: "worker", producers: "workers", working: "workers", ..ITEMS };
const JOBS_IN_CLUSTER: Words = Words { producer: "worker", producers: "workers", ..JOBS };

impl Vocabulary {
    /// The words about a run in a cluster.
    pub(super) fn words_in_cluster(self) -> &'static Words {
        match self {
            Vocabulary::Items => &IN_CLUSTER,
            Vocabulary::Jobs => &JOBS_IN_CLUSTER,
            Vocabulary::Workers => self.words(),
        }
    }

    pub(super) fn words(self) -> &'static Words {
        match self {
            Vocabulary::Items => &ITEMS,
            Vocabulary::Jobs => &JOBS,
            Vocabulary::Workers => &WORKERS,
        }
    }

    /// Returns the name of the part that failed, for the name of a hook.
    pub(super) fn part(self, hook: &str) -> &str {
        match (self, hook) {
            (Vocabulary::Jobs, "producer_work" | "producer_work_batch") => "the command",
            (Vocabulary::Jobs, "consumer_work") => "the output",
            (Vocabulary::Workers, "producer_init") => "load",
            (Vocabulary::Workers, "producer_work" | "producer_work_batch") => "work",
            (Vocabulary::Workers, "producer_end") => "end",
            (_, hook) => hook,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::eventful;
    use super::*;

    #[test]
    fn a_command_fails_alone_and_for_a_list() {
        for hook in ["producer_work", "producer_work_batch"] {
            assert_eq!(Vocabulary::Jobs.part(hook), "the command");
            assert_eq!(Vocabulary::Items.part(hook), hook);
            assert_eq!(Vocabulary::Workers.part(hook), "work");
        }
    }

    #[test]
    fn a_report_has_the_words_of_its_vocabulary() {
        let mut report = eventful(4);
        // Texts of the run itself.
        report.error = None;
        report.failures.clear();
        report.producers.iter_mut().for_each(|producer| producer.quarantined = None);
        report.splits.error = Some("no".to_owned());
        report.provenance.settings.insert("on_error".to_owned(), "skip".to_owned());
        for (vocabulary, others) in [
            (Vocabulary::Items, ["job", "slot", "the command", "output window"]),
            (Vocabulary::Jobs, ["item", "producer", "consumer", "hook"]),
            (Vocabulary::Workers, ["job", "producer", "consumer", "hook"]),
        ] {
            report.speak(vocabulary);
            assert!(report.conclusion.contains("limited the run"), "{}", report.conclusion);
            let comparison = report.compare(&report).to_string();
            for text in [report.to_string(), comparison] {
                for word in others {
                    assert!(!text.to_lowercase().contains(word), "{word}: {text}");
                }
            }
            let page = report.to_html();
            assert!(page.contains(&format!("<h2>Slowest {}</h2>", vocabulary.words().items)));
            assert_eq!(page.contains("<dt>on_error</dt>"), vocabulary == Vocabulary::Items);
            let read = super::super::RunReport::from_json(&report.to_json()).unwrap();
            assert_eq!(read.vocabulary, vocabulary);
        }
    }
}
