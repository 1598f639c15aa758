//! The connection to a fork server, and its messages.

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::error::Crash;

/// How long a server may take to read a message, and a prepared one to answer. A fork takes milliseconds.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// The largest answer, in bytes. They are numbers and reasons.
const MOST_ANSWER: usize = 1 << 20;

/// A running fork server, which is killed with this. Its workers go on.
#[derive(Debug)]
pub(super) struct ForkLink {
    /// Locked from a request to its answer.
    socket: Mutex<UnixStream>,
    process: Child,
}

/// An answer of a fork server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerAnswer {
    Done(String),
    /// Workers are to be started by their own program, for this reason.
    Refused(String),
    /// The pool cannot go on, for this reason.
    Failed(String),
}

impl ForkLink {
    /// A link to a process with the other end of this socket.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub(super) fn new(socket: UnixStream, process: Child) -> io::Result<Self> {
        let link = ForkLink { socket: Mutex::new(socket), process };
        link.socket().set_read_timeout(Some(ANSWERED_WITHIN))?;
        link.socket().set_write_timeout(Some(ANSWERED_WITHIN))?;
        Ok(link)
    }

    /// Ends a process that has closed its socket, and returns how it has ended.
    pub(super) fn end(mut self) -> Crash {
        _ = self.process.kill();
        let status = self.process.wait().ok();
        let (signal, code) =
            (status.and_then(|status| status.signal()), status.and_then(|status| status.code()));
        Crash::new(signal, code, String::new())
    }

    pub(super) fn socket(&self) -> MutexGuard<'_, UnixStream> {
        self.socket.lock().expect("nothing panics under this lock")
    }

    pub(super) fn send(&self, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(&self.socket(), message, descriptors)
    }

    pub(super) fn receive(&self) -> io::Result<ServerAnswer> {
        receive(&self.socket())
    }

    /// Has a worker forked, with these descriptors as its input and output. Returns its process id.
    pub(super) fn fork(
        &self,
        directory: &OsStr,
        environment: &[(OsString, OsString)],
        descriptors: [BorrowedFd<'_>; 2],
    ) -> io::Result<u32> {
        let answer = self.ask(&fork_request(directory, environment), &descriptors)?;
        answer.parse().map_err(io::Error::other)
    }

    /// Takes the status of a worker that has ended, and lets its process id go.
    pub(super) fn status(&self, pid: u32) -> io::Result<ExitStatus> {
        let answer = self.ask(format!("S{pid}").as_bytes(), &[])?;
        answer.parse().map(ExitStatus::from_raw).map_err(io::Error::other)
    }

    fn ask(&self, request: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<String> {
        let socket = self.socket();
        let answer = send(&socket, request, descriptors).and_then(|()| receive(&socket));
        match answer {
            Ok(ServerAnswer::Done(text)) => Ok(text),
            Ok(ServerAnswer::Refused(reason) | ServerAnswer::Failed(reason)) => {
                Err(io::Error::other(reason))
            }
            Err(error) => {
                // A late answer would be taken for that to a later request.
                _ = socket.shutdown(std::net::Shutdown::Both);
                Err(error)
            }
        }
    }
}

impl Drop for ForkLink {
    fn drop(&mut self) {
        // It has nothing to end in order.
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn fork_request(directory: &OsStr, environment: &[(OsString, OsString)]) -> Vec<u8> {
    let mut request = b"F".to_vec();
    request.extend_from_slice(directory.as_bytes());
    request.push(0);
    for (name, value) in environment {
        request.extend_from_slice(name.as_bytes());
        request.push(b'=');
        request.extend_from_slice(value.as_bytes());
        request.push(0);
    }
    request
}

fn send(mut socket: &UnixStream, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let length = u32::try_from(message.len()).map_err(io::Error::other)?.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    // A socket that blocks takes few bytes as a whole.
    sendmsg(socket, &[IoSlice::new(&length)], &mut control, SendFlags::NOSIGNAL)?;
    socket.write_all(message)
}

fn receive(mut socket: &UnixStream) -> io::Result<ServerAnswer> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if !(1..=MOST_ANSWER).contains(&length) {
        return Err(io::Error::other(format!("its answer has {length} bytes")));
    }
    let mut answer = vec![0; length];
    socket.read_exact(&mut answer)?;
    let text = String::from_utf8_lossy(&answer[1..]).into_owned();
    match answer[0] {
        b'+' => Ok(ServerAnswer::Done(text)),
        b'-' => Ok(ServerAnswer::Refused(text)),
        b'!' => Ok(ServerAnswer::Failed(text)),
        kind => Err(io::Error::other(format!("its answer is of the unknown kind {kind}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::Command;

    use rustix::fs::fstat;

    use super::*;
    use crate::backends::process::outgoing::{self, Arrived};

    /// A link, the other end of its socket, and the id of its process, which waits for its input for ever.
    fn link() -> (ForkLink, UnixStream) {
        let (socket, theirs) = UnixStream::pair().unwrap();
        let process = Command::new("sleep").arg("1000").spawn().unwrap();
        (ForkLink::new(socket, process).unwrap(), theirs)
    }

    fn answer(mut socket: &UnixStream, answer: &str) {
        socket.write_all(&u32::try_from(answer.len()).unwrap().to_le_bytes()).unwrap();
        socket.write_all(answer.as_bytes()).unwrap();
    }

    #[test]
    fn a_fork_has_its_descriptors_directory_and_environment() {
        let (link, theirs) = link();
        answer(&theirs, "+77");
        let (input, output) = io::pipe().unwrap();
        let environment = [("NAME".into(), "a=b\nc".into())];
        let pid = link.fork(OsStr::new("/tmp"), &environment, [input.as_fd(), output.as_fd()]);
        assert_eq!(pid.unwrap(), 77);
        let (mut arrived, mut bytes) = (Arrived::new(), [0; 64]);
        assert_eq!(outgoing::receive(&theirs, &mut bytes[..4], &mut arrived).unwrap(), 4);
        let inode = |fd: BorrowedFd<'_>| fstat(fd).unwrap().st_ino;
        let arrived: Vec<_> =
            arrived.iter().map(|fd| inode(fd.as_ref().unwrap().as_fd())).collect();
        assert_eq!(arrived, [inode(input.as_fd()), inode(output.as_fd())]);
        let length = (&theirs).read(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], b"F/tmp\0NAME=a=b\nc\0");
    }

    #[test]
    fn a_status_is_that_of_waitpid() {
        let (link, theirs) = link();
        answer(&theirs, "+9");
        assert_eq!(link.status(77).unwrap().signal(), Some(9));
        answer(&theirs, "-there is no such process");
        assert_eq!(link.status(77).unwrap_err().to_string(), "there is no such process");
    }

    #[test]
    fn a_server_that_has_ended_is_an_error_each_time() {
        let (link, theirs) = link();
        drop(theirs);
        assert!(link.status(77).is_err());
        assert!(link.status(77).is_err());
    }

    #[test]
    fn answers_that_are_none_are_errors() {
        for bytes in [&b"\0\0\0\0"[..], b"\xff\xff\xff\xff", b"\x02\0\0\0?!", b"\x02\0"] {
            let (link, mut theirs) = link();
            theirs.write_all(bytes).unwrap();
            drop(theirs);
            assert!(link.receive().is_err(), "{bytes:?}");
        }
    }
}
