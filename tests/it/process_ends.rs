//! Hooks that end their process, and processes in which threads cannot be started or that are stopped. Each test runs
//! itself once more as a child process.

#[cfg(unix)]
use std::io::{BufRead, BufReader, Read, Write};
#[cfg(unix)]
use std::process::Stdio;
use std::process::{Command, Output};
#[cfg(unix)]
use std::time::Duration;

use gangline::{AnyOrderRunner, Error, Hook, Order, OrderedRunner, ProducerContext};

use crate::probe::Probe;
use crate::support::{map, no_hang};

/// Set in a child: what it is to do.
const PART: &str = "GANGLINE_TEST_PART";

/// Runs the test `name` of this module in a child process, limited by `limit`, a command of the
/// shell. In the child itself it calls `part` and returns nothing.
#[track_caller]
fn in_child(name: &str, limit: &str, part: impl FnOnce() + Send + 'static) -> Option<Output> {
    let mut child = child_of(name, limit, part)?;
    Some(no_hang(move || child.output().unwrap()))
}

/// The command for that, which is not started yet.
#[track_caller]
fn child_of(name: &str, limit: &str, part: impl FnOnce() + Send + 'static) -> Option<Command> {
    if std::env::var_os(PART).is_some() {
        no_hang(part);
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let name = format!("process_ends::{name}");
    let mut child = Command::new("sh");
    child.arg("-c").arg(format!("ulimit -c 0; {limit}; exec \"$0\" \"$@\"")).arg(program);
    // One arena, so that the memory that threads reserve is that of their stacks.
    child.args([&name, "--exact", "--nocapture"]).env(PART, &name).env("MALLOC_ARENA_MAX", "1");
    // And no producer has more threads than its own, however many cores there are.
    child.env("RAYON_NUM_THREADS", "1").env_remove("RUST_BACKTRACE");
    Some(child)
}

const NO_LIMIT: &str = "true";

#[track_caller]
fn succeeds(output: &Output) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", output.status);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("1 passed"), "{text}");
}

/// The process is ended by `abort`, having said why.
#[cfg(unix)]
#[track_caller]
fn aborts(output: &Output, why: &str) {
    use std::os::unix::process::ExitStatusExt;

    let text = String::from_utf8_lossy(&output.stderr);
    const SIGABRT: i32 = 6;
    assert_eq!(output.status.signal(), Some(SIGABRT), "{}: {text}", output.status);
    assert!(text.contains(why), "{text}");
}

/// Runs `work` on items that it does not survive.
fn run_to_the_end_of_the_process(work: fn(u64) -> u64) {
    let runner = OrderedRunner::new(map(|_| Ok(()), move |_, _, x| Ok(work(x))), 2);
    let _ = runner.unwrap().run([1_000_000, 1_000_001, 1_000_002]);
    unreachable!("the process is gone");
}

/// Nothing in the same process can contain it.
#[test]
#[cfg(unix)]
fn a_panic_while_a_panic_unwinds_ends_the_process() {
    struct PanicsAlways;
    impl Drop for PanicsAlways {
        fn drop(&mut self) {
            panic!("the destructor");
        }
    }
    let name = "a_panic_while_a_panic_unwinds_ends_the_process";
    let output = in_child(name, NO_LIMIT, || {
        run_to_the_end_of_the_process(|_| {
            let _inner = PanicsAlways;
            panic!("the outer panic")
        });
    });
    if let Some(output) = output {
        aborts(&output, "the outer panic");
        aborts(&output, "the destructor");
    }
}

/// Takes more than half a kilobyte of stack for each level.
fn deep(levels: u64) -> u64 {
    let frame = std::hint::black_box([levels; 64]);
    if levels == 0 { 0 } else { deep(levels - 1) + frame[0] - levels + 1 }
}

/// Nothing in the same process can contain it.
#[test]
#[cfg(unix)]
fn a_stack_overflow_ends_the_process() {
    let output = in_child("a_stack_overflow_ends_the_process", NO_LIMIT, || {
        run_to_the_end_of_the_process(deep);
    });
    if let Some(output) = output {
        aborts(&output, "gangline-p");
        aborts(&output, "overflowed its stack");
    }
}

/// As deep as this overflows the stack that a thread has by default.
#[test]
fn a_larger_stack_holds_deeper_hooks() {
    no_hang(|| {
        let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, _, x| Ok(deep(x))))
            .devices(2)
            .stack_size(64 << 20)
            .build()
            .unwrap();
        assert_eq!(runner.run([10_000, 10_001]).unwrap(), [10_000, 10_001]);
    });
}

#[test]
fn a_hook_that_exits_ends_the_process_with_its_code() {
    let output = in_child("a_hook_that_exits_ends_the_process_with_its_code", NO_LIMIT, || {
        run_to_the_end_of_the_process(|_| std::process::exit(42));
    });
    if let Some(output) = output {
        assert_eq!(output.status.code(), Some(42), "{}", output.status);
    }
}

/// Its threads go on waiting, which keeps no process from ending.
#[test]
fn a_forgotten_runner_does_not_hold_the_process() {
    let output = in_child("a_forgotten_runner_does_not_hold_the_process", NO_LIMIT, || {
        let mut runner = OrderedRunner::new(Probe::new(), 3).unwrap();
        let input = runner.runner().tally().input(0..1000);
        let mut stream = runner.outputs(input);
        assert!(stream.next().unwrap().is_ok());
        std::mem::forget(stream);
        std::mem::forget(runner);
    });
    if let Some(output) = output {
        succeeds(&output);
    }
}

/// In kilobytes: room for some stacks of 256 MiB.
#[cfg(target_os = "linux")]
const LITTLE_MEMORY: &str = "ulimit -v 4000000";
#[cfg(target_os = "linux")]
const LARGE_STACK: usize = 256 << 20;

#[track_caller]
fn check_thread_error(error: &Error, name: &str) {
    assert!(matches!(error, Error::Thread { .. }), "{error:#}");
    assert!(error.to_string().contains(name), "{error:#}");
    assert!(std::error::Error::source(error).unwrap().is::<std::io::Error>());
    assert!(!error.is_panic() && !error.is_cancelled() && !error.is_closed());
}

/// The producers that were started are ended, and the runner stays closed.
#[test]
#[cfg(target_os = "linux")]
fn more_devices_than_threads_can_be_started() {
    let name = "more_devices_than_threads_can_be_started";
    let output = in_child(name, LITTLE_MEMORY, || {
        let probe = Probe::new();
        let tally = probe.tally();
        let error = AnyOrderRunner::builder(probe)
            .devices(1000)
            .stack_size(LARGE_STACK)
            .build()
            .unwrap_err();
        check_thread_error(&error, "gangline-p");
        let started = tally.called(Hook::ProducerInit).get();
        assert!((1..1000).contains(&started), "{started}");
        assert_eq!(tally.succeeded(Hook::ProducerEnd).get(), started);
        tally.check_closed();
        OrderedRunner::builder(Probe::new()).devices(1).stack_size(LARGE_STACK).build().unwrap();
    });
    if let Some(output) = output {
        succeeds(&output);
    }
}

/// The same with the threads of one producer.
#[test]
#[cfg(all(target_os = "linux", feature = "rayon"))]
fn more_cpu_threads_than_can_be_started() {
    let name = "more_cpu_threads_than_can_be_started";
    let output = in_child(name, LITTLE_MEMORY, || {
        let probe = Probe::new();
        let tally = probe.tally();
        let builder = AnyOrderRunner::builder(probe).devices(1).stack_size(LARGE_STACK);
        let error = builder.cpu_threads(1000).build().unwrap_err();
        check_thread_error(&error, "gangline-p0-");
        assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
        tally.check_closed();
        OrderedRunner::builder(Probe::new()).devices(1).stack_size(LARGE_STACK).build().unwrap();
    });
    if let Some(output) = output {
        succeeds(&output);
    }
}

#[test]
fn no_thread_can_be_started() {
    no_hang(|| {
        for order in [Order::Input, Order::Completion] {
            let probe = Probe::new();
            let tally = probe.tally();
            // More than there are addresses.
            let builder =
                AnyOrderRunner::builder(probe).devices(3).order(order).stack_size(usize::MAX / 4);
            check_thread_error(&builder.build().unwrap_err(), "gangline-p0");
            assert_eq!(tally.called(Hook::ProducerInit).get(), 0);
            tally.check_closed();
        }
    });
}

/// The producers have taken all the memory that there is for stacks.
#[test]
#[cfg(target_os = "linux")]
fn no_thread_can_be_started_for_the_consumer() {
    let name = "no_thread_can_be_started_for_the_consumer";
    let output = in_child(name, LITTLE_MEMORY, || {
        let fits = |devices| {
            let builder = AnyOrderRunner::builder(Probe::new()).devices(devices);
            builder.stack_size(LARGE_STACK).build().ok()
        };
        let most = (1..).take_while(|&devices| fits(devices).is_some()).last().unwrap();
        let mut runner = fits(most).unwrap();
        let tally = runner.runner().tally();
        for _ in 0..3 {
            let error = runner.run(tally.input(0..5)).unwrap_err();
            check_thread_error(&error, "gangline-c");
            assert_eq!(tally.pulled.get(), 0);
            tally.check_account(runner.account());
        }
        let outputs = runner.outputs(tally.input(0..5));
        assert_eq!(outputs.map(Result::unwrap).count(), 5, "a stream needs no thread");
        runner.close().unwrap();
        tally.check_closed();
    });
    if let Some(output) = output {
        succeeds(&output);
    }
}

/// In the child: an item lasts until the child is told to go on, with a limit of a second.
#[cfg(unix)]
fn works_until_told() {
    let work = |_: &ProducerContext<'_>, _: &mut (), x: u64| {
        std::io::Write::write_all(&mut std::io::stdout(), b"in the hook\n")?;
        std::io::stdin().read_line(&mut String::new())?;
        Ok(x)
    };
    let builder = OrderedRunner::builder(map(|_| Ok(()), work)).devices(1);
    let mut runner = builder.item_timeout(Duration::from_secs(1)).build().unwrap();
    assert_eq!(runner.run([7]).unwrap(), [7]);
}

#[cfg(unix)]
#[track_caller]
fn signal(signal: &str, process: u32) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

/// The time for which a process is stopped is no time of its hooks.
#[test]
#[cfg(unix)]
fn a_process_that_was_stopped_does_not_time_out() {
    let name = "a_process_that_was_stopped_does_not_time_out";
    let Some(mut command) = child_of(name, NO_LIMIT, works_until_told) else { return };
    no_hang(move || {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("in the hook") {
            line.clear();
            assert_ne!(output.read_line(&mut line).unwrap(), 0, "the child is gone");
        }
        signal("-STOP", child.id());
        // What is tested is that time goes by.
        std::thread::sleep(Duration::from_millis(1_500));
        signal("-CONT", child.id());
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        let status = child.wait().unwrap();
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{status}: {text} {errors}");
        assert!(text.contains("1 passed"), "{text}");
    });
}
