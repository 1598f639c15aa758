//! Files out: whole trees, and what differs from a base.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use config::{Value, ValueKind};

use super::TextFormat;
use super::load::{self, BASE};
use crate::error::CfgError;
use crate::segment::join;
use crate::tree::{self, Table};

/// Writes the tree to `file`, whole or not at all.
pub(super) fn save(root: &Value, file: &Path) -> Result<(), CfgError> {
    let format = TextFormat::of(file)?;
    load::check_no_base(root, Some(file))?;
    load::check_spelling(root, file)?;
    write(file, &format.write(root)?)
}

/// Writes what differs from what `base` loads as, and where `base` is.
pub(super) fn save_diff(root: &Value, file: &Path, base: &Path) -> Result<(), CfgError> {
    let format = TextFormat::of(file)?;
    load::check_no_base(root, Some(file))?;
    load::check_spelling(root, file)?;
    let loaded = load::load(base)?;
    let target = real_target(file)?;
    // Written over one of the files under it, it would be its own base.
    if loaded.files.contains(&target) {
        let chain = vec![file.to_owned(), base.to_owned(), file.to_owned()];
        return Err(CfgError::BaseLoop { chain });
    }
    let mut diff = Table::new();
    diff.insert(BASE.to_owned(), relative_base(&real_directory(file)?, &loaded.files[0])?.into());
    diff.extend(difference(root, &loaded.root, base)?);
    write(file, &format.write(&diff.into())?)
}

fn difference(root: &Value, under: &Value, base: &Path) -> Result<Table, CfgError> {
    let mut lost = Vec::new();
    let diff = differing(root, under, "", &mut lost);
    if !lost.is_empty() {
        return Err(CfgError::BaseHasMore { base: base.to_owned(), paths: lost });
    }
    match diff.map(|diff| diff.kind) {
        Some(ValueKind::Table(table)) => Ok(table),
        _ => Ok(Table::new()),
    }
}

/// What must be laid over `under` to get `value`, if anything. What only `under` has is `lost`:
/// a merge cannot take it away.
fn differing(value: &Value, under: &Value, path: &str, lost: &mut Vec<String>) -> Option<Value> {
    let (ValueKind::Table(table), ValueKind::Table(below)) = (&value.kind, &under.kind) else {
        return (!tree::same(value, under)).then(|| value.clone());
    };
    lost.extend(below.keys().filter(|key| !table.contains_key(*key)).map(|key| join(path, key)));
    let mut diff = Table::new();
    for (key, value) in table {
        let differs = match below.get(key) {
            Some(under) => differing(value, under, &join(path, key), lost),
            None => Some(value.clone()),
        };
        diff.extend(differs.map(|value| (key.clone(), value)));
    }
    (!diff.is_empty()).then(|| diff.into())
}

/// `base` as seen from the directory `from`; both are canonical.
fn relative_base(from: &Path, base: &Path) -> Result<String, CfgError> {
    let shared = from.components().zip(base.components()).take_while(|(a, b)| a == b).count();
    // Nothing in common: another drive.
    let relative = if shared == 0 { base.to_owned() } else { climb(from, base, shared) };
    relative.into_os_string().into_string().map_err(|name| CfgError::Write {
        file: name.into(),
        source: io::Error::new(io::ErrorKind::InvalidInput, "the base's path is not valid Unicode"),
    })
}

fn climb(from: &Path, to: &Path, shared: usize) -> PathBuf {
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

/// The file that writing to `file` replaces: a link stays one.
fn real_target(file: &Path) -> Result<PathBuf, CfgError> {
    match fs::canonicalize(file) {
        Ok(target) if target.is_file() => Ok(target),
        Ok(_) => Err(CfgError::NotAFile { file: file.to_owned() }),
        Err(_) => {
            let parent = real_directory(file)?;
            Ok(parent.join(file.file_name().unwrap_or_default()))
        }
    }
}

/// The directory that `file` is named in. For a link that is where the link is, and not what it
/// leads to, since `load` looks for a base there.
fn real_directory(file: &Path) -> Result<PathBuf, CfgError> {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    fs::canonicalize(parent.unwrap_or(Path::new(".")))
        .map_err(|source| CfgError::Write { file: file.to_owned(), source })
}

/// Replaces `file` by `text` in one step, so that no reader sees half of it and a failure leaves it
/// unchanged.
fn write(file: &Path, text: &str) -> Result<(), CfgError> {
    let failed = |source| CfgError::Write { file: file.to_owned(), source };
    let target = real_target(file)?;
    let (opened, temporary) = create_beside(&target).map_err(failed)?;
    let written = fill(opened, &target, text).and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|source| {
        // The error to report is the one that came first.
        fs::remove_file(&temporary).ok();
        failed(source)
    })
}

/// A new file in the directory of `target`. One that is left from a process that was killed, or
/// belongs to another, is not touched.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".gangline-{}-{count}.tmp", std::process::id());
        let temporary = target.with_file_name(name);
        match File::create_new(&temporary) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((created?, temporary)),
        }
    }
}

fn fill(mut file: File, target: &Path, text: &str) -> io::Result<()> {
    if let Ok(replaced) = fs::metadata(target) {
        file.set_permissions(replaced.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
