//! A broker on this machine, and workers that join it: each is this program again.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gangline::Result;

/// A broker on a free port. It ends with its value.
pub(crate) struct Broker {
    pub(crate) url: String,
    _server: Running,
    _folder: tempfile::TempDir,
}

/// A process that ends with its value.
pub(crate) struct Running(Child);

impl Broker {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("nats-server");
        command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]);
        // Where Debian installs it, few have a path to.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin"));
        let server = Running::start(command.arg(folder.path()).stderr(Stdio::null()))?;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(Broker { url: format!("nats://127.0.0.1:{port}"), _server: server, _folder: folder })
    }

    /// This program as a worker of that broker.
    pub(crate) fn worker(&self, producers: usize) -> Result<Running> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("GANGLINE_NATS", &self.url);
        Running::start(command.env("GANGLINE_DEVICES", format!("cpu*{producers}")))
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        Ok(Running(command.stdin(Stdio::null()).spawn()?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}
