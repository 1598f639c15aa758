//! Made-up sentences, and a tokenizer that needs no file.

use crate::rng::Rng;

/// Begins a text.
const BEGIN: u32 = 1;
/// Ends a text.
const END: u32 = 2;
/// How many tokens stand for no word: the two, and 0, with which texts are padded.
const SPECIAL: u32 = 3;

const SYLLABLES: [&str; 16] = [
    "ba", "che", "di", "fo", "gu", "ha", "jo", "ki", "lu", "me", "no", "pa", "ri", "sto", "tu",
    "ve",
];

/// A sentence of this number of words.
pub(crate) fn sentence(rng: &mut Rng, words: usize) -> String {
    (0..words).map(|_| word(rng)).collect::<Vec<_>>().join(" ")
}

/// The tokens of a text, at most `most`: each word's is a hash of it.
pub(crate) fn tokens(text: &str, vocabulary: usize, most: usize) -> Vec<u32> {
    let words = text.split_whitespace().take(most.saturating_sub(2));
    let words = words.map(|word| SPECIAL + fnv1a(word) % (vocabulary as u32 - SPECIAL));
    [BEGIN].into_iter().chain(words).chain([END]).collect()
}

fn word(rng: &mut Rng) -> String {
    let syllables = rng.uniform(1.0, 4.0) as usize;
    (0..syllables).map(|_| SYLLABLES[rng.uniform(0.0, 16.0) as usize]).collect()
}

fn fnv1a(word: &str) -> u32 {
    word.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
