//! Lists of GPUs: what Scipion takes is read, what it misreads is refused, and workers get of them
//! what Scipion's classes give.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use gangline::error::DeviceError;
use gangline::gpu::GpuList;
use gangline::{AnyOrderRunner, CfgNode, Device, Devices, Error, Order, OrderedRunner};
use proptest::prelude::*;

use crate::support::{map, no_hang};

#[track_caller]
pub(crate) fn list(text: &str) -> GpuList {
    text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
}

#[track_caller]
fn reads(text: &str, expected: &[usize]) {
    let one_by_one = expected.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(list(text), list(&one_by_one), "{text:?}");
    assert_eq!(list(text).len(), expected.len(), "{text:?}");
    assert_eq!(list(text).is_empty(), expected.is_empty(), "{text:?}");
    assert_eq!(list(&list(text).to_string()), list(text), "{text:?}");
}

#[track_caller]
fn refuses(text: &str, expected: &str) {
    assert_eq!(text.parse::<GpuList>().expect_err(text).to_string(), expected);
}

/// Places in brackets, each GPU by its id.
fn written(devices: &Devices) -> String {
    let id = |device: &Device| match device {
        Device::Cuda(index) => index.to_string(),
        device => device.to_string(),
    };
    let place = |place: &[Device]| place.iter().map(id).collect::<Vec<_>>().join(",");
    devices.places().map(|devices| format!("[{}]", place(devices))).collect::<Vec<_>>().join(" ")
}

fn outcome(devices: Result<Devices, DeviceError>) -> String {
    devices.map_or_else(|error| error.to_string(), |devices| written(&devices))
}

/// A row of the table: Scipion's workers and list, and what both modes give.
#[track_caller]
fn maps(workers: usize, gpus: &str, shared: &str, slots: &str) {
    assert_eq!(outcome(list(gpus).share(workers)), shared, "{gpus:?} shared by {workers}");
    assert_eq!(outcome(list(gpus).slots(workers)), slots, "slots of {gpus:?} for {workers}");
}

#[test]
fn what_scipion_takes() {
    reads("0", &[0]);
    reads("0 1", &[0, 1]);
    reads("0,1", &[0, 1]);
    reads("0, 1", &[0, 1]);
    reads("0\t1\n2\r\n", &[0, 1, 2]);
    reads(" 0 1 ", &[0, 1]);
    reads("0,,1", &[0, 1]);
    reads("1,5-8,10", &[1, 5, 6, 7, 8, 10]);
    reads("2 5, 6-8", &[2, 5, 6, 7, 8]);
    reads("0-3", &[0, 1, 2, 3]);
    reads("0-0", &[0]);
    reads("0 0 1 1", &[0, 0, 1, 1]);
    reads("00 01", &[0, 1]);
    reads("", &[]);
    reads("  ", &[]);
    reads(" , ", &[]);
    reads("0 99 1", &[0, 99, 1]);
}

#[test]
fn ranges_that_scipion_misreads_are_refused() {
    refuses("3-0", r#"the range "3-0" runs backwards; write 0-3"#);
    refuses("0 12-7", r#"the range "12-7" runs backwards; write 7-12"#);
    refuses("0-1-2", &no_gpu("0-1-2"));
}

fn no_gpu(part: &str) -> String {
    format!(
        "{part:?} is no GPU of a list; write ids as in 0 1, ranges without spaces as in 0-3, \
         UUIDs as in GPU-8932f937, or all"
    )
}

#[test]
fn what_is_no_gpu_is_refused_by_its_part() {
    for part in ["0;1", "a", "-1", "1.0", "cuda:0", "ALL", "2x3", "1-", "-", "+1", "1_0", "٣"] {
        refuses(part, &no_gpu(part));
        refuses(&format!("0, {part} 1"), &no_gpu(part));
    }
    refuses("0 - 3", &no_gpu("-"));
    refuses("99999999999999999999", &no_gpu("99999999999999999999"));
    refuses("\u{1b}[31m", &no_gpu("\u{1b}[31m"));
}

#[test]
fn uuids_are_kept() {
    let uuids = [
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "GPU-8932f937",
        "MIG-4f1c2d3e-d72c-4106-c12f-20bd9faed9f6",
        "MIG-GPU-8932f937-d72c-4106-c12f-20bd9faed9f6/1/12",
    ];
    for uuid in uuids {
        assert_eq!(list(uuid).to_string(), uuid);
    }
    assert_eq!(list("0 1 GPU-8932f937, 2").to_string(), "0-1,GPU-8932f937,2");
    assert_ne!(list("GPU-8932f937"), list("GPU-8932f938"));
}

#[test]
fn what_is_no_uuid_is_refused() {
    let long = format!("GPU-{}", "0".repeat(37));
    let parts = [
        "GPU-",
        "MIG-",
        "GPU--1",
        "GPU-xyz",
        "gpu-8932f937",
        "GPU-8932/1/2",
        "MIG-GPU-8932f937",
        "MIG-GPU-8932f937/1",
        "MIG-GPU-8932f937/1/",
        "MIG-GPU-8932f937/1/2/3",
        "MIG-8932f937/1/2",
        "GPU-0;reboot",
        &long,
    ];
    for part in parts {
        refuses(part, &no_gpu(part));
    }
}

#[test]
fn canonical_text() {
    let written = |text: &str| list(text).to_string();
    assert_eq!(written("1 5 6 7 8 10"), "1,5-8,10");
    assert_eq!(written("3 2 1"), "3,2,1");
    assert_eq!(written("0 0 1 1"), "0,0-1,1");
    assert_eq!(written("  "), "");
    assert_eq!(format!("{:?}", list("0 1")), "GpuList(0-1)");
    let last = usize::MAX;
    assert_eq!(written(&format!("{last} 0")), format!("{last},0"));
}

#[test]
fn too_many_gpus_are_refused() {
    let too_many = |text: &str, least: &str| {
        refuses(text, &format!("a list of {least} GPUs or more; at most 65536 are allowed"));
    };
    assert_eq!(list("0-65535").len(), 65_536);
    too_many("0-65536", "65537");
    too_many("0-65535 GPU-0", "65537");
    too_many("0 0-18446744073709551615", "18446744073709551615");
    too_many("0,".repeat(65_537).as_str(), "65537");
}

#[test]
fn fewer_gpus_than_workers() {
    maps(2, "0", "[0] [0]", "[0]");
    maps(3, "0 1", "[0] [1] [0]", "[0] [1]");
    maps(4, "0 1", "[0] [1] [0] [1]", "[0] [1]");
    maps(5, "0 1 2", "[0] [1] [2] [0] [1]", "[0] [1] [2]");
}

#[test]
fn as_many_gpus_as_workers() {
    maps(1, "0", "[0]", "[0]");
    maps(2, "0 1", "[0] [1]", "[0] [1]");
    maps(4, "0 0 1 1", "[0] [0] [1] [1]", "[0] [0] [1] [1]");
}

#[test]
fn more_gpus_than_workers() {
    maps(1, "3 1", "[3,1]", "[3,1]");
    maps(2, "0 1 2 3", "[0,1] [2,3]", "[0,1] [2,3]");
    maps(2, "0 1 2", "[0] [1]", "[0,1] [2]");
    maps(3, "0 1 2 3 4", "[0] [1] [2]", "[0,1] [2,3] [4]");
    maps(3, "0-7", "[0,1] [2,3] [4,5]", "[0,1,2] [3,4,5] [6,7]");
    maps(4, "0-6", "[0] [1] [2] [3]", "[0,1] [2,3] [4,5] [6]");
}

/// Scipion with one thread is serial: every step gets the whole list, as one worker does.
#[test]
fn serial_is_one_worker() {
    maps(1, "0 1", "[0,1]", "[0,1]");
}

/// Scipion's documentation of threads and GPUs, which describes slots.
#[test]
fn the_table_of_scipions_manual() {
    let slots = |workers, gpus: &str| outcome(list(gpus).slots(workers));
    assert_eq!(slots(3, "0"), "[0]");
    assert_eq!(slots(2, "2,4"), "[2] [4]");
    assert_eq!(slots(1, "3,4,5"), "[3,4,5]");
    assert_eq!(slots(2, "2,4,2,4"), "[2,4] [2,4]");
}

/// Scipion gives `[0,0] [1,1]`: a producer owns a GPU once.
#[test]
fn a_gpu_twice_for_one_worker_is_one_gpu() {
    maps(2, "0 0 1 1", "[0] [1]", "[0] [1]");
    maps(1, "1 0 1", "[1,0]", "[1,0]");
}

/// Scipion's rows with `[99,99]` have one 99 here, for the same reason.
#[test]
fn void_entries_are_shared_and_make_no_slots() {
    maps(2, "0 1 2 99", "[0,1] [2,99]", "[0,1] [2]");
    maps(2, "0 99 1 2", "[0,99] [1,2]", "[0] [1,2]");
    maps(2, "99 99 1 2", "[99] [1,2]", "[1,2]");
    maps(4, "0 99 2", "[0] [99] [2] [0]", "[0] [2]");
}

#[test]
fn no_gpu_for_workers_is_an_error() {
    let none = |list: &str| {
        format!(
            "the list of GPUs {list:?} has none; name at least one, as in 0 (99 is a void entry), \
             or use the CPU"
        )
    };
    maps(2, "99 99", &none("99,99"), &none("99,99"));
    maps(2, "", &none(""), &none(""));
}

/// Scipion runs nothing then, and reports the work as done.
#[test]
fn nothing_starts_without_a_slot() {
    let start = |gpus: &str| -> Result<OrderedRunner<_>, Error> {
        let runner = map(|_| panic!("it starts"), |_, (), step: u64| Ok(step));
        OrderedRunner::new(runner, list(gpus).slots(4)?.names_only())
    };
    for gpus in ["99", "99 99 99", ""] {
        assert!(matches!(
            start(gpus).unwrap_err(),
            Error::Devices { source: DeviceError::NoGpus { .. }, .. }
        ));
    }
}

/// Five steps for four workers, of which the only slot makes one.
#[test]
fn one_slot_does_one_step_at_a_time() {
    for order in [Order::Input, Order::Completion] {
        let busy = Arc::new(AtomicUsize::new(0));
        let steps = map(
            |_| Ok(()),
            move |cx, (), step: u64| {
                assert_eq!(cx.devices(), [Device::Cuda(0)]);
                let others = busy.fetch_add(1, SeqCst);
                std::thread::yield_now();
                busy.fetch_sub(1, SeqCst);
                Ok((step, others))
            },
        );
        no_hang(move || {
            let slots = list("0").slots(4).unwrap().names_only();
            let mut runner =
                AnyOrderRunner::builder(steps).devices(slots).order(order).build().unwrap();
            assert_eq!(runner.run(0..5).unwrap(), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0)]);
            assert_eq!(runner.account().ok, 5);
        });
    }
}

/// As many steps at a time as there are slots: both are in their hooks when they pass the barrier.
#[test]
fn two_slots_do_two_steps_at_a_time() {
    no_hang(|| {
        let both = std::sync::Barrier::new(2);
        let steps = map(
            |_| Ok(()),
            move |cx, (), _: u64| {
                both.wait();
                Ok(cx.device().to_string())
            },
        );
        let slots = list("4 5").slots(4).unwrap().names_only();
        let mut gpus = OrderedRunner::new(steps, slots).unwrap().run(0..2).unwrap();
        gpus.sort();
        assert_eq!(gpus, ["cuda:4", "cuda:5"]);
    });
}

/// Scipion's `anonimizeGPUs`.
#[test]
fn lists_are_numbered_anew_by_first_appearance() {
    let renumbered = |gpus: &str| list(gpus).renumber();
    assert_eq!(renumbered("2 1 0"), list("0 1 2"));
    assert_eq!(renumbered("2 1 2"), list("0 1 0"));
    assert_eq!(renumbered("2 1 2 4"), list("0 1 0 2"));
    assert_eq!(renumbered(""), list(""));
    assert_eq!(renumbered("7 99 GPU-8932 7 99"), list("0 99 1 0 99"));
    // 99 is no number for a GPU.
    assert_eq!(renumbered("1000-1100"), list("0-98 100-101"));
}

/// The slots of Scipion's `QueueStepExecutor`, of which each is a job that sees its own GPUs alone.
#[test]
fn slots_are_numbered_anew_each_by_itself() {
    let renumbered = |gpus: &str| written(&list(gpus).slots(2).unwrap().renumber());
    assert_eq!(renumbered("4 5 6 7"), "[0,1] [0,1]");
    assert_eq!(renumbered("1 0"), "[0] [0]");
    let devices: Devices = "cuda:7+cpu+metal:3+cuda:2,metal:1".parse().unwrap();
    assert_eq!(devices.renumber().to_string(), "cuda:0+cpu+metal:0+cuda:1,metal:0");
    assert!(!devices.renumber().is_labels());
    assert!(devices.names_only().renumber().is_labels());
}

#[test]
fn an_absurd_number_of_workers_is_an_error() {
    let no_worker = "devices for no worker; at least one is needed";
    maps(0, "0", no_worker, no_worker);
    let too_many = "devices for 65537 producers or more; at most 65536 are allowed";
    maps(65_537, "0", too_many, too_many);
    assert_eq!(list("0 1").share(65_536).unwrap().to_string().len(), "cuda:0,".len() * 65_536 - 1);
    assert_eq!(list("0 1").slots(65_536).unwrap().len(), 2);
}

#[test]
fn too_many_gpus_for_one_worker_are_an_error() {
    let too_many = "257 devices or more in one place; at most 256 are allowed";
    maps(1, "0-98 100-257", too_many, too_many);
}

#[test]
fn a_uuid_needs_an_id_first() {
    let no_id = "GPU-8932f937 has no id yet; find it with `GpuList::visible`";
    maps(2, "0 GPU-8932f937", no_id, no_id);
}

#[test]
fn the_error_is_typed_and_said_once() {
    let error = "0-1-2".parse::<GpuList>().unwrap_err();
    assert!(matches!(&error, DeviceError::UnknownGpu { text, .. } if text == "0-1-2"));
    assert_eq!(format!("{error:#}"), error.to_string());
}

#[test]
fn long_texts_are_clipped_in_errors() {
    let error = "é".repeat(1_000_000).parse::<GpuList>().unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
    let error = list("9").visible_in(Some(&"x".repeat(1_000_000))).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
    let error = list(&"99 ".repeat(10_000)).slots(2).unwrap_err().to_string();
    assert!(error.len() < 300, "{error}");
}

#[test]
fn serde_is_the_text() {
    let json = serde_json::to_string(&list("0 1 2, GPU-8932f937")).unwrap();
    assert_eq!(json, r#""0-2,GPU-8932f937""#);
    assert_eq!(serde_json::from_str::<GpuList>(&json).unwrap(), list("0-2 GPU-8932f937"));
    let error = serde_json::from_str::<GpuList>(r#""3-0""#).unwrap_err().to_string();
    assert!(error.starts_with(r#"the range "3-0" runs backwards"#), "{error}");
}

/// Each text of Scipion without its quotes is still the same list.
#[test]
fn yaml_without_quotes_is_a_list() {
    let check = |value: &str, expected: &str| {
        let cfg = CfgNode::from_yaml_str(&format!("gpu_list: {value}")).unwrap();
        assert_eq!(cfg.get::<GpuList>("gpu_list").unwrap(), list(expected), "{value}");
    };
    check("0", "0");
    check("007", "7");
    check("0 1", "0 1");
    check("0,1", "0 1");
    check("0-3", "0-3");
    check("1,5-8,10", "1 5 6 7 8 10");
    check("[0, 1, 0-3]", "0 1 0-3");
    check("[0, GPU-8932f937]", "0 GPU-8932f937");
    check("[]", "");
    check("''", "");
}

#[test]
fn a_list_of_another_type_is_refused_with_its_key() {
    let not_a_list =
        r#"not a list of GPUs; write a text such as "0 1", an id such as 0, or a list of both"#;
    for value in ["true", "1.0", "-1", "{a: 1}", "[[0, 1], [2]]", "[null]", "[-1]"] {
        let cfg = CfgNode::from_yaml_str(&format!("node: {{gpu_list: {value}}}")).unwrap();
        let error = cfg.get::<GpuList>("node.gpu_list").unwrap_err();
        assert_eq!(error.to_string(), format!("node.gpu_list: {not_a_list}"), "{value}");
    }
}

/// With GPUs the result hangs on the environment: see the unit tests beside `from_cfg`.
#[test]
fn use_gpu_false_is_the_cpu() {
    let cfg = CfgNode::new().with("use_gpu", false).unwrap().with("gpu_list", "0-3").unwrap();
    assert_eq!(Devices::from_cfg(&cfg, 3).unwrap().to_string(), "cpu*3");
    assert_eq!(Devices::from_cfg(&CfgNode::new(), 3).unwrap().to_string(), "cpu*3");
}

fn entries() -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(prop_oneof![0..9usize, Just(99)], 0..20)
}

fn text(entries: &[usize]) -> String {
    entries.iter().map(usize::to_string).collect::<Vec<_>>().join(" ")
}

proptest! {
    #[test]
    fn what_is_written_reads_back(entries in entries()) {
        let gpus = list(&text(&entries));
        prop_assert_eq!(list(&gpus.to_string()), gpus);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[-0-9, GPUMIabc/]{0,20}|.*") {
        if let Ok(gpus) = text.parse::<GpuList>() {
            prop_assert_eq!(list(&gpus.to_string()), gpus);
        }
    }

    #[test]
    fn any_variable_is_read(entries in entries(), variable in "[-0-9, GPUMIabc/]{0,20}|.*") {
        let gpus = list(&text(&entries));
        if let Ok(visible) = gpus.visible_in(Some(&variable)) {
            prop_assert_eq!(visible, gpus);
        }
    }

    #[test]
    fn each_worker_shares(entries in entries(), workers in 1..9usize) {
        if let Ok(devices) = list(&text(&entries)).share(workers) {
            prop_assert_eq!(devices.len(), workers);
        }
    }

    /// Every GPU of the list is in a slot, in the list's order, and no void entry is.
    #[test]
    fn slots_hold_every_gpu(gpus in proptest::sample::subsequence((0..99).collect::<Vec<_>>(), 1..20), workers in 1..9usize) {
        let devices = list(&text(&gpus)).slots(workers).unwrap();
        let held: Vec<Device> = devices.places().flatten().copied().collect();
        prop_assert_eq!(devices.len(), workers.min(gpus.len()));
        prop_assert_eq!(held, gpus.into_iter().map(Device::Cuda).collect::<Vec<_>>());
        let sizes = || devices.places().map(<[_]>::len);
        prop_assert!(sizes().max() <= sizes().min().map(|least| least + 1));
    }
}
