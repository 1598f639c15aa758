//! A broker, workers and a coordinator, each of which can be killed and has a successor.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gangline_nats::{ClusterBuilder, Nats};

use crate::broker::{Broker, LEASE, Worker};
use crate::draw::Draw;
use crate::lines::{self, LINES, Pace, WriterBuilder};
use crate::store;

/// A run that has not got on for this long hangs.
const HANGS: Duration = Duration::from_secs(90);
/// How many coordinators may end with an error after the store of their broker was damaged.
const MOST_SUCCESSORS: usize = 3;
/// More items than are in flight.
const BEHIND: u64 = 2000;

pub struct Stage {
    broker: Broker,
    workers: Vec<Worker>,
    coordinator: Coordinator,
    folder: tempfile::TempDir,
    draw: Draw,
    /// How many lines were there, and since when.
    seen: (u64, Instant),
    /// How many coordinators may yet end with an error.
    spare_coordinators: usize,
}

struct Coordinator(Child);

/// In a coordinator: the broker.
const URL: &str = "TEST_KILLS_BROKER";

/// The run of [`lines`] in a cluster.
pub fn in_a_cluster(folder: &Path) -> WriterBuilder {
    let nats = Nats::connect(std::env::var(URL).unwrap()).lease_time(LEASE).run_name("lines");
    let nats = nats.wait_for(Duration::from_secs(60));
    lines::resuming(folder, Pace::Slow).cluster(&LINES, nats)
}

impl Stage {
    pub fn new(workers: usize, seed: u64) -> Self {
        let broker = Broker::start();
        let folder = tempfile::tempdir().unwrap();
        let workers = (0..workers).map(|_| broker.worker(2)).collect();
        let coordinator = Coordinator::start(&broker, folder.path());
        let (draw, seen) = (Draw::of(seed), (0, Instant::now()));
        let spare_coordinators = 0;
        let mut stage =
            Stage { broker, workers, coordinator, folder, draw, seen, spare_coordinators };
        stage.await_lines(100);
        stage
    }

    pub fn kill_worker(&mut self) {
        let victim = self.draw.below(self.workers.len());
        drop(self.workers.swap_remove(victim));
        self.workers.push(self.broker.worker(2));
    }

    pub fn kill_broker(&mut self) {
        self.broker.kill();
        std::thread::sleep(self.draw.pause(0, 1200));
        self.broker.restart();
    }

    /// Kills the broker, copies its store, and starts it again.
    pub fn copy_store(&mut self) {
        self.broker.kill();
        store::copy(&self.broker.store(), &self.copy());
        self.broker.restart();
    }

    /// Kills the broker, and starts it with the copy.
    pub fn roll_back_store(&mut self) {
        self.broker.kill();
        fs::remove_dir_all(self.broker.store()).unwrap();
        store::copy(&self.copy(), &self.broker.store());
        fs::remove_dir_all(self.copy()).unwrap();
        self.broker.restart();
    }

    fn copy(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Kills the broker, and starts it with files that are cut or have another bit. From then on, coordinators may end with an
    /// error, and have successors.
    pub fn damage_store(&mut self) {
        self.broker.kill();
        match self.draw.number().is_multiple_of(2) {
            true => store::cut(&self.broker.store(), &mut self.draw),
            false => store::flip(&self.broker.store(), &mut self.draw),
        }
        self.broker.restart();
        self.spare_coordinators = MOST_SUCCESSORS;
    }

    pub fn kill_coordinator(&mut self) {
        self.coordinator.kill();
        if self.draw.number().is_multiple_of(4) {
            // So long that the workers drop the run.
            std::thread::sleep(self.draw.pause(500, 3000));
        }
        self.coordinator = Coordinator::start(&self.broker, self.folder.path());
    }

    /// A worker comes, or one goes by itself or by force.
    pub fn change_workers(&mut self) {
        let count = self.workers.len();
        if count < 2 || count < 5 && self.draw.number().is_multiple_of(2) {
            self.workers.push(self.broker.worker(2));
            return;
        }
        let victim = self.draw.below(count);
        let mut worker = self.workers.swap_remove(victim);
        if self.draw.number().is_multiple_of(2) {
            worker.signal(rustix::process::Signal::TERM);
            assert!(worker.wait().success());
        }
    }

    /// Waits for the next moment, and checks that the run gets on.
    pub fn pause(&mut self, from: u64, to: u64) {
        let pause = self.draw.pause(from, to);
        std::thread::sleep(pause);
        self.look();
    }

    /// Waits until this number of lines was added.
    pub fn await_lines(&mut self, more: u64) {
        let wanted = self.lines() + more;
        while self.look() < wanted {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the run, and compares its file.
    pub fn finish(mut self) {
        let count = self.lines() + BEHIND;
        lines::end_after(self.folder.path(), count);
        loop {
            if let Some(status) = self.coordinator.0.try_wait().unwrap()
                && (status.success() || self.spare_coordinators == 0)
            {
                assert!(status.success(), "{status}: {}", self.log());
                break;
            }
            self.look();
            std::thread::sleep(Duration::from_millis(10));
        }
        let written = std::fs::read(lines::file(self.folder.path())).unwrap();
        let expected = lines::on_threads(count);
        let lines = written.split(|byte| *byte == b'\n').zip(expected.split(|byte| *byte == b'\n'));
        let differs = lines.enumerate().find(|(_, (line, wanted))| line != wanted);
        let differs = differs.map(|(at, (line, _))| (at, String::from_utf8_lossy(line)));
        assert!(written == expected, "of {count} lines, the first other one: {differs:?}");
    }

    /// The number of lines. If there were no more for long, the run hangs.
    fn look(&mut self) -> u64 {
        let count = self.lines();
        if let Some(status) = self.coordinator.0.try_wait().unwrap() {
            let has_ended = lines::end(self.folder.path()).exists() && status.success();
            if !has_ended && self.spare_coordinators > 0 {
                self.spare_coordinators -= 1;
                self.kill_broker();
                self.kill_coordinator();
                return count;
            }
            assert!(has_ended, "the coordinator has ended: {status}: {}", self.log());
        }
        if count != self.seen.0 {
            self.seen = (count, Instant::now());
        }
        let (streams, workers) = (|| self.broker.streams(), self.workers.len());
        let since = self.seen.1.elapsed();
        assert!(since < HANGS, "hangs at line {count}, {workers} workers, {:?}", streams());
        count
    }

    fn lines(&self) -> u64 {
        lines::count(self.folder.path())
    }

    fn log(&self) -> String {
        lines::log(self.folder.path())
    }
}

impl Coordinator {
    fn start(broker: &Broker, folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env(URL, broker.url()).env(lines::FOLDER, folder).stdin(Stdio::null());
        Coordinator(command.spawn().unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // It may have ended.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
