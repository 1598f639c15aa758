//! Configurations as text and in files.

use std::path::Path;

use super::CfgNode;
use super::error::CfgError;
use super::format::TextFormat;
use super::{json, load, save};

impl CfgNode {
    /// Loads a file in YAML, TOML or JSON, chosen by its extension: `.yaml`, `.yml`, `.toml` or `.json`.
    ///
    /// If the file has the top-level key `__BASE__`, the file named there is loaded first, and this one is
    /// [merged](Self::merge) over it; and so on for its own base. A relative name is looked up beside the
    /// file that has it, then in the current directory. The formats may differ.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// std::fs::write(dir.join("base.yaml"), "model: {lr: 0.1, depth: 18}")?;
    /// std::fs::write(dir.join("top.yaml"), "__BASE__: base.yaml\nmodel: {depth: 50}")?;
    ///
    /// let cfg = CfgNode::load(dir.join("top.yaml"))?;
    /// assert_eq!(cfg, CfgNode::from_yaml_str("model: {lr: 0.1, depth: 50}")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`CfgError::Read`], [`CfgError::NotAFile`], [`CfgError::TooLarge`] (over 1 MiB),
    ///   [`CfgError::Extension`]
    /// - [`CfgError::Parse`]: the file is malformed, has a key twice, several documents, an unknown
    ///   tag, too many aliases or an integer of more than 128 bits (64 in TOML).
    /// - [`CfgError::Key`]: a key is empty or ends like `layers[1]`.
    /// - [`CfgError::BaseMissing`], [`CfgError::BaseNotText`], [`CfgError::BaseLoop`], [`CfgError::BaseMisspelt`]
    pub fn load(path: impl AsRef<Path>) -> Result<Self, CfgError> {
        CfgNode::from_root(load::load(path.as_ref())?.root)
    }

    /// Reads YAML. An empty text is an empty configuration.
    ///
    /// # Errors
    ///
    /// [`CfgError::Parse`], [`CfgError::Key`], [`CfgError::TooLarge`] as for [`load`](Self::load),
    /// and [`CfgError::BaseOutsideFile`].
    pub fn from_yaml_str(text: &str) -> Result<Self, CfgError> {
        CfgNode::from_text(text, TextFormat::Yaml)
    }

    /// Reads TOML. Dates become text.
    ///
    /// # Errors
    ///
    /// Those of [`from_yaml_str`](Self::from_yaml_str).
    pub fn from_toml_str(text: &str) -> Result<Self, CfgError> {
        CfgNode::from_text(text, TextFormat::Toml)
    }

    /// Reads JSON.
    ///
    /// # Errors
    ///
    /// Those of [`from_yaml_str`](Self::from_yaml_str).
    pub fn from_json_str(text: &str) -> Result<Self, CfgError> {
        CfgNode::from_text(text, TextFormat::Json)
    }

    /// Returns the configuration as YAML, with the keys in order.
    ///
    /// # Errors
    ///
    /// None today: YAML can hold every configuration. The signature leaves room for one.
    pub fn to_yaml(&self) -> Result<String, CfgError> {
        TextFormat::Yaml.write(&self.root)
    }

    /// Saves in the format of the file's extension. [`load`](Self::load) returns an equal tree.
    ///
    /// The file is replaced in one step: no reader sees half of it, and if saving fails it is unchanged. A
    /// link is followed and stays a link.
    ///
    /// # Errors
    ///
    /// - [`CfgError::Extension`], [`CfgError::NotAFile`], [`CfgError::Write`]
    /// - [`CfgError::Unsupported`]: TOML has no null and no integer over `i64::MAX`, JSON no `.inf`
    ///   and no `.nan`.
    /// - [`CfgError::BaseOutsideFile`], [`CfgError::BaseMisspelt`]: the configuration has a top-level key `__BASE__`, or
    ///   one that differs from it only in case or underscores. The file would not load.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CfgError> {
        save::save(&self.root, path.as_ref())
    }

    /// Saves only the differences from the file `base`, and a `__BASE__` that names it relative to the
    /// directory of `path`. [`load`](Self::load) returns the whole.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// # let dir = tempfile::tempdir()?;
    /// # let dir = dir.path();
    /// let mut cfg = CfgNode::from_yaml_str("model: {lr: 0.1, depth: 18}")?;
    /// cfg.save(dir.join("base.yaml"))?;
    /// cfg.set("model.depth", 50)?;
    /// cfg.save_diff(dir.join("top.yaml"), dir.join("base.yaml"))?;
    ///
    /// let written = std::fs::read_to_string(dir.join("top.yaml"))?;
    /// assert_eq!(written, "__BASE__: base.yaml\nmodel:\n  depth: 50\n");
    /// assert_eq!(CfgNode::load(dir.join("top.yaml"))?, cfg);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`CfgError::BaseHasMore`]: keys of the base are missing here, and would come back at the next
    ///   load.
    /// - [`CfgError::BaseLoop`]: `path` is the base, or a file under it.
    /// - Those of [`load`](Self::load) for the base, those of [`save`](Self::save) for `path`.
    pub fn save_diff(
        &self,
        path: impl AsRef<Path>,
        base: impl AsRef<Path>,
    ) -> Result<(), CfgError> {
        save::save_diff(&self.root, path.as_ref(), base.as_ref())
    }

    /// Reads YAML 1.1 as PyYAML does, where `yes` and `off` are truth values, `017` is 15 and `1:30` is 90. A key
    /// `__BASE__` is one like any other. Dates are texts.
    #[doc(hidden)]
    pub fn from_yaml_11_str(text: &str) -> Result<Self, CfgError> {
        CfgNode::from_root(TextFormat::Yaml11.parse(text, None)?)
    }

    /// Returns the configuration as a value of JSON, to be compared with another.
    #[doc(hidden)]
    pub fn to_json(&self) -> serde_json::Value {
        json::to_value(&self.root)
    }

    fn from_text(text: &str, format: TextFormat) -> Result<Self, CfgError> {
        let root = format.parse(text, None)?;
        load::check_no_base(&root, None)?;
        CfgNode::from_root(root)
    }
}
