//! The configuration as hooks see it.

use std::error::Error as _;

use gangline::error::CfgError;
use gangline::{AnyOrderRunner, CfgNode, Hook, Journal, OrderedRunner, UnorderedRunner};

use crate::support::{map, no_hang};

fn cube() -> CfgNode {
    CfgNode::new().with("exponent", 3).unwrap()
}

macro_rules! powers {
    () => {
        map(
            |cx| Ok(cx.cfg().get::<u32>("exponent")?),
            |_, exponent: &mut u32, x: u64| Ok(x.pow(*exponent)),
        )
    };
}

#[test]
fn ae2_sum_of_powers_leaves_the_configuration_as_it_was() {
    no_hang(|| {
        let cfg = cube();
        let sum = powers!().fold(
            |_| Ok(0),
            |_, sum, y| {
                *sum += y;
                Ok(())
            },
        );
        let mut runner = UnorderedRunner::with_cfg(sum, 3, cfg.clone()).unwrap();
        assert_eq!(runner.run(0..100).unwrap(), 24_502_500);
        assert_eq!(cfg, cube());
    });
}

#[test]
fn ae8_a_changed_configuration_is_seen_after_close_and_activate() {
    no_hang(|| {
        let mut cfg = cube();
        let mut runner = OrderedRunner::with_cfg(powers!(), 2, cfg.clone()).unwrap();
        cfg.set("exponent", 2).unwrap();
        assert_eq!(runner.run([3]).unwrap(), [27], "the runner has its own");

        let error = runner.set_cfg(cfg.clone()).unwrap_err();
        assert_eq!(error.to_string(), "the runner is active; call `close` first");
        runner.close().unwrap();
        runner.set_cfg(cfg).unwrap();
        runner.activate().unwrap();
        assert_eq!(runner.run([3]).unwrap(), [9]);
    });
}

#[test]
fn ae22_a_frozen_configuration_is_as_good_as_any() {
    no_hang(|| {
        let mut cfg = cube();
        cfg.freeze();
        let mut runner = OrderedRunner::with_cfg(powers!(), 2, cfg.clone()).unwrap();
        assert_eq!(runner.run([3]).unwrap(), [27]);
        assert_eq!(cfg, cube());
        assert!(cfg.is_frozen());
    });
}

#[test]
fn a_value_that_is_missing_or_wrong_fails_the_hook_that_asks_for_it() {
    no_hang(|| {
        for (cfg, says) in [
            (CfgNode::new(), "exponent"),
            (CfgNode::new().with("exponent", "cube").unwrap(), "exponent"),
        ] {
            let error = AnyOrderRunner::builder(powers!()).devices(2).cfg(cfg).build().unwrap_err();
            assert_eq!(error.hook(), Some(Hook::ProducerInit));
            let cause = error.source().unwrap();
            assert!(cause.is::<CfgError>() && cause.to_string().contains(says), "{error:#}");
        }
    });
}

#[test]
fn the_consumer_sees_the_same() {
    no_hang(|| {
        let scaled = map(|_| Ok(()), |_, (), x: u64| Ok(x)).fold(
            |cx| Ok((cx.cfg().get::<u64>("scale")?, Vec::new())),
            |cx, (scale, all), y| {
                assert_eq!(cx.cfg().get::<u64>("scale")?, *scale);
                all.push(*scale * y);
                Ok(())
            },
        );
        let cfg = CfgNode::new().with("scale", 10).unwrap();
        let mut runner = OrderedRunner::with_cfg(scaled, 2, cfg).unwrap();
        assert_eq!(runner.run(1..4).unwrap().1, [10, 20, 30]);
    });
}

#[test]
fn journals_reach_keys_with_dots() {
    let folder = tempfile::tempdir().unwrap();
    let journal = || Journal::at(folder.path().join("run.journal")).resume();
    let run = |cfg: CfgNode, journal| {
        let builder = OrderedRunner::builder(map(|_| Ok(()), |_, (), x: u64| Ok(x)));
        builder.devices(1).cfg(cfg).journal(journal).build().unwrap().run(0..2)
    };
    let path = "models.\"regnetx_1.6gf\".lr";
    let cfg = CfgNode::new().with(path, 0.5).unwrap();
    run(cfg.clone(), journal()).unwrap();
    let other = cfg.with(path, 0.7).unwrap();
    let error = format!("{:#}", run(other.clone(), journal()).unwrap_err());
    assert!(error.contains(path), "{error}");
    run(other, journal().ignore_cfg(path)).unwrap();
}

#[test]
fn a_run_takes_integers_of_128_bits() {
    let cfg = CfgNode::new().with("b", u128::MAX).unwrap();
    let mut pool = OrderedRunner::with_cfg(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1, cfg).unwrap();
    assert_eq!(pool.run([1]).unwrap(), [1]);
}
