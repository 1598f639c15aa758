//! What the systems with batches promise, by the numbers of their acceptance examples: those that serve
//! models (AC) and the predictor of whole slides (AW). AC4 needs a policy that skips errors, and so do the
//! parts of AW4 about going on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use gangline::error::BuildError;
use gangline::error::OutputCount;
use gangline::input::Batches;
use gangline::{AnyOrderRunner, Batch, Error, Order, OrderedRunner, ProducerContext, map};

use crate::echo::{echo, echo_failing_at};
use crate::hooks::Hooks;

fn sizes(echo: &OrderedRunner<Hooks>) -> Vec<usize> {
    echo.runner().sizes()
}

fn runner(batch: Batch) -> OrderedRunner<Hooks> {
    OrderedRunner::builder(echo()).devices(1).batch(batch).build().unwrap()
}

#[test]
fn ac1_ten_items_in_batches_of_four() {
    let mut runner = runner(Batch::of(4));
    assert_eq!(runner.run(0..10).unwrap(), (0..10).collect::<Vec<_>>());
    assert_eq!(sizes(&runner), [4, 4, 2]);
}

#[test]
fn ac2_a_single_request_is_a_batch_of_one() {
    let mut runner = runner(Batch::of(4));
    assert_eq!(runner.run([7]).unwrap(), [7]);
    assert_eq!(sizes(&runner), [1]);
}

#[test]
fn ac3_one_input_four_times_gives_four_identical_results_in_one_call() {
    let mut runner = runner(Batch::of(4));
    assert_eq!(runner.run(std::iter::repeat_n(42, 4)).unwrap(), [42; 4]);
    assert_eq!(sizes(&runner), [4]);
}

#[test]
fn ac5_three_outputs_for_four_inputs_are_an_error() {
    let short = Hooks::new().by_batch(|_, inputs| {
        inputs.clear();
        Ok((0..3).map(Ok).collect())
    });
    let builder = OrderedRunner::builder(short).devices(1).batch(Batch::of(4));
    let error = builder.build().unwrap().run(0..4).unwrap_err();
    assert_eq!(error.items(), [0, 1, 2, 3]);
    let count = std::error::Error::source(&error).unwrap();
    assert!(count.is::<OutputCount>());
    assert_eq!(count.to_string(), "3 outputs were given for 4 inputs");
}

#[test]
fn ac6_a_batch_of_none_cannot_be_built() {
    let error = OrderedRunner::builder(echo()).devices(1).batch(Batch::of(0)).build();
    assert!(matches!(error.unwrap_err(), Error::Build(BuildError::Batch { .. })));
}

#[test]
fn ac8_when_all_inputs_fail_there_is_no_result() {
    let builder = OrderedRunner::builder(echo_failing_at(0)).devices(1);
    let mut runner = builder.batch(Batch::of(4)).build().unwrap();
    assert_eq!(runner.run([0; 8]).unwrap_err().item(), Some(0));
    assert_eq!(runner.account().ok, 0);
}

/// The left edges of the windows that cover a line of this many pixels.
fn windows(length: u64, window: u64, overlap: f64) -> impl Iterator<Item = u64> + Clone {
    let stride = (window as f64 * (1.0 - overlap)) as usize;
    (0..length).step_by(stride)
}

/// The windows of a slide of 1,000 by 500 pixels, row by row.
fn patches() -> impl Iterator<Item = u64> + Clone {
    let across = windows(1_000, 640, 0.8);
    windows(500, 640, 0.8).flat_map(move |y| across.clone().map(move |x| 1_000 * y + x))
}

#[test]
fn aw2_windows_in_batches() {
    assert_eq!(windows(1_000, 640, 0.8).last(), Some(889), "a stride of 127");
    assert_eq!(patches().count(), 32);
    for (batch, expected) in [(32, vec![32]), (8, vec![8; 4]), (10, vec![10, 10, 10, 2])] {
        let mut runner = runner(Batch::of(batch));
        assert_eq!(runner.run(patches()).unwrap(), patches().collect::<Vec<_>>());
        assert_eq!(sizes(&runner), expected);
        let lists: Vec<_> = patches().batches(batch).map(|list| list.len()).collect();
        assert_eq!(lists, expected, "as lists of inputs too");
    }
}

#[test]
fn aw3_sections_are_merged_in_their_order() {
    let sections = |devices: usize| {
        let work = |_: &ProducerContext<'_>, (): &mut (), x: u64| {
            // The earlier, the longer it takes.
            (0..(40 - x) * 1_000).for_each(|i| _ = std::hint::black_box(i));
            Ok(x * x)
        };
        OrderedRunner::new(map(|_| Ok(()), work), devices).unwrap().run(0..40).unwrap()
    };
    assert_eq!(sections(4), sections(1), "AW6: in parallel as one by one");
}

#[test]
fn aw4_a_failed_section_is_an_error_that_names_it() {
    let builder = OrderedRunner::builder(echo_failing_at(2)).devices(4);
    let error = builder.batch(Batch::of(1)).build().unwrap().run(0..9).unwrap_err();
    assert_eq!(error.item(), Some(2));
}

#[test]
fn aw5_batches_reach_over_sections_so_that_one_at_most_is_partial() {
    let devices = "cuda:0*4".parse::<gangline::Devices>().unwrap().names_only();
    let builder = OrderedRunner::builder(echo()).devices(devices).batch(Batch::of(8));
    let mut runner = builder.build().unwrap();
    let sections = [13, 7, 29, 1, 50];
    let patches = sections.iter().flat_map(|&patches| 0..patches);
    assert_eq!(runner.run(patches).unwrap().len(), 100);
    let sizes = sizes(&runner);
    assert_eq!(sizes.iter().sum::<usize>(), 100);
    assert!(sizes.iter().filter(|&&size| size < 8).count() <= 1, "{sizes:?}");
}

#[test]
fn aw7_each_patch_is_made_once_and_given_to_both_models() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = made.clone();
    let patches = (0..32u64).inspect(move |_| _ = counted.fetch_add(1, SeqCst));
    let both =
        map(|_| Ok((2, 3)), |_, models: &mut (u64, u64), x: u64| Ok((x * models.0, x * models.1)));
    let mut pool = AnyOrderRunner::builder(both).devices(3).order(Order::Input).build().unwrap();
    let outputs = pool.run(patches).unwrap();
    assert_eq!(outputs, (0..32).map(|x| (2 * x, 3 * x)).collect::<Vec<_>>());
    assert_eq!(made.load(SeqCst), 32);
}
