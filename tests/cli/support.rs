//! Starting the program, and what it left.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory of its own, in which the program is started.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program with these arguments, without the variables of GPUs that this process may have.
    pub(crate) fn gangline<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gangline"));
        command.args(arguments).current_dir(self.directory()).stdin(Stdio::null());
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER");
        command
    }

    /// What `gangline run` with these arguments did.
    #[track_caller]
    pub(crate) fn run<'a>(&self, arguments: impl IntoIterator<Item = &'a str>) -> Ran {
        let mut command = self.gangline(std::iter::once("run").chain(arguments));
        Ran::of(command.output().unwrap())
    }
}

/// How the program ended, and what it printed.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Ran { code: output.status.code(), stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn check(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, &*self.stdout), (Some(code), stdout), "{self:?}");
    }
}
