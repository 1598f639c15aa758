//! What a later run of a pipeline passes over.

use std::sync::{Arc, Mutex};

use gangline::journal::KeyKind;
use gangline::{Batch, Order};

use crate::hooks::{Hooks, sorted};
use crate::journal_file::Place;
use crate::rows::{KINDS, Row, first, later, plain, shapes};
use crate::support::Counter;

/// For each shape and kind of key.
fn each(test: impl Fn(&[Order], KeyKind)) {
    for orders in shapes() {
        KINDS.into_iter().for_each(|kind| test(&orders, kind));
    }
}

/// Fails in one stage at these items.
fn failing_in(stage: usize, fails: fn(u64) -> bool) -> impl Fn(usize) -> Hooks {
    move |number| {
        Hooks::new().work(move |_, x| match number == stage && fails(x) {
            true => Err("bad".into()),
            false => Ok(x),
        })
    }
}

#[test]
fn what_is_done_is_passed_over_before_the_first_stage() {
    each(|orders, kind| {
        let place = Place::new();
        let worked = Arc::new(Counter::new());
        let hooks = |_| {
            let worked = worked.clone();
            Hooks::new().work(move |_, x| {
                worked.add(1);
                Ok(x)
            })
        };
        let stages = orders.len() as u64;
        let run = |items| Row { orders, kind, hooks: &hooks }.run(place.resume(), items);
        assert_eq!(run(0..20), ((0..20).collect(), [20, 0, 0]), "{orders:?} {kind:?}");
        assert_eq!(run(0..50), ((20..50).collect(), [30, 0, 20]), "{orders:?} {kind:?}");
        assert_eq!(worked.get(), 50 * stages, "no stage works on what is done");
        let before = std::fs::read(place.path()).unwrap();
        assert_eq!(run(0..50), (vec![], [0, 0, 50]), "both hooks of the last consumer run");
        assert_eq!(std::fs::read(place.path()).unwrap(), before);
        assert_eq!(place.counts(), (50, 0));
    });
}

#[test]
fn what_failed_in_any_stage_is_run_again() {
    each(|orders, kind| {
        for stage in 0..orders.len() {
            let (place, sevens) = (Place::new(), (0..50).step_by(7).collect::<Vec<u64>>());
            let bad = failing_in(stage, |x| x % 7 == 0);
            let bad = Row { orders, kind, hooks: &bad };
            let good = Row { orders, kind, hooks: &plain };
            let (first, account) = bad.run(place.resume(), 0..50);
            assert_eq!((first.len(), account), (42, [42, 8, 0]), "{orders:?} {kind:?}");
            assert_eq!(place.counts(), (42, 8));
            // Again; what the journal does not know is left alone.
            assert_eq!(bad.run(place.rerun(), 0..60), (vec![], [0, 8, 52]));
            assert_eq!(good.run(place.rerun(), 0..60), (sevens, [8, 0, 52]));
            assert_eq!(place.counts(), (50, 0));
            assert_eq!(good.run(place.resume(), 0..60), ((50..60).collect(), [10, 0, 50]));
        }
    });
}

#[test]
fn names_are_known_in_any_order_of_the_input() {
    for orders in shapes() {
        let place = Place::new();
        let row = Row { orders: &orders, kind: KeyKind::Name, hooks: &plain };
        let run = |items: &[u64]| row.run(place.resume(), items.iter().copied());
        assert_eq!(run(&[1, 2, 2, 3]), (vec![1, 2, 2, 3], [4, 0, 0]));
        assert_eq!(run(&[2, 9, 3, 2, 2, 1, 4]), (vec![2, 4, 9], [3, 0, 4]), "the third 2 is new");
        assert_eq!(run(&[3]), (vec![], [0, 0, 1]), "it may lose items");
        assert_eq!(place.counts(), (7, 0));
    }
}

/// A key of a later stage is for messages.
#[test]
fn the_keys_of_the_first_stage_count() {
    for orders in shapes().into_iter().filter(|orders| orders.len() == 2) {
        for kind in KINDS {
            let place = Place::new();
            let run = |items: std::ops::Range<u64>| {
                let a = first(Hooks::new(), orders[0], kind).journal(place.resume());
                let (a, b) = (a.build().unwrap(), later(Hooks::new(), orders[1]));
                let mut b = b.key(|_| "all the same").build().unwrap();
                sorted(a.then(&mut b).run(items).unwrap())
            };
            assert_eq!(run(0..30), (0..30).collect::<Vec<_>>());
            assert_eq!(run(0..40), (30..40).collect::<Vec<_>>(), "{orders:?} {kind:?}");
        }
    }
}

/// The run ends in the middle. What was consumed is done, and nothing else is.
#[test]
fn what_was_consumed_before_an_early_end_is_done_and_nothing_else() {
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum End {
        Stop,
        Fail,
        Panic,
    }
    each(|orders, kind| {
        for end in [End::Stop, End::Fail, End::Panic] {
            let (place, seen) = (Place::new(), Arc::new(Mutex::new(vec![])));
            let last = orders.len() - 1;
            let ending = |stage: usize| {
                let seen = seen.clone();
                Hooks::new()
                    .work(move |_, x| match end {
                        End::Panic if stage == last && x == 60 => panic!("it broke"),
                        _ => Ok(x),
                    })
                    .consume(move |cx, y| {
                        if y == 60 && end == End::Fail {
                            panic!("the consumer broke");
                        }
                        seen.lock().unwrap().push(y);
                        if y == 60 {
                            cx.stop();
                        }
                        Ok(())
                    })
            };
            let (result, _) = Row { orders, kind, hooks: &ending }.try_run(place.resume(), 0..200);
            let seen = sorted(std::mem::take(&mut *seen.lock().unwrap()));
            match end {
                End::Stop => assert!(result.is_ok()),
                End::Fail => assert!(result.unwrap_err().is_panic()),
                // A stage that skips errors skips the panic of a producer too.
                End::Panic => assert_eq!(seen.len(), 199),
            }
            // After a panic of the consumer nothing more is committed.
            let all: Vec<u64> = (0..200).collect();
            let (rest, _) = Row { orders, kind, hooks: &plain }.run(place.resume(), 0..200);
            if end == End::Fail {
                assert!(rest.contains(&60) && sorted([seen, rest].concat()).len() >= 200);
            } else {
                assert_eq!(sorted([seen, rest].concat()), all, "{orders:?} {kind:?} {end:?}");
            }
        }
    });
}

#[test]
fn a_cancel_loses_nothing_that_was_consumed() {
    each(|orders, kind| {
        let (place, seen) = (Place::new(), Arc::new(Mutex::new(vec![])));
        let a = first(Hooks::new(), orders[0], kind).journal(place.resume()).build().unwrap();
        let (token, consumed) = (a.cancel_token(), seen.clone());
        let last = Hooks::new().consume(move |_, y| {
            consumed.lock().unwrap().push(y);
            if y == 40 {
                token.cancel();
            }
            Ok(())
        });
        let mut b = later(Hooks::new(), orders[1]).build().unwrap();
        let mut last = later(last, *orders.last().unwrap()).build().unwrap();
        let result = match orders.len() {
            2 => a.then(&mut last).run(0..200),
            _ => a.then(&mut b).then(&mut last).run(0..200),
        };
        assert!(result.unwrap_err().is_cancelled());
        let seen = sorted(std::mem::take(&mut *seen.lock().unwrap()));
        let (rest, _) = Row { orders, kind, hooks: &plain }.run(place.resume(), 0..200);
        assert_eq!(sorted([seen, rest].concat()), (0..200).collect::<Vec<_>>(), "{orders:?}");
    });
}

#[test]
fn batches_in_any_stage_are_made_of_what_is_not_left_out() {
    each(|orders, kind| {
        let place = Place::new();
        let thirds = failing_in(0, |x| x % 3 > 0);
        Row { orders, kind, hooks: &thirds }.run(place.resume(), 0..90);
        let a = first(Hooks::new(), orders[0], kind).journal(place.resume());
        let a = a.batch(Batch::of(4)).retries(1).build().unwrap();
        let mut b =
            later(Hooks::new(), orders[1]).batch(Batch::up_to(3)).window(5).build().unwrap();
        let seen = a.then(&mut b).run(0..90);
        if orders.len() == 2 {
            let rest: Vec<u64> = (0..90).filter(|x| x % 3 > 0).collect();
            assert_eq!(sorted(seen.unwrap()), rest, "{orders:?} {kind:?}");
        } else {
            assert!(seen.is_err(), "the journal is of another pipeline");
        }
    });
}

#[test]
fn an_input_that_fails_where_an_item_is_done_does_no_harm() {
    for orders in shapes().into_iter().filter(|orders| orders.len() == 2) {
        for kind in KINDS {
            let place = Place::new();
            let row = Row { orders: &orders, kind, hooks: &plain };
            row.run(place.resume(), 0..10);
            let input = || (0..12).map(|x| if x % 4 == 3 { Err("unreadable") } else { Ok(x) });
            for journal in [place.resume(), place.rerun()] {
                let a = first(Hooks::new(), orders[0], kind).journal(journal);
                let (a, mut b) =
                    (a.build().unwrap(), later(Hooks::new(), orders[1]).build().unwrap());
                let mut row = a.then(&mut b);
                row.try_run(input()).unwrap();
                assert_eq!(row.account().failed, 3, "{orders:?} {kind:?}");
            }
            assert_eq!(place.counts().0, 11);
            assert_eq!(row.run(place.resume(), 0..12).0, [11], "{orders:?} {kind:?}");
        }
    }
}

/// In input order an item keeps its index, also beside items that are done.
#[test]
fn the_items_of_earlier_runs_keep_their_places() {
    for orders in shapes().into_iter().filter(|orders| !orders.contains(&Order::Completion)) {
        for kind in KINDS {
            let place = Place::new();
            let thirds = failing_in(1, |x| x % 3 > 0);
            Row { orders: &orders, kind, hooks: &thirds }.run(place.resume(), 0..30);
            let checked = |_| {
                Hooks::new()
                    .work(|cx, x| {
                        assert_eq!(cx.item(), Some(x));
                        Ok(x)
                    })
                    .consume(|cx, x| {
                        assert_eq!(cx.item(), Some(x));
                        Ok(())
                    })
            };
            let row = Row { orders: &orders, kind, hooks: &checked };
            let (rest, account) = row.run(place.resume(), 0..40);
            assert!(rest.iter().all(|x| x % 3 > 0 || *x >= 30));
            assert_eq!(account, [30, 0, 10]);
        }
    }
}
