//! Configurations as text: in files, in the environment, in assignments.

use std::ffi::OsString;
use std::fmt;
use std::path;

use super::{TextFormat, parse_value};
use super::{env, load, save};
use crate::CfgNode;
use crate::error::CfgError;
use crate::path::Path;

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
    pub fn load(path: impl AsRef<path::Path>) -> Result<Self, CfgError> {
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
    pub fn save(&self, path: impl AsRef<path::Path>) -> Result<(), CfgError> {
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
        path: impl AsRef<path::Path>,
        base: impl AsRef<path::Path>,
    ) -> Result<(), CfgError> {
        save::save_diff(&self.root, path.as_ref(), base.as_ref())
    }

    /// Reads YAML 1.1 as PyYAML does, where `yes` and `off` are truth values, `017` is 15 and `1:30` is 90. A key
    /// `__BASE__` is one like any other. Dates are texts.
    #[doc(hidden)]
    pub fn from_yaml_11_str(text: &str) -> Result<Self, CfgError> {
        CfgNode::from_root(TextFormat::Yaml11.parse(text, None)?)
    }

    /// Takes values from the environment: [`with_env_pairs`](Self::with_env_pairs) with the
    /// variables of this process.
    ///
    /// # Errors
    ///
    /// Those of [`with_env_pairs`](Self::with_env_pairs).
    pub fn with_env(self, prefix: &str) -> Result<Self, CfgError> {
        self.with_env_pairs(prefix, std::env::vars_os())
    }

    /// Takes values from variables named `PREFIX__MODEL__LR`; all others are ignored.
    ///
    /// After the prefix, which must match exactly, comes the path of an existing value. Write `__` for each
    /// dot, and `_` for `-` and for a dot in a key; case does not matter. The key keeps its case. The text is read as
    /// YAML: `3`, `true`, `[1, 2]`, `"007"`. A text that YAML would cut is kept whole, such as `abc #def` or `*x`.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let cfg = CfgNode::from_yaml_str("MODEL: {num_classes: 10, names: []}")?;
    /// let variables = [("APP__MODEL__NUM_CLASSES", "7"), ("APP__MODEL__NAMES", "[cat, dog]")];
    /// let cfg = cfg.with_env_pairs("APP", variables)?;
    /// assert_eq!(cfg, CfgNode::from_yaml_str("MODEL: {num_classes: 7, names: [cat, dog]}")?);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`CfgError::EnvUnknown`]: no key matches the name, so it is misspelt.
    /// - [`CfgError::EnvAmbiguous`]: the name matches two keys, or two names match one.
    /// - [`CfgError::EnvNotUnicode`], [`CfgError::Parse`], [`CfgError::Frozen`]
    /// - [`CfgError::Path`], [`CfgError::Through`], [`CfgError::Key`]: an earlier variable made the path
    ///   impossible, or the value has a key that no path could name.
    pub fn with_env_pairs<K: Into<OsString>, V: Into<OsString>>(
        mut self,
        prefix: &str,
        pairs: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, CfgError> {
        self.check_open(|| "setting it from the environment".to_owned())?;
        let pairs = pairs.into_iter().map(|(name, text)| (name.into(), text.into()));
        env::overlay(&mut self.root, prefix, pairs)?;
        Ok(self)
    }

    /// Applies `path=value`, as given on a command line. The value is read as for
    /// [`with_env_pairs`](Self::with_env_pairs), without the white space around it; a missing path is created.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let mut cfg = CfgNode::new();
    /// cfg.apply("model.layers=[64, 128]")?;
    /// cfg.apply("model.name=\"007\"")?;
    /// assert_eq!(cfg.get::<Vec<u32>>("model.layers")?, [64, 128]);
    /// assert_eq!(cfg.get::<String>("model.name")?, "007");
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CfgError::Assignment`] without an `=`, [`CfgError::Parse`] if the value is not YAML, and those of
    /// [`set`](Self::set).
    pub fn apply(&mut self, assignment: &str) -> Result<(), CfgError> {
        let (path, text) = env::split_assignment(assignment)?;
        self.check_open(|| format!("setting {path:?}"))?;
        let origin = format!("the assignment to {path}");
        let value = parse_value(text, &origin, path)?;
        Path::parse(path)?.put(&mut self.root, value)
    }

    fn from_text(text: &str, format: TextFormat) -> Result<Self, CfgError> {
        let root = format.parse(text, None)?;
        load::check_no_base(&root, None)?;
        CfgNode::from_root(root)
    }
}

/// The configuration as YAML.
impl fmt::Display for CfgNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_yaml().map_err(|_| fmt::Error)?)
    }
}
