//! Measures the advice of whole-slide predictors with a simulated GPU: `cargo bench -p gangline-bench --bench whole_slide`.
//!
//! Patches of six sub-sections are read for 4 ms each. The GPU takes 20 ms for each call, and 2 ms for each patch in it.
//! It makes one call at a time. All of these are sleeps, so the figures hardly depend on the machine.
//!
//! - A loop, with single patches and with batches in each sub-section.
//! - A predictor: threads that each read and infer a sub-section, in batches of 8 that end with it.
//! - gangline: four threads that read, and producers that share the GPU, in batches across sub-sections.
//! - All of these with one sub-section.
//! - A GPU with memory for 20 patches.
//!
//! A line has the time, how many times as fast as the loop that is, the share of the time that the GPU was busy, the
//! calls, and the largest number of patches that were on the GPU or waited there. It is the fastest of three rounds.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use gangline::testing::{Script, Simulated};
use gangline::{Batch, OrderedRunner, Result, map, map_batches};

/// The number of patches in each sub-section.
const SUBSECTIONS: [usize; 6] = [57, 43, 35, 29, 21, 15];
const ONE: [usize; 1] = [200];

/// Threads that read, in gangline.
const READERS: usize = 4;

/// A GPU, and what happened on it.
struct Gpu {
    /// The duration of a millisecond, which is shorter without `--bench`.
    millisecond: Duration,
    /// How long it was busy, held during a call.
    busy: Mutex<Duration>,
    calls: AtomicUsize,
    patches: AtomicUsize,
    most_patches: AtomicUsize,
}

impl Gpu {
    fn new(millisecond: Duration) -> Arc<Gpu> {
        Arc::new(Gpu {
            millisecond,
            busy: Mutex::default(),
            calls: AtomicUsize::new(0),
            patches: AtomicUsize::new(0),
            most_patches: AtomicUsize::new(0),
        })
    }

    fn read(&self) {
        thread::sleep(self.millisecond * 4);
    }

    fn infer(&self, patches: usize) {
        let now = self.patches.fetch_add(patches, Relaxed) + patches;
        self.most_patches.fetch_max(now, Relaxed);
        {
            let mut busy = self.busy.lock().expect("no call panics");
            let start = Instant::now();
            thread::sleep(self.millisecond * (20 + 2 * patches as u32));
            *busy += start.elapsed();
        }
        self.calls.fetch_add(1, Relaxed);
        self.patches.fetch_sub(patches, Relaxed);
    }
}

fn main() -> Result<()> {
    // Without it `cargo test` asks only whether the program works.
    let millisecond = match std::env::args().any(|argument| argument == "--bench") {
        true => Duration::from_millis(1),
        false => Duration::from_micros(10),
    };
    for (name, subsections) in [("six sub-sections", &SUBSECTIONS[..]), ("one sub-section", &ONE)] {
        println!("{name}, {} patches", subsections.iter().sum::<usize>());
        let single = measure(millisecond, "a loop, single patches", None, |gpu| {
            predict(gpu, subsections, 1, 1)
        })?;
        let line = |name: &str, work: &dyn Fn(&Arc<Gpu>) -> Result<()>| {
            measure(millisecond, name, Some(single), work).map(drop)
        };
        line("a loop, batches of 8", &|gpu| predict(gpu, subsections, 1, 8))?;
        for workers in [2, 4, 6] {
            let name = format!("{workers} threads, batches of 8");
            line(&name, &|gpu| predict(gpu, subsections, workers, 8))?;
        }
        for batch in [1, 8, 16, 32, 64] {
            let name = format!("gangline, 1 producer, batches of {batch}");
            line(&name, &|gpu| pipeline(gpu, subsections, 1, batch, None))?;
        }
        for producers in [2, 4, 6] {
            let name = format!("gangline, {producers} producers, batches of 16");
            line(&name, &|gpu| pipeline(gpu, subsections, producers, 16, None))?;
        }
        line("gangline, batches of 64, memory for 20", &|gpu| {
            pipeline(gpu, subsections, 1, 64, Some(20))
        })?;
    }
    Ok(())
}

fn measure(
    millisecond: Duration,
    name: &str,
    single: Option<Duration>,
    work: impl Fn(&Arc<Gpu>) -> Result<()>,
) -> Result<Duration> {
    let mut fastest = None;
    for _ in 0..3 {
        let (gpu, start) = (Gpu::new(millisecond), Instant::now());
        work(&gpu)?;
        let lasted = start.elapsed();
        if fastest.as_ref().is_none_or(|(least, _)| lasted < *least) {
            fastest = Some((lasted, gpu));
        }
    }
    let (lasted, gpu) = fastest.expect("there are three rounds");
    let gain = single.unwrap_or(lasted).as_secs_f64() / lasted.as_secs_f64();
    let busy = gpu.busy.lock().expect("no call panics").as_secs_f64() / lasted.as_secs_f64();
    println!(
        "  {name:40} {:6.2} s  {gain:4.1} x  {:3.0} % busy  {:3} calls  {:3} patches",
        lasted.as_secs_f64(),
        100.0 * busy,
        gpu.calls.load(Relaxed),
        gpu.most_patches.load(Relaxed)
    );
    Ok(lasted)
}

/// Threads that take the next sub-section, and read and infer it batch by batch.
fn predict(gpu: &Gpu, subsections: &[usize], workers: usize, batch: usize) -> Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(&patches) = subsections.get(next.fetch_add(1, Relaxed)) {
                    for first in (0..patches).step_by(batch) {
                        let patches = batch.min(patches - first);
                        (0..patches).for_each(|_| gpu.read());
                        gpu.infer(patches);
                    }
                }
            });
        }
    });
    Ok(())
}

fn pipeline(
    gpu: &Arc<Gpu>,
    subsections: &[usize],
    producers: usize,
    batch: usize,
    memory: Option<usize>,
) -> Result<()> {
    let reading = gpu.clone();
    let read = map(
        |_| Ok(()),
        move |_, (), patch: (usize, usize)| {
            reading.read();
            Ok(patch)
        },
    );
    let inferring = gpu.clone();
    let infer = map_batches(
        |_| Ok(()),
        move |_, (), batch: &mut Vec<(usize, usize)>| {
            inferring.infer(batch.len());
            Ok(batch.iter().map(|patch| Ok(*patch)).collect())
        },
    );
    let infer = match memory {
        Some(most) => Simulated::new(infer).on(0, Script::new().out_of_memory_above(most)),
        None => Simulated::new(infer),
    };
    let read = OrderedRunner::new(read, READERS)?;
    let builder = OrderedRunner::builder(infer).devices(producers).batch(Batch::of(batch));
    let patches = subsections.iter().enumerate().flat_map(|(i, &n)| (0..n).map(move |j| (i, j)));
    let patches: Vec<_> = patches.collect();
    let count = patches.len();
    let found = read.then(builder.build()?).run(patches)?;
    assert_eq!(found.len(), count);
    Ok(())
}
