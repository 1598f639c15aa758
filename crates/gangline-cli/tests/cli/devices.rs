//! `gangline devices`, on machines with NVIDIA GPUs.

use crate::support::Place;
use serde_json::{Value, json};

use crate::nvml::{
    DRIVER_NOT_LOADED, FIRST, GPU_IS_LOST, Gpu, Machine, NO_PERMISSION, NOT_READY, SECOND,
    VERSION_MISMATCH, gpu,
};

/// Checks the lines about GPUs, without the line of the CPU.
#[track_caller]
fn check(machine: &Machine, expected: &[&str]) {
    let text = machine.prints("devices");
    let (cpu, gpus) = text.split_once('\n').unwrap();
    assert!(cpu.starts_with("cpu "), "{text}");
    assert_eq!(gpus.lines().collect::<Vec<_>>(), expected, "{text}");
}

/// The same as JSON.
#[track_caller]
fn json(machine: &Machine) -> Value {
    serde_json::from_str(&machine.prints("devices --json")).unwrap()
}

fn busy() -> Gpu {
    Gpu { used: 13_421_772_800, busy: Some(97), temperature: Some(61), ..gpu(FIRST, 0x1b) }
}

#[test]
fn each_gpu_has_its_memory_load_temperature_and_uuid() {
    let machine = Machine::with([busy(), gpu(SECOND, 0x43)]);
    check(
        &machine,
        &[
            &format!("cuda:0   NVIDIA H200, 12.5 of 140.4 GiB used, 97 % busy, 61 C, {FIRST}"),
            &format!("cuda:1   NVIDIA H200, 0.0 of 140.4 GiB used, 0 % busy, 30 C, {SECOND}"),
        ],
    );
    let json = json(&machine);
    let first = json!({
        "index": 0, "name": "NVIDIA H200", "uuid": FIRST, "mig": "off",
        "memory_total": 150_754_820_096_u64, "memory_used": 13_421_772_800_u64,
        "utilization": 97, "temperature": 61,
    });
    assert_eq!(json["gpus"][0], first);
    assert_eq!((&json["gpus"][1]["index"], &json["gpus"][1]["uuid"]), (&json!(1), &json!(SECOND)));
    assert_eq!(json.get("no_gpus"), None);
}

/// In PCI order, as for `CUDA_DEVICE_ORDER=PCI_BUS_ID` and locks, whatever the order of the driver.
#[test]
fn gpus_are_counted_as_cuda_counts_them() {
    let machine = Machine::with([gpu(SECOND, 0x43), busy()]);
    check(
        &machine,
        &[
            &format!("cuda:0   NVIDIA H200, 12.5 of 140.4 GiB used, 97 % busy, 61 C, {FIRST}"),
            &format!("cuda:1   NVIDIA H200, 0.0 of 140.4 GiB used, 0 % busy, 30 C, {SECOND}"),
        ],
    );
    assert_eq!(json(&machine)["gpus"][0]["uuid"], FIRST);
}

#[test]
fn values_that_an_integrated_gpu_lacks_are_omitted() {
    let name = "NVIDIA Thor";
    let on_chip = Gpu { name, bus: None, total: None, busy: None, mig: None, ..gpu(FIRST, 0) };
    let machine = Machine::with([on_chip]);
    check(&machine, &[&format!("cuda:0   NVIDIA Thor, 30 C, {FIRST}")]);
    let gpu = &json(&machine)["gpus"][0];
    assert_eq!((&gpu["memory_total"], &gpu["utilization"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_gpu_that_is_lost_hides_no_other() {
    let lost = "cuda:0   cannot be queried: it is lost: it fell off the bus or cannot be reached";
    let other = format!("cuda:1   NVIDIA H200, 0.0 of 140.4 GiB used, 0 % busy, 30 C, {SECOND}");
    let at_once = Gpu { handle: GPU_IS_LOST, ..gpu(FIRST, 0x1b) };
    let meanwhile = Gpu { answer: GPU_IS_LOST, ..gpu(FIRST, 0x1b) };
    for gone in [at_once, meanwhile] {
        let machine = Machine::with([gone, gpu(SECOND, 0x43)]);
        check(&machine, &[lost, &other]);
        let json = json(&machine);
        assert!(json["gpus"][0]["problem"].as_str().unwrap().starts_with("it is lost"), "{json}");
        assert_eq!(json["gpus"][1]["uuid"], SECOND);
        assert_eq!(json["gpus"][1].get("problem"), None);
    }
}

#[test]
fn a_gpu_of_others_hides_no_own() {
    let theirs = Gpu { handle: NO_PERMISSION, ..gpu(FIRST, 0x1b) };
    check(
        &Machine::with([theirs, gpu(SECOND, 0x43)]),
        &[
            "cuda:0   cannot be queried: the current user does not have permission to perform this operation",
            &format!("cuda:1   NVIDIA H200, 0.0 of 140.4 GiB used, 0 % busy, 30 C, {SECOND}"),
        ],
    );
}

#[test]
fn a_gpu_in_parts_says_so() {
    let split = Gpu { mig: Some(1), busy: None, ..gpu(FIRST, 0x1b) };
    let machine = Machine::with([split]);
    let line = format!(
        "cuda:0   NVIDIA H200, split into MIG devices, 0.0 of 140.4 GiB used, 30 C, {FIRST}"
    );
    check(&machine, &[&line]);
    assert_eq!(json(&machine)["gpus"][0]["mig"], "on");
}

#[test]
fn a_driver_without_gpus_has_none() {
    let machine = Machine::with([]);
    check(&machine, &["no GPU of NVIDIA"]);
    assert_eq!(json(&machine)["gpus"], json!([]));
}

#[track_caller]
fn fails(machine: &Machine, reason: &str) {
    check(machine, &[&format!("no NVIDIA GPU is visible: {reason}")]);
    let json = json(machine);
    assert_eq!((&json["gpus"], &json["no_gpus"]), (&json!([]), &json!(reason)));
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    fails(
        &Machine::that_fails(VERSION_MISMATCH),
        "the driver does not start: the versions of its library and its kernel module differ, as after an \
         update without a restart",
    );
    fails(
        &Machine::that_fails(DRIVER_NOT_LOADED),
        "the driver does not start: NVIDIA driver is not loaded",
    );
    fails(
        &Machine::that_fails(NOT_READY),
        "the driver does not start: error 27 of the library NVML",
    );
}

/// Images of a container committed while it ran contain such a file.
#[test]
fn an_empty_file_is_not_taken_for_no_driver() {
    let machine = Machine::with([]);
    machine.place.write("lib/libnvidia-ml.so.1", "");
    let text = machine.prints("devices");
    let reason = "no NVIDIA GPU is visible: the driver does not load: ";
    assert!(text.lines().any(|line| line.starts_with(reason) && line.contains("short")), "{text}");
}

#[test]
fn metal_cannot_be_given_to_a_command() {
    let place = Place::new();
    place.write("c.yaml", "devices: metal:0\n");
    for options in [
        "--devices metal:0",
        "--devices metal",
        "--devices cuda:0,metal:1",
        "--devices cuda:0+metal:0",
        "--devices 'cpu, metal:0*2'",
        "--config c.yaml",
    ] {
        let ran = place.run_typed(&format!("{options} -- touch ::: started"));
        ran.check_said(102, &["metal:", "cannot be given to a command"]);
    }
    assert!(!place.path("started").exists());
}
