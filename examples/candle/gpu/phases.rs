//! Where the time of a batch goes: measured one step after the other, with a wait after each.

use std::time::{Duration, Instant};

use candle_core::{Device, Result, Tensor};
use serde_json::{Value, json};

use crate::network::{Item, Network};

/// The mean time of each step of a batch. On the CPU a step ends when it returns, so nothing is waited for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Phases {
    /// Items to the device.
    upload: Duration,
    /// Until the last kernel is queued.
    launch: Duration,
    /// From then until the last kernel has ended.
    wait: Duration,
    /// Vectors from the device.
    download: Duration,
}

impl Phases {
    pub(crate) fn of(network: &Network, device: &Device, items: &[Item]) -> Result<Self> {
        const TIMES: u32 = 20;
        let mut sum = Phases::default();
        for _ in 0..TIMES {
            let (mut uploaded, mut vectors) = (None, None);
            sum.upload += timed(|| {
                uploaded = Some(network.upload(items)?);
                device.synchronize()
            })?;
            let uploaded = uploaded.expect("it was just uploaded");
            sum.launch += timed(|| {
                vectors = Some(network.forward(&uploaded)?);
                Ok(())
            })?;
            let vectors: Tensor = vectors.expect("they were just computed");
            sum.wait += timed(|| device.synchronize())?;
            sum.download += timed(|| vectors.to_vec2::<f32>().map(drop))?;
        }
        Ok(Phases {
            upload: sum.upload / TIMES,
            launch: sum.launch / TIMES,
            wait: sum.wait / TIMES,
            download: sum.download / TIMES,
        })
    }

    /// With the time of such a batch in a run, where nothing waits between the steps.
    pub(crate) fn text(&self, batch: usize, in_run: Duration) -> String {
        let all: Duration = self.steps().iter().map(|(_, took)| took).sum();
        let of_all =
            |took: Duration| 100.0 * took.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
        let step = |(name, took): (&str, Duration)| {
            format!("  {name:<38}{:>10.3} ms{:>8.0} %\n", 1e3 * took.as_secs_f64(), of_all(took))
        };
        let rest = [("all steps", all), ("a batch of one producer's run", in_run)];
        let lines: String = self.steps().into_iter().chain(rest).map(step).collect();
        format!("a batch of {batch}, step by step\n{lines}")
    }

    pub(crate) fn json(&self) -> Value {
        let seconds = |(name, took): (&str, Duration)| (name.to_owned(), json!(took.as_secs_f64()));
        Value::Object(self.steps().into_iter().map(seconds).collect())
    }

    fn steps(&self) -> [(&'static str, Duration); 4] {
        [
            ("copy to the device", self.upload),
            ("queue kernels", self.launch),
            ("wait for the last kernel", self.wait),
            ("copy from the device", self.download),
        ]
    }
}

fn timed(step: impl FnOnce() -> Result<()>) -> Result<Duration> {
    let start = Instant::now();
    step()?;
    Ok(start.elapsed())
}
