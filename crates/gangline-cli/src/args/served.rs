//! `--serve`: what a worker serves without a program of the user's.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A kind of items. Each has a namespace of its own at the broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Served {
    /// The jobs of `gangline run`.
    Commands,
    /// The functions of `gangline.Pool` and `gangline.Pipeline` in Python.
    Python {
        /// The only module whose functions are called.
        module: Option<String>,
    },
}

impl Served {
    /// The namespace of this kind, unless the environment names one.
    #[cfg(feature = "nats")]
    pub(crate) fn namespace(&self) -> &'static str {
        match self {
            Served::Commands => "gangline-commands",
            Served::Python { .. } => "gangline-python",
        }
    }

    /// The name without what narrows it.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Served::Commands => "commands",
            Served::Python { .. } => "python",
        }
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Served::Commands | Served::Python { module: None } => f.write_str(self.kind()),
            Served::Python { module: Some(module) } => write!(f, "python:{module}"),
        }
    }
}

impl FromStr for Served {
    type Err = ServedError;

    fn from_str(text: &str) -> Result<Served, ServedError> {
        match text.split_once(':') {
            None if text == "commands" => Ok(Served::Commands),
            None if text == "python" => Ok(Served::Python { module: None }),
            Some(("python", module)) if is_module(module) => {
                Ok(Served::Python { module: Some(module.to_owned()) })
            }
            Some(("python", _)) => Err(ServedError::NoModule),
            _ => Err(ServedError::NoKind),
        }
    }
}

fn is_module(text: &str) -> bool {
    let is_name = |name: &str| {
        let mut letters = name.chars();
        let first = letters.next();
        first.is_some_and(|it| it.is_alphabetic() || it == '_')
            && letters.all(|it| it.is_alphanumeric() || it == '_')
    };
    text.split('.').all(is_name)
}

/// The text names nothing that a worker serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum ServedError {
    #[error("write commands, python, or python:MODULE")]
    NoKind,
    #[error("write the name of a module after python: as in python:mypackage.tasks")]
    NoModule,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_shown() {
        for text in ["commands", "python", "python:mypackage.tasks", "python:_a1"] {
            assert_eq!(text.parse::<Served>().unwrap().to_string(), text);
        }
        for text in ["python:", "python:a..b", "python:1", "python:a-b"] {
            assert_eq!(text.parse::<Served>(), Err(ServedError::NoModule), "{text}");
        }
        for text in ["", "command", "commands:ls", "Python"] {
            assert_eq!(text.parse::<Served>(), Err(ServedError::NoKind), "{text}");
        }
    }
}
