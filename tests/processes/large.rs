//! Large values, which go through shared memory.

use std::fs;
use std::time::Duration;

use gangline::closures::{BoxRunner, FnMap};
use gangline::order::InputOrder;
use gangline::process::{Processes, Recipe, SharedBytes, SharedMemory};
use gangline::{Batch, Builder, CfgNode, OnError, OrderedRunner, ProducerContext, Result};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use serde::{Deserialize, Serialize};

use crate::suite::tests;

tests![
    values_of_each_size_come_back,
    batches_of_large_values_come_back,
    a_retry_sees_what_the_first_attempt_saw,
    a_hook_that_hangs_with_a_large_value_is_killed,
    large_values_go_through_one_memory_of_each_side,
    shared_bytes_are_read_where_they_were_written,
    a_worker_without_descriptors_gets_its_values_in_frames,
    a_worker_that_may_write_no_files_answers_in_frames,
    a_value_beyond_the_largest_message_fails_alone,
    the_report_counts_the_bytes_of_large_values,
];

/// What the hook does before it answers with the text.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub enum Deed {
    Return,
    /// Answers with the number of memories that the process has open.
    CountMemories,
    KillOnce,
    FailOnce,
    HangOnce,
    /// Leaves the process no room for further descriptors.
    CloseDescriptors,
    /// Has the kernel end the process if it writes into a file.
    ForbidFiles,
}

type Letter = (Deed, String);

pub static LETTERS: Recipe<FnMap<(), Letter, String>> = Recipe::new("letters", make);

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make(_: &CfgNode) -> Result<FnMap<(), Letter, String>> {
    Ok(gangline::map(init as _, obey as _))
}

pub static BUNDLES: Recipe<BoxRunner<String, String, Vec<String>>> =
    Recipe::new("bundles", make_bundles);

#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make_bundles(_: &CfgNode) -> Result<BoxRunner<String, String, Vec<String>>> {
    let give_back = |texts: &mut Vec<String>| Ok(texts.drain(..).map(Ok).collect());
    Ok(BoxRunner::new(gangline::map_batches(|_| Ok(()), move |_, (), texts| give_back(texts))))
}

#[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

fn obey(cx: &ProducerContext<'_>, (): &mut (), (deed, text): Letter) -> Result<String> {
    let is_first = cx.attempt() == 1;
    match deed {
        Deed::CountMemories => return Ok(memories_here().to_string()),
        Deed::KillOnce if is_first => kill_process(getpid(), Signal::KILL)?,
        Deed::FailOnce if is_first => return Err("once".into()),
        Deed::HangOnce if is_first => loop {
            std::thread::park();
        },
        Deed::CloseDescriptors => {
            let maximum = getrlimit(Resource::Nofile).maximum;
            setrlimit(Resource::Nofile, Rlimit { current: Some(3), maximum })?;
        }
        Deed::ForbidFiles => {
            let maximum = getrlimit(Resource::Fsize).maximum;
            setrlimit(Resource::Fsize, Rlimit { current: Some(0), maximum })?;
        }
        _ => {}
    }
    Ok(text)
}

/// The number of descriptors of memories that this process has.
fn memories_here() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let links = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("gangline-memory")).count()
}

fn builder(producers: usize) -> Builder<FnMap<(), Letter, String>, InputOrder> {
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(producers);
    builder.processes(&LETTERS, Processes::new().retries(2)).backoff(Duration::ZERO, Duration::ZERO)
}

/// A text of `length` bytes, which differs from those with other numbers at both ends.
fn text(number: usize, length: usize) -> String {
    let mut text = char::from(b'a' + (number % 26) as u8).to_string().repeat(length);
    let mark = number.to_string();
    if length >= 2 * mark.len() {
        text.replace_range(..mark.len(), &mark);
        text.replace_range(length - mark.len().., &mark);
    }
    text
}

/// The letters come back as they were, in their order.
#[track_caller]
fn check(builder: Builder<FnMap<(), Letter, String>, InputOrder>, letters: Vec<Letter>) {
    let mut pool = builder.build().unwrap();
    let expected: Vec<_> = letters.iter().map(|(_, text)| text.clone()).collect();
    let outputs = pool.run(letters).unwrap();
    let wrong = outputs.iter().zip(&expected).position(|(output, text)| output != text);
    assert_eq!((outputs.len(), wrong), (expected.len(), None));
    pool.close().unwrap();
    drop(pool);
    assert_eq!(memories_here(), 0, "the pool has let all go");
}

fn values_of_each_size_come_back() {
    let lengths = [0, 1, 65_500, 65_536, 65_537, 81_920, 100_000, 1 << 20, 9 << 20];
    let twice = lengths.into_iter().chain(lengths.into_iter().rev()).cycle().take(90);
    let letters = twice.enumerate().map(|(at, length)| (Deed::Return, text(at, length)));
    check(builder(2), letters.collect());
    let largest = (0..4).map(|at| (Deed::Return, text(at, 64 << 20)));
    check(builder(1), largest.collect());
}

fn batches_of_large_values_come_back() {
    let texts = || (0..100).map(|at| text(at, 3_000 * (at % 50)));
    let runner = make_bundles(&CfgNode::new()).unwrap();
    let builder = OrderedRunner::builder(runner).devices(2).batch(Batch::up_to(7));
    let mut pool = builder.processes(&BUNDLES, Processes::new()).build().unwrap();
    let outputs = pool.run(texts()).unwrap();
    assert!(outputs.into_iter().eq(texts()));
}

fn a_retry_sees_what_the_first_attempt_saw() {
    let deeds = [Deed::Return, Deed::KillOnce, Deed::Return, Deed::FailOnce];
    let letters = (0..80).map(|at| (deeds[at % 4], text(at, 70_000 + 500 * at)));
    check(builder(3), letters.collect());
}

fn a_hook_that_hangs_with_a_large_value_is_killed() {
    let deeds = [Deed::Return, Deed::Return, Deed::Return, Deed::HangOnce, Deed::Return];
    let letters = (0..10).map(|at| (deeds[at % 5], text(at, 200_000)));
    check(builder(2).item_timeout(Duration::from_millis(500)), letters.collect());
}

fn large_values_go_through_one_memory_of_each_side() {
    let mut pool = builder(1).build().unwrap();
    let letters = (0..200).map(|at| (Deed::Return, text(at, 64_000 + 3_000 * (at % 40))));
    let outputs = pool.run(letters).unwrap();
    assert!(outputs.iter().enumerate().all(|(at, output)| output.starts_with(&at.to_string())));
    let in_worker: usize =
        pool.run([(Deed::CountMemories, String::new())]).unwrap()[0].parse().unwrap();
    assert_eq!((in_worker, memories_here()), (2, 2), "each side has those of both");
}

fn a_worker_without_descriptors_gets_its_values_in_frames() {
    let mut pool = builder(1).build().unwrap();
    let letters = (0..20).map(|at| match at {
        0 => (Deed::CloseDescriptors, String::new()),
        _ => (Deed::Return, text(at, 100_000)),
    });
    let outputs = pool.run(letters).unwrap();
    let expected = (1..20).map(|at| text(at, 100_000));
    assert!(outputs.into_iter().skip(1).eq(expected));
    assert_eq!(memories_here(), 1, "the worker could have none");
}

fn a_worker_that_may_write_no_files_answers_in_frames() {
    // At first, and once it has had a memory.
    for before in [0, 10] {
        let mut pool = builder(1).build().unwrap();
        let deed = |at| if at == before { Deed::ForbidFiles } else { Deed::Return };
        let (outputs, report) =
            pool.run_with_report((0..20).map(|at| (deed(at), text(at, 100_000))));
        assert!(outputs.unwrap().into_iter().eq((0..20).map(|at| text(at, 100_000))));
        assert_eq!(report.producers[0].worker.as_ref().unwrap().restarts, 0);
    }
}

fn a_value_beyond_the_largest_message_fails_alone() {
    let processes = Processes::new().max_frame(1 << 20);
    let builder = OrderedRunner::builder(make(&CfgNode::new()).unwrap()).devices(1);
    let mut pool = builder.processes(&LETTERS, processes).on_error(OnError::Skip).build().unwrap();
    let lengths = [900_000, 900_000, 900_000, 1_100_000, 900_000];
    let letters = lengths.iter().enumerate().map(|(at, length)| (Deed::Return, text(at, *length)));
    let outputs = pool.run(letters).unwrap();
    assert!(outputs.iter().eq(&[0, 1, 2, 4].map(|at| text(at, 900_000))));
    assert_eq!(pool.failures()[0].item(), Some(3));
}

fn the_report_counts_the_bytes_of_large_values() {
    let mut pool = builder(1).build().unwrap();
    let letters = (0..10).map(|at| (Deed::Return, text(at, 1 << 20)));
    let (outputs, report) = pool.run_with_report(letters);
    assert_eq!(outputs.unwrap().len(), 10);
    let worker = report.producers[0].worker.as_ref().unwrap();
    let bytes = [worker.bytes_down, worker.bytes_up];
    assert!(bytes.iter().all(|bytes| (10 << 20..11 << 20).contains(bytes)), "{bytes:?}");
}

/// Pixels, and the number that all of them are.
#[derive(Debug, Serialize, Deserialize)]
pub struct Image {
    number: u8,
    pixels: SharedBytes,
}

pub static IMAGES: Recipe<BoxRunner<Image, Image, Vec<Image>>> = Recipe::new("images", make_images);

/// Each image with its number grown by one, in the worker's own memory; or as it came, in the driver's, if it is odd.
#[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
fn make_images(_: &CfgNode) -> Result<BoxRunner<Image, Image, Vec<Image>>> {
    let work = |_: &ProducerContext<'_>, (): &mut (), image: Image| {
        let Image { number, pixels } = image;
        let read = pixels.to_vec()?;
        if read.iter().any(|it| *it != number) {
            return Err("the pixels are of another image".into());
        }
        if number % 2 == 1 {
            return Ok(Image { number, pixels });
        }
        let memory = SharedMemory::of_worker().ok_or("this is no worker")?;
        Ok(Image { number: number + 1, pixels: memory.write(&vec![number + 1; read.len()]) })
    };
    Ok(BoxRunner::new(gangline::map(|_| Ok(()), work)))
}

fn images(memory: &SharedMemory) -> impl Iterator<Item = Image> {
    let lengths = [0, 10, 65_536, 100_000, 1 << 20].into_iter().cycle();
    let memory = memory.clone();
    (0..100).zip(lengths).map(move |(number, length)| {
        let pixels = memory.write(&vec![number; length]);
        Image { number, pixels }
    })
}

fn shared_bytes_are_read_where_they_were_written() {
    let memory = SharedMemory::new();
    let processes = || Processes::new().shared_memory(&memory);
    let builder = || OrderedRunner::builder(make_images(&CfgNode::new()).unwrap()).devices(2);
    let mut pool = builder().processes(&IMAGES, processes()).build().unwrap();
    let mut other = builder().processes(&IMAGES, processes()).build().unwrap();
    let once = pool.run(images(&memory)).unwrap();
    // Through a second pool, whose workers read the memories of those of the first.
    let twice = other.run(once).unwrap();
    assert_eq!(twice.len(), 100);
    for (number, image) in (0..).zip(&twice) {
        let odd = number | 1;
        assert_eq!(image.number, odd);
        assert!(image.pixels.to_vec().unwrap().iter().all(|it| *it == odd));
    }
    drop((pool, other));
    let last = &twice[99];
    assert!(last.pixels.to_vec().unwrap().iter().all(|it| *it == 99), "the workers have ended");
}
