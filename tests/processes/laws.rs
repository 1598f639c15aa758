//! The laws of a run, and a wrapper in the worker.

use gangline::process::{Processes, Recipe};
use gangline::testing::Simulated;
use gangline::testing::conformance::{Probe, check_all};
use gangline::{AnyOrderRunner, CfgNode, Result};

use crate::suite::tests;

tests![processes_keep_the_laws, a_wrapper_keeps_the_laws_in_processes];

pub static PROBE: Recipe<Probe> = Recipe::new("probe", Probe::from_cfg);
pub static WRAPPED: Recipe<Simulated<Probe>> = Recipe::new("wrapped", wrapped);

fn wrapped(cfg: &CfgNode) -> Result<Simulated<Probe>> {
    Ok(Simulated::new(Probe::from_cfg(cfg)?))
}

fn processes_keep_the_laws() {
    let builder = |probe| AnyOrderRunner::builder(probe).devices(2);
    check_all(move |probe| builder(probe).processes(&PROBE, Processes::new())).unwrap();
}

fn a_wrapper_keeps_the_laws_in_processes() {
    let builder = |probe| AnyOrderRunner::builder(Simulated::new(probe)).devices(3);
    check_all(move |probe| builder(probe).processes(&WRAPPED, Processes::new())).unwrap();
}
