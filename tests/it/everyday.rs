//! What users ask of a pool beside its results: how many producers, how many results, what made them.

use std::time::Duration;

use gangline::{Devices, OnError, OrderedRunner};

use crate::support::{map, no_hang};

#[test]
fn a_hook_knows_how_many_producers_there_are() {
    no_hang(|| {
        // Each producer has a share of what is in no input.
        let shard = map(
            |cx| Ok((0..10).filter(|n| n % cx.producers() == cx.producer()).sum::<usize>()),
            |cx, sum: &mut usize, _: u64| Ok((cx.producer(), cx.producers(), *sum)),
        );
        let mut pool = OrderedRunner::new(shard, 3).unwrap();
        for (producer, producers, sum) in pool.run(0..50).unwrap() {
            assert_eq!(producers, 3);
            assert_eq!(sum, [18, 12, 15][producer]);
        }
    });
}

#[test]
fn outputs_know_how_many_may_come() {
    no_hang(|| {
        let mut same = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 2).unwrap();
        let mut outputs = same.outputs(0..10);
        for left in (0..10).rev() {
            assert_eq!(outputs.size_hint(), (0, Some(left + 1)));
            outputs.next().unwrap().unwrap();
        }
        assert!(outputs.next().is_none());
        assert_eq!(outputs.size_hint(), (0, Some(0)));
        drop(outputs);
        assert_eq!(same.outputs((0..9).filter(|x| x % 3 == 0)).size_hint(), (0, Some(9)));
        assert_eq!(same.outputs(std::iter::from_fn(|| None)).size_hint(), (0, None));
        let mut endless = same.outputs(1..);
        endless.next().unwrap().unwrap();
        assert_eq!(endless.size_hint().0, 0);
        drop(endless);
        same.close().unwrap();
        let mut refused = same.outputs(0..10);
        assert_eq!(refused.size_hint(), (1, Some(1)));
        assert!(refused.next().unwrap().unwrap_err().is_closed());
        assert_eq!(refused.size_hint(), (0, Some(0)));
    });
}

#[test]
fn an_error_that_ends_the_outputs_leaves_none() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), x: u64| if x == 1 { Err("bad".into()) } else { Ok(x) });
        let mut bad = OrderedRunner::new(bad, 1).unwrap();
        let mut outputs = bad.outputs(0..10);
        outputs.next().unwrap().unwrap();
        outputs.next().unwrap().unwrap_err();
        assert_eq!(outputs.size_hint(), (0, Some(0)));
    });
}

#[test]
fn a_result_says_where_and_how_long_it_was_worked_on() {
    no_hang(|| {
        let work = map(
            |_| Ok(()),
            |_, (), x: u64| {
                std::thread::sleep(Duration::from_millis(x));
                if x == 2 { Err("bad".into()) } else { Ok(x) }
            },
        );
        let devices: Devices = "cuda:1".parse().unwrap();
        let builder = OrderedRunner::builder(work.results()).devices(devices.names_only());
        let results = builder.on_error(OnError::Skip).build().unwrap().run([3, 2]).unwrap();
        for result in &results {
            assert_eq!(result.producer, Some(0));
            assert_eq!(result.device.unwrap().to_string(), "cuda:1");
        }
        assert!(results[0].took.unwrap() >= Duration::from_millis(3));
        assert_eq!(results[1].took, None);
    });
}

#[test]
fn the_number_of_cores_is_a_number_of_producers() {
    let cores = std::thread::available_parallelism().unwrap();
    let pool = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), cores).unwrap();
    assert_eq!(pool.devices().len(), cores.get());
}
