//! Configurations with dots in their keys, and with integers of more than 64 bits.

use std::collections::{BTreeMap, HashMap};
use std::fs;

use gangline_config::CfgError;
use gangline_config::CfgNode;

const MODELS: [(&str, &str); 3] = [
    ("models.yaml", "models:\n  regnetx_1.6gf: {lr: 0.1, sizes: [1, 2]}\n  v1: {1.5: old}\n"),
    (
        "models.toml",
        "[models.\"regnetx_1.6gf\"]\nlr = 0.1\nsizes = [1, 2]\n[models.v1]\n'1.5' = 'old'\n",
    ),
    (
        "models.json",
        r#"{"models": {"regnetx_1.6gf": {"lr": 0.1, "sizes": [1, 2]}, "v1": {"1.5": "old"}}}"#,
    ),
];

#[test]
fn files_with_dots_in_their_keys_are_loaded_and_saved() {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in MODELS {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        let cfg = CfgNode::load(&file).unwrap();
        assert_eq!(cfg.get::<f64>("models.\"regnetx_1.6gf\".lr").unwrap(), 0.1);
        assert_eq!(cfg.get::<u8>("models.\"regnetx_1.6gf\".sizes.1").unwrap(), 2);
        assert_eq!(cfg.get::<String>("models.v1.\"1.5\"").unwrap(), "old");
        assert!(cfg.contains("models.\"regnetx_1.6gf\"") && !cfg.contains("models.regnetx_1.6gf"));
        for (other, _) in MODELS {
            let saved = folder.path().join(format!("saved-{other}"));
            cfg.save(&saved).unwrap();
            assert_eq!(CfgNode::load(&saved).unwrap(), cfg, "{other}");
        }
    }
}

#[test]
fn every_key_with_a_dot_can_be_set_read_and_removed() {
    for (path, key) in [
        ("\"a.b\"", "a.b"),
        ("\".\"", "."),
        ("\"..\"", ".."),
        ("\"a.\"", "a."),
        ("\".a\"", ".a"),
        ("\"1.6\"", "1.6"),
        ("\"a\\\".b\"", "a\".b"),
        ("\"a\\\\.b\"", "a\\.b"),
        ("\"a = b.c\"", "a = b.c"),
        ("\"plain\"", "plain"),
    ] {
        let mut cfg = CfgNode::new();
        cfg.set(&format!("m.{path}.x"), 1).unwrap();
        assert_eq!(
            cfg,
            CfgNode::from_value(BTreeMap::from([(
                "m",
                BTreeMap::from([(key, HashMap::from([("x", 1)]))])
            )]))
            .unwrap()
        );
        cfg.apply(&format!("m.{path}.x = 2")).unwrap();
        assert_eq!(cfg.get::<u8>(&format!("m.{path}.x")).unwrap(), 2, "{key}");
        assert!(cfg.remove(&format!("m.{path}")).unwrap());
        assert_eq!(cfg.get::<CfgNode>("m").unwrap(), CfgNode::new());
    }
}

#[test]
fn quotes_that_are_not_around_a_segment_are_ordinary_characters() {
    let mut cfg = CfgNode::new();
    for (path, keys) in
        [("\"a.b", ["\"a", "b"]), ("a\".b\"", ["a\"", "b\""]), ("\"a\"b.c", ["\"a\"b", "c"])]
    {
        cfg.apply(&format!("{path}=1")).unwrap();
        let inner: HashMap<String, u8> =
            cfg.extract::<HashMap<String, _>>().unwrap().remove(keys[0]).unwrap();
        assert_eq!(inner, HashMap::from([(keys[1].to_owned(), 1)]));
        assert!(cfg.remove(path).unwrap());
        cfg = CfgNode::new();
    }
    assert!(cfg.set("\"\"", 1).is_err() && cfg.is_empty());
}

#[test]
fn errors_write_keys_with_dots_as_paths_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("models.yaml");
    fs::write(&file, "models: {regnetx_1.6gf: {lr: fast, net: {v1.0: [1, x]}}}").unwrap();
    let cfg = CfgNode::load(&file).unwrap();
    let shown = file.display();
    let error = cfg.get::<f64>("models.\"regnetx_1.6gf\".lr").unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("models.\"regnetx_1.6gf\".lr in {shown}: invalid type")),
        "{error}"
    );
    type Nets = HashMap<String, HashMap<String, HashMap<String, Vec<u8>>>>;
    let mut nets = cfg.clone();
    nets.remove("models.\"regnetx_1.6gf\".lr").unwrap();
    let error = nets.get::<Nets>("models").unwrap_err().to_string();
    let expected = format!("models.\"regnetx_1.6gf\".net.\"v1.0\".1 in {shown}: invalid type");
    assert!(error.starts_with(&expected), "{error}");
    let error = cfg.get::<f64>("models.\"regnetx_1.6gf\".lr.x").unwrap_err().to_string();
    assert!(error.contains("leads through \"models.\\\"regnetx_1.6gf\\\".lr\""), "{error}");

    let near = |path: &str| match cfg.get::<CfgNode>(path).unwrap_err() {
        CfgError::Missing { near, .. } => near,
        error => panic!("{error}"),
    };
    let model = Some("models.\"regnetx_1.6gf\"".to_owned());
    assert_eq!(near("models.regnetx_1.6gf"), model, "the quotes are missing");
    assert_eq!(near("models.\"regnetx_1.5gf\""), model);
    assert_eq!(near("modles.\"regnetx_1.6gf\""), model);

    let null = cfg.with("models.\"regnetx_1.6gf\".lr", None::<f64>).unwrap();
    let error = null.save(folder.path().join("models.toml")).unwrap_err().to_string();
    assert!(error.starts_with("models.\"regnetx_1.6gf\".lr: TOML cannot hold null"), "{error}");
}

#[test]
fn variables_and_bases_reach_keys_with_dots() {
    let cfg = CfgNode::from_yaml_str(MODELS[0].1).unwrap();
    let pairs = [("APP__MODELS__REGNETX_1_6GF__LR", "0.5"), ("APP__MODELS__V1__1.5", "new")];
    let cfg = cfg.with_env_pairs("APP", pairs).unwrap();
    assert_eq!(cfg.get::<f64>("models.\"regnetx_1.6gf\".lr").unwrap(), 0.5);
    assert_eq!(cfg.get::<String>("models.v1.\"1.5\"").unwrap(), "new");
    let error = CfgNode::from_yaml_str("{a.b: 0, a_b: 0}").unwrap();
    let error = error.with_env_pairs("APP", [("APP__A_B", "1")]).unwrap_err();
    assert!(matches!(error, CfgError::EnvAmbiguous { paths, .. } if paths == ["\"a.b\"", "a_b"]));

    let folder = tempfile::tempdir().unwrap();
    let (base, top) = (folder.path().join("base.toml"), folder.path().join("top.json"));
    fs::write(&base, MODELS[1].1).unwrap();
    cfg.save_diff(&top, &base).unwrap();
    assert_eq!(CfgNode::load(&top).unwrap(), cfg);
    let mut less = cfg.clone();
    less.remove("models.v1.\"1.5\"").unwrap();
    let error = less.save_diff(&top, &base).unwrap_err().to_string();
    assert!(error.contains("it has models.v1.\"1.5\", absent here"), "{error}");
}

#[test]
fn integers_of_up_to_128_bits_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        "1000000000000000019884624838656",
        "18446744073709551616",
        "-9223372036854775809",
        "170141183460469231731687303715884105727",
        "-170141183460469231731687303715884105728",
        "340282366920938463463374607431768211455",
    ] {
        let yaml =
            CfgNode::from_yaml_str(&format!("{{a: [1.5, {text}], b: {text}, c: 7}}")).unwrap();
        let json = format!("{{\"a\": [1.5, {text}],\n\"b\": {text}, \"c\": 7}}");
        let json = CfgNode::from_json_str(&json).unwrap();
        assert_eq!(yaml, json);
        assert!(json.to_yaml().unwrap().contains(&format!("b: {text}")));
        for name in ["a.yaml", "a.json"] {
            let file = folder.path().join(name);
            json.save(&file).unwrap();
            assert_eq!(CfgNode::load(&file).unwrap(), json, "{name}");
        }
        let error = json.save(folder.path().join("a.toml")).unwrap_err().to_string();
        assert!(error.contains(&format!("TOML cannot hold the number {text}")), "{error}");
        match text.parse::<i128>() {
            Ok(number) => {
                assert_eq!(json.get::<i128>("b").unwrap(), number);
                assert_eq!(
                    CfgNode::new().with("b", number).unwrap().get::<i128>("b").unwrap(),
                    number
                );
            }
            Err(_) => assert_eq!(json.get::<u128>("b").unwrap(), u128::MAX),
        }
        assert_eq!(json.get::<f64>("b").unwrap(), text.parse::<f64>().unwrap());
        assert!(json.get::<u64>("b").is_err() && json.get::<i64>("b").is_err());
        let mut entered = CfgNode::new();
        entered.apply(&format!("b={text}")).unwrap();
        assert_eq!(entered.get::<f64>("b").unwrap(), json.get::<f64>("b").unwrap());
    }
}

#[test]
fn numbers_of_json_are_told_apart_by_their_place() {
    let text = "{\"1\": \"18446744073709551616\", \"e\": [true, false, null, -1.5e3, 18446744073709551616],\n\
                \"\\\"2\": {\"x\": [[], 1E2, {}, -18446744073709551616]}, \"z\": 36893488147419103232.0}";
    let cfg = CfgNode::from_json_str(text).unwrap();
    assert_eq!(cfg.get::<String>("1").unwrap(), "18446744073709551616");
    assert_eq!(cfg.get::<f64>("e.3").unwrap(), -1500.0);
    assert_eq!(cfg.get::<i128>("e.4").unwrap(), 1 << 64);
    assert_eq!(cfg.get::<i128>("\"\\\"2\".x.3").unwrap(), -(1 << 64));
    assert_eq!(cfg.get::<f64>("z").unwrap(), 36_893_488_147_419_103_232.0);
    assert!(cfg.get::<i128>("z").is_err(), "a number with a point is a float");
}
