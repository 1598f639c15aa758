//! The stream of a connection, which knows whether its caller has left and whether an answer is still to be written.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The number of answers that callers read too slowly to have them written at once.
#[derive(Debug, Clone)]
pub(crate) struct UnreadAnswers(watch::Sender<usize>);

/// A stream for hyper.
#[derive(Debug)]
pub(crate) struct CallerStream {
    stream: Arc<TcpStream>,
    unread: UnreadAnswers,
    /// Whether the caller is among those that `unread` counts.
    is_slow: bool,
    /// Whether the last read had bytes.
    has_read: bool,
}

impl UnreadAnswers {
    pub(crate) fn new() -> UnreadAnswers {
        UnreadAnswers(watch::Sender::new(0))
    }

    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Waits until there is none.
    pub(crate) async fn read(&self) {
        // The sender is `self`, so the wait cannot fail.
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl CallerStream {
    pub(crate) fn new(stream: Arc<TcpStream>, unread: UnreadAnswers) -> CallerStream {
        CallerStream { stream, unread, is_slow: false, has_read: false }
    }

    /// An answer has to wait for its caller.
    fn begin_wait(&mut self) {
        if !self.is_slow {
            self.is_slow = true;
            self.unread.0.send_modify(|count| *count += 1);
        }
    }

    fn end_wait(&mut self) {
        if self.is_slow {
            self.is_slow = false;
            self.unread.0.send_modify(|count| *count -= 1);
        }
    }

    fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        mut write: impl FnMut(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let Poll::Ready(writable) = self.stream.poll_write_ready(cx) else {
                self.begin_wait();
                return Poll::Pending;
            };
            writable?;
            match write(&self.stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// Waits until the caller has closed its side of a connection. hyper looks for that only while it has no bytes of a
/// further request.
pub(crate) async fn left(stream: &TcpStream) {
    // Of this interest the system reports the end of the stream only: bytes that are not read do not end the wait.
    let _ = stream.ready(Interest::PRIORITY).await;
}

impl Drop for CallerStream {
    fn drop(&mut self) {
        self.end_wait();
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
                    buffer.advance(read);
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
        self.poll_written(cx, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(cx, |stream| stream.try_write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// hyper calls this once it has no more bytes of the answer.
    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end_wait();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(rustix::net::shutdown(&*self.stream, Shutdown::Write).map_err(Into::into))
    }
}
