//! Runs in which nothing goes wrong.

use gangline::process::Processes;
use gangline::{Batch, CfgNode, OrderedRunner};

use crate::chores::{CHORES, Chore, Chores, PACKED, builder, seeds, squared, squares};
use crate::suite::tests;

tests![
    results_are_those_of_threads_in_order,
    producers_live_in_processes_of_their_own_through_all_runs,
    the_configuration_reaches_the_worker,
    the_seeds_of_items_are_those_of_threads,
    a_large_item_passes,
    the_other_codec_serves_too,
    a_producer_knows_its_place,
    a_producer_may_see_all_gpus,
    hooks_run_on_the_main_thread,
    hooks_have_the_stack_that_was_asked_for,
    a_function_around_producers_is_for_threads,
    rayon_in_a_child_has_the_threads_of_its_producer,
    outputs_and_services_work,
    a_service_works_on_a_stream_beside_calls,
    a_pipeline_mixes_threads_and_processes,
    an_activated_pool_has_new_processes,
    items_can_be_copied_to_another_process,
];

fn results_are_those_of_threads_in_order() {
    let mut pool = builder(3).build().unwrap();
    for _ in 0..2 {
        assert_eq!(pool.run(squares(0..500)).unwrap(), squared(0..500));
        assert_eq!(pool.account().ok, 500);
    }
    pool.close().unwrap();
}

fn producers_live_in_processes_of_their_own_through_all_runs() {
    let mut pool = builder(1).build().unwrap();
    let first = pool.run([Chore::Pid]).unwrap();
    assert_ne!(first, [std::process::id().to_string()]);
    assert_eq!(pool.run([Chore::Pid, Chore::Pid]).unwrap(), [first.clone(), first].concat());
}

fn the_configuration_reaches_the_worker() {
    let cfg = CfgNode::new().with("exponent", 3).unwrap().with("x", f64::INFINITY).unwrap();
    let mut pool = builder(1).cfg(cfg).build().unwrap();
    assert_eq!(pool.run(squares(0..4)).unwrap(), ["0", "1", "8", "27"]);
}

fn the_seeds_of_items_are_those_of_threads() {
    for batch in [1, 4] {
        let builder = builder(3).seed(7).batch(Batch::up_to(batch));
        let mut pool = builder.build().unwrap();
        assert_eq!(pool.run(vec![Chore::Seed; 40]).unwrap(), seeds(40));
    }
    let mut pool = builder(2).seed(8).build().unwrap();
    assert_ne!(pool.run(vec![Chore::Seed; 40]).unwrap(), seeds(40));
}

fn a_large_item_passes() {
    let mut pool = builder(2).build().unwrap();
    let text = "x".repeat(5_000_000);
    let items = (0..4).map(|_| Chore::Text(text.clone()));
    assert_eq!(pool.run(items).unwrap(), vec![text.clone(); 4]);
}

fn the_other_codec_serves_too() {
    let builder = OrderedRunner::builder(Chores::new()).devices(2);
    let mut pool = builder.processes(&PACKED, Processes::new()).build().unwrap();
    assert_eq!(pool.run(squares(0..50)).unwrap(), squared(0..50));
}

fn a_producer_knows_its_place() {
    let devices: gangline::Devices = "cpu,cuda:5+cuda:3".parse().unwrap();
    let builder = OrderedRunner::builder(Chores::new()).devices(devices.names_only());
    let processes = Processes::new().env_remove("CUDA_VISIBLE_DEVICES");
    let builder = builder.processes(&CHORES, processes).batch(gangline::Batch::up_to(1));
    let mut pool = builder.build().unwrap();
    let seen = pool.run((0..40).map(|_| Chore::Surroundings)).unwrap();
    assert_eq!(seen.len(), 40);
    for (item, text) in seen.iter().enumerate() {
        let end = format!("item Some({item}) attempt 1");
        let on_cpu = text.starts_with("main cpu 0/2");
        let on_gpu = text.starts_with("main cuda:0 1/2");
        assert!((on_cpu || on_gpu) && text.ends_with(&end), "{text}");
    }
}

fn a_producer_may_see_all_gpus() {
    let seen = |processes| {
        let devices: gangline::Devices = "cuda:5+cuda:3".parse().unwrap();
        let builder = OrderedRunner::builder(Chores::new()).devices(devices.names_only());
        let mut pool = builder.processes(&CHORES, processes).build().unwrap();
        pool.run([Chore::Surroundings]).unwrap().remove(0)
    };
    let here = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let text = seen(Processes::new().all_gpus_visible());
    assert_eq!(text, format!("main cuda:5 0/1 {here:?} item Some(0) attempt 1"));
    if here.is_empty() {
        let text = seen(Processes::new());
        assert_eq!(text, r#"main cuda:0 0/1 "5,3" item Some(0) attempt 1"#);
    }
}

/// With `cpu_threads`, it is the first thread of a pool of rayon's.
fn hooks_run_on_the_main_thread() {
    for threads in [0, 1, 2] {
        let builder = OrderedRunner::builder(Chores::new()).devices("cpu");
        let builder = match threads {
            0 => builder,
            _ => builder.cpu_threads(threads),
        };
        let mut pool = builder.processes(&CHORES, Processes::new()).build().unwrap();
        let seen = pool.run([Chore::Thread, Chore::Panic("a new state".into()), Chore::Thread]);
        assert!(seen.is_err(), "{threads}: {seen:?}");
        assert_eq!(pool.run(vec![Chore::Thread; 3]).unwrap(), ["main true"; 3], "{threads}");
        pool.close().unwrap();
    }
}

/// That of the main thread is not ours to choose.
fn hooks_have_the_stack_that_was_asked_for() {
    let mut pool = builder(1).stack_size(64 << 20).build().unwrap();
    let items = [Chore::Thread, Chore::Deep(8 << 20), Chore::Pid];
    let seen = pool.run(items).unwrap();
    assert_eq!(seen[..2], ["gangline-p0 false", ""]);
    pool.close().unwrap();
}

/// The hooks run in children, so it is not called, and cannot fail.
fn a_function_around_producers_is_for_threads() {
    let mut pool = builder(2).around_producers(|_| panic!("it is called")).build().unwrap();
    assert_eq!(pool.run(squares(0..9)).unwrap(), squared(0..9));
    pool.close().unwrap();
}

/// The value of rayon's variable in a child with two threads.
fn rayon_variable(processes: Processes) -> Option<String> {
    let builder = OrderedRunner::builder(Chores::new()).devices("cpu*2");
    let builder = builder.cpu_threads(2);
    let mut pool = builder.processes(&CHORES, processes).build().unwrap();
    let pid = pool.run([Chore::Pid]).unwrap().remove(0);
    let variables = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let mut values = variables.split('\0').filter_map(|it| it.strip_prefix("RAYON_NUM_THREADS="));
    values.next().map(str::to_owned)
}

fn rayon_in_a_child_has_the_threads_of_its_producer() {
    assert_eq!(
        rayon_variable(Processes::new().env("RAYON_NUM_THREADS", "7")).as_deref(),
        Some("7")
    );
    let inherited = std::env::var("RAYON_NUM_THREADS").ok();
    let given = cfg!(feature = "rayon").then(|| "2".to_owned());
    assert_eq!(rayon_variable(Processes::new()), inherited.or(given));
}

fn outputs_and_services_work() {
    let mut pool = builder(2).build().unwrap();
    let outputs: Vec<_> = pool.outputs(squares(0..20)).map(|it| it.unwrap()).collect();
    assert_eq!(outputs, squared(0..20));
    let service = pool.into_service();
    assert_eq!(service.call(Chore::Square(5)).unwrap(), "25");
    let error = service.call(Chore::Abort).unwrap_err();
    assert!(matches!(error, gangline::Error::HookCrashed { .. }), "{error:?}");
    assert_eq!(service.call(Chore::Square(6)).unwrap(), "36", "the service goes on");
}

/// Quick items are sent to a child before it begins them, and come back for calls; a crash costs one item.
fn a_service_works_on_a_stream_beside_calls() {
    let service = builder(2).build().unwrap().into_service();
    let mut items = squares(0..3_000);
    items[1_500] = Chore::Abort;
    let stream = service.stream(items);
    let taken = std::thread::spawn(move || stream.collect::<Vec<_>>());
    for (x, square) in (0..300).zip(squared(0..300)) {
        assert_eq!(service.call(Chore::Square(x)).unwrap(), square);
    }
    let mut results = taken.join().unwrap();
    let crashed = results.remove(1_500).unwrap_err();
    assert!(matches!(crashed, gangline::Error::HookCrashed { .. }), "{crashed:?}");
    let mut expected = squared(0..3_000);
    expected.remove(1_500);
    assert_eq!(results.into_iter().map(Result::unwrap).collect::<Vec<_>>(), expected);
    assert_eq!((service.account().ok, service.stream_account().ok), (3_299, 2_999));
}

fn a_pipeline_mixes_threads_and_processes() {
    let first = builder(1).build().unwrap();
    let lengths = gangline::map(|_| Ok(()), |_, (), text: String| Ok(text.len()));
    let mut second = OrderedRunner::builder(lengths).devices(1).build().unwrap();
    let mut pipeline = first.then(&mut second);
    assert_eq!(pipeline.run(squares(8..12)).unwrap(), [2, 2, 3, 3]);
}

fn an_activated_pool_has_new_processes() {
    let mut pool = builder(1).build().unwrap();
    let first = pool.run([Chore::Pid]).unwrap();
    pool.close().unwrap();
    pool.activate().unwrap();
    assert_ne!(pool.run([Chore::Pid]).unwrap(), first);
}

fn items_can_be_copied_to_another_process() {
    let mut pool = builder(2).speculate().build().unwrap();
    let mut items = squares(0..20);
    items.push(Chore::Sleep(300));
    assert_eq!(pool.run(items).unwrap()[..20], squared(0..20));
    pool.close().unwrap();
}
