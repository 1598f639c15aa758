//! A map by the indices of items.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by the indices of items.
pub type IndexMap<V> = HashMap<u64, V, BuildHasherDefault<IndexHasher>>;

/// Spreads indices over the buckets. Input cannot make them collide, since indices are assigned here.
#[derive(Debug, Default)]
pub struct IndexHasher(u64);

impl Hasher for IndexHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only indices are hashed")
    }

    fn write_u64(&mut self, index: u64) {
        // Fibonacci hashing. The well-mixed upper half goes into both halves, since the table uses both ends.
        let mixed = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_spread_over_both_ends_of_a_hash() {
        let hash = |index: u64| {
            let mut hasher = IndexHasher::default();
            hasher.write_u64(index);
            hasher.finish()
        };
        let different = |part: fn(u64) -> u64| {
            (0..1_000).map(hash).map(part).collect::<std::collections::HashSet<_>>().len()
        };
        assert!(different(|hash| hash & 0x3ff) > 500, "the lower bits choose the bucket");
        assert!(different(|hash| hash >> 57) > 100, "the upper ones are compared first");
    }
}
