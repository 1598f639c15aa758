//! What a plain YAML scalar means: the core schema of YAML 1.2, and `1_000` and `0b11` besides.

#[cfg(test)]
mod tests;

use config::ValueKind;

use super::tree::integer;

/// The value in the core schema.
pub(super) fn resolve(text: &str) -> Result<ValueKind, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => ValueKind::Nil,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        ".nan" | ".NaN" | ".NAN" => f64::NAN.into(),
        _ => match number(text) {
            Some(number) => number.ok_or_else(|| format!("{text} does not fit in 128 bits"))?,
            None => text.into(),
        },
    })
}

/// The number that is written; `Some(None)` for one that is too large.
fn number(text: &str) -> Option<Option<ValueKind>> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let negative = text.starts_with('-');
    if let Some((radix, digits)) = digits(unsigned) {
        return Some(to_integer(negative, radix, &digits));
    }
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        let infinity = if negative { f64::NEG_INFINITY } else { f64::INFINITY };
        return Some(Some(infinity.into()));
    }
    let is_decimal = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        || !unsigned.bytes().all(is_decimal)
    {
        return None;
    }
    let float: f64 = text.parse().ok()?;
    Some(float.is_finite().then(|| float.into()))
}

fn digits(unsigned: &str) -> Option<(u32, String)> {
    let (radix, digits) = match unsigned.get(..2) {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        _ => (10, unsigned),
    };
    // Underscores stand between digits only.
    let is_run = |run: &str| !run.is_empty() && run.chars().all(|c| c.is_digit(radix));
    digits.split('_').all(is_run).then(|| (radix, digits.replace('_', "")))
}

fn to_integer(negative: bool, radix: u32, digits: &str) -> Option<ValueKind> {
    let absolute = u128::from_str_radix(digits, radix).ok()?;
    if !negative {
        return Some(integer(absolute));
    }
    // The lowest integer has no positive counterpart.
    0_i128.checked_sub_unsigned(absolute).map(integer)
}
