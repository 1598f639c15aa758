//! Items that two producers work on at once, since one of them is slow.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Exchange, Gathered};
use crate::engine::batch_work::Part;
use crate::engine::call::drop_quietly;
use crate::engine::losses::in_vain;
use crate::engine::post::Loan;
use crate::error::Error;
use crate::policy::{Retry, Roster, Trial, Turn, copy_after};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, now};

/// The races of one run.
#[derive(Debug)]
pub(super) struct Races<I> {
    open: BTreeMap<u64, Race<I>>,
    /// How many calls there were, and how long they took together: what is slow shows beside the others.
    calls: u32,
    took: Duration,
}

/// One item that is worked on twice. By whom is not said: one of the two producers may hand the item on, if it
/// cannot make its state anew.
#[derive(Debug)]
struct Race<I> {
    unfinished: u32,
    state: State<I>,
}

#[derive(Debug)]
enum State<I> {
    Open,
    /// One has failed, with that error, and the other may not. With a copy, for another attempt.
    Failed(Box<Error>, Option<I>),
    Won,
}

/// What one of the two came to, as far as anybody has to know.
pub(crate) enum Finish<T, I> {
    /// That is what comes of the item, with a copy for another attempt.
    Counts(Result<T, Box<Error>>, Option<I>),
    /// The other has won, or may still. What is left is to be dropped.
    Nothing(Option<Result<T, Box<Error>>>, Option<I>),
}

impl<I> Races<I> {
    pub(super) fn new() -> Self {
        Races { open: BTreeMap::new(), calls: 0, took: Duration::ZERO }
    }

    fn note(&mut self, took: Duration) {
        self.calls = self.calls.saturating_add(1);
        self.took = self.took.saturating_add(took);
    }

    fn mean(&self) -> Option<Duration> {
        self.took.checked_div(self.calls)
    }

    /// Both that were at the item have handed it on, so that it waits to be tried once, and not twice: what that comes
    /// to counts.
    pub(super) fn leave_to_the_other(&mut self, seq: u64) {
        if let Some(race) = self.open.get_mut(&seq)
            && let State::Open = race.state
        {
            race.unfinished -= 1;
            race.state = State::Failed(in_vain(), None);
        }
    }

    /// What is kept of items that nobody waits for any more: whoever is still at one has lost.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Error, Option<I>)> {
        let states = self.open.values_mut().map(|race| &mut race.state);
        states.filter_map(|state| match std::mem::replace(state, State::Won) {
            State::Failed(error, copy) => Some((*error, copy)),
            State::Open | State::Won => None,
        })
    }

    fn is_won(&self, seq: u64) -> bool {
        self.open.get(&seq).is_some_and(|race| matches!(race.state, State::Won))
    }
}

impl<I, T> Exchange<I, T> {
    /// A call lasted so long, and what it came to counts.
    pub(crate) fn note_call(&self, took: Duration) {
        lock(&self.races).note(took);
    }

    /// What a slow producer is at, for one that has nothing to do: an item, or all that it works on together.
    #[cold]
    pub(super) fn enter_race(&self, producer: usize) -> Option<Gathered<I>> {
        if !self.stands_still() {
            return None;
        }
        let mut races = lock(&self.races);
        let Some((slow, Turn::Now(seq))) = self.slowest(&races, producer, now()) else {
            return None;
        };
        // Before the copy is lent: who then returns from the call, without its copy, sees that there is a race.
        self.racing.fetch_add(1, Ordering::Relaxed);
        let posts = self.posts.as_ref().expect("somebody was found on one");
        let Some(Loan { items, copies, sizes, trial, rest }) = posts[slow].lend(seq) else {
            self.racing.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        self.racing.fetch_add(items.len() - 1, Ordering::Relaxed);
        let race = |&item: &u64| (item, Race { unfinished: 2, state: State::Open });
        races.open.extend(items.iter().map(race));
        drop(races);
        self.pass_on(rest);
        let mut trial = trial.map_or_else(Trial::default, |trial| *trial);
        // Beside those that have failed it: if they were forgotten, it could go round them for ever.
        trial.note(slow);
        Some(Gathered::with_sizes(items, copies, sizes, trial))
    }

    /// What a producer has put off for a call that may last: nobody else would come to it.
    fn pass_on(&self, rest: Vec<Part<I>>) {
        for Gathered { items, inputs, trial, .. } in rest.into_iter().map(|part| part.gathered) {
            for (item, input) in items.into_iter().zip(inputs) {
                let trial = trial.clone().unwrap_or_default();
                self.retry_later(item, Retry { input, due: now(), trial });
            }
        }
    }

    /// When there will be an item to race for, unless something else happens before.
    pub(super) fn race_turn(&self, producer: usize) -> Turn {
        if !self.copies_stragglers() || !self.stands_still() {
            return Turn::Nothing;
        }
        let races = lock(&self.races);
        self.slowest(&races, producer, now()).map_or(Turn::Nothing, |(_, turn)| turn)
    }

    /// The earliest item that another producer works on too slowly for this one to look on, without one to help; or
    /// the one that will be first.
    fn slowest(&self, races: &Races<I>, producer: usize, now: Instant) -> Option<(usize, Turn)> {
        let posts = self.posts.as_ref()?.iter().enumerate();
        let others = posts.filter(|(other, _)| *other != producer);
        let calls = others.filter_map(|(other, post)| Some((post.item_with_copy()?, other)));
        // Who helps has a copy too, and a third start would be counted for one of the two.
        let alone = calls.filter(|((seq, _), _)| !races.open.contains_key(seq));
        let trials = lock(&self.trials);
        let after = copy_after(races.mean());
        let due = alone.filter_map(|((seq, since), slow)| {
            Some((self.due(&trials.roster, producer, slow, since, after)?, seq, slow))
        });
        let not_due = |due| Some(due).filter(|&due| due > now);
        let (due, seq, slow) = due.min_by_key(|&(due, seq, _)| (not_due(due), seq))?;
        Some((slow, not_due(due).map_or(Turn::Now(seq), Turn::At)))
    }

    /// When `producer` is to start what `slow` is at since then. What is slow may be a GPU, so it is for those on another one
    /// first: never, while one of them is in no call, and could, and else when all are in calls that are slow too. Each
    /// begin of a call wakes those that found nothing to help with.
    fn due(
        &self,
        roster: &Roster,
        producer: usize,
        slow: usize,
        since: Instant,
        after: Duration,
    ) -> Option<Instant> {
        let posts = self.posts.as_ref()?;
        let mut better =
            roster.better_helpers(producer, slow).map(|it| posts[it].is_busy_since(since));
        let last = better.try_fold(since, |last, busy| Some(last.max(busy?)))?;
        Some(last + after)
    }

    /// Nothing more can come before some of what is out is done, and the collector has nothing else to do.
    fn stands_still(&self) -> bool {
        let is_last = self.is_halted() || self.total().is_some();
        let is_full = is_last || self.hints.starving.load(Ordering::Acquire);
        is_full && self.hints.collector_waits.load(Ordering::Acquire)
    }

    /// As the collector begins to wait: the feeder, which did before, has told helpers, who found that it was not
    /// waiting then. Also as a producer begins a call: helpers that found nobody to help sleep without limit.
    pub(crate) fn wake_helpers_if_still(&self) {
        // Who sleeps has looked for what is published here, or is seen to sleep, or the other side sees this.
        self.idle.published();
        self.suspended.published();
        if self.stands_still() {
            self.look_again();
        }
    }

    pub(crate) fn copies_stragglers(&self) -> bool {
        self.copies_stragglers
    }

    /// Whether any item has two producers on it.
    pub(crate) fn has_races(&self) -> bool {
        self.racing.load(Ordering::Relaxed) > 0
    }

    /// Whether another producer is, or was, at an item too, of one that is.
    pub(crate) fn is_raced(&self, seq: u64) -> bool {
        self.has_races() && lock(&self.races).open.contains_key(&seq)
    }

    /// Whether another producer was done first with an item that this one has taken too.
    pub(crate) fn is_won(&self, seq: u64) -> bool {
        self.has_races() && lock(&self.races).is_won(seq)
    }

    /// A producer has returned from the hook with that. `copy`: one of the item, if there is. `since`: how long the
    /// call lasted is what others are measured by, unless it has lost: it was slow, or was given up.
    #[cold]
    pub(crate) fn finish(
        &self,
        seq: u64,
        producer: usize,
        came: Result<T, Box<Error>>,
        copy: Option<I>,
        since: Option<Instant>,
    ) -> Finish<T, I> {
        let mut races = lock(&self.races);
        let Some(race) = races.open.get_mut(&seq) else {
            since.into_iter().for_each(|since| races.note(now() - since));
            return Finish::Counts(came, copy);
        };
        race.unfinished -= 1;
        let is_last = race.unfinished == 0;
        let is_first = matches!((&race.state, &came), (State::Open, Ok(_)));
        let finish = match (std::mem::replace(&mut race.state, State::Won), came) {
            (State::Won, came) => Finish::Nothing(Some(came), copy),
            (State::Open, Ok(output)) => Finish::Counts(Ok(output), copy),
            (State::Open, Err(error)) => {
                race.state = State::Failed(error, copy);
                Finish::Nothing(None, None)
            }
            // Nobody asks why the other did not. What is not needed is dropped with the race, under no lock.
            (State::Failed(error, other), came) => {
                let (copy, spare) = match copy {
                    None => (other, None),
                    copy => (copy, other),
                };
                race.state = State::Failed(error, spare);
                Finish::Counts(came, copy)
            }
        };
        // Under the lock of the races: nobody is away after its return, which takes that lock too.
        let came_back = lock(&self.trials).roster.come_back(producer);
        let put_off = if is_first { self.send_away(&races, seq, producer) } else { vec![] };
        if let (Some(since), Finish::Counts(..)) = (since, &finish) {
            races.note(now() - since);
        }
        let over = if is_last { races.open.remove(&seq) } else { None };
        drop(races);
        let has_sent_away = !put_off.is_empty();
        put_off.into_iter().for_each(|rest| self.pass_on(rest));
        if came_back || has_sent_away {
            self.look_again();
        }
        if is_last {
            self.racing.fetch_sub(1, Ordering::Relaxed);
        }
        // The error of the one that failed is the user's, and dropped under no lock.
        drop_errors(over);
        finish
    }

    /// Tells the other that is at the item that it has lost, unless it is at more that nobody is done with. What such
    /// a one has put off for that.
    fn send_away(&self, races: &Races<I>, seq: u64, producer: usize) -> Vec<Vec<Part<I>>> {
        let others =
            self.posts.iter().flatten().enumerate().filter(|(other, _)| *other != producer);
        let losers = others.filter_map(|(loser, post)| {
            let rest = post.lose(seq, |item| races.is_won(item))?;
            lock(&self.trials).roster.leave(loser);
            Some(rest)
        });
        losers.collect()
    }
}

fn drop_errors<I>(race: Option<Race<I>>) {
    if let Some(Race { state: State::Failed(error, copy), .. }) = race {
        drop_quietly(error);
        drop_quietly(copy);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::device::Devices;
    use crate::engine::post::Call;
    use crate::error::Hook;

    /// The first of three producers has been at item 5 for long, and nothing else is there.
    fn standing_still() -> Exchange<u64, u64> {
        let exchange = Exchange::new(3, 8, None, None).with_races();
        exchange.hints.starving.store(true, Ordering::Relaxed);
        exchange.hints.collector_waits.store(true, Ordering::Relaxed);
        begin(&exchange, 0);
        exchange
    }

    fn begin(exchange: &Exchange<u64, u64>, producer: usize) {
        begin_with(exchange, producer, 5, Duration::from_secs(1));
    }

    /// A call with that item, which has lasted so long.
    fn begin_with(exchange: &Exchange<u64, u64>, producer: usize, item: u64, lasted: Duration) {
        let since = Some(now() - lasted);
        let call = Call::new(Hook::ProducerWork, vec![item], vec![Some(item)]);
        let call = Call { since, ..call };
        exchange.posts.as_ref().unwrap()[producer].begin(1, call);
    }

    fn counts(finish: Finish<u64, u64>) -> bool {
        matches!(finish, Finish::Counts(..))
    }

    #[test]
    fn an_item_is_not_started_a_third_time() {
        let exchange = standing_still();
        assert_eq!(exchange.enter_race(1).unwrap().items, [5]);
        begin(&exchange, 1);
        assert!(exchange.enter_race(2).is_none(), "the second has a copy, and is slow too");
        assert_eq!(exchange.race_turn(2), Turn::Nothing);
        assert!(counts(exchange.finish(5, 1, Ok(5), None, None)));
        assert!(
            exchange.posts.as_ref().unwrap()[0].is_left(),
            "the first is told that it has lost"
        );
        assert!(!counts(exchange.finish(5, 0, Ok(5), None, None)));
        assert!(!exchange.has_races());
    }

    #[test]
    fn whoever_shares_a_gpu_helps_when_all_others_are_slow_themselves() {
        let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3_600));
        let places = "cuda:0*2,cpu".parse::<Devices>().unwrap().places_with_gpus().unwrap();
        let roster = Roster::new(3, None, []).with_places(places);
        let exchange = standing_still().with_roster(roster, true);
        begin_with(&exchange, 0, 5, hour);
        assert_eq!(exchange.race_turn(1), Turn::Nothing, "the one on the other GPU is free");
        assert_eq!(exchange.race_turn(2), Turn::Now(5));
        lock(&exchange.races).note(second);
        begin_with(&exchange, 2, 7, second);
        assert!(matches!(exchange.race_turn(1), Turn::At(_)), "it will be, or is slow in a second");
        begin_with(&exchange, 2, 7, 3 * second);
        assert_eq!(exchange.race_turn(1), Turn::Now(5), "the earlier of two");
        assert!(exchange.posts.as_ref().unwrap()[2].end().is_some());
        assert_eq!(exchange.race_turn(1), Turn::Nothing);
        lock(&exchange.trials).roster.remove(2);
        assert_eq!(exchange.race_turn(1), Turn::Now(5), "there is no other GPU");
    }

    #[test]
    fn an_item_that_was_handed_on_by_its_helper_is_delivered_once() {
        let exchange = standing_still();
        assert!(exchange.enter_race(1).is_some());
        assert!(counts(exchange.finish(5, 2, Ok(5), None, None)));
        assert!(!counts(exchange.finish(5, 0, Ok(5), None, None)));
    }

    #[test]
    fn a_call_that_has_lost_is_no_measure_of_others() {
        let (exchange, hour) = (standing_still(), Duration::from_secs(3_600));
        assert!(exchange.enter_race(1).is_some());
        assert!(counts(exchange.finish(5, 1, Ok(5), None, Some(now()))));
        assert!(!counts(exchange.finish(5, 0, Ok(5), None, Some(now() - hour))));
        assert!(lock(&exchange.races).mean().unwrap() < hour / 2);
        assert!(counts(exchange.finish(6, 0, Ok(6), None, Some(now() - hour))));
        assert!(lock(&exchange.races).mean().unwrap() >= hour / 2);
    }
}
