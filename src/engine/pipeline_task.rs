//! A run of a pipeline with a task as the caller, which must not block.

use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::thread::JoinHandle;

use futures_core::Stream;

use super::consuming::Consumed;
use super::consuming_task::ConsumingTask;
use super::feed::Source;
use super::lineup::{Lineup, Watched};
use super::link::{NextItem, Relayed};
use super::pipeline_stream::given;
use super::pipeline_totals::{self, PipelineRun};
use super::polled::Polled;
use super::session::Engine;
use super::stages::{Front, Stages, begin, or_resume};
use super::task_feeding::TaskFeeding;
use crate::backend::threads::participants::ResultReceiver;
use crate::backend::threads::recording::Recording;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::{Rebuilt, RunKind};
use crate::backend::threads::taken::Taken;
use crate::base::quiet_waker::quiet;
use crate::concurrency::cancel::Interrupt;
use crate::error::Error;
use crate::runner::Runner;

/// A run of a pipeline, from a stream to a summary, as a task waits for it.
pub(crate) struct PipelineTask<R: Runner, S: Runner> {
    progress: Progress<R, S>,
}

enum Progress<R: Runner, S: Runner> {
    /// An earlier run of a pool may still be ending.
    New,
    Running(Box<TaskRun<R, S>>),
    Over,
}

/// A run in progress. The sessions are kept by the engines, so that it can be ended if the task leaks it.
struct TaskRun<R: Runner, S: Runner> {
    first: Arc<Run<R>>,
    last: Arc<Run<S>>,
    feeding: TaskFeeding<R>,
    consumer: ConsumingTask<S::Summary>,
    links: Vec<JoinHandle<Relayed>>,
    all: Arc<dyn Interrupt>,
}

impl<R: Runner + 'static, S: Runner + 'static> PipelineTask<R, S> {
    pub(crate) fn new() -> Self {
        PipelineTask { progress: Progress::New }
    }

    /// # Panics
    ///
    /// If it was ready before.
    pub(crate) fn poll<T: Stream>(
        &mut self,
        stages: &mut Stages<'_, R, S>,
        source: &mut Source<Polled<T>, R::Input>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S::Summary, Error>> {
        if let Err(error) = stages.check_home() {
            self.give_up(stages);
            return Poll::Ready(Err(error));
        }
        let waker = quiet(cx.waker());
        if let Progress::New = self.progress {
            ready!(poll_idle(stages, &waker));
            self.progress = Progress::Over;
            self.progress = Progress::Running(Box::new(begin_task(stages, source.unread())?));
        }
        let Progress::Running(run) = &mut self.progress else {
            panic!("a run was polled after it had ended");
        };
        ready!(run.poll(source, cx, &waker));
        ready!(poll_left(stages, &waker));
        let Progress::Running(run) = std::mem::replace(&mut self.progress, Progress::Over) else {
            unreachable!("it was just polled");
        };
        Poll::Ready(end_task(stages, *run, given(source)))
    }

    /// Gives the run up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, stages: &mut Stages<'_, R, S>) {
        let progress = std::mem::replace(&mut self.progress, Progress::Over);
        if stages.leave_run_to_parent() {
            return std::mem::forget(progress);
        }
        if let Progress::Running(run) = progress {
            stages.last_run = PipelineRun::new(run.feeding.account(run.last.tally.get()), &[]);
            run.give_up();
            stages.engines().iter().for_each(|engine| engine.discard_lent());
        }
    }
}

impl<R: Runner, S: Runner> TaskRun<R, S> {
    /// Feeds the first stage as far as it goes. Ready once the last has consumed everything.
    fn poll<T: Stream>(
        &mut self,
        source: &mut Source<Polled<T>, R::Input>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        // First: what is looked at below wakes the task when it changes later.
        self.last.keep_watcher(waker);
        let start = || self.consumer.may_start(&self.last);
        ready!(self.feeding.poll(&self.first, start, source, (cx, waker)));
        match self.consumer.is_left_or_done(&self.last) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Cancels all stages, and drops what the task has of them.
    fn give_up(mut self) {
        self.all.cancel();
        self.feeding.drop_feeder();
        self.consumer.finish().into_iter().for_each(Consumed::discard);
    }
}

/// Ends the runs in progress, which earlier tasks have given up.
pub(super) fn poll_idle<R: Runner + 'static, S: Runner + 'static>(
    stages: &mut Stages<'_, R, S>,
    waker: &Waker,
) -> Poll<()> {
    for engine in stages.engines_mut() {
        ready!(engine.poll_idle(waker));
    }
    Poll::Ready(())
}

/// Aborts all runs. Ready once no thread takes part in them.
pub(super) fn poll_left<R: Runner + 'static, S: Runner + 'static>(
    stages: &Stages<'_, R, S>,
    waker: &Waker,
) -> Poll<()> {
    let left = stages.engines().iter().filter(|engine| !engine.have_left_lent(waker)).count();
    if left == 0 { Poll::Ready(()) } else { Poll::Pending }
}

/// Begins a run without waiting for producers that rebuild their states.
fn begin_task<R: Runner + 'static, S: Runner + 'static>(
    stages: &mut Stages<'_, R, S>,
    unread: Option<u64>,
) -> Result<TaskRun<R, S>, Error> {
    stages.before.reset(unread);
    stages.last.reset(None);
    stages.last_run = PipelineRun::idle(unread);
    try_begin_task(stages, unread).inspect_err(|error| {
        stages.before.refuse(error);
        Engine::refuse(stages.last, error);
    })
}

fn try_begin_task<R: Runner + 'static, S: Runner + 'static>(
    line: &mut Stages<'_, R, S>,
    unread: Option<u64>,
) -> Result<TaskRun<R, S>, Error> {
    let later_cfgs = pipeline_totals::check(&line.engines())?;
    let mut lineup = Lineup::new(unread, later_cfgs);
    let Front { first, upstream, join } = line.before.enlist(&mut lineup)?;
    let recording = Recording { records: lineup.journal.clone(), ..lineup.recording() };
    let last = line.last.new_run(lineup.next.items, RunKind::Stream, Some(upstream), recording)?;
    lineup.relays.push(join(last.clone()));
    let consumer = line.last.consumer(last.clone());
    let stack_size = line.last.settings().stack_size;
    lineup.add(line.last, last.clone());
    lineup.limit(line.most_weight);

    let Watched { mut stages, relays, all } = lineup.watch()?;
    let mut links = Vec::with_capacity(relays.len());
    let consumes =
        stages.last().map(|stage| stage.participants().receive(ResultReceiver::Consumer));
    let begun = begin(&first, &last, &mut stages, Rebuilt::Later)
        .and_then(|()| {
            relays.into_iter().try_for_each(|relay| relay.start().map(|link| links.push(link)))
        })
        .and_then(|()| ConsumingTask::start(consumer, &last, stack_size, consumes));
    stages.into_iter().for_each(|stage| stage.lend());
    match begun {
        Ok(consumer) => {
            let feeding = TaskFeeding::new(&first, unread);
            Ok(TaskRun { first, last, feeding, consumer, links, all })
        }
        Err(error) => {
            all.cancel();
            let relayed = links.into_iter().map(|link| or_resume(link.join())).collect();
            let given = NextItem { unread, ..NextItem::default() };
            line.settle_lent(given, relayed, (Taken::default(), vec![]), Some(&error));
            Err(error)
        }
    }
}

/// The result of a run that every thread has left.
fn end_task<R: Runner + 'static, S: Runner + 'static>(
    stages: &mut Stages<'_, R, S>,
    run: TaskRun<R, S>,
    given: NextItem,
) -> Result<S::Summary, Error> {
    let TaskRun { last, mut feeding, consumer, links, .. } = run;
    feeding.drop_feeder();
    let consumed = consumer.finish().unwrap_or_else(|| Consumed::abandoned(&last));
    let Consumed { result, taken, failures } = consumed;
    // A bug of ours must not be hidden.
    let relayed = links.into_iter().map(|link| or_resume(link.join())).collect();
    stages.settle_lent(given, relayed, (taken, failures), result.as_ref().err());
    result
}
