//! What a pipeline says of items that its stages skip.

use std::sync::{Arc, Mutex};

use gangline::report::Failure;
use gangline::{AnyOrderRunner, OnError, Order, OrderedRunner, Pipeline, map};

use crate::hooks::Hooks;
use crate::rows::{failing, orders, skipping, with_pipeline};

/// Item 10 fails in the first stage, item 11 in the second, item 12 in the third.
#[test]
fn the_consumer_is_given_the_key_whichever_stage_failed() {
    for orders in orders(3) {
        let seen = Arc::new(Mutex::new(vec![]));
        let keys = seen.clone();
        let last = failing(|x| x == 12).skipped(move |cx| {
            keys.lock().unwrap().push(cx.key());
            Ok(())
        });
        let a = skipping(failing(|x| x == 10), orders[0]).key(|x| format!("key {x}"));
        let mut row = [
            a.build().unwrap(),
            skipping(failing(|x| x == 11), orders[1]).build().unwrap(),
            skipping(last, orders[2]).build().unwrap(),
        ];
        with_pipeline(&mut row, |row| {
            assert_eq!(row.run_vec((0..40).collect()).unwrap().len(), 37);
            let mut failures = row.pipeline().failures();
            failures.sort_by_key(|failure| failure.stage());
            let found: Vec<_> = failures.iter().map(|f| (f.stage(), f.item(), f.key())).collect();
            let expected = [
                (1, Some(10), Some("key 10")),
                (2, Some(11), Some("key 11")),
                (3, Some(12), Some("key 12")),
            ];
            assert_eq!(found, expected, "{orders:?}");
            let text = failures[1].to_string();
            assert!(text.starts_with("item 11 (key 11) in stage 2: producer_work"), "{text}");
        });
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        seen.sort();
        let expected = [10, 11, 12].map(|x| Some(format!("key {x}")));
        assert_eq!(seen, expected, "{orders:?}");
    }
}

/// Each stage names an item by its own key, or else by that of the stage before.
#[test]
fn a_stage_may_have_keys_of_its_own() {
    let key_of_third = |has_keys: bool| {
        let mut row = [
            skipping(Hooks::new(), Order::Completion).key(|x| format!("a{x}")).build().unwrap(),
            match has_keys {
                true => skipping(failing(|x| x == 5), Order::Input).key(|x| format!("b{x}")),
                false => skipping(failing(|x| x == 5), Order::Input),
            }
            .build()
            .unwrap(),
            skipping(failing(|x| x == 7), Order::Input).build().unwrap(),
        ];
        with_pipeline(&mut row, |row| {
            row.run_vec((0..9).collect()).unwrap();
            let mut failures = row.pipeline().failures();
            failures.sort_by_key(|failure| failure.stage());
            failures.iter().map(|f| (f.item(), f.key().unwrap().to_owned())).collect::<Vec<_>>()
        })
    };
    assert_eq!(key_of_third(false), [(Some(5), "a5".to_owned()), (Some(7), "a7".to_owned())]);
    assert_eq!(key_of_third(true), [(Some(5), "b5".to_owned()), (Some(7), "b7".to_owned())]);
}

#[test]
fn an_input_that_fails_is_listed_in_the_first_stage() {
    let a = skipping(Hooks::new(), Order::Input).key(|x| *x).describe("read").build().unwrap();
    let mut b = skipping(Hooks::new(), Order::Input).build().unwrap();
    let mut row = a.then(&mut b);
    let items = (0..10).map(|x| if x == 3 { Err("a bad sector") } else { Ok(x) });
    assert_eq!(row.try_run(items).unwrap().len(), 9);
    let failures = row.failures();
    assert_eq!((failures.len(), failures[0].stage(), failures[0].item()), (1, 1, Some(3)));
    assert_eq!((failures[0].key(), failures[0].stage_name()), (None, "read".to_owned()));
    assert!(failures[0].error().is_input());
}

/// Without keys, an index is not known after a stage in completion order.
#[test]
fn an_index_is_that_of_the_input_or_not_given() {
    for orders in orders(2) {
        let mut row = [
            skipping(failing(|x| x == 2), orders[0]).build().unwrap(),
            skipping(failing(|x| x == 4), orders[1]).build().unwrap(),
        ];
        with_pipeline(&mut row, |row| {
            row.run_vec((0..9).collect()).unwrap();
            for failure in row.pipeline().failures() {
                let expected = match failure.stage() {
                    1 => Some(2),
                    _ if orders[0] == Order::Input => Some(4),
                    _ => None,
                };
                assert_eq!(failure.item(), expected, "{orders:?}");
            }
        });
    }
}

#[test]
fn the_next_run_has_no_failures_of_the_last() {
    let mut a = skipping(failing(|x| x == 2), Order::Input).build().unwrap();
    let mut b = skipping(Hooks::new(), Order::Input).build().unwrap();
    let mut row = Pipeline::new(&mut a).then(&mut b);
    assert!(row.failures().is_empty());
    row.run(0..5).unwrap();
    assert_eq!(row.failures().len(), 1);
    row.run(3..5).unwrap();
    assert!(row.failures().is_empty());
    drop(row);
    a.run(0..5).unwrap();
    let row = a.then(&mut b);
    assert!(row.failures().is_empty(), "the run of a pool is no run of the pipeline");
}

#[test]
fn the_last_pool_still_lists_the_failures_of_all_stages() {
    let mut a = skipping(failing(|x| x == 2), Order::Input).build().unwrap();
    let mut b = skipping(failing(|x| x == 4), Order::Input).build().unwrap();
    Pipeline::new(&mut a).then(&mut b).run(0..5).unwrap();
    assert_eq!((a.failures().len(), b.failures().len()), (0, 2));
    assert_eq!((a.account().failed, b.account().failed), (1, 1));
}

/// Runs `ab`, `cd` and so on, each expanded into its letters, of which the hook refuses `bad`.
fn run_letters(words: &[&str], on_error: OnError, order: Order, bad: char) -> Vec<Failure> {
    let split = map(|_| Ok(()), |_, (), word: String| Ok(word));
    let letter = map(
        |_| Ok(()),
        move |_, (), letter: char| {
            if letter == bad { Err("a bad letter".into()) } else { Ok(letter) }
        },
    );
    let join = map(|_| Ok(()), |_, (), (word, _): (Arc<String>, usize)| Ok(word.len()));
    let builder = AnyOrderRunner::builder(split).devices(1).order(order);
    let split = builder.key(|word| word.clone()).on_error(on_error).build().unwrap();
    let mut letter =
        AnyOrderRunner::builder(letter).devices(1).order(order).on_error(on_error).build().unwrap();
    let mut join = OrderedRunner::new(join, 1).unwrap();
    let letters = |word: &Arc<String>| word.chars().collect::<Vec<_>>();
    let pipeline = split.expand(letters).then(&mut letter).gather(|_| 0, |n, _, _, _| *n += 1);
    let mut pipeline = pipeline.then(&mut join);
    let result = pipeline.run(words.iter().map(|word| (*word).to_owned()));
    assert_eq!(result.is_err(), on_error == OnError::Stop);
    let report = pipeline.report();
    let stage = report.stages[1].report.failures.clone();
    assert_eq!(stage.len(), report.failures.len());
    stage
}

#[test]
fn a_part_that_ends_the_run_is_reported_as_its_parent() {
    let words = ["abc", "defgh", "ij", "klmn"];
    for (bad, item, part) in [('c', 0, 2), ('d', 1, 0), ('j', 2, 1), ('m', 3, 2)] {
        for order in [Order::Input, Order::Completion] {
            for on_error in [OnError::Stop, OnError::Skip] {
                let failures = run_letters(&words, on_error, order, bad);
                let [failure] = &failures[..] else { panic!("{failures:?}") };
                let found = (failure.item, failure.key.as_deref(), &failure.parts[..]);
                let expected = (Some(item), Some(words[item as usize]), &[part][..]);
                assert_eq!(found, expected, "{on_error:?}, {order:?}");
            }
        }
    }
}
