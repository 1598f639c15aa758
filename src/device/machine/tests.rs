use super::*;
use crate::device::GpuList;
use crate::device::inventory::{CardModel, CountingOrder, MachineGpu, Mig};

const ONE: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
const TWO: &str = "GPU-8a56a4bc-0184-1c1d-9ff7-0a1b2c3d4e5f";
const THREE: &str = "GPU-8a56a4bd-0184-1c1d-9ff7-0a1b2c3d4e5f";
const MIG: &str = "MIG-4f1c2d3e-d72c-4106-c12f-20bd9faed9f6";

fn gpu(uuid: &str, name: &str) -> MachineGpu {
    let model = CardModel { name: name.to_owned(), memory: 80 << 30 };
    MachineGpu { uuid: Uuid::parse(uuid).unwrap(), model, mig: Mig::Off }
}

/// Three GPUs of one model.
fn alike() -> DriverAnswer {
    let gpus = [ONE, TWO, THREE].map(|uuid| gpu(uuid, "H200"));
    DriverAnswer::Known(Inventory::new(gpus.into(), CountingOrder::FastestFirst))
}

fn mixed(order: CountingOrder) -> DriverAnswer {
    DriverAnswer::Known(Inventory::new(vec![gpu(ONE, "T4"), gpu(TWO, "H200")], order))
}

fn split() -> DriverAnswer {
    let whole = gpu(ONE, "H200");
    let split = MachineGpu { mig: Mig::On, ..gpu(TWO, "H200") };
    DriverAnswer::Known(Inventory::new(vec![whole, split], CountingOrder::Pci))
}

fn nobody() -> DriverAnswer {
    panic!("the driver is not asked")
}

#[track_caller]
fn sees(gpus: &str, variable: Option<&str>, ask: &dyn Fn() -> DriverAnswer, expected: &str) {
    let gpus: GpuList = gpus.parse().unwrap();
    let seen = gpus.visible_on(&Machine::new(variable, ask));
    let seen = seen.map_or_else(|error| error.to_string(), |gpus| gpus.to_string());
    assert_eq!(seen, expected, "{gpus} under {variable:?}");
}

#[track_caller]
fn names(index: usize, variable: Option<&str>, ask: &dyn Fn() -> DriverAnswer, expected: &str) {
    let uuid = Machine::new(variable, ask).uuid(index);
    let uuid = uuid.map_or_else(|error| error.to_string(), |uuid| uuid.to_string());
    assert_eq!(uuid, expected, "{index} under {variable:?}");
}

#[test]
fn the_driver_knows_what_the_variable_does_not_name() {
    sees(ONE, None, &alike, "0");
    sees("GPU-8932f937 0 99 GPU-8A56A4BD", None, &alike, "0,0,99,2");
    sees("GPU-8932f937", Some("2,0"), &alike, "1");
    sees("GPU-8a56a4bd GPU-8932", Some("GPU-8932f9,2"), &alike, "1,0");
}

#[test]
fn nobody_is_asked_for_what_the_variable_names() {
    sees("1 GPU-8932", Some("4,GPU-8932f937"), &nobody, "1,1");
    sees(MIG, Some(MIG), &nobody, "0");
    names(0, Some(ONE), &nobody, ONE);
    names(1, Some(&format!("0,{}", ONE.replace('f', "F"))), &nobody, ONE);
    names(0, Some(MIG), &nobody, MIG);
    let instance = format!("MIG-{ONE}/1/0");
    names(0, Some(&instance), &nobody, &instance);
}

#[test]
fn all_stands_for_each_gpu_that_this_process_sees() {
    let absent = || DriverAnswer::Failed("no driver".into());
    sees("all", None, &alike, "0-2");
    sees("all 99 all", None, &alike, "0-2,99,0-2");
    sees("1,all", Some("2,1"), &alike, "1,0-1");
    // CUDA's list ends at a GPU that the machine lacks, and at what it cannot read.
    sees("all", Some("1,7,0"), &alike, "0");
    sees("all", Some("1,-1,0"), &alike, "0");
    sees("all", Some("4,5"), &absent, "0-1");
    sees("all", Some("GPU-8932f937, GPU-8a56a4bd"), &absent, "0-1");
    sees("all", Some(&format!("{MIG},{},MIG-{ONE}/1/0", MIG.replace('4', "5"))), &split, "0-2");
    assert_eq!("all".parse::<GpuList>().unwrap().to_string(), "all");
}

#[test]
fn all_is_an_error_where_no_gpu_is_visible() {
    let empty = || DriverAnswer::Known(Inventory::new(vec![], CountingOrder::Pci));
    let says = |variable: Option<&str>, ask: &dyn Fn() -> DriverAnswer, reason: &str| {
        let error = format!(
            "all stands for no GPU: {reason}; GPUs are those that CUDA_VISIBLE_DEVICES lists, and without it those \
             that NVIDIA's driver reports through NVML"
        );
        sees("0 all", variable, ask, &error);
    };
    for hidden in ["", "-1", "NoDevFiles", "0,0"] {
        // The id 0 comes first in a list, and is hidden too.
        let reason = format!("CUDA_VISIBLE_DEVICES is {hidden:?} and shows none");
        let all: GpuList = "all".parse().unwrap();
        let error = all.visible_on(&Machine::new(Some(hidden), &alike)).unwrap_err().to_string();
        assert!(error.contains(&reason), "{error}");
    }
    says(None, &empty, "NVIDIA's driver reports none");
    says(
        None,
        &|| DriverAnswer::Failed("no driver".into()),
        "NVIDIA's driver cannot be asked: no driver",
    );
    says(None, &|| DriverAnswer::NotBuilt, "NVML is only in builds with the feature `nvml`");
    says(Some("7"), &alike, "CUDA_VISIBLE_DEVICES is \"7\" and shows none");
    sees(
        "all",
        None,
        &split,
        &format!(
            "{TWO} is split into MIG devices, so indices are uncertain; put UUIDs into \
        CUDA_VISIBLE_DEVICES, as nvidia-smi -L shows them"
        ),
    );
    let unset = "all".parse::<GpuList>().unwrap().visible_in(None).unwrap_err().to_string();
    assert!(unset.contains("CUDA_VISIBLE_DEVICES is not set"), "{unset}");
    let share = "all".parse::<GpuList>().unwrap().share(1).unwrap_err().to_string();
    assert_eq!(share, "all has no id yet; find it with `GpuList::visible`");
}

#[test]
fn an_index_has_a_uuid() {
    names(2, None, &alike, THREE);
    names(0, Some("2,1"), &alike, THREE);
    names(0, Some("GPU-8932"), &alike, ONE);
    names(7, None, &alike, "cuda:7 does not exist; this machine has cuda:0 to cuda:2");
    names(
        1,
        Some("3"),
        &nobody,
        r#"GPU 1 is not visible: CUDA_VISIBLE_DEVICES is "3", so the only id is 0"#,
    );
}

#[test]
fn the_order_must_be_known() {
    let fastest_first = || mixed(CountingOrder::FastestFirst);
    let pci = || mixed(CountingOrder::Pci);
    let unknown = "GPUs of several models (T4, H200) are counted from the fastest on, and only \
                       CUDA knows which that is; set CUDA_DEVICE_ORDER=PCI_BUS_ID";
    names(1, None, &fastest_first, unknown);
    names(0, Some("1"), &fastest_first, unknown);
    sees(TWO, None, &fastest_first, unknown);
    sees(TWO, Some("0,1"), &fastest_first, unknown);
    names(1, None, &pci, TWO);
    sees(TWO, None, &pci, "1");
    // A shortened UUID has no order.
    names(0, Some("GPU-8932"), &fastest_first, ONE);
}

#[test]
fn memory_makes_a_model() {
    let larger = CardModel { name: "H200".to_owned(), memory: 96 << 30 };
    let ask = || {
        let gpus = vec![gpu(ONE, "H200"), MachineGpu { model: larger.clone(), ..gpu(TWO, "") }];
        DriverAnswer::Known(Inventory::new(gpus, CountingOrder::FastestFirst))
    };
    assert!(matches!(Machine::new(None, &ask).uuid(0), Err(DeviceError::UnknownOrder { .. })));
}

#[test]
fn mig_devices_go_by_the_variable() {
    let text = format!(
        "{TWO} is split into MIG devices, so indices are uncertain; \
             put UUIDs into CUDA_VISIBLE_DEVICES, as nvidia-smi -L shows them"
    );
    names(0, None, &split, &text);
    sees(ONE, None, &split, &text);
    names(
        0,
        Some("MIG-4f1c"),
        &nobody,
        "MIG-4f1c is shortened, and nobody can tell the rest; \
             write the whole UUID into CUDA_VISIBLE_DEVICES",
    );
    let unnamed = "has no id: CUDA_VISIBLE_DEVICES is not set, which would have to name it";
    sees(MIG, None, &nobody, &format!("{MIG} {unnamed}"));
}

#[test]
fn a_uuid_of_another_machine_is_refused() {
    let elsewhere = "GPU-00000000-0184-1c1d-9ff7-0a1b2c3d4e5f";
    let there = format!("{ONE}, {TWO}, {THREE}");
    sees(elsewhere, None, &alike, &format!("{elsewhere} is no GPU of this machine: {there}"));
    let none = || DriverAnswer::Known(Inventory::new(Vec::new(), CountingOrder::Pci));
    let text = format!("{elsewhere} is no GPU of this machine, which has none");
    sees(elsewhere, None, &none, &text);
    names(0, None, &none, "cuda:0 does not exist; this machine has no cuda device");
}

#[test]
fn a_uuid_that_is_hidden_or_too_short_is_refused() {
    sees(
        "GPU-8932f937",
        Some("1,2"),
        &alike,
        r#"GPU-8932f937 has no id: CUDA_VISIBLE_DEVICES is "1,2", which does not name it"#,
    );
    let short = format!("GPU-8a56 may be {TWO} or {THREE}; write more of its digits");
    sees("GPU-8a56", None, &alike, &short);
    names(0, Some("GPU-8a56"), &alike, &short);
}

#[test]
fn without_a_driver_the_error_says_what_to_do() {
    let not_built = "CUDA_VISIBLE_DEVICES does not tell which GPU cuda:1 is, and asking the \
                         driver needs a build with the feature `nvml`; put its UUID there, as \
                         nvidia-smi -L shows it";
    names(1, Some("0,1"), &|| DriverAnswer::NotBuilt, not_built);
    sees(ONE, None, &|| DriverAnswer::NotBuilt, &not_built.replace("cuda:1", ONE));
    let failed = || DriverAnswer::Failed("no libnvidia-ml.so.1".into());
    let error = Machine::new(None, &failed).uuid(1).unwrap_err();
    let text = "CUDA_VISIBLE_DEVICES does not tell which GPU cuda:1 is, and the driver cannot be \
                    asked; put its UUID there, as nvidia-smi -L shows it: no libnvidia-ml.so.1";
    assert_eq!(format!("{:#}", crate::Error::from(error)), text);
}

#[test]
fn the_driver_is_asked_once() {
    let asked = std::cell::Cell::new(0);
    let ask = || {
        asked.set(asked.get() + 1);
        alike()
    };
    sees("GPU-8932 GPU-8a56a4bc GPU-8a56a4bd", None, &ask, "0-2");
    assert_eq!(asked.get(), 1);
}
