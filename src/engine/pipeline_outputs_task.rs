//! The outputs of a pipeline with a task as the caller, which must not block.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread::JoinHandle;

use futures_core::Stream;

use super::collector::Lack;
use super::consuming_task::Start;
use super::feed::Source;
use super::last_stage::LastStage;
use super::link::Relayed;
use super::pipeline_stream::{Begun, given};
use super::pipeline_task::{poll_idle, poll_left};
use super::pipeline_totals::PipelineRun;
use super::polled::Polled;
use super::stages::{Stages, or_resume};
use super::streaming::{Look, Yield, last_error};
use super::task_feeding::TaskFeeding;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::Rebuilt;
use crate::base::panic::drop_quietly;
use crate::base::quiet_waker::quiet;
use crate::concurrency::cancel::Interrupt;
use crate::error::Error;
use crate::observe::event::Destination;
use crate::runner::Runner;

/// The outputs of a pipeline, from a stream, as a task takes them.
pub(crate) struct PipelineOutputsTask<R: Runner, S: Runner> {
    progress: Progress<R, S>,
}

enum Progress<R: Runner, S: Runner> {
    /// An earlier run of a pool may still be ending.
    New,
    Running(Box<TaskOutputs<R, S>>),
    /// The last step is kept until every thread has left.
    Ending(Box<TaskOutputs<R, S>>, Option<Yield<S::Output>>),
    Over,
}

/// The outputs in progress. The sessions are kept by the engines, so that they can be ended if the task leaks this.
struct TaskOutputs<R: Runner, S: Runner> {
    first: Arc<Run<R>>,
    feeding: TaskFeeding<R>,
    last: LastStage<S>,
    links: Vec<JoinHandle<Relayed>>,
    all: Arc<dyn Interrupt>,
}

impl<R: Runner + 'static, S: Runner + 'static> PipelineOutputsTask<R, S> {
    pub(crate) fn new() -> Self {
        PipelineOutputsTask { progress: Progress::New }
    }

    pub(crate) fn poll<T: Stream>(
        &mut self,
        stages: &mut Stages<'_, R, S>,
        source: &mut Source<Polled<T>, R::Input>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<S::Output, Error>>> {
        if !self.is_over()
            && let Err(error) = stages.check_home()
        {
            self.give_up(stages);
            return Poll::Ready(Some(Err(error)));
        }
        let waker = quiet(cx.waker());
        if let Progress::New = self.progress {
            ready!(poll_idle(stages, &waker));
            self.progress = Progress::Over;
            match stages.begin_outputs(source.unread(), Rebuilt::Later) {
                Ok(begun) => {
                    let outputs = TaskOutputs::new(begun, source.unread());
                    self.progress = Progress::Running(Box::new(outputs));
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        if let Progress::Running(outputs) = &mut self.progress {
            match ready!(outputs.poll_next(source, cx, &waker)) {
                step @ (None | Some(Yield::Last(_))) => self.begin_to_end(step),
                step => return Poll::Ready(step.map(Yield::into_result)),
            }
        }
        if let Progress::Ending(..) = self.progress {
            ready!(poll_left(stages, &waker));
        }
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        let Progress::Ending(outputs, step) = progress else { return Poll::Ready(None) };
        outputs.end(stages, source, last_error(&step));
        Poll::Ready(step.map(Yield::into_result))
    }

    fn begin_to_end(&mut self, step: Option<Yield<S::Output>>) {
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        if let Progress::Running(outputs) = progress {
            // Ends all stages: the runs before the last also if the last has failed.
            outputs.last.run.abort();
            self.progress = Progress::Ending(outputs, step);
        }
    }

    /// Whether no output is to come.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.progress, Progress::Over | Progress::Ending(_, None))
    }

    /// Gives the outputs up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, stages: &mut Stages<'_, R, S>) {
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        if stages.leave_run_to_parent() {
            return std::mem::forget(progress);
        }
        if let Progress::Running(outputs) | Progress::Ending(outputs, _) = progress {
            let account = outputs.feeding.account(outputs.last.taken_of_all());
            stages.last_run = PipelineRun::new(account, &[]);
            outputs.give_up();
            stages.engines().iter().for_each(|engine| engine.discard_lent());
        }
    }
}

impl<R: Runner + 'static, S: Runner + 'static> TaskOutputs<R, S> {
    fn new(begun: Begun<R, S>, unread: Option<u64>) -> Self {
        let Begun { first, last, order, window, links, all } = begun;
        let feeding = TaskFeeding::new(&first, unread);
        let last = LastStage::new(last, order, window, Destination::FedOutputs);
        TaskOutputs { first, feeding, last, links, all }
    }

    /// Feeds the first stage as far as it goes, then looks for the next step.
    fn poll_next<T: Stream>(
        &mut self,
        source: &mut Source<Polled<T>, R::Input>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<Option<Yield<S::Output>>> {
        let LastStage { run, collector, .. } = &mut self.last;
        collector.end_wait(&run.handover);
        self.last.take_back();
        // Also if an output is ready: the producers are to have items while the caller has it.
        _ = self.feeding.poll(&self.first, || Start::Go, source, (cx, waker));
        loop {
            match self.last.look() {
                Look::Ready(step) => return Poll::Ready(Some(step)),
                Look::Over => return Poll::Ready(None),
                Look::Missing => {}
            }
            let LastStage { run, collector, total, .. } = &mut self.last;
            let news = collector.poll_wait(&run.handover, *total, Lack::Input, waker.clone());
            collector.report_head(run);
            let Some(news) = news else { return Poll::Pending };
            collector.end_wait(&run.handover);
            run.check(news);
        }
    }

    /// Settles the outputs, which every thread has left.
    fn end<T: Stream>(
        mut self,
        stages: &mut Stages<'_, R, S>,
        source: &Source<Polled<T>, R::Input>,
        error: Option<&Error>,
    ) {
        self.feeding.drop_feeder();
        let TaskOutputs { last: LastStage { run, collector, taken, .. }, links, .. } = self;
        // A bug of ours must not be hidden.
        let relayed = links.into_iter().map(|link| or_resume(link.join())).collect();
        collector.leave(&run.handover).into_iter().for_each(drop_quietly);
        stages.settle_lent(given(source), relayed, (taken, vec![]), error);
    }

    /// Cancels all stages, and drops what the task has of them.
    fn give_up(mut self) {
        self.all.cancel();
        self.feeding.drop_feeder();
        let LastStage { run, collector, .. } = self.last;
        collector.leave(&run.handover).into_iter().for_each(drop_quietly);
    }
}
