//! A producer's end of the hand-over for batches: as many items at once as the rule says, and results
//! out.

use std::time::Duration;

use super::trials::Suspension;
use super::{Exchange, Intake, Taker};
use crate::batch::{
    Batch, Batching, Ceiling, Decision, Fill, Limits, More, Pick, Selection, Shelved, Size,
};
use crate::engine::outbox::Outcome;
use crate::policy::{Retry, Trial, Turn};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, now};

/// A producer's end. Batches come straight out of the intake: what is in one is worked on together, so
/// there is nothing that a neighbour could take back.
#[derive(Debug)]
pub(crate) struct Gatherer<'a, I, T> {
    taker: Taker<'a, I, T>,
    batching: Batching,
    limits: Limits,
}

/// Items that are worked on together, in the order of the input.
#[derive(Debug)]
pub(crate) struct Gathered<I> {
    pub(crate) items: Vec<u64>,
    pub(crate) inputs: Vec<I>,
    /// How large each is; empty where nobody measures them.
    sizes: Vec<Size>,
    /// What is known of an item that is tried again, which is alone, or of what another producer is at too.
    pub(crate) trial: Option<Box<Trial>>,
}

/// What a producer that looks for a batch does next.
enum Step<I> {
    Work(Gathered<I>),
    Wait,
    WaitFor(Duration),
    Over,
}

impl<'a, I, T> Gatherer<'a, I, T> {
    pub(crate) fn new(taker: Taker<'a, I, T>, batching: Batching) -> Self {
        Gatherer { taker, batching, limits: batching.limits }
    }

    /// Delivers a result.
    pub(crate) fn deliver(&mut self, seq: u64, result: Outcome<T>) {
        self.taker.deliver(seq, result);
    }

    /// See [`Taker::be_careful`].
    pub(crate) fn be_careful(&mut self) {
        self.taker.be_careful();
    }

    pub(crate) fn is_careful(&self) -> bool {
        self.taker.is_careful()
    }

    /// No batch is to be larger than the device has memory for, as far as that is known.
    pub(crate) fn keep_below(&mut self, ceiling: &Ceiling) {
        let limits = self.batching.limits;
        self.limits = ceiling.extent().map_or(limits, |extent| limits.below(extent));
    }

    /// What the next batch may come to.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Waits for a batch, which is never empty. `None` when there will be none for this producer.
    pub(crate) fn next(&mut self) -> Option<Gathered<I>> {
        loop {
            if self.taker.is_careful() {
                match self.taker.ask() {
                    Suspension::Lifted => {}
                    Suspension::Retry(retry) => return Some(Gathered::again(retry)),
                    Suspension::Help(lent) => return Some(lent),
                    Suspension::Over => return None,
                }
            }
            // Before new items, and in a batch of its own: others may wait for it.
            if let Some(retry) = self.taker.retry() {
                return Some(Gathered::again(retry));
            }
            let step = self.look();
            if let Step::Wait = step
                && let Some(lent) = self.taker.help_another()
            {
                return Some(lent);
            }
            match step {
                Step::Work(gathered) => return Some(gathered),
                Step::Over => return None,
                // Whoever sleeps without a limit has to see that an item came meanwhile whose batch has
                // one: nobody else may be there to keep it.
                Step::Wait => self.sleep(None, |pick| pick != Pick::Wait),
                Step::WaitFor(most) => self.sleep(Some(most), |pick| matches!(pick, Pick::Take(_))),
            }
        }
    }

    /// Sleeps until there is a batch like that, or something to try again or to help with.
    fn sleep(&mut self, most: Option<Duration>, is_ready: impl Fn(Pick) -> bool) {
        let (since, turn) = (now(), self.taker.turn());
        let lack = self.taker.lack(turn);
        self.sleep_until(most, turn, is_ready);
        self.taker.has_waited(lack, since);
    }

    fn sleep_until(&self, most: Option<Duration>, turn: Turn, is_ready: impl Fn(Pick) -> bool) {
        let race = self.taker.race_turn();
        let most = match turn.or_before(race) {
            Turn::Now(_) => return,
            Turn::At(due) => {
                let left = due.saturating_duration_since(now());
                Some(most.map_or(left, |most| most.min(left)))
            }
            Turn::Nothing => most,
        };
        let has_news = || {
            self.is_over_or(&is_ready)
                || self.taker.turn() != turn
                || self.taker.race_turn() != race
        };
        let idle = &self.taker.exchange().idle;
        match most {
            Some(most) => idle.wait_at_most(most, has_news),
            None => idle.wait_unless(has_news),
        }
    }

    fn look(&self) -> Step<I> {
        let exchange = self.taker.exchange();
        let mut intake = lock(&exchange.intake);
        // Under the lock: who drains an aborted run takes the items out, and leaves their number.
        if exchange.is_aborted() {
            return Step::Over;
        }
        match self.pick(&mut intake) {
            Pick::Take(selection) => {
                let gathered = intake.gather(selection, exchange.gaps.load(Ordering::Relaxed));
                let leaves_some = exchange.has_some(&intake);
                drop(intake);
                // Whoever takes from several leaves the rest to a neighbour that may be asleep.
                if leaves_some {
                    exchange.idle.notify();
                }
                Step::Work(gathered)
            }
            Pick::Wait => {
                drop(intake);
                self.ran_dry();
                Step::Wait
            }
            Pick::WaitFor(most) => {
                drop(intake);
                self.ran_dry();
                Step::WaitFor(most)
            }
        }
    }

    fn pick(&self, intake: &mut Intake<I>) -> Pick {
        self.taker.exchange().pick(self.batching, self.limits, intake)
    }

    fn ran_dry(&self) {
        self.taker.exchange().run_dry();
        self.taker.flush();
    }

    fn is_over_or(&self, wanted: impl FnOnce(Pick) -> bool) -> bool {
        let exchange = self.taker.exchange();
        let mut intake = lock(&exchange.intake);
        exchange.is_aborted() || wanted(self.pick(&mut intake))
    }
}

impl<I> Gathered<I> {
    fn of(shelved: Vec<Shelved<I>>) -> Self {
        let mut gathered = Gathered { items: vec![], inputs: vec![], sizes: vec![], trial: None };
        for Shelved { seq, input, note } in shelved {
            gathered.items.push(seq);
            gathered.inputs.push(input);
            gathered.sizes.push(note.size);
        }
        gathered
    }

    /// An item that is tried again.
    fn again((seq, Retry { input, trial, .. }): (u64, Retry<I>)) -> Self {
        Gathered { items: vec![seq], inputs: vec![input], sizes: vec![], trial: Some(trial) }
    }

    /// What another producer is at. `sizes`: empty where nobody measures them.
    pub(super) fn with_sizes(
        items: Vec<u64>,
        inputs: Vec<I>,
        sizes: Vec<Size>,
        trial: Trial,
    ) -> Self {
        Gathered { items, inputs, sizes, trial: Some(Box::new(trial)) }
    }

    /// How large each is; empty where nobody measures them.
    pub(crate) fn measured_sizes(&self) -> &[Size] {
        &self.sizes
    }

    /// Whether every input is still there.
    pub(crate) fn is_whole(&self) -> bool {
        self.inputs.len() == self.items.len()
    }

    /// Which attempt at them it is.
    pub(crate) fn attempt(&self) -> u32 {
        self.trial.as_ref().map_or(1, |trial| trial.attempt)
    }

    /// How large the items are.
    pub(crate) fn sizes(&self) -> impl Iterator<Item = Size> {
        let size = |i| self.sizes.get(i).copied().unwrap_or(Size::ONE);
        (0..self.items.len()).map(size)
    }

    /// Keeps the first `count`; the others.
    pub(crate) fn split_off(&mut self, count: usize) -> Self {
        Gathered {
            items: self.items.split_off(count),
            inputs: self.inputs.split_off(count),
            sizes: self.sizes.split_off(count.min(self.sizes.len())),
            trial: self.trial.clone(),
        }
    }

    /// Takes out the items that go, as `goes` says of each.
    pub(crate) fn take_out(&mut self, goes: &[bool]) -> Vec<(u64, I)> {
        let items = take_those(&mut self.items, goes);
        take_those(&mut self.sizes, goes);
        items.into_iter().zip(take_those(&mut self.inputs, goes)).collect()
    }

    /// Appends later items.
    pub(crate) fn append(&mut self, mut later: Self) {
        self.items.append(&mut later.items);
        self.inputs.append(&mut later.inputs);
        self.sizes.append(&mut later.sizes);
    }
}

/// Takes out those values that go, as `goes` says of each; none where there are no values.
pub(crate) fn take_those<V>(values: &mut Vec<V>, goes: &[bool]) -> Vec<V> {
    let each = std::mem::take(values).into_iter().zip(goes);
    let (out, stay): (Vec<_>, Vec<_>) = each.partition(|(_, goes)| **goes);
    values.extend(stay.into_iter().map(|(value, _)| value));
    out.into_iter().map(|(value, _)| value).collect()
}

impl<I, T> Exchange<I, T> {
    /// What a free producer does whose batches are limited like that.
    fn pick(&self, batching: Batching, limits: Limits, intake: &mut Intake<I>) -> Pick {
        let (pushed, more) = self.look_at(intake);
        match &intake.shelf {
            Some((shelf, _)) => shelf.pick(batching.rule, limits, now(), more),
            None => pick_by_number(batching.rule, limits, pushed - intake.taken, more),
        }
    }

    /// How many items were pushed so far, and whether more can come to those. The two are read as of one moment: else the feeder could
    /// push the rest of a batch in between, and what was here would pass for all there is.
    fn look_at(&self, intake: &mut Intake<I>) -> (u64, More) {
        loop {
            let pushed = self.pushed.load(Ordering::Acquire);
            intake.put_on_shelf(pushed, self.gaps.load(Ordering::Relaxed));
            let more = self.more();
            // While more may come, what was missed is no more than that.
            if more == More::MayCome || self.pushed.load(Ordering::Acquire) == pushed {
                return (pushed, more);
            }
        }
    }

    /// Whether an item waits. The rings alone do not say, since a batch may reach over several.
    fn has_some(&self, intake: &Intake<I>) -> bool {
        match &intake.shelf {
            Some((shelf, _)) => shelf.len() > 0,
            None => self.pushed.load(Ordering::Acquire) > intake.taken,
        }
    }

    fn more(&self) -> More {
        let starves = self.hints.starving.load(Ordering::Acquire);
        if self.is_halted() || self.total().is_some() || starves {
            More::Never
        } else {
            More::MayCome
        }
    }
}

/// Of `here` items of which each is like the others.
fn pick_by_number(rule: Batch, limits: Limits, here: u64, more: More) -> Pick {
    if here == 0 {
        return Pick::Wait;
    }
    let fill = if here >= limits.items { Fill::Full } else { Fill::Partial };
    match rule.decide(fill, Duration::ZERO, more) {
        Decision::Take => Pick::Take(Selection::First(here.min(limits.items) as usize)),
        Decision::Wait => Pick::Wait,
        Decision::WaitFor(_) => unreachable!("items that wait for a time are on a shelf"),
    }
}

impl<I> Intake<I> {
    /// Puts what was pushed on the shelf, if there is one. `gaps`: how many there are by now.
    fn put_on_shelf(&mut self, pushed: u64, gaps: u64) {
        while self.shelf.is_some() && self.taken < pushed {
            self.row(1, gaps);
            let Some((shelf, notes)) = &mut self.shelf else { return };
            let input = self.items.pop().expect("so many items were pushed");
            shelf.put(self.next, input, notes.pop().expect("each item has a note"));
            self.next += 1;
            self.taken += 1;
        }
    }

    /// Takes out what was picked.
    fn gather(&mut self, selection: Selection, gaps: u64) -> Gathered<I> {
        match (&mut self.shelf, selection) {
            (Some((shelf, _)), selection) => Gathered::of(shelf.take(selection)),
            (None, Selection::First(count)) => self.gather_first(count, gaps),
            (None, Selection::Like { .. }) => unreachable!("like items are on a shelf"),
        }
    }

    fn gather_first(&mut self, count: usize, gaps: u64) -> Gathered<I> {
        let mut items = Vec::with_capacity(count);
        while items.len() < count {
            let row = self.row(count - items.len(), gaps) as u64;
            items.extend(self.next..self.next + row);
            self.next += row;
        }
        self.taken += count as u64;
        let inputs = (0..count).map(|_| self.items.pop().expect("so many items were pushed"));
        Gathered { items, inputs: inputs.collect(), sizes: vec![], trial: None }
    }
}
