//! `CfgNode` among the layers of the `config` crate.

use config::{Config, ConfigError, Map, Source, Value};

use super::CfgNode;
use super::error::{CfgError, MAX_DEPTH};
use super::tree;

/// A configuration as one layer of several, with the case and the order of its keys.
///
/// ```
/// # use gangline_config as gangline;
/// use gangline::CfgNode;
///
/// let defaults = CfgNode::new().with("model.lr", 0.1)?.with("model.depth", 18)?;
/// let layers = config::Config::builder()
///     .add_source(defaults)
///     .set_override("model.lr", 0.5)?
///     .build()?;
/// let cfg = CfgNode::try_from(layers)?;
/// assert_eq!(cfg.get::<f64>("model.lr")?, 0.5);
/// assert_eq!(cfg.get::<u32>("model.depth")?, 18);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Source for CfgNode {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.table().clone())
    }

    /// Merges whole: the default takes every top-level key apart as if it were a path.
    fn collect_to(&self, cache: &mut Value) -> Result<(), ConfigError> {
        tree::merge(cache, &self.root);
        Ok(())
    }
}

/// Takes over what the layers of a [`Config`] add up to; every value still knows its origin.
///
/// # Errors
///
/// [`CfgError::Key`] for a key that is empty or ends like `layers[1]`, and [`CfgError::TooDeep`].
impl TryFrom<Config> for CfgNode {
    type Error = CfgError;

    fn try_from(layers: Config) -> Result<Self, CfgError> {
        let root = tree::adopt(layers.cache, MAX_DEPTH).map_err(|fault| fault.at("", None))?;
        CfgNode::from_root(root)
    }
}
