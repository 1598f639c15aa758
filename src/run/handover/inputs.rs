//! The inputs of tracked items, as far as no hook has them.

use std::collections::hash_map::Entry;

use gangline_scheduler::IndexMap;

/// The inputs of tracked items, by index.
///
/// An item may have several equal ones: two producers that work on copies of a batch may both fail it, and
/// then each tries its parts with an input of its own. With one input for both, the second producer would
/// find none while the first clones it.
#[derive(Debug)]
pub(crate) struct KeptInputs<I> {
    one_each: IndexMap<I>,
    /// Further inputs of the same items.
    further: IndexMap<Vec<I>>,
}

impl<I> Default for KeptInputs<I> {
    fn default() -> Self {
        KeptInputs { one_each: IndexMap::default(), further: IndexMap::default() }
    }
}

impl<I> KeptInputs<I> {
    pub(crate) fn is_empty(&self) -> bool {
        self.one_each.is_empty()
    }

    pub(crate) fn has(&self, index: u64) -> bool {
        self.one_each.contains_key(&index)
    }

    /// Adds an input of an item. Returns it if the item already has as many as there are `carriers`: leases and
    /// parts that cover the item.
    pub(crate) fn insert(&mut self, index: u64, input: I, carriers: usize) -> Option<I> {
        match self.one_each.entry(index) {
            Entry::Vacant(entry) => _ = entry.insert(input),
            Entry::Occupied(_) => {
                let here = 1 + self.further.get(&index).map_or(0, Vec::len);
                if here >= carriers {
                    return Some(input);
                }
                self.further.entry(index).or_default().push(input);
            }
        }
        None
    }

    /// Takes one input of an item.
    pub(crate) fn take(&mut self, index: u64) -> Option<I> {
        // Mostly the map is empty, so hashing is avoided.
        if !self.further.is_empty()
            && let Entry::Occupied(mut entry) = self.further.entry(index)
        {
            let input = entry.get_mut().pop();
            if entry.get().is_empty() {
                entry.remove();
            }
            return input;
        }
        self.one_each.remove(&index)
    }

    /// Removes all inputs of an item.
    pub(crate) fn remove(&mut self, index: u64) -> impl Iterator<Item = I> + use<I> {
        let further = match self.further.is_empty() {
            true => vec![],
            false => self.further.remove(&index).unwrap_or_default(),
        };
        self.one_each.remove(&index).into_iter().chain(further)
    }

    /// Removes all inputs of items from this index on.
    pub(crate) fn remove_from(&mut self, index: u64) -> Vec<I> {
        let one_each = self.one_each.extract_if(|&it, _| it >= index).map(|(_, input)| input);
        let mut removed: Vec<_> = one_each.collect();
        let further = self.further.extract_if(|&it, _| it >= index);
        removed.extend(further.flat_map(|(_, inputs)| inputs));
        removed
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_an_input_for_each_lease_and_part_that_covers_it() {
        let mut inputs = KeptInputs::default();
        assert_eq!(inputs.insert(7, 'a', 1), None);
        assert_eq!(inputs.insert(7, 'b', 1), Some('b'), "one lease covers it");
        assert_eq!(inputs.insert(7, 'c', 2), None);
        assert_eq!((inputs.take(7), inputs.take(7), inputs.take(7)), (Some('c'), Some('a'), None));
        assert!(inputs.is_empty() && inputs.further.is_empty());
    }

    #[test]
    fn a_finished_item_leaves_none() {
        let mut inputs = KeptInputs::default();
        for index in [3, 4, 5] {
            inputs.insert(index, index, 2);
            inputs.insert(index, index + 10, 2);
        }
        assert_eq!(inputs.remove(3).collect::<Vec<_>>(), [3, 13]);
        assert!(!inputs.has(3) && inputs.has(4));
        let mut rest = inputs.remove_from(5);
        rest.sort_unstable();
        assert_eq!(rest, [5, 15]);
        assert_eq!(inputs.remove_from(0).len(), 2);
        assert!(inputs.is_empty() && inputs.further.is_empty());
    }
}
