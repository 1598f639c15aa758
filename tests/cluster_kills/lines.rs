//! The run that is disturbed: its runner, its coordinator, and the same on threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gangline::closures::FnMap;
use gangline::cluster::Nats;
use gangline::journal::Journal;
use gangline::process::Recipe;
use gangline::sink::{self, Lines, ToSink};
use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};

use crate::broker::LEASE;
use crate::draw::mixed;

pub type Writer = ToSink<FnMap<(), u64, String>, Lines>;

pub static LINES: Recipe<Writer> = Recipe::new("lines", writer);

const URL: &str = "TEST_KILLS_COORDINATOR";
const FOLDER: &str = "TEST_KILLS_FOLDER";

/// Most items take some milliseconds, and a few of them ten times as long.
fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<String> {
    let drawn = mixed(x);
    let millis = if drawn.is_multiple_of(32) { 40 } else { drawn % 6 };
    std::thread::sleep(Duration::from_millis(millis));
    Ok(line(x))
}

fn line(x: u64) -> String {
    format!("{x} {:016x}", mixed(!x))
}

fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

fn writer(cfg: &CfgNode) -> Result<Writer> {
    Ok(map(init as _, work as _).sink(sink::lines(cfg.get::<PathBuf>("path")?)))
}

pub fn file(folder: &Path) -> PathBuf {
    folder.join("lines.txt")
}

/// How many items there are, once that is decided.
pub fn end(folder: &Path) -> PathBuf {
    folder.join("end")
}

/// What the coordinators have to say.
pub fn log(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// The environment in which this program is a coordinator.
pub fn environment(url: String, folder: &Path) -> [(&'static str, std::ffi::OsString); 2] {
    [(URL, url.into()), (FOLDER, folder.into())]
}

/// In a process that may be killed: goes on with the run, and ends with the status 0 when all is done.
pub fn coordinate_if_asked() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let url = std::env::var(URL).unwrap();
    if let Err(error) = coordinate(url, &folder) {
        let line = format!("{:?} {error:#}\n", std::time::SystemTime::now());
        std::fs::write(log(&folder), line).unwrap();
        std::process::exit(1)
    }
    std::process::exit(0)
}

fn coordinate(url: String, folder: &Path) -> Result<()> {
    let cfg = CfgNode::new().with("path", file(folder).to_str().unwrap())?;
    let nats = Nats::connect(url).lease_time(LEASE).run_name("lines");
    let journal = Journal::at(folder.join("journal")).runner("lines", "1").resume();
    let builder = OrderedRunner::builder(writer(&cfg)?).cfg(cfg).journal(journal).window(256);
    let builder = builder.retries(20).backoff(Duration::ZERO, Duration::ZERO);
    let mut pool = builder.cluster(&LINES, nats.wait_for(Duration::from_secs(60))).build()?;
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
    let path = file(folder.path());
    let cfg = CfgNode::new().with("path", path.to_str().unwrap()).unwrap();
    let mut pool = OrderedRunner::builder(writer(&cfg).unwrap()).devices("cpu*64").build().unwrap();
    pool.run(0..count).unwrap();
    std::fs::read(path).unwrap()
}
