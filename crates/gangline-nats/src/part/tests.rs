//! A part by hand, and under random events.

mod laws;

use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{
    LoadedService, PULL, PartAction, PartEnding, PartEvent, PartSettings, RequestEnd, WorkerPart,
};
use crate::connection::AGAIN;
use crate::delivery::{Acknowledgement, Delivered};
use crate::hook_times::HookTimes;
use crate::hosting::TaskAnswer;
use crate::publication::Address;
use crate::wire;
use crate::wire::{
    ClaimReply, Command, ItemHeader, JoinReply, Object, ResultsHeader, RunKey, WorkerNews,
    WorkerOutcome,
};

const EPOCH: u64 = 7;
const WORKER: &str = "worker";
const LEASE: Duration = Duration::from_secs(10);
const NOW: Acknowledgement = Acknowledgement::Return(Duration::ZERO);
const MOST_INLINE: usize = 200;

fn settings(item_timeout: Option<Duration>) -> PartSettings {
    let mut key = RunKey::of_test(EPOCH, LEASE, Duration::from_secs(60));
    key.load.item_nanos = item_timeout.map(|it| it.as_nanos() as u64);
    let (worker, host) = (WORKER.to_owned(), "host".to_owned());
    PartSettings { key, part: 1, worker, host, pid: 1, most_inline: MOST_INLINE }
}

fn service(capacity: usize) -> Result<LoadedService, String> {
    Ok(LoadedService { capacity, producers: capacity, init: Duration::ZERO })
}

fn item(publication: u64, deliveries: u64, object: Option<Object>) -> Delivered {
    let header =
        ItemHeader { epoch: EPOCH, publication, item: 0, attempt: 1, size: (1, 1), object };
    let payload = wire::with_body(&header, b"input").into();
    Delivered { reply: reply(publication, deliveries), payload, place: publication, deliveries }
}

fn reply(publication: u64, deliveries: u64) -> String {
    format!("{publication}/{deliveries}")
}

/// A part, its clock, and the times of the service's hooks.
struct Script {
    part: WorkerPart,
    now: Instant,
    reading: HookTimes,
}

impl Script {
    fn new(item_timeout: Option<Duration>) -> Self {
        let part = WorkerPart::new(settings(item_timeout));
        Script { part, now: Instant::now(), reading: HookTimes::default() }
    }

    /// A part that waits for a seat.
    fn joining(capacity: usize, item_timeout: Option<Duration>) -> Self {
        let mut script = Script::new(item_timeout);
        let asked = script.take([PartEvent::Loaded(service(capacity))]);
        assert!(matches!(&asked[..], [PartAction::AskForSeat { .. }]), "{asked:?}");
        script
    }

    /// A part with a seat, whose requests for items are 1, for itself, and 2, for any worker.
    fn seated(capacity: usize, item_timeout: Option<Duration>) -> Self {
        let mut script = Script::joining(capacity, item_timeout);
        let pulls = script.take([PartEvent::SeatAnswered(Some(JoinReply::Seated))]);
        let shown = format!("{pulls:?}");
        let own = PartAction::Pull { request: 1, from: Address::Own, count: 1 };
        let any = PartAction::Pull { request: 2, from: Address::Any, count: capacity };
        assert_eq!(shown, format!("{:?}", [own, any]));
        script
    }

    fn take(&mut self, events: impl IntoIterator<Item = PartEvent>) -> Vec<PartAction> {
        events.into_iter().for_each(|event| self.part.handle(event, self.now));
        let actions = self.part.flush(self.now, self.reading);
        assert!(self.part.next_time().is_none_or(|next| next > self.now), "it would not sleep");
        actions
    }

    fn after(&mut self, time: Duration) -> Vec<PartAction> {
        self.now += time;
        self.take([])
    }

    /// Delivers items for any worker, first deliveries.
    fn deliver(&mut self, publications: impl IntoIterator<Item = u64>) -> Vec<PartAction> {
        let items = publications.into_iter().map(|it| item(it, 1, None));
        self.take(items.map(|item| PartEvent::Delivered { request: 2, item }))
    }

    /// Has a hook begin and answer.
    fn work(&mut self, publication: u64) -> Vec<PartAction> {
        self.take([
            PartEvent::HookBegins(publication),
            PartEvent::BegunSent,
            PartEvent::HookAnswered(publication, TaskAnswer::Output(b"output".to_vec())),
            PartEvent::HookOver(publication),
        ])
    }

    fn order(&mut self, command: Command) -> Vec<PartAction> {
        self.take([PartEvent::Order(command)])
    }
}

fn submitted(actions: &[PartAction]) -> Vec<u64> {
    let submitted = actions.iter().filter_map(|action| match action {
        PartAction::Submit { header, .. } => Some(header.publication),
        _ => None,
    });
    submitted.collect()
}

fn acknowledged(actions: &[PartAction]) -> Vec<(&str, Acknowledgement)> {
    let acknowledged = actions.iter().filter_map(|action| match action {
        PartAction::Acknowledge { reply, kind } => Some((&**reply, *kind)),
        _ => None,
    });
    acknowledged.collect()
}

fn told(actions: &[PartAction]) -> Vec<&WorkerNews> {
    let told = actions.iter().filter_map(|action| match action {
        PartAction::Notify(news) => Some(news),
        _ => None,
    });
    told.collect()
}

/// The groups of results, each with its publications.
fn published(actions: &[PartAction]) -> Vec<(u64, Vec<u64>)> {
    let published = actions.iter().filter_map(|action| match action {
        PartAction::PublishResults { group, payload, .. } => {
            let (header, _) = wire::split::<ResultsHeader>(payload).unwrap();
            Some((*group, header.results.iter().map(|it| it.publication).collect()))
        }
        _ => None,
    });
    published.collect()
}

/// Something has removed the consumer of the worker, or its stream.
#[test]
fn a_refused_request_has_the_consumers_made_again() {
    let mut script = Script::seated(1, None);
    let refused = || PartEvent::RequestOver { request: 1, end: RequestEnd::Refused };
    let asks = |actions: &[PartAction]| {
        actions.iter().filter(|it| matches!(it, PartAction::AskForSeat { .. })).count()
    };
    assert_eq!(asks(&script.take([refused()])), 1);
    assert_eq!(asks(&script.take([PartEvent::SeatAnswered(Some(JoinReply::Seated))])), 0);
    script.after(AGAIN);
    assert_eq!(asks(&script.take([refused()])), 0, "not at once");
    script.after(Duration::from_secs(1));
    assert_eq!(asks(&script.take([refused()])), 1);
}

/// The notice before may take longer to be sent than a hook to end.
#[test]
fn no_result_is_published_before_its_begin_is_told() {
    let mut script = Script::seated(2, None);
    script.deliver([1, 2]);
    let first = script.take([PartEvent::HookBegins(1)]);
    assert!(matches!(&first[..], [PartAction::AnnounceBegun(it)] if *it == [1]), "{first:?}");
    let second = script.take([PartEvent::HookBegins(2)]);
    assert!(second.is_empty(), "the notice before is under way: {second:?}");
    let answer = TaskAnswer::Output(b"output".to_vec());
    let ended = script.take([
        PartEvent::HookAnswered(2, answer),
        PartEvent::HookOver(2),
        PartEvent::HookOver(1),
    ]);
    let at = |is_it: fn(&PartAction) -> bool| ended.iter().position(is_it);
    let told = at(|it| matches!(it, PartAction::AnnounceBegun(it) if *it == [2]));
    let published = at(|it| matches!(it, PartAction::PublishResults { .. }));
    assert!(told.is_some() && published.is_some() && told < published, "{ended:?}");
}

#[test]
fn a_seat_is_asked_for_until_there_is_one() {
    let mut script = Script::joining(1, None);
    for reply in [Some(JoinReply::Full), None] {
        assert!(script.take([PartEvent::SeatAnswered(reply)]).is_empty());
        let asked = script.after(Duration::from_secs(1));
        assert!(matches!(&asked[..], [PartAction::AskForSeat { .. }]), "{asked:?}");
    }
    script.take([PartEvent::SeatAnswered(Some(JoinReply::Banned))]);
    assert!(script.part.is_over());
    // One that is forgotten later asks again, and goes on meanwhile.
    let mut script = Script::seated(1, None);
    let asked = script.order(Command::Rejoin);
    assert!(matches!(&asked[..], [PartAction::AskForSeat { .. }]), "{asked:?}");
    assert_eq!(submitted(&script.deliver([1])), [1]);
}

#[test]
fn a_worker_without_a_service_says_so_and_waits_for_the_end() {
    let mut script = Script::new(None);
    let actions = script.take([PartEvent::Loaded(Err("no GPU".to_owned()))]);
    let (host, reason) = ("host".to_owned(), "no GPU".to_owned());
    assert_eq!(told(&actions), [&WorkerNews::Unable { host, reason }]);
    assert_eq!((script.part.next_time(), script.part.is_over()), (None, false));
    script.take([PartEvent::End(PartEnding::Over)]);
    assert!(script.part.is_over());
}

#[test]
fn items_that_begin_together_are_announced_together() {
    let mut script = Script::seated(3, None);
    assert_eq!(submitted(&script.deliver([1, 2, 3])), [1, 2, 3]);
    let actions = script.take([1, 2].map(PartEvent::HookBegins));
    assert!(matches!(&actions[..], [PartAction::AnnounceBegun(begun)] if *begun == [1, 2]));
    assert!(script.take([PartEvent::HookBegins(3)]).is_empty(), "a notice is under way");
    let actions = script.take([PartEvent::BegunSent]);
    assert!(matches!(&actions[..], [PartAction::AnnounceBegun(begun)] if *begun == [3]));
}

#[test]
fn hooks_that_end_together_make_room_for_one_request() {
    let mut script = Script::seated(3, None);
    script.deliver([1, 2, 3]);
    let events = [1, 2].map(PartEvent::HookOver);
    let actions = script.take(events);
    let [PartAction::Pull { request, from: Address::Any, count: 2 }] = actions[..] else {
        panic!("{actions:?}")
    };
    // Of what the broker does not send, the rest is asked for at once; of what it refuses, later.
    let end = |end| PartEvent::RequestOver { request, end };
    let actions = script.take([end(RequestEnd::Ended)]);
    let [PartAction::Pull { request, count: 2, .. }] = actions[..] else { panic!("{actions:?}") };
    let end = RequestEnd::Refused;
    let actions = script.take([PartEvent::RequestOver { request, end }]);
    assert!(matches!(actions[..], [PartAction::AskForSeat { .. }]), "{actions:?}");
    assert!(matches!(script.after(AGAIN)[..], [PartAction::Pull { count: 2, .. }]));
}

#[test]
fn an_item_that_comes_late_is_held_only_if_there_is_room() {
    let mut script = Script::seated(2, None);
    script.take([PartEvent::Restored]);
    assert_eq!(submitted(&script.deliver([1, 2])), [1, 2]);
    assert_eq!(acknowledged(&script.deliver([3])), [("3/1", NOW)]);
    // One for this worker alone waits until a producer is idle.
    let actions = script.after(AGAIN);
    let [PartAction::Pull { request, from: Address::Own, count: 1 }] = actions[..] else {
        panic!("{actions:?}")
    };
    let own = PartEvent::Delivered { request, item: item(4, 1, None) };
    assert!(script.take([own]).is_empty());
    let actions = script.take([PartEvent::HookOver(1)]);
    assert_eq!(submitted(&actions), [4]);
}

#[test]
fn an_item_is_acknowledged_once_its_result_is_stored() {
    let mut script = Script::seated(3, None);
    script.deliver([1, 2, 3]);
    let actions = script.work(1);
    assert_eq!((published(&actions), acknowledged(&actions)), (vec![(1, vec![1])], vec![]));
    let others = [script.work(2), script.work(3)];
    assert!(others.iter().all(|it| published(it).is_empty()), "they wait for the first");
    let actions = script.take([PartEvent::ResultsStored(1, Ok(Some(40)))]);
    assert_eq!(acknowledged(&actions), [("1/1", Acknowledgement::Done)]);
    assert_eq!(published(&actions), [(2, vec![2, 3])]);
    // The broker has refused the results for too long. The run fails of that.
    let actions = script.take([PartEvent::ResultsStored(2, Err("full".to_owned()))]);
    let given_up = [2, 3].map(|publication| WorkerNews::GivenUp(publication, "full".to_owned()));
    assert_eq!(told(&actions), given_up.iter().collect::<Vec<_>>());
    assert_eq!(acknowledged(&actions).len(), 2);
}

#[test]
fn results_of_longer_hooks_wait_for_others() {
    let mut script = Script::seated(2, None);
    script.deliver([1, 2]);
    script.take([1, 2].map(PartEvent::HookBegins));
    script.now += Duration::from_millis(100);
    let output = || TaskAnswer::Output(vec![]);
    let first = script.take([PartEvent::HookAnswered(1, output()), PartEvent::HookOver(1)]);
    assert_eq!(published(&first), []);
    assert_eq!(script.part.next_time(), Some(script.now + Duration::from_millis(2)));
    let actions = script.take([PartEvent::HookAnswered(2, output()), PartEvent::HookOver(2)]);
    assert_eq!(published(&actions), [(1, vec![1, 2])], "no other hook runs");
}

#[test]
fn a_large_output_is_stored_before_its_result() {
    let mut script = Script::seated(1, None);
    script.deliver([1]);
    let output = TaskAnswer::Output(vec![0; MOST_INLINE + 1]);
    let actions = script.take([PartEvent::HookAnswered(1, output), PartEvent::HookOver(1)]);
    let [PartAction::StoreOutput { publication: 1, name, .. }, ..] = &actions[..] else {
        panic!("{actions:?}")
    };
    let object = Object { name: name.clone(), bytes: MOST_INLINE as u64 + 1, chunk: 100 };
    let stored = PartEvent::OutputStored(1, object, Err("full".to_owned()));
    let actions = script.take([stored]);
    let PartAction::PublishResults { payload, .. } = &actions[0] else { panic!("{actions:?}") };
    let (header, _) = wire::split::<ResultsHeader>(payload).unwrap();
    assert!(header.results[0].object.is_some(), "the coordinator removes what was written");
    assert!(matches!(header.results[0].outcome, WorkerOutcome::Failed { .. }));
}

#[test]
fn an_item_that_another_worker_may_have_had_is_claimed() {
    let later = Acknowledgement::Return(LEASE);
    let again = Acknowledgement::Return(LEASE / 4);
    for (reply, refusal) in [
        (Some(ClaimReply::Begin), None),
        (Some(ClaimReply::Never), Some(Acknowledgement::Done)),
        (Some(ClaimReply::Later), Some(later)),
        (None, Some(later)),
        (Some(ClaimReply::Unknown), Some(again)),
    ] {
        let mut script = Script::seated(1, None);
        let event = PartEvent::Delivered { request: 2, item: item(1, 2, None) };
        let actions = script.take([event]);
        assert!(matches!(actions[..], [PartAction::Claim { publication: 1, .. }]), "{actions:?}");
        let actions = script.take([PartEvent::ClaimAnswered(1, reply)]);
        assert_eq!(submitted(&actions).is_empty(), refusal.is_some());
        let expected: Vec<_> = refusal.into_iter().map(|kind| ("1/2", kind)).collect();
        assert_eq!(acknowledged(&actions), expected);
    }
}

#[test]
fn after_a_pause_items_are_claimed_until_one_is_granted() {
    let mut script = Script::seated(3, None);
    // Delivered before the pause, and taken after it.
    script.part.handle(PartEvent::Delivered { request: 2, item: item(1, 1, None) }, script.now);
    let actions = script.after(LEASE);
    assert!(submitted(&actions).is_empty(), "{actions:?}");
    assert!(actions.iter().any(|it| matches!(it, PartAction::Claim { publication: 1, .. })));
    let actions = script.take([PartEvent::ClaimAnswered(1, Some(ClaimReply::Begin))]);
    assert_eq!(submitted(&actions), [1]);
    assert_eq!(submitted(&script.deliver([2])), [2]);
}

#[test]
fn the_lease_of_held_items_is_renewed() {
    let mut script = Script::seated(1, None);
    script.deliver([1]);
    assert_eq!(script.part.next_time(), Some(script.now + LEASE / 4));
    let actions = script.after(LEASE / 4);
    assert_eq!(acknowledged(&actions), [("1/1", Acknowledgement::Extend)]);
    // The message was delivered again all the same.
    let actions = script.take([PartEvent::Delivered { request: 2, item: item(1, 2, None) }]);
    assert!(acknowledged(&actions).is_empty() && submitted(&actions).is_empty());
    let actions = script.after(LEASE / 4);
    assert_eq!(acknowledged(&actions), [("1/2", Acknowledgement::Extend)]);
    // The broker has stored the item at another place too.
    let twice = Delivered { place: 90, reply: "twice".to_owned(), ..item(1, 1, None) };
    let actions = script.take([PartEvent::Delivered { request: 2, item: twice }]);
    assert_eq!(acknowledged(&actions), [("twice", Acknowledgement::Done)]);
}

#[test]
fn what_does_not_decode_is_dropped() {
    let mut script = Script::seated(1, None);
    let damaged = Delivered { payload: Bytes::from_static(b"\xff"), ..item(1, 1, None) };
    let actions = script.take([PartEvent::Delivered { request: 2, item: damaged }]);
    assert_eq!(acknowledged(&actions), [("1/1", Acknowledgement::Done)]);
}

#[test]
fn an_item_that_is_given_up_is_dropped_once_no_hook_has_it() {
    let limit = Duration::from_secs(1);
    let mut script = Script::seated(2, Some(limit));
    script.deliver([1, 2]);
    for publication in [1, 2] {
        let actions = script.order(Command::Cancel(publication));
        assert!(matches!(actions[..], [PartAction::GiveUp(it)] if it == publication));
    }
    assert!(script.order(Command::Drain(2)).is_empty(), "hooks have them");
    assert_eq!(published(&script.take([PartEvent::HookOver(1)])), [(1, vec![1])]);
    let actions = script.take([PartEvent::ResultsStored(1, Ok(None))]);
    assert_eq!(acknowledged(&actions), [("1/1", Acknowledgement::Done)]);
    // The hook of the other takes too long. It keeps its producer.
    assert_eq!(published(&script.after(limit)), [(2, vec![2])]);
    let actions = script.take([PartEvent::ResultsStored(2, Ok(None))]);
    assert_eq!(told(&actions), [&WorkerNews::Drained(2, HookTimes::default())]);
    let late = script.take([PartEvent::Delivered { request: 0, item: item(3, 1, None) }]);
    assert_eq!(acknowledged(&late), [("3/1", NOW)]);
    let actions = script.take([PartEvent::HookOver(2)]);
    assert!(matches!(actions[..], [PartAction::Pull { count: 1, .. }]), "{actions:?}");
}

/// The item is dropped by the panic, and the service counts the state after it.
#[test]
fn a_state_that_a_panic_has_cost_counts_for_the_part() {
    let mut script = Script::seated(1, None);
    script.deliver([1]);
    script.take([PartEvent::HookBegins(1), PartEvent::BegunSent]);
    script.take([PartEvent::HookOver(1)]);
    script.reading.states_lost = 1;
    script.take([PartEvent::HookAnswered(1, TaskAnswer::Output(b"output".to_vec()))]);
    // What the service does for others from then on does not count.
    script.reading.states_lost = 2;
    script.take([PartEvent::ResultsStored(1, Ok(None))]);
    let times = HookTimes { states_lost: 1, ..HookTimes::default() };
    assert_eq!(told(&script.order(Command::Drain(1))), [&WorkerNews::Drained(1, times)]);
}

#[test]
fn a_part_that_drains_finishes_what_it_has_begun() {
    let mut script = Script::seated(1, None);
    let own = PartEvent::Delivered { request: 1, item: item(2, 1, None) };
    script.take([PartEvent::Delivered { request: 2, item: item(1, 1, None) }, own]);
    let actions = script.take([PartEvent::End(PartEnding::Drain)]);
    assert_eq!(acknowledged(&actions), [("2/1", NOW)], "it had not begun");
    assert_eq!(published(&script.work(1)), [(1, vec![1])]);
    let actions = script.take([PartEvent::ResultsStored(1, Ok(Some(40)))]);
    let times = HookTimes::default();
    let leaving = WorkerNews::Leaving { times, lost: None, last_result: 40 };
    assert_eq!((told(&actions), script.part.is_over()), (vec![&leaving], true));
}

#[test]
fn items_on_their_way_to_a_part_that_ends_are_handed_back() {
    let mut script = Script::seated(2, None);
    let actions = script.take([PartEvent::End(PartEnding::Drain)]);
    assert_eq!(told(&actions).len(), 1);
    assert_eq!(acknowledged(&script.deliver([1])), [("1/1", NOW)]);
    assert!(!script.part.is_over(), "another item may come");
    script.after(PULL);
    assert!(script.part.is_over());
    // If nothing waits for its items, it does not wait either.
    let mut script = Script::seated(2, None);
    script.take([PartEvent::End(PartEnding::Drain)]);
    assert!(!script.part.is_over());
    script.take([PartEvent::End(PartEnding::Over)]);
    assert!(script.part.is_over());
    let mut script = Script::seated(2, None);
    script.take([PartEvent::End(PartEnding::Over)]);
    assert!(script.part.is_over());
}

#[test]
fn a_worker_without_producers_answers_for_its_items_and_ends() {
    let mut script = Script::seated(2, None);
    script.deliver([1, 2]);
    let ended = || TaskAnswer::Ended { reason: "out of memory".to_owned(), timeout: None };
    let actions = script.take([PartEvent::HookAnswered(1, ended()), PartEvent::HookOver(1)]);
    assert_eq!(acknowledged(&actions), [("1/1", NOW)]);
    let actions = script.take([PartEvent::HookAnswered(2, ended()), PartEvent::HookOver(2)]);
    let [news] = told(&actions)[..] else { panic!("{actions:?}") };
    assert!(matches!(news, WorkerNews::Leaving { lost: Some(_), .. }));
    let Some(PartAction::EndProcess(reason)) = actions.last() else { panic!("{actions:?}") };
    assert_eq!(reason, "its producers are gone: out of memory");
    assert!(script.part.is_over());
}
