//! A runner that does as each item says, and what its tests have in common.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gangline::error::OutOfMemory;
use gangline::process::{AnyRecipe, Recipe};
use gangline::{CfgNode, ConsumerContext, ProducerContext, Result, Runner};
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
    /// The index, the attempt, the number of the producer, and the device.
    Site,
    Pid,
    Fail(String),
    /// An error of a type that the recipe names.
    Rare(u32),
    Panic(String),
    /// Kills its process.
    Kill,
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
    /// Says in the first file which process this is, and waits for the second.
    Await(PathBuf, PathBuf),
    /// As `Await`, unless the first file is there: then it returns at once.
    AwaitOnce(PathBuf, PathBuf),
    /// Makes the file.
    Touch(PathBuf),
    /// Says in the file which process this is, waits until it is given up, and says so in a second file.
    Hang(PathBuf),
    /// As `Hang`, unless the file is there: then it returns at once.
    HangOnce(PathBuf),
    /// As `HangOnce`; then it returns the text.
    HangOnceWith(PathBuf, String),
    /// Sleeps for this number of ms.
    Sleep(u64),
    /// Returns this number of bytes.
    Large(usize),
    Text(String),
    /// Returns the number of items of its batch, and its attempt.
    Batch,
    /// Returns the number of items of its batch. The number is its size.
    Count(u64),
    /// Runs out of memory in a batch of more items than this, else as `Batch`.
    ShortAbove(usize),
    /// Adds a line to the file.
    Append(PathBuf),
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

/// That of this process.
pub fn recipe() -> &'static dyn AnyRecipe {
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
        if let Ok(path) = cx.cfg().get::<PathBuf>("starts") {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            file?.write_all(b"x")?;
        }
        if let Ok(gate) = cx.cfg().get::<PathBuf>("gate") {
            text_in(&gate);
        }
        std::thread::sleep(Duration::from_millis(cx.cfg().get_or("init_millis", 0)?));
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
        let each = chores.drain(..).enumerate();
        let mut outputs: Vec<_> = each
            .map(|(i, chore)| match chore {
                Chore::Batch | Chore::ShortAbove(_) => Ok(format!("{count} {}", cx.attempt())),
                Chore::Count(_) => Ok(count.to_string()),
                chore => do_chore(&cx.at(i), self.exponent, chore),
            })
            .collect();
        outputs.truncate(count - cx.cfg().get_or("outputs_less", 0)?);
        Ok(outputs)
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

fn do_chore(cx: &ProducerContext<'_>, exponent: u32, chore: Chore) -> Result<String> {
    let own = |signal| kill_process(getpid(), signal).unwrap();
    match chore {
        Chore::Square(x) => return Ok(x.pow(exponent).to_string()),
        Chore::Site => {
            let (item, attempt) = (cx.item(), cx.attempt());
            return Ok(format!(
                "{item:?} {:?} {attempt} {} {}",
                cx.items(),
                cx.producer(),
                cx.device()
            ));
        }
        Chore::Pid => {}
        Chore::Fail(text) => return Err(text.into()),
        Chore::Rare(code) => return Err(RareError { code }.into()),
        Chore::Panic(text) => panic!("{text}"),
        Chore::Kill => own(Signal::KILL),
        Chore::KillOnce(path) => {
            if !path.exists() {
                note_pid(&path)?;
                own(Signal::KILL);
            }
        }
        Chore::KillOnceWith(path, text) => {
            if !path.exists() {
                note_pid(&path)?;
                own(Signal::KILL);
            }
            return Ok(text);
        }
        Chore::StopOnce(path) => {
            if !path.exists() {
                note_pid(&path)?;
                own(Signal::STOP);
            }
        }
        Chore::FailOnce(path) => {
            if !path.exists() {
                note_pid(&path)?;
                return Err("once".into());
            }
        }
        Chore::FailAfter(first, path) => {
            text_in(&first);
            return do_chore(cx, exponent, Chore::FailOnce(path));
        }
        Chore::Await(note, path) => wait_for(&note, &path)?,
        Chore::AwaitOnce(note, path) => {
            if !note.exists() {
                wait_for(&note, &path)?;
            }
        }
        Chore::Touch(path) => std::fs::write(path, "")?,
        Chore::Append(path) => {
            let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
            writeln!(file?, "{}", std::process::id())?;
        }
        Chore::Hang(path) => hang(cx, &path)?,
        Chore::HangOnce(path) => {
            if !path.exists() {
                hang(cx, &path)?;
            }
        }
        Chore::HangOnceWith(path, text) => {
            if !path.exists() {
                hang(cx, &path)?;
            }
            return Ok(text);
        }
        Chore::Sleep(millis) => std::thread::sleep(Duration::from_millis(millis)),
        Chore::Large(bytes) => return Ok("x".repeat(bytes)),
        Chore::Text(text) => return Ok(text),
        Chore::Batch | Chore::Count(_) | Chore::ShortAbove(_) | Chore::FailBatch => {
            return Err("it came without a batch".into());
        }
    }
    Ok(std::process::id().to_string())
}

fn wait_for(note: &Path, path: &Path) -> Result<()> {
    note_pid(note)?;
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn hang(cx: &ProducerContext<'_>, path: &Path) -> Result<()> {
    note_pid(path)?;
    while !cx.is_cancelled() {
        std::thread::sleep(Duration::from_millis(1));
    }
    note_pid(&given_up(path))
}

/// The file of a `Hang` that was given up.
pub fn given_up(path: &Path) -> PathBuf {
    path.with_extension("given-up")
}

/// No reader sees half of it.
fn note_pid(path: &Path) -> Result<()> {
    let part = path.with_extension("part");
    std::fs::write(&part, std::process::id().to_string())?;
    Ok(std::fs::rename(part, path)?)
}

pub fn squares(range: std::ops::Range<u64>) -> Vec<Chore> {
    range.map(Chore::Square).collect()
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
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("{} does not come", path.display())
}
