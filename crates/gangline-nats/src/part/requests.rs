//! The requests for items that a part has at the broker.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::connection::{AGAIN, REQUEST_TIMEOUT};
use crate::publication::Address;

/// How long the broker keeps a request for items.
pub(crate) const PULL: Duration = Duration::from_secs(5);

/// The requests that the broker has not answered yet.
///
/// No request is given up: its answers may be on their way, and the items in them would stay away from other workers for
/// a lease.
#[derive(Debug, Default)]
pub(super) struct ItemRequests {
    /// By numbers that are used again. The client has a subject for the answers to each number.
    open: BTreeMap<u64, OpenRequest>,
    /// When items may be asked for again after a request was lost.
    again: Option<Instant>,
}

#[derive(Debug)]
struct OpenRequest {
    from: Address,
    /// The number of items that have not come yet.
    left: usize,
    /// Without an answer until then, it is lost.
    deadline: Instant,
}

/// Why no more items come for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// The broker has kept it for as long as it was to, or ends it.
    Ended,
    /// The broker does not know its consumer, or has refused it.
    Refused,
}

impl ItemRequests {
    /// Opens a request, and returns its number. `None` while a lost one is not asked for again.
    pub(super) fn open(&mut self, from: Address, left: usize, now: Instant) -> Option<u64> {
        if left == 0 || self.again.is_some() {
            return None;
        }
        let number = (1..).find(|number| !self.open.contains_key(number))?;
        self.open.insert(number, OpenRequest { from, left, deadline: deadline(now) });
        Some(number)
    }

    /// An item has come for a request. Returns which items the request is for; `None` if the request is over.
    pub(super) fn take(&mut self, request: u64, at: Instant) -> Option<Address> {
        let open = self.open.get_mut(&request)?;
        let from = open.from;
        (open.left, open.deadline) = (open.left - 1, deadline(at));
        if open.left == 0 {
            self.open.remove(&request);
        }
        Some(from)
    }

    /// No more items come for a request.
    pub(super) fn close(&mut self, request: u64, end: RequestEnd, at: Instant) {
        if self.open.remove(&request).is_some() && end == RequestEnd::Refused {
            self.again = Some(at + AGAIN);
        }
    }

    /// The last connection has lost all requests.
    pub(super) fn lose_all(&mut self, at: Instant) {
        if !self.open.is_empty() {
            self.open.clear();
            self.again = Some(at + AGAIN);
        }
    }

    /// Loses the requests whose answers are missing.
    pub(super) fn advance(&mut self, now: Instant) {
        self.again = self.again.filter(|again| now < *again);
        let open = self.open.len();
        self.open.retain(|_, request| now < request.deadline);
        if self.open.len() < open {
            self.again = Some(now + AGAIN);
        }
    }

    /// The number of items that were asked for and have not come.
    pub(super) fn asked(&self, from: Address) -> usize {
        self.open.values().filter(|it| it.from == from).map(|it| it.left).sum()
    }

    /// When `advance` is to be called again.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.open.values().map(|it| it.deadline).chain(self.again).min()
    }
}

fn deadline(now: Instant) -> Instant {
    now + PULL + REQUEST_TIMEOUT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_open_until_its_items_have_come_or_it_is_over() {
        let now = Instant::now();
        let mut requests = ItemRequests::default();
        let any = requests.open(Address::Any, 3, now).unwrap();
        let own = requests.open(Address::Own, 1, now).unwrap();
        assert_eq!((requests.asked(Address::Any), requests.asked(Address::Own)), (3, 1));
        assert_eq!(requests.take(own, now), Some(Address::Own));
        assert_eq!(requests.take(any, now), Some(Address::Any));
        assert_eq!((requests.asked(Address::Any), requests.asked(Address::Own)), (2, 0));
        requests.close(any, RequestEnd::Ended, now);
        assert_eq!((requests.asked(Address::Any), requests.next_time()), (0, None));
        assert_eq!(requests.take(any, now), None, "an item that comes late");
    }

    #[test]
    fn a_lost_request_is_not_repeated_at_once() {
        let now = Instant::now();
        let mut requests = ItemRequests::default();
        let lose: [fn(&mut ItemRequests, u64, Instant) -> Instant; 3] = [
            |requests, request, now| {
                requests.close(request, RequestEnd::Refused, now);
                now
            },
            |requests, _, now| {
                requests.lose_all(now);
                now
            },
            |requests, _, now| {
                assert_eq!(requests.next_time(), Some(deadline(now)));
                requests.advance(deadline(now));
                deadline(now)
            },
        ];
        for lose in lose {
            let request = requests.open(Address::Any, 2, now).unwrap();
            let lost = lose(&mut requests, request, now);
            assert_eq!(requests.asked(Address::Any), 0);
            assert_eq!(requests.open(Address::Any, 2, lost), None);
            assert_eq!(requests.next_time(), Some(lost + AGAIN));
            requests.advance(lost + AGAIN);
            assert_eq!(requests.next_time(), None);
        }
    }
}
