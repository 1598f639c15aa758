//! Laws that hold for every configuration.

use std::collections::BTreeMap;

use gangline_config::CfgNode;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

/// A value of any kind.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Any {
    Null,
    Bool(bool),
    Int(i64),
    Large(u64),
    Float(f64),
    Text(String),
    List(Vec<Any>),
    Node(BTreeMap<String, Any>),
}

/// Few keys, so that two trees meet, and some that are anything.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-c]",
        1 => any::<String>().prop_map(|text| text.replace('.', "_") + "_"),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[ -~\n]{0,20}", "[0-9eExX_+.:-]{0,6}", "[a-z \n]{0,120}"]
}

fn common_scalar() -> impl Strategy<Value = Any> {
    prop_oneof![
        any::<bool>().prop_map(Any::Bool),
        any::<i64>().prop_map(Any::Int),
        (-3..3_i64).prop_map(Any::Int),
        prop::num::f64::NORMAL.prop_map(Any::Float),
        text().prop_map(Any::Text),
    ]
}

fn scalar() -> impl Strategy<Value = Any> {
    prop_oneof![
        6 => common_scalar(),
        1 => Just(Any::Null),
        1 => any::<u64>().prop_map(Any::Large),
        1 => any::<f64>().prop_map(Any::Float),
    ]
}

fn value(scalar: impl Strategy<Value = Any> + 'static) -> impl Strategy<Value = Any> {
    scalar.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Any::List),
            prop::collection::btree_map(key(), inner, 0..4).prop_map(Any::Node),
        ]
    })
}

fn tree(scalar: impl Strategy<Value = Any> + 'static) -> impl Strategy<Value = CfgNode> {
    prop::collection::btree_map(key(), value(scalar), 0..4).prop_map(to_cfg)
}

/// A tree with nodes at some keys and scalars at others, so that neither replaces the other.
fn shaped() -> impl Strategy<Value = CfgNode> {
    let leaves = || prop::collection::btree_map("[x-z]", scalar(), 0..3);
    let node = leaves().prop_map(Any::Node).prop_recursive(3, 12, 3, move |inner| {
        (leaves(), prop::collection::btree_map("[a-c]", inner, 0..3)).prop_map(
            |(mut all, nodes)| {
                all.extend(nodes);
                Any::Node(all)
            },
        )
    });
    prop::collection::btree_map("[a-c]", node, 0..3).prop_map(to_cfg)
}

fn to_cfg(entries: BTreeMap<String, Any>) -> CfgNode {
    CfgNode::new().with("top", entries).unwrap().get("top").unwrap()
}

/// The value at a path, as something to compare.
fn at(cfg: &CfgNode, path: &str) -> CfgNode {
    CfgNode::new().with("v", cfg.get::<Any>(path).unwrap()).unwrap()
}

fn merged(left: &CfgNode, right: &CfgNode) -> CfgNode {
    let mut merged = left.clone();
    merged.merge(right).unwrap();
    merged
}

fn reload(cfg: &CfgNode, name: &str) -> (CfgNode, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(name);
    cfg.save(&file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    (CfgNode::load(&file).unwrap_or_else(|error| panic!("{error}\n{text}")), text)
}

proptest! {
    #[test]
    fn merging_nothing_changes_nothing(a in tree(scalar())) {
        prop_assert_eq!(merged(&a, &CfgNode::new()), a.clone());
        prop_assert_eq!(merged(&CfgNode::new(), &a), a);
    }

    #[test]
    fn merging_is_idempotent(a in tree(scalar()), b in tree(scalar())) {
        prop_assert_eq!(merged(&a, &a), a.clone());
        let once = merged(&a, &b);
        prop_assert_eq!(merged(&once, &b), once);
    }

    /// Not associative where a text stands between two nodes: `{a: {x: 1}}`, `{a: 1}` and
    /// `{a: {y: 1}}` give `{a: {y: 1}}` from the left and `{a: {x: 1, y: 1}}` from the right.
    #[test]
    fn merging_is_associative_where_no_node_is_replaced(
        a in shaped(),
        b in shaped(),
        c in shaped(),
    ) {
        prop_assert_eq!(merged(&merged(&a, &b), &c), merged(&a, &merged(&b, &c)));
    }

    #[test]
    fn the_right_side_wins(a in tree(scalar()), path in "[a-c](\\.[a-c]){0,3}", v in scalar()) {
        let right = CfgNode::new().with(&path, &v).unwrap();
        let expected = CfgNode::new().with("v", &v).unwrap();
        prop_assert_eq!(at(&merged(&a, &right), &path), expected);
    }

    #[test]
    fn what_is_set_is_what_is_got(a in tree(scalar()), key in key(), v in value(scalar())) {
        let mut cfg = a;
        prop_assume!(cfg.set(&key, &v).is_ok());
        prop_assert_eq!(at(&cfg, &key), CfgNode::new().with("v", &v).unwrap());
        prop_assert!(cfg.contains(&key));
        prop_assert!(cfg.remove(&key).unwrap());
        prop_assert!(!cfg.contains(&key));
    }

    #[test]
    fn yaml_holds_everything(a in tree(scalar())) {
        let (loaded, text) = reload(&a, "a.yaml");
        prop_assert_eq!(&loaded, &a, "{}", text);
        prop_assert!(loaded.keys().eq(a.keys()));
    }

    #[test]
    fn toml_and_json_hold_what_they_can(a in tree(common_scalar())) {
        for name in ["a.toml", "a.json"] {
            let (loaded, text) = reload(&a, name);
            prop_assert_eq!(&loaded, &a, "{}: {}", name, text);
        }
    }

    #[test]
    fn serde_holds_everything_but_infinities(a in tree(common_scalar())) {
        let text = serde_json::to_string(&a).unwrap();
        prop_assert_eq!(serde_json::from_str::<CfgNode>(&text).unwrap(), a);
    }

    #[test]
    fn save_diff_reopens_as_it_was(base in tree(scalar()), over in tree(scalar())) {
        let dir = tempfile::tempdir().unwrap();
        let (bottom, top) = (dir.path().join("base.yaml"), dir.path().join("top.yaml"));
        base.save(&bottom).unwrap();
        let cfg = merged(&base, &over);
        cfg.save_diff(&top, &bottom).unwrap();
        prop_assert_eq!(CfgNode::load(&top).unwrap(), cfg);
    }

    #[test]
    fn save_diff_gives_back_or_refuses(base in tree(scalar()), cfg in tree(scalar())) {
        let dir = tempfile::tempdir().unwrap();
        let (bottom, top) = (dir.path().join("base.yaml"), dir.path().join("top.yaml"));
        base.save(&bottom).unwrap();
        if cfg.save_diff(&top, &bottom).is_ok() {
            prop_assert_eq!(CfgNode::load(&top).unwrap(), cfg);
        }
    }

    #[test]
    fn no_text_panics(text in any::<String>(), tokens in "[a-b0-9:\\[\\]{}&*!|>?'\"%@,.= \n-]{0,60}") {
        for text in [text, tokens] {
            for cfg in [
                CfgNode::from_yaml_str(&text),
                CfgNode::from_toml_str(&text),
                CfgNode::from_json_str(&text),
            ].into_iter().flatten() {
                prop_assert_eq!(CfgNode::from_yaml_str(&cfg.to_yaml().unwrap()).unwrap(), cfg);
            }
            let _ = CfgNode::new().apply(&text);
        }
    }
}
