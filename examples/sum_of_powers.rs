//! A parameter from outside, through `CfgNode`: `cargo run --example sum_of_powers -- --set exponent=3`
//!
//! Needs the feature `config-files`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

use std::process::ExitCode;

use gangline::{
    BoxError, CfgNode, ConsumerContext, ProducerContext, Result, Runner, UnorderedRunner,
};

use args::{Args, Flag, Usage};

#[path = "common/args.rs"]
mod args;

const FLAGS: &[Flag] = &[
    Flag { name: "--config", value: "FILE", help: "YAML, TOML or JSON with an `exponent`" },
    Flag { name: "--set", value: "KEY=VALUE", help: "wins over the file (default: exponent=3)" },
];

struct SumOfPowers;

impl Runner for SumOfPowers {
    type Input = u64;
    type Output = u64;
    type ProducerState = u32;
    type ConsumerState = u64;
    type Summary = u64;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<u32> {
        Ok(cx.cfg().get("exponent")?)
    }

    fn producer_work(&self, _: &ProducerContext<'_>, exponent: &mut u32, x: u64) -> Result<u64> {
        x.checked_pow(*exponent).ok_or_else(|| format!("{x}^{exponent} is over 64 bits").into())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
        Ok(0)
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, power: u64) -> Result<()> {
        *sum = sum.checked_add(power).ok_or("the sum is over 64 bits")?;
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
        Ok(sum)
    }
}

/// All that the configuration may hold: a misspelt key is an error, not the default.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Parameters {
    exponent: u32,
}

fn main() -> ExitCode {
    args::main("Sums x^exponent for x from 0 to 99 on three CPU producers.", FLAGS, sum_of_powers)
}

fn sum_of_powers(args: &Args) -> Result<(), BoxError> {
    let (cfg, exponent) = configuration(args).map_err(|e| Usage(e.to_string()))?;
    let mut runner = UnorderedRunner::with_cfg(SumOfPowers, 3, cfg)?;
    let sum = runner.run(0..100)?;
    println!("{sum}");
    assert_eq!(sum, (0..100).map(|x: u64| x.pow(exponent)).sum::<u64>());
    assert!(exponent != 3 || sum == 24_502_500);
    runner.close()?;
    Ok(())
}

fn configuration(args: &Args) -> Result<(CfgNode, u32), BoxError> {
    let mut cfg = match args.get::<String>("--config")? {
        Some(path) => CfgNode::load(path)?,
        None => CfgNode::new().with("exponent", 3)?,
    };
    if let Some(assignment) = args.get::<String>("--set")? {
        cfg.apply(&assignment)?;
    }
    let Parameters { exponent } = cfg.extract()?;
    Ok((cfg, exponent))
}
