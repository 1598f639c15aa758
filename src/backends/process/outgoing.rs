//! Bytes on their way into a socket, and descriptors beside them.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use crate::backends::memory::arena::MemoryFile;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Bytes that wait for room in a socket. A descriptor goes with the byte that it was put before.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    bytes: Vec<u8>,
    /// How many of the bytes have gone.
    written: usize,
    /// Descriptors with the places of their bytes, in order.
    descriptors: VecDeque<(usize, Arc<MemoryFile>)>,
}

/// The largest number of descriptors that wait to be named. There is one for a note of which only a part has come, and one
/// with the bytes behind it; others are of no honest sender, and are closed.
const MOST_ARRIVED: usize = 2;

/// The descriptors that came with bytes, in order. `None` stands for one that this process could not be given.
pub(super) type Arrived = VecDeque<Option<OwnedFd>>;

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn put(&mut self, bytes: Vec<u8>) {
        match self.is_empty() {
            true => self.bytes = bytes,
            false => self.bytes.extend_from_slice(&bytes),
        }
    }

    pub(super) fn put_slice(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Puts a descriptor before the next byte.
    pub(super) fn put_descriptor(&mut self, descriptor: Arc<MemoryFile>) {
        self.descriptors.push_back((self.bytes.len(), descriptor));
    }

    /// Writes once, and returns how many bytes have gone.
    ///
    /// # Errors
    ///
    /// Those of the socket.
    pub(super) fn write(&mut self, mut socket: &UnixStream) -> io::Result<usize> {
        let here = self.descriptors.front().filter(|(at, _)| *at == self.written);
        let next = self.descriptors.get(usize::from(here.is_some()));
        let bytes = &self.bytes[self.written..next.map_or(self.bytes.len(), |(at, _)| *at)];
        let length = match here {
            None => socket.write(bytes)?,
            Some((_, descriptor)) => {
                let sent = match write_with(socket, bytes, &**descriptor) {
                    Err(error @ (Errno::AGAIN | Errno::INTR)) => return Err(error.into()),
                    Ok(length) => Ok(length),
                    // Too many descriptors are on their way. Without its descriptor, the reader refuses the slab.
                    Err(_) => socket.write(bytes),
                };
                let length = sent?;
                self.descriptors.pop_front();
                length
            }
        };
        self.written += length;
        if self.written == self.bytes.len() {
            *self = Outgoing::default();
        }
        Ok(length)
    }
}

fn write_with(
    socket: &UnixStream,
    bytes: &[u8],
    descriptor: &impl AsFd,
) -> rustix::io::Result<usize> {
    let descriptors = [descriptor.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)
}

/// Reads once, and adds the descriptors that came.
///
/// # Errors
///
/// Those of the socket.
pub(super) fn receive(
    socket: &UnixStream,
    bytes: &mut [u8],
    arrived: &mut Arrived,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            arrived.extend(descriptors.map(Some));
        }
    }
    // This process has no room for a descriptor.
    if received.flags.contains(ReturnFlags::CTRUNC) {
        arrived.push_back(None);
    }
    arrived.truncate(MOST_ARRIVED);
    Ok(received.bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use rustix::fs::fstat;

    use super::*;
    use crate::backends::memory::shared_memory::SharedMemory;

    fn memory() -> Arc<MemoryFile> {
        SharedMemory::new().make().unwrap()
    }

    #[test]
    fn a_descriptor_arrives_before_what_is_behind_it() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (first, second) = (memory(), memory());
        let mut outgoing = Outgoing::default();
        outgoing.put(b"before".to_vec());
        outgoing.put_descriptor(first.clone());
        outgoing.put_slice(b"first");
        outgoing.put_descriptor(second.clone());
        outgoing.put_slice(b"second");
        while !outgoing.is_empty() {
            outgoing.write(&ours).unwrap();
        }
        drop(ours);
        let (mut read, mut arrived, mut bytes) = (vec![], Arrived::new(), [0; 4]);
        loop {
            let length = receive(&theirs, &mut bytes, &mut arrived).unwrap();
            if length == 0 {
                break;
            }
            read.extend_from_slice(&bytes[..length]);
            let whole = [(7, 1), (12, 2)].iter().filter(|(at, _)| read.len() >= *at).count();
            assert!(arrived.len() >= whole, "{} bytes without their descriptor", read.len());
        }
        assert_eq!(read, b"beforefirstsecond");
        let inode = |fd: &OwnedFd| fstat(fd).unwrap().st_ino;
        let arrived: Vec<_> = arrived.iter().map(|fd| inode(fd.as_ref().unwrap())).collect();
        assert_eq!(arrived, [first.number, second.number]);
    }

    #[test]
    fn descriptors_that_nothing_names_are_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let memory = memory();
        let mut arrived = Arrived::new();
        for _ in 0..10 {
            write_with(&ours, b"x", &*memory).unwrap();
            receive(&theirs, &mut [0; 4], &mut arrived).unwrap();
        }
        assert_eq!(arrived.len(), 2);
    }

    #[test]
    fn a_closed_socket_is_an_error_also_with_a_descriptor() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        assert!(theirs.read(&mut [0]).is_err(), "nothing is there");
        drop(theirs);
        let mut outgoing = Outgoing::default();
        outgoing.put_descriptor(memory());
        outgoing.put_slice(b"lost");
        assert!(outgoing.write(&ours).is_err());
    }
}
