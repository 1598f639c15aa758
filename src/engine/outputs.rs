//! The outputs of a line, from before they begin to after their end.

use std::task::Poll;
#[cfg(feature = "futures")]
use std::task::{Context, ready};

#[cfg(feature = "futures")]
use futures_core::Stream;
use gangline_report::Account;

#[cfg(feature = "futures")]
use super::feed::Polled;
use super::feed::Source;
use super::line::Line;
use super::outputs_driver::{Caller, OutputsDriver, Yield};
use super::own_feeder::GatedSource;
use super::stage::StageTypes;
#[cfg(feature = "futures")]
use crate::base::quiet_waker::quiet;
use crate::error::Error;

/// The outputs of a line, from before they begin to after their end. `I` is the source that the caller pulls.
pub(crate) struct LineOutputs<I, F: StageTypes, L: StageTypes> {
    stage: OutputsPhase<I, F, L>,
    /// The number of results that were yielded.
    yielded: u64,
}

enum OutputsPhase<I, F: StageTypes, L: StageTypes> {
    /// A task has not polled them. An earlier run of a pool may still be ending.
    #[cfg(feature = "futures")]
    New(Source<I, F::Input>),
    /// They could not begin.
    Refused(Error),
    Running(Box<OutputsDriver<I, F, L>>),
    /// A task keeps the last step until every thread has left.
    #[cfg(feature = "futures")]
    Ending(Box<OutputsDriver<I, F, L>>, Option<Yield<L::Output>>),
    Over,
}

impl<I, F: StageTypes + 'static, L: StageTypes + 'static> LineOutputs<I, F, L> {
    /// Begins outputs whose caller pulls `source`.
    pub(crate) fn begin(line: &mut dyn Line<F, L>, source: Source<I, F::Input>) -> Self {
        Self::begun(OutputsDriver::begin(line, source, Caller::Thread))
    }

    /// Begins outputs for which a thread of its own pulls `source`.
    pub(crate) fn begin_elsewhere<J>(
        line: &mut dyn Line<F, L>,
        source: GatedSource<J, F::Input>,
    ) -> Self
    where
        J: Iterator + Send + 'static,
    {
        Self::begun(OutputsDriver::begin_elsewhere(line, source))
    }

    fn begun(driver: Result<OutputsDriver<I, F, L>, Error>) -> Self {
        let stage = match driver {
            Ok(driver) => OutputsPhase::Running(Box::new(driver)),
            Err(error) => OutputsPhase::Refused(error),
        };
        LineOutputs { stage, yielded: 0 }
    }

    /// Returns the next output, or waits for it. The last ends the run.
    pub(crate) fn next(&mut self, line: &mut dyn Line<F, L>) -> Option<Result<L::Output, Error>> {
        let OutputsPhase::Running(driver) = &mut self.stage else { return self.take_refusal() };
        let Poll::Ready(step) = driver.step(Caller::Thread, |_| Poll::Ready(())) else {
            unreachable!("a thread waits");
        };
        match &step {
            Some(Yield::Output(_) | Yield::Skipped(_)) => {}
            None | Some(Yield::Last(_)) => {
                self.end_with(line, step.as_ref().and_then(Yield::last_error));
            }
        }
        self.yielded += u64::from(step.is_some());
        step.map(Yield::into_result)
    }

    /// The error that they could not begin with, once.
    fn take_refusal(&mut self) -> Option<Result<L::Output, Error>> {
        match std::mem::replace(&mut self.stage, OutputsPhase::Over) {
            OutputsPhase::Refused(error) => Some(Err(error)),
            _ => None,
        }
    }

    pub(crate) fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.stage {
            OutputsPhase::Refused(_) => (1, Some(1)),
            OutputsPhase::Running(driver) => (0, driver.most_left(self.yielded)),
            #[cfg(feature = "futures")]
            OutputsPhase::New(_) | OutputsPhase::Ending(..) => (0, None),
            OutputsPhase::Over => (0, Some(0)),
        }
    }

    /// The counts so far.
    pub(crate) fn account(&self, line: &dyn Line<F, L>) -> Account {
        match &self.stage {
            OutputsPhase::Running(driver) => driver.account(),
            #[cfg(feature = "futures")]
            OutputsPhase::Ending(driver, _) => driver.account(),
            _ => line.account(),
        }
    }

    /// Ends the run. Waits for the hooks that are running.
    pub(crate) fn end(&mut self, line: &mut dyn Line<F, L>) {
        self.end_with(line, None);
    }

    fn end_with(&mut self, line: &mut dyn Line<F, L>, error: Option<&Error>) {
        match std::mem::replace(&mut self.stage, OutputsPhase::Over) {
            OutputsPhase::Running(driver) => driver.end(line, error),
            #[cfg(feature = "futures")]
            OutputsPhase::Ending(driver, _) => driver.end(line, error),
            _ => {}
        }
    }
}

#[cfg(feature = "futures")]
impl<T: Stream, F: StageTypes + 'static, L: StageTypes + 'static> LineOutputs<Polled<T>, F, L> {
    /// Outputs that begin with the first poll.
    pub(crate) fn new(source: Source<Polled<T>, F::Input>) -> Self {
        LineOutputs { stage: OutputsPhase::New(source), yielded: 0 }
    }

    /// Returns the next output, if it is there. The last ends the run.
    pub(crate) fn poll_next(
        &mut self,
        line: &mut dyn Line<F, L>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<L::Output, Error>>> {
        if !self.is_over()
            && let Err(error) = line.check_home()
        {
            self.give_up(line);
            return Poll::Ready(Some(Err(error)));
        }
        let waker = quiet(cx.waker());
        if let OutputsPhase::New(_) = self.stage {
            ready!(line.poll_idle(&waker));
            let OutputsPhase::New(source) = std::mem::replace(&mut self.stage, OutputsPhase::Over)
            else {
                unreachable!("it was just seen");
            };
            *self = Self::begun(OutputsDriver::begin(line, source, Caller::Task(&waker)));
        }
        if let OutputsPhase::Running(driver) = &mut self.stage {
            let step = ready!(driver.step(Caller::Task(&waker), |source| source.poll_item(cx)));
            if let Some(Yield::Output(_) | Yield::Skipped(_)) = step {
                return Poll::Ready(step.map(Yield::into_result));
            }
            if let OutputsPhase::Running(driver) =
                std::mem::replace(&mut self.stage, OutputsPhase::Over)
            {
                // Ends all stages: those before the last also if the last has failed.
                driver.abort();
                self.stage = OutputsPhase::Ending(driver, step);
            }
        }
        if let OutputsPhase::Ending(driver, _) = &self.stage {
            driver.keep(&waker);
            if !line.has_ended() {
                return Poll::Pending;
            }
        }
        Poll::Ready(match std::mem::replace(&mut self.stage, OutputsPhase::Over) {
            OutputsPhase::Ending(driver, step) => {
                driver.end(line, step.as_ref().and_then(Yield::last_error));
                step.map(Yield::into_result)
            }
            OutputsPhase::Refused(error) => Some(Err(error)),
            _ => None,
        })
    }

    /// Whether no output is to come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, OutputsPhase::Over | OutputsPhase::Ending(_, None))
    }

    /// Gives the outputs up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, line: &mut dyn Line<F, L>) {
        match std::mem::replace(&mut self.stage, OutputsPhase::Over) {
            OutputsPhase::Running(driver) | OutputsPhase::Ending(driver, _) => driver.give_up(line),
            _ => {}
        }
    }
}
