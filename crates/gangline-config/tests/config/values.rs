//! `CfgNode` in memory.

use std::collections::{BTreeMap, HashMap};

use gangline_config::CfgNode;
use gangline_config::{CfgError, PathProblem};
use serde::{Deserialize, Serialize};

pub(crate) fn yaml(text: &str) -> CfgNode {
    CfgNode::from_yaml_str(text).unwrap()
}

#[track_caller]
pub(crate) fn check_error<T: std::fmt::Debug>(result: Result<T, CfgError>, expected: &str) {
    assert_eq!(result.unwrap_err().to_string(), expected);
}

#[test]
fn public_types_are_send_and_sync() {
    fn check<T: Send + Sync + 'static>() {}
    check::<CfgNode>();
    check::<CfgError>();
}

#[test]
fn an_error_becomes_a_box_error() {
    fn hook(cfg: &CfgNode) -> Result<u32, Box<dyn std::error::Error>> {
        Ok(cfg.get("exponent")?)
    }
    assert!(hook(&CfgNode::new()).unwrap_err().to_string().contains("exponent"));
}

#[test]
fn set_makes_the_nodes_on_the_way() {
    let cfg = CfgNode::new().with("a.b.c", 1).unwrap().with("a.d", true).unwrap();
    assert_eq!(cfg, yaml("a: {b: {c: 1}, d: true}"));
}

#[test]
fn set_keeps_the_order_of_keys() {
    let mut cfg = CfgNode::new();
    for key in ["z", "a", "M", "b"] {
        cfg.set(key, 1).unwrap();
    }
    cfg.set("a", 2).unwrap();
    assert_eq!(cfg.keys().collect::<Vec<_>>(), ["z", "a", "M", "b"]);
}

#[test]
fn keys_are_case_sensitive() {
    let cfg = yaml("{Model: 1, MODEL: 2, model: 3}");
    assert_eq!(cfg.get::<u8>("MODEL").unwrap(), 2);
    assert!(!cfg.contains("mOdel"));
}

#[test]
fn a_key_that_is_misspelt_is_named() {
    let mut cfg = yaml("{data: {path: x}, modes: [1]}");
    cfg.apply("modle.lr=0.5").unwrap();
    let says = r#""model.lr" is missing from the configuration, which has "modle.lr""#;
    check_error(cfg.get::<f64>("model.lr"), says);
    let says = r#""Data" is missing from the configuration, which has "data""#;
    check_error(cfg.get::<CfgNode>("Data"), says);
    check_error(cfg.get::<u8>("momentum"), "\"momentum\" is missing from the configuration");
}

#[test]
fn get_of_an_absent_path() {
    let cfg = yaml("a: {b: 1}");
    check_error(cfg.get::<u32>("a.c"), "\"a.c\" is missing from the configuration");
    check_error(cfg.get::<()>("a.c"), "\"a.c\" is missing from the configuration");
    check_error(cfg.get::<CfgNode>("x.y.z"), "\"x.y.z\" is missing from the configuration");
    assert_eq!(cfg.get::<Option<u32>>("a.c").unwrap(), None);
    assert_eq!(cfg.get::<Option<CfgNode>>("x.y").unwrap(), None);
    assert_eq!(cfg.get::<Option<u32>>("a.b").unwrap(), Some(1));
}

#[test]
fn an_option_of_a_wrong_type_is_an_error() {
    let cfg = yaml("a: oops");
    check_error(cfg.get::<Option<u32>>("a"), "a: invalid type: string \"oops\", expected u32");
}

#[test]
fn get_or_gives_the_default_only_for_an_absent_value() {
    let cfg = yaml("{a: 1, n: null, t: text}");
    assert_eq!(cfg.get_or("a", 5).unwrap(), 1);
    assert_eq!(cfg.get_or("b.c", 5).unwrap(), 5);
    check_error(cfg.get_or("t", 5), "t: invalid type: string \"text\", expected i32");
    check_error(cfg.get_or("n", 5), "n: invalid type: unit value, expected i32");
    assert_eq!(cfg.get_or("n", Some(5)).unwrap(), None);
    check_error(cfg.get_or("a.b", 5), "\"a.b\" leads through \"a\", which is the number 1");
}

#[test]
fn nothing_is_turned_into_something_else() {
    let cfg = yaml("{text: '1', one: 1, float: 1.0, yes: yes, on: true}");
    assert!(cfg.get::<u32>("text").is_err());
    assert!(cfg.get::<bool>("text").is_err());
    assert!(cfg.get::<u32>("float").is_err());
    assert!(cfg.get::<String>("one").is_err());
    assert!(cfg.get::<bool>("one").is_err());
    assert!(cfg.get::<bool>("yes").is_err());
    assert!(cfg.get::<u32>("on").is_err());
    assert_eq!(cfg.get::<f64>("one").unwrap(), 1.0);
}

#[test]
fn integers_out_of_the_range_of_the_type_are_errors() {
    let cfg = yaml("{a: 300, b: -1}");
    check_error(cfg.get::<u8>("a"), "a: invalid value: integer `300`, expected u8");
    check_error(cfg.get::<u64>("b"), "b: invalid value: integer `-1`, expected u64");
}

#[test]
fn a_type_error_names_the_full_path() {
    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the errors are looked at")]
    struct Layer {
        size: u32,
    }
    let cfg = yaml("MODEL: {lr: oops, layers: [{size: 1}, {size: big}, {}]}");
    check_error(
        cfg.get::<f64>("MODEL.lr"),
        "MODEL.lr: invalid type: string \"oops\", expected f64",
    );
    check_error(
        cfg.get::<Vec<Layer>>("MODEL.layers"),
        "MODEL.layers.1.size: invalid type: string \"big\", expected u32",
    );
    check_error(cfg.get::<Layer>("MODEL.layers.2"), "MODEL.layers.2: missing field `size`");
    check_error(
        cfg.extract::<HashMap<String, HashMap<String, f64>>>(),
        "MODEL.lr: invalid type: string \"oops\", expected f64",
    );
    check_error(
        cfg.extract::<Vec<u8>>(),
        "the configuration: invalid type: map, expected a sequence",
    );
}

#[test]
fn a_type_error_keeps_its_source() {
    let error = yaml("a: oops").get::<f64>("a").unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert_eq!(source.to_string(), "invalid type: string \"oops\", expected f64");
    assert!(matches!(error, CfgError::Type { path, .. } if path == "a"));
}

#[test]
fn a_path_through_a_scalar_is_an_error() {
    let mut cfg = yaml("{a: 1, n: null, l: [1, 2]}");
    check_error(cfg.get::<u32>("a.b.c"), "\"a.b.c\" leads through \"a\", which is the number 1");
    check_error(
        cfg.get::<Option<u32>>("a.b"),
        "\"a.b\" leads through \"a\", which is the number 1",
    );
    check_error(cfg.set("a.b", 1), "\"a.b\" leads through \"a\", which is the number 1");
    check_error(cfg.remove("a.b"), "\"a.b\" leads through \"a\", which is the number 1");
    check_error(cfg.set("n.b", 1), "\"n.b\" leads through \"n\", which is null");
    check_error(cfg.set("l.x", 1), "\"l.x\" leads through \"l\", which is a list of 2");
    assert!(!cfg.contains("a.b"));
    assert_eq!(cfg, yaml("{a: 1, n: null, l: [1, 2]}"));
}

#[test]
fn malformed_paths_are_errors() {
    let mut cfg = yaml("{a: {b: [1]}}");
    for (path, problem) in [
        ("", PathProblem::Empty),
        (".", PathProblem::EmptySegment),
        ("a.", PathProblem::EmptySegment),
        (".a", PathProblem::EmptySegment),
        ("a..b", PathProblem::EmptySegment),
        ("a.b[0]", PathProblem::Brackets),
    ] {
        let errors = [
            cfg.get::<u32>(path).unwrap_err(),
            cfg.get_or(path, 1).unwrap_err(),
            cfg.set(path, 1).unwrap_err(),
            cfg.remove(path).unwrap_err(),
            cfg.apply(&format!("{path}=1")).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, CfgError::Path { problem: p, .. } if p == problem), "{error}");
        }
        assert!(!cfg.contains(path));
    }
    assert_eq!(cfg, yaml("{a: {b: [1]}}"));
}

#[test]
fn lists_are_reached_by_index() {
    let mut cfg = yaml("layers: [{size: 1}, {size: 2}]");
    assert_eq!(cfg.get::<u32>("layers.1.size").unwrap(), 2);
    assert_eq!(cfg.get::<Option<u32>>("layers.2.size").unwrap(), None);
    assert!(!cfg.contains("layers.99999999999999999999999"));
    cfg.set("layers.0.size", 7).unwrap();
    cfg.set("layers.1.name", "x").unwrap();
    assert_eq!(cfg, yaml("layers: [{size: 7}, {size: 2, name: x}]"));
    check_error(cfg.set("layers.2", 1), "\"layers.2\" is not a path: the list has 2 elements");
    check_error(
        cfg.set("layers.9.size", 1),
        "\"layers.9.size\" is not a path: the list has 2 elements",
    );
    assert!(cfg.remove("layers.0").unwrap());
    assert!(!cfg.remove("layers.1").unwrap());
    assert_eq!(cfg, yaml("layers: [{size: 2, name: x}]"));
}

#[test]
fn a_number_is_a_key_where_a_node_is() {
    let cfg = CfgNode::new().with("names.0", "person").unwrap();
    assert_eq!(cfg, yaml("names: {0: person}"));
    let names: HashMap<u32, String> = cfg.get("names").unwrap();
    assert_eq!(names[&0], "person");
}

#[test]
fn remove_says_whether_something_was_there() {
    let mut cfg = yaml("{a: {b: null, c: 1}, d: 1}");
    assert!(cfg.remove("a.b").unwrap());
    assert!(!cfg.remove("a.b").unwrap());
    assert!(!cfg.remove("x.y").unwrap());
    assert!(cfg.remove("d").unwrap());
    assert_eq!(cfg, yaml("a: {c: 1}"));
}

#[test]
fn contains_keys_and_is_empty() {
    let cfg = yaml("{a: {b: null}, c: []}");
    assert!(cfg.contains("a.b"));
    assert!(!cfg.contains("a.b.c"));
    assert_eq!(cfg.keys().collect::<Vec<_>>(), ["a", "c"]);
    assert!(!cfg.is_empty());
    assert!(CfgNode::default().is_empty());
}

#[test]
fn values_of_all_shapes_go_in_and_come_out() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Loss {
        Mse,
        Huber(f64),
        Mix(f32, u8),
        Focal { gamma: f64 },
    }
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Unit;
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Meters(f64);
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct All {
        losses: Vec<Loss>,
        by_id: BTreeMap<i8, Option<char>>,
        by_flag: BTreeMap<bool, ()>,
        pair: (u64, i64),
        unit: Unit,
        length: Meters,
        maybe: Option<Vec<u8>>,
        nothing: Option<bool>,
        text: String,
        wide: i128,
        extreme: f64,
    }
    let all = All {
        losses: vec![Loss::Mse, Loss::Huber(0.5), Loss::Mix(0.1, 2), Loss::Focal { gamma: 2.0 }],
        by_id: BTreeMap::from([(-1, Some('x')), (2, None)]),
        by_flag: BTreeMap::from([(true, ())]),
        pair: (u64::MAX, i64::MIN),
        unit: Unit,
        length: Meters(-0.0),
        maybe: Some(vec![0, 255]),
        nothing: None,
        text: "a\0b".to_owned(),
        wide: i128::from(u64::MAX),
        extreme: f64::INFINITY,
    };
    let cfg = CfgNode::new().with("all", &all).unwrap();
    assert_eq!(cfg.get::<All>("all").unwrap(), all);
    let again = yaml(&cfg.to_yaml().unwrap());
    assert_eq!(again.get::<All>("all").unwrap(), all);
    assert_eq!(again, cfg);
}

#[test]
fn an_unknown_variant_is_an_error_with_its_path() {
    #[derive(Debug, Deserialize)]
    enum Mode {
        Fast,
    }
    let error = yaml("m: [slow]").get::<Vec<Mode>>("m").unwrap_err().to_string();
    assert_eq!(error, "m.0: unknown variant `slow`, expected `Fast`");
}

#[test]
fn integers_of_all_types_are_held() {
    let mut cfg = CfgNode::new();
    cfg.set("a.b", i128::MIN).unwrap();
    assert_eq!(cfg.get::<i128>("a.b").unwrap(), i128::MIN);
    cfg.set("a", [u128::MAX]).unwrap();
    assert_eq!(cfg.get::<u128>("a.0").unwrap(), u128::MAX);
    cfg.set("max", u128::from(u64::MAX)).unwrap();
    assert_eq!(cfg.get::<u64>("max").unwrap(), u64::MAX);
    assert_eq!(cfg.get::<u128>("max").unwrap(), u128::from(u64::MAX));
}

#[test]
fn keys_that_no_path_could_name_are_refused_at_set() {
    let mut cfg = CfgNode::new();
    let indexed = HashMap::from([("y[0]", 1)]);
    check_error(
        cfg.set("a", [&indexed]),
        "the key \"y[0]\" of a.0 is refused: an index is a segment of its own, as in `layers.0`",
    );
    check_error(
        cfg.set("a", HashMap::from([("", 1)])),
        "the key \"\" of a is refused: it is empty",
    );
    let indexed = HashMap::from([("x[1]", 1)]);
    assert!(cfg.set("a", &indexed).is_err());
    assert!(cfg.is_empty());
    cfg.set("a", HashMap::from([("[1]", 1), ("x[a]", 2), ("x[]", 3)])).unwrap();
    assert_eq!(cfg.get::<u8>("a.x[a]").unwrap(), 2);
}

#[test]
fn a_failed_set_changes_nothing() {
    struct Fails;
    impl Serialize for Fails {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("no way"))
        }
    }
    let mut cfg = yaml("a: 1");
    check_error(cfg.set("b.c", Fails), "b.c cannot be held in a configuration: no way");
    assert_eq!(cfg, yaml("a: 1"));
}

#[test]
fn a_sub_node_is_a_copy() {
    let cfg = yaml("model: {lr: 1}");
    let mut model: CfgNode = cfg.get("model").unwrap();
    model.set("lr", 2).unwrap();
    assert_eq!(cfg.get::<u8>("model.lr").unwrap(), 1);
    let mut outer = CfgNode::new();
    outer.set("sub", &model).unwrap();
    assert_eq!(outer, yaml("sub: {lr: 2}"));
    check_error(
        yaml("a: [1]").get::<CfgNode>("a"),
        "a: invalid type: a list of 1, expected a node",
    );
}

#[test]
fn merge_rules() {
    for (left, right, merged) in [
        ("{}", "{a: 1}", "{a: 1}"),
        ("{a: 1}", "{}", "{a: 1}"),
        ("{a: {x: 1, y: 2}}", "{a: {y: 3, z: 4}}", "{a: {x: 1, y: 3, z: 4}}"),
        ("{a: [1, 2, 3]}", "{a: [9]}", "{a: [9]}"),
        ("{a: [{x: 1}]}", "{a: [{y: 2}]}", "{a: [{y: 2}]}"),
        ("{a: 1}", "{a: null}", "{a: null}"),
        ("{a: {x: 1}}", "{a: null}", "{a: null}"),
        ("{a: {x: 1}}", "{a: 5}", "{a: 5}"),
        ("{a: 5}", "{a: {x: 1}}", "{a: {x: 1}}"),
        ("{a: {x: 1}}", "{a: {}}", "{a: {x: 1}}"),
        ("{a: 1}", "{a: 1.0}", "{a: 1.0}"),
    ] {
        let (mut cfg, over) = (yaml(left), yaml(right));
        cfg.merge(&over).unwrap();
        assert_eq!(cfg, yaml(merged), "{left} + {right}");
        assert_eq!(over, yaml(right), "the original is as it was");
        cfg.set("a", "changed").unwrap();
        assert_eq!(over, yaml(right), "nothing is shared");
    }
}

#[test]
fn merge_keeps_the_order_of_keys() {
    let mut cfg = yaml("{z: 1, a: 2}");
    cfg.merge(&yaml("{b: 1, z: 3}")).unwrap();
    assert_eq!(cfg.keys().collect::<Vec<_>>(), ["z", "a", "b"]);
}

#[test]
fn equality() {
    assert_eq!(yaml("{a: 1, b: 2}"), yaml("{b: 2, a: 1}"));
    assert_ne!(yaml("{a: 1}"), yaml("{a: 1.0}"));
    assert_ne!(yaml("{a: 1}"), yaml("{a: 1, b: null}"));
    assert_ne!(yaml("{a: [1, 2]}"), yaml("{a: [2, 1]}"));
    assert_ne!(yaml("{a: 0.0}"), yaml("{a: -0.0}"));
    assert_eq!(yaml("{a: .nan}"), yaml("{a: .nan}"));
    let mut frozen = yaml("{a: 1}");
    frozen.freeze();
    assert_eq!(frozen, yaml("{a: 1}"));
}

#[test]
fn display_is_yaml_and_debug_is_short() {
    let mut cfg = yaml("{z: 1, a: {b: [x, null, 0.1]}}");
    assert_eq!(cfg.to_string(), cfg.to_yaml().unwrap());
    assert_eq!(yaml(&cfg.to_string()), cfg);
    assert_eq!(format!("{cfg:?}"), r#"CfgNode {"z": 1, "a": {"b": ["x", null, 0.1]}}"#);
    cfg.freeze();
    assert!(format!("{cfg:?}").starts_with("CfgNode (frozen) {"));
}

#[test]
fn serde_of_the_node_itself() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Job {
        name: String,
        cfg: CfgNode,
    }
    let job = Job { name: "a".to_owned(), cfg: yaml("{z: 1, a: [{b: null}]}") };
    let text = serde_json::to_string(&job).unwrap();
    assert_eq!(text, r#"{"name":"a","cfg":{"z":1,"a":[{"b":null}]}}"#);
    assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
    assert!(serde_json::from_str::<CfgNode>("[1]").is_err());
    assert!(serde_json::from_str::<CfgNode>(r#"{"a": 1, "a": 2}"#).is_err());
    assert!(serde_json::from_str::<CfgNode>(r#"{"a[1]": 1}"#).is_err());
}

#[test]
fn layers_of_the_config_crate() {
    let file = yaml("{MODEL: {lr: 0.1, Depth: 18}, list: [1, 2], 'a b': 1}");
    let layers = config::Config::builder()
        .add_source(file.clone())
        .add_source(yaml("{MODEL: {lr: 0.5}, list: [9]}"))
        .set_override("MODEL.Depth", 50)
        .unwrap()
        .build()
        .unwrap();
    let cfg = CfgNode::try_from(layers).unwrap();
    assert_eq!(cfg, yaml("{MODEL: {lr: 0.5, Depth: 50}, list: [9], 'a b': 1}"));
    assert_eq!(cfg.keys().collect::<Vec<_>>(), ["MODEL", "list", "a b"]);

    let wide = config::Config::builder().set_override("n", 5_i128).unwrap().build().unwrap();
    assert_eq!(CfgNode::try_from(wide).unwrap(), yaml("n: 5"));
    let wide = config::Config::builder().set_override("n", i128::MAX).unwrap().build().unwrap();
    assert_eq!(CfgNode::try_from(wide).unwrap().get::<i128>("n").unwrap(), i128::MAX);
    let dotted = config::File::from_str("[t]\n\"a.b\" = 1", config::FileFormat::Toml);
    let dotted = config::Config::builder().add_source(dotted).build().unwrap();
    assert_eq!(CfgNode::try_from(dotted).unwrap().get::<u8>("t.\"a.b\"").unwrap(), 1);
}
