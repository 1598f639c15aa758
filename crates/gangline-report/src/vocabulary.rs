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

/// The nouns of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Words {
    /// The indefinite article of an item.
    pub article: &'static str,
    pub item: &'static str,
    pub items: &'static str,
    pub item_event: &'static str,
    pub producer: &'static str,
    pub producers: &'static str,
    pub producers_busy: &'static str,
    pub producers_waiting: &'static str,
    pub source: &'static str,
    /// The source, the producers and the consumer as what limited a run.
    pub reading: &'static str,
    pub working: &'static str,
    pub taking: &'static str,
    /// The verb between one of them and its share of the time.
    pub took: &'static str,
    pub consumer: &'static str,
    pub consumer_working: &'static str,
    pub window: &'static str,
    pub batches: &'static str,
    /// What works on a batch.
    pub hook: &'static str,
    pub backoff: &'static str,
    /// What makes the state of a producer.
    pub init: &'static str,
    /// How a batch comes to the hook.
    pub call: &'static str,
}

pub(super) const ITEMS: Words = Words {
    article: "an",
    item: "item",
    items: "items",
    item_event: "item event",
    producer: "producer",
    producers: "producers",
    producers_busy: "producers busy",
    producers_waiting: "producers waiting",
    source: "source",
    reading: "the source",
    working: "producers",
    taking: "the consumer",
    took: "was at work",
    consumer: "consumer",
    consumer_working: "consumer working",
    window: "window",
    batches: "batches",
    hook: "hook",
    backoff: "backoff",
    init: "`producer_init`",
    call: "call",
};

/// The words of the conclusion about a run in a cluster.
pub(super) const WORKERS: Words =
    Words { producer: "worker", producers: "workers", working: "workers", ..ITEMS };

const JOBS: Words = Words {
    article: "a",
    item: "job",
    items: "jobs",
    item_event: "job event",
    producer: "slot",
    producers: "slots",
    producers_busy: "slots busy",
    producers_waiting: "slots waiting",
    source: "input",
    reading: "reading the inputs",
    working: "jobs",
    taking: "writing the outputs",
    took: "took",
    consumer: "output",
    consumer_working: "output working",
    window: "output window",
    batches: "lists",
    hook: "command",
    call: "message",
    backoff: "waits",
    init: "the start",
};

const FUNCTIONS: Words = Words {
    producers_busy: "workers busy",
    producers_waiting: "workers waiting",
    taking: "the caller",
    consumer: "caller",
    consumer_working: "caller working",
    batches: "lists",
    hook: "function",
    init: "`load`",
    ..WORKERS
};

impl Vocabulary {
    pub(super) fn words(self) -> &'static Words {
        match self {
            Vocabulary::Items => &ITEMS,
            Vocabulary::Jobs => &JOBS,
            Vocabulary::Workers => &FUNCTIONS,
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
