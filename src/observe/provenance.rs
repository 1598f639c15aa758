//! Where, when and how this process runs, for the reports of its runs.

use std::collections::BTreeMap;
use std::env;
use std::sync::LazyLock;
use std::thread;
use std::time::SystemTime;

use gangline_report::Provenance;

const MOST_ARGUMENTS: usize = 64;
const LONGEST_ARGUMENT: usize = 200;

/// Describes a run of this process that starts now.
pub(crate) fn provenance_now(settings: BTreeMap<String, String>) -> Provenance {
    static PROCESS: LazyLock<Provenance> = LazyLock::new(of_process);
    let mut provenance = PROCESS.clone();
    provenance.started = Some(humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
    provenance.settings = settings;
    provenance
}

fn of_process() -> Provenance {
    let clipped = |text: String| match text.char_indices().nth(LONGEST_ARGUMENT) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    };
    let arguments = env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let mut command: Vec<String> = arguments.take(MOST_ARGUMENTS).map(clipped).collect();
    if env::args_os().len() > MOST_ARGUMENTS {
        command.push("...".to_owned());
    }
    let mut provenance = Provenance::default();
    provenance.host = host();
    provenance.system = Some(format!("{} {}", env::consts::OS, env::consts::ARCH));
    provenance.cores = thread::available_parallelism().ok().map(|cores| cores.get() as u64);
    provenance.gangline = Some(env!("CARGO_PKG_VERSION").to_owned());
    provenance.command = command;
    provenance
}

#[cfg(target_os = "linux")]
fn host() -> Option<String> {
    Some(rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(not(target_os = "linux"))]
fn host() -> Option<String> {
    env::var("HOSTNAME").or_else(|_| env::var("COMPUTERNAME")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_this_process_has_a_date_and_a_command() {
        let provenance = provenance_now(BTreeMap::new());
        let started = provenance.started.unwrap();
        assert!(humantime::parse_rfc3339(&started).is_ok(), "{started}");
        assert!(!provenance.command.is_empty());
    }
}
