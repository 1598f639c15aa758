//! A kernel that breaks a GPU for its process costs one item, if producers are processes of their own. In one process,
//! the other devices go on.

use candle_core::{Device, Tensor};
use gangline::closures::FnMap;
use gangline::process::{Processes, Recipe};
use gangline::{BoxError, CfgNode, Devices, OnError, OrderedRunner, ProducerContext, Result, map};

use crate::check::chain;

/// This item asks for an element that is not there.
const GUILTY: u32 = 40;
const ITEMS: u32 = 200;
/// No table has this element.
const MISSING: u32 = 1 << 20;

type Lookup = FnMap<Device, u32, u32>;
type Breakable = FnMap<(Device, bool), u32, u32>;
type Outlive = FnMap<Option<OrderedRunner<Breakable>>, u32, String>;

pub(crate) static LOOKUP: Recipe<Lookup> = Recipe::new("lookup", make);

fn make(_: &CfgNode) -> Result<Lookup> {
    Ok(map(init, work))
}

fn init(cx: &ProducerContext<'_>) -> Result<Device> {
    cx.candle_device()
}

/// After a failed kernel, CUDA refuses all further work of this process: it has to end, and gets a successor.
fn work(_: &ProducerContext<'_>, device: &mut Device, at: u32) -> Result<u32> {
    look_up(device, if at == GUILTY { MISSING } else { at }).map_err(|error| {
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
    let failures: Vec<_> = runner.failures().iter().map(|error| chain(error)).collect();
    let items: Vec<_> = runner.failures().iter().map(gangline::Error::item).collect();
    runner.close()?;
    let whole = found.iter().copied().eq((0..ITEMS).filter(|&at| at != GUILTY));
    let text = format!("{} of {ITEMS} items; {}", found.len(), failures.join("; "));
    Ok((whole && items == [Some(u64::from(GUILTY))], text))
}

/// A run in a child process, where it may break the GPU.
pub(crate) static OUTLIVE: Recipe<Outlive> = Recipe::new("outlive", make_outlive);

fn make_outlive(_: &CfgNode) -> Result<Outlive> {
    Ok(map(|_| Ok(None), |cx, kept, _| outlive(*cx.device(), kept)))
}

/// Runs on a GPU, which breaks, and on the CPU. Fails if an item is lost. The runner is kept, so that the result is out
/// before the broken device is closed.
fn outlive(gpu: gangline::Device, kept: &mut Option<OrderedRunner<Breakable>>) -> Result<String> {
    let breakable: Breakable = map(init_breakable, work_and_break);
    let runner = OrderedRunner::builder(breakable)
        .devices(Devices::from_places([vec![gpu], vec![gangline::Device::Cpu]])?)
        .on_error(OnError::Skip)
        .retries(2)
        .quarantine_after(3)
        .build()?;
    let runner = kept.insert(runner);
    let found = runner.run(0..ITEMS)?;
    let lost = runner.report().producers.into_iter().filter_map(|producer| producer.quarantined);
    let lost: Vec<_> = lost.collect();
    let text = format!("{} of {ITEMS} items, out of service: {lost:?}", found.len());
    if found.iter().copied().eq(0..ITEMS) { Ok(text) } else { Err(text.into()) }
}

/// Returns the device, and whether its GPU is broken.
fn init_breakable(cx: &ProducerContext<'_>) -> Result<(Device, bool)> {
    let device = cx.candle_device()?;
    // Kernels are loaded, so that the CPU does not do all items meanwhile.
    look_up(&device, 0)?;
    Ok((device, false))
}

/// Breaks a GPU once. That its later items fail is CUDA's doing.
fn work_and_break(
    _: &ProducerContext<'_>,
    (device, is_broken): &mut (Device, bool),
    at: u32,
) -> Result<u32> {
    let breaks = device.is_cuda() && at >= GUILTY && !std::mem::replace(is_broken, true);
    Ok(look_up(device, if breaks { MISSING } else { at })?)
}

/// The result of a run that loses its GPU. An error if an item was lost.
pub(crate) fn outlived(devices: Devices) -> Result<String, BoxError> {
    let mut runner = OrderedRunner::builder(make_outlive(&CfgNode::new())?)
        .devices(devices)
        .processes(&OUTLIVE, Processes::new().env("RUST_BACKTRACE", "0"))
        .build()?;
    let text = runner.run([0])?.concat();
    // cudarc panics if CUDA refuses to close a handle.
    let closed = runner.close().map_err(|error| chain(&error));
    Ok(format!("{text}; closed: {closed:?}"))
}
