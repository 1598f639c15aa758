//! The arguments of `gangline serve`.

use std::ffi::OsString;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::device_names::DeviceNames;
use crate::args::limit::{duration, time_limit};
use crate::args::list_size::ListSize;
use crate::args::number::{at_least_one, size, unsigned};
use crate::args::warm::{WarmWorkers, WorkerTimes};
use crate::args::workers::{WorkerCount, Workers, WorkersError};
use crate::args::{LockArgs, Placement, sections};
use gangline::gpu::GpuList;

/// Answer HTTP requests with warm workers, in batches across requests
#[derive(Debug, Args)]
#[command(after_help = sections::SERVE)]
#[command(override_usage = "gangline serve [OPTIONS] [--] COMMAND...")]
pub(crate) struct ServeArgs {
    /// The command that starts a worker; {gpu} in it stands for the ids of its GPUs, {worker} for its number
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(value_parser = clap::value_parser!(OsString))]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) http: Http,
    #[command(flatten)]
    pub(crate) places: WorkerPlaces,
    #[command(flatten)]
    pub(crate) working: WorkerLimits,
    #[command(flatten)]
    pub(crate) background: BackgroundArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "HTTP")]
pub(crate) struct Http {
    /// Listen on this address, or on a port of 127.0.0.1; port 0 takes a free one, and standard error says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080", value_parser = address)]
    pub(crate) listen: SocketAddr,
    /// Require the token in FILE: requests have the header `authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    pub(crate) token: Option<PathBuf>,
    /// Send callers the text of a failure; otherwise only standard error has it
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) show_errors: bool,
    /// Accept N values at once, waiting and in work; others get 429 [default: 1024, or four batches for each worker]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) queue: Option<usize>,
    /// Refuse a body of more than SIZE bytes (or 10k, 5M, 1G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size)]
    pub(crate) max_body: u64,
    /// Close a connection that sends no request, or no more of one, for TIME, or reads nothing for three times that
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = time_limit)]
    pub(crate) idle_timeout: Duration,
    /// Call the model NAME on the page and in the metrics [default: the name of the script]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// On SIGTERM, let accepted requests have TIME to be answered, and the answers to be read
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = duration)]
    pub(crate) grace: Duration,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct WorkerPlaces {
    /// Run one worker on each of these devices: cuda:all, cuda:0-3, cuda:0*2, cuda:0+cuda:1, cpu*4
    #[arg(long, value_name = "DEVICES", conflicts_with_all = ["gpu_list", "workers"])]
    pub(crate) devices: Option<DeviceNames>,
    /// Run one worker on each of these GPUs: all, "0 1", 0-3
    #[arg(long, value_name = "LIST", conflicts_with = "workers")]
    pub(crate) gpu_list: Option<GpuList>,
    /// Run N workers without GPUs: 4, 50% of the cores, -1 [default: 1]
    #[arg(short = 'j', long, value_name = "N", value_parser = amount, allow_hyphen_values = true)]
    pub(crate) workers: Option<WorkerCount>,
    /// Run N workers on each GPU
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) per_gpu: Option<usize>,
    #[command(flatten)]
    pub(crate) locks: LockArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Workers")]
pub(crate) struct WorkerLimits {
    /// Send up to N values at once, as a list, to a worker that takes lists; auto chooses the number
    #[arg(long, value_name = "N|auto")]
    pub(crate) batch: Option<ListSize>,
    /// Wait TIME at most for a list to be full; without a wait, a free worker gets what is there
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration, requires = "batch")]
    pub(crate) batch_wait: Duration,
    /// Retry a failed value up to N times
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = unsigned::<u32>)]
    pub(crate) retries: u32,
    /// Wait TIME before the first retry, and twice as long before each further one
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) retry_delay: Duration,
    /// Answer 504 after TIME in the queue and in work
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time_limit)]
    pub(crate) timeout: Duration,
    /// Restart a worker that takes longer than TIME for a list, and try the list again in halves [default: --timeout, after which no caller waits]
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    pub(crate) list_timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) times: WorkerTimes,
    /// Wait TIME between SIGTERM and SIGKILL to a worker
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) kill_after: Duration,
    /// Restart a worker at most N times without a result in between
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = unsigned::<u32>)]
    pub(crate) max_restarts: u32,
    /// End if fewer than N workers can be started
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one)]
    pub(crate) min_workers: usize,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Background")]
pub(crate) struct BackgroundArgs {
    /// Work on the JSON values of FILE, one on each line, where no request waits; standard output has a record for each
    #[arg(long, value_name = "FILE")]
    pub(crate) background: Option<PathBuf>,
    /// Give the background PERCENT of the values while requests take all of the time: 0 to 90
    #[arg(long, value_name = "PERCENT", default_value_t = 10)]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=90), requires = "background")]
    pub(crate) background_share: u8,
}

impl ServeArgs {
    /// Returns the settings of warm workers that `gangline run` has.
    pub(crate) fn warm(&self) -> WarmWorkers {
        let WorkerLimits { batch, batch_wait, max_restarts, .. } = self.working;
        let times = self.working.times.clone();
        WarmWorkers { preload: true, batch, batch_wait, times, max_restarts }
    }

    /// Returns the placement of `gangline run` for these options: by default one worker, since each loads the model.
    pub(crate) fn placement(&self) -> Placement {
        let WorkerPlaces { devices, gpu_list, workers, per_gpu, locks } = &self.places;
        let has_gpus = devices.is_some() || gpu_list.is_some();
        let workers =
            (!has_gpus).then(|| Workers::Number(workers.unwrap_or(WorkerCount::Number(1))));
        Placement {
            devices: devices.clone(),
            gpu_list: gpu_list.clone(),
            use_gpu: true,
            workers,
            per_gpu: *per_gpu,
            locks: locks.clone(),
            ..Placement::default()
        }
    }
}

/// Parses an address to listen on: `HOST:PORT`, or a port on the loopback address.
fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let wrong = |why: &str| format!("{why}; write an address such as 127.0.0.1:8080, or a port");
    let mut found = text.to_socket_addrs().map_err(|error| wrong(&error.to_string()))?;
    found.next().ok_or_else(|| wrong("the name has no address"))
}

/// Parses a number of workers. Each loads the model, so "as many as possible" is refused.
fn amount(text: &str) -> Result<WorkerCount, String> {
    match text.parse() {
        Ok(WorkerCount::Most) => Err("write at least 1".to_owned()),
        amount => amount.map_err(|error: WorkersError| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_loopback_unless_it_says_otherwise() {
        assert_eq!(address("8080"), Ok("127.0.0.1:8080".parse().unwrap()));
        assert_eq!(address("0.0.0.0:80"), Ok("0.0.0.0:80".parse().unwrap()));
        assert_eq!(address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        assert!(address("localhost:81").unwrap().ip().is_loopback());
        for text in ["", "localhost", "127.0.0.1", "70000", ":", "1.2.3.4:x"] {
            assert!(address(text).is_err(), "{text:?}");
        }
    }
}
