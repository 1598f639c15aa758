//! Numbers of options: digits only. A sign would mean something else to GNU parallel, or be a slip.

use std::str::FromStr;

/// A number without a sign.
pub(crate) fn unsigned<N: FromStr>(text: &str) -> Result<N, &'static str> {
    digits(text).ok_or("write a number, without a sign")
}

pub(crate) fn at_least_one(text: &str) -> Result<usize, &'static str> {
    match digits(text) {
        Some(number @ 1..=65_536) => Ok(number),
        _ => Err("write a number from 1 to 65536, without a sign"),
    }
}

/// A number of bytes, such as `10k`.
pub(crate) fn size(text: &str) -> Result<u64, &'static str> {
    let (number, unit) = match text.char_indices().last() {
        Some((end, 'k' | 'K')) => (&text[..end], 1 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        Some((end, 'G')) => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    let bytes = digits::<u64>(number).and_then(|number| number.checked_mul(unit));
    bytes.ok_or("write a number of bytes, optionally followed by k, M or G")
}

/// The number that the text is, if it has digits only.
pub(crate) fn digits<N: FromStr>(text: &str) -> Option<N> {
    let is_digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_refused() {
        assert_eq!(unsigned::<u32>("12"), Ok(12));
        assert_eq!(size("2k"), Ok(2_048));
        for text in ["+1", "-1", "", " 1", "1.5", "0x1"] {
            assert!(unsigned::<u32>(text).is_err(), "{text}");
            assert!(at_least_one(text).is_err(), "{text}");
            assert!(size(text).is_err(), "{text}");
        }
    }
}
