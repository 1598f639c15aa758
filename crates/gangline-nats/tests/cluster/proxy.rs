//! A connection to a broker that can be cut, or lose or hold back what the broker says.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use crate::broker::{Port, free_port};

/// Passes on what clients and a broker send, until it is cut.
pub struct Proxy {
    port: Port,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_cut: bool,
    is_mute: bool,
    is_held: bool,
    sockets: Vec<TcpStream>,
}

#[derive(Clone, Copy, PartialEq)]
enum Speaker {
    Client,
    Broker,
}

impl Proxy {
    /// To a broker at this port.
    pub fn to(broker: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind(("127.0.0.1", port.number)).unwrap();
        let shared = Arc::<Shared>::default();
        let copied = shared.clone();
        // It ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut state = copied.state.lock().unwrap();
                let server = TcpStream::connect(("127.0.0.1", broker));
                if let (false, Ok(client), Ok(server)) = (state.is_cut, client, server) {
                    let copy = |socket: &TcpStream| socket.try_clone().unwrap();
                    state.sockets.extend([copy(&client), copy(&server)]);
                    pass_on(&copied, Speaker::Client, copy(&client), copy(&server));
                    pass_on(&copied, Speaker::Broker, server, client);
                }
            }
        });
        Proxy { port, shared }
    }

    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port.number)
    }

    /// Drops all connections, and every new one.
    pub fn cut(&self) {
        let mut state = self.shared.state.lock().unwrap();
        state.is_cut = true;
        for socket in state.sockets.drain(..) {
            // It may have been closed by its other end.
            _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Loses what the broker says from now on.
    pub fn mute(&self) {
        self.shared.state.lock().unwrap().is_mute = true;
    }

    /// Holds back what the broker says, until it is mended.
    pub fn hold(&self) {
        self.shared.state.lock().unwrap().is_held = true;
    }

    pub fn mend(&self) {
        let mut state = self.shared.state.lock().unwrap();
        (state.is_cut, state.is_mute, state.is_held) = (false, false, false);
        self.shared.changed.notify_all();
    }
}

fn pass_on(shared: &Arc<Shared>, speaker: Speaker, mut from: TcpStream, mut to: TcpStream) {
    let shared = shared.clone();
    std::thread::spawn(move || {
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if speaker == Speaker::Broker {
                let state = shared.state.lock().unwrap();
                let state = shared.changed.wait_while(state, |state| state.is_held).unwrap();
                if state.is_mute {
                    continue;
                }
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        _ = to.shutdown(Shutdown::Both);
        _ = from.shutdown(Shutdown::Both);
    });
}
