//! The link that makes one item of many: it folds the parts of a parent, and hands the parent on.
//!
//! Parts arrive in the order of the last stage of the expansion. In input order, they are those of the oldest
//! open parent. In completion order, a part's index tells its parent. See [`expand`](super::expand) for how
//! the end of a parent arrives, and why this link cannot deadlock with that one.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::engine::expand::{Expansion, Opened, Parent, Parents};
use crate::engine::link::{
    Earlier, Joint, LinkEnd, LinkHands, LinkKind, Prepared, Relayed, Work, between,
};
use crate::error::{Error, PanicMessage, Result};
use crate::run::Run;
use crate::run::no_output::{FailedItem, NoOutput, PartMark};
use crate::run::parts::{Holes, ItemPath, PartStage};

/// Folds the parts of a parent: what [`Gather`](crate::expansion::Gather) has of its closures.
///
/// ```
/// use std::sync::Arc;
///
/// use gangline::expansion::{FoldParts, Gather};
/// use gangline::{OrderedRunner, Runner, each};
///
/// /// The sums of all parents, whatever their stages are.
/// fn sums<R, S, F>(gather: Gather<'static, R, S, u64, F>) -> gangline::Result<Vec<u64>>
/// where
///     R: Runner<Input = u64> + 'static,
///     S: Runner + 'static,
///     F: FoldParts<u64, S::Output, Item = (Arc<u64>, u64)>,
/// {
///     let last = OrderedRunner::new(each(|(_, sum): (Arc<u64>, u64)| Ok(sum)), 1)?;
///     Ok(gather.then(last).run([3, 4])?)
/// }
///
/// let pool = || OrderedRunner::new(each(|n: u64| Ok(n)), 1);
/// let parts = pool()?.expand(|n| 0..**n).then(pool()?);
/// assert_eq!(sums(parts.gather(|_| 0, |sum, _, _, n| *sum += n))?, [3, 6]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub trait FoldParts<P, X>: Send + Sync + 'static {
    /// What the parts are folded into.
    type Gathered: Send + 'static;
    /// What the next stage gets.
    type Item: Send + 'static;

    /// Begins a parent.
    fn init(&self, parent: &P) -> Self::Gathered;

    /// Adds a part. It is an `Err` only if failures are gathered.
    fn add(&self, gathered: &mut Self::Gathered, parent: &P, part: u64, output: Result<X, Error>);

    /// Makes the item of a parent that has all its parts.
    fn finish(&self, parent: Arc<P>, gathered: Self::Gathered) -> Self::Item;
}

/// Why the index of a part is known.
const KNOWN: &str = "it is forgotten only once the part has been gathered";

/// Gathers the results of one stage to the items of the next.
pub(crate) struct Gathering<P, F> {
    pub(crate) fold: Arc<F>,
    pub(crate) expansion: Arc<Expansion<P>>,
    /// The order in which parts are added: that of the stage, or as they come.
    pub(crate) order: AddOrder,
}

/// What a stage behind a gathering gets for a parent with parts of type `B`.
type FoldedParent<P, F, B> = <F as FoldParts<P, B>>::Item;

/// The order in which parts are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AddOrder {
    OfStage,
    Completion,
}

impl<A, B, D, P, F> Joint<A, B, FoldedParent<P, F, B>, D> for Gathering<P, F>
where
    A: Send + 'static,
    B: Send + 'static,
    D: Send + 'static,
    P: Send + Sync + 'static,
    F: FoldParts<P, B>,
{
    fn kind(&self) -> LinkKind {
        LinkKind::Gathers
    }

    fn prepare(&self, from: Earlier<A, B>, _: usize) -> Prepared<FoldedParent<P, F, B>, D> {
        let upstream = from.run.clone();
        let (fold, parents) = (self.fold.clone(), self.expansion.parents());
        let stage = from.run.parts.get().expect("parts are gathered behind an expansion").clone();
        stage.be_last();
        // Parts that are added as they come still leave the order of the parents alone.
        let leaving = if stage.keeps_indices() { from.order } else { Order::Completion };
        let from = match self.order {
            AddOrder::OfStage => from,
            AddOrder::Completion => Earlier { order: Order::Completion, ..from },
        };
        let join = move |to: Arc<Run<FoldedParent<P, F, B>, D>>| -> Work {
            Box::new(move || GatherLink { from, to, fold, parents, stage, leaving }.run())
        };
        Prepared { upstream, join: Box::new(join) }
    }
}

/// Takes the results of one run as parts, and gives out their parents as items of the next.
pub(super) struct GatherLink<A, B, D, P, F: FoldParts<P, B>> {
    pub(super) from: Earlier<A, B>,
    pub(super) to: Arc<Run<FoldedParent<P, F, B>, D>>,
    pub(super) fold: Arc<F>,
    pub(super) parents: Arc<Parents<P>>,
    /// The stage of the parts.
    pub(super) stage: Arc<PartStage>,
    /// The order in which parents leave.
    pub(super) leaving: Order,
}

/// The parents that are not yet handed on, in the order in which they were opened.
struct Gathered<P, G> {
    open: VecDeque<OpenParent<P, G>>,
    /// The index of the first part of the newest.
    newest: Option<u64>,
}

struct OpenParent<P, G> {
    opened: Opened<P>,
    state: ParentState<G>,
    /// The number of parts that have arrived, failed or not.
    settled: u64,
    /// The number of parts, once it is known.
    parts: Option<u64>,
}

/// How far a parent is gathered.
enum ParentState<G> {
    New,
    Folded(G),
    /// A part failed.
    Failed(Box<FailedItem>),
    /// It cannot be made of its parts.
    Unusable(Error),
}

impl<P, G> Gathered<P, G> {
    /// Adds the parents that were opened meanwhile.
    fn fetch(&mut self, parents: &Parents<P>) {
        for opened in parents.take_opened(self.newest) {
            self.newest = Some(opened.first);
            let parent = OpenParent { opened, state: ParentState::New, settled: 0, parts: None };
            self.open.push_back(parent);
        }
    }

    /// The place of the parent of this part, or of the end at this index.
    fn place_of(&self, index: u64) -> usize {
        let after = self.open.partition_point(|parent| parent.opened.first <= index);
        after.checked_sub(1).expect("a parent is opened before its parts")
    }

    fn parent_of(&mut self, index: u64) -> &mut OpenParent<P, G> {
        let place = self.place_of(index);
        &mut self.open[place]
    }
}

impl<P, G> OpenParent<P, G> {
    fn is_complete(&self) -> bool {
        self.parts == Some(self.settled)
    }

    fn discard(self) {
        drop_quietly((self.state, self.opened.parent));
    }
}

type GatherHands<'a, A, B, D, P, F> = LinkHands<'a, A, B, FoldedParent<P, F, B>, D>;

impl<A, B, D, P, F> GatherLink<A, B, D, P, F>
where
    P: Send + Sync,
    F: FoldParts<P, B>,
{
    /// Gathers everything. Then ends the first run, and the input of the second.
    pub(super) fn run(self) -> Relayed {
        between(&self.from, &self.to, |hands| {
            let mut gathered = Gathered { open: VecDeque::new(), newest: None };
            let ended = self.gather_all(hands, &mut gathered);
            gathered.open.into_iter().for_each(OpenParent::discard);
            ended
        })
    }

    fn gather_all(
        &self,
        hands: &mut GatherHands<'_, A, B, D, P, F>,
        gathered: &mut Gathered<P, F::Gathered>,
    ) -> LinkEnd {
        let from = hands.from;
        while let Some((seq, outcome)) = hands.next_result() {
            gathered.fetch(&self.parents);
            // `None` only for a failure of the input that ends the run.
            let index = self.stage.origin(seq);
            let settled = match outcome {
                Ok(output) => self.add(hands, gathered, index.expect(KNOWN), output),
                Err(none) => self.meet(hands, gathered, (seq, index), *none),
            };
            let (arrived, index) = match settled {
                Ok(arrived) => (arrived, index.expect(KNOWN)),
                Err(ended) => return ended,
            };
            self.stage.forget(seq);
            match arrived {
                Arrived::Pause => {
                    hands.collector.done_with_mark();
                    continue;
                }
                Arrived::End => hands.collector.done_with_mark(),
                Arrived::Part => {
                    from.remove_name(seq);
                    hands.collector.done(&from.handover);
                }
            }
            let place = gathered.place_of(index);
            if gathered.open[place].is_complete()
                && let Err(ended) = self.hand_on(hands, gathered, place)
            {
                return ended;
            }
        }
        hands.end()
    }

    /// Adds a part to its parent.
    #[inline]
    fn add(
        &self,
        hands: &mut GatherHands<'_, A, B, D, P, F>,
        gathered: &mut Gathered<P, F::Gathered>,
        index: u64,
        output: B,
    ) -> Result<Arrived, LinkEnd> {
        let parent = gathered.parent_of(index);
        parent.settled += 1;
        if self.fold_into(parent, index, Ok(output)) {
            hands.count_ok();
        }
        Ok(Arrived::Part)
    }

    /// Folds a part into its parent. Returns whether it counts.
    #[inline]
    fn fold_into(
        &self,
        parent: &mut OpenParent<P, F::Gathered>,
        index: u64,
        output: Result<B, Error>,
    ) -> bool {
        if let ParentState::New = parent.state {
            self.init(parent);
        }
        let (ParentState::Folded(folded), Parent::Value(value)) =
            (&mut parent.state, &parent.opened.parent)
        else {
            drop_quietly(output);
            return false;
        };
        let part = index - parent.opened.first;
        match catch(|| self.fold.add(folded, value, part, output)) {
            Ok(()) => true,
            Err(source) => {
                let name = parent.opened.name.part(part);
                self.spoil(parent, name, source);
                false
            }
        }
    }

    #[cold]
    fn init(&self, parent: &mut OpenParent<P, F::Gathered>) {
        let Parent::Value(value) = &parent.opened.parent else { return };
        match catch(|| self.fold.init(value)) {
            Ok(folded) => parent.state = ParentState::Folded(folded),
            Err(source) => {
                let name = parent.opened.name.clone();
                self.spoil(parent, name, source);
            }
        }
    }

    /// Gives a parent up because a function that gathers it panicked.
    #[cold]
    fn spoil(&self, parent: &mut OpenParent<P, F::Gathered>, name: ItemPath, source: PanicMessage) {
        let error = name.failed(Error::GatherPanicked { source });
        drop_quietly(std::mem::replace(&mut parent.state, ParentState::Unusable(error)));
        self.withdraw(parent);
    }

    /// Withdraws the parts that are still to come.
    fn withdraw(&self, parent: &OpenParent<P, F::Gathered>) {
        self.parents.open.fail_behind(parent.opened.first);
    }

    /// Handles a part that failed or was withdrawn, and the marks among parts.
    #[cold]
    fn meet(
        &self,
        hands: &mut GatherHands<'_, A, B, D, P, F>,
        gathered: &mut Gathered<P, F::Gathered>,
        (seq, index): (u64, Option<u64>),
        none: NoOutput,
    ) -> Result<Arrived, LinkEnd> {
        let failed = match none {
            // Before the index is needed: a failure that ends the run has no place among the parts.
            NoOutput::Failed(failed) => Some(hands.fail(seq, failed)?),
            NoOutput::Withdrawn | NoOutput::Done { .. } => None,
            NoOutput::Mark(PartMark::Pause { .. }) => return Ok(Arrived::Pause),
            NoOutput::Mark(PartMark::End) => {
                let index = index.expect(KNOWN);
                let parent = gathered.parent_of(index);
                parent.parts = Some(index - parent.opened.first);
                return Ok(Arrived::End);
            }
        };
        let index = index.expect(KNOWN);
        let parent = gathered.parent_of(index);
        parent.settled += 1;
        if let Some(failed) = failed {
            let is_gathered = self.parents.open.holes() == Holes::Gathered;
            if is_gathered && !is_cut_short(&failed.error) {
                self.fold_into(parent, index, Err(failed.error));
            } else if let ParentState::New | ParentState::Folded(_) = parent.state {
                drop_quietly(std::mem::replace(
                    &mut parent.state,
                    ParentState::Failed(Box::new(failed)),
                ));
                self.withdraw(parent);
            } else {
                drop_quietly(failed);
            }
        }
        Ok(Arrived::Part)
    }

    /// Hands on the parents that have their turn, after the one at `place` was completed.
    #[cold]
    fn hand_on(
        &self,
        hands: &mut GatherHands<'_, A, B, D, P, F>,
        gathered: &mut Gathered<P, F::Gathered>,
        place: usize,
    ) -> Result<(), LinkEnd> {
        if self.leaving == Order::Completion {
            let parent = gathered.open.remove(place).expect("it is there");
            return self.hand_on_one(hands, parent);
        }
        while gathered.open.front().is_some_and(OpenParent::is_complete) {
            let parent = gathered.open.pop_front().expect("it is there");
            self.hand_on_one(hands, parent)?;
        }
        Ok(())
    }

    fn hand_on_one(
        &self,
        hands: &mut GatherHands<'_, A, B, D, P, F>,
        mut parent: OpenParent<P, F::Gathered>,
    ) -> Result<(), LinkEnd> {
        let to = hands.to;
        if !hands.take_permit() {
            parent.discard();
            return Err(LinkEnd::Unwanted);
        }
        if let ParentState::New = parent.state {
            self.init(&mut parent);
        }
        let first = parent.opened.first;
        if to.recording.inherits_names {
            to.enter_name(hands.places, parent.opened.entry.take());
        }
        let OpenParent { opened: Opened { parent, name, .. }, state, .. } = parent;
        let handed = match (parent, state) {
            (Parent::Value(value), ParentState::Folded(folded)) => {
                // What comes next may be the end of the input, which is behind it.
                match catch(|| self.fold.finish(value, folded)) {
                    Ok(item) => hands.give(item).and_then(|()| hands.wait_for_room()),
                    Err(source) => hands.reject(name.failed(Error::GatherPanicked { source })),
                }
            }
            (parent, ParentState::Unusable(error)) => {
                drop_quietly(parent);
                hands.reject(error)
            }
            (parent, ParentState::Failed(failed)) => {
                drop_quietly(parent);
                hands.parents_failed += 1;
                hands.leave_gap(Box::new(NoOutput::Failed(*failed)));
                Ok(())
            }
            (Parent::Gap(mut none), _) => {
                if let NoOutput::Failed(failed) = &mut *none {
                    // It passed by the stages of the parts.
                    failed.passed_on += self.from.stage - self.parents.stage;
                }
                hands.leave_gap(none);
                Ok(())
            }
            (Parent::Value(_), ParentState::New) => unreachable!("it was just begun"),
        };
        // Even if the run ends: the order of both does not matter then.
        self.parents.open.end(first);
        handed
    }
}

/// Whether the iterator of a parent's parts panicked, so that parts are missing.
fn is_cut_short(error: &Error) -> bool {
    matches!(error, Error::PartFailed { source, .. } if matches!(**source, Error::InputPanicked { .. }))
}

/// What a result of the last stage is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Arrived {
    Part,
    /// All parts of a parent are before it.
    End,
    Pause,
}
