use super::*;

/// A machine with two CUDA devices, in a build without Metal.
fn two_gpus(accelerator: Accelerator) -> Found {
    match accelerator {
        Accelerator::Cuda => Found::Count(2),
        Accelerator::Metal => Found::NotBuilt,
    }
}

#[track_caller]
fn check(text: &str, found: &dyn Fn(Accelerator) -> Found, expected: Option<&str>) {
    let devices: Devices = text.parse().unwrap();
    let error = devices.check_against(found).err().map(|error| error.to_string());
    assert_eq!(error.as_deref(), expected, "{text}");
}

#[test]
fn existing_devices_pass() {
    check("cpu*3", &|_| panic!("the machine is not asked"), None);
    check("cuda:0-1*2,cpu", &two_gpus, None);
    check("cuda:1+cuda:0", &two_gpus, None);
}

#[test]
fn places_with_a_gpu_in_common_have_a_number_in_common() {
    let devices: Devices = "cuda:3,cpu,metal:3+cuda:3,cpu+metal:3".parse().unwrap();
    let places = devices.places_with_gpus().unwrap();
    let expected = [&[0][..], &[], &[1, 0], &[1]].map(|gpus| gpus.iter().copied().collect());
    assert_eq!(*places, expected);
    assert_eq!("cpu*2".parse::<Devices>().unwrap().places_with_gpus(), None);
}

#[test]
fn missing_devices_are_named_with_those_there() {
    check(
        "cpu,cuda:1,cuda:7,cuda:9",
        &two_gpus,
        Some("cuda:7 does not exist; this machine has cuda:0 to cuda:1"),
    );
    check("cuda:1", &|_| Found::Count(1), Some("cuda:1 does not exist; this machine has cuda:0"));
    check(
        "cuda:0",
        &|_| Found::Count(0),
        Some("cuda:0 does not exist; this machine has no cuda device"),
    );
}

#[test]
fn devices_of_another_build_are_refused() {
    check(
        "cuda:0,metal:1",
        &two_gpus,
        Some(
            "metal:1 needs a build with the feature `metal`; \
                 as a mere name for the hooks, take it with `Devices::names_only`",
        ),
    );
}

#[test]
fn a_broken_driver_is_a_cause() {
    let broken = |_| Found::Failed("the driver is too old".into());
    check("cuda:3", &broken, Some("cuda:3 cannot be used: the driver of cuda does not start"));
    let error = Devices::cpus(1).and("cuda:3".parse::<Devices>().unwrap().check_against(&broken));
    let error = error.unwrap_err();
    assert!(format!("{error:?}").ends_with(": the driver is too old"), "{error:?}");
}

#[test]
fn labels_pass() {
    let devices: Devices = "cuda:999,metal:999".parse().unwrap();
    assert!(devices.clone().names_only().check().is_ok());
    assert!(devices.check().is_err());
}

#[test]
fn available_prefers_gpus() {
    assert_eq!(Devices::available_of(&two_gpus, 8).to_string(), "cuda:0,cuda:1");
    assert_eq!(Devices::available_of(&|_| Found::Count(1), 8).to_string(), "cuda:0,metal:0");
    assert_eq!(Devices::available_of(&|_| Found::Count(0), 8).to_string(), "cpu*8");
    assert_eq!(Devices::available_of(&|_| Found::NotBuilt, 0).to_string(), "cpu");
    assert_eq!(Devices::available_of(&|_| Found::Failed("no".into()), 1_000_000).len(), MAX_PLACES);
}

#[test]
fn repeated_places_share_their_devices() {
    let devices: Devices = "cuda:0-100+cpu*65536".parse().unwrap();
    let address = |worker| devices.place(worker).unwrap().devices().as_ptr();
    assert_eq!(address(0), address(65_535));
    assert!(devices.place(65_536).is_none());
}

#[test]
fn a_fallback_is_told_with_what_it_replaces() {
    let devices: Devices = "cuda:999999|cpu*2".parse().unwrap();
    let [fallback] = devices.fallbacks() else { panic!("{:?}", devices.fallbacks()) };
    assert!(fallback.starts_with("\"cuda:999999|cpu*2\" came to cpu*2, since "), "{fallback}");
    assert_eq!(devices, "cpu*2".parse().unwrap(), "fallbacks are not compared");
    assert_ne!(devices, "cpu*3".parse().unwrap());
}

#[test]
fn places_are_known_where_any_has_a_gpu() {
    let places = |text: &str| text.parse::<Devices>().unwrap().places_with_gpus();
    assert_eq!(places("cpu*2"), None);
    assert_eq!(places("cpu,cuda:0+cpu").map(|places| places.len()), Some(2));
}
