//! What a plain YAML scalar means: the core schema of YAML 1.2, and `1_000` and `0b11` besides.

use config::ValueKind;

use super::tree::integer;

/// The value of a scalar that stands without quotes and tag.
pub(super) fn resolve(text: &str) -> Result<ValueKind, String> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => ValueKind::Nil,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        ".nan" | ".NaN" | ".NAN" => f64::NAN.into(),
        _ => match number(text) {
            Some(number) => number.ok_or_else(|| format!("{text} does not fit in 64 bits"))?,
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
    let absolute = i128::from_str_radix(digits, radix).ok()?;
    integer(if negative { -absolute } else { absolute }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: impl Into<ValueKind>) {
        assert_eq!(resolve(text), Ok(expected.into()), "{text}");
    }

    #[test]
    fn integers() {
        for (text, expected) in [
            ("0", 0),
            ("-0", 0),
            ("+1", 1),
            ("007", 7),
            ("0777", 777),
            ("1_000", 1000),
            ("0x1F", 31),
            ("-0x1F", -31),
            ("0o17", 15),
            ("0b11", 3),
        ] {
            check(text, expected);
        }
        check("18446744073709551615", u64::MAX);
        check("-9223372036854775808", i64::MIN);
    }

    #[test]
    fn floats() {
        for (text, expected) in [
            ("1.", 1.0),
            (".5", 0.5),
            ("-.5", -0.5),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("12e03", 12000.0),
            (".inf", f64::INFINITY),
            ("-.INF", f64::NEG_INFINITY),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn texts() {
        for text in [
            "yes",
            "no",
            "inf",
            "nan",
            "infinity",
            "-",
            "+",
            ".",
            "..",
            "e",
            "1e",
            "1_",
            "_1",
            "1__0",
            "1_000.5",
            "0x",
            "0xG",
            "0o8",
            "1.2.3",
            "1-2",
            "1:30",
            "2020-01-01",
            "tRue",
            "nULL",
            "-é",
        ] {
            check(text, text);
        }
    }

    #[test]
    fn numbers_that_are_too_large() {
        for text in ["18446744073709551616", "-9223372036854775809", "1e999", "0xFFFFFFFFFFFFFFFFF"]
        {
            assert_eq!(resolve(text), Err(format!("{text} does not fit in 64 bits")));
        }
        assert!(resolve(&"9".repeat(100)).is_err());
    }
}
