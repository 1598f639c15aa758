//! A runner that hides the types of its states.

use std::any::Any;
use std::fmt;

use crate::runner::{Runner, forward_hooks};

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

    forward_hooks!(self, self.0, BoxState::new, unpacked, taken => producer, consumer);
}

impl<Input: Send, Output: Send, Summary: Send> Runner for BoxRunner<Input, Output, Summary> {
    type Input = Input;
    type Output = Output;
    type ProducerState = BoxState;
    type ConsumerState = BoxState;
    type Summary = Summary;

    forward_hooks!(self, self.runner => producer, consumer);
}

fn unpacked<S: 'static>(state: &mut BoxState) -> &mut S {
    state.get()
}

fn taken<S: 'static>(state: BoxState) -> S {
    state.take()
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
