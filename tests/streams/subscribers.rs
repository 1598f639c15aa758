//! Where what a run logs goes to, whichever way it is driven. No test of this program has a subscriber for all threads.

use std::thread;

use gangline::{OnError, Pipeline, map};

use crate::drivers::{Driver, Line, Ran, Shape, every_driver};
use crate::hooks::Hooks;
use crate::log::Log;

every_driver!(
    a_run_logs_to_the_subscriber_of_its_caller,
    a_run_without_a_subscriber_logs_nothing,
    runs_at_the_same_time_log_to_their_own_subscribers,
    a_pool_built_without_a_subscriber_logs_its_runs,
);

/// Hooks that say that they are called, and fail at item 3.
fn line(shape: Shape) -> Line {
    let hooks = |_| {
        Hooks::new()
            .init(|_| {
                tracing::info!("init");
                Ok(())
            })
            .work(|_, x| {
                tracing::info!("work");
                if x == 3 { Err("three".into()) } else { Ok(x) }
            })
            .consume(|_, _| {
                tracing::info!("consume");
                Ok(())
            })
            .end(|_| {
                tracing::info!("end");
                Ok(())
            })
    };
    shape.line(hooks, |_, it| it.on_error(OnError::Skip), || ())
}

/// Drives ten items in the span `caller`.
fn drive(line: &mut Line) -> Ran {
    tracing::info_span!("caller")
        .in_scope(|| line.drive((0..10).inspect(|_| tracing::info!("pull"))))
}

const SPANS: [&str; 3] = ["caller", "caller>run", "caller>run>attempt"];

/// Checks the lines of a run, and that there are no others.
fn assert_logged(log: &Log, shape: Shape) {
    let Shape { driver, stages, .. } = shape;
    // Item 3 fails in the first stage.
    let works = 10 + 9 * (stages - 1);
    let is_elsewhere = matches!(driver, Driver::IntoOutputs);
    let pull = if is_elsewhere { "caller>run: pull" } else { "caller: pull" };
    let has_consumer =
        matches!(driver, Driver::Run | Driver::TryRun | Driver::OwnedRun | Driver::RunStream);
    let expected = [
        (SPANS[0], 1),
        (SPANS[1], stages),
        (SPANS[2], works),
        ("caller>run>attempt: work", works),
        ("caller>run: consume", if has_consumer { 9 } else { 0 }),
        (pull, 10),
    ];
    for (line, count) in expected {
        assert_eq!(log.count(line), count, "{line} of {shape:?} in {:#?}", log.others(&[]));
    }
    let failed = ["caller>run: an item failed", "caller: an item failed"];
    assert_eq!(failed.map(|it| log.count(it)).iter().sum::<usize>(), 1, "{:#?}", log.others(&[]));
    let told = ["caller: a run starts", "caller: a run has ended"];
    let known = [&expected.map(|(line, _)| line)[..], &failed, &told].concat();
    assert_eq!(log.others(&known), [""; 0], "{shape:?}");
}

fn a_run_logs_to_the_subscriber_of_its_caller(shape: Shape) {
    let [build, first, second, close] = [(); 4].map(|()| Log::new());
    let mut line = build.scope(|| line(shape));
    for run in [&first, &second] {
        run.scope(|| drive(&mut line));
        assert_logged(run, shape);
    }
    assert_eq!(build.count(": init"), shape.stages);
    let built = build.others(&[": init"]);
    assert_eq!(built, [""; 0], "nothing of a run");
    for pool in &mut line.pools {
        close.scope(|| pool.close()).unwrap();
    }
    let closed = line.pools.len();
    drop(line);
    assert_eq!(close.count(": end"), closed);
    assert_eq!(build.count(": end"), shape.stages - closed, "those that are only dropped");
}

fn a_run_without_a_subscriber_logs_nothing(shape: Shape) {
    let build = Log::new();
    let mut line = build.scope(|| line(shape));
    drive(&mut line);
    assert_eq!(build.others(&[": init"]), [""; 0]);
}

fn runs_at_the_same_time_log_to_their_own_subscribers(shape: Shape) {
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let log = Log::new();
                let mut line = line(shape);
                log.scope(|| drive(&mut line));
                assert_logged(&log, shape);
            });
        }
    });
}

fn a_pool_built_without_a_subscriber_logs_its_runs(shape: Shape) {
    let mut line = line(shape);
    let run = Log::new();
    run.scope(|| drive(&mut line));
    assert_logged(&run, shape);
    drop(line);
    assert_eq!(run.count(": end"), 0);
}

/// The functions between stages are called on threads of their own.
#[test]
fn functions_that_expand_and_gather_log_in_the_run() {
    let log = Log::new();
    let pool = || gangline::OrderedRunner::new(Hooks::new(), 1).unwrap();
    let sums = map(|_| Ok(()), |_, (), (_, sum): (std::sync::Arc<u64>, u64)| Ok(sum));
    let last = gangline::OrderedRunner::new(sums, 1).unwrap();
    let mut all = Pipeline::new(pool())
        .expand(|parent| {
            tracing::info!("expand");
            0..**parent
        })
        .then(pool())
        .gather(
            |_| 0,
            |sum, _, _, part| {
                tracing::info!("gather");
                *sum += part;
            },
        )
        .then(last);
    let sums = log.scope(|| tracing::info_span!("caller").in_scope(|| all.run(1..4)));
    assert_eq!(sums.unwrap(), [0, 1, 3]);
    assert_eq!(log.count("caller>run: expand"), 3, "{:#?}", log.others(&[]));
    assert_eq!(log.count("caller>run: gather"), 6, "{:#?}", log.others(&[]));
}
