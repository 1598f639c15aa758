//! The configuration that hooks see.

/// The configuration that hooks see.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CfgNode {}

impl CfgNode {
    /// An empty configuration.
    pub fn new() -> Self {
        Self::default()
    }
}
