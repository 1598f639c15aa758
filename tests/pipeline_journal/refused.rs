//! Journals that a run of a pipeline refuses.

use std::sync::Arc;

use gangline::journal::{Difference, JournalError, KeyKind};
use gangline::{CfgNode, Error, Order, Pipeline};

use crate::hooks::Hooks;
use crate::journal_file::Place;
use crate::rows::{Row, first, later, plain, shapes};
use crate::support::{Counter, Gate};

#[track_caller]
fn source(error: Error) -> JournalError {
    let Error::Journal { source, .. } = error else { panic!("{error:#}") };
    source
}

/// The differences of a journal of two stages from a run with these configurations, of which nothing is read.
fn differences(place: &Place, cfgs: &[CfgNode]) -> Vec<String> {
    let order = Order::Input;
    let a = first(Hooks::new(), order, KeyKind::Position).journal(place.resume());
    let mut a = a.cfg(cfgs[0].clone()).build().unwrap();
    let mut later = cfgs[1..].iter().map(|cfg| later(Hooks::new(), order).cfg(cfg.clone()));
    let mut b = later.next().unwrap().build().unwrap();
    let c = later.next();
    let pulled = Arc::new(Counter::new());
    let items = (0..9).inspect(|_| _ = pulled.add(1));
    let error = match c {
        None => Pipeline::new(&mut a).then(&mut b).run(items),
        Some(c) => Pipeline::new(&mut a).then(&mut b).then(&mut c.build().unwrap()).run(items),
    };
    let JournalError::Differs { differences, .. } = source(error.unwrap_err()) else {
        panic!("it is of another run")
    };
    assert_eq!(pulled.get(), 0, "refused before anything is read");
    differences.iter().map(ToString::to_string).collect::<Vec<_>>()
}

#[test]
fn a_journal_belongs_to_the_configurations_of_all_stages() {
    let place = Place::new();
    let lr = |lr: f64| CfgNode::new().with("model.lr", lr).unwrap();
    let mut a = first(Hooks::new(), Order::Input, KeyKind::Position)
        .journal(place.resume())
        .cfg(lr(0.1))
        .build()
        .unwrap();
    let mut b = later(Hooks::new(), Order::Input).cfg(lr(0.5)).build().unwrap();
    Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap();
    assert_eq!(Pipeline::new(&mut a).then(&mut b).run(0..7).unwrap(), [5, 6]);
    let error = a.run(0..9).unwrap_err();
    let JournalError::Differs { differences: found, .. } = source(error) else { panic!() };
    assert!(matches!(found[..], [Difference::Stages { was: 2, is: 1, .. }]), "{found:?}");
    drop((a, b));
    assert_eq!(differences(&place, &[lr(0.2), lr(0.5)]), ["model.lr was 0.1 and is 0.2"]);
    assert_eq!(differences(&place, &[lr(0.1), lr(0.6)]), ["stage 2.model.lr was 0.5 and is 0.6"]);
    let three = [lr(0.1), lr(0.5), CfgNode::new()];
    assert_eq!(differences(&place, &three), ["the stages were 2 and are 3"]);
}

#[test]
fn the_kind_of_key_is_that_of_the_first_stage() {
    let place = Place::new();
    let orders = [Order::Input; 2];
    let row = |kind| Row { orders: &orders, kind, hooks: &plain };
    row(KeyKind::Position).run(place.resume(), 0..5);
    let (result, account) = row(KeyKind::Name).try_run(place.resume(), 0..5);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("items were known by position and are by name"), "{error}");
    assert_eq!((account.ok, account.unread), (0, Some(5)));
}

#[test]
fn an_item_that_changed_and_an_input_that_became_shorter_are_noticed() {
    for orders in shapes() {
        let place = Place::new();
        let row = Row { orders: &orders, kind: KeyKind::HashedPosition, hooks: &plain };
        row.run(place.resume(), 0..10);
        let (result, _) = row.try_run(place.resume(), (0..9).chain([77]).chain(10..20));
        let error = source(result.unwrap_err());
        assert!(matches!(error, JournalError::ItemChanged { .. }), "{error}");
        let (result, _) = row.try_run(place.resume(), 0..9);
        let error = source(result.unwrap_err());
        assert!(
            matches!(error, JournalError::InputShorter { items: 9, recorded: 9, .. }),
            "{error}"
        );
        assert_eq!(row.run(place.resume(), 0..10).1, [0, 0, 10], "the journal is as it was");
    }
}

#[test]
fn a_journal_of_a_later_stage_is_refused_and_a_closed_stage_begins_none() {
    let place = Place::new();
    let mut a = later(Hooks::new(), Order::Input).build().unwrap();
    let mut b = later(Hooks::new(), Order::Input).journal(place.resume()).build().unwrap();
    let error = Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap_err();
    assert!(matches!(error, Error::JournalUnsupported { .. }), "{error}");
    assert!(error.to_string().contains("give it to the first stage"), "{error}");
    a.close().unwrap();
    assert!(Pipeline::new(&mut b).then(&mut a).run(0..5).unwrap_err().is_closed());
    assert!(!place.path().exists(), "nothing was begun");
    a.activate().unwrap();
    assert_eq!(b.then(&mut a).run(0..5).unwrap().len(), 5);
    assert_eq!(place.counts(), (5, 0));
}

#[test]
fn a_journal_in_use_is_refused_until_that_run_is_over() {
    let place = Place::new();
    let (begun, gate) = (Arc::new(Gate::new()), Arc::new(Gate::new()));
    let (begins, waits) = (begun.clone(), gate.clone());
    let slow = Hooks::new().consume(move |_, _| {
        begins.open();
        waits.pass();
        Ok(())
    });
    let stage = || first(Hooks::new(), Order::Completion, KeyKind::Position);
    let mut a = stage().journal(place.resume()).build().unwrap();
    let mut b = later(slow, Order::Input).build().unwrap();
    let mut c = stage().journal(place.resume()).build().unwrap();
    let mut d = later(Hooks::new(), Order::Input).build().unwrap();
    std::thread::scope(|scope| {
        let running = scope.spawn(|| Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap().len());
        begun.pass();
        let error = Pipeline::new(&mut c).then(&mut d).run(0..9).unwrap_err();
        assert!(error.to_string().contains("in use by another run"), "{error}");
        gate.open();
        assert_eq!(running.join().unwrap(), 5);
    });
    assert_eq!(c.then(&mut d).run(0..9).unwrap().len(), 4, "both are still there");
    assert_eq!(a.then(&mut b).run(0..12).unwrap().len(), 3);
}
