//! Asks the hooks of a runner, on this thread.

use std::time::Instant;

use super::judging::{AnsweredList, ListEnd, Query};
use crate::base::causes::WithCauses;
use crate::base::panic::{PanicMessage, catch};
use crate::device::{Device, Devices};
use crate::error::{OutputCount, Result, is_out_of_memory};
use crate::runner::{ProducerContext, ProducerSetup, Runner, Wanted};

/// One producer of a runner, without a pool.
pub(super) struct Hooks<'a, R: Runner> {
    runner: &'a R,
    samples: &'a [R::Input],
    device: Device,
    setup: Option<ProducerSetup>,
    wanted: Wanted,
    /// A state that sees a panic is dropped, and built again for the next list.
    state: Option<R::ProducerState>,
    /// The index of the next item.
    next: u64,
}

impl<'a, R: Runner<Input: Clone>> Hooks<'a, R> {
    pub(super) fn new(runner: &'a R, device: Device, samples: &'a [R::Input]) -> Self {
        let wanted = Wanted::all();
        Hooks { runner, samples, device, setup: None, wanted, state: None, next: 0 }
    }

    pub(super) fn ask(&mut self, asked: Query<'_>) -> Result<AnsweredList<R::Output>> {
        match asked {
            Query::Alone(sample) => self.alone(sample),
            Query::List(list) => self.list(list),
        }
    }

    /// Calls `producer_end`, if there is a state.
    pub(super) fn end(mut self) -> Result<()> {
        let (Some(setup), Some(state)) = (self.setup.take(), self.state.take()) else {
            return Ok(());
        };
        let cx = ProducerContext::new(&setup, &self.wanted, &[]);
        hook(|| self.runner.producer_end(&cx, state))
    }

    fn alone(&mut self, sample: usize) -> Result<AnsweredList<R::Output>> {
        let begin = Instant::now();
        let input = self.samples[sample].clone();
        let worked = self.call(1, |runner, cx, state| runner.producer_work(cx, state, input))?;
        let answers = vec![worked.map_err(|error| text(&*error))];
        Ok(AnsweredList { answers, end: ListEnd::Whole(begin.elapsed()) })
    }

    /// Asks a list. If it fails as a whole, asks its two halves, as a pool does.
    fn list(&mut self, list: &[usize]) -> Result<AnsweredList<R::Output>> {
        let mut inputs: Vec<R::Input> = list.iter().map(|&at| self.samples[at].clone()).collect();
        let begin = Instant::now();
        let worked = self.call(list.len(), |runner, cx, state| {
            runner.producer_work_batch(cx, state, &mut inputs)
        })?;
        let took = begin.elapsed();
        let error = match worked {
            Ok(outputs) if outputs.len() == list.len() => {
                let answers = outputs.into_iter().map(|it| it.map_err(|error| text(&*error)));
                return Ok(AnsweredList { answers: answers.collect(), end: ListEnd::Whole(took) });
            }
            // A pool does not split such a list either: its parts would lack outputs too.
            Ok(outputs) => {
                let count = OutputCount { inputs: list.len(), outputs: outputs.len() };
                let why = count.to_string();
                let answers = list.iter().map(|_| Err(why.clone())).collect();
                return Ok(AnsweredList { answers, end: ListEnd::Failed(why) });
            }
            Err(error) => error,
        };
        let why = text(&*error);
        let (left, right) = list.split_at(list.len() / 2);
        if left.is_empty() {
            return Ok(AnsweredList { answers: vec![Err(why)], end: ListEnd::Whole(took) });
        }
        let mut answers = self.list(left)?.answers;
        answers.extend(self.list(right)?.answers);
        let end = match is_out_of_memory(&*error) {
            true => ListEnd::OutOfMemory,
            false => ListEnd::Failed(why),
        };
        Ok(AnsweredList { answers, end })
    }

    /// Calls a hook with a state, which is built if there is none. The outer error is that of `producer_init`.
    fn call<T>(
        &mut self,
        items: usize,
        work: impl FnOnce(&R, &ProducerContext<'_>, &mut R::ProducerState) -> Result<T>,
    ) -> Result<Result<T>> {
        let device = self.device;
        let setup = match &mut self.setup {
            Some(setup) => setup,
            none => {
                let devices = Devices::from_places([vec![device]])?;
                none.insert(ProducerSetup::plain(0, &devices))
            }
        };
        let state = match &mut self.state {
            Some(state) => state,
            none => {
                let cx = ProducerContext::new(setup, &self.wanted, &[]);
                none.insert(hook(|| self.runner.producer_init(&cx))?)
            }
        };
        let items: Vec<u64> = (self.next..).take(items).collect();
        self.next += items.len() as u64;
        let cx = ProducerContext::new(setup, &self.wanted, &items);
        let worked = hook(|| work(self.runner, &cx, state));
        if worked.as_ref().is_err_and(|error| error.is::<PanicMessage>()) {
            self.state = None;
        }
        Ok(worked)
    }
}

/// Calls a hook, and turns a panic into an error.
fn hook<T>(call: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(call).unwrap_or_else(|panic| Err(panic.into()))
}

fn text(error: &(dyn std::error::Error + 'static)) -> String {
    WithCauses(error).to_string()
}
