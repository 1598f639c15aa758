//! Frozen configurations.

use crate::values::{check_error, yaml};
use gangline_config::CfgError;
use gangline_config::CfgNode;

#[test]
fn a_frozen_configuration_refuses_every_change() {
    let original = yaml("{a: {b: 1, l: [1]}}");
    let mut cfg = original.clone();
    cfg.freeze();
    cfg.freeze();
    assert!(cfg.is_frozen());
    check_error(cfg.set("x", 1), "the configuration is frozen: setting \"x\" is refused");
    let changes = [
        cfg.set("a.b", 2),
        cfg.set("a.l.0", 2),
        cfg.set("a", 2),
        cfg.remove("a.b").map(drop),
        cfg.remove("absent").map(drop),
        cfg.merge(&CfgNode::new()),
        cfg.merge(&original),
        cfg.apply("a.b=2"),
        cfg.clone().with("a.b", 2).map(drop),
        cfg.clone().with_env("APP").map(drop),
        cfg.clone().with_env_pairs("APP", [("APP__A__B", "2")]).map(drop),
    ];
    for change in changes {
        assert!(matches!(change, Err(CfgError::Frozen { .. })), "{change:?}");
    }
    assert_eq!(cfg, original);
    assert_eq!(cfg.get::<u8>("a.b").unwrap(), 1);
}

#[test]
fn what_freezing_reaches() {
    let mut cfg = yaml("{a: {b: 1}}");
    cfg.freeze();
    assert!(cfg.clone().is_frozen());
    assert!(!cfg.thawed().is_frozen());
    assert!(!cfg.get::<CfgNode>("a").unwrap().is_frozen());
    assert!(!cfg.extract::<CfgNode>().unwrap().is_frozen());
    let mut open = CfgNode::new();
    open.merge(&cfg).unwrap();
    open.set("a.b", 2).unwrap();
    assert_eq!(cfg.get::<u8>("a.b").unwrap(), 1);
}

#[test]
fn ae22_a_frozen_configuration_serves_many_readers() {
    let mut cfg = yaml("exponent: 3");
    cfg.freeze();
    let copies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let cfg = &cfg;
                scope.spawn(move || cfg.thawed().with("worker", i).unwrap())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(copies[3].get::<u8>("worker").unwrap(), 3);
    assert_eq!(cfg, yaml("exponent: 3"));
}
