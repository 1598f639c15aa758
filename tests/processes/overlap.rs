//! Batches that are sent to a process, and prepared there, before it is done with the one before, and whose outputs are finished
//! while it works on the one behind.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gangline::closures::BoxRunner;
use gangline::order::InputOrder;
use gangline::process::{Processes, Recipe};
use gangline::{Batch, Builder, CfgNode, OnError, OrderedRunner, ProducerContext, Result};

use crate::chores::{Chore, builder, squared, squares};
use crate::suite::tests;

tests![
    a_batch_is_prepared_while_the_one_before_is_worked_on,
    a_batch_that_fills_meanwhile_is_prepared_too,
    inputs_are_prepared_once_and_in_order,
    an_error_of_preparing_fails_its_item_alone,
    a_panic_of_preparing_fails_its_item_alone,
    a_process_that_dies_of_preparing_fails_its_item_alone,
    outputs_are_finished_while_the_batch_behind_is_worked_on,
    outputs_are_finished_once_and_in_order,
    an_error_of_finishing_fails_its_item_alone,
    a_panic_of_finishing_fails_its_item_alone,
    a_process_that_dies_of_finishing_fails_its_item_alone,
    finishing_that_hangs_is_killed,
    finished_outputs_of_another_number_fail_their_batch,
    a_lack_of_memory_in_finishing_divides_the_batch,
    a_crash_is_not_blamed_on_the_batch_before_which_is_not_finished,
    a_slow_batch_keeps_no_batch_back_that_was_sent_behind_it,
    a_crash_costs_the_batch_behind_no_attempt,
    a_pool_without_items_ahead_works_the_same,
];

type Numbers = BoxRunner<u64, u64, Vec<u64>>;

/// Doubles each input in `prepare_batch`. The hook adds one.
pub static PREPARED: Recipe<Numbers> = Recipe::new("prepared", make).prepare_batch(prepare);

/// Adds one to each output in `finish_batch`. The hook doubles.
pub static FINISHED: Recipe<Numbers> =
    Recipe::new("finished", make_doubling).prepare_batch(note).finish_batch(finish);

/// An input that cannot be prepared, or whose output cannot be finished, and one that panics there.
const UNPREPARED: u64 = 1_000_001;
const PANICS: u64 = 1_000_002;
/// One with which the process ends there.
const ABORTS: u64 = 1_000_003;
/// One whose output takes for ever to finish, one whose output is dropped, and one that only has memory alone.
const HANGS: u64 = 1_000_004;
const DROPPED: u64 = 1_000_005;
const LARGE: u64 = 1_000_006;
/// One whose output is not finished for a while, and not at all once the hook of the next has begun. That ends the process.
const FINISHES_LATE: u64 = 1_000_007;
const CRASHES: u64 = 1_000_008;
static HAS_BEGUN_TO_CRASH: AtomicBool = AtomicBool::new(false);
/// The hook of a batch that begins with one of these takes 1 ms.
const SLOW: Range<u64> = 2_000..4_000;

/// Whether a hook works in this process.
static WORKS: AtomicBool = AtomicBool::new(false);
/// How many batches were prepared, or finished, meanwhile.
static MEANWHILE: AtomicU64 = AtomicU64::new(0);
/// Has the hook say that it has begun, and wait for a while until a batch with the next number is prepared. It adds nothing if
/// none is.
const WAITS: [u64; 8] = [6_000, 6_010, 6_020, 6_030, 6_040, 6_050, 6_060, 6_070];
/// The largest number that was prepared.
static LAST_PREPARED: AtomicU64 = AtomicU64::new(0);
/// Has the hook return that number.
const COUNT: u64 = 5_000;

#[expect(clippy::ptr_arg, reason = "the form that a recipe asks for")]
fn prepare(_: &Numbers, inputs: &mut Vec<u64>) -> Result<()> {
    if inputs.contains(&UNPREPARED) {
        return Err("this cannot be prepared".into());
    }
    assert!(!inputs.contains(&PANICS), "this panics");
    if inputs.contains(&ABORTS) {
        std::process::abort();
    }
    LAST_PREPARED.fetch_max(inputs[0], Ordering::Release);
    inputs.iter_mut().for_each(|input| *input *= 2);
    if WORKS.load(Ordering::Relaxed) {
        MEANWHILE.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make(_: &CfgNode) -> Result<Numbers> {
    let work = |_: &ProducerContext<'_>, (): &mut (), inputs: &mut Vec<u64>| {
        if inputs[0] == 2 * COUNT {
            return Ok(vec![Ok(MEANWHILE.load(Ordering::Relaxed))]);
        }
        if WAITS.contains(&(inputs[0] / 2)) {
            say("begun");
            let since = Instant::now();
            let is_next_prepared = || LAST_PREPARED.load(Ordering::Acquire) > inputs[0] / 2;
            while !is_next_prepared() && since.elapsed() < Duration::from_secs(5) {
                thread::yield_now();
            }
            let is_early = u64::from(is_next_prepared());
            return Ok(inputs.drain(..).map(|input| Ok(input + is_early)).collect());
        }
        WORKS.store(true, Ordering::Relaxed);
        if SLOW.contains(&(inputs[0] / 2)) {
            thread::sleep(Duration::from_millis(1));
        }
        WORKS.store(false, Ordering::Relaxed);
        Ok(inputs.drain(..).map(|input| Ok(input + 1)).collect())
    };
    Ok(BoxRunner::new(gangline::map_batches(|_| Ok(()), work)))
}

#[expect(clippy::ptr_arg, reason = "the form that a recipe asks for")]
#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn note(_: &Numbers, inputs: &mut Vec<u64>) -> Result<()> {
    LAST_PREPARED.fetch_max(inputs[0], Ordering::Release);
    Ok(())
}

fn finish(_: &Numbers, outputs: &mut Vec<Result<u64>>) -> Result<()> {
    let has = |input: u64| outputs.iter().flatten().any(|output| *output == 2 * input);
    if has(UNPREPARED) {
        return Err("this cannot be finished".into());
    }
    assert!(!has(PANICS), "this panics");
    if has(ABORTS) {
        std::process::abort();
    }
    while has(HANGS) {
        thread::park();
    }
    let since = Instant::now();
    while has(FINISHES_LATE) && since.elapsed() < Duration::from_millis(500) {
        while HAS_BEGUN_TO_CRASH.load(Ordering::Relaxed) {
            thread::park();
        }
        thread::yield_now();
    }
    if has(LARGE) && outputs.len() > 1 {
        return Err(gangline::error::OutOfMemory::new("no room for this").into());
    }
    if has(DROPPED) {
        outputs.pop();
    }
    outputs.iter_mut().flatten().for_each(|output| *output += 1);
    if WORKS.load(Ordering::Relaxed) {
        MEANWHILE.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make_doubling(_: &CfgNode) -> Result<Numbers> {
    let work = |_: &ProducerContext<'_>, (): &mut (), inputs: &mut Vec<u64>| {
        if inputs[0] == COUNT {
            return Ok(vec![Ok(MEANWHILE.load(Ordering::Relaxed))]);
        }
        let since = Instant::now();
        let is_next_prepared = || LAST_PREPARED.load(Ordering::Acquire) >= CRASHES;
        while inputs[0] == FINISHES_LATE
            && !is_next_prepared()
            && since.elapsed() < Duration::from_millis(500)
        {
            thread::yield_now();
        }
        if inputs[0] == CRASHES {
            HAS_BEGUN_TO_CRASH.store(true, Ordering::Relaxed);
            std::process::abort();
        }
        WORKS.store(true, Ordering::Relaxed);
        if SLOW.contains(&inputs[0]) {
            thread::sleep(Duration::from_millis(1));
        }
        WORKS.store(false, Ordering::Relaxed);
        Ok(inputs.drain(..).map(|input| Ok(2 * input)).collect())
    };
    Ok(BoxRunner::new(gangline::map_batches(|_| Ok(()), work)))
}

fn doubled(producers: usize) -> Builder<Numbers, InputOrder> {
    let builder = OrderedRunner::builder(make_doubling(&CfgNode::new()).unwrap());
    let builder = builder.devices(producers).batch(Batch::of(4));
    builder.processes(&FINISHED, Processes::new().retries(1))
}

#[expect(clippy::print_stdout, reason = "the coordinator reads it")]
fn say(word: &str) {
    println!("{word}");
}

fn numbers(producers: usize) -> Builder<Numbers, InputOrder> {
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(producers);
    builder.batch(Batch::of(4)).processes(&PREPARED, Processes::new().retries(1))
}

fn worked(numbers: impl IntoIterator<Item = u64>) -> Vec<u64> {
    numbers.into_iter().map(|number| 2 * number + 1).collect()
}

fn a_batch_is_prepared_while_the_one_before_is_worked_on() {
    let mut pool = numbers(1).build().unwrap();
    let slow = SLOW.take(800);
    assert_eq!(pool.run(slow.clone()).unwrap(), worked(slow));
    let [meanwhile] = pool.run([COUNT]).unwrap()[..] else { panic!("one item has one output") };
    assert!((1..=200).contains(&meanwhile), "{meanwhile} of 200 batches");
}

/// Each time, the input of the batch behind comes when the hook has begun. On a slow machine, batches may take too long to
/// have another ahead, but hardly twice.
fn a_batch_that_fills_meanwhile_is_prepared_too() {
    let (begins, begun) = crossbeam_channel::unbounded();
    let processes = Processes::new().printed(move |_, line| {
        assert_eq!(line, b"begun\n");
        begins.send(()).unwrap();
    });
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(1);
    let mut pool = builder.batch(Batch::of(4)).processes(&PREPARED, processes).build().unwrap();
    let items = WAITS.into_iter().flat_map(|waits| {
        let begun = begun.clone();
        let behind = (waits + 1..waits + 5).inspect(move |next| {
            if *next == waits + 1 {
                begun.recv().unwrap();
            }
        });
        (1_000..1_080).chain([waits; 4]).chain(behind)
    });
    let outputs = pool.run(items).unwrap();
    let early = WAITS.iter().filter(|waits| outputs.contains(&(2 * **waits + 1))).count();
    assert!(early >= 7, "{early} of 8: {outputs:?}");
}

fn inputs_are_prepared_once_and_in_order() {
    let mut pool = numbers(2).build().unwrap();
    for count in [0, 1, 3, 4, 5, 300] {
        let items = 1_000..1_000 + count;
        assert_eq!(pool.run(items.clone()).unwrap(), worked(items));
    }
}

fn fails_alone(bad: u64, text: &str) {
    fails_alone_in(numbers(2), bad, text);
}

fn fails_alone_in(builder: Builder<Numbers, InputOrder>, bad: u64, text: &str) {
    let mut pool = builder.on_error(OnError::Skip).build().unwrap();
    let items = (1_000..1_100).chain([bad]).chain(1_100..1_200);
    assert_eq!(pool.run(items).unwrap(), worked(1_000..1_200));
    let [failure] = pool.failures() else { panic!("{:?}", pool.failures()) };
    assert_eq!(failure.item(), Some(100));
    assert!(format!("{failure:#}").contains(text), "{failure:#}");
}

fn an_error_of_preparing_fails_its_item_alone() {
    fails_alone(UNPREPARED, "this cannot be prepared");
}

fn a_panic_of_preparing_fails_its_item_alone() {
    fails_alone(PANICS, "this panics");
}

fn a_process_that_dies_of_preparing_fails_its_item_alone() {
    fails_alone(ABORTS, "signal 6 (SIGABRT)");
}

fn outputs_are_finished_while_the_batch_behind_is_worked_on() {
    let mut pool = doubled(1).build().unwrap();
    let slow = SLOW.take(800);
    assert_eq!(pool.run(slow.clone()).unwrap(), worked(slow));
    let [meanwhile] = pool.run([COUNT]).unwrap()[..] else { panic!("one item has one output") };
    assert!((2..=201).contains(&meanwhile), "{meanwhile} of 200 batches, and one");
}

fn outputs_are_finished_once_and_in_order() {
    let mut pool = doubled(2).build().unwrap();
    for count in [0, 1, 3, 4, 5, 300] {
        let items = 1_000..1_000 + count;
        assert_eq!(pool.run(items.clone()).unwrap(), worked(items));
    }
}

fn an_error_of_finishing_fails_its_item_alone() {
    fails_alone_in(doubled(2), UNPREPARED, "this cannot be finished");
}

fn a_panic_of_finishing_fails_its_item_alone() {
    fails_alone_in(doubled(2), PANICS, "this panics");
}

fn a_process_that_dies_of_finishing_fails_its_item_alone() {
    fails_alone_in(doubled(2), ABORTS, "signal 6 (SIGABRT)");
}

fn finishing_that_hangs_is_killed() {
    let limit = Duration::from_millis(300);
    let pool = doubled(1).item_timeout(limit).on_error(OnError::Skip);
    let mut pool = pool.build().unwrap();
    pool.run((1_000..1_100).chain([HANGS]).chain(1_100..1_120)).unwrap();
    // A slow machine may exceed the limit with others.
    let hung = pool.failures().iter().find(|failure| failure.item() == Some(100));
    assert!(hung.is_some_and(|failure| failure.is_timeout()), "{:?}", pool.failures());
}

fn finished_outputs_of_another_number_fail_their_batch() {
    let mut pool = doubled(1).on_error(OnError::Skip).build().unwrap();
    let items = (1_000..1_100).chain([DROPPED]).chain(1_101..1_104).chain(1_200..1_300);
    assert_eq!(pool.run(items).unwrap(), worked((1_000..1_100).chain(1_200..1_300)));
    let failure = &pool.failures()[0];
    assert_eq!(failure.items(), [100, 101, 102, 103]);
    let text = format!("{failure:#}");
    assert!(text.ends_with("3 outputs were given for 4 inputs"), "{text}");
}

fn a_lack_of_memory_in_finishing_divides_the_batch() {
    let mut pool = doubled(1).build().unwrap();
    let items = (1_000..1_100).chain([LARGE]).chain(1_100..1_200);
    assert_eq!(pool.run(items.clone()).unwrap(), worked(items));
}

fn a_crash_is_not_blamed_on_the_batch_before_which_is_not_finished() {
    let builder = doubled(1).batch(Batch::of(1)).on_error(OnError::Skip);
    let mut pool = builder.processes(&FINISHED, Processes::new().retries(0)).build().unwrap();
    let items = (1_000..1_040).chain([FINISHES_LATE, CRASHES]).chain(1_040..1_080);
    let expected = worked((1_000..1_040).chain([FINISHES_LATE]).chain(1_040..1_080));
    assert_eq!(pool.run(items).unwrap(), expected);
    let failed: Vec<_> = pool.failures().iter().map(|failure| failure.item().unwrap()).collect();
    assert_eq!(failed, [41]);
    assert_eq!(pool.report().producers[0].worker.as_ref().unwrap().restarts, 1);
}

/// After more quick batches than the window has, one waits for an item of the batch behind it.
fn waiting(directory: &Path) -> Vec<Chore> {
    let burst = |n: u64| {
        let gate = directory.join(n.to_string());
        let mut items = squares(0..80);
        items.push(Chore::Await(gate.with_extension("begun"), gate.clone()));
        items.extend(squares(0..3));
        items.push(Chore::Touch(gate));
        items.extend(squares(0..3));
        items
    };
    (0..20).flat_map(burst).collect()
}

fn a_slow_batch_keeps_no_batch_back_that_was_sent_behind_it() {
    let directory = tempfile::tempdir().unwrap();
    let items = waiting(directory.path());
    let count = items.len();
    let mut pool = builder(2).batch(Batch::of(4)).window(64).build().unwrap();
    // Otherwise this never ends.
    assert_eq!(pool.run(items).unwrap().len(), count);
    assert_eq!(pool.account().ok, count as u64);
}

fn a_crash_costs_the_batch_behind_no_attempt() {
    let mut items = squares(0..400);
    for crash in (41..400).step_by(80) {
        items[crash] = Chore::Segv;
    }
    let pool = builder(1).batch(Batch::of(4)).on_error(OnError::Skip);
    let mut pool = pool.build().unwrap();
    let outputs = pool.run(items).unwrap();
    let expected = (0..400).filter(|item| item % 80 != 41);
    assert_eq!(outputs, expected.flat_map(|item| squared(item..item + 1)).collect::<Vec<_>>());
    let failed: Vec<_> = pool.failures().iter().map(|failure| failure.item().unwrap()).collect();
    assert_eq!(failed, [41, 121, 201, 281, 361]);
}

fn a_pool_without_items_ahead_works_the_same() {
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(2);
    let builder = builder.batch(Batch::of(4)).processes(&PREPARED, Processes::new().ahead(1));
    let mut pool = builder.build().unwrap();
    assert_eq!(pool.run(1_000..1_100).unwrap(), worked(1_000..1_100));
}
