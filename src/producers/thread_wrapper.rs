//! The function of the user around the life of each producer's thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::base::panic::catch;
use crate::error::{Error, WrapperError};

/// Calls the life of a producer's thread.
#[derive(Clone)]
pub(crate) struct ThreadWrapper(Arc<Around>);

type Around = dyn Fn(&mut (dyn FnMut() + Send)) + Send + Sync;

impl ThreadWrapper {
    pub(crate) fn new(
        function: impl Fn(&mut (dyn FnMut() + Send)) + Send + Sync + 'static,
    ) -> Self {
        ThreadWrapper(Arc::new(function))
    }

    /// Calls `life` within the function of the user, or with the error if that does not call it. Returns what `life` has
    /// returned, and an error of the function from after its call.
    pub(super) fn call<T: Send>(
        &self,
        producer: usize,
        life: impl FnOnce(Result<(), Error>) -> T + Send,
    ) -> (T, Result<(), Error>) {
        let (mut life, mut ended, mut calls) = (Some(life), None, 0);
        let mut call_once = || {
            calls += 1;
            if let Some(life) = life.take() {
                // A panic in it is not the function's.
                ended = Some(catch_unwind(AssertUnwindSafe(|| life(Ok(())))));
            }
        };
        let returned = catch(|| (self.0)(&mut call_once));
        let failed = |source| Err(Error::Wrapper { producer, source });
        let outcome = match returned {
            Err(message) => failed(WrapperError::Panicked(message)),
            Ok(()) if calls != 1 => failed(WrapperError::Calls { calls }),
            Ok(()) => Ok(()),
        };
        match (ended, life) {
            (Some(Ok(ended)), _) => (ended, outcome),
            (Some(Err(payload)), _) => resume_unwind(payload),
            (None, Some(life)) => (life(outcome), Ok(())),
            (None, None) => unreachable!("it was taken to be called"),
        }
    }
}

impl fmt::Debug for ThreadWrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ThreadWrapper")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_is_called_once_whatever_the_function_does() {
        let called = |function: fn(&mut (dyn FnMut() + Send))| {
            let (life, after) = ThreadWrapper::new(function).call(3, |wrapped| wrapped);
            [life, after].map(|outcome| outcome.map_err(|error| format!("{error:#}")).err())
        };
        assert_eq!(called(|life| life()), [None, None]);
        let text = |why| Some(format!("the function around producer 3 failed: {why}"));
        assert_eq!(called(|_| ()), [text("it called the producer 0 times, not once"), None]);
        let twice = |life: &mut (dyn FnMut() + Send)| {
            life();
            life();
        };
        assert_eq!(called(twice), [None, text("it called the producer 2 times, not once")]);
        assert_eq!(called(|_| panic!("early")), [text("early"), None]);
        let late = |life: &mut (dyn FnMut() + Send)| {
            life();
            panic!("late");
        };
        assert_eq!(called(late), [None, text("late")]);
    }
}
