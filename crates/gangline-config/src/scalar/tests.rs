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
    check("18446744073709551616", 1_i128 << 64);
    check("-9223372036854775809", i128::from(i64::MIN) - 1);
    check("1000000000000000019884624838656", 1_000_000_000_000_000_019_884_624_838_656_i128);
    check("-170141183460469231731687303715884105728", i128::MIN);
    check("340282366920938463463374607431768211455", u128::MAX);
    check("0xFFFFFFFFFFFFFFFFF", 0xF_FFFF_FFFF_FFFF_FFFF_i128);
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
    for text in [
        "340282366920938463463374607431768211456",
        "-170141183460469231731687303715884105729",
        "1e999",
        "0x100000000000000000000000000000000",
    ] {
        assert_eq!(resolve(text), Err(format!("{text} does not fit in 128 bits")));
    }
    assert!(resolve(&"9".repeat(100)).is_err());
}
