use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;

const GPU: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

fn directory() -> (tempfile::TempDir, LockFile) {
    let directory = tempfile::tempdir().unwrap();
    let file = LockFile::new(directory.path(), &Uuid::parse(GPU).unwrap());
    (directory, file)
}

#[test]
fn one_has_it_until_it_is_dropped() {
    let (_directory, file) = directory();
    let lock = file.try_lock().unwrap().unwrap();
    assert!(file.try_lock().unwrap().is_none());
    drop(lock);
    assert!(file.try_lock().unwrap().is_some());
}

#[test]
fn the_holder_describes_itself() {
    let (_directory, file) = directory();
    assert_eq!(file.holder(), GpuHolder::Unknown);
    let lock = file.try_lock().unwrap();
    let holder = file.holder();
    assert!(
        matches!(&holder, GpuHolder::Process { pid, command } if *pid == std::process::id() && !command.is_empty()),
        "{holder}"
    );
    drop(lock);
    assert_eq!(file.holder(), GpuHolder::Unknown, "nobody has it");
}

#[test]
fn what_others_wrote_does_not_act_on_a_terminal() {
    let (_directory, file) = directory();
    fs::write(&file.holder, "17 \u{1b}[2Jrm\n").unwrap();
    assert_eq!(file.holder().to_string(), r"process 17 (\u{1b}[2Jrm)");
    for text in ["", "17", "x y", "-1 a", "99999999999 a"] {
        fs::write(&file.holder, text).unwrap();
        assert_eq!(file.holder(), GpuHolder::Unknown, "{text}");
    }
    fs::write(&file.holder, [b"17 ".as_slice(), &[0xff; 1_000_000]].concat()).unwrap();
    assert!(file.holder().to_string().len() < 2000);
}

#[test]
fn all_users_may_open_the_files() {
    let (_directory, file) = directory();
    let _lock = file.try_lock().unwrap();
    for path in [&file.pipe, &file.holder] {
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o666);
    }
}

#[test]
fn the_name_is_one_file() {
    let instance = Uuid::parse(&format!("MIG-{GPU}/1/12")).unwrap();
    let file = LockFile::new(Path::new("/locks"), &instance);
    assert_eq!(file.path(), Path::new(&format!("/locks/gangline-MIG-{GPU}_1_12.lock")));
}

#[test]
fn links_are_not_followed() {
    let (directory, file) = directory();
    let target = directory.path().join("target");
    fs::write(&target, "precious").unwrap();
    symlink(&target, &file.pipe).unwrap();
    assert!(file.try_lock().is_err());
    fs::remove_file(&file.pipe).unwrap();
    symlink(&target, &file.holder).unwrap();
    let lock = file.try_lock().unwrap();
    assert!(lock.is_some(), "who has it is told by the pipe alone");
    assert_eq!(file.holder(), GpuHolder::Unknown);
    drop(lock);
    assert_eq!(fs::read_to_string(target).unwrap(), "precious");
}

#[test]
fn other_files_in_its_place_are_refused() {
    let (directory, file) = directory();
    fs::write(&file.pipe, "").unwrap();
    assert_eq!(file.try_lock().unwrap_err().to_string(), "it is no pipe");
    fs::remove_file(&file.pipe).unwrap();
    mkfifoat(CWD, &file.holder, Mode::from_raw_mode(FOR_ALL)).unwrap();
    let lock = file.try_lock().unwrap();
    assert!(lock.is_some(), "a pipe that nobody reads holds nobody up");
    assert_eq!(file.holder(), GpuHolder::Unknown);
    drop(directory);
    drop(lock);
    assert_eq!(file.try_lock().unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_pipe_that_is_gone_is_not_the_lock() {
    let (_directory, file) = directory();
    let pipe = file.open().unwrap();
    fs::remove_file(&file.pipe).unwrap();
    let pipe_is_gone = pipe.try_clone().unwrap();
    assert!(matches!(file.attempt(pipe_is_gone).unwrap(), Attempt::Replaced));
    let _lock = file.try_lock().unwrap().unwrap();
    assert!(matches!(file.attempt(pipe).unwrap(), Attempt::Replaced));
}

#[test]
fn waiting_ends_with_the_alarm() {
    let (_directory, file) = directory();
    let lock = file.try_lock().unwrap();
    let (alarm, ring) = io::pipe().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| file.wait(&alarm));
        drop(ring);
        assert!(waiting.join().unwrap().unwrap().is_none());
    });
    assert!(file.wait(&alarm).unwrap().is_none());
    drop(lock);
    assert!(file.wait(&alarm).unwrap().is_some(), "there was nothing to wait for");
}

/// Bytes written into the pipe do not end a wait.
#[test]
fn what_is_written_into_the_pipe_is_not_read() {
    let (_directory, file) = directory();
    let lock = file.try_lock().unwrap();
    file.open().unwrap().write_all(b"?").unwrap();
    let end = open_as(OpenOptions::new().read(true), &file.pipe).unwrap();
    let (alarm, ring) = io::pipe().unwrap();
    drop(ring);
    assert!(await_any(&end, &alarm).unwrap() == LockWakeUp::ByAlarm);
    let (alarm, _ring) = io::pipe().unwrap();
    drop(lock);
    assert!(await_any(&end, &alarm).unwrap() == LockWakeUp::ByPipe);
}

/// Every waiter gets the lock, and no two hold it at once.
#[test]
fn all_who_wait_get_it_one_by_one() {
    let (_directory, file) = directory();
    let in_use = AtomicBool::new(false);
    let (alarm, _ring) = io::pipe().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let lock = file.wait(&alarm).unwrap().unwrap();
                    assert!(!in_use.swap(true, Ordering::SeqCst));
                    thread::yield_now();
                    in_use.store(false, Ordering::SeqCst);
                    drop(lock);
                }
            });
        }
    });
}

#[test]
fn all_users_share_a_sticky_directory() {
    let directory = tempfile::tempdir().unwrap();
    let shared = |mode| {
        fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
        is_shared(directory.path())
    };
    assert!(shared(0o1777));
    assert!(!shared(0o777), "anybody could remove the files of others");
    assert!(!shared(0o1755));
    assert!(!is_shared(Path::new("/nonexistent")));
}
