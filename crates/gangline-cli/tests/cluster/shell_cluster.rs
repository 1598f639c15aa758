//! A broker, and workers that run commands, each in a folder of its own.

use std::process::Command;

use rustix::process::Signal;

use crate::broker::Broker;
use crate::support::{Place, Ran, Running};

/// Losses are noticed after this time.
const LEASE: &str = "1500ms";

pub struct ShellCluster {
    pub broker: Broker,
    workers: Vec<ShellWorker>,
    /// Of the runs.
    pub place: Place,
}

pub struct ShellWorker {
    pub place: Place,
    pub running: Running,
}

impl ShellCluster {
    /// A worker for each list of devices. Its jobs find its number in WORKER.
    pub fn start(devices: &[&str]) -> ShellCluster {
        let (broker, place) = (Broker::start(), Place::new());
        let workers = devices.iter().enumerate().map(|(number, devices)| {
            let place = Place::new();
            let url = broker.url();
            let mut command = place.gangline(["worker", "--nats", &url, "--serve", "commands"]);
            command.args(["--devices", devices, "--restart-delay", "10ms"]);
            command.env("WORKER", number.to_string());
            let running = place.start(&mut command);
            ShellWorker { place, running }
        });
        let workers = workers.collect();
        ShellCluster { broker, workers, place }
    }

    pub fn worker(&self, number: usize) -> &ShellWorker {
        &self.workers[number]
    }

    /// `gangline run` on the workers, with arguments as typed.
    pub fn command(&self, line: &str) -> Command {
        let url = self.broker.url();
        self.place.typed(&format!("run --nats {url} --lease {LEASE} {line}"))
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Ran {
        self.place.ran(&mut self.command(line))
    }

    pub fn start_run(&self, line: &str) -> Running {
        self.place.start(&mut self.command(line))
    }

    /// The lines of a log, without its head, by columns.
    pub fn log(&self, name: &str) -> Vec<Vec<String>> {
        let text = self.place.read(name);
        let columns = |line: &str| line.split('\t').map(|it| it.trim().to_owned()).collect();
        text.lines().skip(1).map(columns).collect()
    }

    /// Ends the workers, which have to leave nothing behind.
    #[track_caller]
    pub fn end(self) {
        for ShellWorker { place, running } in self.workers {
            running.send(Signal::TERM);
            running.ran().check(0, "");
            place.check_no_process_is_left();
        }
        self.place.check_no_process_is_left();
    }
}

/// The name of this machine, as `uname -n` prints it.
pub fn host() -> String {
    let output = Command::new("uname").arg("-n").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
