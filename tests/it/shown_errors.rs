//! What a terminal is shown of errors: by `main`, which prints `Debug`, and on one line.

use std::error::Error as StdError;

use gangline::error::OutOfMemory;
use gangline::gpu::GpuList;
use gangline::testing::{Script, Simulated};
use gangline::{Batch, CfgNode, Devices, Journal, OnError, OrderedRunner, Verdict};

use crate::support::{map, one_by_one};

/// What `fn main() -> Result<(), Box<dyn Error>>` prints behind `Error: `.
fn from_main(error: impl Into<Box<dyn StdError>>) -> String {
    format!("{:?}", error.into())
}

#[track_caller]
fn check_text<E: StdError + 'static>(error: E) {
    let (text, shown) = (error.to_string(), from_main(error));
    assert!(shown.starts_with(&text), "{shown} begins not with {text}");
    assert!(!shown.contains('{') && !shown.contains("source"), "{shown}");
}

#[test]
fn every_error_that_main_returns_is_its_text() {
    let folder = tempfile::tempdir().unwrap();
    check_text(CfgNode::load(folder.path().join("none.yaml")).unwrap_err());
    check_text(CfgNode::new().get::<u32>("none").unwrap_err());
    check_text(Journal::at(folder.path()).repair().unwrap_err());
    check_text("cpu:4".parse::<Devices>().unwrap_err());
    check_text("0-".parse::<GpuList>().unwrap_err());
    let squares = || map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
    check_text(OrderedRunner::builder(squares()).devices(1).window(0).build().unwrap_err());
    check_text(OrderedRunner::new(squares(), "cpu:4").unwrap_err());

    let dead = Simulated::new(squares().results()).on(0, Script::new().fails_at(1));
    let mut runner =
        OrderedRunner::builder(dead).devices(1).on_error(OnError::Skip).build().unwrap();
    let failure = runner.run([1]).unwrap().remove(0).result.unwrap_err();
    assert!(failure.to_string().ends_with(": simulated: call 1 fails"), "{failure}");
    check_text(failure);
    check_text(runner.runner().calls().remove(0).fault.unwrap());
}

#[test]
fn an_error_says_what_is_allowed_and_for_what() {
    let squares = || map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
    let builder = || OrderedRunner::builder(squares()).devices(1).window(4);
    let error = builder().batch(Batch::of(4)).build().unwrap_err();
    let says = "batch needs a closure that takes batches, and that of `map` takes single items; make \
                the runner with `map_batches`, or leave `batch` out";
    assert_eq!(error.to_string(), says);
    let builder = OrderedRunner::builder(one_by_one(squares())).devices(1).window(4);
    let error = builder.batch(Batch::of(32)).build().unwrap_err();
    let says = "window must be at least 32 items for batches of up to 32, got 4";
    assert_eq!(error.to_string(), says);
    let builder = || OrderedRunner::builder(squares()).devices(1).window(4);
    let error = builder().journal("").build().and_then(|mut runner| runner.run([1])).unwrap_err();
    assert!(error.to_string().starts_with(r#"the journal "" could not be opened: "#), "{error}");
}

#[test]
fn failures_that_may_be_so_many_where_none_is_left_out_are_refused() {
    let squares = || map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
    let error = OrderedRunner::builder(squares()).devices(1).max_failures(10).build().unwrap_err();
    assert!(
        error.to_string().contains("call `on_error(OnError::Skip)` or `classify` too"),
        "{error}"
    );
    let classified = OrderedRunner::builder(squares()).classify(|_| Verdict::Skip).max_failures(10);
    assert!(classified.devices(1).build().is_ok(), "some may be skipped");
}

#[test]
fn main_shows_the_causes_too_and_none_twice() {
    assert_eq!(from_main(OutOfMemory::new("arena exhausted")), "out of memory: arena exhausted");
    let none = from_main(CfgNode::load("none.yaml").unwrap_err());
    assert_eq!(none.matches("No such file").count(), 1, "{none}");
}

#[test]
fn what_a_failed_item_says_does_not_get_through_to_the_terminal() {
    let bad = map(
        |_| Ok(()),
        |_, (), _: u64| -> gangline::Result<u64> { Err("\u{1b}[2J\u{7}two\nlines".into()) },
    );
    let mut runner = OrderedRunner::builder(bad.results())
        .devices(1)
        .on_error(OnError::Skip)
        .key(|_| "\u{1b}[31m".to_owned())
        .build()
        .unwrap();
    let failure = runner.run([1]).unwrap().remove(0).result.unwrap_err();
    assert!(failure.causes[0].contains('\u{1b}'), "it is kept as it was said");
    for shown in [failure.to_string(), from_main(failure)] {
        assert!(!shown.contains(char::is_control), "{shown:?}");
        assert!(shown.ends_with(r": \u{1b}[2J\u{7}two\nlines"), "{shown}");
    }
    let error = &runner.failures()[0];
    for shown in [format!("{error:#}"), format!("{error:?}")] {
        assert!(!shown.contains(['\u{1b}', '\u{7}']), "{shown:?}");
        assert!(shown.ends_with("two\nlines"), "lines stay lines: {shown}");
    }
}
