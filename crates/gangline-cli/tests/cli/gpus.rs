//! Runs on machines with GPUs: which GPU an id means, and locks.

use crate::nvml::{FIRST, GPU_IS_LOST, Gpu, Machine, SECOND, VERSION_MISMATCH, gpu};
use crate::support::{Place, Running};

const WAIT: &str = "--shell -- 'touch held; until [ -e go ]; do sleep .02; done' ::: x";
const SHOW: &str = "--shell -- 'echo $CUDA_VISIBLE_DEVICES' ::: x";

/// Two GPUs of one model. The driver and CUDA order them differently.
fn two() -> Machine {
    Machine::with([gpu(SECOND, 0x43), gpu(FIRST, 0x1b)])
}

/// A run that holds the lock of its GPUs until `go` is written.
#[track_caller]
fn holder(machine: &Machine, visible: Option<&str>, list: &str) -> Running {
    let running = machine
        .start(&mut machine.locked(visible, &format!("--lock-gpus --gpu-list '{list}' {WAIT}")));
    machine.place.wait_for("held");
    running
}

#[track_caller]
fn let_go(machine: &Machine, holder: Running) {
    machine.place.write("go", "");
    holder.ran().check(0, "");
}

/// Checks that a run that asks for a lock is refused with this text, and starts no job.
#[track_caller]
fn refuses(machine: &Machine, visible: Option<&str>, list: &str, parts: &[&str]) {
    let line = format!("--lock-gpus --gpu-list '{list}' -- touch ::: started");
    machine.start(&mut machine.locked(visible, &line)).ran().check_said(103, parts);
    assert!(!machine.place.path("started").exists());
}

#[test]
fn a_server_takes_all_gpus_that_it_sees() {
    let machine = Machine::with([gpu(FIRST, 1), gpu(SECOND, 2), gpu(SECOND, 3)]);
    let line = "serve --listen 0 --devices cuda:all --max-restarts 0 --min-workers 9 -- false";
    let serve =
        |visible: &str| machine.ran(machine.typed(line).env("CUDA_VISIBLE_DEVICES", visible));
    machine.ran(&mut machine.typed(line)).check_said(102, &["than there are workers: 3"]);
    serve("2,1").check_said(102, &["than there are workers: 2"]);
    serve("")
        .check_said(103, &["cuda:all: all stands for no GPU", r#"CUDA_VISIBLE_DEVICES is """#]);
    let place = Place::new();
    place.ran(&mut place.typed(line)).check_said(103, &["cuda:all: all stands for no GPU", "NVML"]);
}

#[test]
fn all_is_every_gpu_that_a_run_sees() {
    let machine = two();
    machine.place.write("list.yaml", "gpu_list: all\n");
    machine.place.write("devices.yaml", "devices: cuda:all\n");
    let runs = |visible: Option<&str>, options: &str, gpus: [&str; 3]| {
        let line = format!("run --dry-run {options} -- prog {{gpu}} ::: a b c");
        let mut command = machine.typed(&line);
        visible.map(|visible| command.env("CUDA_VISIBLE_DEVICES", visible));
        let lines = gpus.iter().zip(["a", "b", "c"]).map(|(gpu, _)| format!("prog {gpu}\n"));
        machine.ran(&mut command).check(0, &lines.collect::<String>());
    };
    for all in
        ["--gpu-list all", "--devices cuda:all", "--config list.yaml", "--config devices.yaml"]
    {
        runs(None, all, ["0", "1", "0"]);
        runs(Some("1"), all, ["0"; 3]);
        runs(Some(SECOND), all, ["0"; 3]);
        runs(Some("1,GPU-8932f937"), all, ["0", "1", "0"]);
    }
    runs(None, "--gpu-list all -j1", ["0 1"; 3]);
    runs(None, "--gpu-list '1 all'", ["1", "0", "1"]);
    runs(None, "--devices cuda:all*2", ["0", "0", "1"]);
    runs(None, "--devices cuda:1,cuda:all", ["1", "0", "1"]);
    runs(None, "--devices cuda:all+cpu", ["0 1"; 3]);
    // CUDA shows parts of GPUs only by name.
    let parts = "MIG-4f1c2d3e-d72c-4106-c12f-20bd9faed9f6,MIG-5f1c2d3e-d72c-4106-c12f-20bd9faed9f6";
    runs(Some(parts), "--gpu-list all", ["0", "1", "0"]);
}

#[test]
fn all_without_a_gpu_starts_nothing() {
    let none = Machine::with([]);
    let bare = Place::new();
    let refused = |place: &Place, command: &mut std::process::Command, reason: &str| {
        place
            .ran(command)
            .check_said(103, &["all stands for no GPU", reason, "NVML", "CUDA_VISIBLE_DEVICES"]);
        assert!(!place.path("started").exists());
    };
    let lists = with_devices("cuda:all").into_iter().chain(with_devices("cpu,cuda:all"));
    let lists =
        lists.chain(with_devices("x").map(|line| line.replace("--devices x", "--gpu-list all")));
    for line in lists {
        refused(&none.place, &mut none.typed(&line), "NVIDIA's driver reports none");
        refused(&bare, &mut bare.typed(&line), "NVIDIA's driver cannot be asked");
        for hidden in ["", "-1"] {
            let (machine, reason) = (two(), format!("CUDA_VISIBLE_DEVICES is {hidden:?}"));
            refused(
                &machine.place,
                machine.typed(&line).env("CUDA_VISIBLE_DEVICES", hidden),
                &reason,
            );
        }
    }
    // A list that is not used is not looked up.
    let line = "run -j1 --use-gpu=false --devices cuda:all -- echo ::: x";
    bare.ran(&mut bare.typed(&line.replace("-j1 ", ""))).check(0, "x\n");
    bare.run_typed("-j1 --use-gpu=false --gpu-list all -- echo ::: x").check(0, "x\n");
}

/// The commands that start workers on devices, which start none here.
fn with_devices(devices: &str) -> [String; 3] {
    [
        format!("run --devices {devices} -- touch ::: started"),
        format!("serve --listen 0 --devices {devices} -- touch started"),
        format!("check --devices {devices} -- touch started ::: x"),
    ]
}

#[test]
fn a_device_that_the_driver_does_not_report_is_refused() {
    let (two, none) = (two(), Machine::with([]));
    let broken = Machine::that_fails(VERSION_MISMATCH);
    for (machine, devices, visible, said) in [
        (&two, "cuda:2", None, "cuda:2 does not exist: the driver reports GPU 0 to 1"),
        (&two, "cuda:0-3", None, "cuda:2 does not exist"),
        (&two, "cpu,cuda:1+cuda:5", None, "cuda:5 does not exist"),
        (&two, "cuda:1", Some("1"), "GPU 1 is not visible: CUDA_VISIBLE_DEVICES is \"1\""),
        (&two, "cuda:0", Some("7"), "cuda:0, which is GPU 7 by CUDA_VISIBLE_DEVICES, does not"),
        (&two, "cuda:0", Some(""), "GPU 0 is not visible"),
        (&none, "cuda:0", None, "cuda:0 does not exist: the driver reports no GPU"),
        (&broken, "cuda:0*2", None, "cuda:0 cannot be found: the driver does not start"),
    ] {
        for line in with_devices(devices) {
            let mut command = machine.typed(&line);
            visible.map(|visible| command.env("CUDA_VISIBLE_DEVICES", visible));
            machine.ran(&mut command).check_said(103, &[said]);
            assert!(!machine.place.path("started").exists(), "{line}");
        }
    }
    let place = Place::new();
    for line in with_devices("cuda:0") {
        let said = "cuda:0 cannot be found: NVIDIA's driver is not installed; --gpu-list takes ids";
        place.ran(&mut place.typed(&line)).check_said(103, &[said]);
    }
    assert!(!place.path("started").exists());
}

#[test]
fn a_device_that_the_driver_reports_is_used() {
    let machine = two();
    let lost = Machine::with([Gpu { answer: GPU_IS_LOST, ..gpu(FIRST, 1) }, gpu(SECOND, 2)]);
    for (machine, devices, visible, prints) in [
        (&machine, "cuda:1", None, "1\n"),
        (&machine, "cuda:0", Some("1,0"), "1\n"),
        (&machine, "cuda:0", Some(SECOND), SECOND),
        // Only CUDA knows the parts of a GPU.
        (&machine, "cuda:1", Some("MIG-5a56a4bc,MIG-8932f937"), "MIG-8932f937"),
        (&lost, "cuda:1", None, "1\n"),
        (&machine, "cpu", None, "\n"),
    ] {
        let mut command = machine.typed(&format!("run --devices {devices} {SHOW}"));
        visible.map(|visible| command.env("CUDA_VISIBLE_DEVICES", visible));
        let ran = machine.ran(&mut command);
        assert!(ran.code == Some(0) && ran.stdout.starts_with(prints), "{devices}: {ran:?}");
    }
    // A dry run is often made on another machine.
    let ran = Place::new().run_typed("--dry-run --devices cuda:5 -- echo ::: x");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    Place::new().run_typed("--devices cuda:5 --use-gpu=false -- echo ::: x").check(0, "x\n");
}

#[test]
fn both_gpus_are_locked_and_used() {
    let machine = two();
    let mut command = machine.locked(
        None,
        "--lock-gpus --gpu-list '0 1' --shell -- 'echo $CUDA_VISIBLE_DEVICES' ::: x y z",
    );
    let ran = machine.ran(&mut command);
    assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert!(ran.stdout.lines().all(|line| ["0", "1"].contains(&line)), "{ran:?}");
    let locks = [FIRST, SECOND].map(|uuid| format!("gangline-{uuid}.lock"));
    let names = machine.place.names("locks");
    assert!(locks.iter().all(|lock| names.contains(lock)), "{names:?}");
}

/// One process counts all GPUs, the others only visible ones, in any order and under any name.
#[test]
fn runs_meet_on_a_gpu_by_whatever_id() {
    let machine = two();
    let first = holder(&machine, None, "1");
    let pid = format!("is in use: process {}", first.engine().as_raw_pid());
    let meets = |visible: Option<&str>, list: &str, id: usize| {
        refuses(&machine, visible, list, &[&format!("cuda:{id} ({SECOND}) {pid}")]);
    };
    meets(None, "1", 1);
    meets(None, "0 1", 1);
    meets(Some("1,0"), "0", 0);
    meets(Some("1"), "0", 0);
    meets(Some(SECOND), "0", 0);
    meets(Some("0,GPU-5a56"), "1", 1);
    meets(None, "GPU-5A56a4bc", 1);
    meets(Some("1,0"), SECOND, 0);
    // The other GPU is free.
    for (visible, list) in [(None, "0"), (Some("1,0"), "1"), (Some("GPU-89"), "0"), (None, FIRST)] {
        let line = format!("--lock-gpus --gpu-list '{list}' -- echo ::: x");
        machine.start(&mut machine.locked(visible, &line)).ran().check(0, "x\n");
    }
    let_go(&machine, first);
    machine
        .ran(&mut machine.locked(None, "--lock-gpus --gpu-list 1 -- echo ::: x"))
        .check(0, "x\n");
}

#[test]
fn a_gpu_selected_by_a_variable_is_locked_too() {
    let machine = two();
    let first = holder(&machine, Some("GPU-5a56,0"), "0");
    refuses(&machine, None, "0-1", &[&format!("cuda:1 ({SECOND}) is in use")]);
    refuses(&machine, Some("0,1"), "1", &[&format!("cuda:1 ({SECOND}) is in use")]);
    let_go(&machine, first);
}

#[test]
fn a_wait_for_a_gpu_names_its_holder() {
    let machine = two();
    let first = holder(&machine, None, "1");
    let pid = first.engine().as_raw_pid();
    let mut waiting =
        machine.locked(Some("1,0"), "--lock-gpus=wait --gpu-list 0 -- touch ::: started");
    let mut second = machine.start(&mut waiting);
    second.wait_for_stderr(&format!(
        "gangline: waiting, since cuda:0 ({SECOND}) is in use: process {pid} ("
    ));
    assert!(!machine.place.path("started").exists());
    let_go(&machine, first);
    second.ran().check(0, "");
    assert!(machine.place.path("started").exists());
}

#[test]
fn warm_workers_wait_for_a_gpu_too() {
    let machine = two();
    let first = holder(&machine, None, "0");
    machine.place.write("worker", r#"read -r hello; echo '{"gangline":1}'; read -r x; echo '{"item":1,"output":"read"}'; cat"#);
    let line = "--lock-gpus=wait --gpu-list 0 --warm -- sh worker ::: x";
    let mut second = machine.start(&mut machine.locked(None, line));
    second.wait_for_stderr("waiting, since cuda:0");
    let_go(&machine, first);
    second.ran().check(0, "read\n");
}

#[test]
fn a_run_that_need_not_wait_prints_nothing() {
    let machine = two();
    let ran =
        machine.ran(&mut machine.locked(None, "--lock-gpus=wait --gpu-list '0 1' -- echo ::: x"));
    assert_eq!((ran.code, &*ran.stdout, &*ran.stderr), (Some(0), "x\n", ""));
}

#[test]
fn a_wait_for_a_gpu_ends_by_a_signal() {
    let machine = two();
    let first = holder(&machine, None, "0");
    let line = "--lock-gpus=wait --gpu-list 0 --grace 1h -- touch ::: started";
    let mut second = machine.start(&mut machine.locked(None, line));
    second.wait_for_stderr("waiting, since cuda:0");
    second.send(rustix::process::Signal::TERM);
    assert_eq!(second.ran().code, Some(143));
    assert!(!machine.place.path("started").exists());
    let_go(&machine, first);
}

#[test]
fn a_gpu_that_is_not_there_cannot_be_locked() {
    let machine = two();
    refuses(&machine, None, "0 7", &["cuda:7 does not exist; this machine has cuda:0 to cuda:1"]);
    refuses(&machine, Some("0,7"), "1", &["cuda:1 does not exist"]);
    refuses(&machine, Some("1"), "1", &[r#"CUDA_VISIBLE_DEVICES is "1", so the only id is 0"#]);
    refuses(&machine, Some(""), "0", &["which shows none"]);
    refuses(&Machine::with([]), None, "0", &["this machine has no cuda device"]);
}

#[test]
fn a_driver_that_does_not_start_locks_nothing() {
    let machine = Machine::that_fails(VERSION_MISMATCH);
    let words = ["the driver cannot be asked", "version mismatch"];
    refuses(&machine, None, "0", &words);
    refuses(&machine, Some("0,1"), "1", &words);
    // The driver need not be asked.
    let mut command = machine.locked(Some(FIRST), "--lock-gpus --gpu-list 0 -- echo ::: x");
    machine.ran(&mut command).check(0, "x\n");
}

/// CUDA's order is unknown if one GPU does not answer.
#[test]
fn a_lost_gpu_makes_ids_uncertain() {
    let lost = Gpu { handle: GPU_IS_LOST, ..gpu(SECOND, 0x43) };
    let machine = Machine::with([gpu(FIRST, 0x1b), lost]);
    refuses(&machine, None, "0", &["the driver cannot be asked; put its UUID there", "GPU 1: "]);
    let mut command = machine.locked(Some(FIRST), "--lock-gpus --gpu-list 0 -- echo ::: x");
    machine.ran(&mut command).check(0, "x\n");
}

#[test]
fn a_split_gpu_is_locked_by_a_uuid() {
    let split = Gpu { mig: Some(1), busy: None, ..gpu(SECOND, 0x43) };
    let machine = Machine::with([gpu(FIRST, 0x1b), split]);
    let words = format!("{SECOND} is split into MIG devices, so indices are uncertain");
    refuses(&machine, None, "0", &[&words]);
    refuses(&machine, Some("0"), "0", &[&words]);
    let part = "MIG-4f1c2d3e-d72c-4106-c12f-20bd9faed9f6";
    let first = holder(&machine, Some(part), "0");
    refuses(
        &machine,
        Some(&format!("{FIRST},{part}")),
        "1",
        &[&format!("cuda:1 ({part}) is in use")],
    );
    let_go(&machine, first);
}

#[test]
fn gpus_of_several_models_need_an_order() {
    let machine = Machine::with([Gpu { name: "NVIDIA T4", ..gpu(SECOND, 0x43) }, gpu(FIRST, 0x1b)]);
    refuses(&machine, None, "0", &["NVIDIA H200, NVIDIA T4", "set CUDA_DEVICE_ORDER=PCI_BUS_ID"]);
    let mut command = machine.locked(None, &format!("--lock-gpus --gpu-list 1 {WAIT}"));
    let first = machine.start(command.env("CUDA_DEVICE_ORDER", "PCI_BUS_ID"));
    machine.place.wait_for("held");
    refuses(&machine, Some(SECOND), "0", &["is in use"]);
    let_go(&machine, first);
}

#[test]
fn the_only_gpu_on_the_chip_can_be_locked() {
    let on_chip = Gpu { bus: None, total: None, busy: None, mig: None, ..gpu(FIRST, 0) };
    let machine = Machine::with([on_chip.clone()]);
    let first = holder(&machine, None, "0");
    refuses(&machine, Some(FIRST), "0", &["is in use"]);
    let_go(&machine, first);
    let machine = Machine::with([on_chip, gpu(SECOND, 0x43)]);
    refuses(&machine, None, "0", &["GPU 0: "]);
}

#[test]
fn a_uuid_stands_for_the_id_that_cuda_gives() {
    let machine = two();
    let shows = |visible: Option<&str>, list: &str, id: &str| {
        let mut command =
            machine.locked(visible, &format!("--lock-gpus --gpu-list '{list}' {SHOW}"));
        machine.ran(&mut command).check(0, &format!("{id}\n"));
    };
    shows(None, SECOND, "1");
    shows(None, "GPU-89", "0");
    shows(Some("1,0"), "GPU-89", "0");
    shows(Some("1,GPU-89"), "GPU-8932", "GPU-89");
    refuses(&machine, Some("1"), FIRST, &["has no id", r#"CUDA_VISIBLE_DEVICES is "1""#]);
    refuses(&machine, None, "GPU-77", &[&format!("is no GPU of this machine: {FIRST}, {SECOND}")]);
}

#[test]
fn gpus_that_are_there_are_not_used_by_themselves() {
    let machine = two();
    let line = "run -j1 --shell -- 'echo ${CUDA_VISIBLE_DEVICES-unset}' ::: x";
    assert_eq!(machine.prints(line), "unset\n");
    let ran = machine.ran(&mut machine.typed("run --devices cuda:0|cpu -- touch ::: started"));
    ran.check_said(102, &["alternatives with | are for programs that use the library"]);
    assert!(!machine.place.path("started").exists());
}

/// The load of the GPUs of a run in its report. The job ends after the driver was asked for six loads.
fn measured(machine: &Machine, visible: Option<&str>, list: &str) -> serde_json::Value {
    let job = "--shell -- 'until [ $(wc -c <asked) -ge 6 ]; do sleep .02; done' ::: x";
    let reports = "--report r.json --report r.html --report r.txt";
    machine.place.write("asked", "");
    let mut command = machine.typed(&format!("run -j1 --gpu-list '{list}' {reports} {job}"));
    command.env("STAND_IN_ASKED", machine.place.path("asked"));
    visible.map(|visible| command.env("CUDA_VISIBLE_DEVICES", visible));
    machine.ran(&mut command).check(0, "");
    let report: serde_json::Value = serde_json::from_str(&machine.place.read("r.json")).unwrap();
    report["gpus"].clone()
}

#[test]
fn a_report_has_the_load_and_the_memory_of_its_gpus() {
    let used = 30 << 30;
    let busy = Gpu { busy: Some(70), used, ..gpu(FIRST, 0x1b) };
    let machine = Machine::with([gpu(SECOND, 0x43), busy]);
    // GPU 0 by its address, whichever the driver counts first.
    for (visible, list) in [(None, "0"), (Some("1,0"), "1"), (Some(FIRST), "0")] {
        let gpus = measured(&machine, visible, list);
        assert_eq!(gpus.as_array().map(Vec::len), Some(1), "{gpus}");
        assert_eq!(gpus[0]["device"], format!("cuda:{list}"));
        assert_eq!(gpus[0]["memory_total"], 150_754_820_096_u64);
        let samples = gpus[0]["samples"].as_array().unwrap();
        assert!(samples.len() > 1, "{gpus}");
        for sample in samples {
            assert_eq!((&sample["busy"], &sample["memory_used"]), (&0.7.into(), &used.into()));
        }
        let line = format!("cuda:{list} computed for 70 % of the time, and at most 32.2 GB of ");
        assert!(machine.place.read("r.txt").contains(&line), "{line}");
        assert!(
            machine.place.read("r.html").contains(&format!("<title>cuda:{list}: memory</title>"))
        );
    }
    let gpus = measured(&machine, None, "0 1");
    assert_eq!((&gpus[0]["device"], &gpus[1]["device"]), (&"cuda:0".into(), &"cuda:1".into()));
}

#[test]
fn a_gpu_that_the_driver_does_not_describe_is_not_in_a_report() {
    let split = Gpu { busy: None, ..gpu(SECOND, 0x43) };
    let gpus = measured(&Machine::with([gpu(FIRST, 0x1b), split]), None, "0 1");
    assert_eq!((gpus.as_array().map(Vec::len), &gpus[0]["device"]), (Some(1), &"cuda:0".into()));
    let place = Place::new();
    place.run_typed("--gpu-list 0 --report r.json -- echo ::: x").check(0, "x\n");
    assert!(!place.read("r.json").contains("gpus"), "there is no driver");
}
