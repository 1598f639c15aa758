//! Options for when and how jobs start and end.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rustix::process::Signal;
use thiserror::Error;

use crate::args::limit::duration;
use crate::args::number::{digits, size};

#[derive(Debug, Args)]
#[command(next_help_heading = "Running")]
pub(crate) struct Running {
    /// Wait TIME between the starts of two jobs
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) delay: Duration,
    /// Start jobs only while fewer than LOAD processes run on the machine: 8, or 80% of its cores
    #[arg(long, value_name = "LOAD", value_parser = load)]
    pub(crate) load: Option<f64>,
    /// Start jobs only while SIZE bytes of memory (or 10k, 5M, 1G) are available; below half, end the youngest job and run it again later
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memfree: Option<u64>,
    /// Read the available memory from FILE, which has the form of /proc/meminfo
    #[arg(long, value_name = "FILE", requires = "memfree", hide = true)]
    pub(crate) meminfo: Option<PathBuf>,
    /// Run jobs at this niceness, from 0 to 19
    #[arg(long, value_name = "N", value_parser = niceness)]
    pub(crate) nice: Option<i32>,
    /// Run each job in DIR, which may have marks, and is made if it is missing
    #[arg(long, visible_alias = "wd", value_name = "DIR", conflicts_with = "warm")]
    pub(crate) workdir: Option<OsString>,
    /// End a job by these signals and pauses in milliseconds: TERM,200,TERM,100,KILL
    #[arg(long, visible_alias = "term-seq", value_name = "SEQ", conflicts_with = "kill_after")]
    pub(crate) termseq: Option<TermSequence>,
}

fn niceness(text: &str) -> Result<i32, &'static str> {
    digits(text).filter(|nice| *nice <= 19).ok_or("write a number from 0 to 19, without a sign")
}

/// A number of processes.
fn load(text: &str) -> Result<f64, &'static str> {
    let (number, each) = match text.strip_suffix('%') {
        Some(percent) => (percent, num_cpus::get() as f64 / 100.0),
        None => (text, 1.0),
    };
    let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = number.parse().ok().filter(|_| is_plain).map(|number: f64| number * each);
    let number = number.filter(|number| *number > 0.0);
    number.ok_or("write a number of processes, or a share of the cores, such as 80%")
}

/// The signals that end a job, each followed by a pause. SIGKILL comes last.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TermSequence(Vec<(Signal, Duration)>);

/// A sequence for another machine: the numbers of the signals, and the pauses.
#[cfg(feature = "nats")]
pub(crate) type SentSequence = Vec<(i32, Duration)>;

impl TermSequence {
    /// SIGTERM, and SIGKILL after a time.
    pub(crate) fn with_pause(pause: Duration) -> TermSequence {
        TermSequence(vec![(Signal::TERM, pause)])
    }

    #[cfg(feature = "nats")]
    pub(crate) fn sent(&self) -> SentSequence {
        self.0.iter().map(|(signal, pause)| (signal.as_raw(), *pause)).collect()
    }

    /// One that was sent. A signal that this machine does not know is left out.
    #[cfg(feature = "nats")]
    pub(crate) fn received(sent: &SentSequence) -> TermSequence {
        let step =
            |(signal, pause): &(i32, Duration)| Some((Signal::from_named_raw(*signal)?, *pause));
        TermSequence(sent.iter().filter_map(step).collect())
    }

    pub(crate) fn step(&self, step: usize) -> (Signal, Duration) {
        self.0.get(step).copied().unwrap_or((Signal::KILL, Duration::MAX))
    }

    /// The time from the first signal to SIGKILL.
    pub(crate) fn lasts(&self) -> Duration {
        self.0.iter().map(|(_, pause)| *pause).sum()
    }
}

impl FromStr for TermSequence {
    type Err = SequenceError;

    fn from_str(text: &str) -> Result<Self, SequenceError> {
        let mut words = text.split(',');
        let mut steps = Vec::new();
        while let Some(word) = words.next() {
            let signal = signal(word).ok_or(SequenceError)?;
            let pause = words.next().map(|pause| digits::<u32>(pause).ok_or(SequenceError));
            // What comes after SIGKILL has no effect.
            if signal == Signal::KILL {
                break;
            }
            steps.push((
                signal,
                Duration::from_millis(pause.transpose()?.unwrap_or_default().into()),
            ));
        }
        Ok(TermSequence(steps))
    }
}

fn signal(name: &str) -> Option<Signal> {
    let name = name.strip_prefix("SIG").unwrap_or(name);
    match name {
        "HUP" | "1" => Some(Signal::HUP),
        "INT" | "2" => Some(Signal::INT),
        "QUIT" | "3" => Some(Signal::QUIT),
        "KILL" | "9" => Some(Signal::KILL),
        "USR1" | "10" => Some(Signal::USR1),
        "USR2" | "12" => Some(Signal::USR2),
        "ALRM" | "14" => Some(Signal::ALARM),
        "TERM" | "15" => Some(Signal::TERM),
        _ => None,
    }
}

/// The text is not a sequence of signals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "write signals (HUP, INT, QUIT, USR1, USR2, ALRM, TERM, KILL), each with a pause in milliseconds \
     after it, as in TERM,200,TERM,100,KILL"
)]
pub(crate) struct SequenceError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_ends_with_a_kill() {
        let millis = Duration::from_millis;
        let sequence: TermSequence = "INT,200,SIGTERM,100,KILL,25".parse().unwrap();
        assert_eq!(sequence.step(0), (Signal::INT, millis(200)));
        assert_eq!(sequence.step(1), (Signal::TERM, millis(100)));
        assert_eq!(sequence.step(2).0, Signal::KILL);
        assert_eq!(sequence.lasts(), millis(300));
        assert_eq!("TERM".parse::<TermSequence>().unwrap().step(1).0, Signal::KILL);
        for text in ["", "TERM,", "TERM,x", "200,TERM", "TERM,200,", "FOO,1"] {
            assert_eq!(text.parse::<TermSequence>(), Err(SequenceError), "{text}");
        }
    }

    #[test]
    fn a_load_is_a_number_or_a_share() {
        assert_eq!(load("8"), Ok(8.0));
        assert_eq!(load("100%"), Ok(num_cpus::get() as f64));
        assert!(load("0").is_err() && load("0%").is_err(), "no job would ever start");
        assert!(load("-1").is_err() && load("x").is_err() && load("+1").is_err());
    }
}
