//! `--report`: measures the load and the memory of GPUs while jobs run.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::devices::GpuDriver;
use gangline::report::{GpuLoad, GpuSample};

/// A thread that asks the driver about the GPUs of a lane.
#[derive(Debug)]
pub(super) struct GpuWatch {
    ending: Sender<()>,
    thread: JoinHandle<Vec<GpuLoad>>,
}

/// The driver reports no change of a load, and averages it over up to a second.
const INTERVAL: Duration = Duration::from_millis(500);

/// If a GPU has this many samples, pairs of them are merged, and the interval doubles.
const MOST_SAMPLES: usize = 512;

impl GpuWatch {
    /// Measures GPUs from now on. The ids are those of this process.
    pub(super) fn start(gpus: Vec<usize>) -> io::Result<GpuWatch> {
        let (ending, ended) = mpsc::channel();
        let start = Instant::now();
        let watch = move || measure(&gpus, start, &ended);
        let thread = thread::Builder::new().name("gangline-gpus".to_owned()).spawn(watch)?;
        Ok(GpuWatch { ending, thread })
    }

    /// Returns what the driver reported until now. GPUs that it does not describe are missing.
    pub(super) fn end(self) -> Vec<GpuLoad> {
        drop(self.ending);
        // A panic of the thread was printed; the run is complete.
        self.thread.join().unwrap_or_default()
    }
}

fn measure(gpus: &[usize], start: Instant, ended: &Receiver<()>) -> Vec<GpuLoad> {
    // A list of GPUs is not checked with the driver, so there may be none.
    let Ok(driver) = GpuDriver::open() else { return Vec::new() };
    let mut loads: Vec<GpuLoad> = gpus.iter().map(|id| named(format!("cuda:{id}"))).collect();
    let mut interval = INTERVAL;
    while ended.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        for (load, reading) in loads.iter_mut().zip(driver.readings(gpus)) {
            let Some(reading) = reading else { continue };
            let mut sample = GpuSample::default();
            sample.at = start.elapsed();
            sample.busy = f64::from(reading.utilization) / 100.0;
            sample.memory_used = reading.memory_used;
            load.memory_total = reading.memory_total;
            load.samples.push(sample);
        }
        if loads.iter().any(|load| load.samples.len() >= MOST_SAMPLES) {
            loads.iter_mut().for_each(|load| merge_pairs(&mut load.samples));
            interval *= 2;
        }
    }
    loads.retain(|load| !load.samples.is_empty());
    loads
}

fn named(device: String) -> GpuLoad {
    let mut load = GpuLoad::default();
    load.device = device;
    load
}

/// Makes one sample of two: the mean of their loads, and the larger memory.
fn merge_pairs(samples: &mut Vec<GpuSample>) {
    let merged = samples.chunks(2).map(|pair| {
        let mut sample = pair[pair.len() - 1].clone();
        sample.busy = pair.iter().map(|it| it.busy).sum::<f64>() / pair.len() as f64;
        sample.memory_used = pair.iter().map(|it| it.memory_used).max().unwrap_or(0);
        sample
    });
    *samples = merged.collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_keep_their_mean_load_and_their_most_memory() {
        let sample = |at, busy, memory_used| {
            let mut sample = GpuSample::default();
            (sample.at, sample.busy, sample.memory_used) =
                (Duration::from_secs(at), busy, memory_used);
            sample
        };
        let mut samples =
            vec![sample(1, 0.0, 9), sample(2, 0.5, 3), sample(3, 1.0, 1), sample(4, 0.5, 2)];
        samples.push(sample(5, 0.1, 7));
        merge_pairs(&mut samples);
        assert_eq!(samples, [sample(2, 0.25, 9), sample(4, 0.75, 2), sample(5, 0.1, 7)]);
    }
}
