//! Files: `load`, `__BASE__`, `save` and `save_diff`.

use std::fs;
use std::path::{Path, PathBuf};

use gangline_config::CfgError;
use gangline_config::CfgNode;
use tempfile::TempDir;

fn yaml(text: &str) -> CfgNode {
    CfgNode::from_yaml_str(text).unwrap()
}

/// A directory with files.
fn dir(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let file = dir.path().join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    dir
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn ae18_a_child_overrides_its_base() {
    let dir = dir(&[
        ("base.yaml", "M: {a: 1, b: {x: 1, y: 2}, l: [1, 2, 3], n: 5}\nK: base\n"),
        (
            "sub/child.yaml",
            "__BASE__: ../base.yaml\nM: {b: {y: 20, z: 30}, l: [9], n: {deep: 1}}\nNEW: 1\n",
        ),
    ]);
    let expected = "{M: {a: 1, b: {x: 1, y: 20, z: 30}, l: [9], n: {deep: 1}}, K: base, NEW: 1}";
    assert_eq!(CfgNode::load(dir.path().join("sub/child.yaml")).unwrap(), yaml(expected));
}

#[test]
fn ae19_keys_come_from_the_right_file() {
    let dir = dir(&[
        (
            "example-A.yaml",
            "__BASE__: ./folder/example-B.yaml\nA: from A\nB: {D: from A}\nC: from A\n",
        ),
        ("folder/example-B.yaml", "A: from B\nB: {C: from B, D: from B}\nE: from B\n"),
    ]);
    let cfg = CfgNode::load(dir.path().join("example-A.yaml")).unwrap();
    let expected = "{A: from A, B: {C: from B, D: from A}, E: from B, C: from A}";
    assert_eq!(cfg, yaml(expected));
    assert!(!cfg.contains("__BASE__"));
}

#[test]
fn ae20_save_diff_writes_only_the_difference() {
    let dir = dir(&[("base.yaml", "M: {a: 1, b: {x: 1, y: 2}, l: [1, 2, 3], n: 5}\nK: base\n")]);
    fs::create_dir(dir.path().join("sub")).unwrap();
    let cfg = yaml("{M: {a: 1, b: {x: 1, y: 3}, l: [1, 2, 3], n: 5}, K: base, Q: 4}");
    let (top, base) = (dir.path().join("sub/top.yaml"), dir.path().join("base.yaml"));
    cfg.save_diff(&top, &base).unwrap();

    let written = fs::read_to_string(&top).unwrap();
    assert_eq!(written, "__BASE__: ../base.yaml\nM:\n  b:\n    \"y\": 3\nQ: 4\n");
    assert_eq!(CfgNode::load(&top).unwrap(), cfg);
}

#[track_caller]
fn check_loop(dir: &TempDir, start: &str, chain: &[&str]) {
    let start = dir.path().join(start);
    let error = CfgNode::load(start).unwrap_err();
    let text = error.to_string();
    let CfgError::BaseLoop { chain: found, .. } = error else { panic!("{text}") };
    let found: Vec<_> =
        found.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(found, chain);
    assert!(text.contains(" -> "), "{text}");
}

#[test]
fn ae21_every_loop_of_bases_is_found() {
    let dir = dir(&[
        ("self.yaml", "__BASE__: self.yaml"),
        ("dotted.yaml", "__BASE__: ./sub/../dotted.yaml"),
        ("sub/keep", ""),
        ("x.yaml", "__BASE__: y.toml"),
        ("y.toml", "__BASE__ = 'x.yaml'"),
        ("a.yaml", "__BASE__: b.yaml"),
        ("b.yaml", "__BASE__: c.json"),
        ("c.json", r#"{"__BASE__": "b.yaml"}"#),
    ]);
    check_loop(&dir, "self.yaml", &["self.yaml", "self.yaml"]);
    check_loop(&dir, "dotted.yaml", &["dotted.yaml", "dotted.yaml"]);
    check_loop(&dir, "x.yaml", &["x.yaml", "y.toml", "x.yaml"]);
    check_loop(&dir, "a.yaml", &["a.yaml", "b.yaml", "c.json", "b.yaml"]);
}

#[cfg(unix)]
#[test]
fn a_chain_of_bases_has_an_end() {
    let dir = tempfile::tempdir().unwrap();
    let file = |n: usize| dir.path().join(format!("{n}.yaml"));
    for n in 0..2_000 {
        fs::write(file(n), format!("__BASE__: {}.yaml\nkey{n}: {n}\n", n + 1)).unwrap();
    }
    fs::write(file(64), "last: 64\n").unwrap();
    let error = CfgNode::load(file(0)).unwrap_err();
    assert!(matches!(error, CfgError::BaseChain { most: 64, .. }), "{error}");
    assert!(error.to_string().starts_with(&file(0).display().to_string()), "{error}");
    let cfg = CfgNode::load(file(1)).unwrap();
    assert_eq!((cfg.keys().count(), cfg.get::<u32>("last").unwrap()), (64, 64));
    fs::write(file(64), "__BASE__: 65.yaml\n").unwrap();
    let error = CfgNode::load(file(0)).unwrap_err();
    assert!(matches!(error, CfgError::BaseChain { .. }), "{error}");
}

#[test]
fn a_loop_through_a_link_is_found() {
    let dir = dir(&[("a.yaml", "__BASE__: link.yaml")]);
    std::os::unix::fs::symlink(dir.path().join("a.yaml"), dir.path().join("link.yaml")).unwrap();
    check_loop(&dir, "a.yaml", &["a.yaml", "link.yaml"]);
    check_loop(&dir, "link.yaml", &["link.yaml", "link.yaml"]);
}

#[test]
fn ae21_a_missing_base_names_file_and_base() {
    let dir = dir(&[("top.yaml", "__BASE__: nope/base.yaml"), ("empty.yaml", "__BASE__: ''")]);
    let top = dir.path().join("top.yaml");
    let expected = format!("{}: the __BASE__ nope/base.yaml does not exist", top.display());
    assert_eq!(CfgNode::load(&top).unwrap_err().to_string(), expected);
    let error = CfgNode::load(dir.path().join("empty.yaml")).unwrap_err();
    assert!(matches!(error, CfgError::BaseMissing { .. }), "{error}");
}

#[test]
fn a_base_that_is_no_text_is_an_error() {
    for base in ["3", "[a.yaml, b.yaml]", "null", "{a: 1}"] {
        let dir = dir(&[("top.yaml", &format!("__BASE__: {base}"))]);
        let error = CfgNode::load(dir.path().join("top.yaml")).unwrap_err();
        assert!(matches!(error, CfgError::BaseNotText { .. }), "{error}");
    }
}

#[test]
fn a_base_is_looked_up_beside_the_file_first() {
    let dir = dir(&[
        ("Cargo.toml", "package = 'beside'"),
        ("beside.yaml", "__BASE__: Cargo.toml"),
        ("sub/cwd.yaml", "__BASE__: Cargo.toml"),
    ]);
    let cfg = CfgNode::load(dir.path().join("beside.yaml")).unwrap();
    assert_eq!(cfg, yaml("package: beside"));
    // Tests run in the directory of the package's own Cargo.toml.
    let cfg = CfgNode::load(dir.path().join("sub/cwd.yaml")).unwrap();
    assert_eq!(cfg.get::<String>("package.name").unwrap(), "gangline-config");
}

#[test]
fn an_absolute_base() {
    let dir = dir(&[("base.yaml", "a: 1"), ("sub/keep", "")]);
    let base = dir.path().join("base.yaml");
    let top = dir.path().join("sub/top.yaml");
    fs::write(&top, format!("__BASE__: {}\nb: 2", base.display())).unwrap();
    assert_eq!(CfgNode::load(&top).unwrap(), yaml("{a: 1, b: 2}"));
}

#[test]
fn a_long_chain_of_mixed_formats() {
    let dir = tempfile::tempdir().unwrap();
    let name = |i: usize| format!("{i}.{}", ["yaml", "yml", "toml", "json"][i % 4]);
    fs::write(dir.path().join(name(0)), "depth: 0\nk0: 1").unwrap();
    for i in 1..64 {
        let (key, base) = (format!("k{i}"), name(i - 1));
        let text = match i % 4 {
            2 => format!("__BASE__ = '{base}'\ndepth = {i}\n{key} = 1"),
            3 => format!(r#"{{"__BASE__": "{base}", "depth": {i}, "{key}": 1}}"#),
            _ => format!("__BASE__: {base}\ndepth: {i}\n{key}: 1"),
        };
        fs::write(dir.path().join(name(i)), text).unwrap();
    }
    let cfg = CfgNode::load(dir.path().join(name(63))).unwrap();
    assert_eq!(cfg.get::<usize>("depth").unwrap(), 63);
    assert_eq!(cfg.keys().count(), 65);
}

#[test]
fn base_means_something_only_at_the_top_of_a_file() {
    let nested = yaml("a: {__BASE__: x.yaml}");
    assert_eq!(nested.get::<String>("a.__BASE__").unwrap(), "x.yaml");
    for error in [
        CfgNode::from_yaml_str("__BASE__: x.yaml").unwrap_err(),
        CfgNode::from_toml_str("__BASE__ = 'x.yaml'").unwrap_err(),
        CfgNode::from_json_str(r#"{"__BASE__": "x.yaml"}"#).unwrap_err(),
        CfgNode::new().with("__BASE__", 1).unwrap().save("never.yaml").unwrap_err(),
    ] {
        assert!(matches!(error, CfgError::BaseOutsideFile { .. }), "{error}");
    }
}

#[test]
fn a_type_error_names_the_file_the_value_came_from() {
    let dir = dir(&[
        ("base.yaml", "MODEL: {depth: deep, l: [1, x]}"),
        ("top.yaml", "__BASE__: base.yaml\nMODEL: {lr: oops}"),
    ]);
    let (top, base) = (dir.path().join("top.yaml"), dir.path().join("base.yaml"));
    let (top_name, base_name) = (top.display(), base.display());
    let mut cfg = CfgNode::load(&top).unwrap();
    let error = |result: Result<f64, CfgError>| result.unwrap_err().to_string();
    assert_eq!(
        error(cfg.get("MODEL.lr")),
        format!("MODEL.lr in {top_name}: invalid type: string \"oops\", expected f64")
    );
    assert_eq!(
        error(cfg.get("MODEL.depth")),
        format!("MODEL.depth in {base_name}: invalid type: string \"deep\", expected f64")
    );
    assert_eq!(
        cfg.get::<Vec<u8>>("MODEL.l").unwrap_err().to_string(),
        format!("MODEL.l.1 in {base_name}: invalid type: string \"x\", expected u8")
    );
    assert_eq!(
        error(cfg.get("MODEL.lr.x")),
        format!(
            "\"MODEL.lr.x\" leads through \"MODEL.lr\" in {top_name}, which is the text \"oops\""
        )
    );
    #[derive(Debug, serde::Deserialize)]
    struct Wants {
        #[expect(dead_code, reason = "only the error is looked at")]
        batch: u32,
    }
    assert_eq!(
        cfg.extract::<Wants>().unwrap_err().to_string(),
        format!("the configuration in {top_name}: missing field `batch`")
    );
    cfg.set("MODEL.lr", "again").unwrap();
    assert_eq!(
        error(cfg.get("MODEL.lr")),
        "MODEL.lr: invalid type: string \"again\", expected f64"
    );
}

#[test]
fn origins_are_no_part_of_the_value() {
    let dir = dir(&[("a.yaml", "a: 1"), ("b.yaml", "a: 1")]);
    let a = CfgNode::load(dir.path().join("a.yaml")).unwrap();
    let b = CfgNode::load(dir.path().join("b.yaml")).unwrap();
    assert_eq!(a, b);
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
    assert_eq!(serde_json::to_string(&a).unwrap(), r#"{"a":1}"#);
}

#[test]
fn the_extension_tells_the_format() {
    let dir = dir(&[("a.YAML", "a: 1"), ("b.Toml", "a = 1"), ("c.txt", "a: 1"), ("none", "a: 1")]);
    for name in ["a.YAML", "b.Toml"] {
        assert_eq!(CfgNode::load(dir.path().join(name)).unwrap(), yaml("a: 1"));
    }
    for name in ["c.txt", "none"] {
        let file = dir.path().join(name);
        assert!(matches!(CfgNode::load(&file), Err(CfgError::Extension { .. })));
        assert!(matches!(yaml("a: 1").save(&file), Err(CfgError::Extension { .. })));
        assert_eq!(fs::read_to_string(file).unwrap(), "a: 1");
    }
}

#[test]
fn a_file_that_is_not_there() {
    let error = CfgNode::load("no/such/file.yaml").unwrap_err();
    assert!(error.to_string().starts_with("no/such/file.yaml could not be read: "), "{error}");
    let CfgError::Read { source, .. } = error else { panic!("{error}") };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn save_replaces_the_file_and_leaves_nothing_else() {
    let dir = dir(&[("a.yaml", "old: 1")]);
    let file = dir.path().join("a.yaml");
    yaml("new: 2").save(&file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "new: 2\n");
    assert_eq!(names(dir.path()), ["a.yaml"]);
}

#[test]
fn a_save_that_fails_leaves_what_was_there() {
    let dir = dir(&[("a.toml", "old = 1"), ("d.yaml/keep", "")]);
    let file = dir.path().join("a.toml");
    assert!(yaml("a: [1, {b: null}]").save(&file).is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "old = 1");
    let error = yaml("a: 1").save(dir.path().join("d.yaml")).unwrap_err();
    assert!(matches!(error, CfgError::NotAFile { .. }), "{error}");
    let error = yaml("a: 1").save(dir.path().join("no/such/dir.yaml")).unwrap_err();
    assert!(matches!(error, CfgError::Write { .. }), "{error}");
    assert_eq!(names(dir.path()), ["a.toml", "d.yaml"]);
}

#[test]
fn save_takes_a_bare_name() {
    let name = format!("gangline-bare-{}.yaml", std::process::id());
    yaml("a: 1").save(&name).unwrap();
    let loaded = CfgNode::load(&name);
    fs::remove_file(&name).unwrap();
    assert_eq!(loaded.unwrap(), yaml("a: 1"));
}

#[cfg(unix)]
#[test]
fn save_follows_links_and_keeps_permissions() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = dir(&[("real.yaml", "a: 1")]);
    let (real, link) = (dir.path().join("real.yaml"), dir.path().join("link.yaml"));
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&real, &link).unwrap();
    yaml("a: 2").save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), "a: 2\n");
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
}

#[test]
fn save_diff_of_what_lacks_keys_of_the_base_is_an_error() {
    let dir = dir(&[("base.yaml", "{a: {x: 1, y: 2}, b: 1, c: {z: 1}}")]);
    let (top, base) = (dir.path().join("top.yaml"), dir.path().join("base.yaml"));
    let error = yaml("{a: {x: 1}, c: {}}").save_diff(&top, &base).unwrap_err();
    let text = error.to_string();
    let CfgError::BaseHasMore { paths, .. } = error else { panic!("{text}") };
    assert_eq!(paths, ["b", "a.y", "c.z"]);
    assert!(text.contains("it has b, a.y, c.z, absent here"), "{text}");
    assert!(!top.exists());
    // A node may become something else, and the other way round.
    let cfg = yaml("{a: null, b: {x: 1}, c: [1]}");
    cfg.save_diff(&top, &base).unwrap();
    assert_eq!(CfgNode::load(&top).unwrap(), cfg);
}

#[test]
fn save_diff_compares_with_what_the_base_loads_as() {
    let dir = dir(&[
        ("root.yaml", "{a: 1, b: 2}"),
        ("mid.toml", "__BASE__ = 'root.yaml'\nb = 3"),
        ("out/keep", ""),
    ]);
    let top = dir.path().join("out/top.json");
    let cfg = yaml("{a: 1, b: 3, c: 4}");
    cfg.save_diff(&top, dir.path().join("mid.toml")).unwrap();
    let written: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&top).unwrap()).unwrap();
    assert_eq!(written, serde_json::json!({"__BASE__": "../mid.toml", "c": 4}));
    assert_eq!(CfgNode::load(&top).unwrap(), cfg);
}

#[test]
fn save_diff_without_a_difference() {
    let dir = dir(&[("base.yaml", "a: {x: .nan}")]);
    let (top, base) = (dir.path().join("top.toml"), dir.path().join("base.yaml"));
    yaml("a: {x: .nan}").save_diff(&top, &base).unwrap();
    assert_eq!(fs::read_to_string(&top).unwrap(), "__BASE__ = \"base.yaml\"\n");
}

#[test]
fn save_diff_never_makes_a_file_its_own_base() {
    let dir = dir(&[("root.yaml", "a: 1"), ("base.yaml", "__BASE__: root.yaml")]);
    for name in ["base.yaml", "root.yaml", "./root.yaml"] {
        let (target, base) = (dir.path().join(name), dir.path().join("base.yaml"));
        let error = yaml("a: 2").save_diff(target, base).unwrap_err();
        assert!(matches!(error, CfgError::BaseLoop { .. }), "{error}");
    }
    assert_eq!(CfgNode::load(dir.path().join("base.yaml")).unwrap(), yaml("a: 1"));
}

#[test]
fn save_diff_needs_a_base() {
    let dir = dir(&[]);
    let (top, base) = (dir.path().join("top.yaml"), dir.path().join("base.yaml"));
    let error = yaml("a: 1").save_diff(&top, &base).unwrap_err();
    assert!(matches!(&error, CfgError::Read { file, .. } if *file == base), "{error}");
    assert!(!top.exists());
}

#[test]
fn save_diff_climbs_to_a_base_elsewhere() {
    let dir = dir(&[("a/b/base.yaml", "x: 1"), ("c/d/e/keep", "")]);
    let (top, base) = (dir.path().join("c/d/e/top.yaml"), dir.path().join("a/b/base.yaml"));
    yaml("x: 1").save_diff(&top, base).unwrap();
    assert_eq!(fs::read_to_string(&top).unwrap(), "__BASE__: ../../../a/b/base.yaml\n");
    assert_eq!(CfgNode::load(PathBuf::from(&top)).unwrap(), yaml("x: 1"));
}

#[test]
fn a_frozen_configuration_can_be_saved() {
    let dir = dir(&[]);
    let mut cfg = yaml("a: 1");
    cfg.freeze();
    cfg.save(dir.path().join("a.yaml")).unwrap();
    assert!(!CfgNode::load(dir.path().join("a.yaml")).unwrap().is_frozen());
}

/// A base is looked up beside the link, so that is where the way to it has to start.
#[cfg(unix)]
#[test]
fn a_difference_saved_through_a_link_finds_its_base() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("one")).unwrap();
    std::fs::create_dir(at("two")).unwrap();
    std::fs::write(at("two/real.yaml"), "").unwrap();
    std::os::unix::fs::symlink(at("two/real.yaml"), at("one/top.yaml")).unwrap();
    let base = CfgNode::new().with("a", 1).unwrap();
    base.save(at("two/base.yaml")).unwrap();
    let cfg = base.with("b", 2).unwrap();
    cfg.save_diff(at("one/top.yaml"), at("two/base.yaml")).unwrap();
    assert_eq!(CfgNode::load(at("one/top.yaml")).unwrap(), cfg);
}

#[test]
fn other_spellings_of_the_base_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("base.yaml"), "lr: 0.1").unwrap();
    for key in [
        "_BASE_",
        "__base__",
        "BASE",
        "base",
        "_base",
        "__BASE_",
        "BASE__",
        "__Base__",
        "___BASE___",
    ] {
        let texts = [
            ("top.yaml", format!("{key}: base.yaml\nx: 1\n")),
            ("top.toml", format!("x = 1\n{key} = \"base.yaml\"\n")),
            ("top.json", format!("{{\"{key}\": [\"base.yaml\"]}}")),
        ];
        for (name, text) in texts {
            let file = folder.path().join(name);
            fs::write(&file, text).unwrap();
            let error = CfgNode::load(&file).unwrap_err();
            let expected = format!(
                "{} has the top-level key {key:?}; write \"__BASE__\" if it names the file under this one, else rename it",
                file.display()
            );
            assert_eq!(error.to_string(), expected);
            // The error is the same if the file is the base of another.
            let over = folder.path().join("over.yaml");
            fs::write(&over, format!("__BASE__: {name}")).unwrap();
            assert_eq!(CfgNode::load(&over).unwrap_err().to_string(), expected);
        }
        let cfg = CfgNode::new().with(key, "base.yaml").unwrap();
        let saved = cfg.save(folder.path().join("saved.yaml")).unwrap_err();
        assert!(matches!(saved, CfgError::BaseMisspelt { .. }), "{saved}");
        assert!(CfgNode::from_yaml_str(&format!("{key}: x")).is_ok(), "no base is looked for");
    }
    let file = folder.path().join("other.yaml");
    for text in ["model: {_BASE_: x}", "_BASE_DIR: x", "database: x", "-BASE-: x", "base: {lr: 1}"]
    {
        fs::write(&file, text).unwrap();
        assert_eq!(CfgNode::load(&file).unwrap(), CfgNode::from_yaml_str(text).unwrap());
    }
}
