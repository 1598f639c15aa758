//! The exit statuses.

/// Success.
pub(crate) const OK: u8 = 0;
/// A check has found that something does not hold. A run ends with the same number if one job has failed.
pub(crate) const BROKEN: u8 = 1;
/// More than 100 jobs failed. Up to 100, the status is their number.
pub(crate) const MORE_THAN_100_FAILED: u8 = 101;
/// The request is invalid or cannot be done: an option, a mark, a file of options.
pub(crate) const USAGE: u8 = 102;
/// A device is missing, hidden, or in use.
pub(crate) const DEVICES: u8 = 103;
/// The input could not be read to its end.
pub(crate) const INPUT: u8 = 104;
/// The journal could not be resumed or written.
pub(crate) const JOURNAL: u8 = 105;
/// Output, a report, or a file of results could not be written.
pub(crate) const OUTPUT: u8 = 106;
/// A bug in the program.
pub(crate) const INTERNAL: u8 = 107;
/// A worker of a cluster has found that its setup is wrong, such as its devices or its password.
pub(crate) const SETUP: u8 = 78;
/// The program of a worker cannot be started.
pub(crate) const CANNOT_START: u8 = 126;
/// The program of a worker is not there.
pub(crate) const NOT_FOUND: u8 = 127;
/// SIGHUP: no further job was started.
pub(crate) const HANGUP: u8 = 129;
/// SIGINT, as Ctrl-C sends it.
pub(crate) const INTERRUPTED: u8 = 130;
/// The reader of the output is gone.
pub(crate) const BROKEN_PIPE: u8 = 141;
/// SIGQUIT, as Ctrl-\ sends it: everything was killed.
pub(crate) const QUIT: u8 = 131;
/// The supervisor was killed.
pub(crate) const KILLED: u8 = 137;
/// SIGTERM.
pub(crate) const TERMINATED: u8 = 143;

/// The status for this number of failed jobs.
pub(crate) fn of_failures(failed: u64) -> u8 {
    match u8::try_from(failed) {
        Ok(failed @ 0..=100) => failed,
        _ => MORE_THAN_100_FAILED,
    }
}
