//! Where, when and how a run took place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Where, when and how a run took place.
///
/// A report may leave the machine: it names the host, and has the arguments of the program in full.
/// To leave something out, clear the field before the report is written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Provenance {
    /// When the run started, in UTC: `2026-11-24T07:16:58Z`.
    pub started: Option<String>,
    /// The name of the machine.
    pub host: Option<String>,
    /// The operating system and the kind of processor: `linux x86_64`.
    pub system: Option<String>,
    /// How many cores the process could use.
    pub cores: Option<u64>,
    /// The version of gangline.
    pub gangline: Option<String>,
    /// The program and its arguments. At most 64 arguments, each of at most 200 characters.
    pub command: Vec<String>,
    /// The command that runs the failed items again: a program and its arguments. The library leaves it empty; a program
    /// may set it before it writes the report.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub retry: Vec<String>,
    /// The models of the devices, as far as they are known, by device: `cuda:0`.
    pub devices: BTreeMap<String, String>,
    /// The settings of the builder that differ from its defaults, and the window and the order, by name.
    pub settings: BTreeMap<String, String>,
}

impl Provenance {
    /// When the run started, as people read it.
    pub(super) fn started_text(&self) -> Option<String> {
        Some(self.started.as_deref()?.replace('T', " ").replace('Z', " UTC"))
    }

    /// A program and its arguments, quoted for a shell.
    pub(super) fn command_line(command: &[String]) -> String {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte);
        let quoted = |word: &String| match !word.is_empty() && word.bytes().all(is_plain) {
            true => word.clone(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
        command.iter().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// Whether the run chooses the size of its batches.
    pub(super) fn chooses_batches(&self) -> bool {
        self.settings.get("batch").is_some_and(|rule| rule.starts_with("auto"))
    }

    /// The largest size of batches that was set.
    pub(super) fn largest_batch(&self) -> Option<u64> {
        let rule = self.settings.get("batch")?;
        rule.split([' ', ',']).find_map(|word| word.parse().ok())
    }

    /// Names and values of all but the commands.
    pub(super) fn facts(&self) -> impl Iterator<Item = (&str, String)> {
        let facts = [
            ("started", self.started_text()),
            ("host", self.host.clone()),
            ("system", self.system.clone()),
            ("cores", self.cores.map(|cores| cores.to_string())),
            ("gangline", self.gangline.clone()),
        ];
        let facts = facts.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let others = self.devices.iter().chain(&self.settings);
        facts.chain(others.map(|(name, value)| (name.as_str(), value.clone())))
    }

    /// The time, the machine and the version, in a line.
    pub(super) fn line(&self) -> Option<String> {
        let mut line = format!("started {}", self.started_text()?);
        if let Some(host) = &self.host {
            line.push_str(&format!(" on {host}"));
        }
        let cores =
            self.cores.map(|cores| format!("{cores} core{}", if cores == 1 { "" } else { "s" }));
        let machine: Vec<&str> =
            self.system.as_deref().into_iter().chain(cores.as_deref()).collect();
        if !machine.is_empty() {
            line.push_str(&format!(" ({})", machine.join(", ")));
        }
        if let Some(version) = &self.gangline {
            line.push_str(&format!(", gangline {version}"));
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_typed_again() {
        let command = ["run", "-j2", "sh", "-c", "echo $1; it's", "", ":::", "1"];
        let expected = r"run -j2 sh -c 'echo $1; it'\''s' '' ::: 1";
        assert_eq!(Provenance::command_line(&command.map(str::to_owned)), expected);
    }

    #[test]
    fn a_line_has_what_is_known() {
        assert_eq!(Provenance::default().line(), None);
        let mut provenance = Provenance {
            started: Some("2026-11-24T07:16:58Z".to_owned()),
            ..Provenance::default()
        };
        assert_eq!(provenance.line().as_deref(), Some("started 2026-11-24 07:16:58 UTC"));
        (provenance.host, provenance.cores) = (Some("node7".to_owned()), Some(1));
        provenance.system = Some("linux x86_64".to_owned());
        provenance.gangline = Some("0.1.0".to_owned());
        let line =
            "started 2026-11-24 07:16:58 UTC on node7 (linux x86_64, 1 core), gangline 0.1.0";
        assert_eq!(provenance.line().as_deref(), Some(line));
    }
}
