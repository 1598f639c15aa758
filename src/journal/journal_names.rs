//! Numbers for items with the same name.

use std::collections::HashMap;

/// The number of items of each name so far in a run.
///
/// It holds every name, so its memory grows with the input.
#[derive(Debug, Default)]
pub(crate) struct JournalNames {
    seen: HashMap<Box<str>, u32>,
}

impl JournalNames {
    /// Returns the occurrence of this name, from 1.
    ///
    /// # Panics
    ///
    /// At the 2^32nd item of one name.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        // Not `entry`, which would copy a name that is present.
        match self.seen.get_mut(name) {
            Some(seen) => {
                *seen = seen.checked_add(1).expect("fewer than 2^32 items have one name");
                *seen
            }
            None => {
                self.seen.insert(name.into(), 1);
                1
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_comes_again_has_the_next_number() {
        let mut names = JournalNames::default();
        let numbers = ["a", "b", "a", "", "a", ""].map(|name| names.number(name));
        assert_eq!(numbers, [1, 1, 2, 1, 3, 2]);
    }
}
