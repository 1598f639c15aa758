//! The link that makes many items of one: it expands each result of a stage, a *parent*, into *parts*.
//!
//! # Why it cannot deadlock
//!
//! The link waits for four things, in this order: a permit for one more open parent, a result of the earlier
//! run, a permit of the later run for each part, and the user's iterator. A parent's permit comes back when
//! the [gathering link](super::gather) has handed the parent on.
//!
//! - All parts of an open parent are given out before the link waits for the permit of the next parent. So
//!   only the newest open parent has parts that are not given out. No permit of the later run goes to a younger
//!   parent while an older one still needs some.
//! - A permit of the later run comes back when the next link takes the part's result. The gathering link adds
//!   a part without any permit. It waits for one only to hand a whole parent on; meanwhile it has returned all
//!   permits of the parts. The stage behind it frees permits without anything from the stages before it.
//! - Parts of the oldest open parent may wait for a batch to fill, which only parts of further parents could do.
//!   So before it waits for the permit of a further parent, the link leaves a *pause*: a mark that travels
//!   through the stages behind all parts so far. In the last stage of the expansion, the parts of the oldest
//!   open parent then wait no longer. In those before it no part does, so that the mark passes. Nor does one
//!   behind a stage in completion order, where the parts of the oldest parent may be any.
//! - No parent is a part: parents come from the input, or from a gathering, which holds none of their permits.
//!   So two expansions in one line share no permits.
//! - The end of a parent is a mark too. It wakes the gathering link although no part comes.
//!
//! Marks hold no permit. There are at most two for each open parent.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::panic::{catch_theirs, drop_quietly};
use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::{Mutex, lock};
use crate::engine::feed::{Pause, look_and_push};
use crate::engine::link::{
    Earlier, Joint, LinkEnd, LinkHands, LinkKind, Prepared, Relayed, Work, be_parts, between,
};
use crate::error::{BoxError, Error, Result};
use crate::run::Run;
use crate::run::item_names::ItemEntry;
use crate::run::no_output::{NO_PARTS, NoOutput, PartMark};
use crate::run::parts::{Holes, ItemPath, OpenParents, PartStage};
use crate::runner::RunControl;

/// Expands a parent: what [`Expand`](crate::expansion::Expand) has of a closure.
///
/// ```
/// use gangline::expansion::{Expand, Unfold};
/// use gangline::{OrderedRunner, Runner, each};
///
/// fn limited<'h, R, S, U>(expansion: Expand<'h, R, S, U>) -> Expand<'h, R, S, U>
/// where
///     R: Runner + 'static,
///     S: Runner<Output: Sync> + 'static,
///     U: Unfold<S::Output>,
/// {
///     expansion.open_parents(4)
/// }
///
/// let pool = OrderedRunner::new(each(|n: u64| Ok(n)), 1)?;
/// let parts = limited(pool.expand(|n| 0..**n)).then(OrderedRunner::new(each(|n: u64| Ok(n)), 1)?);
/// let sums = parts.gather(|_| 0, |sum, _, _, n| *sum += n);
/// let last = OrderedRunner::new(each(|(_, sum): (std::sync::Arc<u64>, u64)| Ok(sum)), 1)?;
/// assert_eq!(sums.then(last).run([3, 4])?, [3, 6]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub trait Unfold<P>: Send + Sync + 'static {
    /// One part.
    type Part: Send;
    /// An iterator of parts.
    type Parts: Send + 'static;

    /// Begins a parent.
    fn parts(&self, parent: &Arc<P>) -> Self::Parts;

    /// Returns the next part.
    fn next(parts: &mut Self::Parts) -> Option<Result<Self::Part, BoxError>>;
}

/// An expansion of a pipeline, shared by the links at both its ends.
pub(crate) struct Expansion<P> {
    /// `None`: twice the producers of the stage before.
    most: Option<usize>,
    holes: Mutex<Holes>,
    /// The open parents of the run in progress.
    parents: Mutex<Option<Arc<Parents<P>>>>,
}

/// The open parents of one run.
pub(super) struct Parents<P> {
    pub(super) open: Arc<OpenParents>,
    /// The number of the stage that makes the parents.
    pub(super) stage: usize,
    /// Opened, and not yet seen by the gathering link.
    opened: Mutex<VecDeque<Opened<P>>>,
    /// One more than the index of the first part of the newest parent, so that the gathering link takes no
    /// lock for each part.
    newest: AtomicU64,
}

/// A parent. Its parts begin at the index `first`.
pub(super) struct Opened<P> {
    pub(super) first: u64,
    pub(super) name: ItemPath,
    /// Its name and journal key, which the gathered item gets.
    pub(super) entry: Option<ItemEntry>,
    pub(super) parent: Parent<P>,
}

/// What is expanded.
pub(super) enum Parent<P> {
    Value(Arc<P>),
    /// A parent that failed before, or that an earlier run has done. It has no parts.
    Gap(Box<NoOutput>),
}

impl<P> Expansion<P> {
    pub(crate) fn new(most: Option<usize>) -> Self {
        Expansion { most, holes: Mutex::default(), parents: Mutex::new(None) }
    }

    /// Makes failures of parts be gathered in their places.
    pub(crate) fn gather_holes(&self) {
        *lock(&self.holes) = Holes::Gathered;
    }

    /// The open parents of the run that is being prepared.
    pub(super) fn parents(&self) -> Arc<Parents<P>> {
        lock(&self.parents).take().expect("the expanding link is prepared before the gathering one")
    }
}

impl<P> Parents<P> {
    pub(super) fn new(open: Arc<OpenParents>, stage: usize) -> Self {
        Parents { open, stage, opened: Mutex::default(), newest: AtomicU64::new(0) }
    }

    /// Opens a parent, before its first part is given out.
    fn open(&self, opened: Opened<P>) {
        let first = opened.first;
        self.open.open(first, opened.name.clone());
        lock(&self.opened).push_back(opened);
        self.newest.store(first + 1, Ordering::Release);
    }

    /// Takes the parents opened since; `seen` is the index of the first part of the last one taken.
    pub(super) fn take_opened(&self, seen: Option<u64>) -> VecDeque<Opened<P>> {
        if self.newest.load(Ordering::Acquire) == seen.map_or(0, |first| first + 1) {
            return VecDeque::new();
        }
        std::mem::take(&mut *lock(&self.opened))
    }
}

impl<P> Drop for Parents<P> {
    fn drop(&mut self) {
        let opened = self.opened.get_mut().map(std::mem::take).unwrap_or_default();
        opened.into_iter().for_each(|opened| drop_quietly(opened.parent));
    }
}

/// Expands the results of one stage to the items of the next.
pub(crate) struct Expanding<P, U> {
    pub(crate) unfold: Arc<U>,
    pub(crate) expansion: Arc<Expansion<P>>,
}

impl<A, B, D, U> Joint<A, B, U::Part, D> for Expanding<B, U>
where
    A: Send + 'static,
    B: Send + Sync + 'static,
    D: Send + 'static,
    U: Unfold<B>,
{
    fn kind(&self) -> LinkKind {
        LinkKind::Expands
    }

    fn prepare(&self, from: Earlier<A, B>, producers: usize) -> Prepared<U::Part, D> {
        let most = self.expansion.most.unwrap_or(2 * producers);
        let open = Arc::new(OpenParents::new(most, *lock(&self.expansion.holes)));
        let parents = Arc::new(Parents::new(open.clone(), from.stage));
        *lock(&self.expansion.parents) = Some(parents.clone());
        let upstream = closing(from.run.clone(), open.clone());
        let unfold = self.unfold.clone();
        let join = move |to: Arc<Run<U::Part, D>>| -> Work {
            be_parts(&to, PartStage::new(open));
            Box::new(move || ExpandLink { from, to, unfold, parents }.run())
        };
        Prepared { upstream, join: Box::new(join) }
    }
}

/// What a run behind an expansion stops.
pub(super) fn closing<I: Send + 'static, T: Send + 'static>(
    upstream: Arc<Run<I, T>>,
    open: Arc<OpenParents>,
) -> Arc<dyn RunControl> {
    Arc::new(Closing { upstream, open })
}

/// Stops the stages before an expansion, and the link that waits for an open parent.
struct Closing<I, T> {
    upstream: Arc<Run<I, T>>,
    open: Arc<OpenParents>,
}

impl<I: Send, T: Send> RunControl for Closing<I, T> {
    fn stop(&self) {
        self.open.close();
        self.upstream.stop();
    }

    fn gave_up_on(&self, item: Option<u64>) -> bool {
        self.upstream.gave_up_on(item)
    }

    fn name_of(&self, item: u64) -> Option<Arc<str>> {
        self.upstream.name_of(item)
    }

    fn input_of(&self, item: u64) -> Option<u64> {
        RunControl::input_of(&*self.upstream, item)
    }

    fn has_journal(&self) -> bool {
        RunControl::has_journal(&*self.upstream)
    }

    fn note(&self, note: Vec<u8>) -> Result<()> {
        self.upstream.note(note)
    }

    fn last_note(&self) -> Option<&[u8]> {
        self.upstream.last_note()
    }
}

/// Takes the results of one run as parents, and gives out their parts as items of the next.
pub(super) struct ExpandLink<A, B, D, U: Unfold<B>> {
    pub(super) from: Earlier<A, B>,
    pub(super) to: Arc<Run<U::Part, D>>,
    pub(super) unfold: Arc<U>,
    pub(super) parents: Arc<Parents<B>>,
}

type ExpandHands<'a, A, B, D, U> = LinkHands<'a, A, B, <U as Unfold<B>>::Part, D>;

impl<A, B, D, U: Unfold<B>> ExpandLink<A, B, D, U> {
    /// Expands everything. Then ends the first run, and the input of the second.
    pub(super) fn run(self) -> Relayed {
        between(&self.from, &self.to, |hands| {
            hands.feeder.wait_before_pulls();
            let _pulling = self.to.pulling();
            self.expand_all(hands)
        })
    }

    fn expand_all(&self, hands: &mut ExpandHands<'_, A, B, D, U>) -> LinkEnd {
        while self.take_open_permit(hands) {
            let Some((seq, outcome)) = hands.next_result() else { return hands.end() };
            let ended = match outcome {
                Ok(value) => self.expand_one(hands, seq, value),
                Err(none) => self.pass_over(hands, seq, *none),
            };
            if let Err(ended) = ended {
                return ended;
            }
            hands.leave_gap(Box::new(NoOutput::Mark(PartMark::End)));
        }
        LinkEnd::Unwanted
    }

    /// Opens a parent, and gives out its parts.
    fn expand_one(
        &self,
        hands: &mut ExpandHands<'_, A, B, D, U>,
        seq: u64,
        value: B,
    ) -> Result<(), LinkEnd> {
        let from = hands.from;
        let parent = Arc::new(value);
        self.open(hands, seq, from.take_entry(seq), Parent::Value(parent.clone()));
        hands.collector.done(&from.handover);
        hands.count_ok();
        // The parts may take any time.
        hands.collector.repay(&from.handover);
        let expanded = self.expand(hands, &parent);
        drop_quietly(parent);
        expanded
    }

    /// Opens a parent without parts for a result that is no value, unless that ends the run.
    fn pass_over(
        &self,
        hands: &mut ExpandHands<'_, A, B, D, U>,
        seq: u64,
        none: NoOutput,
    ) -> Result<(), LinkEnd> {
        let from = hands.from;
        match none {
            NoOutput::Failed(failed) => {
                let failed = hands.fail(seq, failed)?;
                self.open(
                    hands,
                    seq,
                    from.take_entry(seq),
                    Parent::Gap(Box::new(NoOutput::Failed(failed))),
                );
                hands.collector.done(&from.handover);
            }
            NoOutput::Done { counted_by } => {
                hands.reckoning.done(from, counted_by);
                drop(from.take_entry(seq));
                let gap = NoOutput::Done { counted_by }.in_next_stage();
                self.open(hands, seq, None, Parent::Gap(gap));
                hands.collector.done_without_work(&from.handover);
            }
            NoOutput::Withdrawn | NoOutput::Mark(_) => unreachable!("{NO_PARTS}"),
        }
        Ok(())
    }

    /// Opens a parent; its first part is the next one.
    fn open(
        &self,
        hands: &ExpandHands<'_, A, B, D, U>,
        seq: u64,
        entry: Option<ItemEntry>,
        parent: Parent<B>,
    ) {
        let key = entry.as_ref().and_then(|entry| entry.shown.clone());
        let name = ItemPath { item: seq, key, part: None };
        self.parents.open(Opened { first: hands.places, name, entry, parent });
    }

    /// Waits for the permit of one more open parent. First returns all permits of the first run, and leaves a
    /// pause.
    fn take_open_permit(&self, hands: &mut ExpandHands<'_, A, B, D, U>) -> bool {
        let open = &self.parents.open;
        if self.to.handover.is_halted() {
            return false;
        }
        if open.try_take() {
            return true;
        }
        hands.collector.repay(&self.from.run.handover);
        let below = open.oldest_end(hands.places);
        let pause = PartMark::Pause { below, all: hands.places + 1 };
        hands.leave_gap(Box::new(NoOutput::Mark(pause)));
        open.take() && !self.to.handover.is_halted()
    }

    /// Gives out all parts of a parent, unless they are withdrawn.
    fn expand(
        &self,
        hands: &mut ExpandHands<'_, A, B, D, U>,
        parent: &Arc<B>,
    ) -> Result<(), LinkEnd> {
        let mut parts = None;
        let expanded = loop {
            let pause = self.give_while_permitted(hands, parent, &mut parts);
            let item = hands.places;
            let (error, is_over) = match pause {
                Pause::End => break Ok(()),
                Pause::Permits if hands.wait_for_permit() && !self.to.handover.is_halted() => {
                    continue;
                }
                Pause::Permits => break Err(LinkEnd::Unwanted),
                Pause::Failed(source) => (Error::InputFailed { item, source }, false),
                Pause::Panicked(source) => (Error::InputPanicked { item, source }, true),
                Pause::Rejected(rejected) => (rejected.into_error(item), false),
            };
            let rejected = hands.reject(error);
            if is_over || rejected.is_err() {
                break rejected;
            }
        };
        drop_quietly(parts);
        expanded
    }

    /// The loop that every part goes through. Panics are caught around the whole loop, not per part.
    fn give_while_permitted(
        &self,
        hands: &mut ExpandHands<'_, A, B, D, U>,
        parent: &Arc<B>,
        parts: &mut Option<U::Parts>,
    ) -> Pause {
        let to = &*self.to;
        let is_plain = to.run_settings.measures.is_none() && !to.asks_for_names();
        let in_iterator = Cell::new(false);
        let is_observed = to.event_log.is_observed();
        let LinkHands { feeder, given, places, marks, .. } = hands;
        let give = || {
            while feeder.spend(&to.handover) {
                if self.parents.open.is_withdrawn(*places) {
                    feeder.keep();
                    return Pause::End;
                }
                in_iterator.set(true);
                let parts = parts.get_or_insert_with(|| self.unfold.parts(parent));
                let pulled = U::next(parts);
                in_iterator.set(false);
                match pulled {
                    Some(Ok(part)) if is_plain => feeder.push(&to.handover, part),
                    Some(Ok(part)) => match look_and_push(to, feeder, *places, part) {
                        Ok(()) => {}
                        Err(rejected) => return Pause::Rejected(rejected),
                    },
                    Some(Err(source)) => return Pause::Failed(source),
                    None => {
                        feeder.keep();
                        return Pause::End;
                    }
                }
                *given += 1;
                *places += 1;
                if is_observed {
                    to.event_log.read(*places - *marks);
                }
            }
            Pause::Permits
        };
        catch_theirs(&in_iterator, give).unwrap_or_else(Pause::Panicked)
    }
}
