//! Which plain scalars of YAML are no texts.

use config::ValueKind;

use crate::scalar::resolve;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_1_1_has_other_truth_values_bases_and_floats() {
        // What `yaml.safe_load` of PyYAML 6.0 returns.
        for (text, expected) in [
            ("yes", ValueKind::from(true)),
            ("Off", false.into()),
            ("yES", "yES".into()),
            ("y", "y".into()),
            ("017", 15.into()),
            ("-0_17", (-15).into()),
            ("0o17", "0o17".into()),
            ("0x1F", 31.into()),
            ("0", 0.into()),
            ("08", "08".into()),
            ("0:30", "0:30".into()),
            ("1:30", 90.into()),
            ("-1:00:01", (-3601).into()),
            ("1:60", "1:60".into()),
            ("1:+5", "1:+5".into()),
            ("--017", "--017".into()),
            ("+-1:30", "+-1:30".into()),
            ("1e3", "1e3".into()),
            ("1.0e3", "1.0e3".into()),
            ("1.5e+3", 1500.0.into()),
            ("-.inf", f64::NEG_INFINITY.into()),
            ("12", 12.into()),
            ("true", true.into()),
        ] {
            assert_eq!(Schema::Yaml11.resolve(text), Ok(expected), "{text}");
        }
        assert_eq!(Schema::Core.resolve("yes"), Ok("yes".into()));
        assert_eq!(Schema::Core.resolve("1:30"), Ok("1:30".into()));
    }
}
