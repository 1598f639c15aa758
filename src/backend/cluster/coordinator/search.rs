//! The search for publications that the broker may have lost, and the end of one that it does not answer.

use std::time::{Duration, Instant};

/// A search that has no answer yet. There is one at a time.
#[derive(Debug, Default)]
pub(super) struct LostItemSearch {
    asked: Option<AskedSearch>,
}

#[derive(Debug)]
struct AskedSearch {
    /// When the broker was asked first.
    since: Instant,
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
    /// The broker is asked for these.
    pub(super) fn begin(&mut self, publications: Vec<(u64, u64)>, now: Instant) {
        self.asked = Some(AskedSearch { since: now, publications, is_under_way: true });
    }

    /// The broker has answered, or has not in time.
    pub(super) fn end(&mut self, is_answered: bool) {
        match (&mut self.asked, is_answered) {
            (asked, true) => *asked = None,
            (Some(asked), false) => asked.is_under_way = false,
            (None, false) => {}
        }
    }

    /// A search may have been lost with its connection.
    pub(super) fn lose(&mut self) {
        self.end(false);
    }

    /// Leaves out a pause of this process that ends now.
    pub(super) fn skip(&mut self, pause: Duration, now: Instant) {
        if let Some(asked) = &mut self.asked {
            asked.since = (asked.since + pause).min(now);
        }
    }

    /// Looks at the time. The broker may leave a search unanswered for `most`, as long as one of its publications is
    /// wanted.
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
        if now.duration_since(asked.since) > most {
            self.asked = None;
            return SearchStep::Unanswered;
        }
        match std::mem::replace(&mut asked.is_under_way, true) {
            true => SearchStep::Wait,
            false => SearchStep::Again(asked.publications.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: Duration = Duration::from_secs(10);

    #[test]
    fn a_search_without_an_answer_is_repeated_and_ends() {
        let now = Instant::now();
        let mut search = LostItemSearch::default();
        let step = |search: &mut LostItemSearch, after: u64| {
            search.step(now + Duration::from_secs(after), MOST, |it| it > 1)
        };
        assert_eq!(step(&mut search, 0), SearchStep::Idle);
        search.begin(vec![(1, 7), (2, 8)], now);
        assert_eq!(step(&mut search, 1), SearchStep::Wait);
        search.end(false);
        assert_eq!(step(&mut search, 2), SearchStep::Again(vec![(2, 8)]));
        assert_eq!(step(&mut search, 3), SearchStep::Wait);
        search.lose();
        assert_eq!(step(&mut search, 4), SearchStep::Again(vec![(2, 8)]));
        search.skip(Duration::from_secs(5), now + Duration::from_secs(9));
        assert_eq!(step(&mut search, 15), SearchStep::Wait);
        assert_eq!(step(&mut search, 16), SearchStep::Unanswered);
        assert_eq!(step(&mut search, 17), SearchStep::Idle);
    }

    #[test]
    fn a_search_for_what_nothing_wants_is_over() {
        let now = Instant::now();
        let mut search = LostItemSearch::default();
        search.begin(vec![(1, 7)], now);
        assert_eq!(search.step(now + MOST * 2, MOST, |_| false), SearchStep::Idle);
        search.begin(vec![(1, 7)], now);
        search.end(true);
        assert_eq!(search.step(now + MOST * 2, MOST, |_| true), SearchStep::Idle);
    }
}
