//! The stream of a connection, which knows whether its caller has left and whether it reads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, sockopt};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

use crate::serve::delivery::{AnswerDeliveries, UnansweredRequest};
use crate::serve::refusal;
use crate::serve::spoken_version::SpokenVersion;

/// The time limit for reading what a caller still sends after its connection has had its last answer. It would not see
/// the answer if the connection were closed before.
const LINGER: Duration = Duration::from_secs(2);

/// The time that the buffers on both sides have to fill.
const SETTLING: Duration = Duration::from_secs(1);

/// A stream for hyper.
pub(crate) struct CallerStream {
    stream: Arc<TcpStream>,
    request: Arc<UnansweredRequest>,
    deliveries: AnswerDeliveries,
    /// The wait for a caller that seems to read nothing.
    patience: Option<ReadingWait>,
    /// An answer in place of one of hyper, which has no body, and how much of it is written.
    own: (Vec<u8>, usize),
    /// Whether the last read had bytes.
    has_read: bool,
    spoken_version: SpokenVersion,
}

/// A wait, after which the caller is looked at.
struct ReadingWait {
    wait: Pin<Box<Sleep>>,
    /// Whether the buffers on both sides have had the time to fill, so that only reading makes room.
    are_full: bool,
}

impl CallerStream {
    pub(crate) fn new(
        stream: Arc<TcpStream>,
        request: Arc<UnansweredRequest>,
        deliveries: AnswerDeliveries,
    ) -> CallerStream {
        let own = (Vec::new(), 0);
        let spoken_version = SpokenVersion::default();
        CallerStream {
            stream,
            request,
            deliveries,
            patience: None,
            own,
            has_read: false,
            spoken_version,
        }
    }

    /// Takes an answer that hyper gives by itself, and begins to write one with a body. Returns whether it was one.
    fn replace(&mut self, bytes: &[u8]) -> bool {
        if self.request.writing(&self.deliveries) {
            return false;
        }
        let own = match self.spoken_version.is_of_other_version() {
            true => Some(refusal::of_version()),
            false => refusal::with_body(bytes),
        };
        let is_replaced = own.is_some();
        self.own = own.map_or_else(|| std::mem::take(&mut self.own), |own| (own, 0));
        is_replaced
    }

    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.own.1 < self.own.0.len() {
            let (own, written) = std::mem::take(&mut self.own);
            let rest = &own[written..];
            let wrote = self.poll_written(cx, rest, |stream| stream.try_write(rest));
            let more = match &wrote {
                Poll::Ready(Ok(wrote)) => *wrote,
                _ => 0,
            };
            self.own = (own, written + more);
            ready!(wrote)?;
        }
        Poll::Ready(Ok(()))
    }

    /// Writes some of the bytes, of which `first` are the first. If the caller reads nothing for its time, the connection is
    /// cut off.
    fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        first: &[u8],
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        while let Poll::Ready(writable) = self.stream.poll_write_ready(cx) {
            writable?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => {
                    self.patience = None;
                    return Poll::Ready(written);
                }
            }
        }
        loop {
            let patience = self.patience.get_or_insert_with(|| ReadingWait::new(SETTLING, false));
            ready!(patience.wait.as_mut().poll(cx));
            let are_full = patience.are_full;
            self.patience = None;
            // The system reports room only when a third of its buffer is free, which may be megabytes. A caller that has read
            // some of it has made some room.
            match send(&*self.stream, first, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Err(Errno::AGAIN) if are_full => {
                    self.deliveries.cut();
                    // Without this the system would go on to offer what it has.
                    let _ = sockopt::set_socket_linger(&*self.stream, Some(Duration::ZERO));
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Err(Errno::AGAIN) => {
                    self.patience = Some(ReadingWait::new(self.deliveries.patience(), true));
                }
                sent => return Poll::Ready(sent.map_err(Into::into)),
            }
        }
    }
}

impl ReadingWait {
    fn new(time: Duration, are_full: bool) -> ReadingWait {
        ReadingWait { wait: Box::pin(sleep(time)), are_full }
    }
}

/// Waits until the caller has closed its side of a connection. hyper looks for that only while it has no bytes of a
/// further request.
pub(crate) async fn left(stream: &TcpStream) {
    // This interest reports the end of the stream only: bytes that are not read do not end the wait.
    let _ = stream.ready(Interest::PRIORITY).await;
}

/// Writes the answer to a connection that has had none for its last bytes. It has room for so few bytes, unless its
/// caller reads nothing.
pub(crate) fn write_last(stream: &TcpStream, answer: &[u8]) {
    let _ = send(stream, answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
}

/// Ends a connection whose last answer is written, and reads what its caller still sends.
pub(crate) async fn linger(stream: &TcpStream) {
    if rustix::net::shutdown(stream, Shutdown::Write).is_err() {
        return;
    }
    let discarded = async {
        let mut buffer = [0; 4 << 10];
        while stream.readable().await.is_ok() {
            match stream.try_read(&mut buffer) {
                Ok(1..) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    let _ = timeout(LINGER, discarded).await;
}

impl Drop for CallerStream {
    fn drop(&mut self) {
        self.request.gone();
    }
}

impl AsyncRead for CallerStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buffer.initialize_unfilled()) {
                // hyper drops a request if it reads the end before it has an answer. So the end comes a poll later than
                // the last bytes, and an answer that is ready goes before it.
                Ok(0) if self.has_read => {
                    self.has_read = false;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Ok(read) => {
                    self.has_read = read > 0;
                    let read_before = buffer.filled().len();
                    buffer.advance(read);
                    self.spoken_version.read(&buffer.filled()[read_before..]);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for CallerStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(cx))?;
        match self.replace(bytes) {
            true => Poll::Ready(Ok(bytes.len())),
            false => self.poll_written(cx, bytes, |stream| stream.try_write(bytes)),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(cx))?;
        let first: &[u8] = parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part);
        match self.replace(first) {
            true => Poll::Ready(Ok(first.len())),
            false => self.poll_written(cx, first, |stream| stream.try_write_vectored(parts)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper calls this once it has no more bytes of the answer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        self.request.written();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Poll::Ready(rustix::net::shutdown(&*self.stream, Shutdown::Write).map_err(Into::into))
    }
}
