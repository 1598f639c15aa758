//! The branches of the protocol that runs of the model reach.
//!
//! A branch of the coordinator and of a worker is a kind of event with one thing that they do then. A part does what several
//! events have led to at once, so that an event is one of its branches, and what it does another. [`listed`] names them all.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt::{Debug, Write};

use crate::delivery::{Acknowledgement, Delivered};
use crate::event::{CoordinatorAction, CoordinatorEvent};
use crate::health::Fatal;
use crate::part::{PartAction, PartEvent, WorkerPart};
use crate::wire;
use crate::wire::WorkerOutcome;
use crate::wire::{ClaimReply, ItemHeader, JoinReply, Notice, ResultsHeader, WorkerNews};
use crate::worker::{WorkerAction, WorkerEvent};

thread_local! {
    /// What this thread has reached; `None` while nothing asks for it.
    static REACHED: RefCell<Option<BTreeSet<String>>> = const { RefCell::new(None) };
}

/// An event of a coordinator that is being handled.
pub(super) struct Handled(Option<String>);

/// Returns the branches that `work` reaches in this thread.
pub(super) fn reached_by(work: impl FnOnce()) -> BTreeSet<String> {
    REACHED.set(Some(BTreeSet::new()));
    work();
    REACHED.take().unwrap_or_default()
}

/// All branches that the code has.
pub(super) fn listed() -> BTreeSet<String> {
    let of_line = |line: &'static str| {
        let (before, all) = line.split_once(" -> ").or(line.split_once(' ')).unwrap_or_default();
        let sign = &line[before.len()..line.len() - all.len()];
        all.split(", ").map(move |one| format!("{before}{sign}{one}"))
    };
    LISTED.lines().flat_map(of_line).collect()
}

fn note(branch: impl FnOnce() -> String) {
    REACHED.with_borrow_mut(|reached| {
        if let Some(reached) = reached {
            reached.insert(branch());
        }
    });
}

fn are_noted() -> bool {
    REACHED.with_borrow(Option::is_some)
}

impl Handled {
    pub(super) fn new(event: &CoordinatorEvent) -> Self {
        Handled(are_noted().then(|| name_of_event(event)))
    }

    /// Notes what the event has led to. `fatal` is the error with which it has ended the run.
    pub(super) fn note(self, actions: &[CoordinatorAction], fatal: Option<Fatal>) {
        let Some(event) = self.0 else { return };
        let mut effects: Vec<_> = actions.iter().map(|it| name_of_action(&event, it)).collect();
        effects.extend(fatal.map(|it| format!("fails with {}", kind(&it))));
        note_effects("coordinator", &event, effects);
    }
}

pub(super) fn note_part_event(event: &PartEvent, part: &WorkerPart) {
    note(|| format!("part: {}", name_of_part_event(event, part)));
}

pub(super) fn note_part_actions(actions: &[PartAction]) {
    for action in actions {
        note(|| format!("part -> {}", name_of_part_action(action)));
    }
}

pub(super) fn note_worker(event: &str, actions: &[WorkerAction]) {
    if !are_noted() {
        return;
    }
    let effects = actions.iter().map(|action| match action {
        WorkerAction::EndPart(_, ending) => format!("EndPart {}", kind(ending)),
        WorkerAction::Notify(_, notice) => format!("Notify {}", name_of_news(&notice.news)),
        other => kind(other),
    });
    let effects: Vec<_> = effects.collect();
    if effects.is_empty() {
        return note_effects("worker", event, effects);
    }
    for effect in effects {
        // A beat that is due comes with any event.
        let is_of_beat =
            ["PutCard", "Notify", "EndWithoutAccess"].iter().any(|it| effect.starts_with(it));
        note_effects("worker", if is_of_beat { "Tick" } else { event }, vec![effect]);
    }
}

/// The name of an event of a worker.
pub(super) fn name_of_worker_event(event: &WorkerEvent) -> String {
    kind(event)
}

fn note_effects(party: &str, event: &str, effects: Vec<String>) {
    if effects.is_empty() {
        return note(|| format!("{party}: {event} -> nothing"));
    }
    for effect in effects {
        note(|| format!("{party}: {event} -> {effect}"));
    }
}

/// The name of a variant.
fn kind(value: &impl Debug) -> String {
    /// Takes a word, and refuses what follows.
    struct FirstWord(String);

    impl Write for FirstWord {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let word = text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            self.0.push_str(word);
            if word.len() == text.len() { Ok(()) } else { Err(std::fmt::Error) }
        }
    }

    let mut word = FirstWord(String::new());
    _ = write!(word, "{value:?}");
    word.0
}

/// What came, or that nothing did.
fn given<T>(value: &Option<T>, name: &str) -> String {
    match value {
        Some(_) => name.to_owned(),
        None => format!("{name} missing"),
    }
}

fn name_of_event(event: &CoordinatorEvent) -> String {
    let kind = kind(event);
    let detail = match event {
        CoordinatorEvent::Publish(item) => format!("{:?}", item.address),
        CoordinatorEvent::Delete(place) => given(place, "place"),
        CoordinatorEvent::NotStored { said } | CoordinatorEvent::NoConsumer(_, said) => {
            given(said, "answer")
        }
        CoordinatorEvent::Looked(None) => "unanswered".to_owned(),
        CoordinatorEvent::Looked(Some(missing)) if missing.is_empty() => "none".to_owned(),
        CoordinatorEvent::Looked(Some(_)) => "missing".to_owned(),
        CoordinatorEvent::Results(Delivered { payload, .. }) => {
            match wire::split::<ResultsHeader>(payload) {
                Ok(_) => String::new(),
                Err(_) => "damaged".to_owned(),
            }
        }
        CoordinatorEvent::Fetched(fetched) => match (&fetched.reply.outcome, &fetched.output) {
            (WorkerOutcome::Output, Ok(output)) => given(output, "output"),
            (WorkerOutcome::Output, Err(_)) => "unreadable".to_owned(),
            _ => "failure".to_owned(),
        },
        CoordinatorEvent::Notice { payload, .. } => match wire::decode::<Notice>(payload) {
            Ok(notice) => name_of_news(&notice.news),
            Err(_) => "damaged".to_owned(),
        },
        CoordinatorEvent::Card(_, card) => self::kind(card),
        CoordinatorEvent::KeyPut(state, purpose) => {
            format!("{} {}", self::kind(state), self::kind(purpose))
        }
        _ => return kind,
    };
    format!("{kind} {detail}").trim_end().to_owned()
}

fn name_of_action(event: &str, action: &CoordinatorAction) -> String {
    let kind = kind(action);
    match action {
        CoordinatorAction::Order { to, command } => {
            let to = if to.is_some() { "" } else { " to all" };
            format!("Order {}{to}", self::kind(command))
        }
        CoordinatorAction::Answer { payload, .. } => {
            let claim = event.contains("Claim").then(|| wire::decode::<ClaimReply>(payload).ok());
            let claim = claim.flatten().map(|it| self::kind(&it));
            let join = || wire::decode::<JoinReply>(payload).ok().map(|it| self::kind(&it));
            format!("Answer {}", claim.or_else(join).unwrap_or_default())
        }
        CoordinatorAction::Acknowledge { kind, .. } => {
            format!("Acknowledge {}", name_of_acknowledgement(*kind))
        }
        _ => kind,
    }
}

fn name_of_news(news: &WorkerNews) -> String {
    let kind = kind(news);
    match news {
        WorkerNews::Alive(Some(_)) => format!("{kind} refused"),
        WorkerNews::Leaving { lost: Some(_), .. } => format!("{kind} lost"),
        _ => kind,
    }
}

fn name_of_acknowledgement(kind: Acknowledgement) -> &'static str {
    match kind {
        Acknowledgement::Done => "Done",
        Acknowledgement::Return(delay) if delay.is_zero() => "Return",
        Acknowledgement::Return(_) => "Return later",
        Acknowledgement::Extend => "Extend",
    }
}

fn name_of_part_event(event: &PartEvent, part: &WorkerPart) -> String {
    let kind = kind(event);
    let detail = match event {
        PartEvent::Loaded(loaded) => self::kind(loaded),
        PartEvent::SeatAnswered(reply) => reply.as_ref().map_or_else(String::new, self::kind),
        PartEvent::Delivered { item, .. } => match wire::split::<ItemHeader>(&item.payload) {
            Ok((header, _)) if header.publication <= part.floor() => "unwanted".to_owned(),
            Ok(_) if item.deliveries > 1 => "again".to_owned(),
            Ok(_) => String::new(),
            Err(_) => "damaged".to_owned(),
        },
        PartEvent::RequestOver { end, .. } => self::kind(end),
        PartEvent::ClaimAnswered(_, reply) => reply.as_ref().map_or_else(String::new, self::kind),
        PartEvent::InputRead(_, Ok(input)) => given(input, "input"),
        PartEvent::InputRead(_, Err(_)) => "unreadable".to_owned(),
        PartEvent::HookAnswered(_, answer) => self::kind(answer),
        PartEvent::OutputStored(_, _, stored) => self::kind(stored),
        PartEvent::ResultsStored(_, Ok(place)) => given(place, "place"),
        PartEvent::ResultsStored(_, Err(_)) => "refused".to_owned(),
        PartEvent::Order(command) => self::kind(command),
        PartEvent::End(ending) => self::kind(ending),
        _ => return kind,
    };
    format!("{kind} {detail}").trim_end().to_owned()
}

fn name_of_part_action(action: &PartAction) -> String {
    let kind = kind(action);
    match action {
        PartAction::Pull { from, .. } => format!("{kind} {from:?}"),
        PartAction::Acknowledge { kind: acknowledgement, .. } => {
            format!("{kind} {}", name_of_acknowledgement(*acknowledgement))
        }
        PartAction::Notify(news) => format!("{kind} {}", name_of_news(news)),
        _ => kind,
    }
}

/// The branches: what an event leads to, each after a comma.
const LISTED: &str = "\
coordinator: Ban -> DeleteItem, Order Leave, RemoveConsumer, nothing
coordinator: Cancel -> Order Cancel, Order Cancel to all
coordinator: Card Err -> nothing
coordinator: Card Ok -> DeleteItem, Order Rejoin, RemoveConsumer, nothing
coordinator: Close -> nothing
coordinator: Confirmed -> DeleteItem, nothing
coordinator: Delete place -> DeleteItem
coordinator: Delete place missing -> nothing
coordinator: Discard -> RemoveInput
coordinator: Drain -> Order Drain, PurgeItems, nothing
coordinator: Fetched failure -> Acknowledge Done, RemoveOutput
coordinator: Fetched output -> Acknowledge Done, RemoveOutput
coordinator: Fetched output missing -> Acknowledge Done, RemoveOutput
coordinator: Fetched unreadable -> Acknowledge Done, RemoveOutput
coordinator: InputRefused -> nothing
coordinator: KeyPut OfAnother FindCause -> StopReading, fails with Superseded
coordinator: KeyPut OfAnother Refresh -> StopReading, fails with Superseded
coordinator: KeyPut Own FindCause -> fails with NoWorkers
coordinator: KeyPut Own Refresh -> nothing
coordinator: KeyPut Refused FindCause -> fails with Refused
coordinator: KeyPut Refused Refresh -> nothing
coordinator: KeyPut Unanswered FindCause -> fails with NoAnswer
coordinator: KeyPut Unanswered Refresh -> nothing
coordinator: Left -> nothing
coordinator: Looked missing -> Empty
coordinator: Looked missing -> LookFor, nothing
coordinator: Looked missing -> fails with Refused
coordinator: Looked none -> nothing
coordinator: Looked unanswered -> nothing
coordinator: NoConsumer answer -> nothing
coordinator: NoConsumer answer missing -> nothing
coordinator: NoResult -> nothing
coordinator: NotStored answer -> fails with Refused
coordinator: NotStored answer missing -> fails with BrokerGone, fails with NoAccess, fails with NoAnswer
coordinator: Notice Alive -> nothing
coordinator: Notice Alive refused -> nothing
coordinator: Notice Begun -> Order Cancel, nothing
coordinator: Notice Claim -> Answer Begin, Answer Later, Answer Never, Answer Unknown, nothing
coordinator: Notice Drained -> nothing
coordinator: Notice GivenUp -> fails with Refused
coordinator: Notice Join -> Answer Banned, MakeConsumer, nothing
coordinator: Notice Leaving -> DeleteItem, RemoveConsumer, nothing
coordinator: Notice Leaving lost -> DeleteItem, RemoveConsumer, nothing
coordinator: Notice Unable -> nothing
coordinator: Notice damaged -> nothing
coordinator: Publish Any -> Publish
coordinator: Publish Own -> Publish, nothing
coordinator: Purged -> Order Drain, nothing
coordinator: Restored -> Furnish
coordinator: Results -> Acknowledge Done, Acknowledge Return later, DeleteItem, Fetch, RemoveConsumer
coordinator: Results damaged -> Acknowledge Done
coordinator: Seat -> Answer Full, Answer Seated, DeleteItem
coordinator: Tick -> DeleteItem, Empty, Furnish, LookFor, Order Drain, Order Stay to all, PutKey, RemoveConsumer
coordinator: Tick -> fails with BrokerGone, fails with NoAccess, fails with NoAnswer, fails with NoWorkers
coordinator: Tick -> fails with Refused, nothing
coordinator: TooFew -> PutKey
part -> Acknowledge Done, Acknowledge Extend, Acknowledge Return, Acknowledge Return later, AnnounceBegun
part -> AskForSeat, Claim, EndProcess, GiveUp, Notify Drained, Notify GivenUp, Notify Leaving
part -> Notify Leaving lost, Notify Unable, PublishResults, Pull Any, Pull Own, ReadInput, StoreOutput, Submit
part: BegunSent, ClaimAnswered, ClaimAnswered Begin, ClaimAnswered Later, ClaimAnswered Never
part: ClaimAnswered Unknown, Delivered, Delivered again, Delivered damaged, Delivered unwanted, End Drain
part: End Over, HookAnswered Crashed, HookAnswered Ended, HookAnswered Failed, HookAnswered Output
part: HookAnswered TimedOut, HookBegins, HookOver, InputRead input, InputRead input missing
part: InputRead unreadable, Loaded Err, Loaded Ok, Order Cancel, Order Drain, Order Leave, Order Rejoin
part: Order Stay, OutputStored Err, OutputStored Ok, RequestOver Ended, RequestOver Refused, Restored
part: ResultsStored place, ResultsStored place missing, ResultsStored refused, SeatAnswered, SeatAnswered Banned
part: SeatAnswered Full, SeatAnswered Seated
worker: CardStored -> nothing
worker: Gone -> EndPart Over, nothing
worker: Key -> EndPart Over, StartPart, nothing
worker: Left -> DeleteCard, End, nothing
worker: Ordered -> nothing
worker: Restored -> nothing
worker: Terminate -> DeleteCard, End, EndPart Drain, nothing
worker: Tick -> End, EndPart Over, EndWithoutAccess, Notify Alive, Notify Alive refused, PutCard, nothing
";
