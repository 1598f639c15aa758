//! Bytes in shared memory, which ends at the machine of a worker.

use gangline::closures::FnMap;
use gangline::process::{Recipe, SharedBytes, SharedMemory};
use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};
use gangline_nats::ClusterBuilder;

use crate::broker::Broker;
use crate::suite::tests;

tests![a_child_process_and_a_coordinator_elsewhere_share_no_memory];

type Doubled = FnMap<(), SharedBytes, SharedBytes>;

pub static DOUBLED: Recipe<Doubled> = Recipe::new("doubled", make);

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make(_: &CfgNode) -> Result<Doubled> {
    Ok(map(|_: &ProducerContext<'_>| Ok(()), twice))
}

fn twice(_: &ProducerContext<'_>, (): &mut (), bytes: SharedBytes) -> Result<SharedBytes> {
    let memory = SharedMemory::of_worker().unwrap_or_default();
    let doubled: Vec<u8> = bytes.to_vec()?.iter().map(|byte| 2 * byte).collect();
    Ok(memory.write(&doubled))
}

fn a_child_process_and_a_coordinator_elsewhere_share_no_memory() {
    for place in ["0", "1"] {
        let broker = Broker::start();
        let _worker = broker.worker_with(2, &[("GANGLINE_PROCESSES", place)]);
        let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap());
        let mut pool = builder.cluster(&DOUBLED, broker.nats()).build().unwrap();
        let memory = SharedMemory::new();
        for size in [3, 70_000, 3 << 20] {
            let inputs: Vec<_> = (0..8).map(|n| memory.write(&vec![n; size])).collect();
            let outputs = pool.run(inputs).unwrap();
            let doubled: Vec<_> = outputs.iter().map(|it| it.to_vec().unwrap()).collect();
            assert!(doubled == (0..8).map(|n| vec![2 * n; size]).collect::<Vec<_>>(), "{size}");
        }
    }
}
