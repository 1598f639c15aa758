//! The address of a broker, and how it is reached.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

#[cfg(feature = "nats")]
use crate::args::served::Served;
use crate::error::CliError;
use crate::execute::failure::internal;
use crate::exit;

/// The address of the broker: that of the option, or of the environment.
///
/// An option with a password or a token is moved to the environment, by executing this program again: all users of the
/// machine see the options of a process, and its own user alone its environment.
pub(crate) fn broker(option: Option<&str>) -> Result<String, CliError> {
    if let Some(url) = option.filter(|url| url.contains('@'))
        && let Some(arguments) = without_address(env::args_os().skip(1).collect(), url)
    {
        let mut command = Command::new("/proc/self/exe");
        env::args_os().take(1).for_each(|name| _ = command.arg0(name));
        return Err(internal(command.args(arguments).env("GANGLINE_NATS", url).exec()));
    }
    let variable = || env::var("GANGLINE_NATS").ok().filter(|url| !url.is_empty());
    option.map(str::to_owned).or_else(variable).ok_or_else(|| {
        let text =
            "no broker is named: give its address by --nats nats://HOST:4222 or by GANGLINE_NATS";
        CliError::new(exit::USAGE, text)
    })
}

/// The word for the address in the environment.
const IN_ENVIRONMENT: &str = "env";

/// The address of the broker that a run was given.
pub(crate) fn of_run(given: &str) -> Result<String, CliError> {
    broker(Some(given).filter(|word| *word != IN_ENVIRONMENT))
}

/// Moves an address with a password or a token out of the options of a run, by executing this program again: all users
/// of the machine see the options of a process. They may come from a file.
pub(crate) fn hide(given: Option<&str>, arguments: &[OsString]) -> Result<(), CliError> {
    let Some(url) = given.filter(|url| url.contains('@')) else { return Ok(()) };
    let arguments = arguments.iter().skip(1).cloned().collect();
    let Some(mut left) = without_address(arguments, url) else { return Ok(()) };
    let at = left.iter().position(|word| word == "run").map_or(0, |run| run + 1);
    left.insert(at, format!("--nats={IN_ENVIRONMENT}").into());
    let mut command = Command::new("/proc/self/exe");
    env::args_os().take(1).for_each(|name| _ = command.arg0(name));
    Err(internal(command.args(left).env("GANGLINE_NATS", url).exec()))
}

/// The arguments of this program without the first option that names this broker.
fn without_address(mut arguments: Vec<OsString>, url: &str) -> Option<Vec<OsString>> {
    let whole = OsString::from(format!("--nats={url}"));
    let words = |n: usize| match &arguments[n] {
        word if *word == whole => 1,
        word if word == "--nats" && arguments.get(n + 1).is_some_and(|it| it == url) => 2,
        _ => 0,
    };
    let (at, count) = (0..arguments.len()).map(|n| (n, words(n))).find(|it| it.1 > 0)?;
    arguments.drain(at..at + count);
    Some(arguments)
}

/// How to reach the broker: with the variables that a worker reads too.
#[cfg(feature = "nats")]
pub(crate) fn nats(url: String, namespace: Option<&str>) -> gangline_nats::Nats {
    let set = |name| env::var(name).ok().filter(|value| !value.is_empty());
    let mut nats = gangline_nats::Nats::connect(url);
    if let Some(path) = set("GANGLINE_NATS_CREDENTIALS") {
        nats = nats.credentials(path);
    }
    if let Some(path) = set("GANGLINE_NATS_ROOT_CERTIFICATES") {
        nats = nats.root_certificates(path);
    }
    if let Some(name) = namespace.map(str::to_owned).or_else(|| set(NAMESPACE)) {
        nats = nats.namespace(name);
    }
    match set("GANGLINE_NATS_INSECURE").as_deref() {
        Some("1" | "true") => nats.insecure(),
        _ => nats,
    }
}

/// The namespace of a kind of items: that of the environment, or its own.
#[cfg(feature = "nats")]
pub(crate) fn namespace(served: &Served) -> String {
    let named = env::var(NAMESPACE).ok().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| served.namespace().to_owned())
}

/// The variable with the prefix of all names at the broker.
#[cfg(feature = "nats")]
pub(crate) const NAMESPACE: &str = "GANGLINE_NATS_NAMESPACE";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_taken_from_the_options_of_this_program_alone() {
        let url = "nats://u:p@host";
        let left =
            |words: &[&str]| without_address(words.iter().map(OsString::from).collect(), url);
        let expected = ["worker", "--", "./app", "--nats", url].map(OsString::from).to_vec();
        let joined = format!("--nats={url}");
        for given in [
            &["worker", "--nats", url, "--", "./app", "--nats", url][..],
            &["worker", &joined, "--", "./app", "--nats", url],
        ] {
            assert_eq!(left(given).as_ref(), Some(&expected), "{given:?}");
        }
        assert_eq!(left(&["workers", "--nats", "nats://host"]), None, "nothing would change");
    }
}
