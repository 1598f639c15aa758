//! The journal of one run, as the consumer writes it.

use std::time::Instant;

use crate::concurrency::{Mutex, lock, now};
use crate::error::Error;
use crate::journal::{
    Fingerprint, ItemPlan, Journal, JournalError, JournalFile, JournalKey, JournalOutcome,
    JournalRecord, KeyKind, Past, check_note,
};

/// The journal of one run: what earlier runs have recorded, and what this run records.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    /// Used by the feeder, and by the consumer for failed items.
    past: Mutex<Past>,
    last_note: Option<Vec<u8>>,
    /// Used by the consumer; `None` once the run is over.
    book: Mutex<Option<Book>>,
}

#[derive(Debug)]
struct Book {
    file: JournalFile,
    /// The note of the hook that is running. It becomes `note` once the hook has returned.
    draft: Option<Vec<u8>>,
    /// The note to write with the next commit.
    note: Option<Vec<u8>>,
}

impl JournalWriter {
    /// Opens the journal for a run with these configurations, one for each stage, and this kind of item keys.
    pub(crate) fn open(
        journal: &Journal,
        cfg: serde_json::Value,
        later_stages: Vec<serde_json::Value>,
        keys: KeyKind,
    ) -> Result<Self, Error> {
        let run = Fingerprint::of_pipeline(journal, cfg, later_stages, keys);
        let (file, past) = JournalFile::open(journal, run)?;
        let last_note = past.last_note().map(<[u8]>::to_vec);
        let book = Book { file, draft: None, note: None };
        Ok(JournalWriter { past: Mutex::new(past), last_note, book: Mutex::new(Some(book)) })
    }

    pub(crate) fn plan(&self, key: &JournalKey) -> Result<ItemPlan, JournalError> {
        lock(&self.past).decide(key)
    }

    /// Checks the length of the input, `items`, against earlier runs.
    pub(crate) fn check_length(&self, items: u64) -> Result<(), JournalError> {
        lock(&self.past).check_length(items)
    }

    pub(crate) fn last_note(&self) -> Option<&[u8]> {
        self.last_note.as_deref()
    }

    /// Sets the note of the hook that is running.
    pub(crate) fn draft(&self, note: Vec<u8>) -> Result<(), JournalError> {
        check_note(&note)?;
        if let Some(book) = &mut *lock(&self.book) {
            book.draft = Some(note);
        }
        Ok(())
    }

    /// Accepts the note of a hook that has returned.
    pub(crate) fn adopt_draft(&self) {
        if let Some(book) = &mut *lock(&self.book)
            && let Some(draft) = book.draft.take()
        {
            book.note = Some(draft);
        }
    }

    /// Discards the note of a hook that has failed.
    pub(crate) fn drop_draft(&self) {
        if let Some(book) = &mut *lock(&self.book) {
            book.draft = None;
        }
    }

    /// Records a finished item. Returns whether a commit is due.
    pub(crate) fn record(&self, key: JournalKey, outcome: JournalOutcome) -> bool {
        // An input that could not be read may be the one that an earlier run has done.
        if outcome == JournalOutcome::Failed && lock(&self.past).is_done(&key) {
            return false;
        }
        let Some(book) = &mut *lock(&self.book) else { return false };
        let now = now();
        book.file.record(JournalRecord { key, outcome }, now);
        book.file.is_due(now)
    }

    /// Whether a commit is due.
    pub(crate) fn is_due(&self) -> bool {
        self.due_at().is_some_and(|due| due <= now())
    }

    /// The time at which the next commit is due.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        lock(&self.book).as_ref()?.file.due_at()
    }

    /// Whether there is anything to commit.
    pub(crate) fn has_news(&self) -> bool {
        let book = lock(&self.book);
        book.as_ref().is_some_and(|book| book.file.pending() > 0 || book.note.is_some())
    }

    /// Commits everything to the disk.
    pub(crate) fn commit(&self) -> Result<(), JournalError> {
        let Some(book) = &mut *lock(&self.book) else { return Ok(()) };
        book.file.commit(book.note.as_deref())?;
        book.note = None;
        Ok(())
    }

    /// Closes the file at the end of the run, so that other processes can open it.
    pub(crate) fn close(&self) {
        drop(lock(&self.book).take());
    }
}
