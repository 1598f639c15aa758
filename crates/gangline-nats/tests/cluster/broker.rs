//! A broker and its workers, which end with their values.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use gangline::order::InputOrder;
use gangline::{Builder, OrderedRunner};
use gangline_nats::{ClusterBuilder, Nats};
use rustix::process::{Pid, Signal, kill_process};

use crate::chores::{CHORES, Chores};
use crate::proxy::Proxy;

/// Of the tests: short, so that losses are noticed soon, and long enough for a machine with more to do.
pub const LEASE: Duration = Duration::from_millis(1500);

/// The broker's program, if it is not that of the distribution.
const PROGRAM: &str = "NATS_SERVER";

/// A `nats-server` with a folder of its own.
pub struct Broker {
    server: Child,
    port: Port,
    monitor: Port,
    folder: tempfile::TempDir,
    options: Vec<String>,
    variables: Vec<(String, String)>,
}

/// A worker process.
pub struct Worker(Child);

/// A port that no other test takes as long as this lives, also while no program listens on it.
pub struct Port {
    pub number: u16,
    _lock: File,
}

pub type ChoresBuilder = Builder<Chores, InputOrder>;

impl Broker {
    pub fn start() -> Self {
        Broker::with_options(&[])
    }

    /// Its log shows each message that a client publishes.
    pub fn tracing() -> Self {
        Broker::with_options(&["-V"])
    }

    /// With more options of `nats-server`.
    pub fn with_options(options: &[&str]) -> Self {
        Broker::with_variables(options, &[])
    }

    /// With variables in its environment too.
    pub fn with_variables(options: &[&str], variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (port, monitor) = (free_port(), free_port());
        let options: Vec<_> = options.iter().map(ToString::to_string).collect();
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let variables: Vec<_> = variables.iter().map(owned).collect();
        let server = serve(port.number, monitor.number, &folder, &options, &variables);
        Broker { server, port, monitor, folder, options, variables }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port.number)
    }

    pub fn nats(&self) -> Nats {
        Nats::connect(self.url()).lease_time(LEASE).wait_for(Duration::from_secs(30))
    }

    /// A builder for this broker.
    pub fn builder(&self) -> ChoresBuilder {
        OrderedRunner::builder(Chores::new()).cluster(&CHORES, self.nats())
    }

    /// Starts a worker with this number of producers.
    pub fn worker(&self, producers: usize) -> Worker {
        self.worker_with(producers, &[])
    }

    /// A connection to it that can be cut.
    pub fn proxy(&self) -> Proxy {
        Proxy::to(self.port.number)
    }

    /// With variables in its environment.
    pub fn worker_with(&self, producers: usize, env: &[(&str, &str)]) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.env("GANGLINE_NATS", self.url());
        command.env("GANGLINE_DEVICES", format!("cpu*{producers}"));
        command.envs(env.iter().copied()).stdin(Stdio::null());
        Worker::start(command)
    }

    /// Starts a worker and waits until the broker knows it. It joins soon, however long a busy machine has taken to start it.
    pub fn ready_worker(&self, producers: usize) -> Worker {
        self.ready_worker_with(producers, &[])
    }

    /// With variables in its environment.
    pub fn ready_worker_with(&self, producers: usize, env: &[(&str, &str)]) -> Worker {
        let before = self.known_workers();
        let worker = self.worker_with(producers, env);
        while self.known_workers() <= before {
            std::thread::sleep(Duration::from_millis(1));
        }
        worker
    }

    /// The number of workers that it knows, also of those that have left.
    fn known_workers(&self) -> u64 {
        let status = self.status("/jsz?streams=true");
        let accounts = status["account_details"].as_array().into_iter().flatten();
        let streams = accounts.filter_map(|it| it["stream_detail"].as_array()).flatten();
        let mut cards = streams.filter(|it| it["name"] == "KV_gangline-workers");
        cards.next().map_or(0, |it| it["state"]["messages"].as_u64().unwrap())
    }

    pub fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.server), signal).unwrap();
    }

    /// Waits until a stream has this number of messages.
    pub fn await_messages(&self, stream: &str, count: u64) {
        let has_them = |it: &serde_json::Value| {
            it["name"] == stream && it["state"]["messages"].as_u64() == Some(count)
        };
        loop {
            let status = self.status("/jsz?streams=true");
            // Before the first stream, there is no list of them.
            let streams = status["account_details"][0]["stream_detail"].as_array();
            if streams.is_some_and(|streams| streams.iter().any(has_them)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// At the same address, with what it had stored.
    pub fn restart(&mut self) {
        let Broker { port, monitor, folder, options, variables, .. } = self;
        self.server = serve(port.number, monitor.number, folder, options, variables);
    }

    /// Removes what it has stored.
    pub fn forget(&mut self) {
        std::fs::remove_dir_all(self.store()).unwrap();
    }

    /// Makes it forget the end of a stream, as when it is killed: the messages are those that `store` once had.
    pub fn set_messages(&self, stream: &str, store: &Path) {
        let folder = self.messages_folder(stream);
        std::fs::remove_dir_all(&folder).unwrap();
        copy_files(store, &folder);
    }

    /// Copies the messages of a stream, while it does not run.
    pub fn copy_messages(&self, stream: &str, store: &Path) {
        copy_files(&self.messages_folder(stream), store);
    }

    /// The folder with all that it has stored.
    pub fn store(&self) -> PathBuf {
        self.folder.path().join("jetstream")
    }

    fn messages_folder(&self, stream: &str) -> PathBuf {
        self.folder.path().join("jetstream/$G/streams").join(stream).join("msgs")
    }

    /// The number of messages and of consumers of each stream, by its name.
    pub fn streams(&self) -> Vec<(String, u64, u64)> {
        let status = self.status("/jsz?streams=true");
        let streams = status["account_details"][0]["stream_detail"].as_array().unwrap();
        let number = |it: &serde_json::Value, name| it["state"][name].as_u64().unwrap();
        let name = |it: &serde_json::Value| it["name"].as_str().unwrap().to_owned();
        streams
            .iter()
            .map(|it| (name(it), number(it, "messages"), number(it, "consumer_count")))
            .collect()
    }

    /// The names of the consumers of a stream.
    pub fn consumers(&self, stream: &str) -> Vec<String> {
        let status = self.status("/jsz?consumers=true");
        let streams = status["account_details"][0]["stream_detail"].as_array().unwrap();
        let stream = streams.iter().find(|it| it["name"] == stream).unwrap();
        let consumers = stream["consumer_detail"].as_array().into_iter().flatten();
        consumers.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The number of messages of a stream that its consumers have not acknowledged.
    pub fn unacknowledged(&self, stream: &str) -> u64 {
        let status = self.status("/jsz?consumers=true");
        let streams = status["account_details"][0]["stream_detail"].as_array().unwrap();
        let stream = streams.iter().find(|it| it["name"] == stream);
        let consumers = stream.and_then(|it| it["consumer_detail"].as_array());
        let pending = |it: &serde_json::Value| it["num_ack_pending"].as_u64().unwrap();
        consumers.map_or(0, |consumers| consumers.iter().map(pending).sum())
    }

    /// What it says of itself to those that watch it.
    pub fn status(&self, path: &str) -> serde_json::Value {
        let mut socket = TcpStream::connect(("127.0.0.1", self.monitor.number)).unwrap();
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        socket.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The number of messages that a stream has had, also of those that are gone.
    pub fn stored(&self, stream: &str) -> u64 {
        let status = self.status("/jsz?streams=true");
        let streams = status["account_details"][0]["stream_detail"].as_array().unwrap();
        let stream = streams.iter().find(|it| it["name"] == stream).unwrap();
        stream["state"]["last_seq"].as_u64().unwrap()
    }

    /// How many messages with a subject that begins so clients have published. It has to trace.
    pub fn publications(&self, subject: &str) -> usize {
        let log = self.log();
        ["PUB", "HPUB"].map(|verb| log.matches(&format!("[{verb} {subject}")).count()).iter().sum()
    }

    /// How often clients have asked to remove all items of a run, and not only those of a lost worker. It has to trace.
    pub fn purges_of_runs(&self) -> usize {
        let of_run = |line: &&str| {
            line.contains(r#"\"filter\":\"gangline.items."#) && line.contains(r#".>\""#)
        };
        self.log().lines().filter(of_run).count()
    }

    pub fn await_publications(&self, subject: &str, count: usize) {
        while self.publications(subject) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The number of messages in a stream.
    pub fn messages(&self, stream: &str) -> u64 {
        self.streams().into_iter().find(|it| it.0 == stream).unwrap().1
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        _ = self.server.kill();
        _ = self.server.wait();
    }
}

impl Worker {
    pub fn start(mut command: Command) -> Self {
        Worker(command.spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits until it has ended.
    pub fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn copy_files(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

/// Below those that the system gives to clients: one of them could take that of a broker that is restarted.
pub fn free_port() -> Port {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    std::fs::create_dir_all(&folder).unwrap();
    for n in 0..1000 {
        let drawn = RandomState::new().hash_one((std::process::id(), n));
        let number = 10_000 + (drawn % 20_000) as u16;
        let lock = File::create(folder.join(number.to_string())).unwrap();
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", number)).is_ok() {
            return Port { number, _lock: lock };
        }
    }
    panic!("no port is free")
}

fn serve(
    port: u16,
    monitor: u16,
    folder: &tempfile::TempDir,
    options: &[String],
    variables: &[(String, String)],
) -> Child {
    let installed = Path::new("/usr/sbin/nats-server");
    let installed = if installed.exists() { installed } else { Path::new("nats-server") };
    let mut command =
        Command::new(std::env::var_os(PROGRAM).map_or(installed.into(), PathBuf::from));
    command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-m", &monitor.to_string()]);
    command.arg("-sd").arg(folder.path()).arg("-l").arg(folder.path().join("log")).args(options);
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut server =
        server.expect("nats-server can be started: it is a package of the distribution");
    // Its files may be slow on a busy machine.
    for _ in 0..100_000 {
        if let Some(status) = server.try_wait().unwrap() {
            let log = std::fs::read_to_string(folder.path().join("log"));
            panic!("nats-server ended with {status}: {}", log.unwrap_or_default());
        }
        // It serves once it has said so.
        let mut greeting = [0; 4];
        if let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port))
            && socket.read_exact(&mut greeting).is_ok()
            && greeting == *b"INFO"
        {
            return server;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    server.kill().unwrap();
    server.wait().unwrap();
    panic!("nats-server does not answer")
}
