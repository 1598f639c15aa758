//! What a plain YAML scalar means: the core schema of YAML 1.2, and `1_000` and `0b11` besides; or that of YAML 1.1.

#[cfg(test)]
mod tests;

use config::ValueKind;

use super::tree::integer;

/// Which plain scalars are no texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Schema {
    /// The schema of YAML 1.2.
    #[default]
    Core,
    /// The schema of PyYAML for truth values and integers of base 8 and 60. Dates are texts.
    Yaml11,
}

impl Schema {
    /// The value of a scalar that stands without quotes and tag.
    pub(super) fn resolve(self, text: &str) -> Result<ValueKind, String> {
        match self {
            Schema::Core => resolve(text),
            Schema::Yaml11 => match yaml_11(text) {
                Some(kind) => Ok(kind),
                // With a point, and a sign before the exponent.
                None => resolve(text).map(|kind| match kind {
                    ValueKind::Float(_) if !text.contains('.') => text.into(),
                    ValueKind::Float(_)
                        if text.split(['e', 'E']).nth(1).is_some_and(is_unsigned) =>
                    {
                        text.into()
                    }
                    kind => kind,
                }),
            },
        }
    }
}

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

/// The value of what YAML 1.1 reads in another way than YAML 1.2.
fn yaml_11(text: &str) -> Option<ValueKind> {
    match text {
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Some(true.into()),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Some(false.into()),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let absolute = match unsigned.strip_prefix('0') {
        None => sexagesimal(unsigned)?,
        Some(digits) if digits.bytes().all(|b| b.is_ascii_digit() || b == b'_') => {
            match i64::from_str_radix(&digits.replace('_', ""), 8) {
                Ok(absolute) => absolute,
                Err(_) if digits.contains(['8', '9']) => return Some(text.into()),
                Err(_) => return None,
            }
        }
        // `0o17` is YAML 1.2.
        Some(digits) => return digits.starts_with('o').then(|| text.into()),
    };
    Some(if text.starts_with('-') { -absolute } else { absolute }.into())
}

fn is_unsigned(exponent: &str) -> bool {
    !exponent.starts_with(['+', '-'])
}

/// The integer of base 60, such as `1:30`: <https://yaml.org/type/int.html>.
fn sexagesimal(text: &str) -> Option<i64> {
    let (first, places) = text.split_once(':')?;
    let is_digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let first = first.replace('_', "");
    if !is_digits(&first) {
        return None;
    }
    places.split(':').try_fold(first.parse().ok()?, |sum: i64, place| {
        let digit: i64 = place.parse().ok().filter(|&digit| is_digits(place) && digit < 60)?;
        sum.checked_mul(60)?.checked_add(digit)
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
