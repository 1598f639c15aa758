//! The library's pipeline behind a `NativePipeline`, put together at run time.

use std::sync::Arc;

use gangline::expansion::OpenPipeline;
use gangline::{AnyOrderRunner, Error, Pipeline, RunReport, Terminator};

use crate::expansion::HeldExpansion;
use crate::item::StageItem;
use crate::options::PoolBuilder;
use crate::stage::StageRunner;

/// Stages in a row. At most one expansion is open.
pub(crate) enum Line {
    Whole(Pipeline<'static, StageRunner, StageRunner>),
    Parts(OpenPipeline<'static, StageRunner, StageRunner, StageItem>),
}

/// How a stage gets what the one before makes.
pub(crate) enum Joining {
    Direct,
    Expands(HeldExpansion),
    Gathers,
}

/// What the package's Python sees to.
const CHECKED: &str = "one expansion is open at a time, and is gathered before the end";

impl Line {
    /// Builds the pools of all stages, of which there is at least one, without waiting until workers have loaded. Returns
    /// them with what ends their workers in the middle of their work.
    pub(crate) fn build(
        stages: Vec<(Joining, PoolBuilder<StageRunner>)>,
    ) -> Result<(Self, Vec<Terminator>), Error> {
        let (mut line, mut terminators) = (None, vec![]);
        for (joining, builder) in stages {
            let pool = builder.build()?;
            terminators.push(pool.terminator());
            line = Some(match line {
                None => Line::Whole(Pipeline::new(pool)),
                Some(line) => Line::then(line, joining, pool),
            });
        }
        Ok((line.expect("a pipeline has a stage"), terminators))
    }

    fn then(self, joining: Joining, pool: AnyOrderRunner<StageRunner>) -> Line {
        match (self, joining) {
            (Line::Whole(line), Joining::Direct) => Line::Whole(line.then(pool)),
            (Line::Parts(line), Joining::Direct) => Line::Parts(line.then(pool)),
            (Line::Whole(line), Joining::Expands(expansion)) => {
                let most = expansion.open_parents;
                let expanding = line.try_expand(expansion.into_function());
                let expanding = match most {
                    Some(most) => expanding.open_parents(most),
                    None => expanding,
                };
                Line::Parts(expanding.then(pool))
            }
            (Line::Parts(line), Joining::Gathers) => {
                let add = |outputs: &mut Vec<_>, _: &StageItem, part, output| {
                    outputs.push((part, output));
                };
                let finish = |parent: Arc<StageItem>, outputs| {
                    StageItem::gathered(Arc::unwrap_or_clone(parent), outputs)
                };
                Line::Whole(line.gather_into(|_| vec![], add, finish).then(pool))
            }
            (Line::Whole(_), Joining::Gathers) | (Line::Parts(_), Joining::Expands(_)) => {
                unreachable!("{CHECKED}")
            }
        }
    }

    /// Runs all items through all stages.
    pub(crate) fn run(&mut self, items: impl IntoIterator<Item = StageItem>) -> Result<(), Error> {
        self.whole().run(items)
    }

    pub(crate) fn report(&mut self) -> RunReport {
        self.whole().report()
    }

    /// Ends the workers of all stages in order.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.whole().close()
    }

    fn whole(&mut self) -> &mut Pipeline<'static, StageRunner, StageRunner> {
        match self {
            Line::Whole(line) => line,
            Line::Parts(_) => unreachable!("{CHECKED}"),
        }
    }
}
