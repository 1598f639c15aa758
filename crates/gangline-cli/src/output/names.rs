//! The names that marks make for the results of jobs.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use rustix::fs::syncfs;

use crate::output::misplaced::Misplaced;
use crate::output::place::{ENDS, ResultPlace, parent, with_end};

/// The names of the results of a run. Each lies in the folder before the first mark of the text, and belongs to
/// one job.
#[derive(Debug)]
pub(crate) struct Names {
    /// The folder as it was typed, with a slash at its end; empty for the current one.
    typed: OsString,
    /// The folder without links.
    folder: PathBuf,
    given: Mutex<GivenName>,
}

#[derive(Debug, Default)]
struct GivenName {
    /// The job of each name, since a second job with the name would replace the results of the first.
    names: HashMap<PathBuf, (u64, NameForm)>,
    /// The folders that have names.
    folders: HashSet<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameForm {
    Directory,
    Files,
}

impl Names {
    /// Makes the folder of a text that has `beginning` before its first mark.
    pub(crate) fn new(beginning: &OsStr) -> io::Result<Names> {
        let end = beginning.as_bytes().iter().rposition(|byte| *byte == b'/');
        let typed = &beginning.as_bytes()[..end.map_or(0, |end| end + 1)];
        let typed = OsStr::from_bytes(typed).to_owned();
        fs::create_dir_all(here(&typed))?;
        let folder = here(&typed).canonicalize()?;
        Ok(Names { typed, folder, given: Mutex::default() })
    }

    /// Returns the place of a job's results, by the name that the marks make. Fails before the job starts if the
    /// place is refused.
    pub(crate) fn place(&self, number: u64, name: &OsStr) -> Result<ResultPlace, Misplaced> {
        let path = Path::new(&self.typed).join(self.below(name)?);
        let form = match name.as_bytes().ends_with(b"/") {
            true => NameForm::Directory,
            false => NameForm::Files,
        };
        let place = match form {
            NameForm::Directory => ResultPlace::Directory(path.clone()),
            NameForm::Files => ResultPlace::Files(path.clone()),
        };
        // The lock keeps other jobs from taking a name, or making a folder in the place of a file, until the insertion.
        let mut given = self.given();
        let folder = self.make_folder(name, parent(&path))?;
        let own = folder.join(path.file_name().unwrap_or_default());
        given.check(number, form, &own, &path)?;
        place.check()?;
        given.names.insert(own, (number, form));
        given.folders.insert(folder);
        Ok(place)
    }

    /// Flushes the results in all folders to the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let given = self.given();
        let mut synced = HashSet::new();
        for folder in &given.folders {
            if synced.insert(fs::metadata(folder)?.dev()) {
                syncfs(File::open(folder)?)?;
            }
        }
        Ok(())
    }

    /// Returns the part of a name below the folder.
    fn below(&self, name: &OsStr) -> Result<PathBuf, Misplaced> {
        let made = &name.as_bytes()[self.typed.len().min(name.len())..];
        let is_absolute = self.typed.is_empty() && made.starts_with(b"/");
        let parts = || made.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
        if is_absolute || parts().any(|part| part == b"..") {
            return Err(self.leads_out(name));
        }
        if parts().next_back().is_none_or(|part| part == b".") {
            return Err(Misplaced::Unnamed { name: name.to_owned() });
        }
        Ok(parts().filter(|part| part != b".").map(OsStr::from_bytes).collect())
    }

    /// Makes a folder, unless a link leads out on the way. Returns its path without links.
    fn make_folder(&self, name: &OsStr, folder: &Path) -> Result<PathBuf, Misplaced> {
        let unusable = |error| Misplaced::unusable(folder)(error);
        let inside = |found: PathBuf| match found.starts_with(&self.folder) {
            true => Ok(found),
            false => Err(self.leads_out(name)),
        };
        for ancestor in folder.ancestors() {
            match here(ancestor.as_os_str()).canonicalize() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                found => {
                    inside(found.map_err(unusable)?)?;
                    break;
                }
            }
        }
        fs::create_dir_all(folder).map_err(unusable)?;
        inside(folder.canonicalize().map_err(unusable)?)
    }

    fn leads_out(&self, name: &OsStr) -> Misplaced {
        Misplaced::LeadsOut { name: name.to_owned(), folder: PathBuf::from(&self.typed) }
    }

    fn given(&self) -> MutexGuard<'_, GivenName> {
        self.given.lock().expect("nothing panics with the lock held")
    }
}

impl GivenName {
    /// Checks that no file of a job is one of another job.
    fn check(
        &self,
        number: u64,
        form: NameForm,
        own: &Path,
        shown: &Path,
    ) -> Result<(), Misplaced> {
        let of_other = |name: &Path| self.names.get(name).filter(|(other, _)| *other != number);
        if of_other(own).is_some() {
            return Err(Misplaced::Taken { path: shown.to_owned(), number });
        }
        let beside = || match form {
            NameForm::Directory => None,
            NameForm::Files => ENDS.iter().find_map(|end| of_other(&with_end(own, end))),
        };
        let of_files = |name: &Path| of_other(name).filter(|(_, form)| *form == NameForm::Files);
        let other = beside()
            .or_else(|| without_end(own).and_then(|name| of_files(&name)))
            .or_else(|| own.ancestors().skip(1).find_map(of_other));
        match other {
            None => Ok(()),
            Some((other, _)) => Err(Misplaced::Among { path: shown.to_owned(), number: *other }),
        }
    }
}

/// Returns the path of a folder; an empty name is the current folder.
fn here(folder: &OsStr) -> &Path {
    match folder.is_empty() {
        true => Path::new("."),
        false => Path::new(folder),
    }
}

/// Removes the ending of a file beside a result, such as `.json`; `None` without such an ending.
fn without_end(file: &Path) -> Option<PathBuf> {
    let bytes = file.as_os_str().as_bytes();
    let name = ENDS.iter().find_map(|end| bytes.strip_suffix(end.as_bytes()))?;
    Some(OsStr::from_bytes(name).into())
}
