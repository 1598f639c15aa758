//! The names that coordinators and workers of a namespace have in common.

use super::event::Emptied;
use crate::ClusterError;

/// A namespace: the prefix of all names.
#[derive(Debug, Clone)]
pub(super) struct SubjectNames {
    namespace: String,
}

impl SubjectNames {
    /// # Errors
    ///
    /// If a character has a meaning in names of subjects or streams.
    pub(super) fn new(namespace: &str) -> Result<Self, ClusterError> {
        check(namespace)?;
        Ok(SubjectNames { namespace: namespace.to_owned() })
    }

    /// The stream of items.
    pub(super) fn items(&self) -> String {
        format!("{}-items", self.namespace)
    }

    /// The stream of results.
    pub(super) fn results(&self) -> String {
        format!("{}-results", self.namespace)
    }

    /// The stream with a message for each live run, for tools that start workers.
    pub(super) fn runs(&self) -> String {
        format!("{}-runs", self.namespace)
    }

    /// The bucket of the workers' cards.
    pub(super) fn workers(&self) -> String {
        format!("{}-workers", self.namespace)
    }

    /// The bucket of the runs' keys.
    pub(super) fn keys(&self) -> String {
        format!("{}-keys", self.namespace)
    }

    /// The bucket of values that are too large for a message.
    pub(super) fn objects(&self) -> String {
        format!("{}-objects", self.namespace)
    }

    /// The streams that are emptied together.
    pub(super) fn emptied(&self, emptied: Emptied) -> Vec<String> {
        match emptied {
            Emptied::Items => vec![self.items()],
            Emptied::Results => vec![self.results()],
            Emptied::Buckets => {
                [self.workers(), self.keys()].map(|bucket| format!("KV_{bucket}")).to_vec()
            }
        }
    }

    /// The subjects of the objects of a run.
    pub(super) fn objects_of(&self, run: &str) -> String {
        format!("$O.{}.C.{run}.>", self.objects())
    }

    /// The subject of the input of an item.
    pub(super) fn input_object(&self, run: &str, name: &str) -> String {
        format!("$O.{}.C.{run}.in.{name}", self.objects())
    }

    /// The subject of the output of an item.
    pub(super) fn output_object(&self, run: &str, name: &str) -> String {
        format!("$O.{}.C.{run}.out.{name}", self.objects())
    }

    /// The subjects of a kind, of all runs.
    pub(super) fn all(&self, kind: &str) -> String {
        format!("{}.{kind}.>", self.namespace)
    }

    /// The subjects of the items of a run.
    pub(super) fn items_of(&self, run: &str) -> String {
        format!("{}.items.{run}.>", self.namespace)
    }

    /// The subjects of the items of one coordinator of a run.
    pub(super) fn items_of_epoch(&self, run: &str, epoch: u64) -> String {
        format!("{}.items.{run}.{epoch:x}.>", self.namespace)
    }

    /// The items of a run that any worker may take.
    pub(super) fn any(&self, run: &str, epoch: u64) -> String {
        format!("{}.items.{run}.{epoch:x}.any", self.namespace)
    }

    /// The items of a run for one worker.
    pub(super) fn to(&self, run: &str, epoch: u64, worker: &str) -> String {
        format!("{}.items.{run}.{epoch:x}.to.{worker}", self.namespace)
    }

    /// The results of a run.
    pub(super) fn results_of(&self, run: &str) -> String {
        format!("{}.results.{run}", self.namespace)
    }

    /// The message of a live run.
    pub(super) fn run(&self, run: &str) -> String {
        format!("{}.runs.{run}", self.namespace)
    }

    /// What workers tell the coordinator of a run.
    pub(super) fn notices(&self, run: &str) -> String {
        format!("{}.notices.{run}", self.namespace)
    }

    /// What coordinators tell all workers of a run, or one worker.
    pub(super) fn orders(&self, to: &str) -> String {
        format!("{}.orders.{to}", self.namespace)
    }

    /// The prefix of the subjects on which a process gets its answers. Coordinators and workers have their own, so that
    /// a broker can keep one from reading those of the other.
    pub(super) fn inbox(&self, role: Role) -> String {
        let role = match role {
            Role::Coordinator => "coordinator",
            Role::Worker => "worker",
        };
        format!("_INBOX.{}.{role}", self.namespace)
    }
}

/// What a process is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Coordinator,
    Worker,
}

/// The consumer of the items of a run that any worker may take. With its epoch, a coordinator cannot remove that of
/// the one that has taken over.
pub(super) fn consumer_of_any(run: &str, epoch: u64) -> String {
    format!("any-{run}-{epoch:x}")
}

/// The consumer of the items of a run for one worker.
pub(super) fn consumer_of(run: &str, epoch: u64, worker: &str) -> String {
    format!("to-{run}-{epoch:x}-{worker}")
}

/// The consumer of the results of a run.
pub(super) fn consumer_of_results(run: &str) -> String {
    format!("of-{run}")
}

/// The name of the input of a publication in the object store.
pub(super) fn input_name(epoch: u64, publication: u64) -> String {
    format!("{epoch:x}-{publication}")
}

/// Checks that a name can be part of a subject and of a stream's name.
pub(super) fn check(name: &str) -> Result<(), ClusterError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match !name.is_empty() && name.bytes().all(is_good) {
        true => Ok(()),
        false => Err(ClusterError::Name { name: name.to_owned() }),
    }
}

/// Replaces the characters that a name may not have.
pub(super) fn cleaned(text: &str) -> String {
    let clean = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    text.chars().map(clean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_a_meaning_in_subjects_is_refused() {
        for name in ["", "a.b", "a b", "a>", "*", "ä"] {
            assert!(SubjectNames::new(name).is_err(), "{name:?}");
        }
        assert_eq!(SubjectNames::new("a-1_B").unwrap().any("r", 31), "a-1_B.items.r.1f.any");
        assert_eq!(cleaned("node 7.example"), "node-7-example");
    }
}
