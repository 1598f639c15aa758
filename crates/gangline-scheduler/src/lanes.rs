//! The lanes of a run: one for each place, and spare ones for producers that replace lost ones.

use super::lease::ProducerId;

/// Which place each lane belongs to.
///
/// The first lanes are the places. A replacement gets a lane of its own on the place of the producer that it
/// replaces. So the lost one may still be in a hook: its leases, results and times stay apart.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The place of each lane that is in use.
    places: Vec<usize>,
    /// The number of lanes in all.
    all: usize,
    replacements: Vec<Replacement>,
}

#[derive(Debug)]
struct Replacement {
    lost: ProducerId,
    by: ProducerId,
    is_taken: bool,
}

impl Lanes {
    pub(super) fn new(places: usize, spares: usize) -> Self {
        Lanes { places: (0..places).collect(), all: places + spares, replacements: vec![] }
    }

    pub(super) fn len(&self) -> usize {
        self.all
    }

    /// Whether the lane belongs to a producer.
    pub(super) fn is_used(&self, lane: ProducerId) -> bool {
        lane < self.places.len()
    }

    pub(super) fn has_spare(&self) -> bool {
        self.places.len() < self.all
    }

    /// The place of a lane that is in use.
    pub(super) fn place(&self, lane: ProducerId) -> usize {
        self.places[lane]
    }

    /// The lanes of a place, the latest last; at least one.
    pub(super) fn of(&self, place: usize) -> Vec<ProducerId> {
        (0..self.places.len()).filter(|&lane| self.places[lane] == place).collect()
    }

    /// The latest lane of a place.
    pub(super) fn latest(&self, place: usize) -> ProducerId {
        self.places.iter().rposition(|&it| it == place).expect("each place has a lane")
    }

    /// Takes a spare lane for a producer that replaces this one.
    pub(super) fn replace(&mut self, lost: ProducerId) -> Option<ProducerId> {
        if !self.has_spare() {
            return None;
        }
        let by = self.places.len();
        self.places.push(self.places[lost]);
        self.replacements.push(Replacement { lost, by, is_taken: false });
        Some(by)
    }

    /// The lane of the producer that replaces this one; once.
    pub(super) fn take_replacement(&mut self, lost: ProducerId) -> Option<ProducerId> {
        let found = self.replacements.iter_mut().find(|it| it.lost == lost && !it.is_taken)?;
        found.is_taken = true;
        Some(found.by)
    }

    /// Whether a replacement of this producer was taken.
    pub(super) fn is_replaced(&self, lost: ProducerId) -> bool {
        self.replacements.iter().any(|it| it.lost == lost && it.is_taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replacement_is_on_the_place_of_the_lost_producer_and_is_taken_once() {
        let mut lanes = Lanes::new(2, 2);
        assert_eq!((lanes.replace(1), lanes.replace(2)), (Some(2), Some(3)));
        assert_eq!((lanes.replace(0), lanes.has_spare()), (None, false));
        assert_eq!(
            (lanes.place(2), lanes.place(3), lanes.latest(1), lanes.latest(0)),
            (1, 1, 3, 0)
        );
        assert!(!lanes.is_replaced(1));
        assert_eq!((lanes.take_replacement(1), lanes.take_replacement(1)), (Some(2), None));
        assert!(lanes.is_replaced(1) && !lanes.is_replaced(2));
    }

    #[test]
    fn a_place_has_the_lanes_of_all_that_worked_on_it() {
        let mut lanes = Lanes::new(2, 2);
        assert_eq!((lanes.of(0), lanes.of(1)), (vec![0], vec![1]));
        lanes.replace(1);
        lanes.replace(2);
        assert_eq!((lanes.of(0), lanes.of(1)), (vec![0], vec![1, 2, 3]));
    }
}
