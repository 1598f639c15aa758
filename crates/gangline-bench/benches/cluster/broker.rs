//! A broker on this machine, and workers that join it: each is this program again.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gangline::Result;

/// A broker on a free port. It ends with its value.
pub(crate) struct Broker {
    pub(crate) url: String,
    /// The port on which it tells what it counts.
    monitor: u16,
    server: Running,
    _folder: tempfile::TempDir,
}

/// A process that ends with its value.
pub(crate) struct Running(Child);

impl Broker {
    pub(crate) fn start() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let (port, monitor) = (free_port()?, free_port()?);
        let mut command = Command::new("nats-server");
        let (on, watched) = (port.to_string(), monitor.to_string());
        command.args(["-js", "-a", "127.0.0.1", "-p", &on, "-m", &watched, "-sd"]);
        // Where Debian installs it, few have a path to.
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin"));
        let server = Running::start(command.arg(folder.path()).stderr(Stdio::null()))?;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        let url = format!("nats://127.0.0.1:{port}");
        Ok(Broker { url, monitor, server, _folder: folder })
    }

    /// The number of messages that it has received, and that it has sent.
    pub(crate) fn messages(&self) -> Result<(u64, u64)> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.monitor))?;
        socket.write_all(b"GET /varz HTTP/1.0\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text)?;
        let count = |name: &str| -> Result<u64> {
            let (_, rest) = text.split_once(&format!("\"{name}\":")).ok_or("a counter")?;
            let number = rest.trim_start().split(|c: char| !c.is_ascii_digit()).next();
            Ok(number.unwrap_or_default().parse()?)
        };
        Ok((count("in_msgs")?, count("out_msgs")?))
    }

    pub(crate) fn processor_time(&self) -> Result<Duration> {
        self.server.processor_time()
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

    /// That of all its threads so far, in hundredths of a second.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name, in brackets, may have spaces.
        let (_, rest) = text.rsplit_once(") ").ok_or("a name in brackets")?;
        let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<u64>);
        let ticks = ticks.sum::<std::result::Result<u64, _>>()?;
        Ok(Duration::from_millis(10 * ticks))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
