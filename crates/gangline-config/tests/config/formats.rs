//! What YAML, TOML and JSON mean, and that nothing is lost on the way.

use gangline_config::CfgError;
use gangline_config::CfgNode;

fn yaml(text: &str) -> CfgNode {
    CfgNode::from_yaml_str(text).unwrap()
}

#[track_caller]
fn check_yaml<T>(text: &str, expected: T)
where
    T: serde::de::DeserializeOwned + PartialEq + std::fmt::Debug,
{
    assert_eq!(yaml(&format!("v: {text}")).get::<T>("v").unwrap(), expected, "{text}");
}

#[test]
fn the_same_in_three_formats() {
    let expected = yaml("{Z: 1, a: {b: [1, 2.5, true, x]}, c: {d: {e: f}}}");
    let toml = "Z = 1\na.b = [1, 2.5, true, 'x']\n[c]\nd = {e = 'f'}";
    let json = r#"{"Z": 1, "a": {"b": [1, 2.5, true, "x"]}, "c": {"d": {"e": "f"}}}"#;
    for cfg in [CfgNode::from_toml_str(toml).unwrap(), CfgNode::from_json_str(json).unwrap()] {
        assert_eq!(cfg, expected);
        assert_eq!(cfg.keys().collect::<Vec<_>>(), ["Z", "a", "c"]);
    }
}

#[test]
fn yaml_integers() {
    check_yaml("18446744073709551615", u64::MAX);
    check_yaml("9223372036854775808", 9_223_372_036_854_775_808_u64);
    check_yaml("-9223372036854775808", i64::MIN);
    check_yaml("0o17", 15);
    check_yaml("0x1F", 31);
    check_yaml("+1", 1);
    check_yaml("1_000", 1000);
    check_yaml("007", 7);
    check_yaml("-007", -7);
    check_yaml("0", 0);
}

#[test]
fn yaml_integers_of_more_than_128_bits_are_errors() {
    for text in ["340282366920938463463374607431768211456", &"9".repeat(60), "1e999"] {
        let error = CfgNode::from_yaml_str(&format!("a: 1\nv: [{text}]")).unwrap_err().to_string();
        assert!(error.contains(&format!("{text} does not fit in 128 bits")), "{error}");
        assert!(error.contains("line 2, column 5"), "{error}");
    }
}

#[test]
fn an_integer_through_an_alias_stays_one() {
    let cfg = yaml("é: &n 007\nb: *n\nc: {<<: {d: 010}}\nd: *n");
    assert_eq!(cfg, yaml("{é: 7, b: 7, c: {d: 10}, d: 7}"));
}

#[test]
fn yaml_floats() {
    check_yaml("1e3", 1000.0);
    check_yaml("0.30000000000000004", 0.1 * 3.0);
    check_yaml(".inf", f64::INFINITY);
    check_yaml("-.inf", f64::NEG_INFINITY);
    check_yaml("5e-324", f64::from_bits(1));
    assert!(yaml("v: .nan").get::<f64>("v").unwrap().is_nan());
    assert!(yaml("v: -0.0").get::<f64>("v").unwrap().is_sign_negative());
}

#[test]
fn yaml_booleans_are_true_and_false_only() {
    for text in ["true", "True", "TRUE"] {
        check_yaml(text, true);
    }
    for text in ["yes", "no", "on", "off", "y", "n", "Yes", "NO"] {
        check_yaml(text, text.to_owned());
    }
}

#[test]
fn yaml_text_that_looks_like_something() {
    for text in ["1:30", "2020-01-01", "inf", "nan", "0.1.0", "1+2", "0 1", "="] {
        check_yaml(text, text.to_owned());
    }
    check_yaml("'007'", "007".to_owned());
    check_yaml("!!str 1", "1".to_owned());
    check_yaml("''", String::new());
}

#[test]
fn yaml_nulls() {
    for text in ["", "~", "null", "Null", "NULL"] {
        check_yaml(text, None::<String>);
        check_yaml(text, ());
    }
}

#[test]
fn yaml_merge_keys_are_merged() {
    let cfg = yaml("base: &b {x: 1, y: 2}\ntop: {<<: *b, y: 3}");
    assert_eq!(cfg, yaml("{base: {x: 1, y: 2}, top: {x: 1, y: 3}}"));
    assert_eq!(yaml("a: {'<<': 1}").get::<u8>("a.<<").unwrap(), 1);
}

#[test]
fn yaml_keys_are_the_text_that_is_written() {
    let cfg = yaml("{1: a, true: b, 0x10: c, -5: d, yes: e}");
    assert_eq!(cfg.keys().collect::<Vec<_>>(), ["1", "true", "0x10", "-5", "yes"]);
    for text in ["~: x", "null: x", "? [a]\n: x", "? {a: 1}\n: x"] {
        let error = CfgNode::from_yaml_str(text).unwrap_err();
        assert!(matches!(error, CfgError::Parse { .. }), "{text}: {error}");
    }
}

#[test]
fn keys_that_no_path_could_name_are_refused_at_load() {
    assert!(matches!(CfgNode::from_yaml_str("'': x"), Err(CfgError::Key { .. })));
    assert!(matches!(CfgNode::from_yaml_str("x[0]: x"), Err(CfgError::Key { .. })));
}

#[test]
fn a_key_that_is_there_twice_is_an_error() {
    for error in [
        CfgNode::from_yaml_str("a: 1\nb: {x: 1, x: 2}").unwrap_err(),
        CfgNode::from_toml_str("a = 1\na = 2").unwrap_err(),
        CfgNode::from_json_str("{\"a\": 1,\n \"a\": 2}").unwrap_err(),
    ] {
        assert!(matches!(error, CfgError::Parse { .. }), "{error}");
        assert!(error.to_string().contains("line 2"), "{error}");
    }
}

#[test]
fn toml_values() {
    let cfg = CfgNode::from_toml_str(
        "i = 9223372036854775807\nx = 0x1F\nu = 1_000\nf = 0.30000000000000004\ninf = -inf\n\
         nan = nan\nd = 2020-01-01T00:00:00Z\nzero = -0.0",
    )
    .unwrap();
    assert_eq!(cfg.get::<i64>("i").unwrap(), i64::MAX);
    assert_eq!(cfg.get::<u8>("x").unwrap(), 31);
    assert_eq!(cfg.get::<u32>("u").unwrap(), 1000);
    assert_eq!(cfg.get::<f64>("f").unwrap(), 0.1 * 3.0);
    assert_eq!(cfg.get::<f64>("inf").unwrap(), f64::NEG_INFINITY);
    assert!(cfg.get::<f64>("nan").unwrap().is_nan());
    assert_eq!(cfg.get::<String>("d").unwrap(), "2020-01-01T00:00:00Z");
    assert!(cfg.get::<f64>("zero").unwrap().is_sign_negative());
}

#[test]
fn numbers_that_do_not_fit_are_errors_with_their_place() {
    let toml = "a = 'x'\nb = [1, 9223372036854775808]";
    let error = CfgNode::from_toml_str(toml).unwrap_err().to_string();
    let expected = "9223372036854775808 does not fit in 64 bits at line 2, column 9";
    assert!(error.contains(expected), "{error}");
    let json = "{\"a\": \"99999999999999999999\\\"\",\n \"b\": [1, 340282366920938463463374607431768211456]}";
    let error = CfgNode::from_json_str(json).unwrap_err().to_string();
    let expected =
        "340282366920938463463374607431768211456 does not fit in 128 bits at line 2, column 11";
    assert!(error.contains(expected), "{error}");
    assert!(CfgNode::from_toml_str("a = 1e999").is_err());
    assert!(CfgNode::from_json_str("{\"a\": 1e999}").is_err());
}

#[test]
fn json_values() {
    let text = r#"{"u": 18446744073709551615, "i": -9223372036854775808, "f": 0.30000000000000004,
                  "n": null, "e": 1e300, "big": 1e19, "s": "😀\u0000 1e99 99999999999999999999"}"#;
    let cfg = CfgNode::from_json_str(text).unwrap();
    assert_eq!(cfg.get::<u64>("u").unwrap(), u64::MAX);
    assert_eq!(cfg.get::<i64>("i").unwrap(), i64::MIN);
    assert_eq!(cfg.get::<f64>("f").unwrap(), 0.1 * 3.0);
    assert_eq!(cfg.get::<Option<u8>>("n").unwrap(), None);
    assert_eq!(cfg.get::<f64>("e").unwrap(), 1e300);
    assert_eq!(cfg.get::<f64>("big").unwrap(), 1e19);
    assert_eq!(cfg.get::<String>("s").unwrap(), "😀\0 1e99 99999999999999999999");
}

#[test]
fn parse_errors_name_file_line_and_column() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text, place) in [
        ("a.yaml", "a: 1\nb: [1,", "line 2, column"),
        ("a.toml", "a = 1\nb = = 2", "line 2, column 5"),
        ("a.json", "{\"a\": 1,\n \"b\" 2}", "line 2 column 6"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let error = CfgNode::load(&file).unwrap_err();
        assert!(std::error::Error::source(&error).is_some());
        let error = error.to_string();
        assert!(error.starts_with(&file.display().to_string()) && error.contains(place), "{error}");
    }
    let error = CfgNode::from_toml_str("a = = 2").unwrap_err().to_string();
    assert_eq!(error, error.trim_end());
    let error = CfgNode::from_yaml_str("a: [").unwrap_err().to_string();
    assert!(error.starts_with("the text is not valid YAML: "), "{error}");
}

#[test]
fn empty_texts_are_empty_configurations() {
    for text in ["", " \n\n", "\u{feff}", "\r\n"] {
        assert!(yaml(text).is_empty());
        assert!(CfgNode::from_toml_str(text).unwrap().is_empty());
        assert!(CfgNode::from_json_str(text).unwrap().is_empty());
    }
    assert!(yaml("# only a comment\n").is_empty());
    assert!(yaml("---\n...\n").is_empty());
    assert!(yaml("{}").is_empty());
    assert_eq!(yaml(&CfgNode::new().to_yaml().unwrap()), CfgNode::new());
}

#[test]
fn the_top_must_be_a_node() {
    for text in ["[1, 2]", "- a\n- b", "text", "3", "true", "'quoted'"] {
        let error = CfgNode::from_yaml_str(text).unwrap_err();
        assert!(matches!(error, CfgError::Parse { .. }), "{error}");
    }
    for text in ["[1]", "3", "null", "\"a\""] {
        assert!(matches!(CfgNode::from_json_str(text), Err(CfgError::Parse { .. })));
    }
}

#[test]
fn byte_order_marks_and_line_ends_of_windows() {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [
        ("a.yaml", "\u{feff}a: 1\r\nb: |\r\n  x\r\n  y\r\n"),
        ("a.toml", "\u{feff}a = 1\r\nb = \"x\\ny\\n\"\r\n"),
        ("a.json", "\u{feff}{\r\n\"a\": 1,\r\n\"b\": \"x\\ny\\n\"\r\n}"),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let expected = CfgNode::new().with("a", 1).unwrap().with("b", "x\ny\n").unwrap();
        assert_eq!(CfgNode::load(&file).unwrap(), expected, "{name}");
    }
}

/// Texts that some reader or writer of some format takes for something else.
const NASTY: &[&str] = &[
    " ",
    " leading",
    "trailing ",
    "\ttab",
    "\n",
    "a\n",
    "a\nb\n",
    "\na",
    "a\r\nb",
    "\r",
    "yes",
    "no",
    "on",
    "off",
    "y",
    "n",
    "Y",
    "true",
    "True",
    "false",
    "null",
    "Null",
    "~",
    "none",
    "1",
    "-1",
    "+1",
    "007",
    "0o7",
    "0x1F",
    "0b1",
    "1_000",
    "1e3",
    "1",
    "-0",
    "inf",
    "nan",
    "infinity",
    "2020-01-01",
    "2001-12-14t21:59:43",
    "1:30",
    "<<",
    "=",
    "# c",
    "a #b",
    "a # b",
    "#",
    "-",
    "- a",
    "--",
    "---",
    "...",
    "--- a",
    "?",
    "? a",
    ":",
    "a:",
    "a: b",
    ": a",
    ",",
    "[",
    "]",
    "[1, 2]",
    "{",
    "}",
    "{a: 1}",
    "*a",
    "&a",
    "!",
    "!a",
    "!!str",
    "|",
    ">",
    "|-",
    "%",
    "%YAML",
    "@",
    "`",
    "'",
    "\"",
    "it's",
    "\"q\"",
    "\\",
    "\\n",
    "a\\",
    "\0",
    "\u{7}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{2028}",
    "\u{2029}",
    "\u{feff}",
    "\u{feff}a",
    "\u{fffd}",
    "\u{ffff}",
    "é",
    "字",
    "😀",
    "$x",
    "${x}",
    "a=b",
    "a b",
    "__BASE__x",
    "'''",
    "\"\"\"",
    "x\ty",
    "a\u{b}b",
    "a very long text, a very long text, a very long text, a very long text, a very long text",
    "long\nlong long long long long long long long long long long long long long long long long long\n\n",
    "  indented\nnot\n",
    "\n\n\n",
    "a\n ",
    " \n a",
];

#[test]
fn nasty_texts_survive_every_format() {
    let mut cfg = CfgNode::new();
    for (i, text) in NASTY.iter().enumerate() {
        cfg.set(&format!("values.v{i}"), text).unwrap();
        if !text.contains('.') {
            cfg.set(&format!("keys.{text}"), i).unwrap();
            cfg.set(&format!("both.{text}"), [text]).unwrap();
        }
    }
    cfg.set("values.empty", "").unwrap();
    cfg.set("values.dots", ".inf .nan 1.5").unwrap();
    cfg.set("values.float", "1.5").unwrap();
    cfg.set("values.inf", ".inf").unwrap();
    check_round_trips(&cfg, &["a.yaml", "a.yml", "a.toml", "a.json"]);
}

#[test]
fn numbers_survive_every_format_that_holds_them() {
    let floats = [0.1 * 3.0, -0.0, 0.0, 1.0, 1e300, -1e-300, 5e-324, f64::MAX, 1e21, 123456789.125];
    let cfg = CfgNode::new()
        .with("f", floats)
        .and_then(|cfg| cfg.with("i", [i64::MIN, -1, 0, i64::MAX]))
        .and_then(|cfg| cfg.with("empty", Vec::<u8>::new()))
        .and_then(|cfg| cfg.with("lists", [vec![vec![1]], vec![]]))
        .and_then(|cfg| cfg.with("node", CfgNode::new()))
        .and_then(|cfg| cfg.with("nodes", [CfgNode::new(), yaml("{a: {b: []}}")]))
        .unwrap();
    check_round_trips(&cfg, &["a.yaml", "a.toml", "a.json"]);
    let cfg = cfg.with("u", u64::MAX).unwrap().with("null", ()).unwrap();
    check_round_trips(&cfg, &["a.yaml", "a.json"]);
    let cfg = cfg.with("odd", [f64::INFINITY, f64::NEG_INFINITY, f64::NAN]).unwrap();
    check_round_trips(&cfg, &["a.yaml"]);
    check_round_trips(&yaml("a: [.inf, -.inf, .nan]"), &["a.toml"]);
}

#[track_caller]
fn check_round_trips(cfg: &CfgNode, names: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for name in names {
        let file = dir.path().join(name);
        cfg.save(&file).unwrap();
        let loaded = CfgNode::load(&file).unwrap();
        assert_eq!(loaded, *cfg, "{name}: {}", std::fs::read_to_string(&file).unwrap());
    }
}

#[test]
fn the_order_of_keys_survives() {
    let dir = tempfile::tempdir().unwrap();
    let cfg = yaml("{z: 1, a: 2, M: [3], b: 4}");
    for name in ["a.yaml", "a.toml", "a.json"] {
        let file = dir.path().join(name);
        cfg.save(&file).unwrap();
        let loaded = CfgNode::load(&file).unwrap();
        assert_eq!(loaded.keys().collect::<Vec<_>>(), ["z", "a", "M", "b"], "{name}");
    }
}

#[test]
fn what_a_format_cannot_hold_is_an_error_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let save =
        |text: &str, name: &str| yaml(text).save(dir.path().join(name)).unwrap_err().to_string();
    assert_eq!(save("a: [1, {b: null}]", "a.toml"), "a.1.b: TOML cannot hold null");
    assert_eq!(
        save("a: 18446744073709551615", "a.toml"),
        "a: TOML cannot hold the number 18446744073709551615"
    );
    assert_eq!(save("a: {b: .inf}", "a.json"), "a.b: JSON cannot hold the number inf");
    assert_eq!(save("a: .nan", "a.json"), "a: JSON cannot hold the number NaN");
}

#[test]
fn toml_is_written_to_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.toml");
    yaml("{lr: 0.1, m: {layers: [{n: 1}], opt: {name: adam, 'a b': 1}}, z: [1, 2]}")
        .save(&file)
        .unwrap();
    let expected = "lr = 0.1\nz = [1, 2]\n\n[m]\nlayers = [{ n = 1 }]\n\n\
                    [m.opt]\nname = \"adam\"\n\"a b\" = 1\n";
    assert_eq!(std::fs::read_to_string(file).unwrap(), expected);
}

#[test]
fn a_tag_of_python_is_answered_with_what_to_write() {
    for (text, instead) in [
        ("a: !!python/tuple [1, 2]", "without it the value is a list"),
        ("a: !!python/name:os.system", "save plain values"),
    ] {
        let error = CfgNode::from_yaml_str(text).unwrap_err().to_string();
        assert!(error.contains("python/") && error.contains(instead), "{error}");
    }
    let error = CfgNode::from_yaml_str("a: !other 1").unwrap_err().to_string();
    assert!(!error.contains("plain values"), "{error}");
}

#[test]
fn a_whole_configuration_is_made_of_one_value() {
    #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
    struct Model {
        lr: f64,
        layers: Vec<u32>,
    }
    let model = Model { lr: 0.1, layers: vec![64, 128] };
    let cfg = CfgNode::from_value(&model).unwrap();
    assert_eq!(cfg.extract::<Model>().unwrap(), model);
    assert_eq!(cfg, CfgNode::from_yaml_str("{lr: 0.1, layers: [64, 128]}").unwrap());
    assert_eq!(CfgNode::from_value(&cfg).unwrap(), cfg);
    for (error, found) in [
        (CfgNode::from_value(3).unwrap_err(), "the number 3"),
        (CfgNode::from_value([1, 2]).unwrap_err(), "a list"),
        (CfgNode::from_value(()).unwrap_err(), "null"),
    ] {
        assert!(matches!(error, CfgError::NotANode { .. }), "{error}");
        assert!(error.to_string().contains(found), "{error}");
    }
    let indexed = std::collections::BTreeMap::from([("a[1]", 1)]);
    let error = CfgNode::from_value(indexed).unwrap_err();
    assert!(matches!(error, CfgError::Key { .. }), "{error}");
}
