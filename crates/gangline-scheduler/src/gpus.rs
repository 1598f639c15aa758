//! The GPUs of a place, as the scheduler tells them apart.

/// The GPUs of one place, as numbers that the backend gives them. A GPU that breaks fails all producers that have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpus(Box<[usize]>);

impl Gpus {
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    pub(super) fn has(&self, gpu: usize) -> bool {
        self.0.contains(&gpu)
    }

    /// Whether both places have one of these GPUs.
    pub(super) fn overlap(&self, other: &Gpus) -> bool {
        self.iter().any(|gpu| other.has(gpu))
    }
}

impl FromIterator<usize> for Gpus {
    fn from_iter<I: IntoIterator<Item = usize>>(gpus: I) -> Self {
        Gpus(gpus.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_overlap_if_one_gpu_is_in_both() {
        let [none, one, two, both] =
            [&[][..], &[1], &[2], &[1, 2]].map(|gpus| gpus.iter().copied().collect::<Gpus>());
        assert!(both.overlap(&one) && two.overlap(&both) && one.overlap(&one));
        assert!(!one.overlap(&two) && !none.overlap(&both) && !none.overlap(&none));
        assert!(both.has(2) && !one.has(2));
    }
}
