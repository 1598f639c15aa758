//! Compares `slide run` with its parts, each alone: `cargo bench -p gangline-slide --bench bound -- run OPTIONS`.
//!
//! The options are those of `slide run`. The model, reading and loading use a thread for each of `--devices`, in lists of
//! `--batch` tiles, or single tiles. In each of five rounds, the parts and a run take turns. The maps of a run go into a
//! new folder in `--output`, which is removed.
//!
//! Prints medians in seconds, by the clock and of processor time. Other programs change the first more.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::iter;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use gangline::{Device, Result};
use ort::session::Session;
use ort::value::TensorRef;
use rustix::time::{ClockId, clock_gettime};

use self::job::Job;
use self::map::Canvas;
use self::model::Model;
use self::options::{Command, Options};
use self::slide::{Bytes, Corner, TileCache};
use self::tissue::Work;

#[expect(dead_code, unused_imports, reason = "the program and its tests use all of it")]
#[path = "../src/job.rs"]
mod job;
#[path = "../src/map.rs"]
mod map;
#[path = "../src/model.rs"]
mod model;
#[expect(dead_code, reason = "the program uses all of it")]
#[path = "../src/options.rs"]
mod options;
#[expect(unused_imports, reason = "its tests use them")]
#[path = "../src/slide.rs"]
mod slide;
#[path = "../src/tables.rs"]
mod tables;
#[expect(unused_imports, reason = "its tests use them")]
#[path = "../src/tissue.rs"]
mod tissue;

const ROUNDS: usize = 5;
/// The number of lists whose numbers the model alone gets in turn, so that they fit into memory.
const LISTS: usize = 8;

/// Seconds by the clock, and of processor time.
type Seconds = [f64; 2];

/// What the parts work on.
struct Parts {
    options: Arc<Options>,
    slides: Vec<PathBuf>,
    works: Vec<Work>,
    /// The tiles of all slides: the index of the slide, the corner and the pixels.
    tiles: Vec<(usize, Corner, Vec<u8>)>,
    threads: usize,
    batch: usize,
}

fn main() -> Result<()> {
    // Cargo adds `--bench`, but for `cargo test --benches`, which only checks that it starts.
    let (cargos, words): (Vec<_>, Vec<_>) = std::env::args().partition(|word| word == "--bench");
    if cargos.is_empty() {
        return Ok(());
    }
    let Command::Run(options) = Command::parse_from(words) else { return Err("take run".into()) };
    model::load_runtime(options.onnxruntime.clone())?;
    std::fs::create_dir_all(&options.output)?;
    let parts = Parts::new(*options)?;
    let names =
        ["loading", "opening", "reading", "the model", "with its numbers", "writing", "a run"];
    let mut times = names.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        let seconds = parts.round()?;
        for (times, [clock, processor]) in times.iter_mut().zip(seconds) {
            times[0].push(clock);
            times[1].push(processor);
        }
    }
    println!("{} tiles of {} slides", parts.tiles.len(), parts.works.len());
    let medians = times.map(|times| times.map(median));
    for (name, [clock, processor]) in names.iter().zip(medians) {
        println!("{name:20}{clock:8.3} s by the clock{processor:8.3} s of processor time");
    }
    let [loading, opening, reading, model, numbers, writing, run] = medians;
    for (i, kind) in ["by the clock", "of processor time"].into_iter().enumerate() {
        // Writing takes one thread, while the others work.
        let others = if i == 0 { writing[i] / parts.threads as f64 } else { writing[i] };
        let sum = loading[i] + opening[i] + reading[i] + numbers[i] + others;
        let [alone, sum] = [model[i], sum].map(|part| part / run[i]);
        println!("{kind}: the model alone is {alone:.2} of the run, and all parts {sum:.2}");
    }
    Ok(())
}

impl Parts {
    fn new(options: Options) -> Result<Parts> {
        let slides = job::slides_in(&options.slides)?;
        let (threads, batch) = (options.devices.len(), options.batch.map_or(1, usize::from));
        let tiles = Vec::new();
        let options = Arc::new(options);
        let mut parts = Parts { options, slides, works: Vec::new(), tiles, threads, batch };
        parts.works = parts.open()?;
        let cache = parts.cache();
        for (slide, corner) in parts.corners() {
            parts.tiles.push((slide, corner, parts.pixels(&cache, slide, corner)?));
        }
        Ok(parts)
    }

    /// The time of each part, and of a run.
    fn round(&self) -> Result<[Seconds; 7]> {
        let loading = timed(|| self.load().map(drop))?;
        let opening = timed(|| self.open().map(drop))?;
        let (cache, corners) = (self.cache(), self.corners());
        let reading = timed(|| {
            on_all(&mut vec![(); self.threads], corners.len(), |(), i| {
                self.pixels(&cache, corners[i].0, corners[i].1).map(drop)
            })
        })?;
        let mut sessions = self.sessions()?;
        let numbers: Vec<_> = self.lists().take(LISTS).map(numbers).collect();
        let count = self.lists().count();
        let model = timed(|| {
            on_all(&mut sessions, count, |session, i| {
                self.infer(session, &numbers[i % numbers.len()])
            })
        })?;
        let (mut models, lists) = (self.load()?, self.lists().collect::<Vec<_>>());
        let with_numbers = timed(|| {
            on_all(&mut models, count, |model, i| {
                let found = model.run(lists[i].iter().map(|tile| tile.2.as_slice()))?;
                found.into_iter().try_for_each(|cells| cells.map(drop))
            })
        })?;
        let writing = self.write(&mut models[0])?;
        let run = self.in_new_folder(|options| {
            let job = Arc::new(Job::new(options));
            timed(|| job::run(self.slides.clone(), &job).map(drop))
        })?;
        Ok([loading, opening, reading, model, with_numbers, writing, run])
    }

    fn cache(&self) -> TileCache {
        TileCache::with_weighter(1000, self.options.cache << 20, Bytes)
    }

    fn corners(&self) -> Vec<(usize, Corner)> {
        let of = |(slide, work): (usize, &Work)| {
            work.tiles.clone().into_iter().map(move |at| (slide, at))
        };
        self.works.iter().enumerate().flat_map(of).collect()
    }

    fn lists(&self) -> impl Iterator<Item = &[(usize, Corner, Vec<u8>)]> {
        self.tiles.chunks(self.batch)
    }

    fn open(&self) -> Result<Vec<Work>> {
        let cache = self.cache();
        let one = |(i, path): (u64, &PathBuf)| Work::open(i, path, &cache, &self.options);
        (0..).zip(&self.slides).map(one).collect()
    }

    fn pixels(&self, cache: &TileCache, slide: usize, corner: Corner) -> Result<Vec<u8>> {
        let Options { level, tile, .. } = *self.options;
        self.works[slide].slide.pixels(cache, level, corner, [tile, tile])
    }

    /// A model for each thread, as a run loads them.
    fn load(&self) -> Result<Vec<Model>> {
        let load = || Model::open(self.options.clone(), &Device::Cpu);
        thread::scope(|scope| {
            let loads: Vec<_> = (0..self.threads).map(|_| scope.spawn(load)).collect();
            loads.into_iter().map(|load| load.join().expect("loading does not panic")).collect()
        })
    }

    fn sessions(&self) -> Result<Vec<Session>> {
        let session = || -> ort::Result<Session> {
            let mut builder = Session::builder()?.with_intra_threads(1)?;
            builder.commit_from_file(&self.options.model)
        };
        (0..self.threads).map(|_| Ok(session()?)).collect()
    }

    fn infer(&self, session: &mut Session, numbers: &[f32]) -> Result<()> {
        let side = self.options.tile as usize;
        let shape = [numbers.len() / (3 * side * side), 3, side, side];
        session.run(ort::inputs![TensorRef::from_array_view((shape, numbers))?])?;
        Ok(())
    }

    /// The time to blend the cells of all tiles and to write the files of all slides.
    fn write(&self, model: &mut Model) -> Result<Seconds> {
        let found = model.run(self.tiles.first().map(|tile| tile.2.as_slice()))?;
        let cells = found.into_iter().next().ok_or("no slide has tissue")??;
        self.in_new_folder(|options| {
            timed(|| {
                for work in &self.works {
                    let mut canvas = Canvas::new(work, &options);
                    work.tiles.iter().for_each(|&corner| canvas.add(corner, &cells, &options));
                    canvas.write(work, &options)?;
                }
                Ok(())
            })
        })
    }

    fn in_new_folder(&self, work: impl FnOnce(Options) -> Result<Seconds>) -> Result<Seconds> {
        let folder = tempfile::tempdir_in(&self.options.output)?;
        work(Options { output: folder.path().to_owned(), ..(*self.options).clone() })
    }
}

/// Numbers of a list as the model gets them. Their order does not change its time.
fn numbers(list: &[(usize, Corner, Vec<u8>)]) -> Vec<f32> {
    list.iter().flat_map(|tile| &tile.2).map(|&value| f32::from(value) / 255.0).collect()
}

/// Has the indices below `count` worked on, by a thread for each state.
fn on_all<S: Send>(
    states: &mut [S],
    count: usize,
    work: impl Fn(&mut S, usize) -> Result<()> + Sync,
) -> Result<()> {
    let (next, work) = (&AtomicUsize::new(0), &work);
    thread::scope(|scope| {
        let one = move |state: &mut S| {
            let indices = iter::repeat_with(|| next.fetch_add(1, Relaxed));
            indices.take_while(|&i| i < count).try_for_each(|i| work(state, i))
        };
        let threads: Vec<_> =
            states.iter_mut().map(|state| scope.spawn(move || one(state))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no part panics"))
    })
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Seconds> {
    let (start, before) = (Instant::now(), processor_time());
    work()?;
    Ok([start.elapsed().as_secs_f64(), (processor_time() - before).as_secs_f64()])
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("it is positive")
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
