//! Holds a hook back, wherever it runs.

use std::io::{self, Read};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};

use crate::base::Result;

/// Holds hooks back that [visit] its port, in this process or in another one of this machine.
#[derive(Debug)]
pub(super) struct HookGate {
    listener: TcpListener,
}

/// A hook at a gate. It goes on when this is dropped.
#[derive(Debug)]
pub(super) struct Visitor {
    _stream: TcpStream,
}

impl HookGate {
    pub(super) fn new() -> io::Result<Self> {
        Ok(HookGate { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0))? })
    }

    pub(super) fn port(&self) -> Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Waits until a hook arrives.
    pub(super) fn arrival(&self) -> io::Result<Visitor> {
        Ok(Visitor { _stream: self.listener.accept()?.0 })
    }

    /// Ends a wait for a hook that does not arrive.
    pub(super) fn give_up(&self) {
        // Without a connection there is no such wait either.
        let address = self.listener.local_addr();
        _ = address.and_then(|address| TcpStream::connect(address)?.shutdown(Shutdown::Both));
    }
}

/// Waits at a gate until it lets its visitors go, or is gone.
pub(super) fn visit(port: u16) {
    // An error is a gate that is gone.
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    _ = stream.and_then(|mut stream| stream.read(&mut [0]));
}

/// Says at a gate that a hook has begun.
pub(super) fn announce(port: u16) -> Option<TcpStream> {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
}
