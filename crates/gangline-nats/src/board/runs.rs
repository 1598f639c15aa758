//! The runs in which lanes of a pool are.

/// Numbers runs. The next run may begin while a lane of the last one still waits for the slower copy of an item.
#[derive(Debug, Default)]
pub(super) struct BoardRuns {
    /// From the earliest on.
    in_progress: Vec<BoardRun>,
    begun: u64,
}

#[derive(Debug)]
struct BoardRun {
    /// What the lanes call it, as long as one is in it.
    id: usize,
    number: u64,
    /// The number of lanes in it.
    lanes: usize,
    /// Its last publication; until it has one, the last of all.
    last: u64,
}

impl BoardRuns {
    /// A lane enters the run with this id. Returns the number of the run. `last` is the last publication of all.
    pub(super) fn enter(&mut self, id: usize, last: u64) -> u64 {
        if let Some(run) = self.in_progress.iter_mut().find(|run| run.id == id) {
            run.lanes += 1;
            return run.number;
        }
        self.begun += 1;
        self.in_progress.push(BoardRun { id, number: self.begun, lanes: 1, last });
        self.begun
    }

    /// A lane leaves a run. The run ends with the last of them.
    pub(super) fn leave(&mut self, number: u64) {
        self.run(number).lanes -= 1;
        self.in_progress.retain(|run| run.lanes > 0);
    }

    pub(super) fn note_publication(&mut self, number: u64, publication: u64) {
        self.run(number).last = publication;
    }

    pub(super) fn last_publication(&mut self, number: u64) -> u64 {
        self.run(number).last
    }

    /// The number of the last run in progress.
    pub(super) fn latest(&self) -> Option<u64> {
        self.in_progress.last().map(|run| run.number)
    }

    fn run(&mut self, number: u64) -> &mut BoardRun {
        let run = self.in_progress.iter_mut().find(|run| run.number == number);
        run.expect("a lane is in it")
    }
}
