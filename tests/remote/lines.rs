//! A run that writes a file, and the coordinator of one in a process that may be killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gangline::closures::FnMap;
use gangline::journal::Journal;
use gangline::order::InputOrder;
use gangline::process::Recipe;
use gangline::sink::{self, Lines, ToSink};
use gangline::{Builder, CfgNode, OrderedRunner, ProducerContext, Result, map};

use crate::draw::mixed;

pub type Writer = ToSink<FnMap<Place, u64, String>, Lines>;
pub type WriterBuilder = Builder<Writer, InputOrder>;

pub static LINES: Recipe<Writer> = Recipe::new("lines", writer);

/// The item that ends its process while the file [`crash`] is there.
pub const CRASHES: u64 = 700;

/// In a process that is a coordinator: the folder to work in.
pub const FOLDER: &str = "GANGLINE_TEST_LINES";

/// Where a run writes, and how fast.
pub struct Place {
    folder: PathBuf,
    pace: Pace,
}

#[derive(Clone, Copy)]
pub enum Pace {
    /// Most items take no time, so that many are sent ahead, and one in 64 some milliseconds.
    Quick,
    /// Most items take some milliseconds, and a few of them ten times as long.
    Slow,
}

impl Pace {
    fn millis(self, drawn: u64) -> u64 {
        match self {
            Pace::Quick if drawn.is_multiple_of(64) => drawn % 7,
            Pace::Quick => 0,
            Pace::Slow if drawn.is_multiple_of(32) => 40,
            Pace::Slow => drawn % 6,
        }
    }
}

fn work(_: &ProducerContext<'_>, place: &mut Place, x: u64) -> Result<String> {
    let millis = place.pace.millis(mixed(x));
    if millis > 0 {
        std::thread::sleep(Duration::from_millis(millis));
    }
    if x == CRASHES && crash(&place.folder).exists() {
        std::process::abort();
    }
    Ok(format!("{x} {:016x}", mixed(!x)))
}

fn init(cx: &ProducerContext<'_>) -> Result<Place> {
    let pace = if cx.cfg().get("is_slow")? { Pace::Slow } else { Pace::Quick };
    Ok(Place { folder: cx.cfg().get("folder")?, pace })
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

/// How many lines are written.
pub fn count(folder: &Path) -> u64 {
    let text = std::fs::read(file(folder)).unwrap_or_default();
    text.iter().filter(|byte| **byte == b'\n').count() as u64
}

/// Ends the run after this number of items.
pub fn end_after(folder: &Path, count: u64) {
    let part = end(folder).with_extension("part");
    std::fs::write(&part, count.to_string()).unwrap();
    std::fs::rename(part, end(folder)).unwrap();
}

/// How many items there are, once that is decided.
pub fn end(folder: &Path) -> PathBuf {
    folder.join("end")
}

/// What a coordinator that failed has to say.
pub fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("log")).unwrap_or_default()
}

fn builder(folder: &Path, pace: Pace) -> WriterBuilder {
    let cfg = CfgNode::new().with("folder", folder.to_str().unwrap()).unwrap();
    let cfg = cfg.with("is_slow", matches!(pace, Pace::Slow)).unwrap();
    OrderedRunner::builder(writer(&cfg).unwrap()).cfg(cfg)
}

/// With a journal.
pub fn resuming(folder: &Path, pace: Pace) -> WriterBuilder {
    let journal = Journal::at(folder.join("journal")).runner("lines", "1").resume();
    builder(folder, pace).journal(journal).window(256)
}

/// Goes on with the run, and ends with the status 0 when all is done.
pub fn coordinate_if_asked(pool: fn(&Path) -> WriterBuilder) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    if let Err(error) = coordinate(&folder, pool(&folder)) {
        let line = format!("{:?} {error:#}\n", std::time::SystemTime::now());
        std::fs::write(folder.join("log"), line).unwrap();
        std::process::exit(1)
    }
    std::process::exit(0)
}

fn coordinate(folder: &Path, builder: WriterBuilder) -> Result<()> {
    let mut pool = builder.retries(20).backoff(Duration::ZERO, Duration::ZERO).build()?;
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
    let builder = builder(folder.path(), Pace::Quick).devices(3);
    builder.build().unwrap().run(0..count).unwrap();
    std::fs::read(file(folder.path())).unwrap()
}
