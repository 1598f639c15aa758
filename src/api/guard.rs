//! Channels as inputs that end with a token.

use std::fmt;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use crossbeam_channel::{Receiver, Select, TryRecvError};

use crate::concurrency::cancel::{CancelToken, pulling};

/// How often the guard of a [`std::sync::mpsc::Receiver`] checks whether it has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A channel as an iterator that also ends when a [`CancelToken`] is used, or when the run that pulls it
/// reads no more input: see [`CancelToken::guard`]. Values not yet received stay in the channel.
pub struct Guard<T> {
    channel: Channel<T>,
    ended: Receiver<()>,
    id: u64,
    token: CancelToken,
}

/// The receiver of a channel that [`CancelToken::guard`] accepts: [`crossbeam_channel::Receiver`] or
/// [`std::sync::mpsc::Receiver`]. It is implemented for these alone.
///
/// ```
/// use std::sync::mpsc;
/// use gangline::CancelToken;
///
/// let token = CancelToken::new();
/// let (sender, receiver) = mpsc::channel();
/// sender.send("a").unwrap();
/// let mut input = token.guard(receiver);
/// assert_eq!(input.next(), Some("a"));
/// token.drain();
/// assert_eq!(input.next(), None, "although the sender is alive");
/// ```
pub trait GuardedReceiver: sealed::IntoChannel {}

impl<T> GuardedReceiver for Receiver<T> {}
impl<T> GuardedReceiver for mpsc::Receiver<T> {}

mod sealed {
    #[expect(unnameable_types, reason = "no other crate implements it")]
    pub trait IntoChannel {
        type Value;

        fn into_channel(self) -> super::Channel<Self::Value>;
    }
}

impl<T> sealed::IntoChannel for Receiver<T> {
    type Value = T;

    fn into_channel(self) -> Channel<T> {
        Channel::Crossbeam(self)
    }
}

impl<T> sealed::IntoChannel for mpsc::Receiver<T> {
    type Value = T;

    fn into_channel(self) -> Channel<T> {
        Channel::Standard(Mutex::new(self))
    }
}

/// The receiver of either kind.
#[expect(unnameable_types, reason = "only a sealed trait has it")]
pub enum Channel<T> {
    Crossbeam(Receiver<T>),
    /// Never locked, since there is always `&mut`: it makes a guard `Sync`, which the receiver is not.
    Standard(Mutex<mpsc::Receiver<T>>),
}

/// Waits for the next value. `None` once the channel is closed or one of `ends` is disconnected.
fn receive<T>(receiver: &Receiver<T>, ends: &[Receiver<()>]) -> Option<T> {
    let mut select = Select::new_biased();
    ends.iter().for_each(|end| {
        select.recv(end);
    });
    let values = select.recv(receiver);
    let ready = select.select();
    match ready.index() {
        i if i == values => ready.recv(receiver).ok(),
        i => ready.recv(&ends[i]).ok().and(None),
    }
}

/// The same. A standard channel cannot be waited for together with another. A thread that forwards its values
/// would hold one of them, and could not be joined while the channel is silent. So this wait is timed.
fn receive_standard<T>(receiver: &mpsc::Receiver<T>, ends: &[Receiver<()>]) -> Option<T> {
    while !ends.iter().any(has_ended) {
        match receiver.recv_timeout(CHECK_INTERVAL) {
            Ok(value) => return Some(value),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

fn has_ended(end: &Receiver<()>) -> bool {
    end.try_recv() == Err(TryRecvError::Disconnected)
}

impl CancelToken {
    /// Turns the receiver of a channel into an iterator that also ends when this token is used.
    ///
    /// It takes a receiver of `crossbeam-channel` or of [`std::sync::mpsc`]; the latter ends up to 50 ms later,
    /// since nothing can wake it.
    ///
    /// It also ends when the run that pulls it reads no more input, since it failed or was stopped. A run
    /// can only end when the caller's iterator returns, so an iterator that blocks on a channel would hold
    /// the run as long as the channel is silent. This one does not.
    ///
    /// ```
    /// use gangline::{CancelToken, OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let token = CancelToken::new();
    /// let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)))
    ///     .devices(2)
    ///     .cancel_token(token.clone())
    ///     .build()?;
    /// let (sender, receiver) = crossbeam_channel::unbounded();
    /// sender.send(3)?;
    /// let input = token.guard(receiver);
    /// token.drain();
    /// // The sender is still alive, so without the guard this would wait for ever.
    /// assert!(runner.run(input)?.len() <= 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard<C: GuardedReceiver>(&self, receiver: C) -> Guard<C::Value> {
        let (id, ended) = self.add_guard();
        Guard { channel: receiver.into_channel(), ended, id, token: self.clone() }
    }
}

impl<T> Iterator for Guard<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if has_ended(&self.ended) {
            return None;
        }
        let mut ends = vec![self.ended.clone()];
        ends.extend(pulling());
        match &mut self.channel {
            Channel::Crossbeam(receiver) => receive(receiver, &ends),
            Channel::Standard(receiver) => {
                let receiver =
                    receiver.get_mut().expect("it is never locked, so it is not poisoned");
                receive_standard(receiver, &ends)
            }
        }
    }
}

impl<T> Drop for Guard<T> {
    fn drop(&mut self) {
        self.token.remove_guard(self.id);
    }
}

impl<T> fmt::Debug for Guard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("token", &self.token).finish_non_exhaustive()
    }
}
