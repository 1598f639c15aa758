//! The options of a fork server, and what the keepers of a pool share of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, Weak};

use super::fork_link::ForkLink;

/// A program that prepares once, such as by imports, and then forks each worker of a pool: see
/// [`Processes::fork_server`](crate::process::Processes::fork_server).
///
/// The program is started with the first worker, and killed with the last one. Its descriptor 0 is a stream socket. A
/// message there is its length, as four bytes in little-endian order, and its content. An answer has a first byte: `+` if the
/// request is done, `-` for a reason why workers are to be started by their own program, or `!` for an error of the pool.
///
/// 1. It reads a message: what was given to [`preparation`](ForkServer::preparation). When it is prepared, it answers.
/// 2. It reads requests. `F` asks for a fork. With the length of its message come two descriptors: the input of the
///    worker, and its output, also for errors. The working directory and the variables of its environment, each as
///    `NAME=VALUE`, follow; a zero byte ends each of them. The fork leads a process group of its own, and goes on as the
///    program of a worker does. The answer is its process id.
/// 3. `S`, followed by a process id, asks for the status of a worker that has ended, as `waitpid` gives it. Until then
///    the program must leave the dead worker alone: its id must not be that of another process.
///
/// ```
/// use gangline::process::{ForkServer, Processes};
///
/// let server = ForkServer::new("python3").args(["fork_server.py"]).preparation("import torch");
/// let processes = Processes::new().program("python3").args(["worker.py"]).fork_server(server);
/// ```
#[derive(Debug, Clone)]
#[must_use = "it has no effect until it is given to the options of processes"]
pub struct ForkServer {
    pub(super) program: PathBuf,
    pub(super) args: Vec<OsString>,
    pub(super) preparation: Vec<u8>,
    /// What all keepers of a pool share.
    pub(super) slot: Arc<Mutex<ServerSlot>>,
}

/// The process of a fork server, as far as it is known.
#[derive(Debug, Default)]
pub(super) enum ServerSlot {
    #[default]
    None,
    /// Keepers hold it.
    Running(Weak<ForkLink>),
    /// Workers are started by their own program.
    GivenUp,
    /// The pool cannot go on.
    Failed(String),
}

impl ForkServer {
    /// Makes one that runs this program.
    ///
    /// ```
    /// use gangline::process::ForkServer;
    ///
    /// let server = ForkServer::new("python3").args(["fork_server.py"]);
    /// ```
    pub fn new(program: impl Into<PathBuf>) -> Self {
        ForkServer {
            program: program.into(),
            args: vec![],
            preparation: vec![],
            slot: Arc::default(),
        }
    }

    /// Sets the arguments of the program.
    ///
    /// ```
    /// use gangline::process::ForkServer;
    ///
    /// let server = ForkServer::new("python3").args(["-E", "fork_server.py"]);
    /// ```
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the first message to the program. It says what to prepare.
    ///
    /// ```
    /// use gangline::process::ForkServer;
    ///
    /// let server = ForkServer::new("python3").args(["fork_server.py"]).preparation("import torch");
    /// ```
    pub fn preparation(mut self, message: impl Into<Vec<u8>>) -> Self {
        self.preparation = message.into();
        self
    }
}
