//! The journal of one run, as the consumer writes it.

use std::time::Instant;

use crate::concurrency::{Mutex, lock, now};
use crate::error::Error;
use crate::journal::{
    Fingerprint, Journal, JournalError, JournalFile, Key, KeyKind, Outcome, Past, Plan, Record,
    check_note,
};

/// What a run knows of earlier ones, and what it writes down for later ones.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    /// The feeder's, but for what fails.
    past: Mutex<Past>,
    last_note: Option<Vec<u8>>,
    /// The consumer's; `None` once the run is over.
    book: Mutex<Option<Book>>,
}

#[derive(Debug)]
struct Book {
    file: JournalFile,
    /// What the hook that is running wants noted: that counts once it has returned.
    draft: Option<Vec<u8>>,
    /// What is to be noted with the next commit.
    note: Option<Vec<u8>>,
}

impl JournalWriter {
    /// Opens a journal, for a run with that configuration, of items that are known like that.
    pub(crate) fn open(
        journal: &Journal,
        cfg: serde_json::Value,
        keys: KeyKind,
    ) -> Result<Self, Error> {
        let (file, past) = JournalFile::open(journal, Fingerprint::new(journal, cfg, keys))?;
        let last_note = past.last_note().map(<[u8]>::to_vec);
        let book = Book { file, draft: None, note: None };
        Ok(JournalWriter { past: Mutex::new(past), last_note, book: Mutex::new(Some(book)) })
    }

    pub(crate) fn plan(&self, key: &Key) -> Result<Plan, JournalError> {
        lock(&self.past).decide(key)
    }

    /// The input has come to its end after so many items.
    pub(crate) fn check_length(&self, items: u64) -> Result<(), JournalError> {
        lock(&self.past).check_length(items)
    }

    pub(crate) fn last_note(&self) -> Option<&[u8]> {
        self.last_note.as_deref()
    }

    /// A hook wants that noted.
    pub(crate) fn draft(&self, note: Vec<u8>) -> Result<(), JournalError> {
        check_note(&note)?;
        if let Some(book) = &mut *lock(&self.book) {
            book.draft = Some(note);
        }
        Ok(())
    }

    /// The hook has returned.
    pub(crate) fn adopt_draft(&self) {
        if let Some(book) = &mut *lock(&self.book)
            && let Some(draft) = book.draft.take()
        {
            book.note = Some(draft);
        }
    }

    /// The hook has failed.
    pub(crate) fn drop_draft(&self) {
        if let Some(book) = &mut *lock(&self.book) {
            book.draft = None;
        }
    }

    /// An item is done with. Whether it is time to commit.
    pub(crate) fn record(&self, key: Key, outcome: Outcome) -> bool {
        // An input that could not be read is not known to be that of an item which is done.
        if outcome == Outcome::Failed && lock(&self.past).is_done(&key) {
            return false;
        }
        let Some(book) = &mut *lock(&self.book) else { return false };
        let now = now();
        book.file.record(Record { key, outcome }, now);
        book.file.is_due(now)
    }

    /// Whether it is time to commit.
    pub(crate) fn is_due(&self) -> bool {
        self.due_at().is_some_and(|due| due <= now())
    }

    /// When it is time to commit.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        lock(&self.book).as_ref()?.file.due_at()
    }

    /// Whether there is something to commit.
    pub(crate) fn has_news(&self) -> bool {
        let book = lock(&self.book);
        book.as_ref().is_some_and(|book| book.file.pending() > 0 || book.note.is_some())
    }

    /// Puts everything on the disk.
    pub(crate) fn commit(&self) -> Result<(), JournalError> {
        let Some(book) = &mut *lock(&self.book) else { return Ok(()) };
        book.file.commit(book.note.as_deref())?;
        book.note = None;
        Ok(())
    }

    /// The run is over: lets others have the file.
    pub(crate) fn close(&self) {
        drop(lock(&self.book).take());
    }
}
