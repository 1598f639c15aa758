//! What children print, for a function of the user.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use gangline::process::Processes;
use gangline::{Error, OrderedRunner};

use crate::chores::{CHORES, Chore, Chores, ChoresBuilder, builder};
use crate::suite::tests;

tests![
    what_an_item_prints_is_there_before_its_result,
    a_line_has_the_number_of_its_producer,
    what_is_printed_has_no_bound,
    a_process_that_prints_on_does_not_keep_its_producer,
    a_function_that_panics_costs_nothing,
    the_last_words_of_a_crash_are_there_too,
];

fn printing(
    producers: usize,
    function: impl Fn(usize, &[u8]) + Send + Sync + 'static,
) -> ChoresBuilder {
    let builder = OrderedRunner::builder(Chores::new()).devices(producers);
    builder.processes(&CHORES, Processes::new().printed(function))
}

/// Keeps what is printed.
fn keep(kept: &Arc<Mutex<Vec<u8>>>) -> impl Fn(usize, &[u8]) + Send + Sync + 'static {
    let kept = kept.clone();
    move |_, line| kept.lock().unwrap().extend_from_slice(line)
}

fn what_an_item_prints_is_there_before_its_result() {
    let kept = Arc::default();
    let mut pool = printing(1, keep(&kept)).window(2).build().unwrap();
    let texts = (0..500).map(|x| format!("{x}{}", if x % 2 == 0 { "\n" } else { ", " }));
    let mut expected = String::new();
    for (text, output) in texts.clone().zip(pool.outputs(texts.map(Chore::Print))) {
        assert_eq!(output.unwrap(), text);
        expected.push_str(&text);
        assert!(kept.lock().unwrap().starts_with(expected.as_bytes()), "{text:?} is not there");
    }
    drop(pool);
    assert_eq!(String::from_utf8(kept.lock().unwrap().clone()).unwrap(), expected);
}

fn a_line_has_the_number_of_its_producer() {
    let lines: Arc<Mutex<Vec<_>>> = Arc::default();
    let taken = lines.clone();
    let take = move |producer, line: &[u8]| taken.lock().unwrap().push((producer, line.to_vec()));
    let mut pool = printing(2, take).build().unwrap();
    let items = (0..40).map(|x| Chore::Print(format!("one\n\ntwo {x}\n")));
    pool.run(items).unwrap();
    pool.close().unwrap();
    let lines = lines.lock().unwrap();
    for producer in 0..2 {
        let own: Vec<_> = lines.iter().filter(|it| it.0 == producer).map(|it| &it.1[..]).collect();
        assert!(own.chunks(3).all(|three| three[..2] == [&b"one\n"[..], b"\n"]), "{own:?}");
    }
    assert_eq!(lines.len(), 120);
}

/// 100 MiB go through, in whole lines.
fn what_is_printed_has_no_bound() {
    let counted = Arc::new(Mutex::new((0, 0)));
    let count = counted.clone();
    let mut pool = printing(1, move |_, line| {
        let mut counted = count.lock().unwrap();
        *counted = (counted.0 + line.len(), counted.1.max(line.len()));
    })
    .build()
    .unwrap();
    let long = "x".repeat(1 << 20);
    pool.run([Chore::PrintLines(99 << 10), Chore::Print(long)]).unwrap();
    let (bytes, longest) = *counted.lock().unwrap();
    assert_eq!(bytes, 100 << 20);
    assert!(longest < 32 << 10, "{longest}");
}

/// The function is slower than the process.
fn a_process_that_prints_on_does_not_keep_its_producer() {
    let slow = |_: usize, _: &[u8]| thread::sleep(Duration::from_micros(100));
    let mut pool = printing(1, slow).build().unwrap();
    let pid = pool.run([Chore::PrintOn, Chore::Pid]).unwrap().remove(1);
    assert_eq!(pool.run([Chore::Pid]).unwrap(), [pid], "the same process");
    pool.close().unwrap();
}

fn a_function_that_panics_costs_nothing() {
    let kept = Arc::default();
    let keep = keep(&kept);
    let mut pool = printing(1, move |producer, line| {
        keep(producer, line);
        assert_ne!(line, b"bad\n");
    })
    .build()
    .unwrap();
    let texts = ["good\n", "bad\n", "better\n"];
    assert_eq!(pool.run(texts.map(|it| Chore::Print(it.to_owned()))).unwrap(), texts);
    assert_eq!(*kept.lock().unwrap(), texts.concat().as_bytes());
}

fn the_last_words_of_a_crash_are_there_too() {
    let kept = Arc::default();
    let mut pool = printing(1, keep(&kept)).build().unwrap();
    let error = pool.run([Chore::LastWords("farewell".to_owned())]).unwrap_err();
    let Error::HookCrashed { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("farewell"), "{source}");
    assert_eq!(*kept.lock().unwrap(), b"farewell");
    let logged = builder(1).build().unwrap().run([Chore::Print("to the log\n".to_owned())]);
    assert_eq!(logged.unwrap(), ["to the log\n"]);
}
