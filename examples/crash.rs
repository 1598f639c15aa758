//! A hook that crashes in five ways, and a run that goes on: `cargo run --features processes --example crash`
#![cfg_attr(not(target_os = "linux"), expect(unused, reason = "child processes need Linux"))]
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use gangline::closures::FnMap;
use gangline::{CfgNode, OnError, OrderedRunner, ProducerContext, Result, map};

/// On each device, once: here a model would be loaded.
fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

/// Squares a number, unless it is one of five.
fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
    match x {
        100 => std::process::abort(),
        300 => std::process::exit(3),
        500 => Ok(overflow(x)),
        700 => loop {
            std::thread::park(); // a kernel that never returns
        },
        900 => Ok(vec![1_u8; 1 << 46].len() as u64), // 64 TiB
        _ => Ok(x * x),
    }
}

/// Calls itself until the stack is used up.
fn overflow(depth: u64) -> u64 {
    match depth {
        u64::MAX => 0,
        _ => std::hint::black_box(overflow(depth + 1) + 1),
    }
}

#[cfg(target_os = "linux")]
fn main() -> Result<()> {
    use gangline::process::{Processes, Recipe};

    fn make(_: &CfgNode) -> Result<FnMap<(), u64, u64>> {
        Ok(map(init, work))
    }
    static SQUARES: Recipe<FnMap<(), u64, u64>> = Recipe::new("squares", make);
    gangline::worker_main(&[&SQUARES]);

    let mut pool = OrderedRunner::builder(make(&CfgNode::new())?)
        .devices("cpu*2")
        // Failures then show what was printed last, and not a backtrace.
        .processes(&SQUARES, Processes::new().env("RUST_BACKTRACE", "0"))
        .item_timeout(Duration::from_secs(1))
        .on_error(OnError::Skip)
        .build()?;
    let squares = pool.run(0..1_000)?;
    for failure in pool.failures() {
        println!("{failure:#}");
    }
    println!("{} of 1000 items are done, in order", squares.len());
    pool.close()?;
    assert!(squares.len() == 995 && squares.is_sorted());
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("child processes need Linux");
}
