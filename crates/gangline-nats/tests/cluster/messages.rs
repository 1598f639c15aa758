//! What an item costs: messages, as the broker counts them.

use std::time::Duration;

use gangline::closures::FnMap;
use gangline::process::Recipe;
use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};
use gangline_nats::ClusterBuilder;

use crate::broker::Broker;
use crate::suite::tests;

tests![a_small_item_costs_few_messages];

/// Milliseconds, and what is returned after them.
type Item = (u64, Vec<u8>);
type Sleeper = FnMap<(), Item, Vec<u8>>;

pub static SLEEPER: Recipe<Sleeper> = Recipe::new("sleeper", make);

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make(_: &CfgNode) -> Result<Sleeper> {
    Ok(map(|_: &ProducerContext<'_>| Ok(()), sleep))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
fn sleep(_: &ProducerContext<'_>, (): &mut (), (millis, bytes): Item) -> Result<Vec<u8>> {
    if millis > 0 {
        std::thread::sleep(Duration::from_millis(millis));
    }
    Ok(bytes)
}

/// The messages of an item of 100 bytes that takes this long, on two workers: those that the broker receives, and those that it
/// sends.
fn messages_of_an_item(producers: usize, millis: u64) -> (f64, f64) {
    const ITEMS: usize = 1000;
    let broker = Broker::start();
    let _workers = [broker.worker(producers), broker.worker(producers)];
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap());
    // Of a long lease, little is renewed.
    let nats = broker.nats().min_workers(2).lease_time(Duration::from_secs(20));
    let mut pool = builder.cluster(&SLEEPER, nats).build().unwrap();
    let counts = || {
        let status = broker.status("/varz");
        ["in_msgs", "out_msgs"].map(|name| status[name].as_u64().unwrap() as f64)
    };
    pool.run(vec![(0, vec![]); 2]).unwrap();
    let before = counts();
    assert_eq!(pool.run(vec![(millis, vec![7; 100]); ITEMS]).unwrap(), vec![vec![7; 100]; ITEMS]);
    let after = counts();
    let [received, sent] = [0, 1].map(|n| (after[n] - before[n]) / ITEMS as f64);
    (received, sent)
}

fn a_small_item_costs_few_messages() {
    let cases = [(1, 10), (16, 10), (16, 0)];
    let counted = cases.map(|(producers, millis)| messages_of_an_item(producers, millis));
    let all = counted.map(|(received, sent)| received + sent);
    // Of one producer, few things happen together.
    // Without groups, an item costs 12. Groups are larger on a busy machine, of which docs/cluster.md has the figures.
    assert!(all[0] < 12.0 && all[1] < 9.0 && all[2] < 9.0, "{counted:?}");
}
