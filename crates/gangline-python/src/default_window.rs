//! How many items are open where the user has set no window.

use crate::errors::Refused;
use crate::options::Options;

/// What bounds the items of a call of a pool, or of a stage of a pipeline, for which the user has set no window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DefaultWindow {
    pub(crate) items: usize,
    /// The number of items that may be open whatever they take in memory.
    pub(crate) least: usize,
    pub(crate) bytes: u64,
}

impl DefaultWindow {
    /// Four lists for each worker. Of small items there are more, since a slow one then holds up no other worker.
    pub(crate) fn of(options: &Options) -> Result<Self, Refused> {
        let workers = options.places()?.len().min(MOST_WORKERS);
        let least = LEAST_WINDOW.max(4 * workers * options.largest_list());
        let items = match options.are_sizes_known() {
            true => least.max(SMALL_ITEMS * workers),
            false => least,
        };
        Ok(DefaultWindow::new(items, least))
    }

    /// That of a stage that passes everything on.
    pub(crate) fn of_pass() -> Self {
        DefaultWindow::new(SMALL_ITEMS, LEAST_WINDOW)
    }

    fn new(items: usize, least: usize) -> Self {
        DefaultWindow { items, least, bytes: SMALL * items as u64 }
    }
}

/// The size of an item that counts as small, in bytes.
pub(crate) const SMALL: u64 = 64 << 10;

/// The largest number of workers that have room by default: on other machines there may be any number.
const MOST_WORKERS: usize = 256;

/// The least number of open items.
const LEAST_WINDOW: usize = 16;

/// The number of small items that a worker has open.
const SMALL_ITEMS: usize = 64;
