//! A kernel that breaks a GPU for its process costs one item, if producers are processes of their own.

use candle_core::{Device, Tensor};
use gangline::closures::FnMap;
use gangline::process::{Processes, Recipe};
use gangline::{BoxError, CfgNode, Devices, OnError, OrderedRunner, ProducerContext, Result, map};

/// This item asks for an element that is not there.
const GUILTY: u32 = 40;
const ITEMS: u32 = 200;

type Lookup = FnMap<Device, u32, u32>;

pub(crate) static LOOKUP: Recipe<Lookup> = Recipe::new("lookup", make);

fn make(_: &CfgNode) -> Result<Lookup> {
    Ok(map(init, work))
}

fn init(cx: &ProducerContext<'_>) -> Result<Device> {
    cx.candle_device()
}

/// After a failed kernel, CUDA refuses all further work of this process: it has to end, and gets a successor.
fn work(_: &ProducerContext<'_>, device: &mut Device, at: u32) -> Result<u32> {
    look_up(device, if at == GUILTY { 1 << 20 } else { at }).map_err(|error| {
        eprintln!("{error}");
        std::process::abort()
    })
}

/// On a GPU, whether the element is there is found by the kernel.
fn look_up(device: &Device, at: u32) -> candle_core::Result<u32> {
    let table = Tensor::arange(0, ITEMS, device)?;
    let found = table.index_select(&Tensor::new(&[at], device)?, 0)?;
    Ok(found.to_vec1::<u32>()?[0])
}

/// Whether all other items were done in order, and what became of the guilty one.
pub(crate) fn survived(devices: Devices) -> Result<(bool, String), BoxError> {
    let mut runner = OrderedRunner::builder(make(&CfgNode::new())?)
        .devices(devices)
        .processes(&LOOKUP, Processes::new().env("RUST_BACKTRACE", "0"))
        .on_error(OnError::Skip)
        .retries(1)
        .build()?;
    let found = runner.run(0..ITEMS)?;
    let failures: Vec<_> = runner.failures().iter().map(ToString::to_string).collect();
    let items: Vec<_> = runner.failures().iter().map(gangline::Error::item).collect();
    runner.close()?;
    let whole = found.iter().copied().eq((0..ITEMS).filter(|&at| at != GUILTY));
    let text = format!("{} of {ITEMS} items; {}", found.len(), failures.join("; "));
    Ok((whole && items == [Some(u64::from(GUILTY))], text))
}
