//! Locks of GPUs: between processes, which are this one once more, and between runners.
//!
//! UUIDs are told by `CUDA_VISIBLE_DEVICES`, which only a child can be given; the devices are labels.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use gangline::{
    AnyOrderRunner, CancelToken, DeviceError, Devices, Error, GpuHolder, GpuLock, Hook,
    OrderedRunner, Pool,
};
use tempfile::TempDir;

use crate::probe::{Fault, Probe};
use crate::support::no_hang;

const ONE: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
const TWO: &str = "GPU-8a56a4bc-0184-1c1d-9ff7-0a1b2c3d4e5f";

/// Set in a child: what it is to do.
const PART: &str = "GANGLINE_TEST_LOCK_PART";
/// Where the locks are; nothing stands for the directory that they have by default.
const DIRECTORY: &str = "GANGLINE_TEST_LOCK_DIRECTORY";
const DEVICES: &str = "GANGLINE_TEST_LOCK_DEVICES";

/// What stands before what a child says, among what the test harness says.
const SAYS: &str = "says: ";

/// A process that does a part. Killed when dropped.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `part` with GPUs that are visible to it.
    fn start(part: &str, devices: &str, visible: Option<&str>, directory: &Path) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["gpu_lock::parts", "--exact", "--nocapture"]).env_remove("RUST_BACKTRACE");
        command.env(PART, part).env(DEVICES, devices).env(DIRECTORY, directory);
        match visible {
            Some(visible) => command.env("CUDA_VISIBLE_DEVICES", visible),
            None => command.env_remove("CUDA_VISIBLE_DEVICES"),
        };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    /// What it says next.
    #[track_caller]
    fn says(&mut self) -> String {
        loop {
            let line = self.lines.next().expect("it says something").unwrap();
            if let Some((_, said)) = line.split_once(SAYS) {
                return said.to_owned();
            }
        }
    }

    /// Has it close its runner, and end.
    #[track_caller]
    fn close(mut self) {
        self.child.stdin.take().unwrap().write_all(b"close\n").unwrap();
        assert_eq!(self.says(), "closed");
        assert!(self.child.wait().unwrap().success());
    }

    #[track_caller]
    fn succeeds(mut self) {
        assert_eq!(self.says(), "done");
        assert!(self.child.wait().unwrap().success());
    }

    /// By SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(text: impl std::fmt::Display) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{SAYS}{text}").and_then(|()| out.flush()).unwrap();
}

fn or_fail() -> GpuLock {
    in_directory(GpuLock::or_fail())
}

fn or_wait() -> GpuLock {
    in_directory(GpuLock::or_wait())
}

fn in_directory(lock: GpuLock) -> GpuLock {
    match std::env::var_os(DIRECTORY).unwrap() {
        none if none.is_empty() => lock,
        directory => lock.in_dir(directory),
    }
}

fn devices(text: &str) -> Devices {
    text.parse::<Devices>().unwrap().names_only()
}

fn build(text: &str, lock: GpuLock) -> Result<OrderedRunner<Probe>, Error> {
    OrderedRunner::builder(Probe::new()).devices(devices(text)).lock_gpus(lock).build()
}

#[track_caller]
fn is_in_use<R: gangline::Runner, O>(built: Result<Pool<R, O>, Error>) {
    let error = built.expect_err("somebody else has it");
    assert!(
        matches!(&error, Error::Devices { source: DeviceError::InUse { holder: GpuHolder::Process { pid, .. }, .. }, .. } if *pid == std::process::id()),
        "{error:#}"
    );
}

/// What the processes of the other tests do; by itself nothing.
#[test]
fn parts() {
    let Ok(part) = std::env::var(PART) else { return };
    no_hang(move || match part.as_str() {
        "or_fail" => hold(or_fail()),
        "or_wait" => hold(or_wait()),
        "runners" => runners_of_one_process(),
        "until_all_have_ended" => a_gpu_is_kept_until_all_have_ended(),
        "failed_builds" => a_build_that_fails_gives_back(),
        "cancelled" => waiting_can_be_cancelled(),
        "two_orders" => runners_with_two_orders(),
        part => panic!("{part}?"),
    });
}

fn hold(lock: GpuLock) {
    match build(&std::env::var(DEVICES).unwrap(), lock) {
        Err(error) => say(format!("{error:#}")),
        Ok(mut runner) => {
            say("it has it");
            std::io::stdin().read_line(&mut String::new()).unwrap();
            runner.close().unwrap();
            say("closed");
        }
    }
}

/// Starts parts with a directory of their own.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        Machine(tempfile::tempdir().unwrap())
    }

    fn start(&self, part: &str, devices: &str, visible: &str) -> Process {
        Process::start(part, devices, Some(visible), self.0.path())
    }

    /// A process that has its GPUs.
    #[track_caller]
    fn holder(&self, devices: &str, visible: &str) -> Process {
        let mut holder = self.start("or_fail", devices, visible);
        assert_eq!(holder.says(), "it has it");
        holder
    }

    #[track_caller]
    fn is_refused(&self, devices: &str, visible: &str) -> String {
        self.start("or_fail", devices, visible).says()
    }

    /// Runs a part in which everything is asserted.
    #[track_caller]
    fn passes(&self, part: &str, visible: &str) {
        self.start(part, "", visible).succeeds();
    }
}

#[test]
fn another_process_is_told_who_has_it() {
    no_hang(|| {
        let machine = Machine::new();
        let holder = machine.holder("cuda:0*2,cpu", ONE);
        let error = machine.is_refused("cuda:0", ONE);
        let expected = format!("cuda:0 ({ONE}) is in use: process {} (", holder.child.id());
        assert!(error.starts_with(&expected), "{error}");
        assert!(error.contains("gpu_lock::parts --exact"), "{error}");
        let path = machine.0.path().join(format!("gangline-{ONE}.lock"));
        assert!(error.ends_with(&format!(") has its lock {}", path.display())), "{error}");
        holder.close();
        machine.holder("cuda:0", ONE).close();
    });
}

/// Whatever index it has for either, and however its UUID is written.
#[test]
fn it_is_the_gpu_that_is_locked() {
    no_hang(|| {
        let machine = Machine::new();
        let holder = machine.holder("cuda:1", &format!("{ONE},{}", TWO.to_uppercase()));
        let error = machine.is_refused("cpu,cuda:0", TWO);
        assert!(error.starts_with(&format!("cuda:0 ({TWO}) is in use: ")), "{error}");
        machine.holder("cuda:0", ONE).close();
        holder.close();
    });
}

#[test]
fn a_killed_process_has_it_no_more() {
    no_hang(|| {
        let machine = Machine::new();
        for _ in 0..3 {
            machine.holder("cuda:0", ONE).kill();
        }
        machine.holder("cuda:0", ONE).close();
    });
}

#[test]
fn it_is_waited_for_until_it_is_free() {
    no_hang(|| {
        let machine = Machine::new();
        let holder = machine.holder("cuda:0", ONE);
        let mut waiting = machine.start("or_wait", "cuda:0", ONE);
        let error = machine.is_refused("cuda:0", ONE);
        assert!(error.contains(&format!("process {} (", holder.child.id())), "{error}");
        holder.close();
        assert_eq!(waiting.says(), "it has it");
        let mut next = machine.start("or_wait", "cuda:0", ONE);
        waiting.kill();
        assert_eq!(next.says(), "it has it");
        next.close();
    });
}

/// One that has some of its GPUs and not all gives them back.
#[test]
fn all_or_none() {
    no_hang(|| {
        let machine = Machine::new();
        let both = format!("{TWO},{ONE}");
        let holder = machine.holder("cuda:0", TWO);
        let error = machine.is_refused("cuda:0+cuda:1", &both);
        assert!(error.starts_with(&format!("cuda:0 ({TWO}) is in use: ")), "{error}");
        machine.holder("cuda:0", ONE).close();
        holder.close();
        machine.holder("cuda:0+cuda:1", &both).close();
    });
}

/// Two GPUs that are listed in another order are locked in the same one.
#[test]
fn two_orders_do_not_wait_for_each_other() {
    no_hang(|| Machine::new().passes("two_orders", &format!("{ONE},{TWO}")));
}

fn runners_with_two_orders() {
    let threads = ["cuda:0,cuda:1", "cuda:1,cuda:0", "cuda:1+cuda:0"].map(|devices| {
        std::thread::spawn(move || (0..20).for_each(|_| drop(build(devices, or_wait()).unwrap())))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    say("done");
}

#[test]
fn runners_of_one_process_do_not_meet_either() {
    no_hang(|| Machine::new().passes("runners", &format!("{ONE},{TWO}")));
}

fn runners_of_one_process() {
    let mut first = build("cuda:0*2,cpu,cuda:0+cpu", or_fail()).unwrap();
    is_in_use(build("cuda:0", or_fail()));
    let other = build("cuda:1", or_fail()).unwrap();
    first.close().unwrap();
    let second = build("cuda:0", or_fail()).unwrap();
    let error = first.activate().unwrap_err();
    assert!(error.to_string().starts_with("cuda:0 (GPU-8932"), "{error}");
    assert!(!first.is_active());
    drop(second);
    first.activate().unwrap();
    first.activate().unwrap();
    is_in_use(build("cuda:0", or_fail()));
    // Who does not ask is not kept from anything.
    OrderedRunner::new(Probe::new(), devices("cuda:0,cuda:1")).unwrap();
    drop((first, other));
    build("cuda:0-1", or_fail()).unwrap();
    say("done");
}

#[test]
fn it_is_kept_until_all_producers_have_ended() {
    no_hang(|| Machine::new().passes("until_all_have_ended", ONE));
}

fn a_gpu_is_kept_until_all_have_ended() {
    let probe = Probe::new()
        .on_producer(Hook::ProducerInit, |_| {
            is_in_use(build("cuda:0", or_fail()));
            Ok(())
        })
        .on_producer(Hook::ProducerEnd, |_| {
            is_in_use(build("cuda:0", or_fail()));
            Ok(())
        });
    let built = AnyOrderRunner::builder(probe)
        .devices(devices("cpu,cuda:0*3"))
        .lock_gpus(or_fail())
        .build();
    built.unwrap().close().unwrap();
    build("cuda:0", or_fail()).unwrap();
    say("done");
}

#[test]
fn a_failed_build_gives_it_back() {
    no_hang(|| Machine::new().passes("failed_builds", ONE));
}

fn a_build_that_fails_gives_back() {
    for fault in Fault::BOTH {
        let probe = Probe::new().on_producer(Hook::ProducerInit, move |_| fault.strike());
        let builder =
            AnyOrderRunner::builder(probe).devices(devices("cuda:0*2")).lock_gpus(or_fail());
        assert_eq!(builder.build().unwrap_err().hook(), Some(Hook::ProducerInit));
        build("cuda:0", or_fail()).unwrap();
    }
    say("done");
}

#[test]
fn a_wait_is_cancelled() {
    no_hang(|| Machine::new().passes("cancelled", ONE));
}

fn waiting_can_be_cancelled() {
    let holder = build("cuda:0", or_fail()).unwrap();
    let token = CancelToken::new();
    let builder = || {
        let builder = OrderedRunner::builder(Probe::new()).devices(devices("cuda:0"));
        builder.lock_gpus(or_wait())
    };
    let waiting = builder().cancel_token(token.clone());
    let thread = std::thread::spawn(move || waiting.build().map(drop));
    // Whether it waits already or has not begun.
    token.cancel();
    let error = thread.join().unwrap().unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
    let token = CancelToken::new();
    token.cancel();
    let error = builder().cancel_token(token).build().unwrap_err();
    assert!(error.is_cancelled(), "{error:#}");
    is_in_use(build("cuda:0", or_fail()));
    drop(holder);
    let mut runner = builder().build().unwrap();
    let tally = runner.runner().tally();
    runner.run(tally.input(0..3)).unwrap();
    say("done");
}

/// Never silently without a lock.
#[test]
fn a_gpu_without_a_known_uuid_is_refused() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let refused = |visible: Option<&str>| {
            Process::start("or_fail", "cpu,cuda:0", visible, directory.path()).says()
        };
        for visible in [None, Some("0"), Some("GPU-8932f937")] {
            let error = refused(visible);
            // Where there is a driver to be asked, it knows of no such GPU, or has a MIG device there.
            let is_refused = cfg!(feature = "nvml") && error == "it has it"
                || error.contains("as nvidia-smi -L shows it")
                || error.contains("is no GPU of this machine");
            assert!(is_refused, "{error}");
        }
        let error = refused(Some(""));
        assert!(error.starts_with("GPU 0 is not visible: "), "{error}");
        let error = refused(Some("MIG-4f1c"));
        assert!(error.starts_with("MIG-4f1c is shortened"), "{error}");
    });
}

#[test]
fn a_mig_device_is_locked_by_its_own_uuid() {
    no_hang(|| {
        let machine = Machine::new();
        let instance = |n| format!("MIG-{ONE}/1/{n}");
        let holder = machine.holder("cuda:0", &instance(0));
        let error = machine.is_refused("cuda:0", &instance(0));
        assert!(error.starts_with(&format!("cuda:0 ({}) is in use: ", instance(0))), "{error}");
        machine.holder("cuda:0", &instance(1)).close();
        machine.holder("cuda:0", &TWO.replace("GPU", "MIG")).close();
        holder.close();
    });
}

#[test]
fn the_cpu_needs_no_lock() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let lock = || GpuLock::or_fail().in_dir(directory.path().join("none"));
        OrderedRunner::builder(Probe::new()).devices(3).lock_gpus(lock()).build().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_directory_that_is_not_there_is_named() {
    no_hang(|| {
        let directory = tempfile::tempdir().unwrap();
        let none = directory.path().join("none");
        let error = Process::start("or_fail", "cuda:0", Some(ONE), &none).says();
        let expected = format!("the lock {}/gangline-{ONE}.lock cannot be used: ", none.display());
        assert!(error.starts_with(&expected), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    });
}

#[test]
fn by_default_all_users_meet() {
    no_hang(|| {
        // Nobody's GPU.
        let uuid = format!("GPU-{:08x}-0000-0000-0000-000000000000", std::process::id());
        let start = || Process::start("or_fail", "cuda:0", Some(&uuid), Path::new(""));
        let mut holder = start();
        assert_eq!(holder.says(), "it has it");
        let error = start().says();
        let (_, path) = error.split_once(" has its lock ").expect("another has it");
        let path = Path::new(path);
        fs::remove_file(path).unwrap();
        fs::remove_file(path.with_extension("holder")).unwrap();
        assert!(path.starts_with("/run/lock") || path.starts_with("/tmp"), "{}", path.display());
        holder.close();
    });
}
