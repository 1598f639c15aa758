//! The options of producers in child processes.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::fork_server::ForkServer;
use super::printed::PrintSink;
use crate::backends::memory::shared_memory::SharedMemory;
use crate::base::absolute;

/// How the child processes of a pool are started and ended: see
/// [`Builder::processes`](crate::Builder::processes).
///
/// ```
/// use std::time::Duration;
///
/// use gangline::process::Processes;
///
/// let processes = Processes::new().env("OMP_NUM_THREADS", "1").kill_after(Duration::from_secs(20));
/// ```
#[derive(Debug, Clone)]
#[must_use = "they have no effect until they are given to a builder"]
pub struct Processes {
    pub(super) program: Option<PathBuf>,
    pub(super) args: Vec<OsString>,
    /// `None` removes the variable.
    pub(super) env: Vec<(OsString, Option<OsString>)>,
    pub(super) fork_server: Option<ForkServer>,
    pub(super) max_frame: u32,
    pub(super) kill_after: Option<Duration>,
    pub(super) ahead: NonZeroUsize,
    pub(super) printed: PrintSink,
    pub(super) visible_gpus: VisibleGpus,
    pub(super) memory: SharedMemory,
    /// `None` leaves it to the builder.
    pub(crate) retries: Option<u32>,
}

/// The GPUs that CUDA shows to a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum VisibleGpus {
    /// Those of its place, from `cuda:0` on.
    #[default]
    OfPlace,
    /// Those of this process, with the same numbers.
    All,
}

/// 256 MiB.
const MAX_FRAME: u32 = 256 << 20;
const MOST_AHEAD: NonZeroUsize = NonZeroUsize::new(64).expect("it is not 0");
const KILL_AFTER: Duration = Duration::from_secs(5);

impl Default for Processes {
    fn default() -> Self {
        Processes {
            program: None,
            args: vec![],
            env: vec![],
            fork_server: None,
            max_frame: MAX_FRAME,
            kill_after: Some(KILL_AFTER),
            ahead: MOST_AHEAD,
            printed: PrintSink::default(),
            visible_gpus: VisibleGpus::default(),
            memory: SharedMemory::new(),
            retries: None,
        }
    }
}

impl Processes {
    /// Workers run the program file of this process, without arguments, and with its environment.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new();
    /// ```
    pub fn new() -> Self {
        Processes::default()
    }

    /// Sets the program that workers run. Its `main` must begin with
    /// [`worker_main`](crate::worker_main). A relative path is looked up in the current directory of
    /// [`build`](crate::Builder::build); a plain name is searched in `PATH`.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().program("/opt/app/bin/worker");
    /// ```
    pub fn program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Keeps naming the same program when the current directory changes.
    pub(crate) fn anchored(mut self) -> Self {
        let is_path = |program: &PathBuf| program.components().nth(1).is_some();
        self.program = self.program.map(|it| if is_path(&it) { absolute(it) } else { it });
        self
    }

    /// Sets the arguments of the program.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().args(["--verbose"]);
    /// ```
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args = args.into_iter().map(Into::into).collect();
        self
    }

    /// Has workers forked by a process that has prepared, such as by imports that take seconds.
    ///
    /// They run in forks of the server in place of [`program`](Processes::program), and are else as without it. The variables
    /// of a worker, also those of its GPUs, are set in the fork. If the server refuses, or ends, workers are started by their
    /// program, and one message says so: a line for [`printed`](Processes::printed), or a warning. If the preparation fails,
    /// the pool does. Clones of the options share the server.
    ///
    /// ```
    /// use gangline::process::{ForkServer, Processes};
    ///
    /// let server = ForkServer::new("python3").args(["fork_server.py"]);
    /// let processes = Processes::new().program("python3").args(["worker.py"]).fork_server(server);
    /// ```
    pub fn fork_server(mut self, server: ForkServer) -> Self {
        self.fork_server = Some(server);
        self
    }

    /// Sets the memory for large inputs. By default, the pool has one of its own.
    ///
    /// ```
    /// use gangline::process::{Processes, SharedMemory};
    ///
    /// let memory = SharedMemory::new();
    /// let processes = Processes::new().shared_memory(&memory);
    /// ```
    pub fn shared_memory(mut self, memory: &SharedMemory) -> Self {
        self.memory = memory.clone();
        self
    }

    /// Sets an environment variable of the workers.
    ///
    /// With the feature `rayon`, a worker gets `RAYON_NUM_THREADS` anyway, unless this process has it. It is the number
    /// of threads of the worker's hooks, by `Builder::cpu_threads`.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().env("OMP_NUM_THREADS", "1");
    /// ```
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), Some(value.into())));
        self
    }

    /// Removes an environment variable from the workers.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().env_remove("LD_PRELOAD");
    /// ```
    pub fn env_remove(mut self, name: impl Into<OsString>) -> Self {
        self.env.push((name.into(), None));
        self
    }

    /// Leaves all GPUs visible in the workers, with the numbers that they have in this process.
    ///
    /// By default a worker sees the GPUs of its place only, by `CUDA_VISIBLE_DEVICES`: a place `cuda:2` is `cuda:0` there.
    /// With this, the variable stays as it is here, and [`device`](crate::ProducerContext::device) is `cuda:2` there too.
    /// It is for hooks that copy from one GPU to another, or name GPUs as other programs do. A hook that ignores its
    /// device then works on `cuda:0`, with all other workers.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().all_gpus_visible();
    /// ```
    pub fn all_gpus_visible(mut self) -> Self {
        self.visible_gpus = VisibleGpus::All;
        self
    }

    /// Sets the largest message, in bytes; the default is 256 MiB. A batch is one message.
    ///
    /// A longer input or output fails its item. It bounds what a damaged message can have this process allocate.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().max_frame(1 << 30);
    /// ```
    pub fn max_frame(mut self, bytes: u32) -> Self {
        self.max_frame = bytes;
        self
    }

    /// Sets how long a hook may go on after its run was cancelled or has failed. Then its process is killed, and
    /// the next run starts another. `None` waits for the hook. The default is 5 s.
    ///
    /// The hook sees [`is_cancelled`](crate::ProducerContext::is_cancelled) at once.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use gangline::process::Processes;
    ///
    /// let patient = Processes::new().kill_after(None);
    /// let strict = Processes::new().kill_after(Duration::from_secs(1));
    /// ```
    pub fn kill_after(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.kill_after = time.into();
        self
    }

    /// Sets how often an item is tried again, for an input that is not `Clone`: its encoded form was sent, and the input
    /// itself stays here. Otherwise like [`Builder::retries`](crate::Builder::retries), which it overrides.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().retries(2);
    /// ```
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Sets how many items a worker has at most: the one that its hook works on, and those sent ahead, which the hook
    /// takes without waiting for this process. The default is 64; 0 counts as 1, with which each item waits for the
    /// answer to the one before.
    ///
    /// The number adapts up to that: it grows while an item takes less than 50 us, about the time of a message there
    /// and back, and shrinks with longer ones. Items sent ahead come back if another producer has nothing to do, or if
    /// the worker dies; that costs them no attempt. With [`batch`](crate::Builder::batch), a worker has one batch.
    ///
    /// ```
    /// use gangline::process::Processes;
    ///
    /// let one_at_a_time = Processes::new().ahead(1);
    /// ```
    pub fn ahead(mut self, items: usize) -> Self {
        self.ahead = NonZeroUsize::new(items).unwrap_or(NonZeroUsize::MIN);
        self
    }

    /// Hands what workers print to a function. Without it, each line is an event of `tracing` with the target
    /// `gangline::worker`.
    ///
    /// The function gets the number of the producer, and the bytes that its process has written to its standard output
    /// or error, in their order: whole lines with their ends, and a line of more than 16 KiB in pieces. What was printed
    /// before an answer comes before it, also a line without its end: an item's lines are there before its result is.
    ///
    /// It is called on the producer's thread, on several at the same time. While it runs, its worker waits once the
    /// pipe between them is full, and no time limit is looked at. If it panics, a warning is logged, and the next line
    /// comes anyway. The end of what was printed is in the errors of [crashes](crate::Error::HookCrashed) too.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// use gangline::process::Processes;
    ///
    /// let processes = Processes::new().printed(|producer, line| {
    ///     let mut out = std::io::stderr().lock();
    ///     _ = write!(out, "[{producer}] ").and_then(|()| out.write_all(line));
    /// });
    /// ```
    pub fn printed(mut self, function: impl Fn(usize, &[u8]) + Send + Sync + 'static) -> Self {
        self.printed = PrintSink::Function(Arc::new(function));
        self
    }
}
