//! What devices can be made from, and what is refused with which words.

use std::error::Error as _;

use gangline::device::IntoDevices;
use gangline::error::DeviceError;
use gangline::{Device, Devices, OrderedRunner};
use proptest::prelude::*;

use crate::support::{map, no_hang};

/// The places in words of their own: devices joined by `+`, places apart by spaces.
fn places(devices: &Devices) -> String {
    let place =
        |place: &[Device]| place.iter().map(Device::to_string).collect::<Vec<_>>().join("+");
    devices.places().map(place).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn reads(text: &str, expected: &str) {
    let devices: Devices = text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(places(&devices), expected, "{text:?}");
    assert_eq!(devices.to_string().parse::<Devices>().ok(), Some(devices), "{text:?}");
}

#[track_caller]
fn refuses(devices: impl IntoDevices, expected: &str) {
    let error = devices.into_devices().expect_err(expected);
    assert_eq!(error.to_string(), expected);
}

#[test]
fn each_form_of_the_grammar() {
    reads("cpu", "cpu");
    reads("cpu*4", "cpu cpu cpu cpu");
    reads("cuda", "cuda:0");
    reads("cuda:1", "cuda:1");
    reads("metal", "metal:0");
    reads("metal:0", "metal:0");
    reads("cuda:0-3", "cuda:0 cuda:1 cuda:2 cuda:3");
    reads("metal:1-2", "metal:1 metal:2");
    reads("cuda:0*2", "cuda:0 cuda:0");
    reads("cuda:0+cuda:1", "cuda:0+cuda:1");
    reads("cuda:0,cpu*2,metal", "cuda:0 cpu cpu metal:0");
}

#[test]
fn ranges_first_then_joins_then_counts() {
    reads("cuda:0+cuda:1*2", "cuda:0+cuda:1 cuda:0+cuda:1");
    reads("cuda:0-1*2", "cuda:0 cuda:0 cuda:1 cuda:1");
    reads("cuda:0-1+cuda:2", "cuda:0+cuda:1+cuda:2");
    reads("cuda:0-1+cuda:4-5*2,cpu", "cuda:0+cuda:1+cuda:4+cuda:5 cuda:0+cuda:1+cuda:4+cuda:5 cpu");
}

#[test]
fn one_device_is_one_device() {
    reads("cuda:2-2", "cuda:2");
    reads("cpu*1", "cpu");
    reads("cpu,cpu", "cpu cpu");
    reads("cuda:1+cuda:0", "cuda:1+cuda:0");
}

#[test]
fn white_space_and_leading_zeros_mean_nothing() {
    reads(" cpu ", "cpu");
    reads("cuda : 0 - 1 * 2 ,\n\tcpu", "cuda:0 cuda:0 cuda:1 cuda:1 cpu");
    reads("cuda:0 + cuda:1", "cuda:0+cuda:1");
    reads("cuda:007,cpu*0002", "cuda:7 cpu cpu");
    reads("cpu\u{a0},\u{3000}cpu", "cpu cpu");
}

#[test]
fn canonical_text() {
    let written = |text: &str| text.parse::<Devices>().unwrap().to_string();
    assert_eq!(written("cpu,cpu,cpu"), "cpu*3");
    assert_eq!(written("cuda"), "cuda:0");
    assert_eq!(written("cuda:0-1*2"), "cuda:0*2,cuda:1*2");
    assert_eq!(
        written("cuda:0+cuda:1, cuda:0-1+cpu, cuda:0+cuda:1"),
        "cuda:0+cuda:1,cuda:0+cuda:1+cpu,cuda:0+cuda:1"
    );
    assert_eq!(written("cpu,cuda:0,cpu"), "cpu,cuda:0,cpu");
}

#[test]
fn nothing_is_refused() {
    let empty = "no devices; at least one is needed, as in cpu, cpu*4 or cuda:0";
    refuses("", empty);
    refuses(" \n", empty);
    refuses(0, empty);
    refuses([""; 0], empty);
    refuses(Vec::<Device>::new(), empty);
    refuses(["cpu", ""], empty);
}

#[test]
fn a_missing_part_is_refused() {
    let missing = |text| {
        let around = "one must stand around each comma, + and | and before *";
        refuses(text, &format!("a device is missing in {text:?}; {around}"));
    };
    for text in
        [",", ",,", "cpu,", ",cpu", "cpu,,cpu", "cpu, ,cpu", "+", "cpu+", "+cpu", "*2", "cpu,*"]
    {
        missing(text);
    }
}

#[test]
fn a_bad_count_is_refused() {
    let counts =
        ["cpu*0", "cpu*", "cpu*-1", "cpu*+1", "cpu*x", "cpu*1.5", "cpu*2*2", "cpu*2+cpu", "cpu*٣"];
    for text in counts {
        let allowed = "does not end in a number of producers from 1 to 65536, as cpu*4 does";
        refuses(text, &format!("{text:?} {allowed}"));
    }
}

#[test]
fn an_unknown_name_is_refused() {
    for text in ["cuda0", "cuda-1", ":", ":0", "-1", "ｃｐｕ", "cpu cpu", "cpu;cpu"] {
        let known = "known are cpu, cuda:N and metal:N, in lower case";
        refuses(text, &format!("unknown device {text:?}; {known}"));
    }
    refuses("cpu, gpu*2", r#"unknown device "gpu"; write cuda:0 or metal:0"#);
    for (text, instead) in [
        ("gpu:0", "cuda:0 or metal:0"),
        ("CPU", "cpu"),
        ("CUDA:0", "cuda:0"),
        ("Cuda", "cuda"),
        ("mps", "metal:0"),
        ("auto", "cuda:all, or cuda:all|cpu to allow the CPU"),
    ] {
        refuses(text, &format!("unknown device {text:?}; write {instead}"));
    }
}

#[test]
fn a_bad_index_is_refused() {
    let texts = [
        "cuda:",
        "cuda:-1",
        "cuda:x",
        "cuda:1-",
        "cuda:0-1-2",
        "cuda:0-all",
        "cuda:0:1",
        "cuda:1.0",
        "cuda:ALL",
        "cuda:99999999999999999999",
    ];
    for text in texts {
        refuses(
            text,
            &format!("{text:?} has no readable index; write cuda:0, cuda:0-3 or cuda:all"),
        );
    }
    refuses("metal:x", r#""metal:x" has no readable index; write metal:0, metal:0-3 or metal:all"#);
}

#[test]
fn an_index_for_the_cpu_is_refused() {
    for text in ["cpu:0", "cpu:4", "cpu:", "cpu:0-3", "cpu:all"] {
        let allowed = "cpu takes none; write cpu, or cpu*N for N producers on it";
        refuses(text, &format!("{text:?} has an index, and {allowed}"));
    }
}

#[test]
fn a_backward_range_is_refused() {
    refuses("cuda:3-1", r#"the range "cuda:3-1" runs backwards; write cuda:1-3"#);
    refuses("cpu,metal:1-0+cpu", r#"the range "metal:1-0" runs backwards; write metal:0-1"#);
}

#[test]
fn an_index_without_its_kind_is_refused() {
    let no_kind = |text, bare, instead| {
        let error = format!("{bare:?} does not say which kind of device it is; write {instead}");
        refuses(text, &error);
    };
    no_kind("cuda:0,1", "1", "cuda:0,cuda:1");
    no_kind("cuda:0, 1,2-3 *2", "1", "cuda:0,cuda:1,cuda:2-3 *2");
    no_kind("metal:0+1", "1", "metal:0+metal:1");
    no_kind("0,1", "0", "cuda:0,cuda:1");
    no_kind("3", "3", "cpu*3 or cuda:3");
    no_kind("0", "0", "cuda:0");
    no_kind("1,\u{1b}[31m", "1", r"cuda:1,\u{1b}[31m");
}

#[test]
fn a_device_twice_in_one_place_is_refused() {
    let twice = "cuda:1 stands twice in one place; for two producers on it write cuda:1*2";
    refuses("cuda:1+cuda:1", twice);
    refuses("cuda:0-2+cuda:1", twice);
    refuses("cpu+cpu", "cpu stands twice in one place; for two producers on it write cpu*2");
    let places = Devices::from_places([vec![Device::Cuda(1), Device::Cpu, Device::Cuda(1)]]);
    assert_eq!(places.unwrap_err().to_string(), twice);
}

#[test]
fn too_many_places_are_refused() {
    let too_many = |devices: &str, least| {
        let error = format!("devices for {least} producers or more; at most 65536 are allowed");
        refuses(devices, &error);
    };
    reads("cuda:0-65535", &(0..65_536).map(|n| format!("cuda:{n}")).collect::<Vec<_>>().join(" "));
    too_many("cuda:0-65536", "65537");
    too_many("cuda:0-18446744073709551615", "18446744073709551615");
    too_many("cpu*65537", "65537");
    too_many("cpu,cpu*65536", "65537");
    too_many("cpu*99999999999999", "99999999999999");
    too_many("cpu*99999999999999999999999999", "18446744073709551615");
    too_many("cuda:0-65535*65536,cpu", "4294967296");
    refuses(70_000, "devices for 70000 producers or more; at most 65536 are allowed");
    refuses(["cpu*65536", "cpu"], "devices for 65537 producers or more; at most 65536 are allowed");
    refuses(
        vec![Device::Cpu; 70_000],
        "devices for 65537 producers or more; at most 65536 are allowed",
    );
    let endless = Devices::from_places(std::iter::repeat(vec![Device::Cpu])).unwrap_err();
    assert_eq!(
        endless.to_string(),
        "devices for 65537 producers or more; at most 65536 are allowed"
    );
}

#[test]
fn the_most_places_are_taken() {
    assert_eq!(65_536.into_devices().unwrap().len(), 65_536);
    assert_eq!("cuda:0+cpu*65536".parse::<Devices>().unwrap().to_string(), "cuda:0+cpu*65536");
}

#[test]
fn too_many_devices_in_one_place_are_refused() {
    let too_many = |text, least| {
        let error = format!("{least} devices or more in one place; at most 256 are allowed");
        refuses(text, &error);
    };
    too_many("cuda:0-255+cpu", "257");
    too_many("cpu+cuda:0-18446744073709551615", "18446744073709551615");
    let place = (0..257).map(Device::Cuda).collect();
    let error = Devices::from_places([place]).unwrap_err().to_string();
    assert_eq!(error, "257 devices or more in one place; at most 256 are allowed");
    assert!("cuda:0-254+cpu".parse::<Devices>().is_ok());
}

#[test]
fn places_without_devices_are_refused() {
    let error = Devices::from_places([vec![Device::Cpu], vec![]]).unwrap_err();
    assert_eq!(error.to_string(), "a place without devices; each needs at least one");
    assert!(Devices::from_places([]).is_err());
}

#[test]
#[cfg(not(feature = "cuda"))]
fn all_needs_the_feature() {
    let advice = "as a mere name for the hooks, take it with `Devices::names_only`";
    refuses("cuda:all", &format!("cuda:all needs a build with the feature `cuda`; {advice}"));
    refuses(
        "cpu,cuda:all+cpu*2",
        &format!("cuda:all needs a build with the feature `cuda`; {advice}"),
    );
}

#[test]
fn the_error_is_typed_and_said_once() {
    let error = "gpu".parse::<Devices>().unwrap_err();
    assert!(matches!(&error, DeviceError::Unknown { text, .. } if text == "gpu"));
    assert!(error.source().is_none());
    assert_eq!(format!("{error:#}"), error.to_string());
}

#[test]
#[expect(clippy::needless_borrows_for_generic_args, reason = "references are what is tested")]
fn every_kind_of_value_is_taken() {
    #[track_caller]
    fn takes(devices: impl IntoDevices, expected: &str) {
        assert_eq!(devices.into_devices().unwrap().to_string(), expected);
    }
    takes(3, "cpu*3");
    takes(&3, "cpu*3");
    takes("cpu*2", "cpu*2");
    takes(&"cuda:1", "cuda:1");
    takes(String::from("cuda:1"), "cuda:1");
    takes(&String::from("cuda:1"), "cuda:1");
    takes(Device::Cuda(1), "cuda:1");
    takes(&Device::Cuda(1), "cuda:1");
    let devices: Devices = "cuda:0+cpu".parse().unwrap();
    takes(&devices, "cuda:0+cpu");
    takes(devices, "cuda:0+cpu");
    takes(["cpu*2", "cuda:0"], "cpu*2,cuda:0");
    takes(&["cuda:0,cuda:1", "cuda:1"], "cuda:0,cuda:1*2");
    takes(&["cpu", "cpu"][..], "cpu*2");
    takes(vec!["cpu"], "cpu");
    takes(&vec![String::from("cpu")], "cpu");
    takes([String::from("cpu")], "cpu");
    takes(["cpu", "cuda"].iter().collect::<Vec<&&str>>(), "cpu,cuda:0");
    takes([Device::Cpu, Device::Metal(2)], "cpu,metal:2");
    takes(&[Device::Cpu][..], "cpu");
    takes(vec![Device::Cuda(0); 2], "cuda:0*2");
}

#[test]
fn labels_survive_being_passed_on() {
    let labels = "cuda:5".parse::<Devices>().unwrap().names_only();
    assert!(labels.clone().into_devices().unwrap().is_labels());
    assert!((&labels).into_devices().unwrap().is_labels());
    assert_eq!(format!("{labels:?}"), "Labels(cuda:5)");
    assert_eq!(labels, "cuda:5".parse().unwrap());
    assert!(!labels.to_string().parse::<Devices>().unwrap().is_labels());
}

#[test]
fn one_device_as_text() {
    let reads = |text: &str| text.parse::<Device>().map_err(|error| error.to_string());
    assert_eq!(reads("cpu"), Ok(Device::Cpu));
    assert_eq!(reads(" cuda "), Ok(Device::Cuda(0)));
    assert_eq!(reads("metal:3"), Ok(Device::Metal(3)));
    for text in
        ["cpu*2", "cuda:0,cuda:1", "cuda:0+cuda:1", "cuda:0-1", "cuda:0-0", "cuda:all", "", " "]
    {
        let error = format!("{text:?} is not one device; one is cpu, cuda:N or metal:N");
        assert_eq!(reads(text), Err(error));
    }
    for text in ["gpu", "cpu:0", "cuda:-1", "cuda:1-0", "0"] {
        assert!(reads(text).is_err(), "{text:?}");
    }
}

#[test]
fn serde_is_the_text() {
    let devices: Devices = "cuda:0-1,cpu*2".parse().unwrap();
    let json = serde_json::to_string(&devices).unwrap();
    assert_eq!(json, r#""cuda:0,cuda:1,cpu*2""#);
    assert_eq!(serde_json::from_str::<Devices>(&json).unwrap(), devices);
    assert_eq!(serde_json::to_string(&Device::Cuda(1)).unwrap(), r#""cuda:1""#);
    assert_eq!(serde_json::from_str::<Device>(r#""cpu""#).unwrap(), Device::Cpu);
    let error = serde_json::from_str::<Devices>(r#""gpu""#).unwrap_err().to_string();
    assert!(error.starts_with(r#"unknown device "gpu"; write cuda:0"#), "{error}");
}

#[test]
fn available_is_never_empty() {
    let devices = Devices::available();
    assert!(!devices.is_empty());
    assert_eq!(devices.to_string().parse::<Devices>().unwrap(), devices);
}

fn device() -> impl Strategy<Value = Device> {
    prop_oneof![
        Just(Device::Cpu),
        (0..9usize).prop_map(Device::Cuda),
        any::<usize>().prop_map(Device::Metal),
    ]
}

/// Places as users make them: different devices in each, equal neighbours often.
fn some_places() -> impl Strategy<Value = Vec<Vec<Device>>> {
    let place =
        proptest::collection::btree_set(device(), 1..4).prop_map(Vec::from_iter).prop_shuffle();
    let run = (place, 1..4usize).prop_map(|(place, count)| vec![place; count]);
    proptest::collection::vec(run, 1..6).prop_map(|runs| runs.concat())
}

/// Texts of the words and signs of the grammar, in any order.
fn near_grammar() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "cpu",
        "cuda",
        "metal",
        "all",
        ":",
        ":",
        "-",
        "+",
        ",",
        ",",
        "*",
        " ",
        "0",
        "1",
        "7",
        "65536",
        "99999999999999999999",
    ];
    proptest::collection::vec(proptest::sample::select(WORDS), 0..16)
        .prop_map(|words| words.concat())
}

fn reads_within_bounds_or_refuses(text: &str) -> Result<(), TestCaseError> {
    if let Ok(devices) = text.parse::<Devices>() {
        prop_assert!((1..=65_536).contains(&devices.len()));
        prop_assert!(devices.places().all(|place| (1..=256).contains(&place.len())));
        prop_assert_eq!(devices.to_string().parse::<Devices>().ok(), Some(devices));
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_written_reads_back(places in some_places()) {
        let devices = Devices::from_places(places.clone()).unwrap();
        prop_assert_eq!(devices.places().map(<[_]>::to_vec).collect::<Vec<_>>(), places);
        prop_assert_eq!(&devices.to_string().parse::<Devices>().unwrap(), &devices);
        let json = serde_json::to_string(&devices).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Devices>(&json).unwrap(), &devices);
    }

    #[test]
    fn one_device_reads_back(device in device()) {
        prop_assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        prop_assert_eq!(device.to_string().into_devices().unwrap(), device.into_devices().unwrap());
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        reads_within_bounds_or_refuses(&text)?;
    }

    #[test]
    fn texts_near_the_grammar_are_read_or_refused(text in near_grammar()) {
        reads_within_bounds_or_refuses(&text)?;
    }

    #[test]
    fn counts_multiply(first in 0..50usize, more in 0..50usize, count in 1..50usize) {
        let text = format!("cuda:{first}-{}*{count}", first + more);
        let expected = (first..=first + more).flat_map(|n| vec![vec![Device::Cuda(n)]; count]);
        prop_assert_eq!(text.parse::<Devices>().unwrap(), Devices::from_places(expected).unwrap());
    }
}

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
fn the_number_of_cores_is_a_number_of_producers() {
    let cores = std::thread::available_parallelism().unwrap();
    let pool = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), cores).unwrap();
    assert_eq!(pool.devices().len(), cores.get());
}
