//! The same network in child processes, each with a CUDA context of its own.

use gangline::closures::MapBatches;
use gangline::process::{Processes, Recipe};
use gangline::{
    Batch, BoxError, CfgNode, Devices, OrderedRunner, ProducerContext, Result, map_batches,
};

use crate::measure::{Plan, warm_up};
use crate::network::{Item, Network};
use crate::workload::{Kind, Precision, Size, Workload};

/// Builds the runner in a child process, which makes the same weights from the same seed.
pub(crate) static MEASURED: Recipe<InProcess> = Recipe::new("measured", make);

/// Its items are texts: what a network gets is made of them in the child.
pub(crate) type InProcess = MapBatches<Init, Work, Loaded, String, Vec<f32>>;
type Init = Box<dyn Fn(&ProducerContext<'_>) -> Result<Loaded> + Send + Sync>;
type Work =
    fn(&ProducerContext<'_>, &mut Loaded, &mut Vec<String>) -> Result<Vec<Result<Vec<f32>>>>;

/// A network on a device, and what makes its items.
pub(crate) struct Loaded {
    network: Network,
    make: Box<dyn Fn(&str) -> Item>,
}

/// A runner of `producers` child processes on the device of a plan.
pub(crate) fn runner(
    plan: &Plan,
    producers: usize,
    batch: usize,
) -> Result<OrderedRunner<InProcess>, BoxError> {
    let cfg = CfgNode::new()
        .with("network", plan.workload.kind.name())?
        .with("size", plan.workload.size.to_string())?
        .with("precision", plan.precision.to_string())?
        .with("batch", batch)?;
    Ok(OrderedRunner::builder(make(&cfg)?)
        .cfg(cfg)
        .devices(Devices::from_places(vec![vec![plan.device]; producers])?)
        .batch(Batch::of(batch))
        .processes(&MEASURED, Processes::new())
        .build()?)
}

fn make(cfg: &CfgNode) -> Result<InProcess> {
    let text = |key| cfg.get::<String>(key);
    let (kind, size) = (text("network")?.parse::<Kind>()?, text("size")?.parse::<Size>()?);
    let precision: Precision = text("precision")?.parse()?;
    let batch: usize = cfg.get("batch")?;
    let init: Init = Box::new(move |cx| {
        precision.set();
        let workload = Workload::new(kind, size, 1)?;
        let tensors = cx.var_builder([workload.model.tensors()], precision.dtype())?;
        let network = workload.model.load(tensors)?;
        warm_up(&network, &cx.candle_device()?, &workload.items(), batch)?;
        Ok(Loaded { network, make: Box::new(workload.maker()) })
    });
    let work: Work = |_, loaded, texts| {
        let items: Vec<_> = texts.iter().map(|text| (loaded.make)(text)).collect();
        Ok(loaded.network.vectors(&items)?.into_iter().map(Ok).collect())
    };
    Ok(map_batches(init, work))
}
