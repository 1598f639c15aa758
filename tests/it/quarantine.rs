//! Devices that fail: deciding between item and producer, and runs that go on without them.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use gangline::{Batch, Device, Devices, Error, Hook, OnError, OrderedRunner, UnorderedRunner};

use crate::support::{Counter, map, no_hang, one_by_one};

#[test]
fn a_device_that_fails_at_everything_is_quarantined_and_its_items_go_elsewhere() {
    no_hang(|| {
        let tried = Arc::new(Counter::new());
        let needed = Arc::new(AtomicU64::new(3));
        let (count, least) = (tried.clone(), needed.clone());
        let broken = map(
            |_| Ok(()),
            move |cx, (), x: u64| match cx.producer() {
                0 => {
                    count.add(1);
                    Err("sticky".into())
                }
                _ => {
                    count.reach(least.load(SeqCst));
                    Ok(x)
                }
            },
        );
        let mut runner =
            OrderedRunner::builder(broken).devices(2).quarantine_after(3).build().unwrap();
        assert_eq!(runner.run(0..500).unwrap(), (0..500).collect::<Vec<_>>());
        assert_eq!(tried.get(), 3, "after three it takes nothing new");
        assert_eq!(runner.account().ok, 500);
        assert_eq!(runner.run(0..50).unwrap().len(), 50);
        assert_eq!(tried.get(), 3, "nor in the next run");
        runner.close().unwrap();
        runner.activate().unwrap();
        needed.store(6, SeqCst);
        assert_eq!(runner.run(0..500).unwrap().len(), 500);
        assert_eq!(tried.get(), 6, "it is given another chance");
    });
}

/// It fails everything, for all its producers; the others have nothing to do with it. How many of those are left, and
/// how many items they fail beyond the new ones that each may.
fn a_gpu_is_lost(devices: &str, lost: Device, quarantine_after: usize) -> (usize, u64) {
    let devices = devices.parse::<Devices>().unwrap().names_only();
    let on_it = devices.places().filter(|place| place.contains(&lost)).count();
    let tried = Arc::new(Counter::new());
    // The others begin when each producer on the lost device has reached its limit of failed items.
    let (count, enough) = (tried.clone(), on_it * quarantine_after);
    let work = map(
        |_| Ok(()),
        move |cx, (), x: u64| {
            if cx.devices().contains(&lost) {
                count.add(1);
                return Err("CUDA_ERROR_ILLEGAL_ADDRESS".into());
            }
            count.reach(enough as u64);
            Ok(x)
        },
    );
    let builder = OrderedRunner::builder(work).devices(&devices).window(100);
    let mut runner = builder.quarantine_after(quarantine_after).build().unwrap();
    assert_eq!(runner.run(0..500).unwrap(), (0..500).collect::<Vec<_>>(), "{devices}");
    let quarantined =
        runner.report().producers.iter().filter(|it| it.quarantined.is_some()).count();
    (on_it - quarantined, tried.get() - enough as u64)
}

#[test]
fn no_item_is_blamed_for_a_gpu_that_is_lost_to_several_producers() {
    no_hang(|| {
        for (devices, lost, quarantine_after) in [
            ("cuda:0,cuda:1*3", 1, 3),
            ("cuda:0*2,cuda:1*2", 0, 2),
            ("cuda:0*4,cpu", 0, 1),
            ("cuda:0+cuda:1,cpu*2,cuda:1*2", 1, 2),
        ] {
            let (left, again) = a_gpu_is_lost(devices, Device::Cuda(lost), quarantine_after);
            assert_eq!(left, 0, "{devices}");
            assert_eq!(again, 0, "they tried nothing that another had failed, on {devices}");
        }
        // Here it takes more tries to tell which of two GPUs it is.
        a_gpu_is_lost("cuda:0,cuda:0+cuda:1,cuda:1", Device::Cuda(0), 2);
        a_gpu_is_lost("cuda:2+cuda:0,cuda:0+cuda:1,cuda:1+cuda:2", Device::Cuda(1), 2);
    });
}

#[test]
fn an_item_that_fails_on_two_gpus_is_to_blame() {
    no_hang(|| {
        let devices = "cuda:0*2,cuda:1*2".parse::<Devices>().unwrap().names_only();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let list = seen.clone();
        let bad = map(
            |_| Ok(()),
            move |cx, (), x: u64| {
                if x != 40 {
                    return Ok(x);
                }
                list.lock().unwrap().push(*cx.device());
                Err("bad".into())
            },
        );
        let mut runner =
            OrderedRunner::builder(bad).devices(devices).quarantine_after(2).build().unwrap();
        for _ in 0..20 {
            let error = runner.run(0..100).unwrap_err();
            assert_eq!((error.item(), error.attempt()), (Some(40), Some(2)));
            let mut seen = std::mem::take(&mut *seen.lock().unwrap());
            seen.sort();
            assert_eq!(seen, [Device::Cuda(0), Device::Cuda(1)]);
        }
    });
}

#[test]
fn bad_items_cost_no_producer_its_place() {
    no_hang(|| {
        let bad =
            map(|_| Ok(()), |_, (), x: u64| if x % 10 < 4 { Err("bad".into()) } else { Ok(x) });
        let mut runner = UnorderedRunner::builder(bad)
            .devices(3)
            .on_error(OnError::Skip)
            .quarantine_after(2)
            .build()
            .unwrap();
        for _ in 0..20 {
            assert_eq!(runner.run(0..100).unwrap().len(), 60);
            assert_eq!(runner.account().failed, 40);
            assert_eq!(runner.failures().len(), 40);
            assert!(runner.failures().iter().all(|error| error.attempt() == Some(2)));
        }
    });
}

#[test]
fn an_item_that_fails_everywhere_stops_the_run() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), x: u64| if x == 7 { Err("bad".into()) } else { Ok(x) });
        let mut runner =
            OrderedRunner::builder(bad).devices(3).quarantine_after(2).build().unwrap();
        let error = runner.run(0..100).unwrap_err();
        assert_eq!((error.item(), error.attempt()), (Some(7), Some(2)));
        assert_eq!(runner.account().ok, 7);
    });
}

#[test]
fn one_producer_alone_is_never_quarantined() {
    no_hang(|| {
        let bad = map(|_| Ok(()), |_, (), x: u64| if x < 10 { Err("bad".into()) } else { Ok(x) });
        let mut runner = OrderedRunner::builder(bad)
            .devices(1)
            .on_error(OnError::Skip)
            .quarantine_after(2)
            .build()
            .unwrap();
        assert_eq!(runner.run(0..20).unwrap().len(), 10);
        assert!(runner.failures().iter().all(|error| error.attempt() == Some(1)));
    });
}

#[test]
fn a_device_that_fails_whole_batches_is_quarantined() {
    no_hang(|| {
        let broken = map(
            |_| Ok(()),
            |cx, (), x: u64| if cx.producer() == 1 { panic!("sticky") } else { Ok(x) },
        );
        let mut runner = OrderedRunner::builder(one_by_one(broken))
            .devices(3)
            .batch(Batch::up_to(8))
            .quarantine_after(2)
            .build()
            .unwrap();
        assert_eq!(runner.run(0..500).unwrap(), (0..500).collect::<Vec<_>>());
    });
}

#[test]
fn a_run_without_enough_producers_ends_and_says_so() {
    no_hang(|| {
        let tried = Counter::new();
        let broken = map(
            |_| Ok(()),
            move |cx, (), x: u64| match cx.producer() {
                0 => {
                    tried.add(1);
                    Err("sticky".into())
                }
                _ => {
                    tried.reach(2);
                    Ok(x)
                }
            },
        );
        let mut runner = OrderedRunner::builder(broken)
            .devices(2)
            .quarantine_after(2)
            .min_producers(2)
            .build()
            .unwrap();
        let error = runner.run(0..500).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 1, least: 2, .. }), "{error:#}");
        let error = runner.run(0..500).unwrap_err();
        assert!(matches!(error, Error::TooFewProducers { here: 1, least: 2, .. }), "{error:#}");
        runner.close().unwrap();
        runner.activate().unwrap();
        assert!(runner.is_active());
    });
}

#[test]
fn a_producer_that_is_not_ready_is_left_out_where_enough_are() {
    no_hang(|| {
        let init = |cx: &gangline::ProducerContext<'_>| {
            if cx.producer() == 1 { Err("no memory".into()) } else { Ok(()) }
        };
        let runner = map(init, |cx, (), x: u64| Ok((cx.producer(), x)));
        let mut runner =
            OrderedRunner::builder(runner).devices(2).min_producers(1).build().unwrap();
        let outputs = runner.run(0..20).unwrap();
        assert!(outputs.iter().all(|&(worker, _)| worker == 0));
        let all = map(init, |_, (), x: u64| Ok(x));
        let error = OrderedRunner::builder(all).devices(2).build().unwrap_err();
        assert_eq!((error.hook(), error.producer()), (Some(Hook::ProducerInit), Some(1)));
    });
}

#[test]
fn a_state_that_cannot_be_made_anew_costs_a_producer_and_not_the_run() {
    no_hang(|| {
        let inits = Arc::new(AtomicUsize::new(0));
        let runner = map(
            move |_| if inits.fetch_add(1, SeqCst) < 2 { Ok(()) } else { Err("gone".into()) },
            |cx, (), x: u64| {
                if x == 5 && cx.attempt() == 1 { panic!("dies") } else { Ok(x) }
            },
        );
        let mut runner =
            OrderedRunner::builder(runner).devices(2).retries(1).min_producers(1).build().unwrap();
        assert_eq!(runner.run(0..100).unwrap(), (0..100).collect::<Vec<_>>());
        assert_eq!(runner.run(10..100).unwrap().len(), 90, "the other one goes on");
    });
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let echo = || map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let error = OrderedRunner::builder(echo()).devices(2).quarantine_after(0).build().unwrap_err();
    assert!(error.to_string().contains("at least 1"), "{error}");
    for least in [0, 3] {
        let error =
            OrderedRunner::builder(echo()).devices(2).min_producers(least).build().unwrap_err();
        assert!(error.to_string().contains("between 1 and 2"), "{error}");
    }
}
