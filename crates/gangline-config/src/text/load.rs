//! Files in: reading, and `__BASE__`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use config::{Value, ValueKind};

use super::{MAX_BYTES, TextFormat};
use crate::error::CfgError;
use crate::tree;

/// The top-level key of a file that names the file under it.
pub(super) const BASE: &str = "__BASE__";

/// The maximum number of files in a chain of `__BASE__`.
const MAX_FILES: usize = 64;

/// What one file and those under it hold.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) root: Value,
    /// The files without links and detours, the top one first.
    pub(super) files: Vec<PathBuf>,
}

/// Loads `file` and, under it, the file that its `__BASE__` names, and so on.
pub(super) fn load(file: &Path) -> Result<Loaded, CfgError> {
    let mut chain = FileChain::default();
    let mut layers = Vec::new();
    let mut next = Some(file.to_owned());
    while let Some(file) = next {
        chain.enter(&file)?;
        let mut layer = read(&file)?;
        check_spelling(&layer, &file)?;
        next = take_base(&mut layer, &file)?;
        layers.push(layer);
    }
    let mut root = layers.pop().expect("the file itself is a layer");
    for layer in layers.iter().rev() {
        tree::merge(&mut root, layer);
    }
    Ok(Loaded { root, files: chain.canonical })
}

/// Refuses a tree with a `__BASE__` that would be, or was, read as the name of a file.
pub(super) fn check_no_base(root: &Value, origin: Option<&Path>) -> Result<(), CfgError> {
    match &root.kind {
        ValueKind::Table(table) if table.contains_key(BASE) => {
            let origin = origin.map(|file| file.display().to_string());
            Err(CfgError::BaseOutsideFile { origin })
        }
        _ => Ok(()),
    }
}

/// Refuses a misspelt `__BASE__` at the top, since its base would silently be missing. A node is allowed, since it
/// names no file.
pub(super) fn check_spelling(root: &Value, file: &Path) -> Result<(), CfgError> {
    let ValueKind::Table(table) = &root.kind else { return Ok(()) };
    let letters = |key: &str| key.replace('_', "").to_lowercase();
    let is_misspelt = |(key, value): &(&String, &Value)| {
        *key != BASE && letters(key) == letters(BASE) && !matches!(value.kind, ValueKind::Table(_))
    };
    match table.iter().find(is_misspelt) {
        Some((key, _)) => Err(CfgError::BaseMisspelt { file: file.to_owned(), key: key.clone() }),
        None => Ok(()),
    }
}

/// The files on the way down. Compared without links and detours, shown as they are named.
#[derive(Debug, Default)]
struct FileChain {
    shown: Vec<PathBuf>,
    canonical: Vec<PathBuf>,
}

impl FileChain {
    fn enter(&mut self, file: &Path) -> Result<(), CfgError> {
        let canonical = fs::canonicalize(file)
            .map_err(|source| CfgError::Read { file: file.to_owned(), source })?;
        let is_known = self.canonical.contains(&canonical);
        self.shown.push(file.to_owned());
        self.canonical.push(canonical);
        if is_known {
            return Err(CfgError::BaseLoop { chain: std::mem::take(&mut self.shown) });
        }
        if self.shown.len() > MAX_FILES {
            let file = self.shown.swap_remove(0);
            return Err(CfgError::BaseChain { file, most: MAX_FILES });
        }
        Ok(())
    }
}

fn read(file: &Path) -> Result<Value, CfgError> {
    let format = TextFormat::of(file)?;
    let text = read_text(file)?;
    format.parse(&text, Some(&file.display().to_string()))
}

fn read_text(file: &Path) -> Result<String, CfgError> {
    let failed = |source| CfgError::Read { file: file.to_owned(), source };
    // Checked before opening: opening a pipe would wait for its writer.
    if !fs::metadata(file).map_err(failed)?.is_file() {
        return Err(CfgError::NotAFile { file: file.to_owned() });
    }
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).map_err(failed)?;
    opened.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        let origin = Some(file.display().to_string());
        return Err(CfgError::TooLarge { origin, limit: MAX_BYTES });
    }
    String::from_utf8(bytes)
        .map_err(|error| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, error)))
}

fn take_base(layer: &mut Value, file: &Path) -> Result<Option<PathBuf>, CfgError> {
    let ValueKind::Table(table) = &mut layer.kind else { return Ok(None) };
    let Some(base) = table.shift_remove(BASE) else { return Ok(None) };
    match base.kind {
        ValueKind::String(base) => find_base(file, Path::new(&base)).map(Some),
        _ => {
            let found = tree::describe(&base);
            Err(CfgError::BaseNotText { file: file.to_owned(), found })
        }
    }
}

/// Where `base` is: beside `file`, else from the current directory.
fn find_base(file: &Path, base: &Path) -> Result<PathBuf, CfgError> {
    let beside = file.parent().unwrap_or(Path::new("")).join(base);
    [beside, base.to_owned()]
        .into_iter()
        .find(|candidate| !base.as_os_str().is_empty() && candidate.exists())
        .ok_or_else(|| CfgError::BaseMissing { file: file.to_owned(), base: base.to_owned() })
}
