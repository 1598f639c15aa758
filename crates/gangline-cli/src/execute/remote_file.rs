//! Files that travel with a job: `--send` and `--fetch`.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::error::Context;
use crate::output::place::parent;
use tempfile::NamedTempFile;

/// The content of a file, and its permissions.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RemoteFile {
    mode: u32,
    content: ByteBuf,
}

/// The largest file: it is in memory on both sides.
const MOST: u64 = 64 << 20;

impl RemoteFile {
    /// Reads a file of a folder.
    pub(crate) fn read(folder: &Path, name: &Path) -> io::Result<RemoteFile> {
        let read = || {
            // A pipe would wait for its other end.
            let mut options = OpenOptions::new();
            let options = options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            let file = options.open(folder.join(name))?;
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Err(io::Error::other("it is not a regular file"));
            }
            let mode = metadata.permissions().mode() & 0o777;
            let mut content = Vec::new();
            file.take(MOST + 1).read_to_end(&mut content)?;
            match content.len() as u64 > MOST {
                true => Err(io::Error::other(format!("it has more than {MOST} bytes"))),
                false => Ok(RemoteFile { mode, content: ByteBuf::from(content) }),
            }
        };
        read().map_err(|error| naming(name, "cannot be read", error))
    }

    /// Writes it into a folder: whole, or not at all.
    pub(crate) fn write(&self, folder: &Path, name: &Path) -> io::Result<()> {
        let path = folder.join(name);
        let written = || {
            fs::create_dir_all(parent(&path))?;
            let mut file = NamedTempFile::new_in(parent(&path))?;
            file.write_all(&self.content)?;
            file.as_file().set_permissions(Permissions::from_mode(self.mode))?;
            file.persist(&path).map(drop).map_err(|error| error.error)
        };
        written().map_err(|error| naming(name, "cannot be written", error))
    }
}

/// The name of a file below the folder of a job, on both machines.
pub(crate) fn file_below(name: PathBuf) -> io::Result<PathBuf> {
    let is_below = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    match name.components().all(is_below) && name.file_name().is_some() {
        true => Ok(name),
        false => Err(io::Error::other(format!(
            "the file {} is not below the folder of the run: write its path without .. and a leading /",
            name.display()
        ))),
    }
}

fn naming(name: &Path, what: &str, error: io::Error) -> io::Error {
    let kind = error.kind();
    let text = format!("the file {} {what}: {error}", name.display());
    match kind {
        // A job without its program has another status than one without its file.
        io::ErrorKind::NotFound => io::Error::other(Context::new(text, error)),
        kind => io::Error::new(kind, Context::new(text, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_arrives_whole_and_may_be_executed() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(here.path().join("tool"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(here.path().join("tool"), Permissions::from_mode(0o751)).unwrap();
        let sent = RemoteFile::read(here.path(), Path::new("tool")).unwrap();
        sent.write(there.path(), Path::new("a/b/tool")).unwrap();
        let arrived = there.path().join("a/b/tool");
        assert_eq!(fs::read_to_string(&arrived).unwrap(), "#!/bin/sh\n");
        assert_eq!(fs::metadata(&arrived).unwrap().permissions().mode() & 0o777, 0o751);
        let missing = RemoteFile::read(here.path(), Path::new("missing")).unwrap_err();
        assert!(missing.to_string().starts_with("the file missing cannot be read: "), "{missing}");
    }

    #[test]
    fn a_name_leads_to_no_other_folder() {
        for name in ["a", "a/b.txt", "./a", "a/./b"] {
            assert!(file_below(name.into()).is_ok(), "{name}");
        }
        for name in ["", "/etc/passwd", "../a", "a/../../b", ".", "a/.."] {
            assert!(file_below(name.into()).is_err(), "{name}");
        }
    }
}
