//! Configurations as text, in files, in the environment and in assignments; and the formats of texts.

#[cfg(any(test, fuzzing))]
mod any_bytes;
mod entered;
mod env;
mod files;
mod json;
mod load;
mod save;
mod schema;
mod toml;
mod yaml;

#[cfg(fuzzing)]
pub use self::any_bytes::read_any_bytes;

use std::path::Path;

use config::{Value, ValueKind};

use self::json::Json;
use self::schema::Schema;
use self::toml::Toml;
use self::yaml::Yaml;
use crate::error::{CfgError, MAX_DEPTH};
use crate::segment::join;
use crate::tree;

/// The largest text that is read, in bytes. A configuration is written by hand: whatever is larger
/// is the wrong file.
pub(super) const MAX_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextFormat {
    Yaml,
    /// YAML as [`Schema::Yaml11`] reads it.
    Yaml11,
    Toml,
    Json,
}

impl TextFormat {
    /// The format that the name of `file` tells, in capitals or not.
    pub(super) fn of(file: &Path) -> Result<Self, CfgError> {
        let extension = file.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match extension.as_str() {
            "yaml" | "yml" => Ok(TextFormat::Yaml),
            "toml" => Ok(TextFormat::Toml),
            "json" => Ok(TextFormat::Json),
            _ => Err(CfgError::Extension { file: file.to_owned() }),
        }
    }

    /// The tree that `text` holds; every value remembers `origin`.
    pub(super) fn parse(self, text: &str, origin: Option<&str>) -> Result<Value, CfgError> {
        let origin = origin.map(str::to_owned);
        check_size(text, origin.as_deref())?;
        // Editors on Windows put a byte order mark there.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let table = self.parser().parse(origin.as_ref(), text).map_err(|source| {
            CfgError::Parse { origin: origin.clone(), format: self.name(), source }
        })?;
        tree::adopt(Value::new(origin.as_ref(), table), MAX_DEPTH)
            .map_err(|fault| fault.at("", origin.as_deref()))
    }

    /// Text that [`parse`](Self::parse) reads as the same tree.
    pub(super) fn write(self, value: &Value) -> Result<String, CfgError> {
        if let Some((path, found)) = self.find_unfit(value, "") {
            return Err(CfgError::Unsupported { path, format: self.name(), found });
        }
        let text = match self {
            TextFormat::Yaml | TextFormat::Yaml11 => yaml::to_string(value),
            TextFormat::Toml => Ok(toml::to_string(value)),
            TextFormat::Json => json::to_string(value),
        };
        text.map_err(|source| CfgError::Value { path: String::new(), origin: None, source })
    }

    fn parser(self) -> &'static dyn config::Format {
        match self {
            TextFormat::Yaml => &Yaml(Schema::Core),
            TextFormat::Yaml11 => &Yaml(Schema::Yaml11),
            TextFormat::Toml => &Toml,
            TextFormat::Json => &Json,
        }
    }

    fn name(self) -> &'static str {
        match self {
            TextFormat::Yaml => "YAML",
            TextFormat::Yaml11 => "YAML 1.1",
            TextFormat::Toml => "TOML",
            TextFormat::Json => "JSON",
        }
    }

    /// The path of the first value in `value` that this format cannot hold, and what it is.
    fn find_unfit(self, value: &Value, path: &str) -> Option<(String, String)> {
        match &value.kind {
            ValueKind::Table(table) => {
                table.iter().find_map(|(key, v)| self.find_unfit(v, &join(path, key)))
            }
            ValueKind::Array(list) => (list.iter().enumerate())
                .find_map(|(i, v)| self.find_unfit(v, &join(path, &i.to_string()))),
            _ => self.unfit(value).map(|found| (path.to_owned(), found)),
        }
    }

    /// What `value` is, if this format cannot hold it.
    fn unfit(self, value: &Value) -> Option<String> {
        match (self, &value.kind) {
            (
                TextFormat::Toml,
                ValueKind::Nil | ValueKind::U64(_) | ValueKind::I128(_) | ValueKind::U128(_),
            ) => Some(tree::describe(value)),
            (TextFormat::Json, ValueKind::Float(x)) if !x.is_finite() => {
                Some(tree::describe(value))
            }
            _ => None,
        }
    }
}

/// Parses one value as it was entered, in YAML's notation, such as `3`, `[1, 2]` or `"007"`.
pub(super) fn parse_value(text: &str, origin: &str, path: &str) -> Result<Value, CfgError> {
    check_size(text, Some(origin))?;
    let origin = origin.to_owned();
    let value = entered::read(&origin, text).map_err(|source| CfgError::Parse {
        origin: Some(origin.clone()),
        format: TextFormat::Yaml.name(),
        source: source.into(),
    })?;
    let room = crate::path::Path::parse(path)?.room();
    tree::adopt(value, room).map_err(|fault| fault.at(path, Some(&origin)))
}

fn check_size(text: &str, origin: Option<&str>) -> Result<(), CfgError> {
    if text.len() as u64 > MAX_BYTES {
        return Err(CfgError::TooLarge { origin: origin.map(str::to_owned), limit: MAX_BYTES });
    }
    Ok(())
}
