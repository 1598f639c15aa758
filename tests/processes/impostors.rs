//! Programs that are no workers, or workers of another kind.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gangline::error::WorkerError;
use gangline::process::{Processes, Recipe};
use gangline::{Error, OrderedRunner};
use rustix::process::{Signal, getpid, kill_process};

use crate::chores::{CHORES, Chores};
use crate::suite::tests;

tests![
    a_program_that_is_no_worker_is_named,
    a_program_that_cannot_be_started_is_named,
    a_program_that_is_killed_is_told_nothing_about_its_main,
    a_program_that_never_calls_worker_main_does_not_multiply,
    a_worker_of_another_version_refuses,
    a_worker_without_the_recipe_refuses,
    a_worker_that_writes_half_a_message_has_crashed,
    a_worker_that_writes_an_unknown_message_is_ended,
    a_worker_that_writes_too_much_is_ended,
    a_worker_that_names_memory_that_it_has_not_sent_is_ended,
    a_process_that_inherits_the_variable_is_an_ordinary_one,
];

const ROLE: &str = "GANGLINE_TEST_ROLE";

static OTHER_VERSION: Recipe<Chores> = Recipe::new("chores", Chores::from_cfg).version("2");
static OTHER_NAME: Recipe<Chores> = Recipe::new("choirs", Chores::from_cfg).version("1");

/// Plays the part that a test has given to its child.
pub fn serve_if_asked() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        "other version" => gangline::worker_main(&[&OTHER_VERSION]),
        "other name" => gangline::worker_main(&[&OTHER_NAME]),
        "half" => write_as_worker(&[0, 0, 0, 0, 65, 90, 0, 0, 0, 67, 1, 2]),
        "unknown" => write_as_worker(&[0, 0, 0, 0, 65, 1, 0, 0, 0, 200, 1]),
        "killed" => {
            kill_process(getpid(), Signal::KILL).unwrap();
            unreachable!("the signal is not blocked")
        }
        "unsent" => write_as_worker(&[0, 0, 0, 0, 65, 5, 0, 0, 0, 129, 67, 1, 3, 0, 10]),
        "not had" => write_as_worker(&[0, 0, 0, 0, 65, 3, 0, 0, 0, 130, 4, 1, 7]),
        "long" => write_as_worker(&[0, 0, 0, 0, 65, 255, 255, 255, 255, 67]),
        // Builds without `worker_main`, as a test of the usual harness would.
        "builds" => {
            let built = build(Processes::new());
            let text = format!("{:#}", built.expect_err("it would do the same, and so on"));
            std::io::stdout().write_all(text.as_bytes()).unwrap();
            std::process::exit(4);
        }
        _ => unreachable!("{role}"),
    }
}

fn write_as_worker(bytes: &[u8]) {
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    socket.write_all(bytes).unwrap();
    if bytes.last() == Some(&2) {
        std::process::exit(0);
    }
    // Until it is killed.
    while socket.read(&mut [0; 100]).is_ok_and(|length| length > 0) {}
    std::process::exit(0);
}

fn build(processes: Processes) -> Result<OrderedRunner<Chores>, Error> {
    let builder = OrderedRunner::builder(Chores::new()).devices(1);
    builder.processes(&CHORES, processes).build()
}

fn refused(processes: Processes) -> (WorkerError, String) {
    let error = build(processes).unwrap_err();
    let text = format!("{error:#}");
    match error {
        Error::Worker { source, .. } => (*source, text),
        other => panic!("{other:?}"),
    }
}

fn with_role(role: &str) -> (WorkerError, String) {
    refused(Processes::new().env(ROLE, role))
}

fn a_program_that_is_no_worker_is_named() {
    let (error, text) = refused(Processes::new().program("/bin/false"));
    assert!(matches!(error, WorkerError::NoWorker { .. }), "{error:?}");
    let expected = "/bin/false did not become a worker: it exited with status 1; its `main` must begin \
                    with `gangline::worker_main(&[&RECIPE])`";
    assert_eq!(text, expected);
}

fn a_program_that_is_killed_is_told_nothing_about_its_main() {
    let (error, text) = with_role("killed");
    assert!(matches!(error, WorkerError::NoWorker { .. }), "{error:?}");
    assert!(text.ends_with(" did not become a worker: signal 9 (SIGKILL) killed it"), "{text}");
}

fn a_program_that_cannot_be_started_is_named() {
    let (error, text) = refused(Processes::new().program("/nowhere/at/all"));
    assert!(matches!(error, WorkerError::Start { .. }), "{error:?}");
    assert!(
        text.starts_with("the worker /nowhere/at/all could not be started: No such file"),
        "{text}"
    );
}

fn a_program_that_never_calls_worker_main_does_not_multiply() {
    let (_, text) = with_role("builds");
    assert!(text.contains("exited with status 4"), "{text}");
    assert!(
        text.contains("it printed at last: this process was started as a worker and cannot"),
        "{text}"
    );
}

fn a_worker_of_another_version_refuses() {
    let (_, text) = with_role("other version");
    let expected = "the worker refused to serve: recipe \"chores\": its version is \"2\", the \
                    coordinator's is \"1\"";
    assert_eq!(text, expected);
}

fn a_worker_without_the_recipe_refuses() {
    let (_, text) = with_role("other name");
    let expected = "the worker refused to serve: it has the recipes [\"choirs\"], the coordinator asks \
                    for \"chores\"";
    assert_eq!(text, expected);
}

fn a_worker_that_writes_half_a_message_has_crashed() {
    let error = build(Processes::new().env(ROLE, "half")).unwrap_err();
    let Error::HookCrashed { source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(source.status, Some(0), "{error:?}");
}

fn a_worker_that_writes_an_unknown_message_is_ended() {
    let (_, text) = with_role("unknown");
    assert_eq!(text, "the worker could not be understood: a message is of the unknown kind 200");
}

fn a_worker_that_writes_too_much_is_ended() {
    let (_, text) = with_role("long");
    assert!(
        text.contains("a message has 4294967295 bytes; at most 268435456 are allowed"),
        "{text}"
    );
}

fn a_worker_that_names_memory_that_it_has_not_sent_is_ended() {
    let (_, text) = with_role("unsent");
    assert!(text.ends_with("memory 3: it was not offered"), "{text}");
    let (_, text) = with_role("not had");
    assert!(text.ends_with("a note on a memory was not expected: LetGo { lends: [7] }"), "{text}");
}

/// The program lists its tests instead of serving.
fn a_process_that_inherits_the_variable_is_an_ordinary_one() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.arg("--list").env("GANGLINE_WORKER", "5").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("an_ordinary_one: test"));
}
