//! Programs that execute themselves again.

#![cfg(unix)]

use std::fs;
use std::io::{Read, Write};
use std::process::{self, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};

use super::*;

/// Names the file that gets a byte each time the child begins, and the devices.
const EXECUTIONS: &str = "GANGLINE_TEST_EXECUTIONS";
const DEVICES: &str = "GANGLINE_TEST_DEVICES";
const STATUS: i32 = 7;

/// What a child has shown of itself, and how often it has begun.
struct Shown {
    line: String,
    executions: usize,
}

/// Counts the events that are logged.
struct Count(Arc<AtomicUsize>);

impl<S: Subscriber> Layer<S> for Count {
    fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// How many warnings two producers log that open the CPU.
fn warnings() -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    tracing::subscriber::with_default(
        tracing_subscriber::registry().with(Count(count.clone())),
        || {
            warn_if_candle_counts();
            warn_if_candle_counts();
        },
    );
    count.load(SeqCst)
}

/// What the test below does as a child.
fn be_the_child(executions: &str) -> ! {
    let mut file = fs::File::options().append(true).create(true).open(executions).unwrap();
    file.write_all(b"x").unwrap();
    candle_threads(&env::var(DEVICES).unwrap().parse::<Devices>().unwrap().names_only()).unwrap();
    let mut input = String::new();
    io::stdin().read_to_string(&mut input).unwrap();
    let value = |name| env::var(name).unwrap_or_else(|_| "none".to_owned());
    let (rayon, own) = (value(RAYON), value(OWN));
    let arguments: Vec<_> = env::args().skip(2).collect();
    let line = format!("{} {rayon} {own} {} {input} {arguments:?}", process::id(), warnings());
    fs::write(format!("{executions}.line"), line).unwrap();
    process::exit(STATUS)
}

/// Starts the test `a_program_is_executed_again_once` as a child.
fn child(devices: &str, set: &[(&str, &str)]) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let executions = folder.path().join("executions");
    let name = "device::thread_variables::tests::a_program_is_executed_again_once";
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env_remove(RAYON).env_remove(OWN);
    command.env(EXECUTIONS, &executions).env(DEVICES, devices).envs(set.iter().copied());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"typed").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(STATUS));
    let line = fs::read_to_string(folder.path().join("executions.line")).unwrap();
    let rest = line.strip_prefix(&child.id().to_string()).expect("the same process");
    let rest = rest.strip_suffix(r#" typed ["--exact", "--nocapture"]"#);
    Shown {
        line: rest.expect("the same input and arguments").trim().to_owned(),
        executions: fs::read(executions).unwrap().len(),
    }
}

#[track_caller]
fn check(devices: &str, set: &[(&str, &str)], executions: usize, variables: &str) {
    let shown = child(devices, set);
    assert_eq!((shown.executions, shown.line.as_str()), (executions, variables), "{devices}");
}

#[test]
fn a_program_is_executed_again_once() {
    if let Ok(executions) = env::var(EXECUTIONS) {
        be_the_child(&executions);
    }
    let cores = num_cpus::get();
    check("cpu*2", &[], 2, &format!("{cores} 1 0"));
    check("cpu", &[], 2, &format!("{cores} none 0"));
    check("cuda:0,cpu", &[(OWN, "5")], 2, &format!("{cores} 5 0"));
}

#[test]
fn a_program_that_needs_no_variable_is_not_executed_again() {
    let warnings = usize::from(cfg!(target_os = "linux"));
    check("cuda:0*2", &[], 1, &format!("none none {warnings}"));
    check("cpu*2", &[(RAYON, "3")], 1, "3 none 0");
    check("cpu*2", &[(RAYON, "")], 1, "none 0");
}

#[test]
fn a_child_has_the_threads_of_its_pool() {
    if env::var_os(RAYON).is_none() {
        assert_eq!(rayon_variable(Some(3)), Some((RAYON, "3".to_owned())));
        assert_eq!(rayon_variable(None), Some((RAYON, num_cpus::get().to_string())));
    }
}
