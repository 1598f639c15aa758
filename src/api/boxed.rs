//! A runner that hides the types of its states.

use std::any::Any;
use std::fmt;

use crate::error::{Error, Result};
use crate::runner::{BatchHook, ConsumerContext, ProducerContext, Runner};

/// A runner of which only the inputs, outputs and summary are known, so that it fits in a field of a struct.
///
/// The type of a runner of closures cannot be written down. Boxed, it can; so can that of a pool of it. The
/// states may be anything, also what is not `Send`; only borrowed states are excluded. A hook costs one
/// virtual call and one comparison more.
///
/// ```
/// use gangline::closures::BoxRunner;
/// use gangline::{OrderedRunner, Result, map};
///
/// struct Classifier {
///     pool: OrderedRunner<BoxRunner<String, f32, Vec<f32>>>,
/// }
///
/// impl Classifier {
///     fn new(scale: f32) -> Result<Self> {
///         let score = map(
///             move |_| Ok(std::rc::Rc::new(scale)), // a state that is not `Send`
///             |_, scale, text: String| Ok(**scale * text.len() as f32),
///         );
///         Ok(Classifier { pool: OrderedRunner::new(BoxRunner::new(score), 2)? })
///     }
///
///     fn classify(&mut self, texts: Vec<String>) -> Result<Vec<f32>> {
///         Ok(self.pool.run(texts)?)
///     }
/// }
///
/// # fn main() -> Result<()> {
/// let mut classifier = Classifier::new(0.5)?;
/// assert_eq!(classifier.classify(vec!["four".to_owned()])?, [2.0]);
/// # Ok(())
/// # }
/// ```
pub struct BoxRunner<Input, Output, Summary> {
    runner: Box<
        dyn Runner<
                Input = Input,
                Output = Output,
                ProducerState = BoxState,
                ConsumerState = BoxState,
                Summary = Summary,
            >,
    >,
}

/// A state of a [`BoxRunner`], whatever it is.
pub struct BoxState(Box<dyn Any>);

/// The runner itself, with boxed states.
struct Erased<R>(R);

impl<Input: Send, Output: Send, Summary: Send> BoxRunner<Input, Output, Summary> {
    /// Boxes a runner.
    pub fn new<R>(runner: R) -> Self
    where
        R: Runner<Input = Input, Output = Output, Summary = Summary> + 'static,
        R::ProducerState: 'static,
        R::ConsumerState: 'static,
    {
        BoxRunner { runner: Box::new(Erased(runner)) }
    }
}

impl BoxState {
    fn new(state: impl Any) -> Self {
        BoxState(Box::new(state))
    }

    fn get<S: 'static>(&mut self) -> &mut S {
        self.0.downcast_mut().expect(STATE)
    }

    fn take<S: 'static>(self) -> S {
        *self.0.downcast().expect(STATE)
    }
}

const STATE: &str = "a runner gets the states that its own hooks made";

/// Calls the hooks of what `$inner` is; `$get` and `$take` unpack the states, and `$new` packs them.
macro_rules! forward {
    ($self:ident.$inner:tt, $new:expr, $get:ident, $take:ident) => {
        fn producer_init(&$self, cx: &ProducerContext<'_>) -> Result<BoxState> {
            $self.$inner.producer_init(cx).map($new)
        }

        fn producer_work(
            &$self,
            cx: &ProducerContext<'_>,
            state: &mut BoxState,
            input: Self::Input,
        ) -> Result<Self::Output> {
            $self.$inner.producer_work(cx, $get(state), input)
        }

        fn producer_work_batch(
            &$self,
            cx: &ProducerContext<'_>,
            state: &mut BoxState,
            inputs: &mut Vec<Self::Input>,
        ) -> Result<Vec<Result<Self::Output>>> {
            $self.$inner.producer_work_batch(cx, $get(state), inputs)
        }

        fn batch_hook(&$self) -> BatchHook {
            $self.$inner.batch_hook()
        }

        fn producer_end(&$self, cx: &ProducerContext<'_>, state: BoxState) -> Result<()> {
            $self.$inner.producer_end(cx, $take(state))
        }

        fn consumer_init(&$self, cx: &ConsumerContext<'_>) -> Result<BoxState> {
            $self.$inner.consumer_init(cx).map($new)
        }

        fn consumer_work(
            &$self,
            cx: &ConsumerContext<'_>,
            state: &mut BoxState,
            output: Self::Output,
        ) -> Result<()> {
            $self.$inner.consumer_work(cx, $get(state), output)
        }

        fn consumer_skipped(
            &$self,
            cx: &ConsumerContext<'_>,
            state: &mut BoxState,
            error: &Error,
        ) -> Result<()> {
            $self.$inner.consumer_skipped(cx, $get(state), error)
        }

        fn consumer_flush(&$self, cx: &ConsumerContext<'_>, state: &mut BoxState) -> Result<()> {
            $self.$inner.consumer_flush(cx, $get(state))
        }

        fn consumer_end(&$self, cx: &ConsumerContext<'_>, state: BoxState) -> Result<Self::Summary> {
            $self.$inner.consumer_end(cx, $take(state))
        }
    };
}

impl<R: Runner> Runner for Erased<R>
where
    R::ProducerState: 'static,
    R::ConsumerState: 'static,
{
    type Input = R::Input;
    type Output = R::Output;
    type ProducerState = BoxState;
    type ConsumerState = BoxState;
    type Summary = R::Summary;

    forward!(self.0, BoxState::new, unpacked, taken);
}

impl<Input: Send, Output: Send, Summary: Send> Runner for BoxRunner<Input, Output, Summary> {
    type Input = Input;
    type Output = Output;
    type ProducerState = BoxState;
    type ConsumerState = BoxState;
    type Summary = Summary;

    forward!(self.runner, identity, identity, identity);
}

fn unpacked<S: 'static>(state: &mut BoxState) -> &mut S {
    state.get()
}

fn taken<S: 'static>(state: BoxState) -> S {
    state.take()
}

fn identity<T>(value: T) -> T {
    value
}

impl<Input, Output, Summary> fmt::Debug for BoxRunner<Input, Output, Summary> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxRunner").finish_non_exhaustive()
    }
}

impl fmt::Debug for BoxState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxState").finish_non_exhaustive()
    }
}
