//! A run that writes a file, and the coordinator of one in a process that may be killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gangline::closures::FnMap;
use gangline::journal::Journal;
use gangline::order::InputOrder;
use gangline::process::{Processes, Recipe};
use gangline::sink::{self, Lines, ToSink};
use gangline::{Builder, CfgNode, OrderedRunner, ProducerContext, Result, map};

use crate::draw::mixed;

pub type Writer = ToSink<FnMap<PathBuf, u64, String>, Lines>;

pub static LINES: Recipe<Writer> = Recipe::new("lines", writer);

/// The item that ends its process while the file [`crash`] is there.
pub const CRASHES: u64 = 700;

const FOLDER: &str = "GANGLINE_TEST_LINES";

/// Most items are quick, so that many are sent ahead. A few take some milliseconds.
#[expect(clippy::ptr_arg, reason = "the form of a hook")]
fn work(_: &ProducerContext<'_>, folder: &mut PathBuf, x: u64) -> Result<String> {
    let drawn = mixed(x);
    if drawn.is_multiple_of(64) {
        std::thread::sleep(Duration::from_millis(drawn % 7));
    }
    if x == CRASHES && crash(folder).exists() {
        std::process::abort();
    }
    Ok(format!("{x} {:016x}", mixed(!x)))
}

fn init(cx: &ProducerContext<'_>) -> Result<PathBuf> {
    Ok(cx.cfg().get("folder")?)
}

fn writer(cfg: &CfgNode) -> Result<Writer> {
    Ok(map(init as _, work as _).sink(sink::lines(file(&cfg.get::<PathBuf>("folder")?))))
}

pub fn file(folder: &Path) -> PathBuf {
    folder.join("lines.txt")
}

pub fn crash(folder: &Path) -> PathBuf {
    folder.join("crash")
}

/// How many items there are, once that is decided.
pub fn end(folder: &Path) -> PathBuf {
    folder.join("end")
}

/// What a coordinator that fails has to say.
pub fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The environment in which this program is a coordinator.
pub fn environment(folder: &Path) -> (&'static str, PathBuf) {
    (FOLDER, folder.to_owned())
}

/// On threads.
pub fn builder(folder: &Path) -> Builder<Writer, InputOrder> {
    let cfg = CfgNode::new().with("folder", folder.to_str().unwrap()).unwrap();
    OrderedRunner::builder(writer(&cfg).unwrap()).cfg(cfg).devices(3)
}

/// In processes, with a journal.
pub fn resuming(folder: &Path) -> Builder<Writer, InputOrder> {
    let journal = Journal::at(folder.join("journal")).runner("lines", "1").resume();
    builder(folder).journal(journal).window(256).processes(&LINES, Processes::new())
}

/// Goes on with the run, and ends with the status 0 when all is done.
pub fn coordinate_if_asked() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    if let Err(error) = coordinate(&folder) {
        std::fs::write(log(&folder), format!("{error:#}")).unwrap();
        std::process::exit(1)
    }
    std::process::exit(0)
}

fn coordinate(folder: &Path) -> Result<()> {
    let mut pool = resuming(folder).retries(20).backoff(Duration::ZERO, Duration::ZERO).build()?;
    let end = end(folder);
    // The end is far behind the items that are in flight when it is decided.
    let is_wanted = |x: &u64| match std::fs::read_to_string(&end) {
        Ok(count) => *x < count.parse().unwrap(),
        Err(_) => true,
    };
    pool.run((0..).take_while(is_wanted))?;
    Ok(pool.close()?)
}

/// What a run on threads writes.
pub fn on_threads(count: u64) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    builder(folder.path()).build().unwrap().run(0..count).unwrap();
    std::fs::read(file(folder.path())).unwrap()
}
