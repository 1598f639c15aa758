//! The configuration itself; `files` has its calls for texts, and `layers` those for the crate `config`.

use std::fmt;

use config::{Value, ValueKind};
use serde::de::{DeserializeOwned, DeserializeSeed};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::de;
use super::error::{CfgError, MAX_DEPTH};
use super::path::Path;
use super::ser::{self, Tree, TreeSeed};
use super::tree::{self, Table};

/// A configuration: a tree of values with dotted paths.
///
/// Anything that is [`Serialize`] goes in, anything that is [`Deserialize`] comes out:
///
/// ```
/// # use gangline_config as gangline;
/// use gangline::CfgNode;
///
/// let cfg = CfgNode::new().with("model.name", "resnet")?.with("model.layers", [64, 128])?;
/// assert_eq!(cfg.get::<String>("model.name")?, "resnet");
/// assert_eq!(cfg.get::<u32>("model.layers.1")?, 128);
/// assert_eq!(cfg.get::<Option<f64>>("model.dropout")?, None);
///
/// let error = cfg.get::<u32>("model.name").unwrap_err();
/// assert_eq!(error.to_string(), "model.name: invalid type: string \"resnet\", expected u32");
/// # Ok::<(), gangline_config::CfgError>(())
/// ```
///
/// Reading and writing text, in files, from the environment and as assignments, needs gangline's feature `config-files`.
///
/// # Paths
///
/// Dots separate the segments of a path. A segment is a key of a node or, in a list, an index from 0:
/// `model.layers.1`. Keys are case-sensitive. A key with a dot is written in quotes: `models."regnetx_1.6gf".lr`, with
/// `\"` for a quote in it and `\\` for a backslash. A key is refused if it is empty or ends like `layers[1]`.
///
/// # Values
///
/// A value is null, a boolean, an integer from `i128::MIN` to `u128::MAX`, a float, a text, a list or a node.
/// Values are not converted: `1` can be read as an `f64`, but `"1"` is not a number, `1.0` not an integer
/// and `yes` not a boolean. Nodes keep their keys in order. At most 64 levels may be nested.
///
/// # Equality
///
/// Two configurations are equal if they hold the same values. The order of keys, freezing and origin do not
/// matter. `1` and `1.0` differ; `.nan` equals itself.
///
/// # Origins
///
/// A loaded value remembers its file, or its environment variable, for error messages. A sub-node that
/// [`get`](Self::get) returns does not.
#[derive(Clone)]
pub struct CfgNode {
    /// Always a table. Its keys, depth and integers have been checked.
    pub(super) root: Value,
    state: NodeState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NodeState {
    Open,
    Frozen,
}

impl CfgNode {
    /// Makes an empty configuration.
    pub fn new() -> Self {
        CfgNode { root: Table::new().into(), state: NodeState::Open }
    }

    /// Makes a configuration of one value: a struct or a map. Its fields become the keys, as
    /// [`extract`](Self::extract) reads them.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// #[derive(serde::Serialize)]
    /// struct Model {
    ///     lr: f64,
    ///     layers: Vec<u32>,
    /// }
    ///
    /// let cfg = CfgNode::from_value(Model { lr: 0.1, layers: vec![64, 128] })?;
    /// assert_eq!(cfg.get::<u32>("layers.1")?, 128);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CfgError::NotANode`] for a value that is no node, such as a number or a list; and those of
    /// [`set`](Self::set) for what is inside.
    pub fn from_value<T: Serialize>(value: T) -> Result<Self, CfgError> {
        let root = ser::to_value(&value, MAX_DEPTH).map_err(|fault| fault.at("", None))?;
        if !matches!(root.kind, ValueKind::Table(_)) {
            return Err(CfgError::NotANode { found: tree::describe(&root) });
        }
        Self::from_root(root)
    }

    /// Returns the configuration with `value` at `path`: [`set`](Self::set) in a chain of calls.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let cfg = CfgNode::new().with("exponent", 3)?;
    /// assert_eq!(cfg.get::<u32>("exponent")?, 3);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`set`](Self::set).
    pub fn with<T: Serialize>(mut self, path: &str, value: T) -> Result<Self, CfgError> {
        self.set(path, value)?;
        Ok(self)
    }

    /// Puts `value` at `path`, replacing the value there. Missing nodes on the way are created; lists are
    /// neither created nor extended.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let mut cfg = CfgNode::new();
    /// cfg.set("model.layers", vec![64, 128])?;
    /// cfg.set("model.layers.0", 32)?;
    /// assert_eq!(cfg.get::<Vec<u32>>("model.layers")?, [32, 128]);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// On an error nothing is changed.
    ///
    /// - [`CfgError::Frozen`]
    /// - [`CfgError::Path`]: the path has an empty segment, or an index beyond the end of a list.
    /// - [`CfgError::Through`]: the path leads through a value that is neither a node nor a list.
    /// - [`CfgError::Key`]: a key inside `value` is empty or ends like `layers[1]`.
    /// - [`CfgError::TooDeep`]: more than 64 levels would be nested.
    /// - [`CfgError::Value`]: `value` failed to serialise.
    pub fn set<T: Serialize>(&mut self, path: &str, value: T) -> Result<(), CfgError> {
        self.check_open(|| format!("setting {path:?}"))?;
        let path = Path::parse(path)?;
        let value =
            ser::to_value(&value, path.room()).map_err(|fault| fault.at(path.as_str(), None))?;
        path.put(&mut self.root, value)
    }

    /// Returns the value at `path`. A missing value is `None` for an `Option`, and an error otherwise.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let cfg = CfgNode::from_yaml_str("model: {lr: 0.1, steps: [1, 2]}")?;
    /// assert_eq!(cfg.get::<f64>("model.lr")?, 0.1);
    /// assert_eq!(cfg.get::<Option<f64>>("model.momentum")?, None);
    /// let model: CfgNode = cfg.get("model")?;
    /// assert_eq!(model.get::<u8>("steps.1")?, 2);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// A sub-node is a copy: it is not frozen even if this configuration is, and changes to it are not seen
    /// here.
    ///
    /// # Errors
    ///
    /// - [`CfgError::Missing`]
    /// - [`CfgError::Type`]: the value, or a value inside it, does not fit `T`.
    /// - [`CfgError::Path`], [`CfgError::Through`]: no value of this configuration can have that path.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, CfgError> {
        match Path::parse(path)?.find(&self.root)? {
            Some(value) => de::read(value, path),
            None => de::read_absent(&self.root, path),
        }
    }

    /// Returns the value at `path`, or `default` if it is missing.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let cfg = CfgNode::new().with("lr", "fast")?;
    /// assert_eq!(cfg.get_or("steps", 10)?, 10);
    /// assert!(cfg.get_or("lr", 0.1).is_err());
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`get`](Self::get), except [`CfgError::Missing`]. A value of another type is an error, also
    /// null.
    pub fn get_or<T: DeserializeOwned>(&self, path: &str, default: T) -> Result<T, CfgError> {
        match Path::parse(path)?.find(&self.root)? {
            Some(value) => de::read(value, path),
            None => Ok(default),
        }
    }

    /// Reads the whole configuration as a `T`.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// #[derive(serde::Deserialize)]
    /// #[serde(deny_unknown_fields)]
    /// struct Training {
    ///     lr: f64,
    /// }
    ///
    /// let training: Training = CfgNode::from_yaml_str("lr: 0.1")?.extract()?;
    /// assert_eq!(training.lr, 0.1);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CfgError::Type`], with the path of the value that does not fit `T`.
    pub fn extract<T: DeserializeOwned>(&self) -> Result<T, CfgError> {
        de::read(&self.root, "")
    }

    /// Returns whether there is a value at `path`; null counts. False for an invalid path.
    pub fn contains(&self, path: &str) -> bool {
        matches!(Path::parse(path).and_then(|path| path.find(&self.root)), Ok(Some(_)))
    }

    /// Removes the value at `path`, and returns whether there was one. The later elements of a list move
    /// up.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let mut cfg = CfgNode::new().with("model.lr", 0.1)?;
    /// assert!(cfg.remove("model.lr")?);
    /// assert!(!cfg.remove("model.lr")?);
    /// assert!(cfg.contains("model"));
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CfgError::Frozen`], [`CfgError::Path`], [`CfgError::Through`].
    pub fn remove(&mut self, path: &str) -> Result<bool, CfgError> {
        self.check_open(|| format!("removing {path:?}"))?;
        let path = Path::parse(path)?;
        Ok(path.take(&mut self.root)?.is_some())
    }

    /// Returns the keys at the top, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.table().keys().map(String::as_str)
    }

    /// Returns whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.table().is_empty()
    }

    /// Merges `other` over this configuration. Two nodes at the same path are merged; any other value of
    /// `other` replaces the value here, lists as a whole and null included.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let mut cfg = CfgNode::from_yaml_str("model: {lr: 0.1, steps: [1, 2, 3]}")?;
    /// cfg.merge(&CfgNode::from_yaml_str("model: {steps: [9]}")?)?;
    /// assert_eq!(cfg, CfgNode::from_yaml_str("model: {lr: 0.1, steps: [9]}")?);
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`CfgError::Frozen`] if this is frozen; `other` may be.
    pub fn merge(&mut self, other: &CfgNode) -> Result<(), CfgError> {
        self.check_open(|| "merging".to_owned())?;
        tree::merge(&mut self.root, &other.root);
        Ok(())
    }

    /// Makes this configuration read-only, and every clone of it. It cannot be undone:
    /// [`thawed`](Self::thawed) returns a copy that can be changed.
    ///
    /// ```
    /// # use gangline_config::CfgNode;
    /// let mut cfg = CfgNode::new().with("lr", 0.1)?;
    /// cfg.freeze();
    /// assert!(cfg.set("lr", 0.2).is_err());
    /// assert!(cfg.thawed().set("lr", 0.2).is_ok());
    /// # Ok::<(), gangline_config::CfgError>(())
    /// ```
    pub fn freeze(&mut self) {
        self.state = NodeState::Frozen;
    }

    /// Returns whether this configuration is read-only.
    pub fn is_frozen(&self) -> bool {
        self.state == NodeState::Frozen
    }

    /// Returns a copy that is not frozen.
    pub fn thawed(&self) -> Self {
        CfgNode { root: self.root.clone(), state: NodeState::Open }
    }

    /// Returns the configuration as a value of JSON, to be compared with another.
    #[doc(hidden)]
    pub fn to_json(&self) -> serde_json::Value {
        ser::to_json(&self.root)
    }

    /// Takes a tree that was checked, if its top is a node.
    pub(super) fn from_root(root: Value) -> Result<Self, CfgError> {
        if matches!(root.kind, ValueKind::Table(_)) {
            return Ok(CfgNode { root, state: NodeState::Open });
        }
        let origin = root.origin().map(str::to_owned);
        Err(CfgError::Type { path: String::new(), origin, source: no_node(&root).into() })
    }

    pub(super) fn table(&self) -> &Table {
        match &self.root.kind {
            ValueKind::Table(table) => table,
            _ => unreachable!("the top of a configuration is a table"),
        }
    }

    pub(super) fn check_open(&self, change: impl FnOnce() -> String) -> Result<(), CfgError> {
        match self.state {
            NodeState::Open => Ok(()),
            NodeState::Frozen => Err(CfgError::Frozen { change: change() }),
        }
    }
}

impl Default for CfgNode {
    fn default() -> Self {
        CfgNode::new()
    }
}

impl PartialEq for CfgNode {
    fn eq(&self, other: &Self) -> bool {
        tree::same(&self.root, &other.root)
    }
}

impl Eq for CfgNode {}

impl fmt::Debug for CfgNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.is_frozen() { "CfgNode (frozen) " } else { "CfgNode " };
        write!(f, "{name}{:?}", DebugTree(&self.root))
    }
}

/// A tree without its origins.
struct DebugTree<'v>(&'v Value);

impl fmt::Debug for DebugTree<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.kind {
            ValueKind::Table(table) => {
                f.debug_map().entries(table.iter().map(|(key, v)| (key, DebugTree(v)))).finish()
            }
            ValueKind::Array(list) => f.debug_list().entries(list.iter().map(DebugTree)).finish(),
            ValueKind::String(text) => write!(f, "{text:?}"),
            ValueKind::Float(x) => write!(f, "{x:?}"),
            ValueKind::Nil => f.write_str("null"),
            kind => write!(f, "{kind}"),
        }
    }
}

impl Serialize for CfgNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Tree(&self.root).serialize(serializer)
    }
}

/// Reads from any self-describing format, such as YAML, TOML and JSON.
impl<'de> Deserialize<'de> for CfgNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let root = TreeSeed { room: MAX_DEPTH }.deserialize(deserializer)?;
        if !matches!(root.kind, ValueKind::Table(_)) {
            return Err(Error::custom(no_node(&root)));
        }
        let root = tree::adopt(root, MAX_DEPTH).map_err(|fault| fault.at("", None));
        root.and_then(CfgNode::from_root).map_err(Error::custom)
    }
}

fn no_node(value: &Value) -> String {
    format!("invalid type: {}, expected a node", tree::describe(value))
}
