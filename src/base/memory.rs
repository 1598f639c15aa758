//! The memory of this process, and what it may have.

use std::fs;
use std::path::{Path, PathBuf};

/// How much memory this process may still take for results that are held back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Headroom {
    /// The resident memory at which it ends, in bytes. `None` where the system does not say.
    most: Option<u64>,
}

/// The share of all memory that such results may take: a tenth.
const SHARE: u64 = 10;

impl Headroom {
    /// A tenth of what the process may have, from now on.
    pub(crate) fn from_now() -> Self {
        let most = resident().zip(limit()).map(|(now, limit)| now + limit / SHARE);
        Headroom { most }
    }

    /// Whether there is some left. `false` where the system does not say.
    pub(crate) fn is_left(self) -> bool {
        resident().zip(self.most).is_some_and(|(now, most)| now < most)
    }
}

/// The resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    kibibytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// The memory of the machine or of the process's cgroup, whichever is less, in bytes.
pub(crate) fn limit() -> Option<u64> {
    let machine = kibibytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let of_groups =
        groups.lines().filter_map(|line| limit_of_group(line, Path::new("/sys/fs/cgroup")));
    Some(of_groups.fold(machine, u64::min))
}

/// The value of a line such as `VmRSS:    1234 kB`, in bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The limit of a cgroup and of those that it is in, by a line of `/proc/self/cgroup`: `0::/a/b`, or
/// `5:memory:/a/b` of version 1.
fn limit_of_group(line: &str, root: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, group) = (fields.next()?, fields.next()?);
    let (root, file) = match controllers {
        "" => (PathBuf::from(root), "memory.max"),
        "memory" => (root.join("memory"), "memory.limit_in_bytes"),
        _ => return None,
    };
    // In a container, the path is often that of the host: then only the root is there.
    let of_this = root.join(group.trim_start_matches('/'));
    let groups = of_this.ancestors().take_while(|path| path.starts_with(&root));
    // `max` is no number, and no limit.
    groups.filter_map(|group| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_in_kibibytes() {
        assert_eq!(kibibytes("Name:\tx\nVmRSS:\t    12 kB\n", "VmRSS:"), Some(12 << 10));
        for text in ["", "VmRSS:", "VmRSS: 12", "VmRSS: x kB", "VmRSS: 99999999999999999999 kB"] {
            assert_eq!(kibibytes(text, "VmRSS:"), None, "{text:?}");
        }
    }

    #[test]
    fn the_least_limit_of_a_group_and_those_around_it_counts() {
        let root = tempfile::tempdir().expect("there is a temporary folder");
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).expect("the folder is empty");
        let limit = || limit_of_group("0::/a/b", root.path());
        assert_eq!(limit(), None);
        fs::write(inner.join("memory.max"), "max\n").expect("the folder is there");
        assert_eq!(limit(), None);
        fs::write(inner.join("memory.max"), "4096\n").expect("the folder is there");
        fs::write(root.path().join("a/memory.max"), "1024\n").expect("the folder is there");
        assert_eq!(limit(), Some(1024));
        assert_eq!(limit_of_group("3:cpu:/a", root.path()), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_has_some_memory_and_may_have_more() {
        assert!(resident() > Some(100 << 10) && limit() > resident());
        assert!(Headroom::from_now().is_left());
    }
}
