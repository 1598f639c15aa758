//! A runner that does as each item says, and what its tests have in common.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{process, thread};

use gangline::order::InputOrder;
use gangline::process::{MessagePack, Processes, Recipe};
use gangline::{Builder, CfgNode, ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

/// A list of names and bodies of tests.
pub type Tests = &'static [(&'static str, fn())];

/// Makes a list of tests of their names.
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: crate::chores::Tests = &[$((stringify!($name), $name as fn())),*];
    };
}
pub(crate) use tests;

/// What a hook does with an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Chore {
    Square(u64),
    Abort,
    Exit(i32),
    /// A write through a null pointer needs `unsafe`. The coordinator sees the same of it: the kernel sends SIGSEGV, the
    /// handler of the standard library puts the default back, and the next one ends the process with that signal.
    Segv,
    Kill,
    Stop,
    Panic(String),
    /// Panics in a program whose panics abort.
    PanicAborts(String),
    /// Panics, and ends its process this number of microseconds later.
    PanicAndAbort(u64),
    Fail(String),
    /// An error of a type that the recipe names.
    Rare(u32),
    Unmarked,
    /// Allocates memory, in MiB.
    Allocate(usize),
    /// Aborts if the file is not there, and makes it.
    AbortOnce(PathBuf),
    /// Prints a line, then aborts.
    LastWords(String),
    /// Says in a file which process this is, and sleeps until it is given up.
    Hang(PathBuf),
    /// The same, and does not care.
    HangOn(PathBuf),
    Pid,
    Sleep(u64),
    /// Starts a process that holds the socket and the group's pipe open.
    Fork(PathBuf),
    Build,
    Text(String),
    Site,
    Large(usize),
    /// Waits until the file is there.
    Await(PathBuf),
    /// Makes the file.
    Open(PathBuf),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("rare error {code}")]
pub struct RareError {
    pub code: u32,
}

/// Does chores; consumes their results.
pub struct Chores {
    exponent: u32,
}

pub static CHORES: Recipe<Chores> =
    Recipe::new("chores", Chores::from_cfg).version("1").error::<RareError>();

/// The same with the other codec.
pub static TOLD: Recipe<Chores> = Recipe::new("told", Chores::from_cfg).codec(&MessagePack);

impl Chores {
    pub fn from_cfg(cfg: &CfgNode) -> Result<Self> {
        if cfg.get_or("broken", false)? {
            return Err("the recipe is broken".into());
        }
        Ok(Chores { exponent: cfg.get_or("exponent", 2)? })
    }

    pub fn new() -> Self {
        Chores { exponent: 2 }
    }
}

impl Runner for Chores {
    type Input = Chore;
    type Output = String;
    /// Not `Send`.
    type ProducerState = std::rc::Rc<u64>;
    type ConsumerState = Vec<String>;
    type Summary = Vec<String>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Self::ProducerState> {
        init_as_told(cx)?;
        Ok(std::rc::Rc::new(0))
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Self::ProducerState,
        chore: Chore,
    ) -> Result<String> {
        do_chore(cx, self.exponent, chore)
    }

    /// Gives fewer outputs than inputs, if the configuration says so.
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        inputs: &mut Vec<Chore>,
    ) -> Result<Vec<Result<String>>> {
        inputs.reverse();
        let each = std::iter::from_fn(|| inputs.pop()).enumerate();
        let mut outputs: Vec<_> =
            each.map(|(i, chore)| self.producer_work(&cx.at(i), state, chore)).collect();
        outputs.truncate(outputs.len() - cx.cfg().get_or("outputs_less", 0)?);
        Ok(outputs)
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, _: Self::ProducerState) -> Result<()> {
        match cx.cfg().get_or("end", String::new())?.as_str() {
            "" => Ok(()),
            "abort" => std::process::abort(),
            "hang" => {
                if let Ok(path) = cx.cfg().get::<PathBuf>("note") {
                    // Once.
                    if path.exists() {
                        return Ok(());
                    }
                    note_pid(&path)?;
                }
                loop {
                    std::thread::park();
                }
            }
            path => Ok(std::fs::write(path, cx.producer().to_string())?),
        }
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<String>> {
        Ok(vec![])
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        all: &mut Vec<String>,
        output: String,
    ) -> Result<()> {
        all.push(output);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<String>) -> Result<Vec<String>> {
        Ok(all)
    }
}

fn init_as_told(cx: &ProducerContext<'_>) -> Result<()> {
    match cx.cfg().get_or("init", String::new())?.as_str() {
        "abort" => std::process::abort(),
        "fail" => Err("no state today".into()),
        "panic" => panic!("a panic in init"),
        "hang" => {
            if let Ok(path) = cx.cfg().get::<PathBuf>("note") {
                note_pid(&path)?;
            }
            loop {
                std::thread::park();
            }
        }
        // A file counts the starts.
        path if path.starts_with('/') => {
            let starts = std::fs::read_to_string(path).map_or(0, |text| text.len());
            std::fs::write(path, "x".repeat(starts + 1))?;
            let bad = cx.cfg().get_or("bad_starts", Vec::<usize>::new())?;
            if bad.contains(&starts) { std::process::abort() } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

fn do_chore(cx: &ProducerContext<'_>, exponent: u32, chore: Chore) -> Result<String> {
    // Again and again: the standard library takes the first SIGSEGV, and leaves the second to the system.
    let own = |signal| {
        loop {
            kill_process(getpid(), signal).unwrap();
        }
    };
    match chore {
        Chore::Square(x) => return Ok(x.pow(exponent).to_string()),
        Chore::Abort => std::process::abort(),
        Chore::Exit(status) => std::process::exit(status),
        Chore::Segv => own(Signal::SEGV),
        Chore::Kill => own(Signal::KILL),
        Chore::Stop => own(Signal::STOP),
        Chore::Panic(text) => panic!("{text}"),
        Chore::PanicAborts(text) => {
            // All that `panic = "abort"` does at run time: the message is printed, and nothing is unwound.
            let print = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                print(panic);
                process::abort();
            }));
            panic!("{text}");
        }
        Chore::PanicAndAbort(micros) => {
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(micros));
                process::abort();
            });
            panic!("the process is about to end");
        }
        Chore::Fail(text) => return Err(text.into()),
        Chore::Rare(code) => return Err(RareError { code }.into()),
        Chore::Unmarked => {
            return Err(gangline::error::OutOfMemory::new("arena exhausted").into());
        }
        Chore::Allocate(mib) => return Ok(vec![1_u8; mib << 20].len().to_string()),
        Chore::AbortOnce(path) => {
            if !path.exists() {
                std::fs::write(path, "")?;
                std::process::abort();
            }
        }
        Chore::LastWords(text) => {
            std::io::Write::write_all(&mut std::io::stderr(), text.as_bytes())?;
            std::process::abort();
        }
        Chore::Hang(path) => {
            note_pid(&path)?;
            while !cx.is_cancelled() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Chore::HangOn(path) => {
            note_pid(&path)?;
            loop {
                std::thread::park();
            }
        }
        Chore::Pid => return Ok(std::process::id().to_string()),
        Chore::Sleep(millis) => std::thread::sleep(Duration::from_millis(millis)),
        Chore::Fork(path) => fork(&path)?,
        Chore::Build => {
            let built = OrderedRunner::builder(Chores::new()).devices(1);
            built.processes(&CHORES, Processes::new()).build()?;
        }
        Chore::Text(text) => return Ok(text),
        Chore::Site => {
            let variable = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
            let thread = std::thread::current();
            return Ok(format!(
                "{} {} {}/{} {variable:?} item {:?} attempt {}",
                thread.name().unwrap_or_default(),
                cx.device(),
                cx.producer(),
                cx.producers(),
                cx.item(),
                cx.attempt(),
            ));
        }
        Chore::Await(path) => {
            while !path.exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Chore::Open(path) => std::fs::write(path, "")?,
        Chore::Large(bytes) => return Ok("x".repeat(bytes)),
    }
    Ok(format!("{:?} is over", getpid().as_raw_nonzero()))
}

/// A process in a group of its own, with this one's standard output. It tells its id in a file.
fn fork(path: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new("sleep");
    let child = command.arg("1000").process_group(0).spawn()?;
    write_whole(path, &child.id().to_string())
}

pub fn note_pid(path: &Path) -> Result<()> {
    write_whole(path, &std::process::id().to_string())
}

/// No reader sees half of it.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let part = path.with_extension("part");
    std::fs::write(&part, text)?;
    Ok(std::fs::rename(part, path)?)
}

pub type ChoresBuilder = Builder<Chores, InputOrder>;

/// A builder with producers in processes.
pub fn builder(producers: usize) -> ChoresBuilder {
    let builder = OrderedRunner::builder(Chores::new()).devices(producers);
    builder.processes(&CHORES, Processes::new())
}

pub fn squares(range: std::ops::Range<u64>) -> Vec<Chore> {
    range.map(Chore::Square).collect()
}

pub fn squared(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|x| (x * x).to_string()).collect()
}

/// Waits until a file is there, and returns the process id in it.
pub fn pid_in(path: &Path) -> rustix::process::Pid {
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return rustix::process::Pid::from_raw(text.parse().unwrap()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a process that may be another's child has ended.
pub fn await_end(pid: rustix::process::Pid) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "{pid:?} goes on");
}
