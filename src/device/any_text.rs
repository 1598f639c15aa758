//! Lists of devices of any text: for the fuzzer, and for tests that make texts up.

use std::collections::HashSet;
use std::fmt;

use super::accelerator::Accelerator;
use super::detect::Found;
use super::devices_text::{Parsed, parse_device, parse_places, write_places};
use super::gpu_list::{GpuList, VOID};
use super::id::Device;
use super::place::{MAX_DEVICES, MAX_PLACES, Place};
use super::{DeviceError, Devices};

/// More bytes than the text of any error about a text has, whatever the text.
const LONGEST_ERROR: usize = 4_000;

/// With more places than this, a list is not written and read again: it takes too long to try many texts.
const MOST_WRITTEN: usize = 1_000;

/// Reads any bytes as lists of devices and of GPUs, and checks that what is made of them holds together.
///
/// The first byte is the machine: the numbers of its devices, and of the workers that share a list of GPUs.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    let [machine, text @ ..] = bytes else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    check_places(text, *machine);
    let (list, variable) = text.split_once('\n').unwrap_or((text, text));
    check_gpus(list, usize::from(*machine), variable);
}

fn check_places(text: &str, machine: u8) {
    let found = |accelerator| match accelerator {
        Accelerator::Cuda => Found::Count(usize::from(machine % 8)),
        Accelerator::Metal if machine < 128 => Found::Count(usize::from(machine / 8 % 2)),
        Accelerator::Metal => Found::NotBuilt,
    };
    let read = || parse_places(text, &found);
    let Parsed { places, fallbacks } = match read() {
        Ok(parsed) => parsed,
        Err(error) => {
            check_error(text, &error);
            assert_eq!(read().expect_err("it was one").to_string(), error.to_string());
            assert!(parse_device(text).is_err(), "a device is a list");
            return;
        }
    };
    assert!((1..=MAX_PLACES).contains(&places.len()));
    places.iter().for_each(check_place);
    fallbacks.iter().for_each(|fallback| check_shown(fallback));
    assert!(text.contains('|') || fallbacks.is_empty());
    match parse_device(text) {
        Ok(device) => assert_eq!(places, [Place::one(device)]),
        Err(error) => check_error(text, &error),
    }
    if places.len() <= MOST_WRITTEN {
        let again = read().expect("it was read before");
        assert_eq!((&again.places, &again.fallbacks), (&places, &fallbacks), "read twice");
        let written = WrittenPlaces(&places).to_string();
        // A text that was written is the same on every machine.
        let again = parse_places(&written, &|_| Found::NotBuilt).expect("what is written is read");
        assert_eq!((again.places, again.fallbacks), (places, vec![]), "{written}");
    }
}

fn check_place(place: &Place) {
    let devices = place.devices();
    assert!((1..=MAX_DEVICES).contains(&devices.len()));
    let different: HashSet<&Device> = devices.iter().collect();
    assert_eq!(different.len(), devices.len(), "no device is twice in a place");
}

fn check_gpus(text: &str, workers: usize, variable: &str) {
    let gpus: GpuList = match text.parse() {
        Ok(gpus) => gpus,
        Err(error) => return check_error(text, &error),
    };
    assert!(gpus.len() <= MAX_PLACES);
    if gpus.len() > MOST_WRITTEN {
        return;
    }
    for written in [format!("{gpus}"), format!("{gpus:#}")] {
        assert_eq!(written.parse::<GpuList>().expect("what is written is read"), gpus, "{written}");
    }
    let has_all = format!("{gpus:#}").split(',').any(|entry| entry == "all");
    for variable in [None, Some(variable)] {
        let visible = match gpus.visible_in(variable) {
            Ok(visible) => visible,
            Err(error) => {
                check_shown(&error.to_string());
                continue;
            }
        };
        // `all` is one entry for as many GPUs as there are.
        if !has_all {
            assert_eq!(visible.len(), gpus.len(), "an id for each entry");
        }
        check_slots(&visible, visible.slots(workers), workers);
        match visible.share(workers) {
            Ok(devices) => assert_eq!(devices.len(), workers, "a place for each worker"),
            Err(error) => check_shown(&error.to_string()),
        }
    }
}

/// Each GPU is in one of at most as many slots as there are workers.
fn check_slots(gpus: &GpuList, slots: Result<Devices, DeviceError>, workers: usize) {
    let slots = match slots {
        Ok(slots) => slots,
        Err(error) => return check_shown(&error.to_string()),
    };
    assert!(slots.len() <= workers);
    let ids = |text: String| -> HashSet<usize> {
        let ids = text.split(',').filter_map(|id| id.parse().ok());
        ids.filter(|id| *id != VOID).collect()
    };
    let shared: HashSet<usize> = slots
        .places()
        .flatten()
        .map(|device| match device {
            Device::Cuda(id) => *id,
            other => panic!("a slot of {other}"),
        })
        .collect();
    assert_eq!(shared, ids(format!("{gpus:#}")), "no GPU is left unused");
}

/// The error quotes a part of what was given, and can be shown on a terminal.
fn check_error(given: &str, error: &DeviceError) {
    check_shown(&error.to_string());
    let quoted = match error {
        DeviceError::EmptyPart { text }
        | DeviceError::Unknown { text, .. }
        | DeviceError::NoKind { text, .. }
        | DeviceError::CpuIndex { text }
        | DeviceError::BadIndex { text, .. }
        | DeviceError::Backwards { text, .. }
        | DeviceError::BadCount { text, .. }
        | DeviceError::NotOne { text }
        | DeviceError::NothingLeft { text, .. }
        | DeviceError::TooManyAlternatives { text, .. }
        | DeviceError::UnknownGpu { text }
        | DeviceError::BackwardGpus { text, .. } => text,
        _ => return,
    };
    let clipped = quoted.strip_suffix("...").unwrap_or(quoted);
    assert!(given.contains(clipped), "{given:?} has no {quoted:?}");
}

fn check_shown(text: &str) {
    assert!(!text.is_empty() && text.len() <= LONGEST_ERROR, "{} bytes", text.len());
    assert!(!text.contains(char::is_control), "{text:?}");
}

struct WrittenPlaces<'a>(&'a [Place]);

impl fmt::Display for WrittenPlaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_places(f, self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_is_an_entry_for_any_number_of_gpus() {
        for text in
            ["\0all\nGPU-8932f937,0", "\0all\n", "\x04all\n0,1,2", "\x020,all\n0,1,2", "\0all"]
        {
            read_any_bytes(text.as_bytes());
        }
    }

    #[test]
    fn advice_has_no_white_space_of_the_text() {
        for text in ["\0gpu:\n0", "\0mps:\t007", "\0GPU: 1", "\0gpu:\u{a0}3\r"] {
            read_any_bytes(text.as_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_devices_or_an_error_that_names_them(bytes in vec(any::<u8>(), 0..60)) {
            read_any_bytes(&bytes);
        }

        /// Made of what lists are made of.
        #[test]
        fn devices_that_were_made_up_hold_together(
            machine in any::<u8>(),
            parts in vec(prop::sample::select(vec![
                "cpu", "cuda", "metal", "CUDA", "gpu", "mps", "auto", ":", ":", "all", "0", "1", "3", "99", "007",
                "-", "+", "+", ",", ",", "*", "|", "|", " ", "\n", "\u{1b}", "é", "GPU-8932f937", "MIG-4f1c",
                "70000", "18446744073709551616",
            ]), 0..16),
        ) {
            read_any_bytes(&[&[machine], parts.concat().as_bytes()].concat());
        }
    }
}
