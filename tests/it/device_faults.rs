//! Devices that cannot be used, or that are lost. What a list of devices may say is in `devices`; that an index is not
//! there (`cuda:7` of two), and which of several alternatives is used, is tested beside `Devices`, on machines that are
//! made up. That a device to fall back to is logged is in `warnings`.

use std::sync::Barrier;

use gangline::{AnyOrderRunner, Error, Hook, Order};

use crate::hooks::both_orders;
use crate::probe::{Fault, Probe, check_afterwards, check_summary};
use crate::support::Counter;

both_orders!(
    a_gpu_that_this_build_cannot_use_is_refused_before_anything_starts,
    a_list_that_cannot_be_read_is_refused_before_anything_starts,
    a_device_to_fall_back_to_is_used_where_it_is_asked_for_and_told_once,
    all_devices_lost_fails_the_next_run_and_not_the_one_after,
    a_device_twice_is_two_producers,
    no_device_is_an_error,
);

#[track_caller]
fn refused(devices: &str, order: Order) -> Error {
    let probe = Probe::new();
    let tally = probe.tally();
    let error = AnyOrderRunner::builder(probe).devices(devices).order(order).build().unwrap_err();
    assert!(matches!(error, Error::Devices { .. }), "{error:#}");
    assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
    tally.check_closed();
    error
}

#[track_caller]
fn refused_with(devices: &str, order: Order, expected: &str) {
    assert_eq!(format!("{:#}", refused(devices, order)), expected, "{devices:?}");
}

#[cfg(not(feature = "cuda"))]
fn a_gpu_that_this_build_cannot_use_is_refused_before_anything_starts(order: Order) {
    for (devices, first) in
        [("cuda:0", "cuda:0"), ("cpu,cuda:0", "cuda:0"), ("cpu+cuda:1", "cuda:1")]
    {
        let feature = "needs a build with the feature `cuda`; \
                       as a mere name for the hooks, take it with `Devices::names_only`";
        refused_with(devices, order, &format!("{first} {feature}"));
    }
}

#[cfg(feature = "cuda")]
fn a_gpu_that_this_build_cannot_use_is_refused_before_anything_starts(order: Order) {
    let text = format!("{:#}", refused("cuda:60000", order));
    assert!(text.contains("cuda"), "{text}");
}

fn a_list_that_cannot_be_read_is_refused_before_anything_starts(order: Order) {
    let refused_with = |devices, expected| refused_with(devices, order, expected);
    refused_with(
        "cuda:-1",
        r#""cuda:-1" has no readable index; write cuda:0, cuda:0-3 or cuda:all"#,
    );
    refused_with("gpu", r#"unknown device "gpu"; write cuda:0 or metal:0"#);
    refused_with("cuda:0,1", r#""1" does not say which kind of device it is; write cuda:0,cuda:1"#);
    refused_with("", "no devices; at least one is needed, as in cpu, cpu*4 or cuda:0");
    refused_with(
        "cpu*0",
        r#""cpu*0" does not end in a number of producers from 1 to 65536, as cpu*4 does"#,
    );
    refused_with(
        "cpu,",
        r#"a device is missing in "cpu,"; one must stand around each comma, + and | and before *"#,
    );
}

fn a_device_to_fall_back_to_is_used_where_it_is_asked_for_and_told_once(order: Order) {
    let probe = Probe::new();
    let tally = probe.tally();
    let builder = AnyOrderRunner::builder(probe).order(order);
    let mut runner = builder.devices("cuda:60000|cpu*2,cuda:60000|cpu*2").build().unwrap();
    assert_eq!(tally.called(Hook::ProducerInit).get(), 4);
    runner.run(tally.input(0..20)).unwrap();
    let report = runner.report();
    let [told] = &report.fallbacks[..] else { panic!("{:?}", report.fallbacks) };
    assert!(told.starts_with("\"cuda:60000|cpu*2\" came to cpu*2, since "), "{told}");
    let text = report.to_string().replace('\n', " ");
    assert!(text.contains(&format!("devices: {told}")), "{report}");
    runner.close().unwrap();
    tally.check_closed();
    let probe = Probe::new();
    let several = AnyOrderRunner::builder(probe).order(order).devices(["cuda:60000|cpu*2", "cpu"]);
    let mut several = several.build().unwrap();
    several.run([]).unwrap();
    assert_eq!(&several.report().fallbacks, &report.fallbacks);
    refused_with(
        "cuda:60000|cpu*0",
        order,
        r#""cpu*0" does not end in a number of producers from 1 to 65536, as cpu*4 does"#,
    );
}

/// Each state is lost to a panic, and none can be rebuilt as long as the fault lasts.
fn all_devices_lost_fails_the_next_run_and_not_the_one_after(order: Order) {
    let inits = Counter::new();
    let all = std::sync::Barrier::new(3);
    let probe = Probe::new()
        .on_producer(Hook::ProducerInit, move |_| match inits.add(1) {
            ..=3 => Ok(()),
            _ => Fault::Error.strike(),
        })
        .on_producer(Hook::ProducerWork, move |_| {
            all.wait();
            Fault::Panic.strike()
        });
    let mut runner = probe.on_three(order);
    let tally = runner.runner().tally();
    let error = runner.run(tally.input(0..3)).unwrap_err();
    assert_eq!((error.hook(), error.is_panic()), (Some(Hook::ProducerWork), true));
    for _ in 0..3 {
        let error = runner.run(tally.input(0..20)).unwrap_err();
        Fault::Error.check(&error, Hook::ProducerInit, None);
        assert_eq!(tally.pulled.get(), 3, "nothing is pulled");
        tally.check_account(runner.account());
    }
    check_afterwards(runner);
}

fn a_device_twice_is_two_producers(order: Order) {
    let both = Barrier::new(2);
    let probe = Probe::new().on_producer(Hook::ProducerWork, move |cx| {
        assert_eq!(cx.device(), cx.devices().first().unwrap());
        if cx.item() < Some(2) {
            both.wait();
        }
        Ok(())
    });
    let mut runner =
        AnyOrderRunner::builder(probe).devices(["cpu", "cpu"]).order(order).build().unwrap();
    assert_eq!(runner.devices().len(), 2);
    let tally = runner.runner().tally();
    check_summary(runner.run(tally.input(0..20)).unwrap(), 0..20, order);
    assert_eq!(tally.called(Hook::ProducerInit).get(), 2);
    check_afterwards(runner);
}

fn no_device_is_an_error(order: Order) {
    let probe = Probe::new();
    let tally = probe.tally();
    let error = AnyOrderRunner::builder(probe).devices(0).order(order).build().unwrap_err();
    assert!(matches!(error, gangline::Error::Devices { .. }), "{error:#}");
    assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
    assert!(AnyOrderRunner::builder(Probe::new()).devices("").order(order).build().is_err());
}
