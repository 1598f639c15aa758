//! An alarm that ends waits in the kernel.

use std::io::{self, PipeReader, PipeWriter};
use std::sync::{Mutex, MutexGuard};

/// Rings at most once. Threads that listen before or after that hear it.
///
/// It uses a pipe: a wait in the operating system cannot include a channel, but it can include the end of a
/// pipe.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Mutex<AlarmState>,
}

#[derive(Debug, Default)]
struct AlarmState {
    has_rung: bool,
    /// The writing ends of the pipes; ringing closes them.
    listeners: Vec<PipeWriter>,
}

impl Alarm {
    pub(crate) fn ring(&self) {
        let mut state = self.lock();
        state.has_rung = true;
        state.listeners.clear();
    }

    /// Returns a pipe that reaches its end once the alarm has rung.
    pub(crate) fn listen(&self) -> io::Result<PipeReader> {
        let (reader, writer) = io::pipe()?;
        let mut state = self.lock();
        if !state.has_rung {
            state.listeners.push(writer);
        }
        Ok(reader)
    }

    fn lock(&self) -> MutexGuard<'_, AlarmState> {
        self.state.lock().expect("no user code, and nothing that panics, runs under this lock")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn it_is_heard_before_and_after() {
        let alarm = Alarm::default();
        let mut early = alarm.listen().unwrap();
        alarm.ring();
        let mut late = alarm.listen().unwrap();
        assert_eq!(early.read(&mut [0]).unwrap(), 0);
        assert_eq!(late.read(&mut [0]).unwrap(), 0);
    }
}
