//! Batches whose size is chosen, through the public API: on threads, in services, with windows and without memory.

use std::sync::Mutex;
use std::time::Duration;

use gangline::report::{RunReport, SizeBound};
use gangline::testing::{Script, Simulated};
use gangline::{AnyOrderRunner, Batch, OrderedRunner, Runner, map_batches};

type Sizes = &'static Mutex<Vec<usize>>;

/// Returns the inputs, and notes the sizes of the batches.
fn noting(sizes: Sizes) -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> {
    map_batches(
        |_| Ok(()),
        move |_, (), inputs: &mut Vec<u64>| {
            sizes.lock().expect("nothing panics under it").push(inputs.len());
            // Long beside the clock's resolution, and the same for each batch.
            let end = std::time::Instant::now() + Duration::from_micros(200);
            while std::time::Instant::now() < end {
                std::hint::spin_loop();
            }
            Ok(inputs.iter().map(|input| Ok(*input)).collect())
        },
    )
}

fn sizes() -> Sizes {
    Box::leak(Box::default())
}

fn largest(sizes: Sizes) -> usize {
    let sizes = sizes.lock().expect("nothing panics under it");
    sizes.iter().copied().max().unwrap_or(0)
}

fn chosen(report: &RunReport) -> Vec<u64> {
    let sizes = report.producers.iter().map(|producer| producer.batch_size.as_ref());
    sizes.map(|size| size.expect("sizes are chosen").size).collect()
}

/// A batch of a fixed time is the better the larger it is.
#[test]
fn batches_and_the_window_grow_by_themselves() {
    let sizes = sizes();
    let mut pool =
        OrderedRunner::builder(noting(sizes)).devices(2).batch(Batch::auto()).build().unwrap();
    let (outputs, report) = pool.run_with_report(0..200_000);
    assert!(outputs.unwrap().into_iter().eq(0..200_000));
    assert!(largest(sizes) >= 256, "{:?}", sizes.lock().unwrap());
    assert_eq!(sizes.lock().unwrap()[0], 1);
    assert!(report.window >= 256, "{}", report.window);
    assert!(report.to_string().contains("Batch sizes: cpu: "), "{report}");
    let before = chosen(&report);
    sizes.lock().unwrap().clear();
    let (_, report) = pool.run_with_report(0..10);
    // A producer that got little of a processor may not have learned to take more than one.
    let learned = before.iter().zip(chosen(&report)).filter(|(before, _)| **before > 1);
    let kept: Vec<_> = learned.map(|(_, now)| now).collect();
    assert!(
        !kept.is_empty() && kept.iter().all(|now| *now > 1),
        "{before:?} was learned, {report}"
    );
}

#[test]
fn a_window_limits_the_sizes() {
    let sizes = sizes();
    let builder = OrderedRunner::builder(noting(sizes)).devices(2).batch(Batch::auto());
    let mut pool = builder.window(64).build().unwrap();
    assert!(pool.run(0..20_000).unwrap().into_iter().eq(0..20_000));
    assert!(largest(sizes) <= 16, "half of 64 for two producers");
    for window in [1, 2, 3] {
        let builder = AnyOrderRunner::builder(noting(sizes)).devices(3).batch(Batch::auto());
        assert_eq!(builder.window(window).build().unwrap().run(0..100).unwrap().len(), 100);
    }
}

#[test]
fn a_number_and_a_cost_limit_the_sizes() {
    let sizes = sizes();
    let batch = Batch::auto().at_most(24);
    let mut pool = OrderedRunner::builder(noting(sizes)).devices(1).batch(batch).build().unwrap();
    pool.run(0..20_000).unwrap();
    assert!(largest(sizes) <= 24);
    sizes.lock().unwrap().clear();
    let builder = OrderedRunner::builder(noting(sizes)).devices(1).batch(Batch::auto());
    let mut pool = builder.max_batch_cost(1_000_u64, |_| 100_u64).build().unwrap();
    pool.run(0..2_000).unwrap();
    assert!((2..=10).contains(&largest(sizes)), "{}", largest(sizes));
}

#[test]
fn a_device_without_memory_gets_what_fits() {
    let sizes = sizes();
    let device = Simulated::new(noting(sizes)).everywhere(Script::new().out_of_memory_above(41));
    let mut pool = OrderedRunner::builder(device).devices(1).batch(Batch::auto()).build().unwrap();
    let (outputs, report) = pool.run_with_report(0..20_000);
    assert!(outputs.unwrap().into_iter().eq(0..20_000));
    let choice = report.producers[0].batch_size.as_ref().unwrap();
    assert!((32..=41).contains(&choice.size), "{report}");
    assert_eq!(choice.bound, SizeBound::Memory);
    assert!(report.to_string().contains("(memory)"), "{report}");
}

#[test]
fn a_service_answers_all_calls() {
    for rule in [Batch::auto(), Batch::auto().latency(Duration::from_millis(20))] {
        let sizes = sizes();
        let builder = AnyOrderRunner::builder(noting(sizes)).devices(2).batch(rule);
        let service = builder.build().unwrap().into_service();
        std::thread::scope(|scope| {
            for caller in 0..32 {
                let calls = (0..100).map(move |call| caller * 100 + call);
                let service = &service;
                scope.spawn(move || {
                    for input in calls {
                        assert_eq!(service.call(input).unwrap(), input);
                    }
                });
            }
        });
        assert!(largest(sizes) > 1);
        assert!(chosen(&service.report()).iter().any(|size| *size > 1));
        service.close().unwrap();
    }
}
