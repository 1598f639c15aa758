//! Runners in a row: the token of any stage ends all of them, wherever they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use gangline::{AnyOrderRunner, CancelToken, Error, Order, Pipeline, Result};

use crate::hooks::{Hooks, both_orders, sorted};
use crate::pipelines::check_row;
use crate::support::{Counter, Gate};

both_orders!(
    a_cancel_with_the_input_in_a_guard,
    a_cancel_with_producers_of_any_stage_at_work,
    a_cancel_with_all_windows_full,
    a_cancel_in_the_last_consumer_init,
    a_cancel_while_a_state_is_made_anew,
    a_cancel_at_any_moment,
    a_finish_with_the_input_in_a_guard,
    one_token_for_all_stages,
    a_request_is_spent_for_the_stage_whose_token_it_was,
    a_cancel_is_never_taken_for_the_end_of_the_input,
);

type Row = [AnyOrderRunner<Hooks>; 3];

/// Items from here on make the hooks wait; smaller ones pass.
const BAD: u64 = 1_000_000;

fn row(order: Order, hooks: impl Fn(usize) -> Hooks) -> Row {
    std::array::from_fn(|stage| hooks(stage).windowed(order, 2, [4, 3, 5][stage]))
}

fn run(row: &mut Row, items: impl IntoIterator<Item = u64>) -> Result<Vec<u64>, Error> {
    let [a, b, c] = row;
    Pipeline::new(&mut *a).then(b).then(c).run(items)
}

/// The requests are spent, for each stage.
#[track_caller]
fn check_works(row: &mut Row) {
    for _ in 0..2 {
        assert_eq!(sorted(run(row, 0..20).unwrap()), (0..20).collect::<Vec<_>>());
        check_row(row.each_ref(), 20, 20);
    }
    for pool in row {
        assert_eq!(pool.run(0..5).unwrap().len(), 5);
        assert_eq!(pool.outputs(0..5).filter(Result::is_ok).count(), 5);
    }
}

/// Runs `items`, cancelling by the token of stage `by` once `reached` has come to `parties`.
#[track_caller]
fn check(
    row: &mut Row,
    by: usize,
    (reached, parties): (&Counter, u64),
    items: impl Iterator<Item = u64>,
) {
    let token = row[by].cancel_token();
    let (pulled, counted) = (AtomicU64::new(0), items);
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            reached.reach(parties);
            token.cancel();
        });
        run(row, counted.inspect(|_| _ = pulled.fetch_add(1, SeqCst)))
    });
    assert!(result.unwrap_err().is_cancelled());
    check_row(row.each_ref(), pulled.into_inner(), row[2].account().ok);
    assert!(row.iter().all(|pool| pool.account().failed == 0));
    check_works(row);
}

fn a_cancel_with_the_input_in_a_guard(order: Order) {
    for by in 0..3 {
        let consumed = Arc::new(Counter::new());
        let counts = consumed.clone();
        let mut row = row(order, |_| {
            let counts = counts.clone();
            Hooks::new().consume(move |_, _| {
                counts.add(1);
                Ok(())
            })
        });
        let (sender, receiver) = crossbeam_channel::unbounded();
        (0..7).for_each(|x| sender.send(x).unwrap());
        // The token is never used: the run itself wakes the guard.
        let guard = CancelToken::new().guard(receiver);
        check(&mut row, by, (&consumed, 7), guard);
    }
}

fn a_cancel_with_producers_of_any_stage_at_work(order: Order) {
    for (by, stage) in (0..3).flat_map(|by| (0..3).map(move |stage| (by, stage))) {
        let at_work = Arc::new(Counter::new());
        let mut row = row(order, |i| {
            let at_work = at_work.clone();
            Hooks::new().work(move |cx, x| {
                if i == stage && x >= BAD {
                    at_work.add(1);
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                }
                Ok(x)
            })
        });
        check(&mut row, by, (&at_work, 2), BAD..);
    }
}

/// The last consumer is in its hook, so that the feeder and both in between wait for room.
fn a_cancel_with_all_windows_full(order: Order) {
    for by in 0..3 {
        let reached = Arc::new(Counter::new());
        let mut row = row(order, |_| {
            Hooks::new().consume(|cx, y| {
                while y >= BAD && !cx.is_cancelled() {
                    thread::yield_now();
                }
                Ok(())
            })
        });
        let items = (BAD..).inspect(|_| _ = reached.add(1));
        check(&mut row, by, (&reached, 4 + 3 + 5), items);
    }
}

fn a_cancel_in_the_last_consumer_init(order: Order) {
    for by in 0..3 {
        let (reached, armed) = (Arc::new(Counter::new()), Arc::new(AtomicBool::new(true)));
        let mut row = row(order, |_| {
            let (reached, armed) = (reached.clone(), armed.clone());
            Hooks::new().consumer_init(move |cx| {
                if armed.swap(false, SeqCst) {
                    reached.add(1);
                    while !cx.is_cancelled() {
                        thread::yield_now();
                    }
                }
                Ok(())
            })
        });
        let items = (0..).inspect(|_| panic!("nothing is to be pulled"));
        check(&mut row, by, (&reached, 1), items);
    }
}

fn a_cancel_while_a_state_is_made_anew(order: Order) {
    for (by, stage) in (0..3).flat_map(|by| (0..3).map(move |stage| (by, stage))) {
        let (reached, armed) = (Arc::new(Counter::new()), Arc::new(AtomicBool::new(false)));
        let mut row = row(order, |i| {
            let (reached, armed) = (reached.clone(), armed.clone());
            Hooks::new()
                .init(move |cx| {
                    if i == stage && armed.swap(false, SeqCst) {
                        reached.add(1);
                        while !cx.is_cancelled() {
                            thread::yield_now();
                        }
                        return Err("gave up".into());
                    }
                    Ok(())
                })
                .work(move |_, x| if i == stage && x == BAD { panic!("no") } else { Ok(x) })
        });
        assert!(run(&mut row, [BAD]).unwrap_err().is_panic());
        armed.store(true, SeqCst);
        let items = (0..).inspect(|_| panic!("nothing is to be pulled"));
        check(&mut row, by, (&reached, 1), items);
    }
}

fn a_cancel_at_any_moment(order: Order) {
    let mut row = row(order, |_| Hooks::new());
    for round in 0..300 {
        let (token, go) = (row[round % 3].cancel_token(), Gate::new());
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                go.pass();
                (0..round % 17).for_each(|_| thread::yield_now());
                token.cancel();
            });
            run(&mut row, (0..).inspect(|_| go.open()))
        });
        assert!(result.unwrap_err().is_cancelled());
        assert_eq!(run(&mut row, 0..3).unwrap().len(), 3);
    }
}

fn a_finish_with_the_input_in_a_guard(order: Order) {
    for by in 0..3 {
        let consumed = Arc::new(Counter::new());
        let mut row = row(order, |_| {
            let consumed = consumed.clone();
            Hooks::new().consume(move |_, _| {
                consumed.add(1);
                Ok(())
            })
        });
        let (sender, receiver) = crossbeam_channel::unbounded();
        (0..7).for_each(|x| sender.send(x).unwrap());
        let guard = CancelToken::new().guard(receiver);
        let token = row[by].cancel_token();
        let seen = thread::scope(|scope| {
            scope.spawn(|| {
                consumed.reach(7);
                token.drain();
            });
            run(&mut row, guard)
        });
        assert_eq!(seen.unwrap().len(), 7);
        check_works(&mut row);
    }
}

fn one_token_for_all_stages(order: Order) {
    let token = CancelToken::new();
    let mut row: Row = std::array::from_fn(|_| {
        let builder = AnyOrderRunner::builder(Hooks::new()).order(order).devices(2);
        builder.cancel_token(token.clone()).build().unwrap()
    });
    for cancel_at in [0, 1, 50] {
        let items = (0..).inspect(|&x| {
            assert!(x <= cancel_at, "the input was asked again");
            if x == cancel_at {
                token.cancel();
            }
        });
        assert!(run(&mut row, items).unwrap_err().is_cancelled());
        check_works(&mut row);
        let items = (0..).inspect(|&x| {
            if x == cancel_at {
                token.drain();
            }
        });
        assert_eq!(run(&mut row, items).unwrap().len() as u64, cancel_at + 1);
        check_works(&mut row);
    }
}

/// And waits where nothing of that stage is in progress.
fn a_request_is_spent_for_the_stage_whose_token_it_was(order: Order) {
    for by in 0..3 {
        let mut row = row(order, |_| Hooks::new());
        row[by].cancel_token().cancel();
        for (stage, pool) in row.iter_mut().enumerate() {
            assert_eq!(pool.run(0..3).is_err(), stage == by);
        }
        check_works(&mut row);
        row[by].cancel_token().cancel();
        assert!(run(&mut row, 0..3).unwrap_err().is_cancelled());
        check_works(&mut row);
    }
}

/// It ends the first stage, and the ends of the stages follow each other to the last.
fn a_cancel_is_never_taken_for_the_end_of_the_input(order: Order) {
    let consumed = Arc::new(Counter::new());
    let mut row = row(order, |_| {
        let consumed = consumed.clone();
        Hooks::new().consume(move |_, _| {
            consumed.add(1);
            Ok(())
        })
    });
    let mut before = 0;
    for round in 0..200 {
        let token = row[round % 3].cancel_token();
        let (sender, receiver) = crossbeam_channel::unbounded();
        (0..3).for_each(|x| sender.send(x).unwrap());
        let items = token.guard(receiver);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                consumed.reach(before + 3);
                token.cancel();
            });
            run(&mut row, items)
        });
        assert!(result.is_err_and(|error| error.is_cancelled()), "round {round}");
        before = consumed.get();
    }
}
