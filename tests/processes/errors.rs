//! Errors and panics of hooks on their way from a worker.

use gangline::error::{OutOfMemory, RemoteError};
use gangline::process::Processes;
use gangline::{CfgNode, Error, Hook, OnError, OrderedRunner, Verdict};

use crate::chores::{CHORES, Chore, Chores, RareError, TOLD, builder, squares, tests};

tests![
    an_error_keeps_its_text_and_item,
    an_error_keeps_its_type_if_the_recipe_names_it,
    a_mark_of_missing_memory_arrives,
    a_panic_keeps_its_text_and_costs_the_state,
    an_error_in_init_fails_the_build,
    a_panic_in_init_fails_the_build,
    a_recipe_that_fails_says_so,
    an_output_that_is_too_long_fails_its_item,
    an_input_that_is_too_long_fails_its_item,
];

fn an_error_keeps_its_text_and_item() {
    let mut pool = builder(2).build().unwrap();
    let mut items = squares(0..9);
    items[5] = Chore::Fail("bad weather".into());
    let error = pool.run(items).unwrap_err();
    assert_eq!((error.item(), error.hook()), (Some(5), Some(Hook::ProducerWork)));
    let Error::HookFailed { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is::<RemoteError>());
    assert!(format!("{error:#}").ends_with(": bad weather"), "{error:#}");
}

fn an_error_keeps_its_type_if_the_recipe_names_it() {
    let rare = |error: &Error| match error {
        Error::HookFailed { source, .. } => source.downcast_ref::<RareError>().cloned(),
        _ => None,
    };
    let pool = builder(1).classify(move |error| match rare(error) {
        Some(RareError { code: 7 }) => Verdict::Skip,
        _ => Verdict::Stop,
    });
    let mut pool = pool.build().unwrap();
    assert_eq!(pool.run([Chore::Rare(7), Chore::Square(2)]).unwrap(), ["4"]);
    assert_eq!(rare(&pool.run([Chore::Rare(8)]).unwrap_err()), Some(RareError { code: 8 }));
    let builder = OrderedRunner::builder(Chores::new()).devices(1);
    let mut pool = builder.processes(&TOLD, Processes::new()).build().unwrap();
    let error = pool.run([Chore::Rare(7)]).unwrap_err();
    assert!(rare(&error).is_none() && format!("{error:#}").ends_with("rare error 7"));
}

fn a_mark_of_missing_memory_arrives() {
    let mut pool = builder(1).build().unwrap();
    let error = pool.run([Chore::Unmarked]).unwrap_err();
    let Error::HookFailed { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.is::<OutOfMemory>(), "{error:?}");
}

fn a_panic_keeps_its_text_and_costs_the_state() {
    let directory = tempfile::tempdir().unwrap();
    let starts = directory.path().join("starts");
    let cfg = CfgNode::new().with("init", &starts).unwrap();
    let mut pool = builder(1).cfg(cfg).on_error(OnError::Skip).build().unwrap();
    let items = [Chore::Pid, Chore::Panic("one too many".into()), Chore::Pid];
    let outputs = pool.run(items).unwrap();
    assert_eq!(outputs[0], outputs[1], "the process lives on");
    assert!(pool.failures()[0].is_panic());
    assert!(format!("{:#}", pool.failures()[0]).ends_with("one too many"));
    assert_eq!(std::fs::read_to_string(starts).unwrap().len(), 2, "the state is made anew");
}

fn fails_to_build(key: &str, value: &str) -> Error {
    builder(2).cfg(CfgNode::new().with(key, value).unwrap()).build().unwrap_err()
}

fn an_error_in_init_fails_the_build() {
    let error = fails_to_build("init", "fail");
    assert_eq!(error.hook(), Some(Hook::ProducerInit));
    assert!(format!("{error:#}").ends_with("no state today"), "{error:#}");
}

fn a_panic_in_init_fails_the_build() {
    let error = fails_to_build("init", "panic");
    assert!(error.is_panic() && error.hook() == Some(Hook::ProducerInit), "{error:?}");
}

fn a_recipe_that_fails_says_so() {
    let cfg = CfgNode::new().with("broken", true).unwrap();
    let error = builder(1).cfg(cfg).build().unwrap_err();
    let text = "the recipe could not make the runner: the recipe is broken";
    assert_eq!(format!("{error:#}"), text);
}

fn with_short_frames() -> OrderedRunner<Chores> {
    let builder = OrderedRunner::builder(Chores::new()).devices(1);
    let processes = Processes::new().max_frame(20_000);
    builder.processes(&CHORES, processes).on_error(OnError::Skip).build().unwrap()
}

fn an_output_that_is_too_long_fails_its_item() {
    let mut pool = with_short_frames();
    let items = [Chore::Pid, Chore::Large(30_000), Chore::Pid];
    let outputs = pool.run(items).unwrap();
    assert_eq!(outputs[0], outputs[1], "the process lives on");
    let text = format!("{:#}", pool.failures()[0]);
    assert!(text.contains("the output cannot be sent: a message has 300"), "{text}");
    assert!(text.contains("at most 20000 are allowed"), "{text}");
}

fn an_input_that_is_too_long_fails_its_item() {
    let mut pool = with_short_frames();
    let items = [Chore::Text("x".repeat(30_000)), Chore::Square(3)];
    assert_eq!(pool.run(items).unwrap(), ["9"]);
    let text = format!("{:#}", pool.failures()[0]);
    assert!(text.contains("the input cannot be sent"), "{text}");
}
