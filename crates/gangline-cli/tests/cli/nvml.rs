//! Machines with GPUs: a stand-in for NVIDIA's driver library, compiled for the test.

use std::fmt;
use std::process::Command;

use crate::support::{Place, Ran, Running};

pub(crate) const FIRST: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
pub(crate) const SECOND: &str = "GPU-5a56a4bc-0184-1c1d-9ff7-0a1b2c3d4e5f";

/// Error codes of the library.
pub(crate) const NO_PERMISSION: i32 = 4;
pub(crate) const DRIVER_NOT_LOADED: i32 = 9;
pub(crate) const GPU_IS_LOST: i32 = 15;
pub(crate) const VERSION_MISMATCH: i32 = 18;
pub(crate) const NOT_READY: i32 = 27;

/// A GPU as the driver reports it; `None` for values it does not support.
#[derive(Clone)]
pub(crate) struct Gpu {
    pub(crate) name: &'static str,
    pub(crate) uuid: &'static str,
    /// The error for its handle, unless 0.
    pub(crate) handle: i32,
    /// The error for all queries about it, unless 0.
    pub(crate) answer: i32,
    pub(crate) bus: Option<i64>,
    pub(crate) total: Option<i64>,
    pub(crate) used: i64,
    pub(crate) busy: Option<i64>,
    pub(crate) temperature: Option<i64>,
    pub(crate) mig: Option<i64>,
}

/// In the format that the stand-in reads.
impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gpu { name, uuid, handle, answer, used, .. } = self;
        let [bus, total, busy, temperature, mig] =
            [self.bus, self.total, self.busy, self.temperature, self.mig]
                .map(|value| value.unwrap_or(-1));
        write!(f, "{handle}|{answer}|{bus}|{name}|{uuid}|{total}|{used}|{busy}|{temperature}|{mig}")
    }
}

/// An idle GPU with that bus number.
pub(crate) fn gpu(uuid: &'static str, bus: i64) -> Gpu {
    Gpu {
        name: "NVIDIA H200",
        uuid,
        handle: 0,
        answer: 0,
        bus: Some(bus),
        total: Some(150_754_820_096),
        used: 0,
        busy: Some(0),
        temperature: Some(30),
        mig: Some(0),
    }
}

/// A directory with the driver that the program finds.
pub(crate) struct Machine {
    pub(crate) place: Place,
    gpus: String,
    init: i32,
}

impl Machine {
    /// A driver that reports these GPUs, in this order.
    pub(crate) fn with(gpus: impl IntoIterator<Item = Gpu>) -> Machine {
        let gpus: Vec<String> = gpus.into_iter().map(|gpu| gpu.to_string()).collect();
        let place = Place::new();
        std::fs::create_dir(place.path("lib")).unwrap();
        let machine = Machine { place, gpus: gpus.join("\n"), init: 0 };
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(machine.place.path("lib/libnvidia-ml.so.1"))
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/nvml.c"))
            .status();
        assert!(compiled.unwrap().success());
        machine
    }

    /// A driver that does not start.
    pub(crate) fn that_fails(init: i32) -> Machine {
        Machine { init, ..Machine::with([]) }
    }

    /// The program with arguments as typed in a shell.
    pub(crate) fn typed(&self, line: &str) -> Command {
        let mut command = self.place.typed(line);
        self.drive(&mut command);
        command
    }

    /// Lets a command find the driver.
    pub(crate) fn drive(&self, command: &mut Command) {
        command.env("LD_LIBRARY_PATH", self.place.path("lib"));
        command.env("STAND_IN_INIT", self.init.to_string()).env("STAND_IN_GPUS", &self.gpus);
    }

    /// The output of a successful command.
    #[track_caller]
    pub(crate) fn prints(&self, line: &str) -> String {
        let ran = self.place.ran(&mut self.typed(line));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""), "{ran:?}");
        ran.stdout
    }

    /// `gangline run` with a lock directory of the machine's own.
    pub(crate) fn locked(&self, visible: Option<&str>, line: &str) -> Command {
        let _ = std::fs::create_dir(self.place.path("locks"));
        let mut command = self.typed(&format!("run --lock-dir locks {line}"));
        if let Some(visible) = visible {
            command.env("CUDA_VISIBLE_DEVICES", visible);
        }
        command
    }

    #[track_caller]
    pub(crate) fn ran(&self, command: &mut Command) -> Ran {
        self.place.ran(command)
    }

    pub(crate) fn start(&self, command: &mut Command) -> Running {
        self.place.start(command)
    }
}
