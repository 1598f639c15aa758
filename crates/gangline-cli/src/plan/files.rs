//! The files that a run reads and writes: each has one purpose.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

use crate::args::RunArgs;
use crate::args::workers::Workers;
use crate::error::{CliError, usage};

/// Refuses a file that would be written for two options, or while it is read.
pub(crate) fn check_purposes(args: &RunArgs) -> Result<(), CliError> {
    let written = written(args);
    let read = args.source_files().map(|path| ("the inputs", path)).chain(jobs_file(args));
    let read: Vec<_> = read.filter(|(_, path)| *path != Path::new("-")).collect();
    for (index, (option, path)) in written.iter().enumerate() {
        let before = written[..index].iter().chain(&read);
        if let Some((other, _)) = before.into_iter().find(|(_, other)| is_same(path, other)) {
            return Err(usage(&format!(
                "{} is for {other} and for {option}: give each a file of its own",
                path.display()
            )));
        }
    }
    Ok(())
}

/// The options that write a file, with that file.
fn written(args: &RunArgs) -> Vec<(&'static str, &Path)> {
    let record = &args.record;
    let joblog = record.joblog.iter().map(|path| ("--joblog", path));
    let journal = record.journal.iter().map(|path| ("--journal", path));
    let reports = record.report.iter().map(|path| ("--report", path));
    let results = args.output.results.iter().map(|path| ("--results", path));
    let all = joblog.chain(journal).chain(reports).chain(results);
    all.map(|(option, path)| (option, path.as_path())).collect()
}

fn jobs_file(args: &RunArgs) -> Option<(&'static str, &Path)> {
    match &args.placement.workers {
        Some(Workers::File(path)) => Some(("-j", path)),
        Some(Workers::Number(_)) | None => None,
    }
}

/// Whether two paths are those of one file, which may not exist yet. A device such as /dev/null may have many
/// purposes.
fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => {
            !is_device(&one) && (one.dev(), one.ino()) == (other.dev(), other.ino())
        }
        (Err(_), Err(_)) => place_of(one) == place_of(other),
        _ => false,
    }
}

fn is_device(file: &fs::Metadata) -> bool {
    !file.is_file() && !file.is_dir()
}

/// A path by which a missing file can be compared. Its folder may be missing too.
fn place_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let folder = folder.canonicalize().or_else(|_| path::absolute(folder));
    let folder = folder.unwrap_or_default();
    path.file_name().map_or_else(|| folder.clone(), |name| folder.join(name))
}
