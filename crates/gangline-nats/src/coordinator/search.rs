//! The search for publications that the broker may have lost, and the end of one that it does not answer.

use std::time::{Duration, Instant};

use crate::event::Emptied;

/// The least time that the broker has for an answer, however long nothing was asked before: two tries.
const LEAST_PATIENCE: Duration = Duration::from_secs(10);

/// A search that has no answer yet. There is one at a time.
#[derive(Debug, Default)]
pub(super) struct LostItemSearch {
    asked: Option<AskedSearch>,
    /// When the broker has last answered to one.
    answered: Option<Instant>,
    /// Items that no worker had begun, since one has last begun an item.
    pub(super) items: RepeatedLoss,
    /// Results of items that had been begun, since a result has last come.
    pub(super) results: RepeatedLoss,
}

/// Messages that the broker had confirmed, and does not have.
#[derive(Debug, Default)]
pub(super) struct RepeatedLoss(Option<LostConfirmed>);

#[derive(Debug)]
struct LostConfirmed {
    since: Instant,
    /// The last publication when that was last noted. If one behind it is lost too, the broker keeps nothing.
    last: u64,
}

/// What follows from a loss.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LossStep {
    /// The items are published once more.
    Publish,
    /// The broker has lost what was published once more. Its stream is to be emptied before.
    Empty,
    /// That has not helped for too long.
    End,
}

#[derive(Debug)]
struct AskedSearch {
    /// When the broker last said something of what is looked for: it stored that, or answered to the last search.
    since: Instant,
    /// When the broker was asked first.
    begun: Instant,
    /// The publications, with their places in the stream of items.
    publications: Vec<(u64, u64)>,
    /// Whether an answer can still come.
    is_under_way: bool,
}

/// What follows from the time that a search has taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SearchStep {
    /// None is under way: a new one can begin.
    Idle,
    Wait,
    /// The last one had no answer. The broker is to be asked again.
    Again(Vec<(u64, u64)>),
    /// The broker has not answered for too long.
    Unanswered,
}

impl LostItemSearch {
    /// The broker is asked for these, of which the first was last seen at a time.
    pub(super) fn begin(&mut self, publications: Vec<(u64, u64)>, seen: Instant, now: Instant) {
        let since = self.answered.map_or(seen, |answered| answered.max(seen));
        self.asked = Some(AskedSearch { since, begun: now, publications, is_under_way: true });
    }

    /// The broker has answered.
    pub(super) fn end(&mut self, now: Instant) {
        (self.asked, self.answered) = (None, Some(now));
    }

    /// The broker has not answered in time, or the search may have been lost with its connection.
    pub(super) fn lose(&mut self) {
        if let Some(asked) = &mut self.asked {
            asked.is_under_way = false;
        }
    }

    /// Leaves out a pause of this process that ends now.
    pub(super) fn skip(&mut self, pause: Duration, now: Instant) {
        if let Some(AskedSearch { since, begun, .. }) = &mut self.asked {
            [since, begun].into_iter().for_each(|time| *time = (*time + pause).min(now));
        }
        for RepeatedLoss(lost) in [&mut self.items, &mut self.results] {
            lost.iter_mut().for_each(|lost| lost.since = (lost.since + pause).min(now));
        }
    }

    /// The broker has lost these publications, which it had confirmed, or the results of those that have begun. One that does so
    /// again, as nats-server 2.9 with a damaged file, keeps the next ones once the stream was emptied. Else the run would never
    /// end.
    pub(super) fn note_losses(
        &mut self,
        missing: &[u64],
        is_begun: impl Fn(&u64) -> bool,
        last: u64,
        times: (Instant, Duration),
    ) -> Vec<(Emptied, LossStep)> {
        let (results, items): (Vec<u64>, Vec<u64>) = missing.iter().partition(|it| is_begun(it));
        let of_items = (Emptied::Items, items, &mut self.items);
        let of_results = (Emptied::Results, results, &mut self.results);
        let lost = [of_items, of_results].into_iter().filter(|(_, lost, _)| !lost.is_empty());
        lost.map(|(stream, lost, loss)| (stream, loss.note(&lost, last, times))).collect()
    }

    /// Looks at the time. The broker may say nothing for `most`, as long as one of the publications is wanted.
    pub(super) fn step(
        &mut self,
        now: Instant,
        most: Duration,
        is_wanted: impl Fn(u64) -> bool,
    ) -> SearchStep {
        let Some(asked) = &mut self.asked else { return SearchStep::Idle };
        asked.publications.retain(|it| is_wanted(it.0));
        if asked.publications.is_empty() {
            self.asked = None;
            return SearchStep::Idle;
        }
        let has_had_time = now.duration_since(asked.begun) > most.min(LEAST_PATIENCE);
        if has_had_time && now.duration_since(asked.since) > most {
            self.asked = None;
            return SearchStep::Unanswered;
        }
        match std::mem::replace(&mut asked.is_under_way, true) {
            true => SearchStep::Wait,
            false => SearchStep::Again(asked.publications.clone()),
        }
    }
}

impl RepeatedLoss {
    /// The broker keeps and delivers such messages.
    pub(super) fn end(&mut self) {
        self.0 = None;
    }

    /// The broker has lost messages of these publications. `last` is the last publication. It may go on so for `most`.
    fn note(&mut self, missing: &[u64], last: u64, (now, most): (Instant, Duration)) -> LossStep {
        let Some(lost) = &mut self.0 else {
            self.0 = Some(LostConfirmed { since: now, last });
            return LossStep::Publish;
        };
        if missing.iter().all(|publication| *publication <= lost.last) {
            return LossStep::Publish;
        }
        if now.duration_since(lost.since) > most {
            self.0 = None;
            return LossStep::End;
        }
        lost.last = last;
        LossStep::Empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(30);

    /// A search for two publications that begins at second 100 and was lost; they were seen at a second before.
    fn lost_search(answered: Option<u64>, seen: u64) -> (LostItemSearch, Instant) {
        let base = Instant::now();
        let at = |second| base + Duration::from_secs(second);
        let mut search = LostItemSearch::default();
        answered.into_iter().for_each(|second| search.end(at(second)));
        search.begin(vec![(1, 7), (2, 8)], at(seen), at(100));
        search.lose();
        (search, base)
    }

    /// The steps at these seconds, for the second of the publications alone.
    fn steps<const N: usize>(
        (mut search, base): (LostItemSearch, Instant),
        seconds: [u64; N],
    ) -> [SearchStep; N] {
        seconds.map(|second| search.step(base + Duration::from_secs(second), MOST, |it| it > 1))
    }

    #[test]
    fn a_search_without_an_answer_is_repeated_and_ends() {
        let now = Instant::now();
        let mut search = LostItemSearch::default();
        let step = |search: &mut LostItemSearch, after: u64| {
            search.step(now + Duration::from_secs(after), MOST, |it| it > 1)
        };
        assert_eq!(step(&mut search, 0), SearchStep::Idle);
        search.begin(vec![(1, 7), (2, 8)], now, now);
        assert_eq!(step(&mut search, 1), SearchStep::Wait);
        search.lose();
        assert_eq!(step(&mut search, 2), SearchStep::Again(vec![(2, 8)]));
        assert_eq!(step(&mut search, 3), SearchStep::Wait);
        search.lose();
        assert_eq!(step(&mut search, 4), SearchStep::Again(vec![(2, 8)]));
        search.skip(Duration::from_secs(5), now + Duration::from_secs(9));
        assert_eq!(step(&mut search, 35), SearchStep::Wait);
        assert_eq!(step(&mut search, 36), SearchStep::Unanswered);
        assert_eq!(step(&mut search, 37), SearchStep::Idle);
    }

    #[test]
    fn the_time_without_an_answer_begins_with_the_last_one() {
        use SearchStep::{Again, Unanswered, Wait};

        let again = || Again(vec![(2, 8)]);
        // The broker stored them at second 90, and has said nothing since.
        assert_eq!(steps(lost_search(None, 90), [120, 121]), [again(), Unanswered]);
        // It has answered to another search at second 95.
        assert_eq!(steps(lost_search(Some(95), 20), [125, 126]), [again(), Unanswered]);
        // However long that is, it has two tries.
        assert_eq!(steps(lost_search(None, 20), [110, 111]), [again(), Unanswered]);
        assert_eq!(steps(lost_search(Some(20), 90), [101, 120]), [again(), Wait]);
    }

    #[test]
    fn a_broker_that_keeps_nothing_is_emptied_and_ends() {
        use LossStep::{Empty, End, Publish};

        let (mut search, base) = (LostItemSearch::default(), Instant::now());
        let at = |second| (base + Duration::from_secs(second), MOST);
        assert_eq!(search.items.note(&[1, 2], 9, at(0)), Publish);
        assert_eq!(search.items.note(&[3, 9], 11, at(1)), Publish, "they are of the same loss");
        assert_eq!(search.items.note(&[3, 10], 12, at(5)), Empty);
        assert_eq!(search.items.note(&[11, 12], 13, at(6)), Publish, "they were there before");
        assert_eq!(search.items.note(&[13], 14, at(10)), Empty);
        search.skip(Duration::from_secs(5), at(20).0);
        assert_eq!(search.items.note(&[15], 15, at(35)), Empty);
        assert_eq!(search.items.note(&[16], 16, at(36)), End);
        assert_eq!(search.items.note(&[17], 17, at(40)), Publish);
        search.items.end();
        assert_eq!(search.items.note(&[18], 18, at(50)), Publish);
    }

    #[test]
    fn a_search_for_what_nothing_wants_is_over() {
        let now = Instant::now();
        let mut search = LostItemSearch::default();
        search.begin(vec![(1, 7)], now, now);
        assert_eq!(search.step(now + MOST * 2, MOST, |_| false), SearchStep::Idle);
        search.begin(vec![(1, 7)], now, now);
        search.end(now);
        assert_eq!(search.step(now + MOST * 2, MOST, |_| true), SearchStep::Idle);
    }
}
