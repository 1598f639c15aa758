//! `with_env` and `apply`.

use std::ffi::OsString;
use std::process::Command;

use gangline_config::CfgError;
use gangline_config::CfgNode;

fn yaml(text: &str) -> CfgNode {
    CfgNode::from_yaml_str(text).unwrap()
}

#[track_caller]
fn check_env(cfg: &str, pairs: &[(&str, &str)], expected: &str) {
    let cfg = yaml(cfg).with_env_pairs("APP", pairs.iter().copied()).unwrap();
    assert_eq!(cfg, yaml(expected));
}

fn env_error(cfg: &str, pairs: &[(&str, &str)]) -> CfgError {
    yaml(cfg).with_env_pairs("APP", pairs.iter().copied()).unwrap_err()
}

#[test]
fn the_tree_keeps_its_case() {
    let tree = "{MODEL: {NUM_CLASSES: 1}, lr: 0.1}";
    check_env(tree, &[("APP__MODEL__NUM_CLASSES", "7")], "{MODEL: {NUM_CLASSES: 7}, lr: 0.1}");
    check_env(tree, &[("APP__model__num_classes", "7")], "{MODEL: {NUM_CLASSES: 7}, lr: 0.1}");
    check_env(tree, &[("APP__LR", "1")], "{MODEL: {NUM_CLASSES: 1}, lr: 1}");
}

#[test]
fn values_are_read_as_yaml() {
    for (text, value) in [
        ("true", "true"),
        ("[1, 2]", "[1, 2]"),
        ("{x: 1}", "{x: 1}"),
        ("\"007\"", "'007'"),
        ("007", "7"),
        ("1e3", "1000.0"),
        ("yes", "'yes'"),
        ("a b", "'a b'"),
        ("http://x:80/y", "'http://x:80/y'"),
        ("", "null"),
        ("~", "null"),
        (".inf", ".inf"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        check_env("{v: 0}", &[("APP__V", text)], &format!("{{v: {value}}}"));
        let mut cfg = CfgNode::new();
        cfg.apply(&format!("v={text}")).unwrap();
        assert_eq!(cfg, yaml(&format!("{{v: {value}}}")), "{text}");
    }
}

#[test]
fn a_text_that_yaml_would_cut_is_kept() {
    for text in [
        "abc #def",
        "#ff0000",
        "a: b # c",
        "[1, 2] # x",
        "'a' # b",
        "&x",
        "*x",
        "*.rs",
        "!tag v",
        "!",
        "@home",
        "--- a",
        "a\n---",
        "...",
        "one\ntwo",
        "-----BEGIN KEY-----\nMIIE/+x=\n-----END KEY-----",
        "-",
        "|",
    ] {
        let cfg = yaml("{v: 0}").with_env_pairs("APP", [("APP__V", text)]).unwrap();
        assert_eq!(cfg.get::<String>("v").unwrap(), text);
        let mut cfg = CfgNode::new();
        cfg.apply(&format!("v = {text} ")).unwrap();
        assert_eq!(cfg.get::<String>("v").unwrap(), text);
    }
    for text in [" a", "a ", "a\n", "\ta b\r\n"] {
        let cfg = yaml("{v: 0}").with_env_pairs("APP", [("APP__V", text)]).unwrap();
        assert_eq!(cfg.get::<String>("v").unwrap(), text);
    }
}

#[test]
fn only_names_with_the_prefix_count() {
    let pairs = [("APP", "1"), ("APP_A", "1"), ("app__A", "1"), ("XAPP__A", "1"), ("APPS__A", "1")];
    check_env("{a: 0}", &pairs, "{a: 0}");
}

#[test]
fn a_name_that_matches_no_key_is_an_error() {
    for name in ["APP__B", "APP__", "APP__A__B", "APP__A_", "APP____A"] {
        let error = env_error("{a: 0}", &[(name, "1")]);
        let expected =
            format!("the environment variable {name} matches no key of the configuration");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_name_that_matches_two_keys_is_an_error() {
    let error = env_error("{m: {lr: 0, LR: 0}}", &[("APP__M__LR", "1")]);
    let expected = "the environment variable APP__M__LR is ambiguous: it could set m.lr, m.LR";
    assert_eq!(error.to_string(), expected);
    let error = env_error("{a: {b: 0}, a__b: 0}", &[("APP__A__B", "1")]);
    assert!(matches!(error, CfgError::EnvAmbiguous { paths, .. } if paths == ["a.b", "a__b"]));
}

#[test]
fn two_names_for_one_key_are_an_error() {
    let error = env_error("{a: 0}", &[("APP__A", "1"), ("APP__a", "2")]);
    assert!(matches!(error, CfgError::EnvAmbiguous { names, .. } if names == ["APP__A", "APP__a"]));
}

#[test]
fn keys_with_underscores_and_hyphens() {
    let tree = "{a__b: {c_: 0}, learning-rate: 0, _x: 0, __y: 0}";
    let pairs =
        [("APP__A__B__C_", "1"), ("APP__LEARNING_RATE", "2"), ("APP___X", "3"), ("APP____Y", "4")];
    check_env(tree, &pairs, "{a__b: {c_: 1}, learning-rate: 2, _x: 3, __y: 4}");
}

#[test]
fn list_elements_are_reached_by_index() {
    check_env("{l: [{x: 1}, 2]}", &[("APP__L__0__X", "7"), ("APP__L__1", "8")], "{l: [{x: 7}, 8]}");
}

#[test]
fn a_node_comes_before_what_is_inside_it() {
    let pairs = [("APP__M__LR", "9"), ("APP__M", "{lr: 1, new: 2}")];
    check_env("{m: {lr: 0}}", &pairs, "{m: {lr: 9, new: 2}}");
}

#[test]
fn errors_name_the_variable() {
    let error = env_error("{a: 0}", &[("APP__A", "[1,")]).to_string();
    assert!(error.starts_with("the environment variable APP__A is not valid YAML: "), "{error}");
    let error = env_error("{a: 0}", &[("APP__A", "{'x[1]': 1}")]).to_string();
    let expected = "the key \"x[1]\" of a in the environment variable APP__A is refused: \
                    an index is a segment of its own, as in `layers.0`";
    assert_eq!(error, expected);

    let cfg = yaml("{a: 0}").with_env_pairs("APP", [("APP__A", "oops")]).unwrap();
    let expected = "a in the environment variable APP__A: \
                    invalid type: string \"oops\", expected u32";
    assert_eq!(cfg.get::<u32>("a").unwrap_err().to_string(), expected);
}

#[cfg(unix)]
#[test]
fn variables_that_are_no_unicode() {
    use std::os::unix::ffi::OsStringExt;
    let broken = || OsString::from_vec(b"\xff\xfe".to_vec());
    let named = |name: &[u8]| OsString::from_vec(name.to_vec());

    let ignored = [(named(b"OTHER\xff"), broken()), ("HOME".into(), broken())];
    assert_eq!(yaml("{a: 0}").with_env_pairs("APP", ignored).unwrap(), yaml("{a: 0}"));
    for pair in [("APP__A".into(), broken()), (named(b"APP__\xff"), "1".into())] {
        let error = yaml("{a: 0}").with_env_pairs("APP", [pair]).unwrap_err();
        assert!(matches!(error, CfgError::EnvNotUnicode { .. }), "{error}");
    }
}

/// Runs itself with other variables: a process cannot change its own without `unsafe`.
#[test]
fn with_env_reads_the_variables_of_the_process() {
    if std::env::var_os("CHILD_OF_WITH_ENV").is_some() {
        let cfg = yaml("{MODEL: {lr: 0.1}}").with_env("APP").unwrap();
        assert_eq!(cfg, yaml("{MODEL: {lr: 0.5}}"));
        assert!(yaml("{other: 0}").with_env("APP").is_err());
        return;
    }
    let name = "env::with_env_reads_the_variables_of_the_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture"])
        .env("CHILD_OF_WITH_ENV", "1")
        .env("APP__MODEL__LR", "0.5")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn apply_makes_absent_keys() {
    let mut cfg = CfgNode::new();
    for assignment in ["exponent=3", "a.b = text", "a.c=x=y", "a.l=[1]", "a.l.0=2", " sp = 1"] {
        cfg.apply(assignment).unwrap();
    }
    assert_eq!(cfg, yaml("{exponent: 3, a: {b: text, c: x=y, l: [2]}, sp: 1}"));
}

#[test]
fn apply_refuses_what_is_no_assignment() {
    let mut cfg = CfgNode::new();
    let error = |result: Result<(), CfgError>| result.unwrap_err().to_string();
    assert_eq!(error(cfg.apply("a")), "\"a\" is not an assignment: write `path=value`");
    assert_eq!(error(cfg.apply("")), "\"\" is not an assignment: write `path=value`");
    assert_eq!(error(cfg.apply("=1")), "\"\" is not a path: it is empty");
    assert_eq!(error(cfg.apply("a..b=1")), "\"a..b\" is not a path: a segment is empty");
    let unclosed = error(cfg.apply("a=[1"));
    assert!(unclosed.starts_with("the assignment to a is not valid YAML: "), "{unclosed}");
    assert!(cfg.is_empty());
}
