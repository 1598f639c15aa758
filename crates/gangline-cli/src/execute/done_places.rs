//! Puts the records of jobs that an earlier run has done into their places among those of this run.

use std::collections::VecDeque;

/// The jobs that were read and whose records are not printed, in input order. The record of a job that an earlier run
/// has done waits here for the records before it.
#[derive(Debug, Default)]
pub(super) struct DonePlaces {
    places: VecDeque<DonePlace>,
    /// The number of records that wait.
    waiting: usize,
}

#[derive(Debug)]
enum DonePlace {
    Open(u64),
    Done(Vec<u8>),
}

/// The largest number of records that wait for one of an earlier job. As many outputs may wait.
const MOST_WAITING: usize = 1_000;

impl DonePlaces {
    pub(super) fn has_room(&self) -> bool {
        self.waiting < MOST_WAITING
    }

    /// Notes that a job was read.
    pub(super) fn read(&mut self, number: u64) {
        self.places.push_back(DonePlace::Open(number));
    }

    /// Notes that an earlier run has done the job that was read last. Returns the records to print now.
    pub(super) fn left_out(&mut self, line: Vec<u8>) -> Vec<u8> {
        self.places.pop_back();
        self.places.push_back(DonePlace::Done(line));
        self.waiting += 1;
        self.take()
    }

    /// Notes that the record of a job is written. Returns the records to print behind it.
    pub(super) fn written(&mut self, number: u64) -> Vec<u8> {
        let is_it = |place: &DonePlace| matches!(place, DonePlace::Open(open) if *open == number);
        if let Some(at) = self.places.iter().position(is_it) {
            self.places.remove(at);
        }
        self.take()
    }

    fn take(&mut self) -> Vec<u8> {
        let mut lines = Vec::new();
        while let Some(DonePlace::Done(line)) = self.places.front() {
            lines.extend_from_slice(line);
            self.places.pop_front();
            self.waiting -= 1;
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_waits_for_those_before_it() {
        let mut places = DonePlaces::default();
        places.read(1);
        assert_eq!(places.left_out(b"1".to_vec()), b"1");
        (2..=3).for_each(|number| places.read(number));
        assert_eq!(places.left_out(b"3".to_vec()), b"");
        (4..=5).for_each(|number| places.read(number));
        assert_eq!(places.left_out(b"5".to_vec()), b"");
        assert_eq!(places.written(2), b"3");
        assert_eq!(places.written(4), b"5");
        assert_eq!(places.waiting, 0);
    }

    #[test]
    fn few_records_wait() {
        let mut places = DonePlaces::default();
        places.read(0);
        for number in 1.. {
            if !places.has_room() {
                break;
            }
            places.read(number);
            places.left_out(vec![0]);
        }
        assert_eq!(places.waiting, MOST_WAITING);
        assert_eq!(places.written(0).len(), MOST_WAITING);
        assert!(places.has_room());
    }
}
