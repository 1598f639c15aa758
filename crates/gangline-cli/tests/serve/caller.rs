//! A caller that writes requests byte by byte, and reads what comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::event::{PollFd, PollFlags};
use serde_json::Value;

use crate::support::DEADLINE;

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn check(&self, status: u16, body: &str) {
        assert_eq!((self.status, &*self.body), (status, body), "{}", self.head);
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map(str::trim)
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// A connection that is kept for several requests.
pub(crate) struct Caller {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

impl Caller {
    pub(crate) fn new(address: SocketAddr) -> Caller {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Caller { stream, read: Vec::new() }
    }

    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Writes a request for answers.
    pub(crate) fn post(&mut self, body: impl AsRef<[u8]>) {
        self.write(request("POST /predict", "content-type: application/json\r\n", body));
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, body: impl AsRef<[u8]>) -> Reply {
        self.post(body);
        self.reply()
    }

    #[track_caller]
    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply().expect("the connection was closed")
    }

    /// `None` if the connection is closed without an answer.
    #[track_caller]
    pub(crate) fn try_reply(&mut self) -> Option<Reply> {
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|part| part == b"\r\n\r\n") {
                break end + 4;
            }
            if !self.hear() {
                assert!(self.read.is_empty(), "{:?}", String::from_utf8_lossy(&self.read));
                return None;
            }
        };
        let text = String::from_utf8(self.read[..head].to_vec()).unwrap().to_lowercase();
        let status = text.split(' ').nth(1).unwrap().parse().unwrap();
        let mut reply = Reply { status, head: text, body: String::new() };
        let length: usize = reply.header("content-length").map_or(0, |it| it.parse().unwrap());
        while self.read.len() < head + length {
            assert!(self.hear(), "the answer was cut off: {reply:?}");
        }
        let rest = self.read.split_off(head + length);
        let all = std::mem::replace(&mut self.read, rest);
        reply.body = String::from_utf8(all[head..].to_vec()).unwrap();
        Some(reply)
    }

    /// Waits until the server has cut the connection off, and reads nothing.
    #[track_caller]
    pub(crate) fn wait_until_reset(&self) {
        // Of no event the system still reports errors.
        let mut watched = [PollFd::new(&self.stream, PollFlags::empty())];
        let deadline = DEADLINE.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut watched, Some(&deadline)), Ok(1), "it is not cut off");
        assert!(watched[0].revents().contains(PollFlags::ERR));
    }

    /// Reads some bytes. Returns false at the end of the connection.
    #[track_caller]
    fn hear(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(read) => {
                self.read.extend_from_slice(&buffer[..read]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer before the deadline: {error}"),
        }
    }
}

/// The bytes of a request.
pub(crate) fn request(line: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}
