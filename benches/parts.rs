//! The parts of a run, each by itself, as far as they can be had from outside: `cargo bench --bench parts`.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};
use gangline::{CfgNode, OrderedRunner, Result, Runner, map};

const PRODUCERS: usize = 2;
const ITEMS: u64 = 10_000;
const NO_FAILURE: &str = "no hook of it fails";

fn main() -> Result<()> {
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args();
    handles(&mut criterion);
    starts(&mut criterion)?;
    items_by_window(&mut criterion)?;
    streams(&mut criterion)?;
    configuration(&mut criterion)?;
    criterion.final_summary();
    Ok(())
}

fn handles(criterion: &mut Criterion) {
    criterion.bench_function("handle: build and close", |bencher| {
        bencher.iter(|| {
            let mut runner = OrderedRunner::new(sum(), PRODUCERS).expect(NO_FAILURE);
            runner.close().expect(NO_FAILURE);
        });
    });
}

/// What a run costs that has next to nothing to do.
fn starts(criterion: &mut Criterion) -> Result<()> {
    let mut runner = OrderedRunner::new(sum(), PRODUCERS)?;
    for (name, items) in [("run: no items", 0), ("run: one item", 1)] {
        criterion.bench_function(name, |bencher| {
            bencher.iter(|| runner.run(0..items).expect(NO_FAILURE));
        });
    }
    Ok(())
}

fn items_by_window(criterion: &mut Criterion) -> Result<()> {
    let mut group = criterion.benchmark_group("run: item");
    group.throughput(Throughput::Elements(ITEMS));
    for window in [1, 8, 64, 512, 4_096] {
        let mut runner = OrderedRunner::builder(sum()).devices(PRODUCERS).window(window).build()?;
        group.bench_function(BenchmarkId::new("window", window), |bencher| {
            bencher.iter(|| runner.run(0..ITEMS).expect(NO_FAILURE));
        });
    }
    let mut runner = OrderedRunner::new(sum(), PRODUCERS)?;
    group.bench_function("default window", |bencher| {
        bencher.iter(|| runner.run(0..ITEMS).expect(NO_FAILURE));
    });
    group.finish();
    Ok(())
}

fn streams(criterion: &mut Criterion) -> Result<()> {
    let mut runner = OrderedRunner::new(sum(), PRODUCERS)?;
    let mut group = criterion.benchmark_group("stream");
    group.bench_function("no items", |bencher| bencher.iter(|| runner.outputs(0..0).count()));
    group.throughput(Throughput::Elements(ITEMS));
    group.bench_function("next", |bencher| bencher.iter(|| runner.outputs(0..ITEMS).count()));
    group.finish();
    Ok(())
}

fn configuration(criterion: &mut Criterion) -> Result<()> {
    let cfg = CfgNode::new().with("model.layers", 3)?.with("layers", 3)?;
    criterion.bench_function("cfg: get, one level", |bencher| {
        bencher.iter(|| black_box(&cfg).get::<u32>("layers"));
    });
    criterion.bench_function("cfg: get, two levels", |bencher| {
        bencher.iter(|| black_box(&cfg).get::<u32>("model.layers"));
    });
    Ok(())
}

fn sum() -> impl Runner<Input = u64, Output = u64, Summary = u64> {
    map(|_| Ok(()), |_, _, x: u64| Ok(x)).fold(
        |_| Ok(0_u64),
        |_, sum, y| {
            *sum = sum.wrapping_add(y);
            Ok(())
        },
    )
}
