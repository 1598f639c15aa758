//! How many items a producer takes from the intake at once; no threads here.

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

/// Divides the items in the intake into equal shares, one per producer. Once all are taken, it divides what
/// has arrived since.
///
/// Rejected: a share of the remaining items at each take. Shares would shrink geometrically: two producers
/// took 64 items in seven pieces, each under the lock, where two pieces do. A share is a size and is not
/// reserved for a producer: a fast one takes several.
#[derive(Debug)]
pub(crate) struct Shares {
    producers: usize,
    /// The maximum size of a share.
    most: usize,
    /// The number of items in shares not yet taken.
    left: usize,
    /// The size of a share.
    share: usize,
}

impl Shares {
    /// For `producers` producers, each of which takes at most `most` items at once.
    pub(crate) fn new(producers: usize, most: usize) -> Self {
        Shares { producers, most, left: 0, share: 0 }
    }

    /// The number of items that the next producer may take, with `here` items available.
    #[inline]
    pub(crate) fn offer(&mut self, here: usize) -> usize {
        if self.left == 0 {
            self.share = (here / self.producers).clamp(1, self.most);
            // Without the remainder: in a wide window it would be large, and the last producer would get all
            // of it.
            self.left = here.min(self.share * self.producers);
        }
        self.share.min(self.left).min(here)
    }

    /// Takes this number of the [offered](Shares::offer) items.
    #[inline]
    pub(crate) fn take(&mut self, items: usize) {
        self.left -= items;
    }
}
