//! Messages that wait in a queue for the reader of standard error, so that no thread with other work waits for it.

use std::io::{self, Write};
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// The messages, which a thread of their own writes.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    queued: Mutex<QueuedText>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedText {
    text: Vec<u8>,
    /// The number of bytes behind `text` for which there was no room.
    dropped: u64,
    is_writing: bool,
}

/// The largest text that waits, in bytes. What a healthy reader has not read yet fits.
const MOST: usize = 4 << 20;

impl MessageQueue {
    /// Starts the thread that writes to `out`. It lives as long as the process, since a write may block for ever.
    pub(crate) fn start(out: impl Write + Send + 'static) -> io::Result<Arc<MessageQueue>> {
        let queue = Arc::new(MessageQueue::default());
        let writing = Arc::clone(&queue);
        let thread = thread::Builder::new().name("gangline-log".into());
        thread.spawn(move || writing.write_all_to(out))?;
        Ok(queue)
    }

    /// Waits until all is written, at most for this time.
    pub(crate) fn finish(&self, most: Duration) {
        let is_open = |queued: &mut QueuedText| {
            queued.is_writing || !queued.text.is_empty() || queued.dropped > 0
        };
        let waited = self.changed.wait_timeout_while(self.queued(), most, is_open);
        drop(waited.expect("nothing panics with the lock held"));
    }

    fn write_all_to(&self, mut out: impl Write) {
        let mut queued = self.queued();
        loop {
            if queued.text.is_empty() && queued.dropped == 0 {
                queued.is_writing = false;
                self.changed.notify_all();
                queued = self.changed.wait(queued).expect("nothing panics with the lock held");
                continue;
            }
            queued.is_writing = true;
            let (text, dropped) = (mem::take(&mut queued.text), mem::take(&mut queued.dropped));
            drop(queued);
            // If the reader is gone, no other way to report remains.
            let _ = out.write_all(&text);
            if dropped > 0 {
                let _ = writeln!(
                    out,
                    "\ngangline: {dropped} bytes of messages were dropped: standard error was not read"
                );
            }
            let _ = out.flush();
            queued = self.queued();
        }
    }

    fn queued(&self) -> MutexGuard<'_, QueuedText> {
        self.queued.lock().expect("nothing panics with the lock held")
    }
}

/// Never waits, and never fails. Without room, all is dropped until the reader has read.
impl Write for &MessageQueue {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut queued = self.queued();
        match queued.dropped > 0 || queued.text.len() + bytes.len() > MOST {
            true => queued.dropped += bytes.len() as u64,
            false => queued.text.extend_from_slice(bytes),
        }
        self.changed.notify_all();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use std::io::Read;

    use super::*;

    #[test]
    fn a_reader_that_stops_loses_messages_and_learns_how_many() {
        let (mut reader, writer) = UnixStream::pair().unwrap();
        let queue = MessageQueue::start(writer).unwrap();
        let line = [b'x'; 1 << 20];
        let lines = 12;
        for _ in 0..lines {
            (&*queue).write_all(&line).unwrap();
        }
        queue.finish(Duration::ZERO);
        let read = thread::spawn(move || {
            let mut text = String::new();
            while !text.ends_with("last\n") {
                let mut buffer = [0; 1 << 16];
                let read = reader.read(&mut buffer).unwrap();
                text.push_str(str::from_utf8(&buffer[..read]).unwrap());
            }
            text
        });
        queue.finish(Duration::from_secs(60));
        (&*queue).write_all(b"last\n").unwrap();
        let text = read.join().unwrap();
        let kept = text.bytes().take_while(|byte| *byte == b'x').count();
        let dropped = lines * line.len() - kept;
        assert!(kept >= MOST - line.len() && dropped > 0, "{kept}");
        let said = format!("\ngangline: {dropped} bytes of messages were dropped: ");
        assert!(text[kept..].starts_with(&said), "{}", &text[kept..]);
    }
}
