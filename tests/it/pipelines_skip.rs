//! Runners in a row: items that fail in one stage leave gaps in those behind it.

use std::sync::{Arc, Mutex};

use gangline::error::MaxFailures;
use gangline::{Error, Order, Pipeline};

use crate::hooks::Hooks;
use crate::policy_skip::{builder, fails_at_thirds, items, recording};
use crate::support::no_hang;

#[test]
fn a_stage_leaves_gaps_in_those_that_follow() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut first = builder(fails_at_thirds(), Order::Input).build().unwrap();
    let second = Hooks::new().work(|cx, x| {
        assert_eq!(cx.item(), Some(x), "its place in the whole input");
        if x % 5 == 0 { Err("bad".into()) } else { Ok(x) }
    });
    let mut second = builder(second, Order::Input).build().unwrap();
    let mut third = builder(recording(&told), Order::Input).build().unwrap();
    let outputs = no_hang(move || {
        let outputs =
            Pipeline::new(&mut first).then(&mut second).then(&mut third).run(0..90).unwrap();
        assert_eq!((first.account().ok, first.account().failed), (60, 30));
        assert_eq!((second.account().ok, second.account().failed), (48, 12));
        assert_eq!((third.account().ok, third.account().failed), (48, 0));
        outputs
    });
    let expected: Vec<_> = (0..90).filter(|x| x % 3 != 0 && x % 5 != 0).collect();
    assert_eq!(outputs, expected);
    let left_out: Vec<_> = (0..90).filter(|x| x % 3 == 0 || x % 5 == 0).collect();
    assert_eq!(*told.lock().unwrap(), left_out, "the last consumer is told of all");
}

#[test]
fn too_many_failures_of_an_earlier_stage_end_the_run() {
    no_hang(|| {
        for most in [MaxFailures::from(10), MaxFailures::share(0.2)] {
            let first = builder(fails_at_thirds(), Order::Input).max_failures(most);
            let mut first = first.build().unwrap();
            let mut second = builder(Hooks::new(), Order::Input).build().unwrap();
            let error = Pipeline::new(&mut first).then(&mut second).run(0..1_000_000).unwrap_err();
            assert!(matches!(error, Error::TooManyFailures { .. }), "{error:#}");
            assert!(first.account().failed > 10, "{:?}", first.account());
            let error = Pipeline::new(&mut first).then(&mut second).run(0..33);
            assert!(error.is_err(), "judged at the end too");
            assert_eq!(first.then(&mut second).run([1, 2]).unwrap(), [1, 2]);
        }
    });
}

#[test]
fn the_last_handle_has_the_errors_of_all_stages() {
    let mut first = builder(fails_at_thirds(), Order::Input).build().unwrap();
    let second = Hooks::new().work(|_, x| if x == 4 { Err("four".into()) } else { Ok(x) });
    let mut second = builder(second, Order::Input).build().unwrap();
    assert_eq!(Pipeline::new(&mut first).then(&mut second).run(0..7).unwrap(), [1, 2, 5]);
    assert_eq!(items(second.failures()), [0, 3, 4, 6]);
    assert!(first.failures().is_empty());
}
