//! What the program ends with.

/// Everything went well.
pub(super) const OK: u8 = 0;
/// Up to 100 jobs failed: their number. This is for more.
pub(super) const MORE_THAN_100_FAILED: u8 = 101;
/// What was asked for makes no sense, or cannot be done: an option, a mark, a file of options.
pub(super) const USAGE: u8 = 102;
/// A device is not there, is hidden, or is in use.
pub(super) const DEVICES: u8 = 103;
/// The input could not be read to its end.
pub(super) const INPUT: u8 = 104;
/// The journal could not be gone on with, or not be written.
pub(super) const JOURNAL: u8 = 105;
/// Output, a report, or a file of results could not be written.
pub(super) const OUTPUT: u8 = 106;
/// A defect of the program.
pub(super) const INTERNAL: u8 = 107;
/// SIGHUP: nothing was started any more.
pub(super) const HANGUP: u8 = 129;
/// SIGINT, as Ctrl-C sends it.
pub(super) const INTERRUPTED: u8 = 130;
/// Nobody reads the output any more.
pub(super) const BROKEN_PIPE: u8 = 141;
/// SIGQUIT, as Ctrl-\ sends it: everything was killed.
pub(super) const QUIT: u8 = 131;
/// The process that a user sees was killed.
pub(super) const KILLED: u8 = 137;
/// SIGTERM.
pub(super) const TERMINATED: u8 = 143;

/// For so many jobs that failed.
pub(super) fn of_failures(failed: u64) -> u8 {
    match u8::try_from(failed) {
        Ok(failed @ 0..=100) => failed,
        _ => MORE_THAN_100_FAILED,
    }
}

/// What `--help` says of it.
pub(super) const HELP: &str = "\
Exit status:
  0        all jobs went well
  1 - 100  so many jobs failed
  101      more than 100 jobs failed
  102      an option, a mark or a file of options makes no sense
  103      a device is not there, is hidden, or is in use; no warm worker is left
  104      the input could not be read to its end
  105      the journal was refused, or could not be written
  106      output could not be written
  107      a defect of gangline
  129      SIGHUP    130  SIGINT (Ctrl-C)    131  SIGQUIT    143  SIGTERM
  137      the process that has the jobs was killed, and they with it
  141      nobody reads the output any more";
