//! A runner that does as each item says, for tests with child processes and with clusters.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{process, thread};

use gangline::error::{DeviceLost, OutOfMemory, Untried};
use gangline::order::InputOrder;
use gangline::process::{MessagePack, Processes, Recipe};
use gangline::{Builder, CfgNode, ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

/// What a hook does with an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Chore {
    Square(u64),
    Text(String),
    /// Returns this number of bytes.
    Large(usize),
    Pid,
    /// The name of the thread, and whether it is the main thread of its process.
    Thread,
    /// The seed of the item.
    Seed,
    /// The index, the attempt, the number of the producer, and the device.
    Site,
    /// The same with the thread, the number of producers and the visible GPUs.
    Surroundings,
    Fail(String),
    /// An error of a type that the recipe names.
    Rare(u32),
    /// An error of a type that it does not name.
    Unmarked,
    Panic(String),
    /// Panics in a program whose panics abort.
    PanicAborts(String),
    /// Panics, and ends its process this number of microseconds later.
    PanicAndAbort(u64),
    Abort,
    Exit(i32),
    /// A write through a null pointer needs `unsafe`. The coordinator sees the same of it: the kernel sends SIGSEGV, the
    /// handler of the standard library puts the default back, and the next one ends the process with that signal.
    Segv,
    Kill,
    Stop,
    /// Aborts if the file is not there, and makes it.
    AbortOnce(PathBuf),
    /// Kills its process, unless the file is there; makes the file.
    KillOnce(PathBuf),
    /// As `KillOnce`; then it returns the text.
    KillOnceWith(PathBuf, String),
    /// Stops its process, unless the file is there; writes its id into the file.
    StopOnce(PathBuf),
    /// Fails unless the file is there; writes its process id into the file.
    FailOnce(PathBuf),
    /// Waits for the first file, then fails as `FailOnce` with the second.
    FailAfter(PathBuf, PathBuf),
    /// Prints a line, then aborts.
    LastWords(String),
    /// Prints the text, and returns it.
    Print(String),
    /// Prints this number of lines of 1,023 bytes.
    PrintLines(usize),
    /// Prints lines until its process ends, also after its answer.
    PrintOn,
    /// Calls itself until it has used at least this number of bytes of its stack.
    Deep(usize),
    /// Fails as a kernel with an illegal address: from then on, every chore of its process fails.
    LoseDevice,
    /// As `LoseDevice`, unless the file is there.
    LoseDeviceOnce(PathBuf),
    /// Is not tried in a batch of more than this number, and returns the size of the batch.
    UntriedAbove(usize),
    /// Allocates memory, in MiB.
    Allocate(usize),
    /// Says in the first file which process this is, and waits for the second.
    Await(PathBuf, PathBuf),
    /// As `Await`, then returns this number of bytes.
    LargeAfter(PathBuf, PathBuf, usize),
    /// As `Await`, unless the first file is there: then it returns at once.
    AwaitOnce(PathBuf, PathBuf),
    /// Makes the file.
    Touch(PathBuf),
    /// Adds a line to the file.
    Append(PathBuf),
    /// Says in the file which process this is, waits until it is given up, and says so in a second file.
    Hang(PathBuf),
    /// As `Hang`, unless the file is there: then it returns at once.
    HangOnce(PathBuf),
    /// As `HangOnce`; then it returns the text.
    HangOnceWith(PathBuf, String),
    /// As `Hang`, and goes on when it is given up.
    HangOn(PathBuf),
    /// Sleeps for this number of ms.
    Sleep(u64),
    /// Starts a process that holds the socket and the group's pipe open.
    Fork(PathBuf),
    /// Builds a pool with producers in processes.
    Build,
    /// Returns the number of items of its batch, and its attempt.
    Batch,
    /// Returns the number of items of its batch. The number is its size.
    Count(u64),
    /// Runs out of memory in a batch of more items than this, else as `Batch`.
    ShortAbove(usize),
    /// Fails as a batch.
    FailBatch,
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

/// The same name in a program of another version.
static LATER: Recipe<Chores> =
    Recipe::new("chores", Chores::from_cfg).version("2").error::<RareError>();

/// The same with the other codec.
pub static PACKED: Recipe<Chores> = Recipe::new("packed", Chores::from_cfg).codec(&MessagePack);

/// That of this process.
pub fn recipe() -> &'static Recipe<Chores> {
    match std::env::var_os("TEST_LATER_VERSION") {
        Some(_) => &LATER,
        None => &CHORES,
    }
}

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
        init_as_configured(cx)?;
        if let Ok(path) = cx.cfg().get::<PathBuf>("starts") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file?.write_all(b"x")?;
        }
        if let Ok(gate) = cx.cfg().get::<PathBuf>("gate") {
            text_in(&gate);
        }
        thread::sleep(Duration::from_millis(cx.cfg().get_or("init_millis", 0)?));
        Ok(std::rc::Rc::new(0))
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Self::ProducerState,
        chore: Chore,
    ) -> Result<String> {
        // Such a worker is ill.
        if std::env::var_os("TEST_ILL").is_some() {
            return Err("this worker is ill".into());
        }
        do_chore(cx, self.exponent, chore)
    }

    /// Gives fewer outputs than inputs, if the configuration says so.
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Self::ProducerState,
        chores: &mut Vec<Chore>,
    ) -> Result<Vec<Result<String>>> {
        let count = chores.len();
        let is_short = |chore: &Chore| matches!(chore, Chore::ShortAbove(most) if count > *most);
        if chores.iter().any(is_short) {
            return Err(OutOfMemory::new("no room for this batch").into());
        }
        if chores.contains(&Chore::FailBatch) {
            return Err("a batch fails on purpose".into());
        }
        if chores.contains(&Chore::LoseDevice) {
            return Err(lose_device("illegal address"));
        }
        chores.reverse();
        let each = std::iter::from_fn(|| chores.pop()).enumerate();
        let mut outputs: Vec<_> = each
            .map(|(i, chore)| match chore {
                Chore::Batch | Chore::ShortAbove(_) => Ok(format!("{count} {}", cx.attempt())),
                Chore::Count(_) => Ok(count.to_string()),
                Chore::UntriedAbove(most) if count > most => {
                    Err(Untried::new(OutOfMemory::new("no room")).into())
                }
                Chore::UntriedAbove(_) => Ok(format!("{count} {}", cx.attempt())),
                chore => do_chore(&cx.at(i), self.exponent, chore),
            })
            .collect();
        outputs.truncate(count - cx.cfg().get_or("outputs_less", 0)?);
        Ok(outputs)
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, _: Self::ProducerState) -> Result<()> {
        match cx.cfg().get_or("end", String::new())?.as_str() {
            "" => Ok(()),
            "abort" => process::abort(),
            "hang" => {
                if let Ok(path) = cx.cfg().get::<PathBuf>("note") {
                    // Once.
                    if path.exists() {
                        return Ok(());
                    }
                    note_pid(&path)?;
                }
                loop {
                    thread::park();
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

fn init_as_configured(cx: &ProducerContext<'_>) -> Result<()> {
    match cx.cfg().get_or("init", String::new())?.as_str() {
        "abort" => process::abort(),
        "fail" => Err("no state today".into()),
        "panic" => panic!("a panic in init"),
        "hang" => {
            if let Ok(path) = cx.cfg().get::<PathBuf>("note") {
                note_pid(&path)?;
            }
            loop {
                thread::park();
            }
        }
        // A file counts the starts.
        path if path.starts_with('/') => {
            let starts = std::fs::read_to_string(path).map_or(0, |text| text.len());
            std::fs::write(path, "x".repeat(starts + 1))?;
            let bad = cx.cfg().get_or("bad_starts", Vec::<usize>::new())?;
            if bad.contains(&starts) { process::abort() } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Whether the device of this process is lost.
static IS_LOST: AtomicBool = AtomicBool::new(false);

fn lose_device(why: &str) -> gangline::BoxError {
    IS_LOST.store(true, Ordering::Relaxed);
    // As other code may wrap it.
    std::io::Error::other(DeviceLost::new(why)).into()
}

fn do_chore(cx: &ProducerContext<'_>, exponent: u32, chore: Chore) -> Result<String> {
    if IS_LOST.load(Ordering::Relaxed) {
        return Err(DeviceLost::new("it was lost before").into());
    }
    let own = |signal| kill_process(getpid(), signal).unwrap();
    match chore {
        Chore::Square(x) => return Ok(x.pow(exponent).to_string()),
        Chore::Text(text) => return Ok(text),
        Chore::Large(bytes) => return Ok("x".repeat(bytes)),
        Chore::Pid => {}
        Chore::Thread => {
            let is_main = rustix::thread::gettid() == getpid();
            return Ok(format!("{} {is_main}", thread::current().name().unwrap_or_default()));
        }
        Chore::Seed => return Ok(cx.item_seed().to_string()),
        Chore::Site => {
            let (item, attempt) = (cx.item(), cx.attempt());
            let (items, producer, device) = (cx.items(), cx.producer(), cx.device());
            return Ok(format!("{item:?} {items:?} {attempt} {producer} {device}"));
        }
        Chore::Surroundings => return Ok(surroundings(cx)),
        Chore::Fail(text) => return Err(text.into()),
        Chore::Rare(code) => return Err(RareError { code }.into()),
        Chore::Unmarked => return Err(OutOfMemory::new("arena exhausted").into()),
        Chore::Panic(text) => panic!("{text}"),
        Chore::PanicAborts(text) => panic_in_a_program_that_aborts(&text),
        Chore::PanicAndAbort(micros) => {
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(micros));
                process::abort();
            });
            panic!("the process is about to end");
        }
        Chore::Abort => process::abort(),
        Chore::Exit(status) => process::exit(status),
        // Again and again: the standard library takes the first SIGSEGV, and leaves the second to the system.
        Chore::Segv => loop {
            own(Signal::SEGV);
        },
        Chore::Kill => own(Signal::KILL),
        Chore::Stop => loop {
            own(Signal::STOP);
        },
        Chore::AbortOnce(path) if note_once(&path)? => process::abort(),
        Chore::KillOnce(path) if note_once(&path)? => own(Signal::KILL),
        Chore::KillOnceWith(path, _) if note_once(&path)? => own(Signal::KILL),
        Chore::StopOnce(path) if note_once(&path)? => own(Signal::STOP),
        Chore::FailOnce(path) if note_once(&path)? => return Err("once".into()),
        Chore::FailAfter(first, path) => {
            text_in(&first);
            return do_chore(cx, exponent, Chore::FailOnce(path));
        }
        Chore::LastWords(text) => {
            std::io::stderr().write_all(text.as_bytes())?;
            process::abort();
        }
        Chore::Print(text) => {
            print(&text)?;
            return Ok(text);
        }
        Chore::PrintLines(lines) => {
            (0..lines).try_for_each(|_| print(&format!("{}\n", "x".repeat(1_023))))?;
        }
        Chore::PrintOn => {
            let (begun, begins) = std::sync::mpsc::channel();
            thread::spawn(move || {
                let line = format!("{}\n", "x".repeat(1_023));
                while print(&line).is_ok() {
                    _ = begun.send(());
                }
            });
            begins.recv()?;
        }
        Chore::LoseDevice => return Err(lose_device("illegal address")),
        Chore::LoseDeviceOnce(path) if note_once(&path)? => {
            return Err(lose_device("illegal address"));
        }
        Chore::Deep(bytes) => {
            use_stack(bytes);
            return Ok(String::new());
        }
        Chore::Allocate(mib) => return Ok(vec![1_u8; mib << 20].len().to_string()),
        Chore::Await(note, path) => wait_for(&note, &path)?,
        Chore::LargeAfter(note, path, bytes) => {
            wait_for(&note, &path)?;
            return Ok("x".repeat(bytes));
        }
        Chore::AwaitOnce(note, path) if !note.exists() => wait_for(&note, &path)?,
        Chore::Touch(path) => std::fs::write(path, "")?,
        Chore::Append(path) => {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            writeln!(file?, "{}", process::id())?;
        }
        Chore::Hang(path) => hang(cx, &path)?,
        Chore::HangOnce(path) if !path.exists() => hang(cx, &path)?,
        Chore::HangOnceWith(path, text) => {
            if !path.exists() {
                hang(cx, &path)?;
            }
            return Ok(text);
        }
        Chore::HangOn(path) => {
            note_pid(&path)?;
            loop {
                thread::park();
            }
        }
        Chore::Sleep(millis) => thread::sleep(Duration::from_millis(millis)),
        Chore::Fork(path) => fork(&path)?,
        Chore::Build => return Ok(builder(1).build()?.run([Chore::Pid])?.concat()),
        Chore::KillOnceWith(_, text) => return Ok(text),
        Chore::AbortOnce(_) | Chore::KillOnce(_) | Chore::StopOnce(_) | Chore::FailOnce(_) => {}
        Chore::LoseDeviceOnce(_) => {}
        Chore::AwaitOnce(..) | Chore::HangOnce(_) => {}
        Chore::Batch
        | Chore::Count(_)
        | Chore::ShortAbove(_)
        | Chore::UntriedAbove(_)
        | Chore::FailBatch => {
            return Err("it came without a batch".into());
        }
    }
    Ok(process::id().to_string())
}

fn surroundings(cx: &ProducerContext<'_>) -> String {
    let variable = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let thread = thread::current();
    format!(
        "{} {} {}/{} {variable:?} item {:?} attempt {}",
        thread.name().unwrap_or_default(),
        cx.device(),
        cx.producer(),
        cx.producers(),
        cx.item(),
        cx.attempt(),
    )
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

fn use_stack(bytes: usize) {
    let frame = std::hint::black_box([1_u8; 4096]);
    if let Some(rest) = bytes.checked_sub(frame.len()) {
        use_stack(rest);
    }
    std::hint::black_box(frame);
}

/// All that `panic = "abort"` does at run time: the message is printed, and nothing is unwound.
fn panic_in_a_program_that_aborts(text: &str) -> ! {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        process::abort();
    }));
    panic!("{text}");
}

/// Whether the file was not there; says in it which process this is.
fn note_once(path: &Path) -> Result<bool> {
    let is_first = !path.exists();
    if is_first {
        note_pid(path)?;
    }
    Ok(is_first)
}

fn wait_for(note: &Path, path: &Path) -> Result<()> {
    note_pid(note)?;
    while !path.exists() {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn hang(cx: &ProducerContext<'_>, path: &Path) -> Result<()> {
    note_pid(path)?;
    while !cx.is_cancelled() {
        thread::sleep(Duration::from_millis(1));
    }
    note_pid(&given_up(path))
}

/// The file of a `Hang` that was given up.
pub fn given_up(path: &Path) -> PathBuf {
    path.with_extension("given-up")
}

/// A process in a group of its own, with this one's standard output. It writes its id into a file.
fn fork(path: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    let mut command = process::Command::new("sleep");
    let child = command.arg("1000").process_group(0).spawn()?;
    write_whole(path, &child.id().to_string())
}

pub fn note_pid(path: &Path) -> Result<()> {
    write_whole(path, &process::id().to_string())
}

/// No reader sees half of it.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    // Several processes may write it at once.
    let part = path.with_extension(format!("part{}", process::id()));
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

/// The seeds of the items of a run with the seed 7, on one thread.
pub fn seeds(items: usize) -> Vec<String> {
    let mut pool = OrderedRunner::builder(Chores::new()).devices(1).seed(7).build().unwrap();
    pool.run(vec![Chore::Seed; items]).unwrap()
}

pub fn squared(range: std::ops::Range<u64>) -> Vec<String> {
    range.map(|x| (x * x).to_string()).collect()
}

/// Waits until a file is there, and returns its text.
pub fn text_in(path: &Path) -> String {
    for _ in 0..60_000 {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} does not come", path.display())
}

/// Waits until a file is there, and returns the process id in it.
pub fn pid_in(path: &Path) -> Pid {
    Pid::from_raw(text_in(path).parse().unwrap()).unwrap()
}

/// Waits until a process that may be another's child has ended.
pub fn await_end(pid: Pid) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "{pid:?} goes on");
}
