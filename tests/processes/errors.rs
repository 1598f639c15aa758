//! Errors and panics of hooks on their way from a worker.

use gangline::closures::FnMap;
use gangline::error::{OutOfMemory, RemoteError};
use gangline::process::{MessagePack, Processes, Recipe};
use gangline::testing::check_recipe;
use gangline::{
    CfgNode, Error, Hook, OnError, OrderedRunner, ProducerContext, Result, Verdict, map,
};

use crate::chores::{CHORES, Chore, Chores, PACKED, RareError, builder, squares};
use crate::suite::tests;

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
    a_type_that_the_codec_cannot_handle_is_found,
    a_hash_map_survives_the_check,
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
    let mut pool = builder.processes(&PACKED, Processes::new()).build().unwrap();
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

/// Postcard does not write the absent field, and reads the next one in its place.
#[derive(serde::Serialize, serde::Deserialize)]
struct Sparse {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    first: Option<u32>,
    second: u32,
}

type Totals = std::collections::HashMap<String, u32>;

fn ready(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

fn total(_: &ProducerContext<'_>, _: &mut (), sparse: Sparse) -> Result<Totals> {
    Ok(Totals::from([("all".to_owned(), sparse.first.unwrap_or(0) + sparse.second)]))
}

fn make(_: &CfgNode) -> Result<FnMap<(), Sparse, Totals>> {
    Ok(map(ready, total))
}

fn a_type_that_the_codec_cannot_handle_is_found() {
    let samples = || [Sparse { first: Some(1), second: 2 }, Sparse { first: None, second: 2 }];
    let recipe = Recipe::new("totals", make);
    let error = check_recipe(&recipe, samples(), []).unwrap_err();
    assert_eq!((error.value, error.sample), ("input", 1), "{error:?}");
    check_recipe(&recipe.codec(&MessagePack), samples(), []).unwrap();
}

fn a_hash_map_survives_the_check() {
    let totals: Totals = (0..50).map(|n| (n.to_string(), n)).collect();
    check_recipe(&Recipe::new("totals", make), [], [totals]).unwrap();
}
