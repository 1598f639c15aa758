//! Input that means harm, or comes from a broken disk. Whatever it is, it ends in an error.

use std::fs;

use gangline_config::CfgError;
use gangline_config::CfgNode;
use serde::Serialize;

const DEEP: usize = 100_000;

fn yaml(text: &str) -> CfgNode {
    CfgNode::from_yaml_str(text).unwrap()
}

/// Loads `text` from a file of every format, and as a value.
fn all_ways(text: &str) -> Vec<Result<CfgNode, CfgError>> {
    let dir = tempfile::tempdir().unwrap();
    let mut ways: Vec<_> = ["a.yaml", "a.toml", "a.json"]
        .iter()
        .map(|name| {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            CfgNode::load(&file)
        })
        .collect();
    ways.push(CfgNode::from_yaml_str(text));
    ways.push(yaml("a: 0").with_env_pairs("APP", [("APP__A", text)]));
    let mut cfg = CfgNode::new();
    ways.push(cfg.apply(&format!("a={text}")).map(|()| cfg));
    ways
}

#[test]
fn deep_nesting_is_refused() {
    let mut texts = Vec::new();
    for (open, close) in
        [("[", "]"), ("{\"a\":", "}"), ("{a: ", "}"), ("- ", ""), ("[{a: ", "}]"), ("- a: ", "")]
    {
        for depth in [1_000, DEEP] {
            texts.push(open.repeat(depth));
            texts.push(open.repeat(depth) + "1" + &close.repeat(depth));
        }
    }
    for depth in [1_000, DEEP] {
        texts.push(format!("a = {}", "[".repeat(depth)));
        texts.push(format!("a = {}", "{a = ".repeat(depth)));
        texts.push(format!("a{} = 1", ".a".repeat(depth)));
        texts.push(format!("[a{}]", ".a".repeat(depth)));
        texts.push(format!("{{\"a\": {}", "[".repeat(depth)));
        texts.push("? ".repeat(depth));
        texts.push((0..1_000.min(depth)).map(|i| " ".repeat(i) + "a:\n").collect());
        texts.push("!a ".repeat(depth));
        texts.push("&a ".repeat(depth));
    }
    for text in texts {
        for result in all_ways(&text) {
            let head = &text[..text.len().min(30)];
            // A dotted key of TOML is a plain text in YAML, and the other way round.
            let plain =
                head.starts_with("a.") || head.starts_with("[a.") || head.starts_with("a =");
            assert!(result.is_err() || plain, "{head}");
        }
    }
}

#[test]
fn what_can_be_set_can_be_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = |n: usize| vec!["k"; n].join(".");
    let mut nested = CfgNode::new().with(&path(64), 1).unwrap();
    nested.apply(&format!("l={}1{}", "[".repeat(63), "]".repeat(63))).unwrap();
    for name in ["a.yaml", "a.toml", "a.json"] {
        let file = dir.path().join(name);
        nested.save(&file).unwrap();
        assert_eq!(CfgNode::load(&file).unwrap(), nested, "{name}");
    }
    assert!(nested.apply(&format!("l={}1{}", "[".repeat(64), "]".repeat(64))).is_err());
    let error = CfgNode::new().with(&path(65), 1).unwrap_err();
    assert!(matches!(error, CfgError::TooDeep { .. }), "{error}");
}

#[test]
fn ten_thousand_levels_cannot_be_set() {
    let mut cfg = CfgNode::new();
    let mut refused = 0;
    for depth in 1..200 {
        let inner = cfg.clone();
        match cfg.set("a", &inner) {
            Ok(()) => assert_eq!(cfg.get::<CfgNode>("a").unwrap(), inner, "{depth}"),
            Err(error) => {
                assert!(matches!(error, CfgError::TooDeep { .. }), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 100);
    let path = vec!["a"; 10_000].join(".");
    assert!(matches!(CfgNode::new().with(&path, 1), Err(CfgError::TooDeep { .. })));
    assert!(matches!(CfgNode::new().apply(&(path + "=1")), Err(CfgError::TooDeep { .. })));
}

#[test]
fn a_deep_value_of_the_caller_is_refused() {
    struct Endless;
    impl Serialize for Endless {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq([Endless])
        }
    }
    let error = CfgNode::new().with("a.b", Endless).unwrap_err();
    let CfgError::TooDeep { path, .. } = &error else { panic!("{error}") };
    assert!(path.starts_with("a.b.0.0.0"), "{path}");

    #[derive(Serialize)]
    enum Nested {
        Pair(Box<Nested>, u8),
        Fields { inner: Box<Nested> },
        One(Box<Nested>),
        End,
    }
    let nested = (0..500).fold(Nested::End, |inner, i| match i % 3 {
        0 => Nested::Pair(Box::new(inner), 1),
        1 => Nested::Fields { inner: Box::new(inner) },
        _ => Nested::One(Box::new(inner)),
    });
    assert!(matches!(CfgNode::new().with("a", nested), Err(CfgError::TooDeep { .. })));
}

#[test]
fn alias_bombs_are_refused() {
    let laughs = |levels: usize, width: usize| {
        let mut text = String::from("a0: &a0 [lol, lol]\n");
        for i in 1..levels {
            let aliases = vec![format!("*a{}", i - 1); width].join(", ");
            text += &format!("a{i}: &a{i} [{aliases}]\n");
        }
        text
    };
    let quadratic =
        format!("a: &a [{}]\nb: [{}]", vec!["x"; 5_000].join(", "), vec!["*a"; 5_000].join(", "));
    let long_text =
        format!("a: &a {}\nb: [{}]", "x".repeat(500_000), vec!["*a"; 90_000].join(", "));
    let merges = format!(
        "a: &a {{{}}}\n{}",
        (0..2_000).map(|i| format!("k{i}: 1")).collect::<Vec<_>>().join(", "),
        (0..2_000).map(|i| format!("m{i}: {{<<: *a}}\n")).collect::<String>()
    );
    for text in [laughs(10, 9), laughs(60, 2), quadratic, long_text, merges] {
        let error = CfgNode::from_yaml_str(&text).unwrap_err();
        assert!(matches!(error, CfgError::Parse { .. }), "{error}");
    }
    // Ordinary use of aliases is not a bomb.
    let reuse: String = (0..200).map(|i| format!("m{i}: {{<<: *a, n: {i}}}\n")).collect();
    let cfg = yaml(&format!("a: &a {{x: 1, y: [1, 2]}}\n{reuse}"));
    assert_eq!(cfg.get::<u32>("m199.y.1").unwrap(), 2);
}

/// Takes seconds, and would take hours if any step took a time that grows with the square of the
/// size.
#[test]
fn large_texts_of_every_shape_are_read() {
    let fill = |unit: &str| unit.repeat((1 << 16) / unit.len());
    let yaml: Vec<String> = vec![
        format!("a: [{}1]", fill("1,")),
        fill("- 1\n"),
        fill("- &a x\n"),
        fill("- {a: [b, 'c', \"d\"]}\n"),
        format!("a: \"{}\"", fill("\\n")),
        format!("a: {}", fill("b c ")),
        format!("a: |\n{}", fill(" x\n")),
        fill("# c\n"),
        fill("\n"),
        format!("{}: 1", fill("k")),
        (0..5_000).map(|i| format!("k{i}: v\n")).collect(),
        fill("a: "),
        fill("! "),
        fill("*a "),
        fill("--- "),
        fill("%YAML 1.2\n"),
    ];
    let json: Vec<String> = vec![
        format!("{{\"a\": [{}1]}}", fill("1,")),
        format!("{{\"a\": [{}1]}}", fill("\"9\",")),
        format!("{{{}\"z\": 1}}", (0..5_000).map(|i| format!("\"k{i}\":1,")).collect::<String>()),
    ];
    let toml: Vec<String> = vec![
        format!("a = [{}1]", fill("1,")),
        (0..5_000).map(|i| format!("k{i} = 1\n")).collect(),
        (0..5_000).map(|i| format!("[t.k{i}]\n")).collect(),
        (0..5_000).map(|_| "[[t]]\nx = 1\n".to_owned()).collect(),
        format!("a = [{}99999999999999999999]", fill("1,")),
    ];
    let readers = [CfgNode::from_yaml_str, CfgNode::from_json_str, CfgNode::from_toml_str];
    for (texts, read) in [yaml, json, toml].into_iter().zip(readers) {
        for text in texts {
            let too_large = matches!(read(&text), Err(CfgError::TooLarge { .. }));
            assert!(!too_large, "{} bytes", text.len());
        }
    }
}

#[test]
fn an_alias_to_itself_is_refused() {
    for text in ["a: &a [*a]", "a: &a {b: *a}", "a: &a {<<: *a}", "a: *nowhere"] {
        assert!(CfgNode::from_yaml_str(text).is_err(), "{text}");
    }
}

#[test]
fn tags_never_run_anything() {
    let dir = tempfile::tempdir().unwrap();
    let marker = dir.path().join("ran");
    for text in [
        format!("a: !!python/object/apply:os.system ['touch {}']", marker.display()),
        "a: !!python/tuple [1, 2]".to_owned(),
        "a: !!python/name:os.system".to_owned(),
        "a: !include other.yaml".to_owned(),
        "a: !custom {x: 1}".to_owned(),
        "!custom\na: 1".to_owned(),
    ] {
        let error = CfgNode::from_yaml_str(&text).unwrap_err();
        assert!(matches!(error, CfgError::Parse { .. }), "{text}: {error}");
        assert!(error.to_string().contains("tag"), "{text}: {error}");
    }
    assert!(!marker.exists());
}

#[test]
fn several_documents_are_refused() {
    let error = CfgNode::from_yaml_str("a: 1\n---\na: 2").unwrap_err();
    assert!(matches!(error, CfgError::Parse { .. }), "{error}");
}

#[test]
fn large_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.yaml", "a.toml", "a.json"] {
        let file = dir.path().join(name);
        fs::write(&file, " ".repeat((1 << 20) + 1)).unwrap();
        let error = CfgNode::load(&file).unwrap_err();
        assert!(matches!(error, CfgError::TooLarge { limit: 1_048_576, .. }), "{error}");
        assert!(error.to_string().contains(name), "{error}");
        // A terabyte of nothing is not read.
        fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(CfgNode::load(&file), Err(CfgError::TooLarge { .. })));
        fs::write(&file, " ".repeat(1 << 20)).unwrap();
        assert!(CfgNode::load(&file).is_ok());
    }
    let large = format!("a: {}", "x".repeat(1 << 20));
    assert!(matches!(CfgNode::from_yaml_str(&large), Err(CfgError::TooLarge { .. })));
    assert!(matches!(
        CfgNode::new().apply(&large.replacen(": ", "=xx", 1)),
        Err(CfgError::TooLarge { .. })
    ));
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_opened() {
    let dir = tempfile::tempdir().unwrap();
    let special = |target: &str, name: &str| {
        let link = dir.path().join(name);
        std::os::unix::fs::symlink(target, &link).unwrap();
        link
    };
    let directory = dir.path().join("dir.yaml");
    fs::create_dir(&directory).unwrap();
    let pipe = dir.path().join("pipe.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let paths =
        [directory, pipe, special("/dev/zero", "zero.yaml"), special("/dev/null", "null.json")];
    for path in paths {
        let error = CfgNode::load(&path).unwrap_err();
        assert!(matches!(error, CfgError::NotAFile { .. }), "{error}");
        let error = yaml("a: 1").save(&path).unwrap_err();
        assert!(matches!(error, CfgError::NotAFile { .. }), "{error}");
    }
}

#[test]
fn bytes_that_are_no_text() {
    let dir = tempfile::tempdir().unwrap();
    for bytes in [&b"a: \xff\xfe"[..], b"\xff\xfea\0:\0 \x001\0", b"a: \xed\xa0\x80"] {
        let file = dir.path().join("a.yaml");
        fs::write(&file, bytes).unwrap();
        let error = CfgNode::load(&file).unwrap_err();
        assert!(matches!(error, CfgError::Read { .. }), "{error}");
    }
    for text in ["a: x\0y", "a\0: 1", "\0", "a: \"x\0y\""] {
        assert!(CfgNode::from_yaml_str(text).is_err(), "{text:?}");
    }
    assert!(CfgNode::from_toml_str("a = \"x\0y\"").is_err());
    assert!(CfgNode::from_json_str("{\"a\": \"x\0y\"}").is_err());
}

#[test]
fn error_texts_hold_no_control_characters_of_keys() {
    let cfg = CfgNode::new().with("a\u{1b}[31m", "x").unwrap();
    let error = cfg.get::<u32>("a\u{1b}[31m").unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
    let error = cfg.get::<u32>("a\u{1b}[31m.b").unwrap_err().to_string();
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

/// A thread that a caller gave little stack, in an unoptimised build.
#[test]
fn the_deepest_trees_need_little_stack() {
    let run = || {
        let dir = tempfile::tempdir().unwrap();
        let mut lists = CfgNode::new();
        lists.apply(&format!("l={}1{}", "[".repeat(63), "]".repeat(63))).unwrap();
        let nodes = CfgNode::new().with(&vec!["k"; 64].join("."), 1).unwrap();
        for cfg in [lists, nodes] {
            for name in ["a.yaml", "a.toml", "a.json"] {
                let (file, top) = (dir.path().join(name), dir.path().join("top.yaml"));
                cfg.save(&file).unwrap();
                let mut loaded = CfgNode::load(&file).unwrap();
                assert_eq!(loaded, cfg);
                cfg.save_diff(&top, &file).unwrap();
                loaded.merge(&cfg).unwrap();
                assert_eq!(loaded.extract::<CfgNode>().unwrap(), cfg);
            }
        }
        for text in ["[", "{\"a\":", "- ", "- a: ", "a = [", "a = {a = "] {
            for result in all_ways(&text.repeat(DEEP)) {
                drop(result);
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(run).unwrap();
    thread.join().unwrap();
}
