//! The seeds of items.

/// The step of SplitMix64: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns the seed of the item with this index. It depends on nothing else, so it never changes.
///
/// The seed of the run is mixed first: items of runs with neighbouring seeds have nothing in common.
pub(super) fn seed_of(run: u64, index: u64) -> u64 {
    mixed(mixed(run).wrapping_add(index.wrapping_add(1).wrapping_mul(STEP)))
}

/// The output function of SplitMix64, by Steele, Lea and Flood: each bit of the result depends on each of the input.
fn mixed(state: u64) -> u64 {
    let z = state.wrapping_add(STEP);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The first outputs of the reference program for the seed 0.
    #[test]
    fn it_mixes_as_splitmix64() {
        let outputs = [0, 1].map(|steps: u64| mixed(steps.wrapping_mul(STEP)));
        assert_eq!(outputs, [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]);
    }

    #[test]
    fn the_seeds_of_a_version_are_those_of_the_next() {
        let seeds =
            [(0, 0), (0, 1), (7, 0), (u64::MAX, u64::MAX)].map(|(run, it)| seed_of(run, it));
        assert_eq!(
            seeds,
            [
                0xB382_A305_F441_4F5E,
                0x631A_9154_FBAB_F717,
                0xA653_05FD_338E_C8FE,
                0x5DC2_0AA7_B2A2_7137
            ]
        );
    }

    #[test]
    fn no_two_of_many_items_share_a_seed() {
        let seeds = (0..100).flat_map(|run| (0..100).map(move |index| seed_of(run, index)));
        assert_eq!(seeds.collect::<BTreeSet<_>>().len(), 10_000);
    }
}
