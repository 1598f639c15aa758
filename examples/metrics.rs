//! Metrics of a run as Prometheus text: `cargo run --features metrics --example metrics`
//!
//! A service would serve the text under `/metrics`; this example prints it.
#![expect(clippy::print_stdout, reason = "an example talks to its user")]

use std::time::Duration;

use gangline::metrics::Metrics;
use gangline::{Batch, OnError, OrderedRunner, map_batches};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

fn main() -> gangline::Result<()> {
    // Any exporter of the crate `metrics` will do. It is installed before `Metrics` is made.
    let exporter = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &[0.001, 0.01, 0.1, 1.0])?
        .install_recorder()?;

    let classify = map_batches(
        |_cx| Ok(()),
        |cx, (), images: &mut Vec<u64>| {
            std::thread::sleep(Duration::from_millis(2)); // stands for the work of a device
            let class = |&image: &u64| match image % 100 {
                17 if cx.attempt() == 1 => Err("the device was busy".into()),
                42 => Err("not an image".into()),
                class => Ok(class),
            };
            Ok(images.iter().map(class).collect())
        },
    );
    let mut pool = OrderedRunner::builder(classify)
        .devices("cpu*2")
        .batch(Batch::up_to(8))
        .retries(1)
        .on_error(OnError::Skip)
        .observer(Metrics::new("classify"))
        .build()?;
    let classes = pool.run(0..1_000)?;
    assert_eq!(classes.len(), 990);

    let text = exporter.render();
    print!("{text}");
    let sample = |line: &str| assert!(text.lines().any(|there| there == line), "{line}");
    sample("gangline_items_total{runner=\"classify\",outcome=\"ok\"} 990");
    sample("gangline_items_total{runner=\"classify\",outcome=\"failed\"} 10");
    sample("gangline_runs_total{runner=\"classify\",outcome=\"ok\"} 1");
    Ok(())
}
