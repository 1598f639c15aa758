//! Runs in tests of users with `#[tracing_test::traced_test]`, which gives all of them one subscriber.

use gangline::{OnError, OrderedRunner, Runner, map};
use tracing_test::traced_test;

fn loud() -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> {
    map(
        |_| Ok(()),
        |_, (), x: u64| {
            tracing::info!("works on {x}");
            if x == 3 { Err("three".into()) } else { Ok(x) }
        },
    )
}

#[traced_test]
#[test]
fn a_run_is_logged() {
    let mut pool =
        OrderedRunner::builder(loud()).devices(2).on_error(OnError::Skip).build().unwrap();
    assert_eq!(pool.run([1, 3]).unwrap(), [1]);
    assert!(logs_contain("works on 1"));
    assert!(logs_contain("an item failed"));
    assert!(!logs_contain("works on 7"), "that is another test's");
}

#[traced_test]
#[test]
fn outputs_are_logged() {
    let pool = OrderedRunner::new(loud(), 1).unwrap();
    let outputs: Result<Vec<_>, _> = pool.into_outputs([7, 8]).collect();
    assert_eq!(outputs.unwrap(), [7, 8]);
    assert!(logs_contain("works on 7"));
}

#[traced_test]
#[test]
fn a_pipeline_and_a_service_are_logged() {
    let pool = || OrderedRunner::new(loud(), 1).unwrap();
    assert_eq!(pool().then(pool()).run([4]).unwrap(), [4]);
    assert_eq!(pool().into_service().call(5).unwrap(), 5);
    logs_assert(|lines| {
        let count = |text| lines.iter().filter(|line| line.contains(text)).count();
        match (count("works on 4"), count("works on 5")) {
            (2, 1) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

#[traced_test]
#[tokio::test]
async fn a_call_of_async_code_is_logged() {
    let service = OrderedRunner::new(loud(), 1).unwrap().into_service();
    assert_eq!(service.call_async(6).await.unwrap(), 6);
    assert!(logs_contain("works on 6"));
}

#[test]
fn a_test_without_it_runs_beside_them() {
    let mut pool = OrderedRunner::new(loud(), 2).unwrap();
    assert_eq!(pool.run([1, 2]).unwrap(), [1, 2]);
}
